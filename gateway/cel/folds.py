"""The macros over a list or map: all, exists, existsOne, map, filter, transformMap, transformMapEntry.

A round is charged what it costs in cel-go, where these are loops over an accumulator.

Source: cel-go interpreter/interpretable.go (evalFold), parser/macro.go, ext/comprehensions.go.
"""

from __future__ import annotations

from operator import length_hint
from typing import TYPE_CHECKING, Final

from gateway.cel.errors import CostExceeded, EvaluationError
from gateway.cel.meter import EXCEEDED, METER, charge, count_values
from gateway.cel.operators import no_overload
from gateway.cel.values import Optional, go_type, show, type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Code = Callable[[list[object]], object]
    Built = tuple[Code, int]
    Rounds = Callable[[list[object], float], Iterator[object]]

# What cel-go's accumulator costs: to return it, and what is done with it for an element.
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
"""To find out that a further element does not count."""
_KEPT: Final = {"existsOne": 2, "map": 12, "filter": 13, "transformMap": 3, "transformMapEntry": 2}
"""For an element that is kept. The others cost nothing."""


def check_key(key: object) -> None:
    """Raise EvaluationError where a map cannot have *key*. cel-go takes lists and maps, and finds none."""
    if isinstance(key, bytes | list | dict | Optional) or hasattr(key, "cel_type"):
        raise EvaluationError(f"unsupported key type: {type_name(key)}")


def _insert(into: dict[object, object], key: object, value: object) -> None:
    """Put *value* under *key*, which must be new. Raises EvaluationError: it is not, or can be no key."""
    check_key(key)
    if key in into:
        raise EvaluationError(f"insert failed: key {show(key)} already exists")
    into[key] = value


def _single(over: Code, slot: int) -> Rounds:
    def rounds(frame: list[object], price: float) -> Iterator[object]:
        """Set the variable for each element, after charging for it; yield what knows how many are left."""
        container = over(frame)
        if type(container) is not list and type(container) is not dict:
            raise EvaluationError(f"got '{go_type(container)}', expected iterable type")
        items = iter(container)
        for item in items:
            METER.left -= price
            if METER.left < 0:
                raise CostExceeded(EXCEEDED)
            frame[slot] = item
            yield items

    return rounds


def _double(over: Code, slot: int, slot2: int) -> Rounds:
    def rounds(frame: list[object], price: float) -> Iterator[object]:
        container = over(frame)
        if isinstance(container, dict):
            items = iter(container.items())
        elif isinstance(container, list):
            items = iter(container)
        else:
            raise EvaluationError(f"unsupported comprehension range type: {go_type(container)}")
        for frame[slot], frame[slot2] in items if isinstance(container, dict) else enumerate(items):
            charge(price)
            yield items

    return rounds


def fold(macro: str, over: Code, slot: int, slot2: int | None, condition: Built | None, body: Built) -> Code:
    """Return the code of a macro over what *over* is; its variables are in the slots."""
    rounds = _single(over, slot) if slot2 is None else _double(over, slot, slot2)
    if macro in ("all", "exists"):
        return _quantifier(rounds, body, macro)
    if macro == "existsOne":
        return _exactly_one(rounds, body)
    if macro == "filter":
        return _filter(rounds, slot, body)
    if macro == "map":
        return _map(rounds, condition, body)
    return _map_of(rounds, slot if macro == "transformMap" else None, condition, body)


def _quantifier(rounds: Rounds, body: Built, macro: str) -> Code:
    code, cost = body
    price = cost + _ROUND[macro]
    last = _LAST[macro]
    decisive = macro == "exists"

    def decide(frame: list[object]) -> object:
        failure = None
        for items in rounds(frame, price):
            try:
                value = code(frame)
            except EvaluationError as error:
                failure = failure or error
                continue
            if value is decisive:
                if length_hint(items):
                    METER.left -= last
                return decisive
            if value is not (not decisive):
                failure = failure or no_overload()
        if failure is not None:
            raise failure
        return not decisive

    return decide


def _is_true(value: object) -> bool:
    if not isinstance(value, bool):
        raise no_overload()
    return value


def _exactly_one(rounds: Rounds, body: Built) -> Code:
    code, price = body

    def count(frame: list[object]) -> object:
        found = 0
        for _ in rounds(frame, price):
            if _is_true(code(frame)):
                METER.left -= _KEPT["existsOne"]
                found += 1
        return found == 1

    return count


def _filter(rounds: Rounds, slot: int, body: Built) -> Code:
    code, price = body
    price_kept = _KEPT["filter"]

    def keep(frame: list[object]) -> object:
        kept = []
        for _ in rounds(frame, price):
            if _is_true(code(frame)):
                METER.left -= price_kept
                kept.append(frame[slot])
        return kept

    return keep


def _map(rounds: Rounds, condition: Built | None, body: Built) -> Code:
    code, cost = body
    price = _KEPT["map"] + cost
    if condition is None:
        return lambda frame: [code(frame) for _ in rounds(frame, price)]
    test, test_cost = condition

    def build(frame: list[object]) -> object:
        found = []
        for _ in rounds(frame, test_cost):
            if _is_true(test(frame)):
                METER.left -= price
                found.append(code(frame))
        return found

    return build


def _map_of(rounds: Rounds, key: int | None, condition: Built | None, body: Built) -> Code:
    """``transformMap``, with the slot of the key, and without it ``transformMapEntry``."""
    code, cost = body
    test, test_cost = condition or (lambda _: True, 0)
    price = cost + _KEPT["transformMapEntry" if key is None else "transformMap"]

    def build(frame: list[object]) -> object:
        found: dict[object, object] = {}
        for _ in rounds(frame, test_cost):
            if not _is_true(test(frame)):
                continue
            charge(price)
            value = code(frame)
            if key is not None:
                _insert(found, frame[key], value)
                continue
            if not isinstance(value, dict):
                raise EvaluationError(f"no such overload: cel.@mapInsert(map, {type_name(value)})")
            count_values(len(value))
            for each, content in value.items():
                _insert(found, each, content)
        return found

    return build
