"""Outages of the cluster itself: the watchdog of the chart relaxes the registration and restores it.

All runs as in a cluster: the gateway, the watchdog on its node's network, and a network plug-in that sets up
the route to Pods when its Pods start. Clients create forbidden Pods all the time, and none is admitted.
"""

from __future__ import annotations

import json
import re
import subprocess
import urllib.request
from textwrap import dedent
from typing import TYPE_CHECKING, Final

import pytest
import yaml

from tests.docs.pages import DOCS, section
from tests.e2e.charts import write_config_map
from tests.e2e.helm_release import DRY_PODS, LATEST, OFTEN, Release, try_image, values
from tests.e2e.kubelet.network import ROUTE, missing
from tests.e2e.load import Load
from tests.e2e.objects import pod
from tests.e2e.whole import whole_cluster
from tests.kit import metric_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no private network: {missing()}")

NAME: Final = "admission-gateway"
NETWORK: Final = "calico-system"
PLUGIN: Final = f"/apis/apps/v1/namespaces/{NETWORK}/daemonsets/calico-node"
"""Those of the documentation."""
LOST: Final = ("--node-monitor-period=1s", "--node-monitor-grace-period=10s")
"""A node is lost ten seconds after its kubelet, 50 by default."""
ON_THE_NETWORK_OF_NODES: Final = {"hostNetwork": True, "tolerations": [{"operator": "Exists"}]}
PODS_OF_THE_PLUGIN: Final = {
    **ON_THE_NETWORK_OF_NODES,
    "terminationGracePeriodSeconds": 0,
    "containers": [
        {
            "name": "main",
            "image": "registry.test/tools:1",
            "command": ["sh", "-c", f"ip route replace {ROUTE}; exec sleep infinity"],
            "securityContext": {"privileged": True},
        }
    ],
}
PODS: Final = ROUTE.partition(" ")[0]
LOCK_OUTS: Final = (DOCS / "lock-outs.md").read_text()


def blocks(text: str, language: str = "sh") -> list[str]:
    """Return the blocks of code in Markdown *text*."""
    found = re.findall(rf"^( *)```{language}\n(.*?)^\1```$", text, re.MULTILINE | re.DOTALL)
    return [dedent(content) for _, content in found]


def command_with(words: str, text: str = LOCK_OUTS) -> str:
    """Return the one block of commands in *text* that has *words*."""
    (found,) = (block for block in blocks(text) if words in block)
    return found


def repair(page: str) -> list[str]:
    """Return the commands with which a runbook repairs what its alert says."""
    return blocks(section((DOCS / "runbooks" / page).read_text(), "Repair"))


@pytest.fixture(scope="module")
def whole(cluster: Cluster, folder: Path) -> Iterator[Cluster]:
    with whole_cluster(cluster.binaries, folder, *LOST) as whole:
        yield whole


@pytest.fixture(scope="module")
def release(whole: Cluster, folder: Path) -> Release:
    """A release with a watchdog, each on a node of its own, and the network plug-in."""
    assert whole.api.create("/api/v1/namespaces", {"metadata": {"name": NETWORK}}).status == 201
    labels = {"k8s-app": "calico-node"}
    plugin = {
        "metadata": {"name": "calico-node"},
        "spec": {
            "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": PODS_OF_THE_PLUGIN},
        },
    }
    assert whole.api.create(PLUGIN.rpartition("/")[0], plugin).status == 201
    release = Release(whole, folder, NAME, NAME)
    (probe,) = blocks(LOCK_OUTS, "yaml")
    watchdog = {
        "enabled": True,
        "mode": "Exempt",
        "probe": yaml.safe_load(probe),
        "exemptNamespaces": ["kube-system", NETWORK],
        "replicas": 1,
        "hostNetwork": True,
        "apiServer": f"127.0.0.1:{whole.port}",
        "nodeSelector": {"kubernetes.io/hostname": "node-2"},
        "afterSeconds": 1,
        "extraArgs": [
            *("--interval=0.5", "--failures=3", "--recovered=1", "--min-open=0", "--min-closed=0"),
        ],
    }
    own = {
        "replicas": 1,
        "nodeSelector": {"kubernetes.io/hostname": "node-0"},
        "readinessProbe": OFTEN,
        "watchdog": watchdog,
    }
    release.install({**values(), **own})
    eventually(lambda: whole.api.get(PLUGIN).document["status"].get("numberReady") == 3)
    config_map = whole.api.get(f"/api/v1/namespaces/{NAME}/configmaps/{NAME}").document
    (folder / "config").mkdir()
    write_config_map(folder / "config", config_map)
    return release


class Refusals(Load):
    """Creates of forbidden Pods, each of which has to be refused, by whomever."""

    def __init__(self, cluster: Cluster) -> None:
        document = pod("forbidden", containers=[{"name": "main", "image": LATEST}])
        super().__init__(cluster.api, DRY_PODS, document=document, clients=2, pause_s=0.1)

    def fault(self, answer: Answer) -> str:
        return "admitted" if answer.status == 201 else ""


def steps(release: Release) -> set[str]:
    """Return the steps of both objects of the registration."""
    found = [one["metadata"].get("annotations", {}) for one in release.registrations()]
    return {
        json.loads(one.get("admission-gateway.io/watchdog", '{"step": "Closed"}'))["step"] for one in found
    }


def metric(name: str, **labels: str) -> float:
    """Return a metric of the watchdog."""
    with urllib.request.urlopen("http://127.0.0.1:9095/metrics", timeout=5) as answer:
        return metric_of(answer.read().decode(), f"admission_gateway_watchdog_{name}", labels)


def refusal_of_a_policy(release: Release, namespace: str = "default") -> bool:
    """Whether a forbidden Pod is refused by the policy, and not because nobody answers."""
    return "latest.samples.test" in try_image(release.cluster, LATEST, namespace).message


def wait_until_restored(release: Release) -> None:
    """Wait until the watchdog has restored the registration, and the policy decides in all namespaces."""
    eventually(lambda: steps(release) == {"Closed"}, "restored")
    for namespace in ("default", NETWORK):
        eventually(lambda: refusal_of_a_policy(release, namespace), namespace)  # noqa: B023 # in this turn


def succeed(release: Release, script: str) -> str:
    """Run commands of the documentation, and return what they print."""
    done = release.shell(f"set -e\n{script}")
    assert done.returncode == 0, done
    return done.stdout


@pytest.fixture
def guarded(release: Release) -> Release:
    """The release, whose watchdog may act: it has forgotten what it did before."""
    succeed(release, command_with("admission-gateway.io/watchdog-"))
    wait_until_restored(release)
    return release


def routing(*arguments: str) -> None:
    """Change how the node sends packets."""
    subprocess.run(["ip", *arguments], check=True, capture_output=True)


def test_the_network_of_pods_comes_back_although_the_pods_of_its_plug_in_are_refused_at_first(
    guarded: Release,
) -> None:
    api = guarded.api
    checked = guarded.shell(command_with("check --config"))
    assert checked.returncode == 1, checked
    assert f"DEADLOCK T3 DaemonSet {NETWORK}/calico-node, 3 Pods: " in checked.stdout, checked.stdout

    def events() -> str:
        items = api.get(f"/api/v1/namespaces/{NETWORK}/events").document["items"]
        return " ".join(one["message"] for one in items if one["reason"] == "FailedCreate")

    with Refusals(guarded.cluster) as load:
        # What is sent to Pods comes back to the node, which drops it.
        routing("route", "replace", PODS, "dev", "lo")
        assert api.delete(f"/api/v1/namespaces/{NETWORK}/pods").status == 200
        eventually(lambda: "failed calling webhook" in events())
        eventually(lambda: steps(guarded) == {"Exempt"}, "relaxed")
        succeed(guarded, command_with("tried-again"))
        load.flows(2)
        eventually(lambda: api.get(PLUGIN).document["status"].get("numberReady") == 3)
        wait_until_restored(guarded)
        load.flows()
        assert not load.failures
    assert guarded.gateways()


def test_the_nodes_of_the_gateway_are_lost_and_come_back(guarded: Release, folder: Path) -> None:
    node = guarded.gateways()[0]["spec"]["nodeName"]
    away = folder / "pods" / "away" / node
    with Refusals(guarded.cluster) as load:
        away.touch()
        eventually(lambda: not guarded.gateways(), "the Pods of a lost node are not ready")
        eventually(lambda: steps(guarded) == {"Exempt"}, "relaxed")
        load.flows(2)
        away.unlink()
        wait_until_restored(guarded)
        load.flows()
        assert not load.failures
    assert guarded.gateways()


def test_only_the_path_to_the_gateway_is_away_and_a_person_decides(guarded: Release, folder: Path) -> None:
    """The kubelet reaches the gateway's other port."""
    api, pods = guarded.api, f"/api/v1/namespaces/{NETWORK}/pods"
    rule = ("to", PODS, "ipproto", "tcp", "dport", "8443", "blackhole")
    check, relax = repair("watchdog-alerting.md")
    restore, audit = repair("registration-relaxed.md")
    with Refusals(guarded.cluster) as load:
        opened = metric("acts_total", act="open")
        routing("rule", "add", *rule)
        try:
            eventually(lambda: metric("alerting") == 1)
            looks = metric("looks_total", result="unreachable")
            eventually(lambda: metric("looks_total", result="unreachable") > looks + 5)
            assert (metric("ready_endpoints"), metric("acts_total", act="open")) == (1, opened)
            assert steps(guarded) == {"Closed"}
            checked = guarded.shell(check)
            assert (checked.returncode, "DEADLOCK T3" in checked.stdout) == (1, True), checked
            succeed(guarded, relax)
            assert steps(guarded) == {"Exempt"}
            meanwhile = pod("meanwhile", containers=[{"name": "main", "image": LATEST}])
            eventually(lambda: api.create(pods, meanwhile).status in (201, 409))
        finally:
            routing("rule", "del", *rule)
        eventually(lambda: metric("alerting") == 0)
        succeed(guarded, restore)
        wait_until_restored(guarded)
        assert not load.failures
    # Outside of the cluster its names are unknown.
    (worker, *_) = (
        one["status"]["podIP"]
        for one in guarded.objects("pods")
        if one["metadata"]["labels"]["app.kubernetes.io/name"] == f"{NAME}-samples"
    )
    file = folder / "config" / "pools.yaml"
    file.write_text(re.sub(r"target: \S+", f"target: {worker}:50051", file.read_text()))
    audited = guarded.shell(audit)
    assert audited.returncode == 1, audited
    assert "meanwhile: " in audited.stdout
    assert api.delete(f"{pods}/meanwhile").status == 200


def test_a_registration_that_is_relaxed_is_restored_by_hand_without_a_watchdog(guarded: Release) -> None:
    page = (DOCS / "runbooks/watchdog-silent.md").read_text()
    watchdog = f"deployment/{NAME}-watchdog"
    succeed(
        guarded,
        f"kubectl -n {NAME} scale {watchdog} --replicas=0 && kubectl -n {NAME} wait pods "
        "-l app.kubernetes.io/name=admission-gateway-watchdog --for=delete",
    )
    succeed(guarded, repair("watchdog-alerting.md")[1])
    look, restore = repair("watchdog-silent.md")
    assert succeed(guarded, look).count('"step": "Exempt"') == 2
    succeed(guarded, restore)
    assert steps(guarded) == {"Closed"}
    succeed(guarded, f"kubectl -n {NAME} scale {watchdog} --replicas=1")
    (restart,) = re.findall(r"`(kubectl .*rollout restart .*)`", page)
    succeed(guarded, f"{restart}\nkubectl -n {NAME} rollout status {watchdog}")
