"""The variables that every template has: its constraint's parameters, and the object or the old one.

Source: github.com/open-policy-agent/gatekeeper pkg/drivers/k8scel/transform/cel_snippets.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.cel.compile import compile_expression
from gateway.pure.cel.dialects import GATEKEEPER
from gateway.pure.cel.environment import policy_environment

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.cel.compile import Expression

_WITH_CONSTRAINT: Final = policy_environment(None, has_params=True, dialect=GATEKEEPER)
VARIABLES: Final[Mapping[str, Expression]] = {
    "anyObject": compile_expression(
        'has(request.operation) && request.operation == "DELETE" && object == null ? oldObject : object',
        _WITH_CONSTRAINT,
    ),
    "params": compile_expression(
        "!has(params.spec) ? null : !has(params.spec.parameters) ? null: params.spec.parameters",
        _WITH_CONSTRAINT,
    ),
}
"""The variables that every template has. ``params`` in them is the constraint."""
