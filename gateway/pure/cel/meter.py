"""The cost budget of an expression: one for each thread, which evaluates one expression at a time.

The units are cel-go's: 0.1 for a byte that is traversed, 1 for a call. Work that is free in cel-go, but takes
time or memory here, is counted separately in steps. Costs and steps decide whether an evaluation can run on
the event loop. All expressions of a webhook, or of a policy, share one allowance of steps: some seconds.

Source: k8s.io/apiserver pkg/cel/library/cost.go, pkg/apis/cel/config.go; cel-go interpreter/runtimecost.go.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.errors import CostExceeded

if TYPE_CHECKING:
    from collections.abc import Sequence

EXPRESSION_LIMIT: Final = 1_000_000
"""PerCallLimit of the API server. It takes some tenths of a second here."""
HOOK_LIMIT: Final = 2_500_000
"""RuntimeCELCostBudgetMatchConditions: all expressions of a webhook together."""
BRIEF_LIMIT: Final = 10_000
"""The limit for all expressions of a webhook on the event loop: about a millisecond."""
_BRIEF_STEPS: Final = 2_000_000
_STEPS: Final = 1_000_000_000
# A loop inside one call of C code counts fivefold: the event loop waits for all of it.
VALUE: Final = 50
"""Steps of a value that is visited."""
# A unit of costs takes as long as ten steps.
_UNIT: Final = 10
# A copy counts by its memory, not its time: the limit is 80 MB of items, or 50 million characters.
_ITEM: Final = 100
_CHARACTER: Final = 20
MAX_TEXT: Final = 4_000_000
"""Characters of a text that an expression makes. One call of C code that reads it takes some milliseconds."""
LONG_TEXT: Final = 1_000
"""Characters from which the comparison of a text counts beside that of the value."""
EXCEEDED: Final = "operation cancelled: actual cost limit exceeded"
_CHECK: Final = 350_000
"""The cost of a check of the authorizer: an expression can have two."""
_AFFORDED: Final = 2


class Cancellation:
    """Whether nobody waits for the evaluation of a thread any more; another thread may set it."""

    __slots__ = ("is_cancelled",)

    def __init__(self) -> None:
        self.is_cancelled = False
        """The evaluation ends where it next counts steps, or begins an expression."""


class Meter(threading.local):
    """The budget of the present expression of a thread."""

    budget: float = EXPRESSION_LIMIT
    left: float = EXPRESSION_LIMIT
    checks: int = 0
    """The number of checks that were not charged to ``left``."""
    steps: float = 0
    """The steps so far."""
    inputs: Sequence[object] | dict[int, str] | None = None
    """The frame of the present expression, or the Go types in it, see ``gateway.pure.cel.go_types``."""
    cancellation: Cancellation = Cancellation()
    """That of long evaluations. It is looked at where no brief one comes by."""


METER: Final = Meter()


def begin() -> None:
    """Begin an evaluation: expressions that share the allowance of steps."""
    METER.steps = 0


def start(budget: float) -> None:
    """Begin an evaluation of one expression with this *budget*."""
    begin()
    start_expression(budget)


def cancellation() -> Cancellation:
    """Return the cancellation of the long evaluations of this thread."""
    METER.cancellation = Cancellation()
    return METER.cancellation


def long_limit() -> float:
    """Return the budget of the next expression of a long evaluation; 0 if nobody waits for it."""
    return 0 if METER.cancellation.is_cancelled else EXPRESSION_LIMIT


def start_expression(budget: float) -> None:
    """Begin a further expression of the evaluation, with this *budget*."""
    METER.budget = METER.left = budget
    METER.checks = 0


def suspend(budget: float) -> tuple[float, float, int]:
    """Begin another expression with this *budget* inside the present one; :func:`resume` takes the result."""
    saved = METER.budget, METER.left, METER.checks
    start_expression(budget)
    return saved


def resume(saved: tuple[float, float, int]) -> float:
    """Go on with the expression that was suspended, and return the cost of the other one."""
    cost = cost_so_far()
    METER.budget, METER.left, METER.checks = saved
    return cost


def charge(units: float) -> None:
    """Take *units* off the budget.

    Raises:
        CostExceeded: there is not so much left.
    """
    METER.left -= units
    if METER.left < 0:
        raise CostExceeded(EXCEEDED)


def charge_check() -> None:
    """Charge for a check of the authorizer. On the event loop the first two are counted separately."""
    if METER.budget > BRIEF_LIMIT or METER.checks == _AFFORDED:
        charge(_CHECK)
    else:
        METER.checks += 1


def count_steps(steps: float) -> None:
    """Count *steps* of at most ten nanoseconds, which cost nothing.

    Raises:
        CostExceeded: there are too many, for the event loop or at all, or nobody waits for the result.
    """
    METER.steps += steps
    if METER.budget <= BRIEF_LIMIT:
        if METER.steps > _BRIEF_STEPS:
            raise CostExceeded(EXCEEDED)
    elif METER.steps > _STEPS or METER.cancellation.is_cancelled:
        raise CostExceeded(EXCEEDED)


def count_values(values: int) -> None:
    """Count *values* that are visited one by one. Raises CostExceeded as ``count_steps``."""
    count_steps(values * VALUE)


def count_items(items: int) -> None:
    """Count a new list of so many *items*. Raises CostExceeded as ``count_steps``."""
    count_steps(items * _ITEM)


def count_text(characters: int, *of: str) -> None:
    """Count a new text of so many *characters*, which are those *of* texts.

    Raises:
        CostExceeded: as ``count_steps``, or the text has more than ``MAX_TEXT`` characters.
    """
    if characters > MAX_TEXT:
        raise CostExceeded(EXCEEDED)
    # A character takes up to four bytes if there is one beyond ASCII.
    count_steps(characters * (_CHARACTER if all(map(str.isascii, of)) else 4 * _CHARACTER))


def count_reading(text: str | bytes, times: int = 1) -> None:
    """Count *times* that C code reads a text: five nanoseconds a character. Raises as ``count_steps``."""
    count_steps(len(text) * times // 2)


def count_comparison(text: str | bytes, times: int = 1) -> None:
    """Count *times* comparisons of *text* with another one. Raises CostExceeded as ``count_steps``."""
    count_steps((len(text) >> 5) * times)


def count_look_up(key: object) -> None:
    """Count the look-up of *key* in a map: of a long text, which is compared with the one that is found.

    Raises CostExceeded as ``count_steps``.
    """
    if type(key) is str and len(key) > LONG_TEXT:
        count_comparison(key)


def count_cost(units: float) -> None:
    """Count *units* of costs that expressions had as steps, for the work of the whole evaluation."""
    METER.steps += units * _UNIT


def cost_so_far() -> float:
    """Return the cost of the expression so far."""
    return METER.budget - METER.left + METER.checks * _CHECK
