"""Steps from a value to its parts: ``a.b[c]``, ``a.?b`` and ``a[?b]``.

Source: cel-go interpreter/attributes.go (applyQualifiers).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.indexing import Missing, Unset, find
from gateway.pure.cel.meter import LONG_TEXT, METER
from gateway.pure.cel.program.source import Source
from gateway.pure.cel.values import NONE, Optional, Struct, unset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.cel.program.code import Built, Code, Frame
    from gateway.pure.cel.program.source import Writer


_OTHERS: Final = frozenset({list, Optional, Struct})
"""Types beside maps that can have an optional part."""


@dataclass(frozen=True, slots=True)
class Step:
    """One step from a value to a part of it."""

    field: str
    """The name of the field, if there is no *key*."""
    key: Built | None
    is_optional: bool
    cost: int
    """1 for the step, and the cost of the key in addition to the cost that it charges itself."""


def select(root: Code, steps: Sequence[Step], after: int = 0) -> Code:
    """Return the code that goes from the value of *root* through *steps*.

    The steps have been charged before. If one fails or finds nothing, the rest is paid back, and *after*, the
    cost of what follows the steps.
    """
    rest = after
    parts: list[tuple[str, Code | None, bool, int]] = []
    for step in reversed(steps):
        key = None if step.key is None else step.key.code
        parts.insert(0, (step.field, key, step.is_optional, rest))
        rest += step.cost
    whole = rest

    def run(frame: Frame) -> object:
        try:
            value = root(frame)
        except EvaluationError:
            METER.left += whole
            raise
        is_optional = False
        if type(value) is Optional:
            if not value.present:
                METER.left += whole
                return value
            value, is_optional = value.value, True
        for field, key_code, is_question, rest in parts:
            is_optional = is_optional or is_question
            try:
                at = field if key_code is None else key_code(frame)
                if type(value) is dict and type(at) is str and len(at) <= LONG_TEXT and at in value:
                    value = value[at]
                else:
                    value = find(value, at)
            except Missing as missing:
                if type(missing) is Unset and not is_optional:
                    value = unset(value, field)
                    continue
                METER.left += rest
                if not is_optional:
                    raise EvaluationError(str(missing)) from None
                METER.left += 1
                return NONE
            except EvaluationError:
                METER.left += rest + is_optional
                raise
        return Optional(value) if is_optional else value

    return run


def select_path(slot: int, path: tuple[str, ...], slow: Code) -> Code:
    """Return the code of ``variable.a.b``; *slow* runs if anything on the way is not a map with the field."""

    def run(frame: Frame) -> object:
        value = frame[slot]
        try:
            for field in path:
                value = value[field]  # type: ignore[index]
        except (KeyError, TypeError):
            return slow(frame)
        return value

    return run


def select_source(root: Built, steps: Sequence[Step], after: int = 0) -> Source | None:
    """Return the source of :func:`select`, or None if a key follows an optional step."""
    rests = [after]
    for step in reversed(steps):
        rests.insert(0, rests[0] + step.cost)
    first = next((number for number, step in enumerate(steps) if step.is_optional), len(steps))
    if any(step.key is not None for step in steps[first:]):
        return None

    def write(writer: Writer) -> str:
        value = writer.part(root)
        for step in steps[:first]:
            value = _step(writer, value, step)
        if first == len(steps):
            return value
        found, value = writer.new(), writer.named(value)
        writer.line(f"{found} = {writer.constant(NONE)}")
        _optional_steps(writer, found, value, list(zip(steps, rests[1:], strict=True))[first:])
        return found

    return Source(write)


def _step(writer: Writer, value: str, step: Step) -> str:
    """Return the part of *value*. Python finds none in an optional value, unlike CEL, and so it gives up."""
    if step.key is None:
        return writer.member(value, step.field)
    value, key = writer.named(value), writer.named(writer.part(step.key))
    found = f"{writer.constant(_find)}({value}, {key})"
    is_usual = f"type({value}) is dict and type({key}) is str and len({key}) <= {LONG_TEXT}"
    return writer.named(f"{value}[{key}] if {is_usual} else {found}")


def _find(value: object, key: object) -> object:
    """Do as ``find``, but give up for a key that values of Go types cannot have, and for a long one."""
    if (type(key) is not str and type(key) is not int) or (type(key) is str and len(key) > LONG_TEXT):
        raise Missing
    return find(value, key)


def _optional_steps(writer: Writer, found: str, value: str, steps: Sequence[tuple[Step, int]]) -> None:
    """Set *found* to the optional part of *value*, if there is one."""
    if not steps:
        writer.line(f"{found} = Optional({value})")
        return
    (step, rest), *others = steps
    key = writer.constant(step.field)
    with writer.block(f"if type({value}) is dict and {key} in {value}:"):
        _optional_steps(writer, found, writer.named(f"{value}[{key}]"), others)
    writer.line(f"elif type({value}) in {writer.constant(_OTHERS)}: raise given_up")
    with writer.block("else:"):
        writer.charge(-rest - 1)


def has_source(operand: Source, field: str) -> Source:
    """Return the source of ``has(operand.field)``."""

    def write(writer: Writer) -> str:
        value = writer.named(operand.write(writer))
        writer.require(value, dict)
        return f"({writer.constant(field)} in {value})"

    return Source(write, is_bool=True)
