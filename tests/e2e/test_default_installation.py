"""A default installation of the chart, three replicas, operated as its notes and the documentation say."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
from typing import TYPE_CHECKING, Any, Final

import pytest

from deploy.chart_values import CHART
from tests.docs.pages import DOCS, section
from tests.e2e.helm_release import LATEST, PRIVILEGED, Release, try_image, values, webhook
from tests.e2e.kubelet.network import missing
from tests.e2e.objects import pod as new_pod
from tests.e2e.plan_states import SeenPlan
from tests.kit import run_command
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no private network: {missing()}")

NAME: Final = "admission-gateway"
MISSPELT: Final = webhook("latest.samples.test", "deny-latest-tags")
TAKES_NONE: Final = webhook("latest.samples.test", "deny-latest-tag")
TAKES_NONE["clientConfig"]["worker"]["parameters"] = {"max": 1}
NO_CEL: Final = webhook(
    "latest.samples.test", "deny-latest-tag", matchConditions=[{"name": "typo", "expression": "object."}]
)


@pytest.fixture(scope="module")
def release(whole: Cluster, folder: Path) -> Release:
    """A release with the names of the documentation; each test leaves it with the values of ``values()``."""
    release = Release(whole, folder, NAME, NAME)
    release.install(values())
    return release


def notes(release: Release, word: str) -> str:
    """Return the command of the notes that has *word*."""
    (found,) = (
        line
        for line in release.helm("get", "notes", NAME).stdout.splitlines()
        if line.startswith("    ") and word in line
    )
    return found.strip()


def gateways(release: Release) -> list[dict[str, Any]]:
    """Return what ``status --cluster`` says of each replica, by the command of the notes."""
    done = release.shell(notes(release, "status --cluster") + " --json")
    assert not done.stderr, done
    found: list[dict[str, Any]] = json.loads(done.stdout)["gateways"]
    return found


def scraped(release: Release) -> list[str]:
    """Return the metrics of each replica."""
    pods = (f"/api/v1/namespaces/{NAME}/pods/{pod['metadata']['name']}" for pod in release.gateways())
    return [release.cluster.kubectl("get", "--raw", f"{pod}:9090/proxy/metrics").stdout for pod in pods]


def digest(release: Release) -> str:
    """Wait until all three replicas have the same configuration in force, and return its digest."""

    def common() -> str:
        found = gateways(release)
        digests = {(one["overview"] or {}).get("configuration", {}).get("digest", "") for one in found}
        return digests.pop() if len(found) == 3 and len(digests) == 1 else ""

    return eventually(common, "one digest in all replicas")


def in_force(release: Release) -> tuple[object, ...]:
    """Return what must not change: the registration, and the configuration that replicas have in force."""
    registered = {one["kind"]: one["metadata"]["resourceVersion"] for one in release.registrations()}
    return registered, digest(release), {pod["metadata"]["name"] for pod in release.gateways()}


def test_all_replicas_have_one_configuration_and_the_status_has_all_columns(release: Release) -> None:
    digest(release)
    found = gateways(release)
    assert len(found) == len({one["name"] for one in found}) == 3
    for one in found:
        overview = one["overview"]
        assert (one["source"], one["note"], one["error"]) == ("pages", "", "")
        assert [len(each["sha256"]) for each in overview["certificates"] if not each["problem"]]
        assert overview["windowSeconds"] is not None
        for hook in overview["webhooks"]:
            assert hook["recent"] is not None
            assert hook["timeoutSeconds"] == 10
        (pool,) = overview["pools"]
        assert [len(endpoint["address"].split(":")) > 1 for endpoint in pool["endpoints"]]
    # The condition of the alert ConfigurationsDiffer.
    exposed = [
        re.findall(r'^admission_gateway_config_info\{digest="(\w+)"\} 1', text, re.MULTILINE)
        for text in scraped(release)
    ]
    assert exposed == [[digest(release)]] * 3
    table = release.shell(notes(release, "status --cluster"))
    assert all(pod["metadata"]["name"] in table.stdout for pod in release.gateways())


def test_pages_are_at_a_forwarded_port_and_not_at_the_address_of_the_pod(release: Release) -> None:
    command = notes(release, "port-forward").split()
    with subprocess.Popen(
        command, env=release.environment(), stdout=subprocess.PIPE, text=True
    ) as forwarding:
        assert forwarding.stdout is not None
        assert forwarding.stdout.readline().startswith("Forwarding from 127.0.0.1:9090")
        one = release.shell("curl -sS http://localhost:9090/?format=json; admission-gateway status --json")
        forwarding.terminate()
    assert '"kind": "Overview"' in one.stdout
    assert '"source": "pages"' in one.stdout
    for pod in release.gateways():
        address = f"{pod['status']['podIP']}:9090"
        done = release.shell(
            f"curl -sS -H 'Host: localhost' http://{address}/; curl -sS http://{address}/livez"
        )
        assert "the pages are served over loopback only" in done.stdout
        assert done.stdout.endswith("ok\n")


@pytest.mark.parametrize(
    ("resource", "verbs", "source", "note"),
    [
        ("pods/portforward", "get,create", "pages", ""),
        ("pods/proxy", "get", "metrics", "the port cannot be forwarded: "),
    ],
)
def test_the_status_needs_the_rights_that_its_page_names(
    release: Release, folder: Path, resource: str, verbs: str, source: str, note: str
) -> None:
    name, kubectl = resource.replace("/", "-"), release.cluster.kubectl
    steps = (
        ("serviceaccount", name),
        ("role", f"{name}-list", "--verb=list", "--resource=pods"),
        ("role", name, f"--verb={verbs}", f"--resource={resource}"),
        ("rolebinding", f"{name}-list", f"--role={name}-list", f"--serviceaccount={NAME}:{name}"),
        ("rolebinding", name, f"--role={name}", f"--serviceaccount={NAME}:{name}"),
    )
    for step in steps:
        assert kubectl("--namespace", NAME, "create", *step).returncode == 0
    token = kubectl("--namespace", NAME, "create", "token", name).stdout.strip()
    kubeconfig = release.cluster.write_kubeconfig(folder / f"{name}.kubeconfig", token=token)
    done = run_command("status", "--cluster", "--json", "--kubeconfig", kubeconfig)
    found = json.loads(done.stdout)["gateways"]
    assert [one["source"] for one in found] == [source] * 3, found
    assert all(one["note"].startswith(note) for one in found)


def statuses(release: Release) -> set[int]:
    """Return the statuses of some creates that the policy refuses where it is enforced."""
    return {try_image(release.cluster, LATEST).status for _ in range(20)}


def roll_back(release: Release, arguments: str) -> None:
    """Run the loop of the documentation over all pods, with other *arguments* of the command."""
    page = section((DOCS / "operate.md").read_text(), "Roll back")
    (loop,) = re.findall(r"```sh\n(for pod in .*?)```", page, re.DOTALL)
    assert "--to DIGEST" in loop
    done = release.shell("set -e\n" + loop.replace("--to DIGEST", arguments))
    assert done.returncode == 0, done
    assert len(done.stdout.splitlines()) >= 3, done


def test_the_documented_roll_back_acts_on_all_replicas(release: Release) -> None:
    before = digest(release)
    pods = {pod["metadata"]["name"] for pod in release.gateways()}
    assert release.upgrade(values("1", PRIVILEGED)).returncode == 0
    eventually(lambda: digest(release) != before, "the new configuration in all replicas")
    after = digest(release)
    assert {pod["metadata"]["name"] for pod in release.gateways()} == pods, "nothing was restarted"
    assert try_image(release.cluster, LATEST).status == 201
    roll_back(release, f"--to {before[:12]}")
    assert digest(release) == before
    assert statuses(release) == {403}
    roll_back(release, "--release")
    assert digest(release) == after
    assert release.upgrade(values()).returncode == 0
    eventually(lambda: digest(release) == before, "the first configuration in all replicas")


def test_a_rollout_plan_is_promoted_with_the_rights_of_the_release(release: Release, folder: Path) -> None:
    name, cluster = "latest.samples.test", release.cluster
    stages = [{"mode": "Audit", "for": "1s"}, {"mode": "Enforce", "gates": {"minReviews": 1000}}]
    planned = values("1", webhook(name, "deny-latest-tag", rollout={"plan": {"stages": stages}}))
    planned["configuration"] = {"rolloutPlans": {"installation": f"{NAME}/{NAME}"}}
    before = digest(release)
    assert release.upgrade(planned).returncode == 0
    token = cluster.kubectl("--namespace", NAME, "create", "token", NAME).stdout.strip()
    kubeconfig = cluster.write_kubeconfig(folder / "rollouts.kubeconfig", token=token)
    plan = SeenPlan(cluster, kubeconfig, f"{NAME}/{NAME}", name)
    plan.reaches("Progressing", 1)
    in_force = re.compile(rf'admission_gateway_rollout_plan_phase{{.*"{name}".*"Progressing".*}} 1')
    eventually(lambda: [len(in_force.findall(text)) for text in scraped(release)] == [1] * 3)
    assert statuses(release) == {201}
    # Evidence, which is no dry run. No node runs it.
    document = new_pod("planned", nodeSelector={"no-such": "node"})
    assert cluster.api.create("/api/v1/namespaces/default/pods", document).status == 201
    plan.reaches("Progressing", 2)
    eventually(lambda: statuses(release) == {403})
    eventually(lambda: "RolloutPromote" in {one["reason"] for one in plan.events})

    for action, phase, stage, status in (("rollback", "RolledBack", 1, 201), ("skip", "Progressing", 2, 403)):
        plan.command(action)
        plan.reaches(phase, stage)
        assert plan.decisions[-1] == (action, stage, f"system:serviceaccount:{NAME}:{NAME}")
        eventually(lambda status=status: statuses(release) == {status})  # type: ignore[misc]
    printed = release.shell("admission-gateway rollout status").stdout
    assert f"{name}: Progressing, stage 2 of 2 (Enforce)" in printed
    evidence = cluster.kubectl("get", "rolloutevidences", "--namespace", NAME, "--output=name").stdout
    assert len(evidence.split()) == 3
    for resource in ("rolloutstates", "rolloutevidences"):
        asked = ("auth", "can-i", "delete", f"{resource}.admission-gateway.io", "--namespace", NAME)
        assert cluster.kubectl(f"--kubeconfig={kubeconfig}", *asked).stdout.strip() == "yes"
    cluster.api.delete("/api/v1/namespaces/default/pods/planned")
    assert release.upgrade(values()).returncode == 0
    eventually(lambda: digest(release) == before, "the first configuration in all replicas")
    assert statuses(release) == {403}


def revisions(release: Release, *statuses: str) -> list[int]:
    """Return the numbers of the revisions with one of *statuses*; without any, of all."""
    history = json.loads(release.helm("history", NAME, "--output", "json").stdout)
    return [int(one["revision"]) for one in history if not statuses or one["status"] in statuses]


def printed(done: subprocess.CompletedProcess[str]) -> str:
    """Return what helm has printed; it quotes the logs of Jobs."""
    return (done.stdout + done.stderr).replace('\\"', '"')


@pytest.mark.parametrize(
    ("wrong", "reason"),
    [
        (MISSPELT, 'policy "deny-latest-tags" of pool samples'),
        (TAKES_NONE, "found parameters, expected none: the policy takes none"),
        (NO_CEL, "matchConditions"),
    ],
    ids=("policy", "parameters", "expression"),
)
def test_a_wrong_policy_fails_the_upgrade_and_a_rollback_to_it_and_the_one_before_stays(
    release: Release, wrong: dict[str, Any], reason: str
) -> None:
    before = in_force(release)
    # One attempt: the pause before each further one is that of Kubernetes, up to 40 s.
    done = release.upgrade({**values("1", wrong), "hooks": {"backoffLimit": 0}})
    assert done.returncode != 0
    assert reason in printed(done)
    assert in_force(release) == before
    assert try_image(release.cluster, LATEST).status == 403
    refused = revisions(release)[-1]
    assert refused in revisions(release, "failed")
    done = release.helm("rollback", NAME, str(refused), "--wait")
    assert done.returncode != 0
    assert reason in printed(done)
    assert in_force(release) == before
    assert try_image(release.cluster, LATEST).status == 403
    # The one that the notes say to name.
    release.rollback(revisions(release, "deployed", "superseded")[-1])
    assert in_force(release) == before


def test_an_upgrade_to_another_version_takes_its_defaults(release: Release, folder: Path) -> None:
    earlier = folder / "earlier"
    shutil.copytree(CHART, earlier)
    for file in ("values.yaml", "templates/_refuse.tpl"):
        text = (earlier / file).read_text()
        changed = re.sub(r'(defaultsOf: |\$defaults := ")[\d.]+', r"\g<1>0.0.1", text)
        assert changed != text
        (earlier / file).write_text(changed)
    done = release.helm("upgrade", NAME, str(earlier), "--wait", values=values())
    assert done.returncode == 0, done
    done = release.helm("upgrade", NAME, str(CHART), "--wait", "--reuse-values")
    assert done.returncode != 0
    assert "the default values are those of 0.0.1" in done.stderr
    assert "Use --reset-then-reuse-values" in done.stderr
    done = release.helm("upgrade", NAME, str(CHART), "--wait", "--reset-then-reuse-values")
    assert done.returncode == 0, done
    assert try_image(release.cluster, LATEST).status == 403


def test_a_first_installation_with_a_wrong_policy_is_not_registered(release: Release, folder: Path) -> None:
    second = Release(release.cluster, folder, "second", "second")
    assert release.cluster.kubectl("create", "namespace", second.namespace).returncode == 0
    apart = {"crds": {"enabled": False}, "replicas": 1, "hooks": {"backoffLimit": 0}}
    done = second.helm("install", "second", str(CHART), "--wait", values={**values("1", MISSPELT), **apart})
    assert done.returncode != 0
    assert not second.registrations()
    assert second.upgrade({**values(), **apart}).returncode == 0
    assert len(second.registrations()) == 2
    second.uninstall()
