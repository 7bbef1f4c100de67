"""The macros over a list or map: all, exists, existsOne, map, filter, transformMap, transformMapEntry.

A round is charged what it costs in cel-go, where these are loops over an accumulator.

Source: cel-go interpreter/interpretable.go (evalFold), parser/macro.go, ext/comprehensions.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.cel.errors import CostExceeded, EvaluationError
from gateway.cel.meter import EXCEEDED, METER, charge
from gateway.cel.operators import no_overload, show
from gateway.cel.values import type_name

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    Code = Callable[[list[object]], object]
    Built = tuple[Code, int]
    Rounds = Callable[[list[object], float], Iterator[None]]

# What the accumulator costs: to make and to return, and for each round with or without a new element.
ENTRY: Final = {
    "all": 1,
    "exists": 1,
    "existsOne": 2,
    "map": 11,
    "filter": 11,
    "transformMap": 31,
    "transformMapEntry": 31,
}
_ROUND: Final = {
    "all": 3,
    "exists": 4,
    "existsOne": 1,
    "map": 12,
    "filter": 1,
    "transformMap": 3,
    "transformMapEntry": 2,
}
_KEPT: Final = 12
"""An element that a filter keeps; one that it leaves out costs 1."""


def check_key(key: object) -> None:
    """Raise EvaluationError where a map cannot have *key*."""
    if not isinstance(key, bool | int | str | float):
        raise EvaluationError(f"unsupported key type: {type_name(key)}")


def _insert(into: dict[object, object], key: object, value: object) -> None:
    """Put *value* under *key*, which must be new. Raises EvaluationError: it is not, or can be no key."""
    check_key(key)
    if key in into:
        raise EvaluationError(f"insert failed: key {show(key)} already exists")
    into[key] = value


def _rounds(container: object, *, is_single: bool) -> Iterable[tuple[object, object]]:
    """Yield the values of the two variables; of one alone it is the first that counts."""
    if isinstance(container, list):
        return ((item, None) for item in container) if is_single else enumerate(container)
    if isinstance(container, dict):
        return container.items()
    raise EvaluationError(f"got '{type_name(container)}', expected iterable type")


def fold(macro: str, over: Code, slot: int, slot2: int | None, condition: Built | None, body: Built) -> Code:
    """Return the code of a macro over what *over* is; its variables are in the slots."""

    def rounds(frame: list[object], price: float) -> Iterator[None]:
        """Set the variables for each element, after charging for it."""
        if slot2 is None and type(container := over(frame)) is list:
            for item in container:
                METER.left -= price
                if METER.left < 0:
                    raise CostExceeded(EXCEEDED)
                frame[slot] = item
                yield
            return
        for first, second in _rounds(container if slot2 is None else over(frame), is_single=slot2 is None):
            charge(price)
            frame[slot] = first
            if slot2 is not None:
                frame[slot2] = second
            yield

    if macro in ("all", "exists"):
        return _quantifier(rounds, body, _ROUND[macro], decisive=macro == "exists")
    if macro == "existsOne":
        return _exactly_one(rounds, body)
    if macro == "filter":
        return _filter(rounds, slot, body)
    if macro == "map":
        return _map(rounds, condition, body)
    return _map_of(rounds, slot if macro == "transformMap" else None, condition, body)


def _quantifier(rounds: Rounds, body: Built, price: int, *, decisive: bool) -> Code:
    code, cost = body
    price += cost

    def decide(frame: list[object]) -> object:
        failure = None
        for _ in rounds(frame, price):
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

    return decide


def _is_true(value: object) -> bool:
    if not isinstance(value, bool):
        raise no_overload()
    return value


def _exactly_one(rounds: Rounds, body: Built) -> Code:
    code, cost = body
    price = _ROUND["existsOne"] + cost

    def count(frame: list[object]) -> object:
        found = 0
        for _ in rounds(frame, price):
            if _is_true(code(frame)):
                METER.left -= 1
                found += 1
        return found == 1

    return count


def _filter(rounds: Rounds, slot: int, body: Built) -> Code:
    code, cost = body
    price = _ROUND["filter"] + cost

    def keep(frame: list[object]) -> object:
        kept = []
        for _ in rounds(frame, price):
            if _is_true(code(frame)):
                METER.left -= _KEPT
                kept.append(frame[slot])
        return kept

    return keep


def _map(rounds: Rounds, condition: Built | None, body: Built) -> Code:
    code, cost = body
    if condition is None:
        price = _ROUND["map"] + cost
        return lambda frame: [code(frame) for _ in rounds(frame, price)]
    test, test_cost = condition
    kept = _ROUND["map"] + cost

    def build(frame: list[object]) -> object:
        found = []
        for _ in rounds(frame, test_cost):
            if _is_true(test(frame)):
                METER.left -= kept
                found.append(code(frame))
            else:
                METER.left -= 1
        return found

    return build


def _map_of(rounds: Rounds, key: int | None, condition: Built | None, body: Built) -> Code:
    """``transformMap``, with the slot of the key, and without it ``transformMapEntry``."""
    code, cost = body
    test, test_cost = condition or (lambda _: True, 0)
    price = test_cost + cost + _ROUND["transformMapEntry" if key is None else "transformMap"]

    def build(frame: list[object]) -> object:
        found: dict[object, object] = {}
        for _ in rounds(frame, price):
            if not _is_true(test(frame)):
                continue
            value = code(frame)
            if key is not None:
                _insert(found, frame[key], value)
                continue
            if not isinstance(value, dict):
                raise no_overload()
            charge(len(value))
            for each, content in value.items():
                _insert(found, each, content)
        return found

    return build
