"""matchConditions evaluated by the gateway and by kube-apiserver's own evaluator: random expressions."""

from __future__ import annotations

import json
import os
import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.cel.api_server import evaluate, outcome, text
from tests.cel.differences import ERROR_COSTS_MORE, UNASKED_COSTS_MORE
from tests.cel.expressions import EXPRESSIONS, REQUEST
from tests.cel.grammar import draw_expression
from tests.cel.ours import decide, first_checks, raises
from tests.cel.vectors import FILE, TYPED_FILES, costs, made, made_typed
from tests.kit import REVIEWS

if TYPE_CHECKING:
    from collections.abc import Iterable

FIRST: Final = int(os.environ.get("E2E_SEED", "0"))
SEEDS: Final = range(FIRST, FIRST + 10)
EACH: Final = 500
_FOLDED: Final = "program instantiation failed"
_NO_OVERLOAD: Final = "no such overload"
_PANIC: Final = "internal error: interface conversion"


def test_the_vectors_match_the_oracle() -> None:
    """The vectors in tests/cel are up to date."""
    assert FILE.read_text() == made()
    for is_mutation, file in TYPED_FILES.items():
        assert file.read_text() == made_typed(is_mutation=is_mutation)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_expressions_decide_as_in_the_api_server(seed: int) -> None:
    """The same value at the same cost, the same error where it has one, and refused where it refuses."""
    draw = random.Random(seed)
    reviews = _encoded(json.loads(file.read_bytes())["request"] for file in sorted(REVIEWS.glob("*.json")))
    expressions: list[tuple[str, dict[str, Any]]] = []
    while len(expressions) < EACH:
        request = draw.choice(reviews)
        expressions.append((draw_expression(draw, request), request))
    different = []
    answers = evaluate(expressions, typed=True)
    for (expression, request), answer in zip(expressions, answers, strict=True):
        there, why = outcome(answer), answer.get("refused") or text(answer, expression)
        # What constants come to through several calls is computed here when it is needed; and an error in the
        # list that is sorted makes the API server's count of costs panic.
        if _FOLDED in why or why.startswith(_PANIC):
            continue
        decided, text_here, cost = decide(expression, request)
        if decided != there or (there == "error" and _generic(text_here) != _generic(why)):
            same = False
        elif there == "compile error" or cost == answer["cost"]:
            same = True
        else:
            more = UNASKED_COSTS_MORE if "authorizer" in expression else ERROR_COSTS_MORE
            same = cost <= answer["cost"] + more and raises(expression, request)
        if not same and not (
            decided == there and cost in costs(expression, request, answer, cost, typed=True)
        ):
            different.append(
                f"{expression}\n  there {there} {answer['cost']} {why}\n  here {decided} {cost} {text_here}"
            )
    assert not different, "\n".join(different)


def _encoded(requests: Iterable[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return *requests* with their objects as the API server of the oracle's version writes them."""
    asked = [("true", request) for request in requests]
    return [
        {**request, "object": answer.get("object"), "oldObject": answer.get("oldObject")}
        for (_, request), answer in zip(asked, evaluate(asked, typed=True, encode=True), strict=True)
    ]


def _generic(message: str) -> str:
    """Return *message* without the function and types that some of cel-go's have."""
    return _NO_OVERLOAD if message.startswith(_NO_OVERLOAD) else message


def test_authorizer_checks_equal_those_of_the_api_server() -> None:
    """User, groups and attributes of each check are those that the API server's own authorizer sees."""
    answers = dict(
        zip(EXPRESSIONS, evaluate((expression, REQUEST) for expression in EXPRESSIONS), strict=True)
    )
    asking = {
        expression: answer["checks"][0]
        for expression, answer in answers.items()
        if "checks" in answer and "value" in answer
    }
    assert len(asking) > 10
    for expression, check in asking.items():
        plain = {"Groups": check["Groups"] or [], "Extra": check["Extra"] or {}}
        counts = {name: len(check[name] or ()) for name in ("Fields", "Labels")}
        assert first_checks(expression, REQUEST)[:1] == [check | plain | counts], expression
