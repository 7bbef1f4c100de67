"""The page about outcomes lists every one that the gateway records, counts or prints."""

from __future__ import annotations

import json
import re
from typing import Any, get_args

from gateway.observe.decisions.record import WebhookOutcome
from gateway.observe.telemetry.definitions import DEFINITIONS
from gateway.pure.core.decision import WOULD_BE_REFUSED
from gateway.pure.core.webhook import Mode
from gateway.tools.cli.decisions import OUTCOMES
from tests.docs.pages import DOCS, section

PAGE = (DOCS / "outcomes.md").read_text()
SCHEMA = json.loads((DOCS / "decision-log.schema.json").read_text())


def values(found: Any, name: str) -> set[str]:
    """Return what the schema allows for the members called *name*, anywhere below *found*."""
    if isinstance(found, list):
        return set().union(*(values(each, name) for each in found))
    if not isinstance(found, dict):
        return set()
    below = set().union(*(values(each, name) for each in found.values()))
    return below | written(found.get("properties", {}).get(name))


def written(schema: Any) -> set[str]:
    """Return the texts in *schema*, with those of a definition that it refers to."""
    if isinstance(schema, dict):
        if "$ref" in schema:
            return written(SCHEMA["definitions"][schema["$ref"].rpartition("/")[2]])
        listed = [*schema.get("enum", ()), *filter(None, [schema.get("const")])]
        return set(listed).union(*(written(each) for each in schema.values()))
    return set().union(*(written(each) for each in schema)) if isinstance(schema, list) else set()


def test_every_outcome_of_the_decision_log_is_on_the_page() -> None:
    recorded = values(SCHEMA, "outcome") | set(get_args(WebhookOutcome)) | set(OUTCOMES)
    assert len(recorded) > 10
    assert [each for each in sorted(recorded) if f"`{each}`" not in PAGE] == []


def test_every_mode_and_difference_is_on_the_page() -> None:
    differences = SCHEMA["definitions"]["decision"]["properties"]["differences"]["items"]["enum"]
    named = {*values(SCHEMA, "mode"), *get_args(Mode), *differences} - {""}
    assert len(named) > 10
    assert [each for each in sorted(named) if f"`{each}`" not in PAGE] == []


def test_the_metrics_of_the_page_exist_and_their_labels_too() -> None:
    labels = {each.name: set(each.labels) for each in DEFINITIONS}
    named = set(re.findall(r"`(admission_gateway_\w+)`", section(PAGE, "Where you see them")))
    assert named <= labels.keys()
    assert {"error_type"} <= labels["admission_gateway_webhook_rejections_total"]
    assert {"result"} <= labels["admission_gateway_webhook_not_enforced_total"]


def test_every_metric_with_results_of_webhooks_is_on_the_page() -> None:
    counted = {
        each.name
        for each in DEFINITIONS
        if {"outcome", "error_type", "result"} & set(each.labels) and "webhook" in each.name
    }
    assert counted - {"admission_gateway_webhook_cache_lookups_total"} <= set(re.findall(r"`(\w+)`", PAGE))


def test_the_warning_of_a_webhook_that_is_not_enforced_is_quoted() -> None:
    assert f"`Warning: {WOULD_BE_REFUSED} " in PAGE
