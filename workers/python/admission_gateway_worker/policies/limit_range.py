"""The entries of a LimitRange, with the defaults that Kubernetes derives, and what it refuses in them.

Source: kubernetes pkg/apis/core/v1 defaults.go (LimitRangeItem); pkg/apis/core/validation validation.go
(ValidateLimitRange).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.amounts import Amounts, amounts, parse

if TYPE_CHECKING:
    from collections.abc import Iterator

_ONE: Final = parse("1")
_HUGE_PAGES: Final = "hugepages-"
_OF_CONTAINERS: Final = ("cpu", "memory", "ephemeral-storage")
_ORDER: Final = (
    ("min", "max"),
    ("min", "default"),
    ("default", "max"),
    ("min", "defaultRequest"),
    ("defaultRequest", "max"),
    ("defaultRequest", "default"),
)
"""Fields of which the first is at most the second; those that are derived last."""


@dataclass(frozen=True)
class Item:
    """One entry of ``limits`` of a LimitRange."""

    type: str
    min: Amounts
    max: Amounts
    default: Amounts
    default_request: Amounts
    ratio: Amounts


def prepare(parameters: dict[str, Any]) -> tuple[Item, ...]:
    """Return the entries of ``limits``.

    Raises:
        MalformedQuantity: an amount is not a quantity.
        ValueError: a LimitRange cannot be like that.
    """
    items = []
    types: set[str] = set()
    for index, entry in enumerate(parameters["limits"]):
        item = _item(entry)
        if item.type in types:
            raise ValueError(f"limits[{index}].type: {item.type} is the type of another entry, too")
        types.add(item.type)
        for problem in _problems(entry, item):
            raise ValueError(f"limits[{index}].{problem}")
        items.append(item)
    return tuple(items)


def _item(entry: dict[str, Any]) -> Item:
    low, high = amounts(entry.get("min")), amounts(entry.get("max"))
    default, request = amounts(entry.get("default")), amounts(entry.get("defaultRequest"))
    if entry["type"] == "Container":
        default = {**high, **default}
        request = {**low, **default, **request}
    return Item(entry["type"], low, high, default, request, amounts(entry.get("maxLimitRequestRatio")))


def _problems(entry: dict[str, Any], item: Item) -> Iterator[str]:
    """Yield the fields that are wrong, and why."""
    if item.type == "PersistentVolumeClaim":
        if "storage" not in item.min and "storage" not in item.max:
            yield "min: storage is missing in min and max"
    else:
        yield from _wrong_names(entry)
    if item.type == "Pod":
        for field in ("default", "defaultRequest"):
            if entry.get(field):
                yield f"{field}: the type Pod has none"
    yield from _wrong_order(item)
    yield from _wrong_ratios(item)


def _wrong_names(entry: dict[str, Any]) -> Iterator[str]:
    for field in ("min", "max", "default", "defaultRequest", "maxLimitRequestRatio"):
        for name in entry.get(field) or ():
            if "/" not in name and name not in _OF_CONTAINERS and not name.startswith(_HUGE_PAGES):
                yield f"{field}[{name}]: containers have no such resource"


def _wrong_order(item: Item) -> Iterator[str]:
    fields = {
        "min": item.min,
        "defaultRequest": item.default_request,
        "default": item.default,
        "max": item.max,
    }
    for low, high in _ORDER:
        upper = fields[high]
        for name, least in fields[low].items():
            if name in upper and least.is_more_than(upper[name]):
                yield f"{low}[{name}]: {least} is more than {high}, which is {upper[name]}"
    for name, given in item.default.items():
        requested = item.default_request.get(name, given)
        if not _may_overcommit(name) and given.is_more_than(requested):
            yield f"defaultRequest[{name}]: found {requested}, expected {given}, which is default"


def _may_overcommit(name: str) -> bool:
    return ("/" not in name or "kubernetes.io/" in name) and not name.startswith(_HUGE_PAGES)


def _wrong_ratios(item: Item) -> Iterator[str]:
    for name, ratio in item.ratio.items():
        low, high = item.min.get(name), item.max.get(name)
        if _ONE.is_more_than(ratio):
            yield f"maxLimitRequestRatio[{name}]: {ratio} is less than 1"
        elif low and high and ratio.milli_value * low.milli_value > high.milli_value * 1000:
            yield f"maxLimitRequestRatio[{name}]: {ratio} is more than max / min, which is {high} / {low}"
