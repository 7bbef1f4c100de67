"""Policies that allow a request, which is the usual case, settled in one step."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.core.outcome import Outcome
from gateway.pure.core.verdict import ALLOWED

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.pure.core.call import Payload
    from gateway.pure.core.matching import Invocation
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.verdict import Failed
    from gateway.pure.core.webhook import Mode


_STEPS_PER_S: Final = 100_000_000
"""See ``ConditionInput.brief_steps``."""


def allowed_by_policies(
    invocations: Sequence[Invocation],
    payload: Payload,
    namespace: Namespace | Failed | None,
    modes: Mapping[int, Mode],
) -> list[Outcome]:
    """Return the outcomes of the first of *invocations*, as far as these are quick policies that allow.

    *namespace* is the request's; *modes* are those other than Enforce, by position. The rest is to be settled
    as conditions are; a policy there may allow the request, too.
    """
    condition_input = payload.condition_input
    condition_input.namespace = namespace
    found = []
    left = condition_input.brief_steps
    for invocation in invocations:
        policy = invocation.quick
        elapsed_s = None if policy is None or left <= 0 else policy.allowed_s(condition_input)
        if elapsed_s is None:
            break
        left -= elapsed_s * _STEPS_PER_S
        outcome = Outcome(invocation, 0, ALLOWED, ALLOWED, None)
        if modes:
            outcome.mode = modes.get(invocation.position, "Enforce")
        outcome.evaluated_s = elapsed_s
        found.append(outcome)
    condition_input.brief_steps = left
    return found
