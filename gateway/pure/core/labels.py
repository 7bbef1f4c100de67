"""Label selectors: built when the configuration loads, matched for every review.

Source: k8s.io/apimachinery pkg/apis/meta/v1/helpers.go and pkg/labels/selector.go.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

Operator = Literal["In", "NotIn", "Exists", "DoesNotExist"]


@dataclass(frozen=True, slots=True)
class Requirement:
    """One condition on one label. ``values`` is empty for Exists and DoesNotExist."""

    key: str
    operator: Operator
    values: frozenset[str] = frozenset()

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether *labels* meet this condition. An absent label meets NotIn and DoesNotExist.

        Labels come from objects that are not validated: a value that is not a string counts as absent.
        """
        value: object = labels.get(self.key)
        is_present = isinstance(value, str)
        match self.operator:
            case "In":
                return is_present and value in self.values
            case "NotIn":
                return not is_present or value not in self.values
            case "Exists":
                return is_present
            case "DoesNotExist":
                return not is_present


@dataclass(frozen=True, slots=True)
class Selector:
    """A conjunction of requirements; without any it matches everything."""

    requirements: tuple[Requirement, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether the selector matches everything, so that no labels are needed."""
        return not self.requirements

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether *labels* meet every requirement."""
        for requirement in self.requirements:  # noqa: SIM110 - a generator would cost more than the look-ups
            if not requirement.matches(labels):
                return False
        return True


EVERYTHING = Selector()


class SelectorIndex:
    """Finds the selectors that may match labels, without evaluating all of them.

    A selector with In or Exists is stored under one label that it requires, and is found by this label. The
    others are always found.
    """

    def __init__(self, selectors: Sequence[Selector]) -> None:
        self._others: list[int] = []
        self._by_key: dict[str, dict[str | None, list[int]]] = {}
        """Indices of selectors by the key and the value of the label; by None if any value will do."""
        for index, selector in enumerate(selectors):
            required = min(filter(_requires_label, selector.requirements), key=_value_count, default=None)
            if required is None:
                self._others.append(index)
            else:
                by_value = self._by_key.setdefault(required.key, {})
                for value in required.values if required.operator == "In" else (None,):
                    by_value.setdefault(value, []).append(index)

    def candidates(self, labels: Iterable[Mapping[str, str]]) -> list[int]:
        """Return, in order, the indices of all selectors that match any of *labels*, and of some others."""
        found = set(self._others)
        for one in labels:
            for key in self._by_key.keys() & one.keys():
                value: object = one[key]
                if isinstance(value, str):
                    by_value = self._by_key[key]
                    found.update(by_value.get(value, ()), by_value.get(None, ()))
        return sorted(found)


def _requires_label(requirement: Requirement) -> bool:
    return requirement.operator in ("In", "Exists")


def _value_count(requirement: Requirement) -> float:
    """Return how many values of the label *requirement*, an In or Exists, allows."""
    return len(requirement.values) if requirement.operator == "In" else math.inf
