"""The gateway's results of an expression, in the form of the oracle's."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any, Final

from gateway.pure.cel.compile import compile_condition
from gateway.pure.cel.errors import EvaluationError, InvalidExpression
from gateway.pure.cel.meter import cost_so_far
from gateway.pure.conditions.match_conditions import CompiledConditions
from gateway.pure.core.conditions import (
    AccessCheck,
    AccessDecision,
    ConditionInput,
    Evaluated,
    Excluded,
    Unresolved,
)
from gateway.pure.core.verdict import Failed

if TYPE_CHECKING:
    from types import FrameType

_GRANTED: Final = ("get", "list", "use")


def decide(expression: str, request: dict[str, Any]) -> tuple[str, str, int]:
    """Return the decision (``true``, ``false``, ``error``, ``compile error``), text of the error, cost."""
    try:
        conditions = CompiledConditions([compile_condition("condition", expression)])
    except InvalidExpression as problem:
        return "compile error", str(problem), 0
    decisions: dict[AccessCheck, AccessDecision] = {}
    while True:
        seen = ConditionInput(request, request.get("object"), request.get("oldObject"))
        result: Evaluated = conditions.evaluate(seen, decisions)
        if isinstance(result, Unresolved) and result.evaluation is not None:
            result = result.evaluation()
        if not isinstance(result, Unresolved):
            break
        decisions |= {check: _decision(json.loads(check.spec)) for check in result.checks}
    cost = math.floor(cost_so_far() + 1e-6)
    if isinstance(result, Failed):
        return "error", result.cause.removeprefix(f"expression '{expression}' resulted in error: "), cost
    return ("false" if isinstance(result, Excluded) else "true"), "", cost


def raises(expression: str, request: dict[str, Any]) -> bool:
    """Return whether any part of *expression* is an error, also one without effect on the decision."""
    found = []

    def trace(_: FrameType, event: str, argument: Any) -> Any:
        if event == "exception" and issubclass(argument[0], EvaluationError):
            found.append(argument[1])
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        decide(expression, request)
    finally:
        sys.settrace(before)
    return bool(found)


def first_checks(expression: str, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return the first checks of the authorizer in the oracle's form; selectors are counted."""
    conditions = CompiledConditions([compile_condition("condition", expression)])
    result = conditions.evaluate(ConditionInput(request, request.get("object"), request.get("oldObject")), {})
    assert isinstance(result, Unresolved)
    return [_shown(json.loads(check.spec)) for check in result.checks]


def _shown(spec: dict[str, Any]) -> dict[str, Any]:
    resource, path = spec.get("resourceAttributes", {}), spec.get("nonResourceAttributes", {})
    names = ("Verb", "Namespace", "Group", "Version", "Resource", "Subresource", "Name", "Path")
    return {
        "User": spec.get("user", ""),
        "UID": spec.get("uid", ""),
        "Groups": spec.get("groups") or [],
        "Extra": spec.get("extra") or {},
        "Fields": len(resource.get("fieldSelector", {}).get("requirements", ())),
        "Labels": len(resource.get("labelSelector", {}).get("requirements", ())),
        **{name: resource.get(name.lower(), path.get(name.lower(), "")) for name in names},
    }


def _decision(spec: dict[str, Any]) -> AccessDecision:
    """Return the decision of the oracle's authorizer."""
    verb = (spec.get("resourceAttributes") or spec["nonResourceAttributes"]).get("verb", "")
    if verb in _GRANTED:
        return AccessDecision(allowed=True, reason="granted")
    return AccessDecision(error="broken") if verb == "break" else AccessDecision(reason="not granted")
