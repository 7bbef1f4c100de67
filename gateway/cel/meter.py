"""What an evaluation may still cost: one budget for each thread, which evaluates one expression at a time.

The units are cel-go's: 0.1 for a byte that is traversed, 1 for a call. What costs nothing in cel-go and takes
time or memory here is counted apart, in steps. They decide whether an evaluation is for the event loop. Their
limit is an evaluation of some seconds.

Source: k8s.io/apiserver pkg/cel/library/cost.go, pkg/apis/cel/config.go; cel-go interpreter/runtimecost.go.
"""

from __future__ import annotations

import threading
from typing import Final

from gateway.cel.errors import CostExceeded

EXPRESSION_LIMIT: Final = 1_000_000
"""PerCallLimit of the API server. It is some tenths of a second here."""
HOOK_LIMIT: Final = 2_500_000
"""RuntimeCELCostBudgetMatchConditions: all expressions of a webhook together."""
BRIEF_LIMIT: Final = 10_000
"""What all expressions of a webhook may cost on the event loop: a millisecond or some."""
_BRIEF_STEPS: Final = 2_000_000
_STEPS: Final = 1_000_000_000
# What Python does by itself counts fivefold: it keeps the event loop waiting meanwhile, again and again.
_VALUE: Final = 50
# Of what is copied the memory counts, not the time: 80 MB of items, or 50 million characters.
_ITEM: Final = 100
_CHARACTER: Final = 20
EXCEEDED: Final = "operation cancelled: actual cost limit exceeded"
_CHECK: Final = 350_000
"""The price of asking the authorizer, so that an expression can do so twice."""
_AFFORDED: Final = 2


class Meter(threading.local):
    """A budget that only falls."""

    budget: float = EXPRESSION_LIMIT
    left: float = EXPRESSION_LIMIT
    checks: int = 0
    """How many are not in *left*."""
    steps: float = 0
    """What has been done beside what was charged."""


METER: Final = Meter()


def start(budget: float) -> None:
    """Begin with an expression that may cost *budget*."""
    METER.budget = METER.left = budget
    METER.checks = 0
    if budget >= BRIEF_LIMIT:
        METER.steps = 0


def charge(units: float) -> None:
    """Take *units* off the budget.

    Raises:
        CostExceeded: there was not so much left.
    """
    METER.left -= units
    if METER.left < 0:
        raise CostExceeded(EXCEEDED)


def charge_check() -> None:
    """Charge for a question to the authorizer. It takes no time: brief evaluations count them apart."""
    if METER.budget > BRIEF_LIMIT or METER.checks == _AFFORDED:
        charge(_CHECK)
    else:
        METER.checks += 1


def count_steps(steps: float) -> None:
    """Take note of so many *steps* of at most ten nanoseconds, which are no cost.

    Raises:
        CostExceeded: they are too many for the event loop, or for anybody.
    """
    METER.steps += steps
    if METER.steps > (_BRIEF_STEPS if METER.budget <= BRIEF_LIMIT else _STEPS):
        raise CostExceeded(EXCEEDED)


def count_values(values: int) -> None:
    """Take note of so many *values* that are looked at one by one. Raises CostExceeded as ``count_steps``."""
    count_steps(values * _VALUE)


def count_items(items: int) -> None:
    """Take note of a new list of so many *items*. Raises CostExceeded as ``count_steps``."""
    count_steps(items * _ITEM)


def count_text(characters: int) -> None:
    """Take note of a new text of so many *characters*. Raises CostExceeded as ``count_steps``."""
    count_steps(characters * _CHARACTER)


def spent() -> float:
    """Return what the expression has cost since it was begun."""
    return METER.budget - METER.left + METER.checks * _CHECK
