"""matchConditions as the evaluation of a review uses them.

This module has the types only. ``gateway.conditions`` evaluates the expressions and resolves what a result
needs first: a decision of the API server's authorizer, or an evaluation that is too long for the event loop.

Source: kubernetes/apiserver plugin/webhook/matchconditions/matcher.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Protocol

from gateway.core.verdict import Allowed, Denied, Failed, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gateway.core.namespace import Namespace

    Json = dict[str, object]


@dataclass(frozen=True, slots=True)
class AccessCheck:
    """A check of the API server's authorizer. Equal checks of a review are sent once."""

    spec: bytes
    """The spec of a SubjectAccessReview (authorization.k8s.io/v1): compact JSON with sorted keys."""


@dataclass(frozen=True, slots=True)
class AccessDecision:
    """The authorizer's decision on an AccessCheck."""

    allowed: bool = False
    reason: str = ""
    error: str = ""
    """Why there is no decision; empty if there is one."""


class ConditionInput:
    """The input of conditions: the request, and the object as it is at one point of the evaluation."""

    __slots__ = (
        "document",
        "namespace",
        "object",
        "old_object",
        "prepared",
        "prepared_for_policies",
        "request",
    )

    def __init__(self, document: Json, current: Json | None, old: Json | None) -> None:
        self.document = document
        """The parsed AdmissionRequest. Its ``object`` is the original one; conditions do not read it."""
        self.object = current
        """Null on DELETE."""
        self.old_object = old
        """Null on CREATE."""
        self.prepared: object | None = None
        """The variables of expressions, which the first webhook with conditions makes for all."""
        self.prepared_for_policies: object | None = None
        """Likewise, of policies."""
        self.request: object | None = None
        """The AdmissionRequest, for policies."""
        self.namespace: Namespace | Failed | None = None
        """The request's namespace; None if there is none, Failed if the look-up failed."""


@dataclass(frozen=True, slots=True)
class Excluded:
    """A condition is false: the webhook does not match the request."""

    condition: str
    """The name of the first condition that is false."""
    errors: int = 0
    """The number of conditions before it that ended in an error, which a false condition overrides."""


@dataclass(frozen=True, slots=True)
class Unresolved:
    """The conditions have no result yet."""

    checks: tuple[AccessCheck, ...] = ()
    """The decisions that are missing."""
    evaluation: LongEvaluation | None = None
    """The evaluation that has to run in another thread."""


class LongEvaluation:
    """An evaluation of a webhook's conditions that is too long for the event loop."""

    __slots__ = ("_evaluate", "conditions")

    def __init__(self, conditions: MatchConditions, evaluate: Callable[[], ConditionResult]) -> None:
        self.conditions = conditions
        """The conditions of one webhook. Long evaluations of different webhooks take turns."""
        self._evaluate = evaluate

    def __call__(self) -> ConditionResult:
        """Return the result, which may take some seconds."""
        return self._evaluate()


class MatchConditions(Protocol):
    """The compiled conditions of one webhook."""

    @property
    def expressions(self) -> Sequence[tuple[str, str]]:
        """Name and expression of each condition, in their order."""

    @property
    def needs_authorizer(self) -> bool:
        """Whether any of them uses ``authorizer``."""

    def evaluate(
        self, condition_input: ConditionInput, decisions: Mapping[AccessCheck, AccessDecision]
    ) -> ConditionResult:
        """Return None if all conditions are true, otherwise why the webhook is not called, or not yet.

        Failed if they cannot be evaluated. *decisions* are those of the authorizer so far.
        """


@dataclass(frozen=True, slots=True)
class Decided:
    """A policy without a backend has decided: its expressions are the policy."""

    verdict: Verdict | None
    """None: the policy does not match the request."""
    reported: Allowed | Denied | None = None
    """The verdict that has the warnings and audit annotations."""
    elapsed_s: float = 0.0
    """Duration of the evaluation."""


ConditionResult = Excluded | Failed | Unresolved | Decided | None
ConditionTask = AccessCheck | LongEvaluation
"""A task that has to be completed before conditions have a result."""
