"""``cache`` of a webhook in a configuration."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.base.errors import ConfigError
from tests.config.documents import load_documents
from tests.config.test_webhooks import MUTATING, POOL

KEY = "object.metadata.labels"


def with_cache(cache: object, **members: object) -> dict[str, Any]:
    (hook,) = MUTATING["webhooks"]
    return {**MUTATING, "webhooks": [{**hook, "cache": cache, **members}]}


def test_a_cache_is_read() -> None:
    (hook,) = load_documents(with_cache({"ttlSeconds": 60, "key": f" {KEY} "}), POOL).mutating
    assert hook.cache is not None
    assert (hook.cache.ttl_s, hook.cache.max_entries) == (60, 1024)
    assert hook.cache.key.expressions == (("key", KEY),)


@pytest.mark.parametrize(
    ("cache", "field", "message"),
    [
        ({"ttlSeconds": 1, "key": "object."}, ".key", "1:8: "),
        (
            {"ttlSeconds": 1, "key": "timestamp('2026-01-01T00:00:00Z')"},
            ".key",
            "1:1: must evaluate to a JSON",
        ),
        (
            {"ttlSeconds": 1, "key": "authorizer.path('/').check('get').allowed()"},
            ".key",
            "1:1: authorizer is not allowed: its decisions change",
        ),
    ],
)
def test_a_wrong_cache_is_refused(cache: object, field: str, message: str) -> None:
    with pytest.raises(ConfigError) as refused:
        load_documents(with_cache(cache), POOL)
    (problem,) = refused.value.problems
    assert problem.field == f"webhooks[0].cache{field}"
    assert problem.message.startswith(message)


def test_side_effects_forbid_it() -> None:
    with pytest.raises(ConfigError) as refused:
        load_documents(with_cache({"ttlSeconds": 1, "key": KEY}, sideEffects="NoneOnDryRun"), POOL)
    (problem,) = refused.value.problems
    assert problem.message == (
        "found sideEffects NoneOnDryRun, requires sideEffects None: calls are left out"
    )
