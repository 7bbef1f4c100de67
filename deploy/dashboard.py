"""The Grafana dashboard as JSON, from the table in ``deploy.panels``.

Source: grafana.com "Dashboard JSON model"; schema version 39 is that of Grafana 11.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from deploy.panels import ROWS

if TYPE_CHECKING:
    from deploy.panels import Panel

PODS: Final = 'namespace=~"$namespace", pod=~"$pod"'
WEBHOOKS: Final = f'{PODS}, name=~"$webhook"'
_DATASOURCE: Final = {"type": "prometheus", "uid": "$datasource"}
_COLUMNS: Final = 24
"""The width of a dashboard in Grafana's units."""
_G: Final = "admission_gateway_"

Json = dict[str, Any]

_RELOADS: Final[Json] = {
    "name": "Configuration accepted",
    "datasource": _DATASOURCE,
    "enable": True,
    "iconColor": "blue",
    "expr": f"changes({_G}config_last_reload_success_timestamp_seconds{{{PODS}}}[2m]) > 0",
    "step": "60s",
    "titleFormat": "Configuration accepted",
    "textFormat": "{{namespace}} {{pod}}",
}
_PROMOTIONS: Final[Json] = {
    "name": "Rollout plan in another stage",
    "datasource": _DATASOURCE,
    "enable": True,
    "iconColor": "purple",
    "expr": "max by (namespace, name, type, configuration) "
    f"(changes({_G}rollout_plan_stage{{{WEBHOOKS}}}[2m])) > 0",
    "step": "60s",
    "titleFormat": "Rollout plan in another stage",
    "textFormat": "{{name}} {{configuration}}",
}
_YES_OR_NO: Final[Json] = {
    "type": "value",
    "options": {"0": {"text": "no", "color": "red"}, "1": {"text": "yes", "color": "green"}},
}
_HIDDEN_COLUMNS: Final = ("Time", "Value", "__name__", "container", "endpoint", "instance", "job")


def expression(query: str) -> str:
    """Return *query* as Grafana gets it."""
    return query.replace("<webhooks>", WEBHOOKS).replace("<pods>", PODS)


def dashboard() -> Json:
    """Return the dashboard as Grafana imports it."""
    panels: list[Json] = []
    y = 0
    for title, row in ROWS.items():
        panels.append(_row(title, y))
        y += 1
        x = 0
        height = 4 if {panel.kind for panel in row} in ({"stat"}, {"table"}) else 8
        for panel in row:
            if x + panel.width > _COLUMNS:
                x, y = 0, y + height
            panels.append(_panel(panel, {"x": x, "y": y, "w": panel.width, "h": height}))
            x += panel.width
        y += height
    for number, each in enumerate(panels, start=1):
        each["id"] = number
    return {
        "title": "admission-gateway",
        "uid": "admission-gateway",
        "description": "docs/metrics.md describes the metrics, docs/runbooks what to do about alerts.",
        "tags": ["admission-gateway", "kubernetes"],
        "schemaVersion": 39,
        "version": 1,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-1h", "to": "now"},
        "timezone": "browser",
        "templating": {"list": _variables()},
        "annotations": {"list": [_RELOADS, _PROMOTIONS]},
        "panels": panels,
    }


def _row(title: str, y: int) -> Json:
    grid = {"x": 0, "y": y, "w": _COLUMNS, "h": 1}
    return {"type": "row", "title": title, "collapsed": False, "gridPos": grid, "panels": []}


def _panel(panel: Panel, grid: Json) -> Json:
    is_table = panel.kind == "table"
    defaults: Json = {"unit": panel.unit}
    if panel.bad_from is not None or panel.bad_below is not None:
        defaults["thresholds"] = {"mode": "absolute", "steps": _steps(panel)}
    if panel.is_yes_or_no:
        defaults["mappings"] = [_YES_OR_NO]
    if panel.kind == "timeseries":
        defaults["custom"] = {"fillOpacity": 10, "showPoints": "never", "thresholdsStyle": {"mode": "dashed"}}
        defaults["min"] = 0
    options: Json = {}
    if panel.kind in ("stat", "bargauge"):
        options["reduceOptions"] = {"calcs": ["lastNotNull"]}
    if panel.kind == "timeseries":
        options["tooltip"] = {"mode": "multi", "sort": "desc"}
    if panel.kind == "heatmap":
        options["yAxis"] = {"unit": panel.unit}
    return {
        "type": panel.kind,
        "title": panel.title,
        "description": panel.text,
        "datasource": _DATASOURCE,
        "gridPos": grid,
        "fieldConfig": {"defaults": defaults, "overrides": []},
        "options": options,
        "transformations": [_hide_columns()] if is_table else [],
        "targets": [
            {
                "refId": chr(ord("A") + place),
                "datasource": _DATASOURCE,
                "expr": expression(query),
                "legendFormat": legend,
                "exemplar": panel.has_exemplars,
                "instant": is_table or panel.kind in ("stat", "bargauge"),
                "range": not is_table and panel.kind not in ("stat", "bargauge"),
                "format": {"table": "table", "heatmap": "heatmap"}.get(panel.kind, "time_series"),
            }
            for place, (legend, query) in enumerate(panel.queries.items())
        ],
    }


def _hide_columns() -> Json:
    return {"id": "organize", "options": {"excludeByName": dict.fromkeys(_HIDDEN_COLUMNS, True)}}


def _steps(panel: Panel) -> list[Json]:
    if panel.bad_below is not None:
        return [{"color": "red", "value": None}, {"color": "green", "value": panel.bad_below}]
    return [{"color": "green", "value": None}, {"color": "red", "value": panel.bad_from}]


def _variables() -> list[Json]:
    source: Json = {"name": "datasource", "label": "Data source", "type": "datasource", "query": "prometheus"}
    return [
        source,
        _variable("namespace", f"label_values({_G}build_info, namespace)"),
        _variable("pod", f'label_values({_G}build_info{{namespace=~"$namespace"}}, pod)'),
        _variable("webhook", f"label_values({_G}webhook_timeout_seconds{{{PODS}}}, name)"),
    ]


def _variable(name: str, query: str) -> Json:
    """Return a variable of label values. All of them includes targets without the label."""
    return {
        "name": name,
        "label": name.capitalize(),
        "type": "query",
        "datasource": _DATASOURCE,
        "definition": query,
        "query": {"query": query, "refId": name},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": ["All"], "value": ["$__all"]},
    }
