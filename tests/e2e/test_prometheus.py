"""Metrics, alerts and dashboard with Prometheus' own programs."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import urllib.request
from contextlib import closing
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from deploy.alerts import ALERTS
from deploy.monitoring import APART, DASHBOARD, RUNBOOKS, apart_rule
from tests.audit.kit import audit_exposition
from tests.deploy.prometheus import plain_rules
from tests.e2e.alert_cases import BY_NAME, CASES
from tests.e2e.monitoring import Prometheus, promtool
from tests.e2e.objects import config_map
from tests.e2e.setups import BehindGateway, Hook, rule
from tests.faults.kit import wait_until_ready
from tests.faults.rotating import command_pool
from tests.kit import PATIENCE_S, REVIEWS, pool_document, webhook_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.kit import GatewayProcess
    from tests.worker.server import ScriptedWorker

POD = (REVIEWS / "pod-create-validate.json").read_bytes()
TRACE_ID = "0af7651916cd43dd8448eb211c80319c"
SAMPLED = f"00-{TRACE_ID}-b7ad6b7169203331-01"
NOT_SAMPLED = "00-1af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00"
PLAN = {"stages": [{"mode": "Audit", "for": "1h", "gates": {"maxNewlyDenied": 0}}, {"mode": "Enforce"}]}
REQUIRE_LABELS = {"worker": {"pool": "samples", "policy": "require-labels"}}
WITHOUT_DATA = {
    "admission_gateway_cluster": "the gateway of the test watches no cluster",
    "admission_gateway_match_condition": "its webhooks have no matchConditions",
    "admission_gateway_mutation_disputes": "its mutating webhooks come to rest",
    "admission_gateway_audit": "there is no audit",
    "admission_gateway_rollout_plan_gates": "the state of its rollout plan is kept nowhere",
    "admission_gateway_requests_refused": "every request is answered",
    "admission_gateway_webhook_policy_mismatches": "its workers list no policies",
    "admission_gateway_decision_log_dropped": "it drops no records",
    "admission_gateway_trace": "it exports no traces",
    "admission_gateway_findings": "it writes no reports",
    "admission_gateway_webhook_cache": "its webhooks have no cache",
    "admission_gateway_record": "it records no reviews",
    "admission_gateway_ca_bundles": "it follows no CA bundles",
    "admission_gateway_policy_placement": "it moves no policies to an API server",
}
"""The beginnings of metrics that a plain gateway has not, with the reason."""


OF_APART = [apart_rule(of) for of in APART]


@pytest.fixture
def rules(tmp_path: Path) -> Path:
    return plain_rules(tmp_path)


def test_promtool_accepts_the_rules(rules: Path) -> None:
    status, text = promtool("check", "rules", "--lint=all", "--lint-fatal", rules, *OF_APART)
    assert status == 0, text


def test_alerts_fire_as_their_cases_say(rules: Path, tmp_path: Path) -> None:
    file = tmp_path / "cases.yaml"
    file.write_text(
        yaml.safe_dump(
            {"rule_files": [*map(str, (rules, *OF_APART))], "tests": [case.test() for case in CASES]}
        )
    )
    status, text = promtool("test", "rules", file)
    assert status == 0, text


def test_every_alert_has_cases_in_which_it_fires_and_does_not() -> None:
    for alert in BY_NAME.values():
        outcomes = {case.labels is not None for case in CASES if case.alert == alert.name}
        assert outcomes == {True, False}, alert.name


@pytest.fixture(params=["1", "2"], ids=["one process", "two processes"])
def gateway(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    start_worker: Callable[..., ScriptedWorker],
    start_gateway: Callable[..., GatewayProcess],
) -> GatewayProcess:
    """Webhooks that allow, deny, fail open, fail closed or have a rollout plan, and a worker with metrics."""
    config = tmp_path / "config"
    config.mkdir()
    failing = {"status": "INTERNAL", "details": "broken"}
    # So that a slow call does not come near the threshold of an alert.
    patient = {"timeoutSeconds": 30}
    (config / "c.yaml").write_text(
        pool_document("pool", start_worker().target)
        + pool_document("gone", "127.0.0.1:1")
        + command_pool(
            "samples",
            *(sys.executable, "-m", "admission_gateway_worker.samples", "--metrics-listen", "127.0.0.1:0"),
        )
        + webhook_document("mutate", "m", "pool", {"label": "a"}, {"label": "b"}, **patient)
        + webhook_document(
            "validate",
            "v",
            "pool",
            {},
            {"deny": {"message": "no"}},
            {**failing, "webhook": {"failurePolicy": "Ignore"}},
            {**failing, "webhook": {"failurePolicy": "Fail"}},
            **patient,
        )
        + webhook_document("validate", "gone", "gone", {}, failurePolicy="Ignore")
        + webhook_document(
            "validate", "planned", "pool", {"deny": {"message": "no"}}, rollout={"plan": PLAN}, **patient
        )
        + webhook_document(
            "validate", "samples", "samples", {"webhook": {"clientConfig": REQUIRE_LABELS}}, **patient
        )
    )
    gateway = start_gateway(config, "--processes", request.param)
    # After some seconds a gateway serves without its workers.
    for pool in ("pool", "samples"):
        wait_until_ready(gateway, int(request.param), pool)
    return gateway


def review(gateway: GatewayProcess, path: str, traceparent: str) -> None:
    with closing(gateway.connect()) as connection:
        connection.request(
            "POST", path, POD, {"Content-Type": "application/json", "traceparent": traceparent}
        )
        assert connection.getresponse().status == 200


def queries() -> list[str]:
    """The queries of all panels, with Grafana's variables filled in."""
    panels: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    found: list[str] = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    for variable, value in {
        "$namespace": ".*",
        "$pod": ".*",
        "$webhook": ".*",
        "$__rate_interval": "5m",
        "$__range": "1h",
    }.items():
        found = [query.replace(variable, value) for query in found]
    return found


def test_commands_of_runbooks_find_something_in_a_scrape(gateway: GatewayProcess, tmp_path: Path) -> None:
    """Each block of commands that reads /metrics prints something, here without a cluster."""
    for path in ("/mutate", "/validate"):
        review(gateway, path, SAMPLED)
    openmetrics = urllib.request.Request(
        f"http://127.0.0.1:{gateway.admin_port}/metrics", headers={"Accept": "application/openmetrics-text"}
    )
    with urllib.request.urlopen(openmetrics, timeout=PATIENCE_S) as response:
        (tmp_path / "openmetrics").write_bytes(response.read())
    (tmp_path / "text").write_text(gateway.admin("/metrics")[1])
    (tmp_path / "audit").write_text(audit_exposition())
    stubs = (
        'kubectl() { case "$*" in *"-o name") echo pod/a;; '
        "*:9091/proxy/metrics) cat_metrics audit;; *proxy/metrics) cat_metrics text; esac; }\n"
        f"cat_metrics() {{ cat {tmp_path}/$1; }}\n"
        'curl() { case "$*" in *openmetrics*) cat_metrics openmetrics;; *) cat_metrics text; esac; }\n'
        "sleep() { :; }\nkill() { :; }\n"
    )
    silent = []
    blocks = 0
    for page in sorted(RUNBOOKS.parent.glob("*.md")):
        functions = "".join(re.findall(r"^replicas\(\) .*?\}\n", page.read_text(), re.MULTILINE | re.DOTALL))
        for block in re.findall(r"```sh\n(.*?)```", page.read_text(), re.DOTALL):
            if "/metrics" not in block:
                continue
            blocks += 1
            done = subprocess.run(
                ["bash", "-c", stubs + functions + block],
                capture_output=True,
                text=True,
                timeout=60,
                check=False,
            )
            if not done.stdout.strip() or done.stderr:
                silent.append((page.name, block, done.stderr))
    assert blocks > len(ALERTS) / 2
    expected = ["match-condition-errors.md", "policies-not-served.md", "records-dropped.md"]
    assert [name for name, *_ in silent] == expected, silent


def test_promtool_accepts_a_scrape(gateway: GatewayProcess) -> None:
    for path in ("/mutate", "/validate"):
        review(gateway, path, SAMPLED)
    status, text = gateway.admin("/metrics")
    assert status == 200
    status, found = promtool("check", "metrics", standard_input=text)
    assert (status, found) == (0, "")


def test_prometheus_has_all_that_alerts_and_dashboard_need(
    gateway: GatewayProcess, rules: Path, tmp_path: Path
) -> None:
    worker = gateway.expect(r"metrics on http://(\S+)/metrics")[1]
    targets = [
        {"targets": [address], "labels": {"namespace": "ns", "pod": pod}}
        for pod, address in (("gateway", f"127.0.0.1:{gateway.admin_port}"), ("worker", worker))
    ]
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with Prometheus(folder, rules, targets) as prometheus:
        eventually(lambda: [value for _, value in prometheus.query("up")] == [1, 1])
        for path in ("/mutate", "/validate"):
            for traceparent in (SAMPLED, NOT_SAMPLED, SAMPLED):
                review(gateway, path, traceparent)
        reviews = "sum(admission_gateway_review_duration_seconds_count)"
        eventually(lambda: [value for _, value in prometheus.query(reviews)] == [6])
        # Rates need two samples.
        eventually(lambda: all(prometheus.query(query) for query in queries() if has_data(query)))
        assert [query for query in queries() if not has_data(query) and prometheus.query(query)] == []
        exemplars = prometheus.exemplars('{__name__=~"admission_gateway_.*_bucket"}')
        assert exemplars == {
            (f"admission_gateway_{name}_duration_seconds_bucket", TRACE_ID)
            for name in ("review", "webhook_admission")
        }
        expected = {"FailOpen", "FailClosed", "NoWorker", "RolloutPlansBlocked"}
        eventually(lambda: {f"AdmissionGateway{name}" for name in expected} == alerts(prometheus))


def test_one_denied_command_is_on_the_dashboard_with_its_trace(
    cluster: Cluster, rules: Path, tmp_path: Path
) -> None:
    """From kubectl to the panel, also for a webhook that has never denied anything before."""
    denies = {"deny": {"code": 403, "message": "every workload names its team"}}
    fields = {"objectSelector": {"matchLabels": {"denied": "once"}}}
    hook = Hook("validate", "team.denies.test", denies, (rule("configmaps"),), fields=fields)
    folder = tmp_path / "prometheus"
    folder.mkdir()
    with BehindGateway(cluster, tmp_path, [hook], "prometheus") as behind:
        target = {"targets": [f"127.0.0.1:{behind.gateway.admin_port}"], "labels": {"namespace": "ns"}}
        with Prometheus(folder, rules, [target]) as prometheus:
            eventually(lambda: [value for _, value in prometheus.query("up")] == [1])
            document = config_map("x", {"denied": "once"})
            done = cluster.kubectl("create", "-f", "-", stdin=json.dumps(document))
            assert "team.denies.test: every workload names its team" in done.stderr
            (query,) = (
                one for one in queries() if one.startswith("topk(") and 'error_type="no_error"' in one
            )
            expected = [({"name": "team.denies.test", "type": "validating"}, 1.0)]
            eventually(lambda: prometheus.query(query) == expected)
            path = "/api/v1/namespaces/default/configmaps"
            answer = cluster.api.request("POST", path, document, traceparent=SAMPLED)
            assert answer.status == 403
            name = "admission_gateway_webhook_admission_duration_seconds_bucket"
            eventually(lambda: (name, TRACE_ID) in prometheus.exemplars(name))


def has_data(query: str) -> bool:
    return not any(name in query for name in WITHOUT_DATA)


def alerts(prometheus: Prometheus) -> set[str]:
    """The names of alerts that fire or are about to."""
    return {alert["labels"]["alertname"] for alert in prometheus.get("alerts")["alerts"]}
