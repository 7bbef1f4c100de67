"""null in lists and mappings: the empty value in kinds that the API server decodes, refused in the others."""

from __future__ import annotations

import copy
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.merge.digest import digest
from tests.config.documents import load_documents, problems_of
from tests.config.test_policies import RULES, binding, mutating, policy
from tests.config.test_webhooks import MUTATING, POOL, VALIDATING, WEBHOOK

if TYPE_CHECKING:
    from collections.abc import Iterator

SELECTOR = {
    "matchLabels": {"a": "b", "c": ""},
    "matchExpressions": [{"key": "d", "operator": "In", "values": ["e", ""]}],
}
HOOK: dict[str, Any] = {
    **WEBHOOK,
    "namespaceSelector": SELECTOR,
    "objectSelector": SELECTOR,
    "rules": [*RULES, {**RULES[0], "apiGroups": ["", "apps"]}],
    "matchConditions": [{"name": "a", "expression": "true"}],
}
DOCUMENTS: list[dict[str, Any]] = [
    {**MUTATING, "webhooks": [HOOK]},
    {**VALIDATING, "webhooks": [HOOK]},
    policy(
        matchConstraints={
            "resourceRules": [{**RULES[0], "resourceNames": ["a"]}],
            "objectSelector": SELECTOR,
        },
        matchConditions=[{"name": "a", "expression": "true"}],
        variables=[{"name": "v", "expression": "1"}],
        auditAnnotations=[{"key": "k", "valueExpression": "'a'"}],
    ),
    binding(matchResources={"namespaceSelector": SELECTOR}, validationActions=["Deny", "Audit"]),
    mutating(),
    {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {"a": "b"}}},
]


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Yield the paths of the elements of lists, and of the values in mappings of labels."""
    if path and (isinstance(path[-1], int) or path[-2:-1] in (("matchLabels",), ("labels",))):
        yield path
    if isinstance(value, dict):
        for key, member in value.items():
            yield from places(member, (*path, key))
    elif isinstance(value, list):
        for index, element in enumerate(value):
            yield from places(element, (*path, index))


def with_value(document: dict[str, Any], path: tuple[Any, ...], value: object) -> dict[str, Any]:
    changed = copy.deepcopy(document)
    place: Any = changed
    for part in path[:-1]:
        place = place[part]
    place[path[-1]] = value
    return changed


def outcome(*documents: object) -> object:
    """Return the digest of the webhooks, or the problems."""
    try:
        config = load_documents(*documents)
    except ConfigError as error:
        return [str(problem).partition(": ")[2] for problem in error.problems]
    # A policy is part of a digest as it is written.
    hooks = [
        tuple(hook for hook in of_phase if hook.policy is None)
        for of_phase in (config.mutating, config.validating)
    ]
    return digest(replace(config, mutating=hooks[0], validating=hooks[1], namespaces={}))


@given(data=st.data())
def test_null_is_the_empty_value_in_kinds_of_the_api_server(data: st.DataObject) -> None:
    number = data.draw(st.integers(0, len(DOCUMENTS) - 1))
    path = data.draw(st.sampled_from(sorted(places(DOCUMENTS[number]), key=str)))
    found = DOCUMENTS[number]
    for part in path:
        found = found[part]
    empty: object = {} if isinstance(found, dict) else ""
    one, other = (
        outcome(POOL, *DOCUMENTS[:number], with_value(DOCUMENTS[number], path, value))
        for value in (None, empty)
    )
    assert one == other


@pytest.mark.parametrize(
    ("kind", "content", "field"),
    [
        ("WorkerPool", {"spec": {"targets": ["dns:///a:1", None]}}, "spec.targets[1]"),
        ("GatewayConfiguration", {"tls": {"clientNames": [None]}}, "tls.clientNames[0]"),
        ("PolicyException", {"spec": {"webhooks": [None]}}, "spec.webhooks[0]"),
    ],
)
def test_null_is_refused_in_the_kinds_of_the_gateway(kind: str, content: dict[str, Any], field: str) -> None:
    document = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": kind, "metadata": {"name": "a"}}
    assert (field, "found null, expected a string") in problems_of({**document, **content})
