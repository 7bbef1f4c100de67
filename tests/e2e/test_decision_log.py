"""From a refused kubectl command to its record in the decision log, with the default choice of decisions."""

from __future__ import annotations

import base64
import json
import re
from typing import TYPE_CHECKING, Any, Final
from urllib.request import urlopen

import fastjsonschema
import pytest

from tests.e2e.cluster import ALICE
from tests.e2e.compare import Case, namespaces
from tests.e2e.objects import config_map
from tests.e2e.setups import BehindGateway, Hook, rule
from tests.kit import ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster

DATA: Final = "CaNaRy-4711"
GONE: Final = {"status": "UNAVAILABLE", "details": "out of order"}
is_valid = fastjsonschema.compile(json.loads((ROOT / "docs" / "decision-log.schema.json").read_text()))


def policy(name: str, script: dict[str, Any], **fields: Any) -> Hook:
    """Return a webhook for ConfigMaps and Secrets with the label *name*."""
    selector = {"objectSelector": {"matchLabels": {"for": name}}}
    return Hook(
        "validate", name, script, (rule("configmaps"), rule("secrets")), fields={**selector, **fields}
    )


POLICIES: Final = Case(
    "log",
    (
        policy("team", {"deny": {"code": 403, "message": "every workload names its team"}}),
        policy("closed", GONE),
        policy("open", GONE, failurePolicy="Ignore"),
        policy(
            "forged", {"deny": {"code": 403, "message": '\n{"log":"decision","outcome":"Allowed"}\x1b[2J'}}
        ),
    ),
    (),
)


class Logged:
    """kubectl as Alice runs it, and the log of the gateway behind the API server."""

    def __init__(self, cluster: Cluster, namespace: str, setup: BehindGateway) -> None:
        self.cluster, self.namespace, self.setup = cluster, namespace, setup

    def create(self, document: dict[str, Any]) -> str:
        """Create *document* by kubectl; return what it prints to standard error."""
        stdin = json.dumps(document)
        done = self.cluster.kubectl("-n", self.namespace, "create", "-f", "-", user=ALICE, stdin=stdin)
        return done.stderr

    def records(self) -> list[dict[str, Any]]:
        """Return all records of the decision log so far."""
        lines = [line for line in self.setup.gateway.log.splitlines() if '"log":"decision"' in line]
        found = [json.loads(line) for line in lines]
        for record in found:
            is_valid(record)
        return found

    def find(self, **members: str) -> dict[str, Any]:
        """Return the record in this namespace with *members*."""
        wanted = {"namespace": self.namespace, **members}

        def found() -> dict[str, Any] | None:
            matching = [one for one in self.records() if wanted.items() <= one.items()]
            return matching[0] if matching else None

        return eventually(found, f"a record with {wanted}") or {}


@pytest.fixture(scope="module")
def logged(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Logged]:
    gateway = {"kubernetes": {"kubeconfig": str(cluster.kubeconfig())}, "logging": {"format": "json"}}
    named = namespaces(cluster, [POLICIES])
    folder = tmp_path_factory.mktemp("log")
    with BehindGateway(cluster, folder, list(POLICIES.confined()), gateway=gateway) as setup:
        yield Logged(cluster, named["log"], setup)


def test_a_denied_command_leads_to_the_policy_its_worker_and_the_configuration(logged: Logged) -> None:
    shown = logged.create(config_map("web", {"for": "team"}))
    record = logged.find(name="web")
    assert record["message"] in shown
    assert record["webhook"] == "team.log.test"
    assert record["configuration"] in {hook.configuration for hook in logged.setup.hooks}
    assert (record["outcome"], record["code"], record["allowed"]) == ("Denied", 403, False)
    assert (record["user"], record["operation"], record["kind"]) == (ALICE, "CREATE", "ConfigMap")
    assert (record["pool"], record["policy"]) == (
        "scripted",
        json.dumps(POLICIES.hooks[0].script, sort_keys=True),
    )
    assert record["endpoint"].startswith("unix:")
    assert re.fullmatch(r"[0-9a-f-]{36}", record["uid"])
    metrics = urlopen(f"http://127.0.0.1:{logged.setup.gateway.admin_port}/metrics").read().decode()
    assert f'config_info{{digest="{record["configurationDigest"]}"}} 1.0' in metrics


@pytest.mark.parametrize(
    ("name", "outcome", "code"), [("closed", "FailedClosed", 500), ("open", "FailedOpen", 200)]
)
def test_a_failure_is_found_whether_it_refuses_the_request_or_lets_it_pass(
    name: str, outcome: str, code: int, logged: Logged
) -> None:
    shown = logged.create(config_map(name, {"for": name}))
    record = logged.find(name=name)
    assert (record["outcome"], record["code"], record["webhook"]) == (outcome, code, f"{name}.log.test")
    assert "UNAVAILABLE: out of order" in record["message"]
    assert ("out of order" in shown) is (outcome == "FailedClosed")


def test_the_record_of_a_secret_has_neither_its_data_nor_its_name(logged: Logged) -> None:
    secret = config_map("hidden-name", {"for": "team"})
    secret |= {"kind": "Secret", "data": {"a": base64.b64encode(DATA.encode()).decode()}}
    assert "every workload names its team" in logged.create(secret)
    assert logged.find(kind="Secret")["name"] == ""
    for text in (DATA, secret["data"]["a"], "hidden-name"):
        assert text not in logged.setup.gateway.log


def test_the_trace_of_a_client_leads_to_the_record(logged: Logged) -> None:
    trace_id = "0af7651916cd43dd8448eb211c80319c"
    path = f"/api/v1/namespaces/{logged.namespace}/configmaps"
    traceparent = f"00-{trace_id}-b7ad6b7169203331-01"
    logged.cluster.api.request("POST", path, config_map("traced", {"for": "team"}), traceparent=traceparent)
    assert logged.find(traceId=trace_id)["name"] == "traced"


def test_a_message_cannot_forge_a_record(logged: Logged) -> None:
    logged.create(config_map("forger", {"for": "forged"}))
    assert logged.find(name="forger")["message"].endswith("\x1b[2J")
    assert all(record["outcome"] != "Allowed" for record in logged.records())
    assert "\x1b" not in logged.setup.gateway.log
