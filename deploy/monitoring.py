"""Writes everything that is made from the tables of metrics, alerts and panels: ``make monitoring``.

    python -m deploy.monitoring

``gateway.observe.telemetry.definitions``, ``deploy.alerts`` and ``deploy.panels`` have the tables. In a page
of docs/ each table is between two comments.
"""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING, Final

from deploy.alerts import ALERTS, AUDIT_ALERTS, PREFIX, WATCHDOG_ALERTS
from deploy.dashboard import dashboard
from gateway.observe.telemetry.definitions import DEFINITIONS
from gateway.tools.registration.yaml_output import to_yaml

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from deploy.alerts import Alert

ROOT: Final = Path(__file__).resolve().parents[1]
METRICS_PAGE: Final = ROOT / "docs" / "metrics.md"
RUNBOOKS: Final = ROOT / "docs" / "runbooks" / "index.md"
CHART_FILES: Final = ROOT / "deploy" / "chart" / "files"
APART: Final = {"watchdog": WATCHDOG_ALERTS, "audit": AUDIT_ALERTS}
"""The alerts about programs that the chart installs apart from the gateway, each with a rule file."""
PROMETHEUS_RULE: Final = CHART_FILES / "prometheus-rule.yaml"
DASHBOARD: Final = CHART_FILES / "dashboard.json"

_HEADER: Final = """\
# Alerting rules for the Prometheus operator. Made by `make monitoring` from deploy/alerts.py: change that
# file. docs/metrics.md says how to use this one, and docs/runbooks what to do about each alert.
"""


def outputs() -> dict[Path, str]:
    """Return the files that are made here, each with its content."""
    resource = {
        "apiVersion": "monitoring.coreos.com/v1",
        "kind": "PrometheusRule",
        "metadata": {
            "name": "admission-gateway",
            "namespace": "admission-gateway",
            "labels": {"app.kubernetes.io/name": "admission-gateway"},
        },
        "spec": {"groups": [{"name": "admission-gateway", "rules": [alert.rule for alert in ALERTS]}]},
    }
    tables = {"metrics": _metrics_table(), "alerts": _alerts_table("runbooks/")}
    of_runbooks = {"alerts": ALERTS, **APART}
    return {
        METRICS_PAGE: with_tables(METRICS_PAGE.read_text(), tables),
        RUNBOOKS: with_tables(
            RUNBOOKS.read_text(), {name: _alerts_table("", alerts) for name, alerts in of_runbooks.items()}
        ),
        PROMETHEUS_RULE: _HEADER + to_yaml(resource),
        **{apart_rule(name): _HEADER + to_yaml({"groups": [_group(name)]}) for name in APART},
        DASHBOARD: json.dumps(dashboard(), indent=1) + "\n",
    }


def apart_rule(name: str) -> Path:
    """Return the rule file of *name*, one of ``APART``."""
    return CHART_FILES / f"{name}-rule.yaml"


def _group(name: str) -> dict[str, object]:
    return {"name": f"admission-gateway-{name}", "rules": [alert.rule for alert in APART[name]]}


def _metrics_table() -> str:
    return table(
        ("name", "type", "labels", "meaning"),
        (
            (f"`{each.name}`", each.kind, ", ".join(f"`{label}`" for label in each.labels), each.text)
            for each in DEFINITIONS
        ),
    )


def _alerts_table(folder: str, alerts: Sequence[Alert] = ALERTS) -> str:
    """Return the table of *alerts* with links to their pages in *folder*."""
    return table(
        ("alert", "severity", "fires when"),
        (
            (f"[`{PREFIX}{alert.name}`]({folder}{alert.runbook})", alert.severity, _when(alert))
            for alert in alerts
        ),
    )


def _when(alert: Alert) -> str:
    summary = re.sub(r"{{ \$labels\.(\w+) }}", r"`\1`", alert.summary)
    return re.sub(r"{{ \$value [^}]* }}", "…", summary)


def table(head: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    """Return a Markdown table."""
    lines = [_row(head), "|" + "---|" * len(head), *map(_row, rows)]
    return "\n".join(lines) + "\n"


def _row(cells: tuple[str, ...]) -> str:
    return "|" + "|".join(f" {cell} " if cell else " " for cell in cells) + "|"


def with_tables(page: str, tables: dict[str, str], target: str = "monitoring") -> str:
    """Return *page* with each of *tables* between the comments with its name; make's *target* writes it."""
    for name, table in tables.items():
        begin, end = f"<!-- {name}: made by `make {target}` -->\n", f"<!-- end of {name} -->\n"
        before, is_begun, rest = page.partition(begin)
        _, is_ended, after = rest.partition(end)
        assert is_begun and is_ended, f"expected the comments of {name}"  # noqa: PT018
        page = f"{before}{begin}\n{table}\n{end}{after}"
    return page


if __name__ == "__main__":
    for file, content in outputs().items():
        file.write_text(content)
