"""Label selectors: built when the configuration loads, matched for every review.

Source: k8s.io/apimachinery pkg/apis/meta/v1/helpers.go and pkg/labels/selector.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping

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
