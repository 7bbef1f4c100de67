"""Programs as Python source code, for the usual case: no error, and a cost within the budget.

Closures are exact in every case (``gateway.pure.cel.program.code``). The source of the same tree takes a
third of their time, and gives up where anything is unusual: an error, also one that ``||`` would absorb, a
value of an unexpected type, or a cost above the limit. Then the closures run from the beginning. Where the
source does not give up, value and cost are those of the closures; a part without a source of its own is
called as a closure.

No text of an expression is part of the source: constants, field names too, are global variables of the
function by index. Names, operators and integer costs come from here.
"""

from __future__ import annotations

from contextlib import contextmanager
from math import ceil
from operator import length_hint
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.pure.cel.environment import GLOBALS
from gateway.pure.cel.errors import CostExceeded, EvaluationError
from gateway.pure.cel.indexing import Missing
from gateway.pure.cel.meter import METER
from gateway.pure.cel.values import Optional

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from gateway.pure.cel.program.code import Built, Code

_BODY: Final = 2
"""The depth of the lines that always run."""
_SLOTS: Final = 10_000
"""More than an expression has slots: its text is too short for so many macros."""
_NO_VARIABLES: Final[Mapping[str, Built]] = MappingProxyType({})
_MAX_LINES: Final = 1000
_MAX_DEPTH: Final = 60
_MAX_LOOPS: Final = 12
"""Bounds of the source. CPython refuses more than 100 levels, and 20 loops within each other."""


class _GivenUp(Exception):
    """The case is not the usual one."""


class _TooLarge(Exception):
    """The source exceeds a bound."""


_UNUSUAL: Final = (
    *(_GivenUp, EvaluationError, CostExceeded, Missing),
    *(KeyError, TypeError, IndexError, AttributeError, RecursionError),
)
_NAMES: Final[dict[str, object]] = {
    "__builtins__": {},
    "meter": METER,
    "given_up": _GivenUp,
    "unusual": _UNUSUAL,
    "Optional": Optional,
    "ceil": ceil,
    "length_hint": length_hint,
    **{each.__name__: each for each in (bool, dict, float, int, iter, len, list, str, type)},
}


class Source(NamedTuple):
    """The source of a part of an expression."""

    write: Callable[[Writer], str]
    """Writes the statements that the part needs, and returns its value as a Python expression, which is used
    once at most."""
    is_bool: bool = False
    """Whether the value is a bool."""
    assure: Callable[[Writer], int] | None = None
    """Writes statements that give up unless the value is true, and returns the cost that they do not charge.
    With None ``write`` has to do."""


class AllTrueSource(NamedTuple):
    """Expressions as one function that finds out whether all of them are true."""

    run: Callable[[Sequence[object], float], float]
    """Returns the cost for a frame if all are true and it is at most the second argument, otherwise -1.

    What the meter was charged is not part of the cost."""
    needs_frame: bool
    """Whether the frame needs slots, and ``variables``; otherwise the values of the variables are enough."""
    uses_meter: bool
    """Whether the meter may be charged."""


class Writer:
    """Writes one function."""

    def __init__(self, variables: Mapping[str, Built] = _NO_VARIABLES) -> None:
        """*variables* are those of the policy that are written where they are used first."""
        self._variables = variables
        self._found: dict[str, str] = {}
        """Names of the values of these variables that are known for certain here."""
        self._unknown: list[str] = []
        """Names of values that may not be known where they are used."""
        self._first_slot = 0
        """Added to the number of a slot of a macro: that of another expression in the same function."""
        self._lines: list[str] = []
        self._depth = _BODY
        self._loops = 0
        self._count = 0
        self._globals: set[int] = set()
        self.names = dict(_NAMES)
        self._held: set[tuple[str, str]] = set()
        """Conditions on values that hold for certain here, each with the name of the value."""
        self._members: dict[tuple[str, str], str] = {}
        """Names of the members of maps that were found so far, by the name of the map and the key."""
        self.closures = 0
        """The number of parts that are called as closures so far."""
        self.uses_meter = False
        self.uses_variables = False
        """Whether ``variables`` is used."""
        self.has_cost = False
        """Whether ``cost`` is more than what is known in advance."""

    def line(self, text: str) -> int:
        """Add a line, and return its index."""
        if len(self._lines) >= _MAX_LINES:
            raise _TooLarge
        self._lines.append("    " * self._depth + text)
        return len(self._lines) - 1

    def replace(self, index: int, text: str) -> None:
        """Replace the text of the line at *index*; drop the line if it is empty."""
        line = self._lines[index]
        self._lines[index] = text and line[: len(line) - len(line.lstrip())] + text

    @contextmanager
    def block(self, head: str) -> Iterator[None]:
        """Add *head*; the lines that are added within the context belong to it."""
        self.line(head)
        self._depth += 1
        if self._depth > _MAX_DEPTH:
            raise _TooLarge
        known = self._held.copy(), self._members.copy(), self._found.copy()
        yield
        # The block may not run.
        self._held, self._members, self._found = known
        self._depth -= 1

    @contextmanager
    def loop(self, variable: str, over: str) -> Iterator[None]:
        """As :meth:`block`, for a loop of *variable* over an iterator."""
        self._loops += 1
        if self._loops > _MAX_LOOPS:
            raise _TooLarge
        with self.block(f"for {variable} in {over}:"):
            self._held = {each for each in self._held if each[0] != variable}
            self._members = {key: name for key, name in self._members.items() if key[0] != variable}
            yield
        self._loops -= 1

    def constant(self, value: object) -> str:
        """Return the name of a constant with this *value*."""
        name = f"k{len(self.names)}"
        self.names[name] = value
        return name

    def is_constant(self, name: str) -> bool:
        """Whether *name* is a constant."""
        return name in self.names

    def value_of(self, name: str) -> object:
        """Return the value of the constant *name*; None if that is another name."""
        return self.names.get(name)

    def require(self, name: str, *kinds: type, condition: str = "") -> None:
        """Give up if the value *name* is of none of the types *kinds*, and *condition* is not true either."""
        if type(self.value_of(name)) in kinds:
            return
        tests = [f"type({name}) is {kind.__name__}" for kind in kinds]
        if not any((name, each) in self._held for each in tests):
            wanted = " or ".join([*tests, f"({condition})"] if condition else tests)
            if (name, wanted) not in self._held:
                self.give_up_if(f"not ({wanted})")
                self._held.add((name, wanted))

    def member(self, of: str, field: str) -> str:
        """Return the name of the member *field* of the map *of*, or give up."""
        of = self.named(of)
        name = self._members.get((of, field))
        if name is None:
            name = self._members[of, field] = self.named(f"{of}[{self.constant(field)}]")
        return name

    def new(self) -> str:
        """Return a new name."""
        self._count += 1
        return f"t{self._count}"

    def named(self, text: str) -> str:
        """Return the name of a variable with the value of *text*, which can be used more than once."""
        if text.isalnum():
            return text
        name = self.new()
        self.line(f"{name} = {text}")
        return name

    def slot(self, number: int) -> str:
        """Return the name of the value in slot *number* of the frame."""
        if number < len(GLOBALS):
            self._globals.add(number)
            return f"x{number}"
        return f"x{number + self._first_slot}"

    def variable(self, name: str) -> str | None:
        """Return the name of the value of the variable *name* of the policy; None if it has to be called.

        It is evaluated where it is used first, as ``LazyVariables`` does.
        """
        built = self._variables.get(name)
        if built is None:
            return None
        if name in self._found:
            return self._found[name]
        number = 1 + [*self._variables].index(name)
        value = f"v{number}"
        if self._depth == _BODY and value not in self._unknown:
            self._evaluate(built, value, number)
        else:
            if value not in self._unknown:
                self._unknown.append(value)
            with self.block(f"if {value} is given_up:"):
                self._evaluate(built, value, number)
        self._found[name] = value
        return value

    def _evaluate(self, built: Built, value: str, number: int) -> None:
        outer, self._first_slot = self._first_slot, number * _SLOTS
        self.line(f"{value} = {self.part(built)}")
        self._first_slot = outer
        self.charge(built.cost)

    def charge(self, cost: int | str) -> None:
        """Add *cost*, a number or a Python expression, unless it is 0."""
        if cost != 0:
            self.has_cost = True
            self.line(f"cost += {cost}")

    def give_up_if(self, condition: str) -> None:
        """Give up if *condition* is true."""
        self.line(f"if {condition}: raise given_up")

    def call(self, function: Callable[..., object], *values: str) -> str:
        """Return a call of *function*, which may charge the meter."""
        self.uses_meter = True
        return f"{self.constant(function)}({', '.join(values)})"

    def part(self, built: Built) -> str:
        """Return the value of *built* as a Python expression."""
        if built.source is not None:
            return built.source.write(self)
        self.closures += 1
        return self.named(self.call(built.code, "f"))

    def truth(self, built: Built) -> str:
        """Return the value of *built* as a Python expression, and give up if it is not a bool."""
        text = self.part(built)
        if built.source is not None and built.source.is_bool:
            return text
        text = self.named(text)
        self.require(text, bool)
        return text

    def assure(self, built: Built) -> int:
        """Give up unless the value of *built* is true; return the cost that is left to charge."""
        if built.source is not None and built.source.assure is not None:
            return built.source.assure(self)
        self.give_up_if(f"not {self.truth(built)}")
        return 0

    def function(self, parameters: str, cost: int, begin: str, after: str) -> Callable[..., Any]:
        """Return the function; *after* has the statements if it gives up."""
        head = [f"def run({parameters}):", *begin.splitlines(), "    try:", f"        cost = {cost}"]
        head += [f"        x{number} = f[{number}]" for number in sorted(self._globals)]
        head += [f"        {name} = given_up" for name in self._unknown]
        tail = ["    except unusual:", "        pass", *after.splitlines()]
        text = "\n".join([*head, *filter(None, self._lines), *tail])
        exec(compile(text, "<expression>", "exec"), self.names)  # noqa: S102 - no text of others, see above
        run: Callable[..., Any] = self.names["run"]  # type: ignore[assignment]
        return run


_SAVE: Final = "    limit = left = meter.left\n    steps, checks = meter.steps, meter.checks\n"
_RESTORE: Final = "    meter.left, meter.steps, meter.checks = left, steps, checks\n"
_REFUSED: Final = (_TooLarge, SyntaxError, RecursionError, MemoryError)


def value_code(built: Built) -> Code:
    """Return the code of *built* with the source in front, or its closure if the source is too large."""
    writer = Writer()
    try:
        value = writer.part(built)
        if writer.has_cost:
            writer.uses_meter = True
            value = writer.named(value)
            writer.give_up_if("cost > meter.left")
            writer.line("meter.left -= cost")
        writer.line(f"return {value}")
        slow = f"    return {writer.constant(built.code)}(f)"
        begin, restore = (_SAVE, _RESTORE) if writer.uses_meter else ("", "")
        return writer.function("f", 0, begin, restore + slow)
    except _REFUSED:
        return built.code


def inlinable(variables: Mapping[str, Built]) -> dict[str, Built]:
    """Return those of the *variables* of a policy that :class:`Writer` can write where they are used.

    Each can use those before it. A part that is called as a closure would need a frame of its own.
    """
    found: dict[str, Built] = {}
    for name, built in variables.items():
        writer = Writer(found)
        try:
            writer.part(built)
        except _REFUSED:
            continue
        if not writer.closures and not writer.uses_variables:
            found[name] = built
    return found


def all_true_source(
    parts: Sequence[Built], variables: Mapping[str, Built] = _NO_VARIABLES
) -> AllTrueSource | None:
    """Return *parts*, expressions of the type bool, as one function; None if it is too large.

    *variables* are those of the policy that are a part of the function, see :func:`inlinable`.
    """
    return _all_true(parts, variables) or (_all_true(parts, _NO_VARIABLES) if variables else None)


def _all_true(parts: Sequence[Built], variables: Mapping[str, Built]) -> AllTrueSource | None:
    writer = Writer(variables)
    try:
        cost = sum(built.cost + writer.assure(built) for built in parts)
        writer.give_up_if("cost > limit")
        writer.line("return cost")
        run = writer.function("f, limit", cost, "", "    return -1")
    except _REFUSED:
        return None
    return AllTrueSource(run, bool(writer.closures) or writer.uses_variables, writer.uses_meter)
