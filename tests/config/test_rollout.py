"""``rollout`` of a webhook in configuration files and in custom resources."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.merge.custom_resource import CustomResource
from gateway.config.merge.merged import merge
from gateway.pure.core.labels import EVERYTHING, Requirement, Selector
from gateway.pure.core.webhook import Candidate, Enforcement, HttpsClient, Rollout, WorkerRef
from tests.config.documents import load_documents, problems_of
from tests.config.test_webhooks import MUTATING, POOL

if TYPE_CHECKING:
    from gateway.pure.core.webhook import Webhook

AFTER = {"after": "2026-12-01T00:00:00Z"}
NEXT = {"clientConfig": {"worker": {"pool": "pods", "policy": "images-next"}}}
AT = "webhooks[0].rollout"


def with_rollout(rollout: object, **members: object) -> dict[str, Any]:
    (hook,) = MUTATING["webhooks"]
    return {**MUTATING, "webhooks": [{**hook, "rollout": rollout, **members}]}


def read(rollout: object, **members: object) -> Webhook:
    (hook,) = load_documents(with_rollout(rollout, **members), POOL).mutating
    return hook


def warnings_of(rollout: object) -> list[tuple[str, str]]:
    found = load_documents(with_rollout(rollout), POOL).warnings
    return [(warning.field, warning.message) for warning in found]


def test_without_a_rollout_a_webhook_is_enforced() -> None:
    assert read(None).rollout is None
    assert read({}).rollout == Rollout(is_mode_given=False)


def test_all_fields_are_read() -> None:
    hook = read(
        {
            "mode": "Warn",
            "enforce": {
                "namespaceSelector": {"matchLabels": {"tier": "dev"}},
                "percentOfNamespaces": 25,
                **AFTER,
            },
            "candidate": {**NEXT, "percentOfReviews": 0.5},
        }
    )
    selector = Selector((Requirement("tier", "In", frozenset({"dev"})),))
    candidate = Candidate(WorkerRef("pods", "images-next"), 0.5)
    assert hook.rollout == Rollout("Warn", Enforcement(selector, 25, 1_796_083_200.0), candidate)
    assert hook.clients == (hook.client, WorkerRef("pods", "images-next"))


def test_a_time_has_a_zone() -> None:
    for text in ("2026-12-01T01:30:00+01:30", "2026-11-30T19:00:00-05:00", "2026-12-01T00:00:00.000000000Z"):
        rollout = read({"mode": "Audit", "enforce": {"after": text}}).rollout
        assert rollout is not None
        assert rollout.enforce == Enforcement(EVERYTHING, 100, 1_796_083_200.0)


@pytest.mark.parametrize(
    "time",
    [
        "2026-12-01",
        "2026-12-01T00:00:00",
        "2026-12-01 00:00:00Z",
        "2026-13-01T00:00:00Z",
        "0000-01-01T00:00:00Z",
        "2026-12-01T00:00:00+99:00",
        "\u0662\u066026-12-01T00:00:00Z",
        "tomorrow",
        1,
        "",
    ],
)
def test_other_times_are_refused(time: object) -> None:
    ((field, message),) = problems_of(with_rollout({"mode": "Warn", "enforce": {"after": time}}), POOL)
    assert field == f"{AT}.enforce.after"
    assert message.endswith("expected a time such as 2026-12-01T00:00:00Z (RFC 3339)")


@pytest.mark.parametrize(
    ("rollout", "field", "message"),
    [
        ({"mode": None, "enforce": AFTER}, "mode", "is required with enforce: the mode where enforce does"),
        ({"mode": "Warn", "enforce": {}}, "enforce", "found nothing, expected at least one of "),
        (
            {"candidate": {"clientConfig": {"worker": {"pool": "podz", "policy": "x"}}}},
            "candidate.clientConfig.worker.pool",
            'there is no WorkerPool "podz"; did you mean "pods"?',
        ),
    ],
)
def test_problems_are_named(rollout: object, field: str, message: str) -> None:
    ((found, text),) = problems_of(with_rollout(rollout), POOL)
    assert found == f"{AT}.{field}"
    assert text.startswith(message)


@pytest.mark.parametrize(
    ("rollout", "field"), [({"mode": "Shadow"}, "mode"), ({"candidate": NEXT}, "candidate")]
)
def test_additional_calls_require_a_webhook_without_side_effects(rollout: object, field: str) -> None:
    document = with_rollout(rollout, sideEffects="NoneOnDryRun")
    ((found, message),) = problems_of(document, POOL)
    assert found == f"{AT}.{field}"
    assert message.startswith("found sideEffects NoneOnDryRun, ")
    assert "requires sideEffects None: its calls are additional ones" in message


@pytest.mark.parametrize(
    ("rollout", "field", "message"),
    [
        ({"mode": "Enforce", "enforce": AFTER}, "enforce", "has no effect: the mode Enforce holds"),
        (
            {"mode": "Warn", "enforce": {"percentOfNamespaces": 0}},
            "enforce.percentOfNamespaces",
            "0 matches no request",
        ),
        (
            {"mode": "Warn", "enforce": {"percentOfNamespaces": 100}},
            "enforce",
            "matches every request: the mode Warn never holds",
        ),
        ({"mode": "Audit", "enforce": {"namespaceSelector": {}}}, "enforce", "matches every request"),
    ],
)
def test_settings_without_effect_are_warned_about(rollout: object, field: str, message: str) -> None:
    ((found, text),) = warnings_of(rollout)
    assert found == f"{AT}.{field}"
    assert text.startswith(message)


def custom(rollout: object, *pools: dict[str, Any]) -> list[CustomResource]:
    document = {**with_rollout(rollout), "apiVersion": "admission-gateway.io/v1alpha1"}
    documents = [document, *pools]
    return [CustomResource(one["kind"], one["metadata"]["name"], one) for one in documents]


def test_custom_resources_have_candidates_with_pools_and_servers_of_their_own() -> None:
    other = {**POOL, "metadata": {"name": "next"}}
    worker = {"clientConfig": {"worker": {"pool": "next", "policy": "images"}}}
    config = merge(load_documents(POOL), custom({"candidate": worker}, other), None).config
    assert sorted(config.pools) == ["next", "pods"]
    https = {"clientConfig": {"url": "https://policies.example.com/next"}}
    (hook,) = merge(load_documents(POOL), custom({"candidate": https}), None).config.mutating
    assert hook.clients[1] == HttpsClient("https://policies.example.com/next", is_custom=True)


def test_a_custom_resource_whose_candidate_has_no_pool_fails_in_its_mode() -> None:
    worker = {"clientConfig": {"worker": {"pool": "next", "policy": "images"}}}
    merged = merge(load_documents(POOL), custom({"mode": "Warn", "candidate": worker}), None)
    (status,) = merged.statuses
    assert status.reason == "NoWorkerPool"
    (hook,) = merged.config.mutating
    assert hook.rollout == Rollout("Warn")
