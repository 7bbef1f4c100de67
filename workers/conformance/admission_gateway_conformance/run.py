"""Checks the rules one after another, each with its timeout, and yields a result for each."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from admission_gateway_conformance.rule import NotChecked, Violation
from admission_gateway_conformance.rules.batches import BATCHES
from admission_gateway_conformance.rules.bounds import BOUNDS
from admission_gateway_conformance.rules.calls import DEADLINES
from admission_gateway_conformance.rules.chains import CHAINS
from admission_gateway_conformance.rules.health import HEALTH
from admission_gateway_conformance.rules.keepalive import KEEPALIVE
from admission_gateway_conformance.rules.listing import LISTING
from admission_gateway_conformance.rules.parameters import PARAMETERS
from admission_gateway_conformance.rules.shutdown import SHUTDOWN
from admission_gateway_conformance.rules.sizes import SIZES
from admission_gateway_conformance.rules.streams import STREAMS
from admission_gateway_conformance.rules.unary import REVIEWS
from admission_gateway_conformance.worker import CHAINS as FEATURE
from admission_gateway_conformance.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from admission_gateway_conformance.rule import Group, Rule
    from admission_gateway_conformance.target import Target
    from admission_gateway_conformance.worker import Facts

GROUPS: Final[tuple[Group, ...]] = (
    REVIEWS,
    BATCHES,
    DEADLINES,
    CHAINS,
    PARAMETERS,
    STREAMS,
    SIZES,
    BOUNDS,
    # After the rules in which policies send patches.
    LISTING,
    HEALTH,
    KEEPALIVE,
    # Last, because the worker ends.
    SHUTDOWN,
)
RULES: Final[tuple[Rule, ...]] = tuple(rule for group in GROUPS for rule in group.rules)

COSTS: Final = {
    "ReviewStream": "each review is an RPC, which needs several times more CPU on both sides, and the worker "
    "cannot announce its shutdown",
    FEATURE: "each policy that changes the object costs a round trip and a new copy of the request",
    "ListPolicies": "people and tools cannot list the policies, and the gateway cannot check parameters",
    "CheckParameters": "the gateway finds parameters that a policy cannot use only in reviews",
    "Check": "gRPC probes of Kubernetes do not work",
    "Watch": "the worker cannot stop receiving reviews without closing connections",
}
"""Consequences of not serving a method or feature."""

_GONE_AFTER_S: Final = 1.0

HOLDS, FAILS, NOT_SERVED, NOT_CHECKED = "holds", "FAILS", "not served", "not checked"


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one rule."""

    rule: Rule
    outcome: str
    """``HOLDS``, ``FAILS``, ``NOT_SERVED`` or ``NOT_CHECKED``."""
    note: str = ""
    """The extent of the check, the consequence of a missing method or feature, or the requirement of the
    check."""
    violation: Violation | None = None


async def check(target: Target, facts: Facts, rules: Sequence[Rule] = RULES) -> AsyncIterator[Result]:
    """Yield a result for each of *rules*, in order."""
    gone_at = ""
    for rule in rules:
        if gone_at:
            yield Result(rule, NOT_CHECKED, f"the worker has not been reachable since {gone_at}")
            continue
        result = await _check(target, facts, rule)
        if result.violation is not None and rule.group is not SHUTDOWN and await _is_gone(target):
            violation = result.violation
            found = f"{violation.found}; the worker is no longer reachable"
            result = Result(rule, FAILS, violation=Violation(violation.action, found, violation.expected))
            gone_at = rule.name
        yield result


async def _check(target: Target, facts: Facts, rule: Rule) -> Result:
    if rule.method not in facts.methods:
        return Result(rule, NOT_SERVED, COSTS[rule.method])
    missing = [sample for sample in rule.samples if sample not in facts.samples]
    if missing:
        what = "policy" if len(missing) == 1 else "policies"
        return Result(rule, NOT_CHECKED, f"needs the sample {what} {', '.join(missing)}")
    if rule.needs_policy and not facts.policy:
        return Result(rule, NOT_CHECKED, "needs a policy: use --policy NAME")
    timeout_s = rule.timeout_s * facts.patience
    try:
        async with Worker(target, facts) as worker, asyncio.timeout(timeout_s):
            return Result(rule, HOLDS, await rule.check(worker) or "")
    except NotChecked as error:
        return Result(rule, NOT_CHECKED, str(error))
    except TimeoutError:
        violation = Violation(rule.description, f"no result within {timeout_s:g} s", "a result")
        return Result(rule, FAILS, violation=violation)
    except Exception as error:
        found = _violation_in(error)
        if found is None:
            expected = "no exception in the kit"
            found = Violation(rule.description, f"{type(error).__name__}: {error}", expected)
        return Result(rule, FAILS, violation=found)


def _violation_in(error: BaseException) -> Violation | None:
    """Return the violation, or the first violation in an exception group."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_violation_in, error.exceptions)), None)
    return error if isinstance(error, Violation) else None


async def _is_gone(target: Target) -> bool:
    """Return whether the target is unreachable for longer than a busy worker may be."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _GONE_AFTER_S
    while not await target.is_answered():
        if loop.time() > deadline:
            return True
        await asyncio.sleep(0.1)
    return False
