"""Rules of the worker contract.

A rule is a function of a connection to the worker. It returns if the worker keeps to the rule, optionally
with a note for the report, and raises a Violation otherwise.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from admission_gateway_conformance.worker import Worker

    Check = Callable[[Worker], Awaitable[str | None]]

ANSWER_S: Final = 5.0
"""Timeout of answers that need no waiting; generous for a garbage collection or a cold JVM."""

_RULE_S: Final = 10.0
"""Default timeout of a whole rule."""


class Violation(Exception):
    """The worker violates a rule.

    *action* is the action of the kit, such as a call, *found* the reaction of the worker, *expected* the
    reaction that the contract requires.
    """

    def __init__(self, action: str, found: str, expected: str) -> None:
        super().__init__(f"action: {action}; found: {found}; expected: {expected}")
        self.action = action
        self.found = found
        self.expected = expected


class NotChecked(Exception):
    """The rule cannot be checked with this worker; the text names the requirement."""


def expect(holds: bool, action: str, found: object, expected: str) -> None:
    """Raise a Violation unless *holds*."""
    if not holds:
        raise Violation(action, str(found), expected)


@dataclass(frozen=True, slots=True)
class Rule:
    """One requirement of the contract, and its check."""

    group: Group
    method: str
    """Method or feature that the worker has to serve for the rule to be checked."""
    name: str
    """Identifier, for ``--only`` and JSON output."""
    description: str
    """Behaviour of a worker that keeps to the rule, as a sentence without subject."""
    section: str
    """Heading in protos/README.md."""
    samples: tuple[str, ...]
    """Sample policies that the worker has to serve for the rule to be checked."""
    needs_policy: bool
    """Whether the check needs any policy (``Facts.policy``)."""
    timeout_s: float
    """On a quiet machine."""
    check: Check


class Group:
    """Rules that the report groups under one title, in the order of the checks."""

    def __init__(self, title: str, method: str, section: str, timeout_s: float = _RULE_S) -> None:
        """*method* and *section* are the defaults of the rules."""
        self.title = title
        self.rules: list[Rule] = []
        self._method = method
        self._section = section
        self._within_s = timeout_s

    def rule(
        self,
        description: str,
        *,
        method: str | None = None,
        section: str | None = None,
        samples: tuple[str, ...] = (),
        needs_policy: bool = True,
        timeout_s: float | None = None,
    ) -> Callable[[Check], Check]:
        """Return a decorator that adds a function to this group, as a rule of the function's name."""

        def add(check: Check) -> Check:
            name = getattr(check, "__name__", "").replace("_", "-")
            self.rules.append(
                Rule(
                    self,
                    method or self._method,
                    name,
                    description,
                    section or self._section,
                    samples,
                    needs_policy,
                    timeout_s or self._within_s,
                    check,
                )
            )
            return check

        return add
