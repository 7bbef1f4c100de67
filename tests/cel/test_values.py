"""Values and checks that no vector has."""

from __future__ import annotations

import pytest

from tests.cel.expressions import REQUEST
from tests.cel.ours import decide, first_checks

DECISIONS = [
    (r"'\b\f' == '\u0008\u000c'", "true"),
    ("int(dyn(5)) == 5", "true"),
    # The search for a long part at the very end.
    (f"'xy{'a' * 18}'.lastIndexOf('y{'a' * 18}') == 1", "true"),
    # A list cannot be a key; cel-go makes a map that never finds it.
    ("{dyn(object.spec.numbers): 1}.size() == 1", "error"),
    # Go multiplies 1e32 by 1e18.
    ("quantity('1e50').asApproximateFloat() == 1e50", "true"),
]


@pytest.mark.parametrize(("expression", "outcome"), DECISIONS)
def test_an_expression_decides(expression: str, outcome: str) -> None:
    assert decide(expression, REQUEST)[0] == outcome


@pytest.mark.parametrize(
    ("selectors", "fields", "labels"),
    [
        ("", 0, 0),
        (".fieldSelector('a=b,c!=d')", 2, 0),
        (".labelSelector('a in (b, c)')", 0, 1),
        (".fieldSelector('a=b').labelSelector('a,!b')", 1, 2),
        (".fieldSelector('a b c').labelSelector('a b c')", 0, 0),
    ],
)
def test_a_check_has_the_selectors_that_can_be_parsed(selectors: str, fields: int, labels: int) -> None:
    resource = f"authorizer.group('').resource('pods'){selectors}"
    (check,) = first_checks(f"{resource}.check('list').allowed()", REQUEST)
    assert (check["Fields"], check["Labels"]) == (fields, labels)
