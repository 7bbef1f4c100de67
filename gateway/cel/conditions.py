"""The matchConditions of a webhook, judged for a request.

Source: kubernetes/apiserver plugin/webhook/matchconditions/matcher.go, pkg/admission/plugin/cel/condition.go,
activation.go.
"""

from __future__ import annotations

from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final, NoReturn

from gateway.cel.authorizer import Authorizer, Questions, ResourceCheck
from gateway.cel.errors import CostExceeded, EvaluationError
from gateway.cel.meter import BRIEF_LIMIT, EXCEEDED, EXPRESSION_LIMIT, HOOK_LIMIT, METER, spent, start
from gateway.core.conditions import Excluded, Unanswered, Work
from gateway.core.verdict import Failed, FailureReason

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.cel.compile import Condition
    from gateway.core.conditions import Check, CheckAnswer, Judgement, Seen

_OUT_OF_BUDGET: Final = (
    "validation failed due to running out of cost budget, no further validation rules will be run"
)
_EMPTY: Final = {"uid": "", "object": None, "oldObject": None}
"""Members of the request that are not in ``request``. What makes it a ``dyn`` finds them empty."""


class Conditions:
    """The conditions of one webhook, in their order: a ``MatchConditions``."""

    def __init__(self, conditions: Sequence[Condition]) -> None:
        self._conditions = tuple(conditions)
        self._slots = [None] * max((each.program.slots for each in conditions), default=0)
        self.needs_authorizer = any(each.needs_authorizer for each in conditions)

    def is_excluded(self, namespace: str, operation: str) -> bool:
        """Whether a condition is false for every request for *operation* in *namespace*.

        Only these two are known, so that an expression that asks for anything else has no value; ``&&`` and
        ``||`` may have one all the same. False where nothing is certain.
        """
        known = _Partial(metadata=_Partial(namespace=namespace))
        authorizer = Authorizer(Questions(), {})
        attributes = {"group": "", "resource": "", "subresource": "", "namespace": namespace, "name": ""}
        frame: list[object] = [
            {"CREATE": known, "UPDATE": known, "DELETE": None}.get(operation, _Partial()),
            known if operation in ("UPDATE", "DELETE") else None,
            _Partial(namespace=namespace, operation=operation),
            None,
            authorizer,
            ResourceCheck(authorizer, attributes),
            *self._slots,
        ]
        for condition in self._conditions:
            with suppress(EvaluationError, CostExceeded):
                if evaluate(condition, frame, EXPRESSION_LIMIT) is False:
                    return True
        return False

    def judge(self, seen: Seen, answers: Mapping[Check, CheckAnswer]) -> Judgement:
        """Return None if the webhook is to be called, else why it is not, or not yet.

        What would take long is not done here but is the work of the Unanswered that is returned.
        """
        if not isinstance(seen.prepared, _Prepared):
            seen.prepared = _Prepared(seen)
        try:
            return self._judge(seen.prepared, answers, BRIEF_LIMIT)
        except _TakesLong:
            known = dict(answers)
            return Unanswered(work=Work(self, lambda: self._judge(_Prepared(seen), known, HOOK_LIMIT)))

    def _judge(self, prepared: _Prepared, answers: Mapping[Check, CheckAnswer], budget: float) -> Judgement:
        """Evaluate all, whatever comes out: a false one decides wherever it is, and over both the budget."""
        questions = prepared.questions
        questions.answers = answers
        frame: list[object] = [*prepared.values, *self._slots]
        is_brief = budget == BRIEF_LIMIT
        cost = 0.0
        excluded: Excluded | None = None
        errors: list[str] = []
        missing: dict[Check, None] = {}
        waiting = 0
        for condition in self._conditions:
            questions.missing = {}
            value: object = None
            try:
                value = evaluate(condition, frame, budget if is_brief else EXPRESSION_LIMIT)
            except (EvaluationError, CostExceeded) as error:
                if is_brief and isinstance(error, CostExceeded):
                    raise _TakesLong from None
                if questions.missing:
                    missing.update(questions.missing)
                    waiting += 1
                errors.append(f"expression '{condition.expression}' resulted in error: {error}")
            budget -= METER.budget - METER.left
            cost += spent()
            if cost > HOOK_LIMIT:
                return Failed(FailureReason.CONDITION, _OUT_OF_BUDGET, 403)
            if value is False and excluded is None and not missing:
                excluded = Excluded(condition.name, len(errors))
        # Where an earlier one is false, answers can only change that by using up the budget.
        if missing and (excluded is None or cost + waiting * EXPRESSION_LIMIT > HOOK_LIMIT):
            return Unanswered(tuple(missing))
        if excluded is not None:
            return excluded
        return _failed(errors) if errors else None


class _Partial(dict[str, object]):
    """A map of which only some members are known: to ask for another one is an error."""

    def __contains__(self, key: object) -> bool:
        return super().__contains__(key) or self.__missing__(key)

    def __missing__(self, key: object) -> NoReturn:
        raise EvaluationError(f"not known: {key}")

    def __iter__(self) -> NoReturn:
        self.__missing__("all members")

    def __len__(self) -> int:
        return self.__missing__("all members")


class _TakesLong(Exception):
    """More than is to be done on the event loop."""


def evaluate(condition: Condition, frame: list[object], budget: float) -> object:
    """Return true or false, after which the meter has what it has cost.

    Raises:
        EvaluationError: the expression has no value for this request.
        CostExceeded: it costs more than *budget*.
    """
    start(budget)
    METER.left -= condition.program.cost
    try:
        value = condition.program.code(frame)
    except RecursionError:
        raise EvaluationError("expression is nested too deep") from None
    if METER.left < 0:
        raise CostExceeded(EXCEEDED)
    if not isinstance(value, bool):
        raise EvaluationError(f"cel expression evaluated to {type(value).__name__}, expected bool")
    return value


def _failed(errors: list[str]) -> Failed:
    distinct = list(dict.fromkeys(errors))
    text = distinct[0] if len(distinct) == 1 else f"[{', '.join(distinct)}]"
    return Failed(FailureReason.CONDITION, text, 403)


class _Prepared:
    """The values of the variables for one object."""

    __slots__ = ("questions", "values")

    def __init__(self, seen: Seen) -> None:
        document: Any = seen.document
        request: dict[str, Any] = {"options": None, **document, **_EMPTY}
        resource = request["resource"] = request.get("requestResource") or request.get("resource") or {}
        self.questions = Questions()
        user = document.get("userInfo")
        if not isinstance(user, dict):
            # Not looked at when a review is read.
            user = {}
        subject = {
            name: user[member]
            for name, member in (
                ("user", "username"),
                ("uid", "uid"),
                ("groups", "groups"),
                ("extra", "extra"),
            )
            if user.get(member)
        }
        authorizer = Authorizer(self.questions, subject)
        attributes = {
            "group": resource.get("group", ""),
            "resource": resource.get("resource", ""),
            "subresource": request.get("requestSubResource") or request.get("subResource") or "",
            "namespace": request.get("namespace", ""),
            "name": request.get("name", ""),
        }
        self.values = (
            seen.object,
            seen.old_object,
            request,
            None,
            authorizer,
            ResourceCheck(authorizer, attributes),
        )
