"""Checks the rules one after another, each within its time, and says for each what came of it."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from workers.conformance.rule import Breach, NotChecked
from workers.conformance.rules.batches import BATCHES
from workers.conformance.rules.calls import DEADLINES
from workers.conformance.rules.health import HEALTH
from workers.conformance.rules.keepalive import KEEPALIVE
from workers.conformance.rules.listing import LISTING
from workers.conformance.rules.shutdown import SHUTDOWN
from workers.conformance.rules.sizes import SIZES
from workers.conformance.rules.streams import STREAMS
from workers.conformance.rules.unary import REVIEWS
from workers.conformance.worker import Worker

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from workers.conformance.rule import Group, Rule
    from workers.conformance.target import Target
    from workers.conformance.worker import Facts

GROUPS: Final[tuple[Group, ...]] = (
    REVIEWS,
    BATCHES,
    DEADLINES,
    STREAMS,
    SIZES,
    # Behind those that make policies send patches.
    LISTING,
    HEALTH,
    KEEPALIVE,
    # Nobody is there afterwards.
    SHUTDOWN,
)
RULES: Final[tuple[Rule, ...]] = tuple(rule for group in GROUPS for rule in group.rules)

COSTS: Final = {
    "ReviewStream": "each review is a call of its own, which costs several times more CPU on both sides, and "
    "a worker that stops cannot say so",
    "ListPolicies": "people and tools cannot see what is served; the gateway does not need it",
    "Check": "Kubernetes' grpc probes do not work",
    "Watch": "the worker cannot take itself out for a while without ending connections",
}
"""What it costs not to serve a method."""

_GONE_AFTER_S: Final = 1.0

HOLDS, FAILS, NOT_SERVED, NOT_CHECKED = "holds", "FAILS", "not served", "not checked"


@dataclass(frozen=True, slots=True)
class Result:
    """What came of one rule."""

    rule: Rule
    outcome: str
    """``HOLDS``, ``FAILS``, ``NOT_SERVED`` or ``NOT_CHECKED``."""
    note: str = ""
    """How much was checked, what it costs, or what is needed to check it."""
    breach: Breach | None = None


async def check(target: Target, facts: Facts, rules: Sequence[Rule] = RULES) -> AsyncIterator[Result]:
    """Yield a result for each of *rules*, in their order."""
    gone_at = ""
    for rule in rules:
        if gone_at:
            yield Result(rule, NOT_CHECKED, f"the worker has been gone since {gone_at}")
            continue
        result = await _check(target, facts, rule)
        if result.breach is not None and rule.group is not SHUTDOWN and await _is_gone(target):
            breach = result.breach
            found = f"{breach.found}; and the worker is gone"
            result = Result(rule, FAILS, breach=Breach(breach.asked, found, breach.expected))
            gone_at = rule.name
        yield result


async def _check(target: Target, facts: Facts, rule: Rule) -> Result:
    if rule.method not in facts.methods:
        return Result(rule, NOT_SERVED, COSTS[rule.method])
    missing = [sample for sample in rule.samples if sample not in facts.samples]
    if missing:
        what = "policy" if len(missing) == 1 else "policies"
        return Result(rule, NOT_CHECKED, f"needs the sample {what} {', '.join(missing)}")
    if rule.asks_a_policy and not facts.policy:
        return Result(rule, NOT_CHECKED, "needs a policy to ask: say --policy NAME")
    try:
        async with Worker(target, facts) as worker, asyncio.timeout(rule.within_s):
            return Result(rule, HOLDS, await rule.check(worker) or "")
    except NotChecked as error:
        return Result(rule, NOT_CHECKED, str(error))
    except TimeoutError:
        return Result(rule, FAILS, breach=Breach(rule.says, f"no end within {rule.within_s:g} s", "its end"))
    except Exception as error:
        breach = _breach_in(error)
        if breach is None:
            expected = "what the kit understands"
            breach = Breach(rule.says, f"{type(error).__name__}: {error}", expected)
        return Result(rule, FAILS, breach=breach)


def _breach_in(error: BaseException) -> Breach | None:
    """Return the breach; also the first one that a TaskGroup has wrapped."""
    if isinstance(error, BaseExceptionGroup):
        return next(filter(None, map(_breach_in, error.exceptions)), None)
    return error if isinstance(error, Breach) else None


async def _is_gone(target: Target) -> bool:
    """Return whether nobody has been there for a while; a worker that is busy gets its time."""
    loop = asyncio.get_running_loop()
    deadline = loop.time() + _GONE_AFTER_S
    while not await target.is_answered():
        if loop.time() > deadline:
            return True
        await asyncio.sleep(0.1)
    return False
