"""One ValidatingAdmissionPolicy, evaluated for one binding and one parameter.

Source: k8s.io/apiserver pkg/admission/plugin/policy/validating/validator.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.pure.admission_policies.evaluation import (
    POLICY_LIMIT,
    Allowance,
    AllTrue,
    OutOfBudgetError,
    evaluate_all,
)
from gateway.pure.cel.chunks import stripped
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.values import type_name

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gateway.pure.admission_policies.evaluation import Result
    from gateway.pure.cel.compile import Expression
    from gateway.pure.core.webhook import FailurePolicy

_SPACE: Final = "".join(
    each for each in map(chr, range(0x3001)) if each.isspace() and each not in "\x1c\x1d\x1e\x1f"
)
"""White space for Go, which is less than for Python."""

MAX_MESSAGE_BYTES: Final = 5 * 1024
"""The size of the value of a messageExpression. A longer one is not used."""

Values = tuple[object, ...]
"""The values of ``GLOBALS`` without ``variables``."""


@dataclass(frozen=True, slots=True)
class Validation:
    """One validation of a policy."""

    expression: Expression
    message: str
    message_expression: Expression | None
    reason: str
    """Empty stands for Invalid."""


@dataclass(frozen=True, slots=True)
class AuditAnnotation:
    """One audit annotation of a policy."""

    key: str
    expression: Expression
    """A text or null."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The expressions of one policy."""

    failure_policy: FailurePolicy
    variables: Mapping[str, Expression]
    validations: Sequence[Validation]
    audit_annotations: Sequence[AuditAnnotation]
    has_message_expressions: bool = field(init=False)
    can_be_all_true: bool = field(init=False)
    """Whether there can be ``all_true``. Not if a messageExpression has a loop, whose cost counts in any
    case."""
    all_true: AllTrue | None = field(init=False, default=None)
    """All validations in one. None until :meth:`build`, too: then the validations decide one by one."""
    is_built: bool = field(init=False, default=False)

    def __post_init__(self) -> None:
        messages = [each.message_expression for each in self.validations if each.message_expression]
        object.__setattr__(self, "has_message_expressions", bool(messages))
        object.__setattr__(self, "can_be_all_true", not any(each.has_loop for each in messages))

    @property
    def expressions(self) -> Iterator[Expression]:
        """All expressions."""
        yield from self.variables.values()
        for each in self.validations:
            yield each.expression
            if each.message_expression is not None:
                yield each.message_expression
        for one in self.audit_annotations:
            yield one.expression

    def build(self) -> None:
        """Make what evaluates the usual case fast, once."""
        if self.is_built:
            return
        if self.can_be_all_true:
            expressions = [each.expression for each in self.validations]
            object.__setattr__(self, "all_true", AllTrue(expressions, self.variables))
        for variable in self.variables.values():
            variable.program.use_source()
        object.__setattr__(self, "is_built", True)


class Refusal(NamedTuple):
    """A validation that is false, or that failed under failurePolicy Fail."""

    number: int
    """Index of the validation; 0 for a failure of all."""
    message: str
    reason: str
    """Empty stands for Invalid."""
    is_error: bool


class Annotation(NamedTuple):
    """An audit annotation to publish, or why it could not be made."""

    key: str
    value: str
    error: str


class Evaluated(NamedTuple):
    """The result for one binding and parameter."""

    refusals: list[Refusal]
    annotations: list[Annotation]
    ignored: list[str]
    """Errors that failurePolicy Ignore lets pass."""


def failure(rules: Rules, message: str, *, index: int = 0) -> Evaluated:
    """Return the result if an evaluation failed: failurePolicy decides."""
    if rules.failure_policy == "Ignore":
        return Evaluated([], [], [message])
    return Evaluated([Refusal(index, message, "", is_error=True)], [], [])


def evaluate(
    rules: Rules,
    values: Values,
    without_authorizer: Values,
    unfiltered: Values,
    allowance: Allowance,
    budget: float = POLICY_LIMIT,
) -> Evaluated:
    """Return the result of *rules*, whose validations and messages cost at most *budget*.

    *values* are for the validations, *without_authorizer* for messageExpressions, and *unfiltered* for audit
    annotations, whose ``namespaceObject`` has all members.

    Raises:
        TooLongError: the costs exceed *allowance*.
    """
    cost = -1.0
    if rules.all_true is not None:
        cost = rules.all_true.cost(rules.variables, values, allowance.expression)
    if cost >= 0:
        allowance.take(cost)
        found = Evaluated([], [], [])
        return _with_annotations(rules, unfiltered, allowance, found) if rules.audit_annotations else found
    try:
        results, left = evaluate_all(
            (each.expression for each in rules.validations), rules.variables, values, budget, allowance
        )
    except OutOfBudgetError as error:
        return failure(rules, str(error))
    messages: list[Result] = []
    of_messages = ""
    if rules.has_message_expressions:
        try:
            messages, _ = evaluate_all(
                (each.message_expression for each in rules.validations),
                rules.variables,
                without_authorizer,
                left,
                allowance,
            )
        except OutOfBudgetError as error:
            of_messages = f"failed messageExpression: {error}"
    found = Evaluated([], [], [])
    for index, (validation, result) in enumerate(zip(rules.validations, results, strict=True)):
        problem = str(result) if isinstance(result, EvaluationError) else of_messages
        if problem:
            failed = failure(rules, problem, index=index)
            found.refusals.extend(failed.refusals)
            found.ignored.extend(failed.ignored)
        elif result != (True,):
            message = _message(validation, messages[index] if messages else None)
            found.refusals.append(Refusal(index, message, validation.reason, is_error=False))
    return _with_annotations(rules, unfiltered, allowance, found) if rules.audit_annotations else found


def _message(validation: Validation, result: Result) -> str:
    text = ""
    if isinstance(result, tuple) and isinstance(result[0], str):
        text = stripped(result[0], _SPACE)
        if len(text) > MAX_MESSAGE_BYTES or len(text.encode("utf-8", "surrogatepass")) > MAX_MESSAGE_BYTES:
            text = ""
        if "\n" in text:
            text = ""
    plain = validation.message.strip(_SPACE)
    return text or plain or f"failed expression: {validation.expression.text.strip(_SPACE)}"


def _with_annotations(rules: Rules, values: Values, allowance: Allowance, found: Evaluated) -> Evaluated:
    expressions = [each.expression for each in rules.audit_annotations]
    try:
        results, _ = evaluate_all(expressions, rules.variables, values, POLICY_LIMIT, allowance)
    except OutOfBudgetError as error:
        # As in the API server, this replaces the results of the validations.
        return failure(rules, str(error))
    for annotation, result in zip(rules.audit_annotations, results, strict=True):
        assert result is not None
        if isinstance(result, EvaluationError):
            if rules.failure_policy == "Ignore":
                found.ignored.append(str(result))
            else:
                found.annotations.append(Annotation(annotation.key, "", str(result)))
        elif isinstance(result[0], str):
            if value := stripped(result[0], _SPACE):
                found.annotations.append(Annotation(annotation.key, value, ""))
        elif result[0] is not None:
            problem = (
                f"valueExpression '{annotation.expression.text}' resulted in unsupported return type: "
                f"{type_name(result[0])}. Return type must be either string or null."
            )
            found.annotations.append(Annotation(annotation.key, "", problem))
    return found
