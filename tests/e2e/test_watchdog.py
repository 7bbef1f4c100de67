"""The watchdog opens a registration whose gateway is away, and only then, and closes it again."""

from __future__ import annotations

import base64
import json
import signal
import socket
import sys
import urllib.request
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.cluster import NAMESPACE
from tests.e2e.setups import REGISTRATIONS, BehindGateway, Hook, chart_account, run_manifests
from tests.kit import Process, free_port, run_command
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

    Json = dict[str, Any]

NAME: Final = "guarded"
PATH: Final = f"{REGISTRATIONS}/validatingwebhookconfigurations/{NAME}"
MUTATING: Final = f"{REGISTRATIONS}/mutatingwebhookconfigurations/{NAME}"
SYSTEM: Final = "watched-system"
SHOP: Final = "watched-shop"
"""Namespaces of no other test: one that another test has removed may still be ending."""
ANNOTATION: Final = "admission-gateway.io/watchdog"
EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
SLICES: Final = f"/apis/discovery.k8s.io/v1/namespaces/{NAMESPACE}/endpointslices"
SLICE: Final[Json] = {
    "metadata": {"name": NAME, "labels": {"kubernetes.io/service-name": NAME}},
    "addressType": "IPv4",
    "endpoints": [{"addresses": ["10.0.0.1"], "conditions": {"ready": True}}],
}
HOOK: Final = Hook("validate", "one.guarded.test", {"deny": {"code": 403, "message": "no"}})
TIMES: Final = (
    *("--interval", "0.2", "--after", "0.5", "--failures", "3"),
    *("--recovered", "0.5", "--min-open", "0", "--min-closed", "0"),
)
PROBE: Final[Json] = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "probe", "namespace": NAMESPACE},
    "spec": {"containers": [{"name": "main", "image": "none"}]},
}


@pytest.fixture
def gateway(cluster: Cluster, tmp_path: Path) -> Iterator[BehindGateway]:
    """A registered gateway that denies Pods, also in its own namespace."""
    with BehindGateway(cluster, tmp_path, [HOOK], NAME, manifests=("--include", "own-namespace")) as setup:
        for name in (SYSTEM, SHOP):
            cluster.api.create("/api/v1/namespaces", {"metadata": {"name": name}})
        try:
            yield setup
        finally:
            cluster.api.delete(EVENTS)


@pytest.fixture
def account(cluster: Cluster, tmp_path: Path) -> Iterator[Path]:
    """A kubeconfig with the rights that the chart gives a watchdog, and no others."""
    values = tmp_path / "values.json"
    watchdog = {"enabled": True, "mode": "Exempt", "probe": PROBE}
    values.write_text(json.dumps({"registration": {"name": NAME}, "watchdog": watchdog}))
    with chart_account(cluster, tmp_path, "admission-gateway-watchdog", f"--values={values}") as kubeconfig:
        yield kubeconfig


class Watchdog(Process):
    """The program, with its metrics."""

    def __init__(self, cluster: Cluster, folder: Path, *flags: str, kubeconfig: Path | None = None) -> None:
        self.port = free_port()
        (folder / "probe.yaml").write_text(json.dumps(PROBE))
        super().__init__(
            *(sys.executable, "-m", "gateway", "watchdog", "--name", NAME, *TIMES),
            *("--kubeconfig", str(kubeconfig or cluster.kubeconfig()), "--probe", str(folder / "probe.yaml")),
            *("--exempt-namespace", SYSTEM, "--listen", f"127.0.0.1:{self.port}", *flags),
        )
        eventually(lambda: self.value("last_look_timestamp_seconds") > 0)

    def value(self, name: str) -> float:
        """Return a value of the metrics; 0 before there is one."""
        prefix = f"admission_gateway_watchdog_{name} "
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/metrics", timeout=5) as answer:
                lines = answer.read().decode().splitlines()
        except OSError:
            return 0.0
        return float(next(line for line in lines if line.startswith(prefix)).removeprefix(prefix))

    def looks(self, result: str) -> float:
        """Return how many dry runs showed *result*."""
        return self.value(f'looks_total{{result="{result}"}}')

    def acts(self, act: str) -> float:
        """Return how often it has done *act*."""
        return self.value(f'acts_total{{act="{act}"}}')


def step(cluster: Cluster) -> str:
    annotations = cluster.api.get(PATH).document["metadata"].get("annotations", {})
    return str(json.loads(annotations.get(ANNOTATION, '{"step": "Closed"}'))["step"])


def webhooks(cluster: Cluster) -> list[Json]:
    found: list[Json] = cluster.api.get(PATH).document["webhooks"]
    return found


def create(cluster: Cluster, namespace: str) -> Answer:
    pod = {**PROBE, "metadata": {"name": "made", "namespace": namespace}}
    return cluster.api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", pod)


def notes(cluster: Cluster) -> list[str]:
    """Return the reasons of the Events about the validating object: the other one has its own."""
    items = cluster.api.get(EVENTS).document["items"]
    about = {"name": NAME, "kind": "ValidatingWebhookConfiguration"}
    return sorted(one["reason"] for one in items if about.items() <= one["regarding"].items())


def test_it_exempts_the_system_while_no_gateway_answers_and_restores(
    cluster: Cluster, gateway: BehindGateway, account: Path, tmp_path: Path
) -> None:
    before = webhooks(cluster)
    watchdog = Watchdog(cluster, tmp_path, "--mode", "Exempt", kubeconfig=account)
    try:
        assert create(cluster, SYSTEM).status == 403
        gateway.gateway.stop()
        eventually(lambda: step(cluster) == "Exempt")
        eventually(lambda: create(cluster, SYSTEM).status == 201)
        refused = create(cluster, SHOP)
        assert "failed calling webhook" in refused.message
        eventually(lambda: notes(cluster) == ["RegistrationRelaxed"])

        # The owner applies its registration again, and a controller writes a CA: neither reverts it.
        applied = run_manifests(
            *("--config", gateway.config, "--service", f"{NAMESPACE}/{NAME}:{gateway.port}"),
            *("--name", NAME, "--ca-file", cluster.ca_file, "--include", "own-namespace"),
            *("--apply", "--force-conflicts", "--kubeconfig", cluster.kubeconfig()),
        )
        assert applied.returncode == 0, applied.stderr
        bundle = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": cluster.ca_bundle}]
        assert cluster.api.patch(PATH, bundle, "application/json-patch+json").status == 200
        assert create(cluster, SYSTEM).status == 201
        conditions = [one["name"] for entry in webhooks(cluster) for one in entry.get("matchConditions", ())]
        assert conditions.count("watchdog.admission-gateway.io") == 1
        # A writer that replaces all of it does: the next look sees that.
        whole = cluster.api.get(PATH).document
        assert cluster.api.update(PATH, {**whole, "webhooks": before}).status == 200
        eventually(lambda: create(cluster, SYSTEM).status == 201)

        gateway.start_gateway(gateway.port)
        eventually(lambda: step(cluster) == "Closed")
        eventually(lambda: create(cluster, SYSTEM).status == 403)
        assert webhooks(cluster) == before
        # The second time is not another opening, and has the Event of the first.
        eventually(lambda: notes(cluster) == ["RegistrationRelaxed", "RegistrationRestored"])
        # Of both objects.
        eventually(lambda: (watchdog.acts("open"), watchdog.acts("close")) == (2, 2))

        # Not twice within an hour.
        gateway.gateway.stop()
        watchdog.expect("a person has to decide")
        assert step(cluster) == "Closed"
    finally:
        watchdog.stop()


def test_workers_that_are_away_are_an_answer_and_so_is_a_ready_endpoint(
    cluster: Cluster, gateway: BehindGateway, tmp_path: Path
) -> None:
    watchdog = Watchdog(cluster, tmp_path, "--mode", "Ignore")
    try:
        gateway.worker.stop()
        eventually(lambda: "no" not in create(cluster, SHOP).message.split())
        seen = watchdog.looks("answered")
        eventually(lambda: watchdog.looks("answered") > seen + 10)
        assert (step(cluster), watchdog.acts("open")) == ("Closed", 0)

        assert cluster.api.create(SLICES, SLICE).status == 201
        eventually(lambda: watchdog.value("ready_endpoints") == 1)
        gateway.gateway.stop()
        eventually(lambda: watchdog.looks("unreachable") > 10)
        assert (step(cluster), watchdog.acts("open")) == ("Closed", 0)
        eventually(lambda: watchdog.value("alerting") == 1)
        # The network alone was away, and the endpoint is gone now.
        cluster.api.delete(f"{SLICES}/{NAME}")
        eventually(lambda: step(cluster) == "Exempt")
    finally:
        watchdog.stop()
        cluster.api.delete(f"{SLICES}/{NAME}")


def test_a_gateway_that_never_answers_is_away_without_a_ready_endpoint_and_otherwise_a_person_decides(
    cluster: Cluster, gateway: BehindGateway, tmp_path: Path
) -> None:
    """A network that takes connections and drops everything else."""
    document = cluster.api.get(PATH).document
    for entry in document["webhooks"]:
        entry["timeoutSeconds"] = 1
    assert cluster.api.update(PATH, document).status == 200
    watchdog = Watchdog(cluster, tmp_path, "--mode", "Exempt")
    try:
        for is_ready in (False, True):
            gateway.gateway.stop()
            if is_ready:
                assert cluster.api.create(SLICES, SLICE).status == 201
            with socket.create_server(("127.0.0.1", gateway.port)):
                if is_ready:
                    wanted = watchdog.looks("timeout") + 5
                    eventually(lambda: watchdog.looks("timeout") >= wanted)  # noqa: B023 # in this turn
                    assert (step(cluster), watchdog.value("alerting")) == ("Closed", 1)
                    flags = ("--relax", "--name", NAME, "--exempt-namespace", SYSTEM)
                    relaxed = run_command("watchdog", *flags, "--kubeconfig", cluster.kubeconfig())
                    assert relaxed.returncode == 0, relaxed.stderr
                    assert "relaxed (Exempt)" in relaxed.stdout
                eventually(lambda: step(cluster) == "Exempt")
                eventually(lambda: create(cluster, SYSTEM).status == 201)
                assert "failed calling webhook" in create(cluster, SHOP).message
            gateway.start_gateway(gateway.port)
            eventually(lambda: step(cluster) == "Closed")
            eventually(lambda: create(cluster, SYSTEM).status == 403)
    finally:
        watchdog.stop()
        cluster.api.delete(f"{SLICES}/{NAME}")


def test_with_alert_nothing_is_relaxed(cluster: Cluster, gateway: BehindGateway, tmp_path: Path) -> None:
    watchdog = Watchdog(cluster, tmp_path)
    try:
        gateway.gateway.stop()
        watchdog.expect("alert: 0 ready endpoints, dry run unreachable")
        watchdog.expect("mode is Alert, so the registration stays as it is")
        eventually(lambda: watchdog.looks("unreachable") > 10)
        assert step(cluster) == "Closed"
    finally:
        watchdog.stop()


def test_two_watchdogs_open_once_and_one_that_starts_later_closes(
    cluster: Cluster, gateway: BehindGateway, tmp_path: Path
) -> None:
    flags = ("--mode", "Ignore", "--escalate-after", "0.5")
    both = [Watchdog(cluster, tmp_path, *flags) for _ in range(2)]
    try:
        gateway.gateway.stop()
        eventually(lambda: step(cluster) == "Ignore")
        eventually(lambda: create(cluster, SHOP).status == 201)
        # Each of the two objects once. The other object, and the counters, may come a moment later.
        eventually(lambda: sum(one.acts("escalate") for one in both) >= 2)
        assert sum(one.acts("open") for one in both) == 2
        assert sum(one.acts("escalate") for one in both) == 2
    finally:
        for one in both:
            one.stop()
    assert step(cluster) == "Ignore"
    gateway.start_gateway(gateway.port)
    later = Watchdog(cluster, tmp_path, "--mode", "Alert")
    try:
        eventually(lambda: step(cluster) == "Closed")
        eventually(lambda: create(cluster, SHOP).status == 403)
    finally:
        later.stop()


def test_an_api_server_that_is_away_is_not_the_gateway(
    cluster: Cluster, gateway: BehindGateway, tmp_path: Path
) -> None:
    # Its tokens, objects and watches are those of before: the other tests do not notice.
    watchdog = Watchdog(cluster, tmp_path, "--mode", "Exempt")
    try:
        cluster.stop_api_server()
        watchdog.expect("error: .*; retrying")
        cluster.restart_api_server()
        seen = watchdog.looks("answered")
        eventually(lambda: watchdog.looks("answered") > seen + 3)
        assert step(cluster) == "Closed"
        gateway.gateway.stop()
        eventually(lambda: step(cluster) == "Exempt")
        watchdog.signal(signal.SIGTERM)
        assert watchdog.child.wait(30) == 0
        # A person ends it.
        restored = run_command("watchdog", "--restore", "--name", NAME, "--kubeconfig", cluster.kubeconfig())
        assert restored.returncode == 0, restored.stderr
        assert "run admission-gateway audit" in restored.stdout
        assert step(cluster) == "Closed"
        gateway.start_gateway(gateway.port)
    finally:
        watchdog.stop()


def test_owners_change_a_relaxed_registration_and_get_back_what_they_want(
    cluster: Cluster, gateway: BehindGateway, tmp_path: Path
) -> None:
    """With ``--split-mutating`` an entry with Fail goes and another comes, as with other policies."""

    def apply(*flags: str) -> Json:
        # As the chart's Jobs do.
        done = run_manifests(
            *("--config", gateway.config, "--service", f"{NAMESPACE}/{NAME}:{gateway.port}"),
            *("--name", NAME, "--ca-file", cluster.ca_file, "--include", "own-namespace", *flags),
            *("--apply", "--force-conflicts", "--kubeconfig", cluster.kubeconfig()),
        )
        assert done.returncode == 0, done.stderr
        found: Json = cluster.api.get(MUTATING).document
        return found

    def names(document: Json) -> dict[str, bool]:
        """Return the beginnings of the names of entries, and whether each is relaxed."""
        end = f".mutate.{NAME}.admission-gateway.io"
        return {f".{one['name']}".removesuffix(end): "matchConditions" in one for one in document["webhooks"]}

    def wait_until(wanted: dict[str, bool]) -> None:
        eventually(lambda: names(cluster.api.get(MUTATING).document) == wanted, f"{wanted}")

    ignored = Hook("mutate", "b.guarded.test", {}, fields={"failurePolicy": "Ignore"})
    gateway.hooks = [*gateway.hooks, ignored]
    gateway.write_configuration()
    for path in (PATH, MUTATING):
        cluster.api.delete(path)
    apply()
    watchdog = Watchdog(cluster, tmp_path, "--mode", "Exempt")
    try:
        gateway.gateway.stop()
        wait_until({"": True})
        # Another manager's field in an entry that goes: that of cert-manager's cainjector, for example.
        twice = base64.b64encode(cluster.ca_file.read_bytes() * 2).decode()
        bundle = [{"op": "add", "path": "/webhooks/0/clientConfig/caBundle", "value": twice}]
        assert cluster.api.patch(MUTATING, bundle, "application/json-patch+json").status == 200
        split = names(apply("--split-mutating"))
        assert split.keys() == {".fail", ".ignore"}
        wait_until({".fail": True, ".ignore": False})

        # A registration that is deleted and made anew is opened at the next look.
        for path in (PATH, MUTATING):
            cluster.api.delete(path)
        apply()
        wanted = {path: without_conditions(cluster, path) for path in (PATH, MUTATING)}
        wait_until({"": True})

        gateway.start_gateway(gateway.port)
        for path, webhooks_of_owner in wanted.items():
            eventually(lambda: cluster.api.get(path).document["webhooks"] == webhooks_of_owner)  # noqa: B023
    finally:
        watchdog.stop()


def without_conditions(cluster: Cluster, path: str) -> list[Json]:
    """Return the webhooks as their owner wants them, who has no matchConditions."""
    return [
        {key: value for key, value in one.items() if key != "matchConditions"}
        for one in cluster.api.get(path).document["webhooks"]
    ]
