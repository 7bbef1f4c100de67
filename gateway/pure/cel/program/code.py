"""What a part of an expression becomes: a closure, and its source. What all kinds of parts use."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.meter import METER, charge
from gateway.pure.cel.operators import no_overload

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.pure.cel.program.source import Source

Frame = list[object]
"""The values of the environment's variables, then those of macros."""
Code = Callable[[Frame], object]
"""Returns the value. Raises EvaluationError: there is none."""


class Built(NamedTuple):
    """A part of an expression."""

    code: Code
    cost: int
    """In addition to the cost that the code charges itself."""
    source: Source | None = None
    """The same as Python source code, if there is any."""

    def bound(self) -> Bound:
        """Return its value for one run, which is not evaluated yet."""
        return Bound(self)


class Bound:
    """The value of a variable that is evaluated at its first use. An error is kept as a value is."""

    __slots__ = ("_built", "_found")

    def __init__(self, built: Built) -> None:
        self._built = built
        self._found: tuple[object] | str | None = None

    def get(self, frame: Frame) -> object:
        """Return the value, charged once. Raises EvaluationError: there is none."""
        if self._found is None:
            charge(self._built.cost)
            try:
                self._found = (self._built.code(frame),)
            except EvaluationError as error:
                self._found = str(error)
        if isinstance(self._found, str):
            raise EvaluationError(self._found)
        return self._found[0]


def rests_of(parts: Sequence[Built]) -> list[int]:
    """Return for each of *parts* what is paid back if it has no value: the costs of those after it."""
    rests: list[int] = []
    rest = 0
    for each in reversed(parts):
        rests.append(rest)
        rest += each.cost
    return rests[::-1]


def all_values(parts: Sequence[Built], after: int = 0) -> Callable[[Frame], list[object]]:
    """Return the code of the values of *parts*.

    If one has none, the costs of those after it are paid back, and *after*, the cost of what follows.
    """
    codes = [each.code for each in parts]
    rests = rests_of(parts)

    def values(frame: Frame) -> list[object]:
        found: list[object] = []
        try:
            for code in codes:
                found.append(code(frame))
        except EvaluationError:
            METER.left += rests[len(found)] + after
            raise
        return found

    return values


def constant_code(value: object) -> Code:
    """Return the code of a constant."""
    return lambda _: value


def expect_bool(value: object) -> bool:
    """Return *value*. Raises EvaluationError: it is not a bool."""
    if not isinstance(value, bool):
        raise no_overload()
    return value


def first_decisive(terms: Iterable[tuple[Code, int]], frame: Frame, *, decisive: bool) -> bool:
    """Return *decisive* if a term has this value, otherwise its opposite; terms after that one do not run.

    Each term is charged before it runs.

    Raises:
        EvaluationError: no term is decisive and one has no value: the error of the first.
    """
    failure = None
    for code, cost in terms:
        if cost:
            METER.left -= cost
        try:
            value = code(frame)
        except EvaluationError as error:
            failure = failure or error
            continue
        if value is decisive:
            return decisive
        if value is not (not decisive):
            failure = failure or no_overload()
    if failure is not None:
        raise failure
    return not decisive
