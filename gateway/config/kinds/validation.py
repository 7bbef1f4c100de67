"""Validation rules: what has to hold between the fields of a mapping, in CEL over ``self``.

A rule is written once. The API server runs it for custom resources, the gateway's readers run it for these
and for files.

Source: kubernetes.io "Extend the Kubernetes API with CustomResourceDefinitions" (validation rules: null is as
an absent field, an error of the expression refuses the object).
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache, reduce
from typing import TYPE_CHECKING, Any

from gateway.base.text import one_of
from gateway.config.yaml.fields import child

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping

    from gateway.config.yaml.fields import Fields


@dataclass(frozen=True, slots=True)
class Rule:
    """One rule of a mapping.

    The API server adds up the costs of all rules of a kind by the bounds of the fields, and refuses a kind
    above its limit: whatever *expression* reads needs ``maxLength``, ``maxItems`` or ``maxProperties``.
    """

    expression: str
    message: str
    about: tuple[str, ...]
    """The fields that the expression reads."""
    at: str = ""
    """The path of the field of the message. Empty: the mapping."""
    holds_with: Collection[int] = (0,)
    """Numbers of present fields among ``about`` with which the rule holds, whatever these fields contain.

    The reader runs the expression for other numbers alone: CEL takes 60 ms and 6 MB to import, which usual
    documents do not need.
    """
    holds_surely: Callable[[Mapping[str, object]], bool] = lambda _: False
    """Whether it holds for a mapping, where that is seen without the expression."""
    found: str = ""
    """A field whose value the reader's message names first. The rule is not checked if it has a problem."""
    is_of_number: bool = False
    """Whether it depends on that number alone. The reader's message then names the present fields first."""

    def schema(self) -> dict[str, str]:
        """Return an entry of ``x-kubernetes-validations``."""
        place = {"fieldPath": f".{self.at}"} if self.at else {}
        return {"rule": self.expression, "message": self.message, **place}

    def without(self, names: Collection[str]) -> Rule:
        """Return the rule of a mapping that cannot have the fields *names*."""
        others = tuple(name for name in self.about if name not in names)
        return exactly_one(*others) if self.is_of_number and others != self.about else self

    def check(self, source: Fields) -> None:
        """Report that the rule does not hold for the mapping behind *source*, which has been read."""
        content, number = source.content, 0
        for name in self.about:
            number += content.get(name) is not None
        if number in self.holds_with or self.holds_surely(content):
            return
        found = False if self.is_of_number else _evaluated(self.expression, content)
        # An error is that of a field of another type than the expression expects, which has been reported.
        if found is True or (found and source.problems.found):
            return
        message = f"{self.message}: {found}" if found else self.message
        if self.is_of_number:
            present = (name for name in self.about if content.get(name) is not None)
            message = f"found {' and '.join(present) or 'none of them'}, {message}"
        if self.found:
            if any(path == source.at(self.found) for path, _ in source.problems.found):
                return
            value = content.get(self.found)
            message = message if value is None else f"found {self.found} {value}, {message}"
        path = reduce(child, self.at.split("."), source.path) if self.at else source.path
        source.problems.add(path, message)


def exactly_one(*names: str) -> Rule:
    """Return the rule that a mapping has exactly one of the fields *names*."""
    number = " + ".join(f"(has(self.{name}) ? 1 : 0)" for name in names)
    message = f"expected exactly one of {one_of(names)}"
    return Rule(f"{number} == 1", message, names, holds_with=(1,), is_of_number=True)


def excluded(name: str, other: str, message: str) -> Rule:
    """Return the rule, with this *message*, that a mapping with *other* has no field *name*."""
    expression = f"!has(self.{name}) || !has(self.{other})"
    return Rule(expression, message, (name, other), at=name, holds_with=(0, 1))


def at_least_one(names: tuple[str, ...], message: str) -> Rule:
    """Return the rule, with this *message*, that a mapping has one of the fields *names* or more."""
    expression = " || ".join(f"has(self.{name})" for name in names)
    return Rule(expression, message, names, holds_with=range(1, len(names) + 1))


def _evaluated(expression: str, content: object) -> bool | str:
    """Return the value of *expression* for the mapping *content*, or the error of its evaluation."""
    from gateway.pure.cel.environment import GLOBALS
    from gateway.pure.cel.errors import CostExceeded, EvaluationError
    from gateway.pure.cel.meter import EXPRESSION_LIMIT, begin

    compiled = _compiled(expression)
    frame: list[Any] = [_without_nulls(content), *[None] * (len(GLOBALS) - 1 + compiled.slots)]
    begin()
    try:
        return compiled.evaluate(frame, EXPRESSION_LIMIT) is True
    except (EvaluationError, CostExceeded) as error:
        return str(error)


@cache
def _compiled(expression: str) -> Any:  # noqa: ANN401 - an Expression of CEL, which is imported when needed
    from gateway.pure.cel.compile import compile_expression
    from gateway.pure.cel.environment import ENVIRONMENT
    from gateway.pure.cel.types import BOOL

    # The environment has no variable self: the macro declares it.
    return compile_expression(f"[object].exists(self, {expression})", ENVIRONMENT, (BOOL,))


def _without_nulls(value: object) -> object:
    if isinstance(value, dict):
        return {name: _without_nulls(one) for name, one in value.items() if one is not None}
    return list(map(_without_nulls, value)) if isinstance(value, list) else value
