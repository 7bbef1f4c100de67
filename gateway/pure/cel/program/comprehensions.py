"""The code of macros over a list or map: all, exists, existsOne, map, filter and transformMap.

A round costs as much as in cel-go, where these macros are loops with an accumulator.

Source: cel-go interpreter/interpretable.go (evalFold), parser/macro.go, ext/comprehensions.go.
"""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from itertools import repeat
from operator import length_hint
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.errors import CostExceeded, EvaluationError
from gateway.pure.cel.indexing import insert
from gateway.pure.cel.meter import EXCEEDED, METER, charge, count_values
from gateway.pure.cel.program.code import Built, expect_bool, first_decisive
from gateway.pure.cel.program.source import Source
from gateway.pure.cel.values import go_type, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from gateway.pure.cel.program.code import Code, Frame
    from gateway.pure.cel.program.source import Writer

    Rounds = tuple[Iterator[object], Iterator[int]]
    """The elements that are left, and an iterator of rounds: it charges, sets the variables and yields 0."""
    Enter = Callable[[Frame, float], Rounds]
    """Returns the rounds over the elements, each for this price."""

# The costs of cel-go's accumulator: of its return, and of its steps for an element.
ENTRY: Final = {
    "all": 1,
    "exists": 1,
    "existsOne": 2,
    "map": 1,
    "filter": 1,
    "transformMap": 1,
    "transformMapEntry": 1,
}
_ROUND: Final = {"all": 3, "exists": 4}
_LAST: Final = {"all": 2, "exists": 3}
"""To find out that a further element is not needed."""
_KEPT: Final = {"existsOne": 2, "map": 12, "filter": 13, "transformMap": 3, "transformMapEntry": 2}
"""The cost of an element that is kept."""


def _range(over: Code, entry: int) -> Code:
    """Return the code of the value of *over*. Unless that is a list or map, *entry*, a cost, is paid back."""

    def value(frame: Frame) -> object:
        try:
            container = over(frame)
        except EvaluationError:
            METER.left += entry
            raise
        if type(container) is not list and type(container) is not dict:
            METER.left += entry
        return container

    return value


def _single(over: Code, slot: int) -> Enter:
    def rounds(items: Iterator[object], frame: Frame, price: float) -> Iterator[int]:
        for frame[slot] in items:
            METER.left -= price
            if METER.left < 0:
                raise CostExceeded(EXCEEDED)
            yield 0

    def enter(frame: Frame, price: float) -> Rounds:
        container = over(frame)
        if type(container) is not list and type(container) is not dict:
            raise EvaluationError(f"got '{go_type(container)}', expected iterable type")
        items = iter(container)
        return items, rounds(items, frame, price)

    return enter


def _double(over: Code, slot: int, slot2: int) -> Enter:
    def rounds(pairs: Iterable[tuple[object, object]], frame: Frame, price: float) -> Iterator[int]:
        for frame[slot], frame[slot2] in pairs:
            charge(price)
            yield 0

    def enter(frame: Frame, price: float) -> Rounds:
        container = over(frame)
        if isinstance(container, dict):
            items = iter(container.items())
            return items, rounds(items, frame, price)
        if isinstance(container, list):
            elements = iter(container)
            return elements, rounds(enumerate(elements), frame, price)
        raise EvaluationError(f"unsupported comprehension range type: {go_type(container)}")

    return enter


def comprehension(
    macro: str, over: Built, slot: int, slot2: int | None, condition: Built | None, body: Built
) -> Built:
    """Return *macro* over the value of *over*; its variables have the slots."""
    code = _code(macro, _range(over.code, ENTRY[macro]), slot, slot2, condition, body)
    source = None
    if slot2 is None and macro in _WRITERS:
        write_rounds = _WRITERS[macro]

        def write(writer: Writer) -> str:
            return write_rounds(writer, over, slot, condition, body)

        assure = partial(_assure_all, over=over, slot=slot, body=body) if macro == "all" else None
        source = Source(write, macro in ("all", "exists", "existsOne"), assure)
    return Built(code, over.cost + ENTRY[macro], source)


def _code(macro: str, over: Code, slot: int, slot2: int | None, condition: Built | None, body: Built) -> Code:
    enter = _single(over, slot) if slot2 is None else _double(over, slot, slot2)
    if macro in ("all", "exists"):
        return _quantifier(enter, body, macro)
    if macro == "existsOne":
        return _exactly_one(enter, body)
    if macro == "filter":
        return _filter(enter, slot, body)
    if macro == "map":
        return _map(enter, condition, body)
    return _map_of(enter, slot if macro == "transformMap" else None, condition, body)


def _quantifier(enter: Enter, body: Built, macro: str) -> Code:
    code, price = body.code, body.cost + _ROUND[macro]
    last = _LAST[macro]
    decisive = macro == "exists"

    def decide(frame: Frame) -> object:
        items, rounds = enter(frame, price)
        value = first_decisive(zip(repeat(code), rounds), frame, decisive=decisive)
        if value is decisive and length_hint(items):
            METER.left -= last
        return value

    return decide


def _exactly_one(enter: Enter, body: Built) -> Code:
    code, price = body.code, body.cost

    def count(frame: Frame) -> object:
        found = 0
        for _ in enter(frame, price)[1]:
            if expect_bool(code(frame)):
                METER.left -= _KEPT["existsOne"]
                found += 1
        return found == 1

    return count


def _filter(enter: Enter, slot: int, body: Built) -> Code:
    code, price = body.code, body.cost
    price_kept = _KEPT["filter"]

    def keep(frame: Frame) -> object:
        kept = []
        for _ in enter(frame, price)[1]:
            if expect_bool(code(frame)):
                METER.left -= price_kept
                kept.append(frame[slot])
        return kept

    return keep


def _map(enter: Enter, condition: Built | None, body: Built) -> Code:
    code, price = body.code, _KEPT["map"] + body.cost
    if condition is None:
        return lambda frame: [code(frame) for _ in enter(frame, price)[1]]
    test, test_cost = condition.code, condition.cost

    def build(frame: Frame) -> object:
        found = []
        for _ in enter(frame, test_cost)[1]:
            if expect_bool(test(frame)):
                METER.left -= price
                found.append(code(frame))
        return found

    return build


def _map_of(enter: Enter, key: int | None, condition: Built | None, body: Built) -> Code:
    """Return the code of ``transformMap``, with the slot of the key, or without it ``transformMapEntry``."""
    code = body.code
    test, test_cost, _ = condition or Built(lambda _: True, 0)
    price = body.cost + _KEPT["transformMapEntry" if key is None else "transformMap"]

    def build(frame: Frame) -> object:
        found: dict[object, object] = {}
        for _ in enter(frame, test_cost)[1]:
            if not expect_bool(test(frame)):
                continue
            charge(price)
            value = code(frame)
            if key is not None:
                insert(found, frame[key], value)
                continue
            if not isinstance(value, dict):
                raise EvaluationError(f"no such overload: cel.@mapInsert(map, {type_name(value)})")
            count_values(len(value))
            for each, content in value.items():
                insert(found, each, content)
        return found

    return build


@contextmanager
def _rounds(writer: Writer, over: Built, slot: int, price: int) -> Iterator[str]:
    """Begin a loop of the source; the name is the iterator's. The price of all rounds is charged before."""
    items = writer.named(writer.part(over))
    writer.require(items, list, dict)
    if price:
        writer.charge(f"{price} * len({items})")
        writer.give_up_if("cost > limit")
    iterator = writer.new()
    writer.line(f"{iterator} = iter({items})")
    with _loop(writer, iterator, slot):
        yield iterator


@contextmanager
def _loop(writer: Writer, over: str, slot: int) -> Iterator[None]:
    """Begin a loop of the source over the value *over*."""
    with writer.loop(writer.slot(slot), over):
        shared = writer.line(f"f[{slot}] = {writer.slot(slot)}")
        closures = writer.closures
        yield
        if writer.closures == closures:
            writer.replace(shared, "")


def _assure_all(writer: Writer, over: Built, slot: int, body: Built) -> int:
    """Give up unless *body* is true for all elements."""
    items = writer.named(writer.part(over))
    writer.require(items, list, dict)
    charged = writer.line("cost")
    writer.give_up_if("cost > limit")
    with _loop(writer, items, slot):
        price = body.cost + _ROUND["all"] + writer.assure(body)
    writer.replace(charged, f"cost += {price} * len({items})")
    return 0


def _write_quantifier(
    writer: Writer, over: Built, slot: int, _: Built | None, body: Built, macro: str
) -> str:
    found, rest = writer.new(), writer.new()
    price = body.cost + _ROUND[macro]
    writer.line(f"{found} = {macro == 'all'}")
    with _rounds(writer, over, slot, price) as iterator:
        value = writer.truth(body)
        with writer.block(f"if {value}:" if macro == "exists" else f"if not {value}:"):
            writer.line(f"{found} = {macro == 'exists'}")
            writer.line(f"{rest} = length_hint({iterator})")
            writer.charge(f"({_LAST[macro]} if {rest} else 0) - {price} * {rest}")
            writer.line("break")
    return found


def _write_exactly_one(writer: Writer, over: Built, slot: int, _: Built | None, body: Built) -> str:
    found = writer.new()
    writer.line(f"{found} = 0")
    with _rounds(writer, over, slot, body.cost), writer.block(f"if {writer.truth(body)}:"):
        writer.line(f"{found} += 1")
        writer.charge(_KEPT["existsOne"])
    return f"({found} == 1)"


def _write_filter(writer: Writer, over: Built, slot: int, _: Built | None, body: Built) -> str:
    found = writer.new()
    writer.line(f"{found} = []")
    with _rounds(writer, over, slot, body.cost), writer.block(f"if {writer.truth(body)}:"):
        writer.line(f"{found}.append({writer.slot(slot)})")
        writer.charge(_KEPT["filter"])
    return found


def _write_map(writer: Writer, over: Built, slot: int, condition: Built | None, body: Built) -> str:
    found, price = writer.new(), _KEPT["map"] + body.cost
    writer.line(f"{found} = []")
    with _rounds(writer, over, slot, price if condition is None else condition.cost):
        if condition is None:
            writer.line(f"{found}.append({writer.part(body)})")
        else:
            with writer.block(f"if {writer.truth(condition)}:"):
                writer.charge(price)
                writer.line(f"{found}.append({writer.part(body)})")
    return found


_WRITERS: Final[dict[str, Callable[..., str]]] = {
    "all": partial(_write_quantifier, macro="all"),
    "exists": partial(_write_quantifier, macro="exists"),
    "existsOne": _write_exactly_one,
    "filter": _write_filter,
    "map": _write_map,
}
"""The writers of macros with one variable."""
