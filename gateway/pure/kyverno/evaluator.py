"""Evaluates the expressions of one policy one after another, as Kyverno does.

Other than in an admission policy of the API server, what is not asked for is not evaluated, each expression
has a budget of its own, and errors are those of the expressions themselves.

Source: github.com/kyverno/kyverno pkg/cel/policies/vpol/compiler/{policy,eval}.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.admission_policies.evaluation import POLICY_LIMIT, TooLongError
from gateway.pure.admission_policies.shared_values import namespace_values
from gateway.pure.cel.environment import SLOTS
from gateway.pure.cel.errors import CostExceeded, EvaluationError
from gateway.pure.cel.lazy import LazyVariables
from gateway.pure.cel.meter import METER, cost_so_far
from gateway.pure.cel.times import SECOND
from gateway.pure.cel.values import Timestamp, type_name
from gateway.pure.core.namespace import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.pure.admission_policies.evaluation import Allowance
    from gateway.pure.admission_policies.validating import AuditAnnotation, Values
    from gateway.pure.cel.compile import Condition, Expression
    from gateway.pure.cel.libraries.cluster_objects import ClusterObjects
    from gateway.pure.core.policy import PolicyInput

COST_EXCEEDED: Final = "operation cancelled: actual cost limit exceeded"
NO_EXCEPTIONS: Final[dict[str, list[str]]] = {"allowedImages": [], "allowedValues": []}
"""The variable ``exceptions`` where none applies."""
_EXPRESSION_COST: Final = 25
"""What one expression costs on the event loop beside its own costs: some microseconds."""
_EXCEPTIONS, _OBJECTS, _ENTRIES = SLOTS["exceptions"], SLOTS["resource"], SLOTS["globalContext"]
"""The positions of these variables among the values."""


_LAST_S: Final = 253402300799
"""The last second of the year 9999, after which there are no timestamps."""


class Variables(LazyVariables):
    """The variables of a policy. Their errors are not wrapped."""

    __slots__ = ()

    def replace(self, values: Values) -> None:
        """Let variables that have not been evaluated yet see *values*."""
        self._given = values

    def _failed(self, name: str, error: BaseException) -> EvaluationError:
        return EvaluationError(COST_EXCEEDED if isinstance(error, CostExceeded) else str(error))


class Evaluator:
    """The expressions of one policy, evaluated for one request."""

    def __init__(self, variables: Mapping[str, Expression], values: Values, allowance: Allowance) -> None:
        """*values* are those of ``GLOBALS`` without ``variables``."""
        self._variables = Variables(variables, values)
        self._allowance = allowance
        # Kyverno has no budget for a whole policy; without one, an author could take minutes.
        self._left: float = POLICY_LIMIT

    def replace(self, values: Values) -> None:
        """Evaluate with *values* from now on. Variables that have been evaluated keep their values."""
        self._variables.replace(values)

    def value(self, expression: Expression) -> object:
        """Return the value of *expression*.

        Raises:
            EvaluationError: it has none, or costs too much.
            TooLongError: the costs exceed the allowance.
        """
        allowance = self._allowance
        try:
            return expression.evaluate(
                self._variables.frame(expression.slots), min(allowance.expression, self._left)
            )
        except CostExceeded:
            if allowance.is_brief:
                raise TooLongError from None
            raise EvaluationError(COST_EXCEEDED) from None
        finally:
            of_variables = self._variables.take_cost()
            allowance.take(_EXPRESSION_COST + METER.budget - METER.left)
            allowance.take(of_variables)
            self._left = max(0, self._left - of_variables - cost_so_far())

    def first_false(self, conditions: Sequence[Condition]) -> str | None:
        """Return the name of the first of *conditions* that is false, whatever failed before, or None.

        Raises:
            EvaluationError: none is false, and some have no value.
            TooLongError: as :meth:`value`.
        """
        errors = []
        for condition in conditions:
            try:
                if self.value(condition.compiled) is not True:
                    return condition.name
            except EvaluationError as error:
                errors.append(str(error))
        if errors:
            raise EvaluationError("; ".join(errors))
        return None


def annotate(evaluator: Evaluator, notes: Iterable[AuditAnnotation], quote: str) -> None:
    """Evaluate audit annotations, of which only an error has an effect.

    Raises:
        EvaluationError: one has no value, or one that is no text. The message names its key between *quote*.
    """
    for each in notes:
        about = f"auditAnnotation {quote}{each.key}{quote}"
        try:
            value = evaluator.value(each.expression)
        except EvaluationError as error:
            raise EvaluationError(f"failed to evaluate {about}: {error}") from None
        if not isinstance(value, str):
            problem = f"type conversion error from '{type_name(value)}' to 'string'"
            raise EvaluationError(f"failed to convert {about} expression: {problem}")


def values_for(policy_input: PolicyInput, objects: ClusterObjects | None = None) -> Values:
    """Return the values of ``GLOBALS`` without ``variables`` for the policies of Kyverno.

    An absent object is empty, and ``request`` has the objects of the request, as they came. In place of the
    authorizer is the time of the review, for ``time.now()``. *objects* are those that the policy can read.
    """
    values = policy_input.of_kyverno
    if values is None:
        seen, namespace = policy_input.conditions, policy_input.namespace
        policy_input.of_kyverno = values = (
            {} if seen.object is None else seen.object,
            {} if seen.old_object is None else seen.old_object,
            seen.document,
            namespace_values(namespace.json)[1] if isinstance(namespace, Namespace) else None,
            Timestamp(int(min(policy_input.now, _LAST_S) * SECOND)),
            None,
            NO_EXCEPTIONS,
            None,
            None,
        )
    if objects is None:
        return values
    found = [*values]
    found[_OBJECTS], found[_ENTRIES] = objects, objects.global_context
    return tuple(found)


def with_exceptions(values: Values, allowed_images: Sequence[str], allowed_values: Sequence[str]) -> Values:
    """Return *values* with the variable ``exceptions``."""
    found = {"allowedImages": [*allowed_images], "allowedValues": [*allowed_values]}
    return (*values[:_EXCEPTIONS], found, *values[_EXCEPTIONS + 1 :])
