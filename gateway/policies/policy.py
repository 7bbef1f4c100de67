"""A ValidatingAdmissionPolicy with its bindings, applied to a request.

Source: k8s.io/apiserver pkg/admission/plugin/policy/validating/dispatcher.go, matching/matching.go.
"""

from __future__ import annotations

import time
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from gateway.cel.errors import EvaluationError
from gateway.cel.meter import HOOK_LIMIT
from gateway.conditions.match_conditions import RequestVariables, aggregated
from gateway.core.conditions import Decided, LongEvaluation, Unresolved
from gateway.core.matching import selectors_match
from gateway.core.review import is_namespace
from gateway.core.rules import rules_match
from gateway.core.verdict import ALLOWED, Allowed, Cause, Denied, Failed, FailureReason
from gateway.core.webhook import PolicyRef, Webhook
from gateway.policies.evaluation import Allowance, OutOfBudgetError, TooLongError, evaluate_all
from gateway.policies.params import ParamsError, collect
from gateway.policies.validating import Evaluated, Refusal, evaluate, failure

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.core.conditions import AccessCheck, AccessDecision, ConditionInput, ConditionResult
    from gateway.core.namespace import Namespace
    from gateway.core.review import AdmissionRequest
    from gateway.policies.model import MatchResources, NamedRule, ValidatingBinding, ValidatingPolicy
    from gateway.policies.params import Params
    from gateway.policies.validating import Values

    Json = dict[str, Any]

MAX_ANNOTATION_BYTES: Final = 10 * 1024
"""Of the value of an audit annotation; the rest is cut."""
MAX_FAILURES: Final = 50
"""Failures of validations in an audit annotation."""
FAILURES_KEY: Final = "validation_failure"
_CODES: Final = {"Forbidden": 403, "Unauthorized": 401, "RequestEntityTooLarge": 413, "Invalid": 422}
_NAMESPACE_METADATA: Final = (
    *("name", "generateName", "namespace", "uid", "resourceVersion", "generation", "creationTimestamp"),
    *("deletionTimestamp", "deletionGracePeriodSeconds", "labels", "annotations", "finalizers"),
)


def as_webhook(policy: ValidatingPolicy, bindings: Sequence[ValidatingBinding], params: Params) -> Webhook:
    """Return *policy* with its *bindings* as an entry of the validating phase."""
    match = policy.match
    return Webhook(
        phase="validate",
        configuration=policy.name,
        name=policy.name,
        client=PolicyRef("ValidatingAdmissionPolicy"),
        rules=tuple(rule for named in match.named_rules for rule in named.rules),
        namespace_selector=match.namespace_selector,
        object_selector=match.object_selector,
        failure_policy=policy.rules.failure_policy,
        match_policy=match.match_policy,
        match_conditions=BoundPolicy(policy, bindings, params),
    )


class BoundPolicy:
    """A policy with its bindings, sorted by name: it decides on requests as ``MatchConditions`` do."""

    def __init__(
        self, policy: ValidatingPolicy, bindings: Sequence[ValidatingBinding], params: Params
    ) -> None:
        self.policy = policy
        self.bindings = tuple(sorted(bindings, key=lambda each: each.name))
        self._params = params
        match = policy.match
        self.has_narrow_rules = bool(match.excluded) or any(each.names for each in match.named_rules)
        """Whether more decides than the rules, which the entry has."""
        is_plain = (
            not self.has_narrow_rules
            and not policy.conditions
            and not policy.rules.audit_annotations
            and any(each.match is None for each in bindings)
            and (policy.param_kind is None or all(each.param_ref is None for each in bindings))
        )
        self._all_true = policy.rules.all_true if is_plain else None
        """Decides the usual case alone: every request matches, and nothing but the validations counts."""

    @property
    def needs_authorizer(self) -> bool:
        """Whether any expression uses ``authorizer``."""
        return self.policy.needs_authorizer

    @property
    def expressions(self) -> Sequence[tuple[str, str]]:
        """The documents that make the decision, for digests."""
        return (
            (self.policy.name, self.policy.document.decode()),
            *((each.name, each.document.decode()) for each in self.bindings),
            ("params", self._params.digest),
        )

    def evaluate(
        self, condition_input: ConditionInput, decisions: Mapping[AccessCheck, AccessDecision]
    ) -> ConditionResult:
        """Return the decision, or the tasks that it needs first; see ``MatchConditions``."""
        if self._all_true is not None:
            begin = time.perf_counter()
            prepared = _prepared(condition_input, decisions)
            namespace = _namespace(condition_input, cast("AdmissionRequest", condition_input.request))
            if not isinstance(namespace, Failed):
                values = prepared.values(condition_input, namespace)
                variables = self.policy.rules.variables
                is_allowed = self._all_true.holds(variables, values, Allowance(is_brief=True))
                if is_allowed and not prepared.known.missing:
                    return Decided(ALLOWED, ALLOWED, time.perf_counter() - begin)
        try:
            return self._timed(condition_input, decisions, is_brief=True)
        except TooLongError:
            known = dict(decisions)
            return Unresolved(
                evaluation=LongEvaluation(self, lambda: self._timed(condition_input, known, is_brief=False))
            )

    def _timed(
        self,
        condition_input: ConditionInput,
        decisions: Mapping[AccessCheck, AccessDecision],
        *,
        is_brief: bool,
    ) -> ConditionResult:
        begin = time.perf_counter()
        result = _Application(self, condition_input, decisions, Allowance(is_brief=is_brief)).result()
        if isinstance(result, Decided) and result.verdict is not None:
            return Decided(result.verdict, result.reported, time.perf_counter() - begin)
        return result

    def params_of(self, binding: ValidatingBinding, namespace: str) -> Sequence[Json | None]:
        """Return the parameters of *binding* for a request in *namespace*.

        Raises:
            ParamsError: there are none.
        """
        return collect(self.policy.param_kind, binding.param_ref, self._params, namespace)


class _Prepared:
    """The values of variables that all policies of a request share."""

    __slots__ = ("_values", "authorizer", "check", "known", "of_conditions", "request")

    def __init__(self, document: Json) -> None:
        self._values: Values | None = None
        of_request = RequestVariables(document)
        self.known, self.authorizer, self.check = (
            of_request.decisions,
            of_request.authorizer,
            of_request.check,
        )
        self.of_conditions = of_request.request
        self.request: Json = {**of_request.request, "resource": document.get("resource")}

    def values(self, condition_input: ConditionInput, namespace: Namespace | None) -> Values:
        """Return the values of ``GLOBALS`` without ``variables`` for a policy without a parameter."""
        if self._values is None:
            exposed = None if namespace is None else _namespace_values(namespace.json)[0]
            objects = (condition_input.object, condition_input.old_object)
            self._values = (*objects, self.request, exposed, self.authorizer, self.check, None)
        return self._values


def _prepared(condition_input: ConditionInput, decisions: Mapping[AccessCheck, AccessDecision]) -> _Prepared:
    """Return the values that all policies share on the event loop, with the *decisions* so far."""
    prepared = condition_input.prepared_for_policies
    if prepared is None:
        prepared = condition_input.prepared_for_policies = _Prepared(condition_input.document)
    assert isinstance(prepared, _Prepared)
    prepared.known.decisions, prepared.known.missing = decisions, {}
    return prepared


def _namespace(condition_input: ConditionInput, request: AdmissionRequest) -> Namespace | Failed | None:
    """Return the namespace of *request*; None for a cluster-scoped object, and for a Namespace."""
    if request.namespace == "" or is_namespace(request):
        return None
    found = condition_input.namespace
    if found is None:
        return Failed(FailureReason.NAMESPACE, f'namespace "{request.namespace}" not found', 404)
    return found


class _Application:
    """A policy on its way through one request."""

    def __init__(
        self,
        bound: BoundPolicy,
        condition_input: ConditionInput,
        decisions: Mapping[AccessCheck, AccessDecision],
        allowance: Allowance,
    ) -> None:
        self._bound = bound
        self._policy = bound.policy
        self._input = condition_input
        self._request = cast("AdmissionRequest", condition_input.request)
        self._allowance = allowance
        if allowance.is_brief:
            self._prepared = _prepared(condition_input, decisions)
        else:
            # Another thread must not share what the event loop uses.
            self._prepared = _Prepared(condition_input.document)
            self._prepared.known.decisions = decisions
        self._known = self._prepared.known
        self._denials: list[tuple[str, str]] = []
        """Message and reason."""
        self._warnings: list[str] = []
        self._failures: list[Json] = []
        self._annotations: dict[str, list[str]] = {}
        self._ignored: list[str] = []

    def result(self) -> ConditionResult:
        """Return the decision of all bindings."""
        if self._bound.has_narrow_rules and not _rules_match(self._policy.match, self._request):
            return Decided(None)
        is_matched = False
        for binding in self._bound.bindings:
            matched = self._binding_matches(binding)
            if matched is False:
                continue
            is_matched = True
            if isinstance(matched, Failed):
                self._misconfigured(binding, matched.cause)
                continue
            try:
                params = self._bound.params_of(binding, self._request.namespace)
            except ParamsError as error:
                self._misconfigured(binding, str(error))
                continue
            namespace = _namespace(self._input, self._request)
            if isinstance(namespace, Failed):
                return Decided(namespace)
            for param in params:
                self._take(binding, self._evaluated(param, namespace))
        if self._known.missing:
            return Unresolved(tuple(self._known.missing))
        return Decided(*self._verdicts()) if is_matched else Decided(None)

    def _binding_matches(self, binding: ValidatingBinding) -> bool | Failed:
        match = binding.match
        if match is None:
            return True
        selected = selectors_match(match, self._request, self._input.object, self._input.namespace)
        if selected is False or not _rules_match(match, self._request):
            return False
        return selected

    def _misconfigured(self, binding: ValidatingBinding, cause: str) -> None:
        """Note an error of the configuration, which validationActions do not soften."""
        if self._policy.rules.failure_policy == "Ignore":
            self._ignored.append(f"binding '{binding.name}': {cause}")
        else:
            self._deny(binding, f"failed to configure binding: {cause}", "")

    def _deny(self, binding: ValidatingBinding, message: str, reason: str) -> None:
        text = (
            f"ValidatingAdmissionPolicy '{self._policy.name}' with binding '{binding.name}' denied request: "
            f"{message}"
        )
        self._denials.append((text, reason or "Invalid"))

    def _evaluated(self, param: Json | None, namespace: Namespace | None) -> Evaluated:
        """Return the result for one parameter."""
        rules, prepared = self._policy.rules, self._prepared
        objects = (self._input.object, self._input.old_object)
        authorizer, check, request = prepared.authorizer, prepared.check, prepared.request
        if self._policy.conditions:
            of_conditions = (*objects, prepared.of_conditions, None, authorizer, check, param)
            unmatched = self._conditions(of_conditions)
            if unmatched is not None:
                return unmatched
        filtered, whole = (None, None) if namespace is None else _namespace_values(namespace.json)
        return evaluate(
            rules,
            (*objects, request, filtered, authorizer, check, param),
            (*objects, request, filtered, None, None, param),
            (*objects, request, whole, None, None, param),
            self._allowance,
        )

    def _conditions(self, values: Values) -> Evaluated | None:
        """Return None if all matchConditions are true."""
        rules = self._policy.rules
        expressions = [each.compiled for each in self._policy.conditions]
        try:
            results, _ = evaluate_all(expressions, {}, values, HOOK_LIMIT, self._allowance)
        except OutOfBudgetError as error:
            return failure(rules, str(error))
        errors = [str(each) for each in results if isinstance(each, EvaluationError)]
        if (False,) in results:
            return Evaluated([], [], [])
        return failure(rules, aggregated(errors)) if errors else None

    def _take(self, binding: ValidatingBinding, found: Evaluated) -> None:
        for refusal in found.refusals:
            self._refuse(binding, refusal)
        for annotation in found.annotations:
            if annotation.error:
                self._deny(binding, annotation.error, "")
                continue
            cut = annotation.value.encode("utf-8", "surrogatepass")[:MAX_ANNOTATION_BYTES]
            values = self._annotations.setdefault(annotation.key, [])
            if (value := cut.decode("utf-8", "replace")) not in values:
                values.append(value)
        self._ignored += found.ignored

    def _refuse(self, binding: ValidatingBinding, refusal: Refusal) -> None:
        for action in binding.actions:
            if action == "Deny":
                self._deny(binding, refusal.message, refusal.reason)
            elif action == "Warn":
                self._warnings.append(
                    f"Validation failed for ValidatingAdmissionPolicy '{self._policy.name}' with binding "
                    f"'{binding.name}': {refusal.message}"
                )
            else:
                self._failures.append(
                    {
                        "message": refusal.message,
                        "policy": self._policy.name,
                        "binding": binding.name,
                        "expressionIndex": refusal.number,
                        "validationActions": list(binding.actions),
                    }
                )

    def _verdicts(self) -> tuple[Allowed | Denied | Failed, Allowed | Denied | None]:
        """Return the effective verdict, and the one that has the warnings and annotations."""
        annotations = {key: ", ".join(values) for key, values in self._annotations.items()}
        if self._failures:
            annotations[FAILURES_KEY] = orjson.dumps(self._failures[:MAX_FAILURES]).decode()
        found = tuple(sorted(annotations.items()))
        if self._denials:
            message = "\n".join(text for text, _ in self._denials)
            causes = tuple(Cause(message=text) for text, _ in self._denials)
            reason = self._denials[0][1]
            denied = Denied(_CODES[reason], reason, message, causes, tuple(self._warnings), found)
            return denied, denied
        allowed = Allowed(b"", tuple(self._warnings), found) if found or self._warnings else ALLOWED
        if self._ignored:
            return Failed(FailureReason.POLICY, "; ".join(self._ignored), 500), allowed
        return allowed, allowed


def _rules_match(match: MatchResources, request: AdmissionRequest) -> bool:
    """Whether the rules of *match* include *request*, and its exclusions do not."""
    if any(_rule_matches(each, request) for each in match.excluded):
        return False
    return not match.named_rules or any(_rule_matches(each, request) for each in match.named_rules)


def _rule_matches(named: NamedRule, request: AdmissionRequest) -> bool:
    return (not named.names or request.name in named.names) and rules_match(named, request)


@lru_cache(maxsize=1024)
def _namespace_values(json: bytes) -> tuple[Json, Json]:
    """Return the values of ``namespaceObject``: the members that are exposed, and all.

    Times are texts, as in the API server, although their declared type is that of a timestamp.
    """
    whole: Json = orjson.loads(json)
    metadata = whole.get("metadata") or {}
    exposed = {key: metadata[key] for key in _NAMESPACE_METADATA if key in metadata}
    return {"metadata": exposed, "spec": whole.get("spec", {}), "status": whole.get("status", {})}, whole
