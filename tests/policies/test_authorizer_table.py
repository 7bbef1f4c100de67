"""Equal checks of the authorizer within a review are one, as documents with a review.

Source of the table: k8s.io/apiserver pkg/admission/plugin/authorizer/caching_authorizer_test.go.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.pure.core.conditions import AccessDecision
from tests.policies.documents import binding, decided, policy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

ENDPOINTS = "authorizer.group('').resource('endpoints')"
PLAIN = f"{ENDPOINTS}.name('a')"
OF_ACCOUNT = "authorizer.serviceAccount('default', '{}').group('').resource('endpoints').name('a')"
BY_FIELD, BY_LABEL, BY_OTHER_LABEL = (
    f"{PLAIN}.{selector}"
    for selector in ("fieldSelector('a=b')", "labelSelector('a=b')", "labelSelector('c=d')")
)

# Checks, how many of them the authorizer gets.
CHECKS: dict[str, tuple[list[str], int]] = {
    "again": ([PLAIN, PLAIN], 1),
    "another name": ([PLAIN, f"{ENDPOINTS}.name('b')"], 2),
    "another user": ([OF_ACCOUNT.format("x"), OF_ACCOUNT.format("y"), PLAIN], 3),
    "fields": ([BY_FIELD, PLAIN, BY_FIELD], 2),
    "fields that are wrong, first": ([f"{PLAIN}.fieldSelector('a b c')", PLAIN], 1),
    "fields that are wrong, second": ([PLAIN, f"{PLAIN}.fieldSelector('a b c')"], 1),
    "labels": ([BY_LABEL, PLAIN, BY_LABEL, BY_OTHER_LABEL], 3),
    "labels that are wrong, first": ([f"{PLAIN}.labelSelector('a b c')", PLAIN], 1),
    "labels that are wrong, second": ([PLAIN, f"{PLAIN}.labelSelector('a b c')"], 1),
}


@pytest.mark.parametrize("case", CHECKS)
@pytest.mark.parametrize("places", ["validations", "policies", "conditions"])
def test_equal_checks_are_one(tmp_path: Path, places: str, case: str) -> None:
    checks, expected = CHECKS[case]
    expressions = [f"{each}.check('get').reason() == 'why'" for each in checks]
    documents: Sequence[dict[str, Any]]
    if places == "validations":
        documents = [policy(validations=expressions), binding()]
    elif places == "policies":
        documents = [
            made
            for number, each in enumerate(expressions)
            for made in (policy(f"p{number}", validations=[each]), binding(f"b{number}", f"p{number}"))
        ]
    else:
        conditions = [{"name": f"c{number}", "expression": each} for number, each in enumerate(expressions)]
        documents = [policy(validations=[*expressions, "false"], matchConditions=conditions), binding()]
    seen: list[str] = []

    def authorize(spec: dict[str, Any]) -> AccessDecision:
        seen.append(json.dumps(spec, sort_keys=True))
        return AccessDecision(allowed=True, reason="why", error="test error")

    answer = decided(tmp_path, documents, authorize=authorize)
    assert answer.denials == (["failed expression: false"] if places == "conditions" else [])
    assert len(seen) == len(set(seen)) == expected
