"""What the gateway makes of an expression, in the oracle's words."""

from __future__ import annotations

import json
import math
import sys
from typing import TYPE_CHECKING, Any, Final

from gateway.cel.compile import compile_condition
from gateway.cel.conditions import Conditions
from gateway.cel.errors import EvaluationError, InvalidExpression
from gateway.cel.meter import spent
from gateway.core.conditions import Check, CheckAnswer, Excluded, Seen, Unanswered
from gateway.core.verdict import Failed

if TYPE_CHECKING:
    from types import FrameType

_GRANTED: Final = ("get", "list", "use")


def decide(expression: str, request: dict[str, Any]) -> tuple[str, str, int]:
    """Return the decision (``true``, ``false``, ``error``, ``compile error``), text of the error, cost."""
    try:
        conditions = Conditions([compile_condition("condition", expression)])
    except InvalidExpression as problem:
        return "compile error", str(problem), 0
    answers: dict[Check, CheckAnswer] = {}
    while True:
        seen = Seen(request, request.get("object"), request.get("oldObject"))
        judgement = conditions.judge(seen, answers)
        if isinstance(judgement, Unanswered) and judgement.work is not None:
            judgement = judgement.work()
        if not isinstance(judgement, Unanswered):
            break
        answers |= {check: _answer(json.loads(check.spec)) for check in judgement.checks}
    cost = math.floor(spent() + 1e-6)
    if isinstance(judgement, Failed):
        return "error", judgement.cause.removeprefix(f"expression '{expression}' resulted in error: "), cost
    return ("false" if isinstance(judgement, Excluded) else "true"), "", cost


def raises(expression: str, request: dict[str, Any]) -> bool:
    """Say whether any part of *expression* is an error, also one that has no effect on the decision."""
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


def asked(expression: str, request: dict[str, Any]) -> list[dict[str, Any]]:
    """Return what the authorizer is asked first, as the oracle shows it; selectors are counted."""
    conditions = Conditions([compile_condition("condition", expression)])
    judgement = conditions.judge(Seen(request, request.get("object"), request.get("oldObject")), {})
    assert isinstance(judgement, Unanswered)
    return [_shown(json.loads(check.spec)) for check in judgement.checks]


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


def _answer(spec: dict[str, Any]) -> CheckAnswer:
    """What the oracle's authorizer says."""
    verb = (spec.get("resourceAttributes") or spec["nonResourceAttributes"]).get("verb", "")
    if verb in _GRANTED:
        return CheckAnswer(allowed=True, reason="granted")
    return CheckAnswer(error="broken") if verb == "break" else CheckAnswer(reason="not granted")
