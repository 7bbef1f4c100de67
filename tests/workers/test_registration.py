from __future__ import annotations

from typing import Any

import pytest

from admission_gateway_worker import PolicyServer, Review


def allow(review: Review) -> None:
    """Lets everything through.

    Really everything.
    """


def test_the_decorator_gives_the_function_back() -> None:
    server = PolicyServer()
    assert server.policy("a")(allow) is allow


def test_the_description_is_the_docstrings_first_line_unless_given() -> None:
    server = PolicyServer()
    server.policy("a")(allow)
    server.policy("b", mutating=True, description="other", version="7")(allow)
    server.policy("c")(lambda review: None)
    found = [(p.name, p.description, p.mutating, p.version) for p in server.policies.values()]
    assert found == [
        ("a", "Lets everything through.", False, ""),
        ("b", "other", True, "7"),
        ("c", "", False, ""),
    ]


async def waits(review: Review) -> None:
    """Async."""


@pytest.mark.parametrize(
    ("options", "function", "error", "message"),
    [
        ({"name": ""}, allow, ValueError, "printable and not empty; found ''"),
        ({"name": "  "}, allow, ValueError, "printable and not empty"),
        ({"name": "a\nb"}, allow, ValueError, "printable and not empty"),
        ({"name": 7}, allow, TypeError, "has to be a string.*found 7"),
        ({"name": "taken"}, allow, ValueError, '"taken" is already registered, by <function allow'),
        ({"name": "a"}, "allow", TypeError, "\"a\" has to be a function of one Review; found 'allow'"),
        ({"name": "a"}, lambda: None, TypeError, '"a" has to accept one Review: too many positional'),
        ({"name": "a"}, lambda a, b: None, TypeError, "missing a required argument"),
        ({"name": "a", "blocking": True}, waits, TypeError, "only a plain function can be blocking"),
    ],
)
def test_errors_are_raised_at_the_registration(
    options: dict[str, Any], function: Any, error: type[Exception], message: str
) -> None:
    server = PolicyServer()
    server.policy("taken")(allow)
    with pytest.raises(error, match=message):
        server.policy(**options)(function)
    assert list(server.policies) == ["taken"]


def test_a_missing_name_is_an_error() -> None:
    with pytest.raises(TypeError, match=r'use @server.policy\("name"\)'):
        PolicyServer().policy(allow)  # type: ignore[arg-type]


def test_any_callable_of_one_review_will_do() -> None:
    class Limit:
        def __call__(self, review: Review) -> None:
            del review

    server = PolicyServer()
    server.policy("object")(Limit())
    server.policy("bound")(Limit().__call__)
    server.policy("defaults")(lambda review, limit=3: None)
    assert len(server.policies) == 3
