"""The variables of a policy, each evaluated when an expression first uses it.

A variable has a budget of its own. Its cost is not part of the cost of the expression that uses it first; the
caller takes it from :meth:`LazyVariables.take_cost`.

Source: k8s.io/apiserver pkg/admission/plugin/cel/composition.go, pkg/cel/lazy/lazy.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.pure.cel.errors import CostExceeded, EvaluationError
from gateway.pure.cel.meter import BRIEF_LIMIT, EXCEEDED, METER, long_limit, resume, suspend

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.pure.cel.compile import Expression


_NONE: frozenset[str] = frozenset()


class LazyVariables:
    """The values of a policy's variables for one set of inputs. An error is kept as a value is."""

    __slots__ = ("_cost", "_expressions", "_given", "_too_long", "_values")

    def __init__(self, expressions: Mapping[str, Expression], values: Sequence[object]) -> None:
        """*values* are those of ``GLOBALS``, except ``variables``, which comes last."""
        self._expressions = expressions
        self._given = values
        self._values: dict[str, tuple[object] | EvaluationError] = {}
        self._too_long: frozenset[str] = _NONE
        self._cost = 0.0

    def frame(self, slots: int) -> list[object]:
        """Return the values of ``GLOBALS``, and so many *slots*.

        It is not kept: it would refer to itself through this object, and only the garbage collector would
        free it, with the whole request.
        """
        return [*self._given, self, *[None] * slots]

    def get(self, name: str) -> object:
        """Return the value of the variable *name*.

        Raises:
            EvaluationError: it has none.
            CostExceeded: the evaluation on the event loop is too long, and so it is for every further use.
        """
        found = self._values.get(name)
        if found is None:
            if name in self._too_long and METER.budget <= BRIEF_LIMIT:
                # The source of an expression gives up, and its closure asks again: twice at each level.
                raise CostExceeded(EXCEEDED)
            found = self._values[name] = self._evaluated(name)
        if isinstance(found, EvaluationError):
            # The traceback of the kept one would refer to itself through this object.
            raise EvaluationError(str(found))
        return found[0]

    def take_cost(self) -> float:
        """Return the cost of all variables that were evaluated since the last call."""
        cost, self._cost = self._cost, 0.0
        return cost

    def _evaluated(self, name: str) -> tuple[object] | EvaluationError:
        expression = self._expressions[name]
        is_brief = METER.budget <= BRIEF_LIMIT
        saved = suspend(METER.left if is_brief else long_limit())
        try:
            return (expression.evaluate_within(self.frame(expression.slots)),)
        except CostExceeded as error:
            if is_brief:
                self._too_long = self._too_long | {name}
                raise
            return self._failed(name, error)
        except EvaluationError as error:
            return self._failed(name, error)
        finally:
            self._cost += resume(saved)

    def _failed(self, name: str, error: BaseException) -> EvaluationError:
        return EvaluationError(f'composited variable "{name}" fails to evaluate: {error}')
