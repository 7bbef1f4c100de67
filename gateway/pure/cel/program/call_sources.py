"""The source of calls: functions and operators."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.environment import GLOBALS
from gateway.pure.cel.libraries.optional_values import OR_VALUE
from gateway.pure.cel.meter import LONG_TEXT
from gateway.pure.cel.program.source import Source
from gateway.pure.cel.types import DYN, INT, STRING
from gateway.pure.cel.values import Optional, Struct

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.pure.cel.program.code import Built
    from gateway.pure.cel.program.source import Writer
    from gateway.pure.cel.syntax import Call

_ORDER: Final = {"_<_": "<", "_<=_": "<=", "_>_": ">", "_>=_": ">="}
_SEARCHES: Final = {
    "startsWith": "{}.startswith({})",
    "endsWith": "{}.endswith({})",
    "contains": "({1} in {0})",
}
_SIZED: Final = {"string": str, "bytes": bytes, "list": list, "map": dict}
_SIZED_BY_CONTENT: Final = frozenset({Optional, Struct})
_MAX_LOOKED_THROUGH: Final = 100
"""Items of a list that are compared without counting steps."""
_GO_TYPES_SLOT: Final = GLOBALS.index("(Go types)")
_EQUAL_AS_IN_PYTHON: Final = frozenset({bool, int, float, type(None)})


def call_source(node: Call, call: Callable[..., object], built: Sequence[Built]) -> Source:
    """Return the source of *node*, which is *call* of the values of *built*."""
    name, overloads = node.function, node.overloads
    kinds = {each.type for each in node.arguments}
    if name in _ORDER and kinds <= {DYN, INT}:
        return _comparison(_ORDER[name], *built)
    if name == "@in" and node.arguments[0].type in (DYN, STRING):
        # The cost of membership in a list, if that is known when the expression is compiled, is its length.
        is_list = len(overloads) == 1 and overloads[0].overload == "in_list"
        return _in(*built, is_list=is_list)
    if name in _SEARCHES and [each.overload for each in overloads] == [name]:
        return _search(name, *built)
    if name == "_+_" and (len(overloads) > 1 or overloads[0].overload == "_+__list(A)"):
        return _sum(*built)
    if name == OR_VALUE:
        return _or_value(*built)
    if name == "size":
        sized = frozenset(_SIZED[each.parameters[0].name] for each in overloads)
        return _size(sized, *built)

    def write(writer: Writer) -> str:
        values = [writer.named(writer.part(each)) for each in built]
        return writer.call(call, *values)

    return Source(write)


def _comparison(symbol: str, first: Built, second: Built) -> Source:
    def write(writer: Writer) -> str:
        left, right = writer.named(writer.part(first)), writer.named(writer.part(second))
        writer.require(left, int)
        writer.require(right, int)
        return f"({left} {symbol} {right})"

    return Source(write, is_bool=True)


def _in(first: Built, second: Built, *, is_list: bool) -> Source:
    def write(writer: Writer) -> str:
        wanted, container = writer.named(writer.part(first)), writer.named(writer.part(second))
        writer.require(wanted, str)
        writer.give_up_if(f"len({wanted}) > {LONG_TEXT}")
        is_short = f"type({container}) is list and len({container}) <= {_MAX_LOOKED_THROUGH}"
        if is_list:
            writer.give_up_if(f"not ({is_short})")
            writer.charge(f"len({container}) - 1")
        else:
            writer.require(container, dict, condition=is_short)
        return f"({wanted} in {container})"

    return Source(write, is_bool=True)


def _search(name: str, text: Built, part: Built) -> Source:
    def write(writer: Writer) -> str:
        whole, wanted = writer.named(writer.part(text)), writer.named(writer.part(part))
        writer.require(whole, str)
        writer.require(wanted, str)
        known = writer.value_of(wanted)
        cost = str(math.ceil(0.1 * len(known))) if isinstance(known, str) else f"ceil(0.1 * len({wanted}))"
        writer.charge(f"{cost} * ceil(0.1 * len({whole}))" if name == "contains" else cost)
        # Before a search that may take long.
        writer.give_up_if("cost > limit" if isinstance(known, str) else f"cost > limit or len({wanted}) > 99")
        return _SEARCHES[name].format(whole, wanted)

    return Source(write, is_bool=True)


def _size(kinds: frozenset[type], of: Built) -> Source:
    def write(writer: Writer) -> str:
        value = writer.named(writer.part(of))
        writer.give_up_if(f"type({value}) not in {writer.constant(kinds)}")
        return f"len({value})"

    return Source(write)


def _sum(first: Built, second: Built) -> Source:
    """Return the source of ``first + second`` of any type, or of lists; it gives up on what is long."""

    def write(writer: Writer) -> str:
        left, right = writer.named(writer.part(first)), writer.named(writer.part(second))
        found = writer.new()
        with writer.block(f"if type({left}) is list and type({right}) is list:"):
            writer.give_up_if(f"len({left}) + len({right}) > {_MAX_LOOKED_THROUGH}")
            # Of an empty list with a Go type, the sum is not the other list as it is.
            writer.give_up_if(f"not {left} and {writer.slot(_GO_TYPES_SLOT)} is not None")
            writer.line(f"{found} = {left} + {right} if {left} else {right}")
        with writer.block(f"elif type({left}) is str and type({right}) is str:"):
            writer.give_up_if(f"len({left}) + len({right}) > {LONG_TEXT}")
            writer.line(f"{found} = {left} + {right}")
        with writer.block("else:"):
            writer.give_up_if(f"type({left}) is not int or type({right}) is not int")
            writer.line(f"{found} = {left} + {right}")
            writer.give_up_if(f"not {-(1 << 63)} <= {found} < {1 << 63}")
        return found

    return Source(write)


def _or_value(value: Built, other: Built) -> Source:
    """Return the source of Kyverno's ``value.orValue(other)``, which evaluates both."""

    def write(writer: Writer) -> str:
        one, instead = writer.named(writer.part(value)), writer.named(writer.part(other))
        of_optional = f"{one}.value if {one}.present else {instead}"
        return f"({one} if type({one}) is not Optional else {of_optional})"

    return Source(write)


def membership_source(wanted: Built, texts: set[object], is_member: Callable[[object], bool]) -> Source:
    """Return the source of ``wanted in [constants]``; *texts* are the strings of the list."""

    def write(writer: Writer) -> str:
        value = writer.named(writer.part(wanted))
        in_texts = f"{value} in {writer.constant(texts)}"
        return f"({in_texts} if type({value}) is str else {writer.constant(is_member)}({value}))"

    return Source(write, is_bool=True)


def equality_source(
    left: Built, right: Built, compare: Callable[[object, object], bool], *, is_equal: bool
) -> Source:
    """Return the source of ``left == right``, or of its opposite."""

    def write(writer: Writer) -> str:
        one, other = writer.named(writer.part(left)), writer.named(writer.part(right))
        symbol = "==" if is_equal else "!="
        if writer.is_constant(other):
            constant = writer.value_of(other)
            if constant is None:
                # An empty value costs less.
                unusual = f"not {one} or type({one}) in {writer.constant(_SIZED_BY_CONTENT)}"
                writer.give_up_if(f"{one} is not None and ({unusual})")
                return f"({one} {'is' if is_equal else 'is not'} None)"
            if type(constant) in _EQUAL_AS_IN_PYTHON:
                writer.require(one, type(constant))
                return f"({one} {symbol} {other})"
        call = writer.call(compare, one, other)
        plain = writer.constant(_EQUAL_AS_IN_PYTHON)
        is_usual = f"type({one}) is type({other}) and type({one}) in {plain}"
        return f"({one} {symbol} {other} if {is_usual} else {call})"

    return Source(write, is_bool=True)


def text_equality_source(left: Built, text: str, *, is_equal: bool) -> Source:
    """Return the source of ``left == 'text'``, or of its opposite."""
    size, price = len(text), math.ceil(len(text) * 0.1)

    def write(writer: Writer) -> str:
        value, found = writer.named(writer.part(left)), writer.new()
        writer.require(value, str)
        writer.line(f"{found} = {value} == {writer.constant(text)}")
        with writer.block(f"if not {found} and len({value}) < {size}:"):
            writer.charge(f"ceil(len({value}) * 0.1) - {price}")
        return found if is_equal else f"(not {found})"

    return Source(write, is_bool=True)


def negation_source(operand: Built) -> Source:
    """Return the source of ``!operand``."""
    return Source(lambda writer: f"(not {writer.truth(operand)})", is_bool=True)


def logic_source(built: Sequence[Built], *, decisive: bool) -> Source:
    """Return the source of ``&&``, for which false is *decisive*, or of ``||``."""

    def write_rest(writer: Writer, found: str, rest: Sequence[Built]) -> None:
        if rest:
            with writer.block(f"if not {found}:" if decisive else f"if {found}:"):
                writer.charge(rest[0].cost)
                writer.line(f"{found} = {writer.truth(rest[0])}")
                write_rest(writer, found, rest[1:])

    def write(writer: Writer) -> str:
        first, found = writer.truth(built[0]), writer.new()
        writer.line(f"{found} = {first}")
        write_rest(writer, found, built[1:])
        return found

    def assure(writer: Writer) -> int:
        return writer.assure(built[0]) + sum(each.cost + writer.assure(each) for each in built[1:])

    return Source(write, is_bool=True, assure=None if decisive else assure)


def conditional_source(built: Sequence[Built]) -> Source:
    """Return the source of ``condition ? first : second``."""

    def write(writer: Writer) -> str:
        found = writer.new()
        heads = (f"if {writer.truth(built[0])}:", "else:")
        for head, branch in zip(heads, built[1:], strict=True):
            with writer.block(head):
                writer.charge(branch.cost)
                writer.line(f"{found} = {writer.part(branch)}")
        return found

    return Source(write)


def or_source(built: Sequence[Built], *, is_value: bool) -> Source:
    """Return the source of ``optional.orValue(other)`` or, without *is_value*, ``optional.or(other)``."""

    def write(writer: Writer) -> str:
        optional, found = writer.named(writer.part(built[0])), writer.new()
        writer.give_up_if(f"type({optional}) is not Optional")
        with writer.block(f"if {optional}.present:"):
            writer.line(f"{found} = {optional}.value" if is_value else f"{found} = {optional}")
        with writer.block("else:"):
            writer.charge(built[1].cost)
            writer.line(f"{found} = {writer.part(built[1])}")
        return found

    return Source(write)
