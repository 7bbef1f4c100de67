"""Kyverno's PolicyExceptions for policies in CEL: whether a policy is left out for a request.

Source: github.com/kyverno/kyverno pkg/cel/policies/vpol/compiler/policy.go (evaluateWithData),
pkg/cel/engine/exception.go; github.com/kyverno/api policies.kyverno.io policy_exception.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.core.conditions import Excluded
from gateway.pure.kyverno.evaluator import Evaluator, with_exceptions

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.admission_policies.evaluation import Allowance
    from gateway.pure.admission_policies.validating import Values
    from gateway.pure.cel.compile import Condition


_EXCEPTION_COST: Final = 10
"""What one exception costs beside its conditions: about a microsecond."""


@dataclass(frozen=True, slots=True, eq=False)
class CelException:
    """A PolicyException of one policy."""

    id: str
    """``NAMESPACE/NAME``."""
    conditions: Sequence[Condition]
    """All have to hold. They see the values of the policy, without its variables."""
    images: tuple[str, ...]
    allowed_values: tuple[str, ...]
    expires_at: float | None
    """The end in seconds since 1970. None if there is none."""
    document: bytes
    """JSON of its spec, with sorted keys."""

    @property
    def is_full(self) -> bool:
        """Whether the policy is left out. Otherwise its expressions use what the exception allows."""
        return not self.images and not self.allowed_values


def allowed_by(
    exceptions: Sequence[CelException],
    values: Values,
    allowance: Allowance,
    now: float,
    *,
    ignores_errors: bool,
) -> Values | Excluded:
    """Return *values* with what *exceptions* allow; Excluded if one of them leaves the policy out.

    *now* is the time of the review, in seconds since 1970: Kyverno looks at the end of an exception only when
    it reads it, and here it holds by the clock.

    Raises:
        EvaluationError: a condition has no value, which *ignores_errors* takes for false.
        TooLongError: the costs exceed *allowance*.
    """
    images: list[str] = []
    allowed_values: list[str] = []
    left_out: Excluded | None = None
    # One for all, whose authors are others than that of the policy: they share a budget.
    evaluator = Evaluator({}, values, allowance)
    for each in exceptions:
        allowance.take(_EXCEPTION_COST)
        if each.expires_at is not None and now >= each.expires_at:
            continue
        try:
            if evaluator.first_false(each.conditions) is not None:
                continue
        except EvaluationError:
            if left_out is not None or ignores_errors:
                continue
            raise
        if each.is_full:
            left_out = left_out or Excluded(each.id, is_exception=True)
        else:
            images += each.images
            allowed_values += each.allowed_values
    if left_out is not None:
        return left_out
    return with_exceptions(values, images, allowed_values) if images or allowed_values else values
