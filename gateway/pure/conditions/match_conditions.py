"""The compiled matchConditions of a webhook, evaluated for a request.

The checks of ``authorizer`` are SubjectAccessReviews. Nothing is sent from here: a check without a decision
is noted as missing, and an error of the expression; the conditions are evaluated again once it is there.

Source: kubernetes/apiserver plugin/webhook/matchconditions/matcher.go, pkg/admission/plugin/cel/condition.go,
activation.go,
pkg/authorization/authorizer; k8s.io/api authorization/v1.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

import orjson

from gateway.pure.cel.authorizer import Authorizer, Decision, ResourceCheck
from gateway.pure.cel.environment import GLOBALS
from gateway.pure.cel.errors import CostExceeded, EvaluationError
from gateway.pure.cel.meter import (
    BRIEF_LIMIT,
    EXPRESSION_LIMIT,
    HOOK_LIMIT,
    METER,
    begin,
    cost_so_far,
    count_cost,
    long_limit,
)
from gateway.pure.core.conditions import AccessCheck, Excluded, LongEvaluation, Unresolved
from gateway.pure.core.verdict import Failed, FailureReason
from gateway.pure.openapi.go_types import in_conditions

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.pure.cel.compile import Condition
    from gateway.pure.core.conditions import AccessDecision, ConditionInput, ConditionResult


_OUT_OF_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)
_GIVEN: Final = 6
"""Variables of webhooks' conditions, the first in a frame."""
_SUBJECT = (("user", "username"), ("uid", "uid"), ("groups", "groups"), ("extra", "extra"))
"""Members of a SubjectAccessReview's spec and of ``userInfo``."""
_ABSENT: Final = {"uid": "", "object": None, "oldObject": None}
"""Members of an AdmissionRequest that the variable ``request`` has not; empty where it is used as ``dyn``."""


class CompiledConditions:
    """The conditions of one webhook, in their order: a ``MatchConditions``."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self.conditions = tuple(conditions)
        self._slots = [None] * max((each.compiled.slots for each in conditions), default=0)
        self.needs_authorizer = any(each.needs_authorizer for each in conditions)

    @property
    def expressions(self) -> Sequence[tuple[str, str]]:
        """Name and expression of each condition, in their order."""
        return tuple((each.name, each.expression) for each in self.conditions)

    def is_excluded(self, namespace: str, operation: str) -> bool:
        """Whether a condition is false for every request for *operation* in *namespace*.

        An expression that reads anything else of the request has no value here, unless ``&&`` or ``||`` does
        not need that part. False if it is not certain.
        """
        known = PartialMap(metadata=PartialMap(namespace=namespace))
        found: object = {"CREATE": known, "UPDATE": known, "DELETE": None}.get(operation, PartialMap())
        old = known if operation in ("UPDATE", "DELETE") else None
        return self.decide(found, old, PartialMap(namespace=namespace, operation=operation)) is False

    def decide(self, found: object, old: object, request: Mapping[str, Any]) -> bool | None:
        """Return the result for a request of which only parts are known: whether all conditions are true.

        False if any is false, None if it depends on what is not known, or ends in an error. *found* and *old*
        are the objects, *request* the AdmissionRequest; a :class:`PartialMap` has the known members.
        """
        authorizer = Authorizer(KnownDecisions().decide, {})
        attributes = {"group": "", "resource": "", "subresource": "", "namespace": "", "name": ""}
        frame: list[object] = [
            found,
            old,
            request,
            None,
            authorizer,
            ResourceCheck(authorizer, attributes),
            *[None] * (len(GLOBALS) - _GIVEN),
            *self._slots,
        ]
        result: bool | None = True
        for condition in self.conditions:
            begin()
            value: object = None
            with suppress(EvaluationError, CostExceeded):
                value = condition.evaluate(frame, EXPRESSION_LIMIT)
            if value is False:
                return False
            if value is not True:
                result = None
        return result

    def evaluate(
        self, condition_input: ConditionInput, decisions: Mapping[AccessCheck, AccessDecision]
    ) -> ConditionResult:
        """Return None if the webhook is to be called, otherwise why it is not, or not yet.

        An evaluation that is too long for the event loop is given up; Unresolved has it for another thread.
        """
        if condition_input.brief_steps > 0:
            try:
                return self._evaluate(variables_of(condition_input), decisions, BRIEF_LIMIT)
            except _TooLong:
                count_cost(BRIEF_LIMIT)
            finally:
                condition_input.brief_steps -= METER.steps
        known = dict(decisions)
        return Unresolved(
            evaluation=LongEvaluation(
                self, lambda: self._evaluate(ObjectVariables(condition_input), known, HOOK_LIMIT)
            )
        )

    def _evaluate(
        self, variables: ObjectVariables, decisions: Mapping[AccessCheck, AccessDecision], budget: float
    ) -> ConditionResult:
        """Evaluate all conditions: a false one decides wherever it is, and an exceeded budget over it."""
        known = variables.decisions
        known.decisions = decisions
        frame: list[object] = [*variables.values, *self._slots]
        is_brief = budget == BRIEF_LIMIT
        cost = 0.0
        excluded: Excluded | None = None
        errors: list[str] = []
        missing: dict[AccessCheck, None] = {}
        unresolved = 0
        begin()
        for condition in self.conditions:
            known.missing = {}
            value: object = None
            try:
                value = condition.evaluate(frame, budget if is_brief else long_limit())
            except (EvaluationError, CostExceeded) as error:
                if is_brief and isinstance(error, CostExceeded):
                    raise _TooLong from None
                if known.missing:
                    missing.update(known.missing)
                    unresolved += 1
                errors.append(f"expression '{condition.expression}' resulted in error: {error}")
            budget -= METER.budget - METER.left
            cost += cost_so_far()
            if cost > HOOK_LIMIT:
                return Failed(FailureReason.CONDITION, _OUT_OF_BUDGET, 403)
            if value is False and excluded is None and not missing:
                excluded = Excluded(condition.name, len(errors))
        if is_brief:
            count_cost(BRIEF_LIMIT - budget)
        # If an earlier condition is false, decisions can only change the result by exceeding the budget.
        if missing and (excluded is None or cost + unresolved * EXPRESSION_LIMIT > HOOK_LIMIT):
            return Unresolved(tuple(missing))
        if excluded is not None:
            return excluded
        return Failed(FailureReason.CONDITION, aggregated(errors), 403) if errors else None


class PartialMap(dict[str, object]):
    """A map of which only some members are known; the use of another one is an error."""

    absent: frozenset[str] = frozenset()
    """Members that it is known not to have."""

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or (key not in self.absent and self.__missing__(key))

    def __missing__(self, key: object) -> NoReturn:
        raise EvaluationError(f"not known: {key}")

    def __iter__(self) -> NoReturn:
        self.__missing__("all members")

    def __len__(self) -> int:
        return self.__missing__("all members")


class _TooLong(Exception):
    """The evaluation is too long for the event loop."""


def aggregated(errors: Iterable[str]) -> str:
    """Return *errors*, at least one, as one text. Source: k8s.io/apimachinery pkg/util/errors (Aggregate)."""
    distinct = list(dict.fromkeys(errors))
    return distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"


def request_variable(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the variable ``request`` for an AdmissionRequest, with the resource that the API server sent."""
    # A dictionary that begins with a whole other one is copied at once.
    variable = {**document, **_ABSENT}
    variable.setdefault("options", None)
    variable.setdefault("resource", None)
    return variable


class RequestVariables:
    """The values of variables that depend on the request alone: for conditions, and for policies."""

    __slots__ = ("authorizer", "check", "decisions", "request")

    def __init__(self, document: Mapping[str, Any]) -> None:
        """*document* is the AdmissionRequest."""
        request = request_variable(document)
        resource = request["resource"] = request.get("requestResource") or request.get("resource") or {}
        self.request = request
        self.decisions = KnownDecisions()
        self.authorizer = Authorizer(self.decisions.decide, subject_of(document.get("userInfo")))
        attributes = {
            "group": resource.get("group", ""),
            "resource": resource.get("resource", ""),
            "subresource": request.get("requestSubResource") or request.get("subResource") or "",
            "namespace": request.get("namespace", ""),
            "name": request.get("name", ""),
        }
        self.check = ResourceCheck(self.authorizer, attributes)


class ObjectVariables:
    """The values of the variables for one object."""

    __slots__ = ("decisions", "values")

    def __init__(self, condition_input: ConditionInput) -> None:
        of_request = RequestVariables(condition_input.document)
        self.decisions = of_request.decisions
        self.values = (
            condition_input.object,
            condition_input.old_object,
            of_request.request,
            None,
            of_request.authorizer,
            of_request.check,
            None,
            None,
            in_conditions if condition_input.has_go_types else None,
            None,
        )


def variables_of(condition_input: ConditionInput) -> ObjectVariables:
    """Return the values for *condition_input* on the event loop, where all webhooks share them."""
    if not isinstance(condition_input.prepared, ObjectVariables):
        condition_input.prepared = ObjectVariables(condition_input)
    return condition_input.prepared


def subject_of(user_info: object) -> dict[str, object]:
    """Return the members of a SubjectAccessReview's spec that describe the user of a request."""
    # The type of userInfo is not checked when a review is decoded.
    user = user_info if isinstance(user_info, dict) else {}
    return {name: user[member] for name, member in _SUBJECT if user.get(member)}


class KnownDecisions:
    """The authorizer's decisions that an evaluation can use, and the checks whose decisions it lacks."""

    __slots__ = ("decisions", "missing")

    def __init__(self) -> None:
        self.decisions: Mapping[AccessCheck, AccessDecision] = {}
        self.missing: dict[AccessCheck, None] = {}

    def decide(self, spec: dict[str, object]) -> Decision:
        """Return the decision on the SubjectAccessReview with *spec*.

        Raises:
            EvaluationError: there is none yet; the check is noted in ``missing``.
        """
        check = AccessCheck(orjson.dumps(spec, option=orjson.OPT_SORT_KEYS))
        decision = self.decisions.get(check)
        if decision is None:
            self.missing[check] = None
            raise EvaluationError("the authorizer's decision is not known yet")
        # An error matters only if the authorizer does not allow it.
        error = "" if decision.allowed else decision.error or decision.evaluation_error
        return Decision(decision.allowed, decision.reason, error)
