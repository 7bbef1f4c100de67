"""Policies that allow a request, which is the usual case, settled in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.core.outcome import Outcome
from gateway.pure.core.verdict import ALLOWED

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.pure.core.matching import Invocation
    from gateway.pure.core.policy import PolicyInput
    from gateway.pure.core.webhook import Mode


_STEPS_PER_S: Final = 100_000_000
"""See ``ConditionInput.brief_steps``."""


def fast_allowed(
    invocations: Iterable[Invocation], policy_input: PolicyInput, modes: Mapping[int, Mode]
) -> list[Outcome]:
    """Return the outcomes of the first of *invocations*, as far as these are policies that allow quickly.

    *modes* are those other than Enforce, by position. The policies behind them have to be evaluated; one of
    them may allow the request, too.
    """
    found = []
    left = policy_input.conditions.brief_steps
    for invocation in invocations:
        if left <= 0 or not invocation.can_allow_fast:
            break
        elapsed_s = invocation.policy.allow_fast(policy_input)
        if elapsed_s is None:
            break
        left -= elapsed_s * _STEPS_PER_S
        outcome = Outcome(invocation, 0, ALLOWED, ALLOWED, None)
        if modes:
            outcome.mode = modes.get(invocation.position, "Enforce")
        outcome.evaluated_s = elapsed_s
        found.append(outcome)
    policy_input.conditions.brief_steps = left
    return found
