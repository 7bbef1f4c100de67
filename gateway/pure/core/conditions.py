"""matchConditions as the evaluation of a review uses them, and the tasks and results of all expressions.

This module has the types only. ``gateway.pure.conditions`` evaluates the expressions and resolves what a
result needs first: a decision of the API server's authorizer, a parameter of a policy, or an evaluation that
is too long for the event loop.

Source: kubernetes/apiserver plugin/webhook/matchconditions/matcher.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias

from gateway.pure.core.verdict import Allowed, Denied, Failed, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Hashable, Mapping, Sequence

    Json = dict[str, Any]


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
    denied: bool = False
    """Whether it is denied, whatever further authorizers would decide."""
    evaluation_error: str = ""
    """What went wrong in the authorizer, which decided all the same."""


Decisions: TypeAlias = "Mapping[AccessCheck, AccessDecision]"


@dataclass(frozen=True, slots=True)
class ParamLookup:
    """A look-up of parameters of a policy in the cluster. Equal look-ups of a review are made once."""

    api_version: str
    kind: str
    namespace: str
    """Empty for a kind that is not namespaced, and for all objects."""
    name: str
    """If it is empty, no object is looked up, but all of the kind have to be read first."""


@dataclass(frozen=True, slots=True)
class FoundParam:
    """The result of a ParamLookup."""

    object: Json | None = None
    """None if there is no such object, or none was looked up."""
    error: str = ""
    """Why there is no result; empty if there is one."""


@dataclass(frozen=True, slots=True)
class BackendGet:
    """A request to a backend of policies. Equal ones of a review are sent once."""

    backend: str
    """The name of the backend."""
    target: str
    """Path and query, as they are sent."""
    headers: tuple[tuple[str, str], ...] = ()
    """Beside the usual ones."""


@dataclass(frozen=True, slots=True)
class BackendAnswer:
    """The answer to a BackendGet."""

    status: int = 0
    """The HTTP status."""
    body: bytes = b""
    error: str = ""
    """Why there is no answer; empty if there is one."""


BRIEF_STEPS: Final = 3_000_000
"""Steps of expressions that run on the event loop for one review, see ``gateway.pure.cel.meter``: about
thirty milliseconds. The expressions of further webhooks run beside it."""


class ConditionInput:
    """The input of conditions: the request, and the object as it is at one point of the evaluation."""

    __slots__ = ("brief_steps", "document", "has_go_types", "object", "old_object", "prepared")

    def __init__(self, document: Json, current: Json | None, old: Json | None) -> None:
        self.document = document
        """The parsed AdmissionRequest. Its ``object`` is the original one; conditions do not read it."""
        self.object = current
        """Null on DELETE."""
        self.old_object = old
        """Null on CREATE."""
        self.has_go_types = True
        """Whether values of expressions have Go types, as in Kubernetes from 1.37 on."""
        self.brief_steps: float = BRIEF_STEPS
        """Those of the review that are left; they decide where expressions run, not what they result in."""
        self.prepared: object | None = None
        """The variables of expressions, which the first webhook with conditions makes for all."""


@dataclass(frozen=True, slots=True)
class Excluded:
    """A condition is false, or a policy has an exception: the webhook or policy does not match the request.

    Policies of the API server do not say so: they are :class:`NotMatched`.
    """

    condition: str
    """The name of the first condition that is false, or of the exception. Empty if conditions of a policy
    have no value, and its failurePolicy is Ignore."""
    errors: int = 0
    """The number of conditions before it that ended in an error, which a false condition overrides."""
    is_exception: bool = False
    """Whether *condition* is the name of an exception, which is a document of the policy's engine."""


@dataclass(frozen=True, slots=True)
class Unresolved:
    """The conditions have no result yet."""

    checks: tuple[AccessCheck, ...] = ()
    """The decisions that are missing."""
    evaluation: LongEvaluation | None = None
    """The evaluation that has to run in another thread."""
    lookups: tuple[ParamLookup, ...] = ()
    """The parameters that are missing."""
    gets: tuple[BackendGet, ...] = ()
    """The answers of backends that are missing."""


class LongEvaluation:
    """An evaluation of a webhook's conditions, or of a policy, that is too long for the event loop."""

    __slots__ = ("_evaluate", "owner")

    def __init__(self, owner: Hashable, evaluate: Callable[[], Evaluated]) -> None:
        self.owner = owner
        """The conditions or the policy. Long evaluations of different owners take turns."""
        self._evaluate = evaluate

    def __call__(self) -> Evaluated:
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
class NotMatched:
    """A webhook or policy does not match the request, or is not due in this round."""


NOT_MATCHED: Final = NotMatched()


@dataclass(frozen=True, slots=True)
class PolicyResult:
    """The decision of a policy, which matches the request."""

    verdict: Verdict
    reported: Allowed | Denied | None = None
    """The verdict that has the warnings and audit annotations."""
    elapsed_s: float = 0.0
    """Duration of the evaluation."""
    changed: Json | None = None
    """The object as the policy leaves it. None if it is unchanged."""
    patch: bytes = b""
    """The JSON Patch that leads to it."""
    invoked: Collection[object] = ()
    """The bindings and parameters that are invoked again after a change: those with IfNeeded."""


ConditionResult = Excluded | Failed | Unresolved | None
"""The result of conditions. None if all are true."""
PolicyAnswer = PolicyResult | NotMatched | Excluded | Failed | Unresolved
"""The result of a policy. Failed: its evaluation came to no end."""
Evaluated = ConditionResult | PolicyAnswer
ConditionTask = AccessCheck | ParamLookup | BackendGet | LongEvaluation
"""A task that has to be completed before conditions or a policy have a result."""
TaskResult = AccessDecision | FoundParam | BackendAnswer | Evaluated
"""The result of a task of each kind, in their order."""
