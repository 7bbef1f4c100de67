"""Alerts, dashboard and tables of metrics: up to date, and about metrics and labels that exist.

``tests/e2e/test_prometheus.py`` loads the same files into Prometheus.
"""

from __future__ import annotations

import json
import re
from itertools import combinations
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from deploy.alerts import ALERTS, PREFIX
from deploy.monitoring import APART, DASHBOARD, PROMETHEUS_RULE, ROOT, outputs
from deploy.worker_metrics import WORKER_METRICS
from gateway.observe.telemetry.definitions import DEFINITIONS
from gateway.tools.watchdog.run import Counters, exposition
from tests.audit.kit import audit_exposition
from tests.deploy.cluster import MANIFEST, objects
from tests.deploy.prometheus import plain_rules
from tests.deploy.promql import TARGET_LABELS, unknown_names
from tests.docs.pages import DOCS, rows, section

if TYPE_CHECKING:
    from pathlib import Path

SERIES = {name: labels for each in (*DEFINITIONS, *WORKER_METRICS) for name, labels in each.series.items()}
OF_APART = {
    of: {
        name: frozenset(re.findall(r"(\w+)=", labels or ""))
        for name, labels in re.findall(r"^(\w+)(?:{(.*)})? ", text, re.MULTILINE)
    }
    for of, text in (("watchdog", exposition(Counters())), ("audit", audit_exposition()))
}
"""By key of ``APART``, its series with their labels."""
ON_DASHBOARD = SERIES | OF_APART["audit"]
LABELS = frozenset().union(*ON_DASHBOARD.values())
RUNBOOKS = DOCS / "runbooks"
EVERY = [
    *((alert, SERIES) for alert in ALERTS),
    *((alert, OF_APART[of]) for of, alerts in APART.items() for alert in alerts),
]
"""Each alert, and the series that it may be about."""
NAMES = [alert.name for alert, _ in EVERY]


def panels() -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(DASHBOARD.read_text())["panels"]
    return found


def queries() -> list[str]:
    """All queries of the dashboard, with those of variables as PromQL."""
    content = json.loads(DASHBOARD.read_text())
    variables, annotations = content["templating"]["list"], content["annotations"]["list"]
    return [
        *(annotation["expr"] for annotation in annotations),
        *(target["expr"] for panel in panels() for target in panel.get("targets", ())),
        *(
            re.sub(r"label_values\((.*), (\w+)\)", r"sum by (\2) (\1)", variable["query"]["query"])
            for variable in variables
            if variable["type"] == "query"
        ),
    ]


def test_the_metrics_of_workers_are_those_of_their_documentation() -> None:
    page = (ROOT / "workers" / "README.md").read_text()
    documented = {
        name.strip("`"): tuple(re.findall(r"`(\w+)`", labels))
        for name, labels, _ in rows(page, 3)
        if name.startswith("`admission_gateway_worker_")
    }
    assert documented == {each.name: each.labels for each in WORKER_METRICS}


@pytest.mark.parametrize("file", outputs(), ids=lambda file: str(file.relative_to(ROOT)))
def test_the_file_is_up_to_date_with_the_tables(file: Path) -> None:
    assert file.read_text() == outputs()[file], "run: make monitoring"


@pytest.mark.parametrize(
    ("expression", "unknown"),
    [
        ("rate(a_total[5m])", set()),
        ('sum by (x) (rate(a_total{x="y{", pod=~"$pod"}[$__rate_interval])) > 0.5', set()),
        ("sum by (y) (a_total)", {"y"}),
        ('a_total{y!="1"}', {"a_total{y}"}),
        ("a_total * on (pod) group_left (z) b", {"z", "b"}),
        ("b unless a_total offset 5m", {"b"}),
    ],
)
def test_unknown_names_are_found(expression: str, unknown: set[str]) -> None:
    assert unknown_names(expression, {"a_total": frozenset({"x"})}) == unknown


@pytest.mark.parametrize(("alert", "series"), EVERY, ids=NAMES)
def test_an_alert_names_only_metrics_and_labels_that_exist(alert: Any, series: Any) -> None:
    assert not unknown_names(alert.expression, series)
    shown = set(re.findall(r"\$labels\.(\w+)", alert.summary + alert.description))
    assert shown <= frozenset().union(*series.values()) | TARGET_LABELS


def test_a_query_of_the_dashboard_names_only_metrics_and_labels_that_exist() -> None:
    assert {name for query in queries() for name in unknown_names(query, ON_DASHBOARD)} == set()
    legends = [target["legendFormat"] for panel in panels() for target in panel.get("targets", ())]
    assert set(re.findall(r"{{(\w+)}}", "".join(legends))) <= LABELS | TARGET_LABELS | {"alertname"}


def test_panels_do_not_overlap_and_have_their_own_ids() -> None:
    found = panels()
    assert len({panel["id"] for panel in found}) == len(found)
    places = [(panel["title"], panel["gridPos"]) for panel in found]
    for (one, a), (other, b) in combinations(places, 2):
        is_apart = (
            a["x"] + a["w"] <= b["x"]
            or b["x"] + b["w"] <= a["x"]
            or a["y"] + a["h"] <= b["y"]
            or b["y"] + b["h"] <= a["y"]
        )
        assert is_apart, (one, other)
        assert a["x"] + a["w"] <= 24, one


@pytest.mark.parametrize("alert", [alert for alert, _ in EVERY], ids=NAMES)
def test_an_alert_has_a_runbook_page_with_commands(alert: Any) -> None:
    annotations: Any = alert.rule["annotations"]
    page = ROOT / annotations["runbook_url"]
    assert page.parent == RUNBOOKS
    text = page.read_text()
    assert text.startswith(f"# {PREFIX}{alert.name}\n")
    assert "```sh\n" in section(text, "Find the cause")
    assert section(text, "Repair").strip()
    navigation = (ROOT / "mkdocs.yml").read_text()
    assert f"{alert.name}: runbooks/{alert.runbook}\n" in navigation


def test_every_runbook_page_is_that_of_an_alert() -> None:
    expected = {alert.runbook for alert, _ in EVERY} | {"index.md"}
    assert {file.name for file in RUNBOOKS.iterdir()} == expected


def test_metrics_in_runbooks_exist() -> None:
    every = {*SERIES, *OF_APART["watchdog"], *OF_APART["audit"]}
    for file in RUNBOOKS.glob("*.md"):
        text = file.read_text()
        for name in re.findall(r"\b(?:admission_gateway|process)_\w+", text):
            assert any(series.startswith(name) for series in every), (file.name, name)


def test_the_command_of_the_page_writes_the_rules_of_the_operator_s_resource(tmp_path: Path) -> None:
    resource = yaml.safe_load(PROMETHEUS_RULE.read_text())
    assert yaml.safe_load(plain_rules(tmp_path).read_text()) == resource["spec"]


def test_the_pod_monitor_selects_the_gateway_and_its_admin_port() -> None:
    (monitor,) = objects(ROOT / "deploy" / "pod-monitor.yaml")
    (gateway,) = (
        one
        for one in objects(MANIFEST)
        if (one["kind"], one["metadata"]["name"]) == ("Deployment", "admission-gateway")
    )
    template = gateway["spec"]["template"]
    wanted = monitor["spec"]["selector"]["matchLabels"]
    assert wanted.items() <= template["metadata"]["labels"].items()
    (endpoint,) = monitor["spec"]["podMetricsEndpoints"]
    (container,) = template["spec"]["containers"]
    assert endpoint["port"] in {port["name"] for port in container["ports"]}
