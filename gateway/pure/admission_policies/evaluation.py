"""Evaluates lists of expressions within one budget, each list with variables of its own.

Source: k8s.io/apiserver pkg/admission/plugin/cel/condition.go, activation.go; pkg/apis/cel/config.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.cel.errors import CostExceeded, EvaluationError
from gateway.pure.cel.lazy import LazyVariables
from gateway.pure.cel.meter import (
    BRIEF_LIMIT,
    METER,
    begin,
    cost_so_far,
    count_cost,
    long_limit,
    start_expression,
)
from gateway.pure.cel.program.source import all_true_source, inlinable

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.pure.cel.compile import Expression

    Result = tuple[object] | EvaluationError | None
    """The value of an expression in a tuple, or why it has none. None if there is no expression."""

POLICY_LIMIT: Final = 10_000_000
"""RuntimeCELCostBudget: all expressions of one kind of one policy, binding and parameter together."""
OUT_OF_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)


class OutOfBudgetError(Exception):
    """The expressions exceed their common budget."""


class TooLongError(Exception):
    """The evaluation is too long for the event loop."""


class Allowance:
    """What an evaluation may still cost: on the event loop, or without this limit in another thread."""

    def __init__(self, *, is_brief: bool) -> None:
        self.is_brief = is_brief
        self._left: float = BRIEF_LIMIT

    @property
    def expression(self) -> float:
        """The budget of the next expression."""
        return self._left if self.is_brief else long_limit()

    @property
    def cost(self) -> float:
        """The costs so far."""
        return BRIEF_LIMIT - self._left

    def work(self) -> float:
        """Return the work of the evaluation, which has ended, in steps."""
        count_cost(self.cost)
        return METER.steps

    def take(self, cost: float) -> None:
        """Note the *cost* of an expression.

        Raises:
            TooLongError: there is not so much left.
        """
        self._left -= cost
        if self.is_brief and self._left <= 0:
            raise TooLongError


def evaluate_all(
    expressions: Iterable[Expression | None],
    variables: Mapping[str, Expression],
    values: Sequence[object],
    budget: float,
    allowance: Allowance,
) -> tuple[list[Result], float]:
    """Return the result of each of *expressions*, and the rest of *budget*.

    *values* are those of ``GLOBALS`` without ``variables``.

    Raises:
        OutOfBudgetError: the costs exceed *budget*.
        TooLongError: the costs exceed *allowance*.
    """
    results: list[Result] = []
    lazy = LazyVariables(variables, values)
    for expression in expressions:
        if expression is None:
            results.append(None)
            continue
        result: Result
        try:
            frame = lazy.frame(expression.slots)
            result = (expression.evaluate(frame, allowance.expression),)
        except CostExceeded as error:
            if allowance.is_brief:
                raise TooLongError from None
            result = _failed(expression, error)
        except EvaluationError as error:
            result = _failed(expression, error)
        allowance.take(METER.budget - METER.left)
        of_variables = lazy.take_cost()
        allowance.take(of_variables)
        budget -= of_variables + cost_so_far()
        if budget < 0:
            raise OutOfBudgetError(OUT_OF_BUDGET)
        results.append(result)
    return results, budget


class AllTrue:
    """Expressions of the type bool, of which usually all are true: then one run over them is enough."""

    def __init__(self, expressions: Sequence[Expression], variables: Mapping[str, Expression]) -> None:
        """*variables* are those of the policy, each of which can use those before it."""
        programs = [each.program for each in expressions]
        inlined = inlinable({name: each.program.tree for name, each in variables.items()})
        self._source = all_true_source([program.tree for program in programs], inlined)
        source = self._source
        is_pure = source is not None and not source.needs_frame and not source.uses_meter
        self.pure = source.run if source is not None and is_pure else None
        """:meth:`cost` for values and limit, if that is all that the expressions need; otherwise None."""
        self._slots = max((each.slots for each in expressions), default=0)

    def brief_cost(self, variables: Mapping[str, Expression], values: Sequence[object]) -> float:
        """Begin an evaluation on the event loop, and return what :meth:`cost` does."""
        if self.pure is not None:
            return self.pure(values, BRIEF_LIMIT)
        begin()
        return self.cost(variables, values, BRIEF_LIMIT)

    def cost(self, variables: Mapping[str, Expression], values: Sequence[object], limit: float) -> float:
        """Return the cost if all are true and it is below *limit*, which is far below every budget; else -1.

        For -1, :func:`evaluate_all` has the results. The other arguments are its own.
        """
        source = self._source
        if source is None:
            return -1
        limit = min(limit, BRIEF_LIMIT)
        if source.uses_meter:
            start_expression(limit)
        METER.inputs = values
        try:
            if not source.needs_frame:
                cost = source.run(values, limit)
            else:
                lazy = LazyVariables(variables, values)
                cost = source.run(lazy.frame(self._slots), limit)
                if cost >= 0:
                    cost += lazy.take_cost()
        finally:
            METER.inputs = None
        if cost >= 0 and source.uses_meter:
            cost += METER.budget - METER.left
        return cost if cost < limit else -1


def _failed(expression: Expression, error: BaseException) -> EvaluationError:
    return EvaluationError(f"expression '{expression.text}' resulted in error: {error}")
