"""matchConditions as the evaluation of a review uses them.

This module has the types only. ``gateway.pure.conditions`` evaluates the expressions and resolves what a
result needs first: a decision of the API server's authorizer, or an evaluation that is too long for the event
loop.

Source: kubernetes/apiserver plugin/webhook/matchconditions/matcher.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Protocol

from gateway.pure.core.verdict import Allowed, Denied, Failed, Verdict

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence

    from gateway.pure.core.namespace import Namespace

    Json = dict[str, Any]
    AdmissionRequest = Any
    """``gateway.pure.core.review.AdmissionRequest``, of a layer above."""


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


@dataclass(frozen=True, slots=True)
class ParamLookup:
    """A look-up of parameters of a policy in the cluster. Equal look-ups of a review are made once."""

    api_version: str
    kind: str
    namespace: str
    """Empty for a kind that is not namespaced, and for all objects."""
    name: str
    """Empty: no object is looked up, but all of the kind have to be read first."""


@dataclass(frozen=True, slots=True)
class FoundParam:
    """The result of a ParamLookup."""

    object: Json | None = None
    """None: there is no such object, or none was looked up."""
    error: str = ""
    """Why there is no result; empty if there is one."""


BRIEF_STEPS: Final = 3_000_000
"""Steps of expressions that run on the event loop for one review, see ``gateway.pure.cel.meter``: about
thirty milliseconds. The expressions of further webhooks run beside it."""


class Selectable(Protocol):
    """An object at one point of the evaluation: a ``Payload``."""

    @property
    def outline(self) -> Json | None:
        """The object, with its labels at least."""


class ConditionInput:
    """The input of conditions: the request, and the object as it is at one point of the evaluation."""

    __slots__ = (
        "brief_steps",
        "document",
        "found_params",
        "has_go_types",
        "invoked",
        "matched",
        "namespace",
        "object",
        "old_object",
        "params",
        "prepared",
        "prepared_for_policies",
        "request",
        "schemas",
        "shared_by_policies",
    )

    request: AdmissionRequest
    """For policies: set where an input for them is made."""

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
        self.prepared_for_policies: object | None = None
        """Likewise, of policies."""
        self.shared_by_policies: tuple[object, ...] | None = None
        """Likewise, of policies that need neither parameters nor the authorizer."""
        self.namespace: Namespace | Failed | None = None
        """The request's namespace; None if there is none, Failed if the look-up failed."""
        self.params: object | None = None
        """The objects of the cluster from which policies take parameters; None: no cluster is followed."""
        self.schemas: object | None = None
        """The schemas of the kinds of the cluster; None: no cluster is followed."""
        self.found_params: Mapping[ParamLookup, FoundParam] = {}
        """The parameters that were looked up for this review."""
        self.matched: Selectable | None = None
        """The object with which selectors of mutating policies are matched; None: the present one."""
        self.invoked: Collection[object] | None = None
        """In the round of reinvocation: ``Decided.invoked`` of the first round; None: all may be invoked."""


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
    lookups: tuple[ParamLookup, ...] = ()
    """The parameters that are missing."""


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


class AdmissionPolicy(Protocol):
    """An admission policy with its bindings, as far as more than its conditions is known of it."""

    @property
    def is_quick(self) -> bool:
        """Whether :meth:`allowed_s` may decide."""

    @property
    def has_namespace_selectors(self) -> bool:
        """Whether the labels of a namespace may leave no binding that matches."""

    def may_match_rules(self, request: AdmissionRequest) -> bool:
        """Whether any binding matches requests of the shape of *request*."""

    def excludes(self, request: AdmissionRequest) -> bool:
        """Whether ``resourceNames`` or ``excludeResourceRules`` leave out *request*."""

    def may_match_namespace(self, labels: Mapping[str, str]) -> bool:
        """Whether the namespaceSelector of any binding matches *labels*."""

    def allowed_s(self, condition_input: ConditionInput) -> float | None:
        """Return the seconds that it took to find out that the policy matches and allows the request.

        Call it only if :meth:`may_match_rules` and, if the request is in a namespace,
        :meth:`may_match_namespace` are true. None: it would take longer, or is not so;
        ``MatchConditions.evaluate`` decides.
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
    changed: Json | None = None
    """The object as the policy leaves it; None: unchanged. ``reported`` has the patch."""
    invoked: Collection[object] = ()
    """The bindings and parameters that are invoked again after a change: those with IfNeeded."""


ConditionResult = Excluded | Failed | Unresolved | Decided | None
ConditionTask = AccessCheck | ParamLookup | LongEvaluation
"""A task that has to be completed before conditions have a result."""
TaskResult = AccessDecision | FoundParam | ConditionResult
"""The result of a task of each kind, in their order."""
