"""What validating and mutating policies share: a policy with its bindings, and its way through one request.

Source: k8s.io/apiserver pkg/admission/plugin/policy/generic/policy_dispatcher.go, matching/matching.go.
"""

from __future__ import annotations

import time
from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any, ClassVar, Final, Generic

from gateway.pure.admission_policies.bindings import Bindings, included
from gateway.pure.admission_policies.evaluation import Allowance, OutOfBudgetError, TooLongError, evaluate_all
from gateway.pure.admission_policies.model import B, P
from gateway.pure.admission_policies.objects import ObjectReads
from gateway.pure.admission_policies.params import (
    FixedParams,
    ParamsError,
    UnresolvedError,
    collect,
    unknown_kind,
)
from gateway.pure.admission_policies.shared_values import Prepared, namespace_of, prepared_for
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.meter import HOOK_LIMIT, begin
from gateway.pure.conditions.match_conditions import aggregated
from gateway.pure.core.conditions import LongEvaluation, Unresolved
from gateway.pure.core.verdict import Details, Failed
from gateway.pure.core.webhook import PolicyRef, Webhook
from gateway.pure.openapi.go_types import in_conditions

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gateway.pure.cel.go_types import GoTypes
    from gateway.pure.core.conditions import Decisions, ParamLookup, PolicyAnswer
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.policy import Params, PolicyInput
    from gateway.pure.core.review import AdmissionRequest
    from gateway.pure.core.webhook import Phase, Reads, ReinvocationPolicy

    Json = dict[str, Any]


TURN_CHARS: Final = 10_000
"""Characters of expressions whose programs are built before other policies have their turn: usually some
tens of milliseconds. At least one expression is built."""
_ALL: Final = float("inf")
_NO_PARAM: Final = (None,)
"""The parameters of a binding that uses none."""


class PolicyInForce(Generic[P, B]):
    """A policy with its bindings, sorted by name: an ``AdmissionPolicy``."""

    kind: str
    """``ValidatingAdmissionPolicy`` or ``MutatingAdmissionPolicy``."""
    run_type: ClassVar[type[PolicyRun[Any, Any]]]
    """The way of a policy of this class through one request."""
    has_long_warnings: ClassVar[bool] = False
    """See ``PolicyRef``."""
    namespace = ""
    """The only one whose requests it is for. Empty: it is for all requests."""
    further_reads: Reads = ()
    """What is read from the cluster besides parameters and what expressions read."""

    def __init__(self, policy: P, bindings: Sequence[B], params: FixedParams, refusal: str = "") -> None:
        """*params* are the parameters in files; kinds that they lack are taken from the cluster.

        With a *refusal*, the reason why the policy cannot be evaluated, its failurePolicy decides.
        """
        self.policy: P = policy
        self.refusal = refusal
        self._bindings: Bindings[B] = Bindings(bindings)
        self._params = params
        kind = policy.param_kind
        self.cluster_kind = (
            (kind.api_version, kind.kind)
            if kind is not None
            and not refusal
            and params.of(kind) is None
            and any(each.param_ref for each in bindings)
            else None
        )
        """apiVersion and kind of the parameters that are taken from the cluster. None if none are."""
        self.param_paths = policy.param_paths(bindings)
        """The parts of the parameters that are read."""
        self.objects = self._object_reads(params)
        """What expressions read of other objects."""
        match = policy.match
        self.has_narrow_rules = bool(match.excluded) or any(each.names for each in match.named_rules)
        """Whether more decides than the rules, which the entry has."""
        self._needs_namespace = policy.needs_namespace
        self._may_fail = bool(refusal) or self.cluster_kind is not None
        """Whether the policy may fail without a binding that matches."""
        self._uses_params = kind is not None and any(each.param_ref is not None for each in bindings)
        self.is_built = policy.is_built
        """Whether the programs of all expressions are built. Until then, :meth:`evaluate` has them built."""

    def _object_reads(self, params: FixedParams) -> ObjectReads:
        """Return what expressions read of other objects than parameters; *params* are those in files."""
        return ObjectReads(self.policy.object_reads(), params)

    @property
    def chars(self) -> int:
        """The characters of all expressions: a thousand take some milliseconds to build."""
        return sum(len(each.text) for each in self.policy.expressions)

    def build(self, chars: float = _ALL) -> None:
        """Build programs that are missing, of expressions of so many *chars*, and at least one."""
        for expression in self.policy.expressions:
            if not expression.is_built:
                if chars <= 0:
                    return
                expression.build()
                chars -= len(expression.text)
        self.policy.build()
        self.is_built = True

    def as_entry(
        self,
        phase: Phase,
        *,
        reinvocation_policy: ReinvocationPolicy = "Never",
        merged_versions: frozenset[tuple[str, str]] = frozenset(),
        checks_authors: bool = False,
    ) -> Webhook:
        """Return the policy as an entry of *phase*."""
        policy = self.policy
        match = policy.match
        return Webhook(
            phase=phase,
            configuration=policy.name,
            name=policy.name,
            client=PolicyRef(
                self.kind,
                self,
                self.reads,
                self.objects.unlisted,
                merged_versions,
                checks_authors,
                has_long_warnings=self.has_long_warnings,
                wrong_calls=self.objects.wrong_calls,
            ),
            rules=tuple(rule for named in match.named_rules for rule in named.rules),
            namespace_selector=match.namespace_selector,
            object_selector=match.object_selector,
            failure_policy=policy.rules.failure_policy,
            match_policy=match.match_policy,
            reinvocation_policy=reinvocation_policy,
            help=policy.help,
            namespace=self.namespace,
            document=self._document,
        )

    @property
    def _document(self) -> str:
        """``KIND/NAME`` of the only binding, or else of the policy."""
        (name, *others) = (each.name for each in self.bindings)
        return f"{self.kind}/{self.policy.name}" if others or not name else f"{self.kind}Binding/{name}"

    @property
    def reads(self) -> Reads:
        """The kinds that are read from the cluster, and which parts of them."""
        return (*self.objects.with_params(self.cluster_kind, self.param_paths), *self.further_reads)

    @property
    def bindings(self) -> Sequence[B]:
        """All bindings, by name."""
        return self._bindings.all

    @property
    def can_allow_fast(self) -> bool:
        """See ``AdmissionPolicy``."""
        return False

    @property
    def has_namespace_selectors(self) -> bool:
        """Whether the labels of a namespace may leave no binding that matches."""
        return not self._may_fail and self._bindings.has_namespace_selectors

    def may_match_rules(self, request: AdmissionRequest) -> bool:
        """Whether any binding matches requests of the shape of *request*."""
        return self._may_fail or self._bindings.may_match_rules(request)

    def excludes(self, request: AdmissionRequest) -> bool:
        """See ``AdmissionPolicy``."""
        match = self.policy.match
        return self.has_narrow_rules and not included(match, request)

    def may_match_namespace(self, labels: Mapping[str, str]) -> bool:
        """Whether the namespaceSelector of any binding matches *labels*."""
        return self._may_fail or self._bindings.may_match_namespace(labels)

    def allow_fast(self, policy_input: PolicyInput) -> float | None:
        """See ``AdmissionPolicy``."""
        raise AssertionError("the policy cannot allow requests fast")

    def matching(self, policy_input: PolicyInput) -> Iterator[tuple[B, Failed | None]]:
        """Yield the bindings that match, or whose match cannot be found out, with why."""
        matched = policy_input.matched
        current = policy_input.conditions.object if matched is None else matched.outline
        return self._bindings.matching(policy_input.request, current, policy_input.namespace)

    def namespace_of(self, policy_input: PolicyInput) -> Namespace | Failed | None:
        """Return the namespace of the request for ``namespaceObject``, see :func:`namespace_of`.

        None also if it is not known, and no expression uses it.
        """
        found = namespace_of(policy_input)
        return None if isinstance(found, Failed) and not self._needs_namespace else found

    @property
    def expressions(self) -> Sequence[tuple[str, str]]:
        """The documents that make the decision, for digests."""
        return (
            (self.policy.name, self.policy.document.decode()),
            *((each.name, each.document.decode()) for each in self.bindings),
            ("params", self._params.digest),
        )

    def evaluate(self, policy_input: PolicyInput, decisions: Decisions) -> PolicyAnswer:
        """Return the decision, or the tasks that it needs first; see ``AdmissionPolicy``."""
        if not self.is_built and not self.excludes(policy_input.request):
            return self._building(policy_input, dict(decisions))
        if policy_input.conditions.brief_steps > 0:
            allowance = Allowance(is_brief=True)
            try:
                return self.run_type(self, policy_input, decisions, allowance).result()
            except TooLongError:
                pass
            finally:
                policy_input.conditions.brief_steps -= allowance.work()
        run = self.run_type(self, policy_input, dict(decisions), Allowance(is_brief=False))
        return Unresolved(evaluation=LongEvaluation(self, run.result))

    def _building(self, policy_input: PolicyInput, decisions: Decisions) -> Unresolved:
        """Return the task to build a part of the policy beside the event loop; the last decides, too.

        Between the parts, policies of others take their turns.
        """

        def evaluate() -> PolicyAnswer:
            self.build(TURN_CHARS)
            if not self.is_built:
                return self._building(policy_input, decisions)
            return self.run_type(self, policy_input, decisions, Allowance(is_brief=False)).result()

        return Unresolved(evaluation=LongEvaluation(self, evaluate))

    def params_of(self, binding: B, policy_input: PolicyInput, namespace: str) -> Sequence[Json | None]:
        """Return the parameters of *binding* for a request in *namespace*.

        Raises:
            ParamsError: there are none.
            UnreadParamsError: they have to be looked up first.
        """
        kind, found = self.policy.param_kind, policy_input.found_params
        source = self._source(policy_input)
        return collect(kind, binding.param_ref, source, namespace, found, self.param_paths)

    def refusal_for(self, policy_input: PolicyInput) -> str:
        """Return why the policy cannot be evaluated with any binding; empty if it can."""
        kind = self.policy.param_kind
        if self.refusal or kind is None or self.cluster_kind is None:
            return self.refusal
        try:
            objects = self._source(policy_input).of(kind, self.param_paths)
        except UnresolvedError:
            return ""
        return unknown_kind(kind) if objects is None else ""

    def _source(self, policy_input: PolicyInput) -> Params:
        cluster, kind = policy_input.params, self.policy.param_kind
        if isinstance(cluster, FixedParams):
            # Objects of a test are in place of those of files.
            return cluster if kind is not None and cluster.of(kind) is not None else self._params
        return self._params if cluster is None or self.cluster_kind is None else cluster


class PolicyRun(ABC, Generic[P, B]):
    """A policy on its way through one request."""

    _types_of_conditions: GoTypes = staticmethod(in_conditions)

    def __init__(
        self,
        bound: PolicyInForce[P, B],
        policy_input: PolicyInput,
        decisions: Decisions,
        allowance: Allowance,
    ) -> None:
        self._bound: PolicyInForce[P, B] = bound
        self._policy: P = bound.policy
        self._input = policy_input
        self._seen = policy_input.conditions
        self._request = policy_input.request
        self._allowance = allowance
        if allowance.is_brief:
            self._prepared = prepared_for(policy_input, decisions)
        else:
            # Another thread must not share what the event loop uses.
            self._prepared = Prepared(self._seen.document)
            self._prepared.known.decisions = decisions
        self._known = self._prepared.known
        self._objects = bound.objects.within(policy_input, decisions) if bound.objects else None
        self._go_types = self._types_of_conditions if self._seen.has_go_types else None
        """The Go types of the values of matchConditions. None if they have none."""
        self._begin = 0.0
        self._lookups: dict[ParamLookup, None] = {}

    def result(self) -> PolicyAnswer:
        """Return the decision of all bindings, or what has to be looked up first."""
        self._begin = time.perf_counter()
        begin()
        try:
            return self._result()
        except UnresolvedError as error:
            # An expression or a filter needs objects or decisions that are not known yet.
            return error.unresolved

    @abstractmethod
    def _result(self) -> PolicyAnswer:
        """Return the decision of all bindings."""

    def _misconfigured(self, binding: B | None, cause: str) -> None:
        """Note an error of the configuration of *binding*, or of the policy if that is None.

        A policy of another engine has none: its binding matches everything, and has no parameters.
        """
        raise AssertionError(f"{self._policy.name}, {binding}: {cause}")

    def _details(self) -> Details:
        """Return what a denial says of the object. Source: pkg/admission/errors.go (extractResourceName)."""
        if self._input.workload is not None:
            return self._input.workload.details
        group, _, resource = self._request.request_resource
        metadata = (self._seen.object or {}).get("metadata")
        named: Json = metadata if isinstance(metadata, dict) else {}
        name = self._request.name or named.get("name") or named.get("generateName") or "Unknown"
        return Details(str(name), group, resource)

    @property
    def _denied(self) -> str:
        """What a denial refuses, for messages."""
        workload = self._input.workload
        return "request" if workload is None else f"the Pods of {workload.shown}"

    def _elapsed_s(self) -> float:
        return time.perf_counter() - self._begin

    def _matching(self) -> Iterator[tuple[B, Sequence[Json | None]]]:
        """Yield the bindings that match with their parameters. Errors are noted, and give none."""
        for binding, unmatched in self._bound.matching(self._input):
            params: Sequence[Json | None] = _NO_PARAM
            if unmatched is not None:
                params = ()
                self._misconfigured(binding, unmatched.cause)
            elif binding.param_ref is not None:
                try:
                    params = self._bound.params_of(binding, self._input, self._request.namespace)
                except ParamsError as error:
                    params = ()
                    self._misconfigured(binding, str(error))
                except UnresolvedError as error:
                    params = ()
                    self._lookups.update(dict.fromkeys(error.unresolved.lookups))
            yield binding, params

    def _unresolved(self) -> Unresolved | None:
        """Return what has to be known first."""
        if self._known.missing or self._lookups:
            return Unresolved(tuple(self._known.missing), lookups=tuple(self._lookups))
        return None

    def _unmatched(self, param: Json | None) -> str | None:
        """Return None if all matchConditions are true, why they cannot be evaluated, or an empty text."""
        return self._unmatched_by(self._seen.object, self._seen.old_object, param)

    def _unmatched_by(self, current: Json | None, old: Json | None, param: Json | None = None) -> str | None:
        """Return as :meth:`_unmatched` for other objects."""
        prepared = self._prepared
        request, authorizer, check = prepared.of_conditions, prepared.authorizer, prepared.check
        values = (current, old, request, None, authorizer, check, param, self._objects, self._go_types)
        expressions = [each.compiled for each in self._policy.conditions]
        try:
            results, _ = evaluate_all(expressions, {}, values, HOOK_LIMIT, self._allowance)
        except OutOfBudgetError as error:
            return str(error)
        if (False,) in results:
            return ""
        errors = [str(each) for each in results if isinstance(each, EvaluationError)]
        return aggregated(errors) if errors else None
