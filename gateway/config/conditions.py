"""``matchConditions``: names, limits, and the compilation of expressions.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.base.text import shown
from gateway.config.names import qualified_name

if TYPE_CHECKING:
    from gateway.config.fields import Fields
    from gateway.pure.conditions.match_conditions import CompiledConditions

MAX_MATCH_CONDITIONS = 64


def read_match_conditions(fields: Fields) -> CompiledConditions | None:
    """Return the ``matchConditions`` of the webhook behind *fields*, compiled; None if there are none."""
    conditions = fields.mappings("matchConditions")
    if not conditions:
        return None
    # The import takes 60 ms and 6 MB, which a configuration without conditions does not need.
    from gateway.pure.cel.compile import compile_condition
    from gateway.pure.cel.errors import InvalidExpression
    from gateway.pure.conditions.match_conditions import CompiledConditions

    if len(conditions) > MAX_MATCH_CONDITIONS:
        fields.problem("matchConditions", f"found {len(conditions)}, expected at most {MAX_MATCH_CONDITIONS}")
    compiled = []
    seen: set[str] = set()
    for condition in conditions:
        name = condition.required_string("name", qualified_name)
        if name and name in seen:
            condition.problem("name", f"found {shown(name)} again, expected unique names")
        seen.add(name)
        expression = condition.required_string("expression")
        if expression and not expression.strip():
            condition.problem("expression", "is blank, expected a CEL expression")
        elif expression:
            try:
                compiled.append(compile_condition(name, expression.strip()))
            except InvalidExpression as error:
                condition.problem("expression", str(error))
        condition.finish()
    return CompiledConditions(compiled)
