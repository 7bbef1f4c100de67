"""``format`` of cel-go's string library, version 2, with the numbers as its en-US locale writes them.

Source: cel-go ext/formatting.go; golang.org/x/text message, number.
"""

from __future__ import annotations

import math
import re
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.conversions import to_string
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.meter import charge, count_steps, count_text, count_values
from gateway.pure.cel.values import Duration, Timestamp, TypeName, quoted, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_CLAUSE: Final = re.compile(r"%(?:%|(?:\.([0-9]*))?(?s:(.))?)")
_SUPERSCRIPT: Final = str.maketrans("0123456789-+", "⁰¹²³⁴⁵⁶⁷⁸⁹⁻⁺")
_NOT_FINITE: Final = ("NaN", "Infinity", "-Infinity")
_DEFAULT_PRECISION: Final = 6
_CLAUSE_STEPS: Final = 1000
"""Steps to replace a clause, beside its text."""
_TEXT_KINDS: Final = (
    "list map int uint double bool string bytes type null_type"
    " google.protobuf.Timestamp google.protobuf.Duration"
)
_NO_TEXT: Final = (
    "string clause can only be used on strings, bools, bytes, ints, doubles, maps, lists, types, durations, "
    "and timestamps"
)
_KINDS: Final = {
    "s": (_NO_TEXT, _TEXT_KINDS),
    "d": ("decimal clause can only be used on integers", "int uint"),
    "f": ("fixed-point clause can only be used on doubles", "double string"),
    "e": ("scientific clause can only be used on doubles", "double string"),
    "b": ("only integers and bools can be formatted as binary", "int uint bool"),
    "x": ("only integers, byte buffers, and strings can be formatted as hex", "int uint string bytes"),
    "o": ("octal clause can only be used on integers", "int uint"),
}


def format_string(text: str, arguments: Sequence[object]) -> str:
    """Return *text* with its clauses replaced by the *arguments*, one after the other.

    Raises:
        EvaluationError: there are too few, one has a type that its clause does not accept, or a clause is
            invalid.
    """
    charge(math.ceil(len(text) * 0.1))
    count_text(len(text), text)
    return _replaced(
        text, len(arguments), lambda index, clause, width: _formatted(arguments[index], clause, width)
    )


def check_format(text: str, kinds: Sequence[str]) -> str | None:
    """Return the problem of *text* with arguments of *kinds*, if there is one.

    *kinds* are the names of their types, ``dyn`` if a type is not known.
    """

    def check(index: int, clause: str, _: int | None) -> str:
        _check_kind(clause, kinds[index])
        return "."

    try:
        used = len(_CLAUSE.findall(text)) - text.count("%%")
        _replaced(text, len(kinds), check)
    except EvaluationError as error:
        return str(error)
    if len(kinds) > used:
        return f"too many arguments supplied to string.format (expected {used}, got {len(kinds)})"
    return None


def _replaced(text: str, count: int, formatted: Callable[[int, str, int | None], str]) -> str:
    taken = 0

    def replacement(found: re.Match[str]) -> str:
        nonlocal taken
        if found[0] == "%%":
            return "%"
        if taken >= count:
            raise EvaluationError(f"index {taken} out of range")
        if found[0] == "%":
            raise EvaluationError("unexpected end of string")
        width = _width(found[1], at_end=found[2] is None)
        clause = found[2].lower() if found[2] in ("X", *_KINDS) else ""
        if not clause:
            raise EvaluationError(
                f'could not parse formatting clause: unrecognized formatting clause "{found[2]}"'
            )
        taken += 1
        try:
            result = formatted(taken - 1, clause, width)
        except EvaluationError as error:
            raise EvaluationError(f"error during formatting: {error}") from None
        count_steps(_CLAUSE_STEPS)
        count_text(len(result))
        return result.upper() if found[2] == "X" else result

    return _CLAUSE.sub(replacement, text)


def _width(digits: str | None, *, at_end: bool) -> int | None:
    if digits is None:
        return None
    problem = None
    if at_end:
        problem = "could not find end of precision specifier"
    elif not digits or len(digits) > 18:
        problem = (
            f'error while converting precision to integer: strconv.Atoi: parsing "{digits}": invalid syntax'
        )
    if problem is not None:
        raise EvaluationError(f"could not parse formatting clause: error while parsing precision: {problem}")
    count_text(int(digits))
    return int(digits)


def _check_kind(clause: str, kind: str) -> None:
    problem, kinds = _KINDS[clause]
    if kind != "dyn" and kind not in kinds.split():
        raise EvaluationError(f"{problem}, was given {kind}")


def _formatted(value: object, clause: str, width: int | None) -> str:
    _check_kind(clause, type_name(value))
    if clause == "s":
        return _text(value)
    if clause in "fe":
        return _number(value, clause, _DEFAULT_PRECISION if width is None else width)
    if clause == "x" and isinstance(value, str | bytes):
        count_text(2 * len(value))
        return (value.encode() if isinstance(value, str) else value).hex()
    assert isinstance(value, int)
    return format(int(value), clause)


def _number(value: object, clause: str, width: int) -> str:
    if isinstance(value, str):
        if value not in _NOT_FINITE:
            raise EvaluationError(f"{_KINDS[clause][0]}, was given string")
        value = float(value)
    assert isinstance(value, float)
    if not math.isfinite(value):
        shown = "NaN" if math.isnan(value) else "∞" if value > 0 else "-∞"
        return shown.rjust(width) if clause == "e" else shown
    if clause == "f":
        return f"{value:,.{width}f}"
    mantissa, _, exponent = f"{value:.{_DEFAULT_PRECISION}e}".partition("e")
    power = exponent.removeprefix("+").translate(_SUPERSCRIPT)
    # cel-go uses the precision as the width.
    return f"{mantissa}\u00d710{power}".rjust(width)


def _text(value: object) -> str:
    if value is None:
        return "null"
    if isinstance(value, TypeName):
        return value.name
    return literal(value) if isinstance(value, list | dict) else to_string(value)


def literal(value: object) -> str:
    """Return a value within a list or map as a CEL literal."""
    count_values(10)
    if isinstance(value, list):
        return _counted(f"[{', '.join(map(literal, value))}]")
    if isinstance(value, dict):
        if not all(isinstance(key, str | int) for key in value):
            raise EvaluationError("no formatting function for map key of type double")
        pairs = sorted((literal(key), literal(one)) for key, one in value.items())
        return _counted(f"{{{', '.join(f'{key}:{one}' for key, one in pairs)}}}")
    if isinstance(value, float):
        return f"{value:.{_DEFAULT_PRECISION}f}" if math.isfinite(value) else f'"{_go_infinity(value)}"'
    if isinstance(value, str):
        count_text(len(value))
        return quoted(value)
    if isinstance(value, bytes):
        return f"b{quoted(to_string(value))}"
    if isinstance(value, Timestamp | Duration):
        return f'{"timestamp" if isinstance(value, Timestamp) else "duration"}("{to_string(value)}")'
    _check_kind("s", type_name(value))
    return _text(value)


def _counted(text: str) -> str:
    count_text(len(text))
    return text


def _go_infinity(value: float) -> str:
    return "NaN" if math.isnan(value) else f"{value:+.0f}".replace("inf", "Inf")
