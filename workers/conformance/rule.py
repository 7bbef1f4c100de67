"""What a rule is, and how a worker breaks one.

A rule is a function of a connection to the worker. It returns when the worker keeps to it, perhaps with a
note for the report, and raises a Breach when it does not.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from workers.conformance.worker import Worker

    Check = Callable[[Worker], Awaitable[str | None]]

ANSWER_S: Final = 5.0
"""For what an honest worker answers at once; a garbage collector or a cold JVM may take a while."""

_RULE_S: Final = 10.0
"""For a whole rule. What takes longer says so."""


class Breach(Exception):
    """The worker did not keep to a rule."""

    def __init__(self, asked: str, found: str, expected: str) -> None:
        super().__init__(f"asked: {asked}; found: {found}; expected: {expected}")
        self.asked = asked
        self.found = found
        self.expected = expected


class NotChecked(Exception):
    """The rule says nothing about this worker; the text says what is needed to check it."""


def expect(holds: bool, asked: str, found: object, expected: str) -> None:
    """Raise a Breach unless *holds*."""
    if not holds:
        raise Breach(asked, str(found), expected)


@dataclass(frozen=True, slots=True)
class Rule:
    """One sentence of the contract, and how to see whether it holds."""

    group: Group
    method: str
    """What the worker has to serve for it to be checked."""
    name: str
    """For ``--only`` and for machines."""
    says: str
    """What the worker does that keeps to it."""
    section: str
    """Of protos/README.md."""
    samples: tuple[str, ...]
    """Sample policies that the worker must serve for it to be checked."""
    asks_a_policy: bool
    """Whether it takes a policy, any one, to check it."""
    within_s: float
    check: Check


class Group:
    """Rules that stand together in the report, in the order in which they are checked."""

    def __init__(self, title: str, method: str, section: str, within_s: float = _RULE_S) -> None:
        """*method* is what the worker has to serve for most of them, *section* where most of them stand."""
        self.title = title
        self.rules: list[Rule] = []
        self._method = method
        self._section = section
        self._within_s = within_s

    def rule(
        self,
        says: str,
        *,
        method: str | None = None,
        section: str | None = None,
        samples: tuple[str, ...] = (),
        asks_a_policy: bool = True,
        within_s: float | None = None,
    ) -> Callable[[Check], Check]:
        """Return a decorator that makes a function a rule of this group, by the function's name."""

        def add(check: Check) -> Check:
            name = getattr(check, "__name__", "").replace("_", "-")
            self.rules.append(
                Rule(
                    self,
                    method or self._method,
                    name,
                    says,
                    section or self._section,
                    samples,
                    asks_a_policy,
                    within_s or self._within_s,
                    check,
                )
            )
            return check

        return add
