"""Policies that do not match a request, and how that is explained."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.pure.core.explain import explain
from tests.policies.documents import ANYTHING, binding, decided, mutating, policy

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from tests.policies.documents import Answer

    Json = dict[str, Any]

IN_A = {"matchLabels": {"team": "a"}}
PODS = {**ANYTHING, "resources": ["pods"]}


def lines(answer: Answer) -> list[str]:
    return list(explain(answer.evaluation, answer.evaluation.selection))


@pytest.mark.parametrize(
    "match",
    [
        {"resourceRules": [ANYTHING], "excludeResourceRules": [PODS]},
        {"resourceRules": [{**ANYTHING, "resourceNames": ["another"]}]},
    ],
)
@pytest.mark.parametrize("kind", ["Validating", "Mutating"])
def test_rules_come_before_the_error_of_an_unknown_namespace(tmp_path: Path, match: Json, kind: str) -> None:
    selected = {**match, "namespaceSelector": IN_A}
    if kind == "Validating":
        answer = decided(tmp_path, [policy(matchConstraints=selected), binding()], space=None)
    else:
        documents = mutating("p", "Object{}", matchConstraints=selected)
        answer = decided(tmp_path, documents, phase="mutate", space=None)
    assert not answer.evaluation.outcomes
    assert not answer.denials


UNMATCHED: dict[str, tuple[Sequence[Json], str, str]] = {
    "names": (
        [policy(matchConstraints={"resourceRules": [{**ANYTHING, "resourceNames": ["b"]}]}), binding()],
        "CREATE",
        "not matched, its resourceNames or excludeResourceRules exclude the request",
    ),
    "conditions": (
        [policy(matchConditions=[{"name": "never", "expression": "false"}]), binding()],
        "CREATE",
        "not matched, its bindings, parameters or matchConditions exclude the request",
    ),
    "after a denial": (
        [
            policy("a"),
            binding("a", "a"),
            policy("b"),
            binding("b", "b", matchResources={"namespaceSelector": IN_A}),
        ],
        "CREATE",
        "not matched, its bindings, parameters or matchConditions exclude the request",
    ),
    "deletion": (mutating("p", "Object{}"), "DELETE", "not matched, DELETE has no object to change"),
}


@pytest.mark.parametrize("name", UNMATCHED)
def test_the_line_of_a_policy_that_does_not_match(tmp_path: Path, name: str) -> None:
    documents, operation, said = UNMATCHED[name]
    phase: Any = "mutate" if operation == "DELETE" else "validate"
    deleted = {"operation": "DELETE", "object": None, "oldObject": {"kind": "Pod"}}
    answer = decided(tmp_path, documents, deleted if operation == "DELETE" else None, phase=phase)
    assert lines(answer)[-1].endswith(said)


def test_warnings_and_audit_annotations_are_explained(tmp_path: Path) -> None:
    audited = policy(auditAnnotations=[{"key": "k", "valueExpression": "'v'"}])
    answer = decided(tmp_path, [audited, binding(validationActions=["Warn", "Audit"])])
    matched, *others = lines(answer)
    assert "matched, allowed" in matched
    assert [line.partition("/p: ")[2][:24] for line in others] == [
        "warning: Validation fail",
        "audit annotation k: v",
        "audit annotation validat",
    ]


def test_white_space_is_trimmed_as_by_the_api_server(tmp_path: Path) -> None:
    documents = [
        policy(validations=[{"expression": "false", "messageExpression": r"'\u001c \u0085a\u3000'"}]),
        binding(),
    ]
    assert decided(tmp_path, documents).denials == ["\x1c \x85a"]
