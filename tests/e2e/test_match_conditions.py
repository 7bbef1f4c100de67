"""matchConditions decide behind the gateway as they do in the API server, expression by expression."""

from __future__ import annotations

import random
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.pure.cel.compile import compile_condition
from gateway.pure.cel.errors import InvalidExpression
from tests.cel import expressions as listed
from tests.cel.differences import KNOWN, PANICS
from tests.cel.expressions import REQUEST
from tests.cel.grammar import draw_expression
from tests.e2e.client import MERGE_PATCH
from tests.e2e.cluster import ALICE
from tests.e2e.objects import GROUP, widget
from tests.e2e.setups import REGISTRATIONS, BehindGateway, Directly, Hook, rule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster
    from tests.e2e.setups import _Setup

DEFINITIONS: Final = "/apis/apiextensions.k8s.io/v1/customresourcedefinitions"
WIDGETS: Final = f"/apis/{GROUP}/v1/namespaces/default/widgets"
EXPRESSIONS: Final = tuple(each for each in listed.EXPRESSIONS if each not in KNOWN and each not in PANICS)
DRAWN: Final = tuple(dict.fromkeys(draw_expression(draw, REQUEST) for draw in map(random.Random, range(300))))
"""Random expressions."""
ALL: Final = tuple(dict.fromkeys((*EXPRESSIONS, *DRAWN)))
PART: Final = ALL[::8]
"""These an API server and a gateway decide. The vectors of tests/cel have what its evaluator makes of all."""
GROUPS: Final = -(-len(PART) // 60)
"""Groups of 60 expressions: each is two webhooks, and all their names must fit into the warnings."""
NEWER: Final = ".includes("
"""CEL that an API server evaluates in stored webhooks, and accepts in new ones from its next release on."""

MENDED: Final = frozenset(
    {
        "'hello mellow'.indexOf('', 20) == 12",
        "object.spec.text.or(optional.of(1)) == optional.of(1)",
        "object.spec.text.orValue(1) == 1",
    }
)
LEADING_DOT: Final = re.compile(r"(?:^|[(\[{\s,!?:])\.[a-z]")
"""Names with a leading dot, which older API servers look up among the variables of macros, too."""


def is_decided_otherwise_by_older_ones(expression: str) -> bool:
    """Whether API servers older than 1.37 decide *expression* otherwise, or may refuse it."""
    return expression in MENDED or LEADING_DOT.search(expression) is not None


def accepted(cluster: Cluster, expression: str) -> str | None:
    """Return the API server's error for a webhook with the condition *expression*; None if it accepts it."""
    hook = Hook("validate", "one.conditions.test", {}, fields=conditions(expression))
    document = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingWebhookConfiguration",
        "metadata": {"name": "refused"},
        "webhooks": [hook.document({"url": "https://localhost:1/"})],
    }
    answer = cluster.api.create(f"{REGISTRATIONS}/validatingwebhookconfigurations?dryRun=All", document)
    assert answer.status in (201, 422), answer
    return None if answer.status == 201 else answer.message


def refused(expression: str) -> str | None:
    """Return the gateway's error for it."""
    try:
        compile_condition("one", expression)
    except InvalidExpression as error:
        return str(error)
    return None


def conditions(expression: str) -> dict[str, Any]:
    return {
        "failurePolicy": "Ignore",
        "matchConditions": [{"name": "one", "expression": expression}],
    }


def hooks(expressions: Sequence[str]) -> list[Hook]:
    """Return two webhooks for each expression: one is called if it is true, the other if it is false.

    Neither is called after an error. A warning shows which was called.
    """
    rules = (rule("widgets", group=GROUP, version="*"),)
    return [
        Hook(
            "validate",
            f"{kind}{number}.conditions.test",
            {"warnings": [f"{kind}{number}"]},
            rules,
            fields=fields,
        )
        for number, expression in enumerate(expressions)
        for kind, fields in (
            ("t", conditions(expression)),
            ("f", conditions(f"!({expression}\n)")),
        )
    ]


def operations(cluster: Cluster) -> Iterator[Answer]:
    """Create, change and delete an object that has something of everything, as an ordinary user."""
    api = cluster.user(ALICE)
    document = {**widget(name="everything", labels={"app": "web", "tier": "gold"})}
    old, new = REQUEST["oldObject"]["spec"], REQUEST["object"]["spec"]
    yield api.create(f"{WIDGETS}?dryRun=All", {**document, "spec": new})
    yield api.create(WIDGETS, {**document, "spec": old})
    yield api.patch(f"{WIDGETS}/everything", {"spec": new}, MERGE_PATCH)
    yield api.delete(f"{WIDGETS}/everything")


def outcomes(setup: _Setup, expressions: Sequence[str]) -> list[dict[str, str]]:
    """Return the result of each expression in each operation."""
    words = {"t": "true", "f": "false"}
    found = []
    with setup:
        for answer in operations(setup.cluster):
            assert answer.status in (200, 201), answer
            outcome = dict.fromkeys(expressions, "error")
            for warning in answer.warnings:
                expression = expressions[int(warning[1:])]
                assert outcome[expression] == "error", f"both webhooks were called for {expression}"
                outcome[expression] = words[warning[0]]
            found.append(outcome)
    return found


def test_the_gateway_accepts_the_expressions_that_the_api_server_accepts(cluster: Cluster) -> None:
    newest = cluster.binaries.version.startswith("v1.37")
    different = []
    for expression in EXPRESSIONS:
        if not newest and is_decided_otherwise_by_older_ones(expression):
            continue
        theirs, ours = accepted(cluster, expression), refused(expression)
        if theirs is None and ours is not None:
            different.append(f"{expression}: refused, and not by the API server: {ours}")
        if theirs is not None and ours is None and newest and NEWER not in expression:
            different.append(f"{expression}: accepted, and by the API server not: {theirs}")
    assert not different, "\n".join(different)


def test_some_expressions_decide_as_in_the_api_server(
    cluster: Cluster, widgets: None, tmp_path: Path
) -> None:
    assert_equal_decisions(cluster, tmp_path, 0)


@pytest.mark.parametrize("group", range(1, GROUPS))
def test_expressions_decide_as_in_the_api_server(
    cluster: Cluster, widgets: None, tmp_path: Path, group: int
) -> None:
    assert_equal_decisions(cluster, tmp_path, group)


def assert_equal_decisions(cluster: Cluster, folder: Path, group: int) -> None:
    newest = cluster.binaries.version.startswith("v1.37")
    chosen = [
        expression
        for expression in PART[group::GROUPS]
        if (newest or not is_decided_otherwise_by_older_ones(expression))
        and accepted(cluster, expression) is None
    ]
    kubernetes = {"kubernetes": {"kubeconfig": str(cluster.kubeconfig())}}
    direct = outcomes(Directly(cluster, folder / "direct", hooks(chosen)), chosen)
    behind = outcomes(BehindGateway(cluster, folder / "behind", hooks(chosen), gateway=kubernetes), chosen)
    assert any("true" in found.values() for found in direct)
    different = [
        f"operation {number}: {expression}: {ours[expression]}, in the API server {theirs[expression]}"
        for number, (theirs, ours) in enumerate(zip(direct, behind, strict=True))
        for expression in chosen
        if ours[expression] != theirs[expression]
    ]
    assert not different, "\n".join(different)
