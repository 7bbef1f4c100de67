"""A ClusterPolicy or Policy of Kyverno with rules in CEL, applied to a request.

Its rules are evaluated in order, each as a ValidatingAdmissionPolicy whose errors are failures, and are
answered in one text. Where Kyverno answers several policies in one text, each has its own here.

Source: github.com/kyverno/kyverno pkg/engine/{engine,validation}.go,
pkg/engine/handlers/validation/validate_cel.go, pkg/webhooks/resource/validation/validation.go,
pkg/webhooks/utils/{block,warning}.go.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any, Final

from gateway.pure.admission_policies.evaluation import TooLongError
from gateway.pure.admission_policies.in_force import PolicyInForce, PolicyRun
from gateway.pure.admission_policies.model import ValidatingBinding, ValidatingPolicy
from gateway.pure.admission_policies.params import ParamsError, UnreadParamsError
from gateway.pure.admission_policies.shared_values import namespace_of
from gateway.pure.admission_policies.validating import evaluate
from gateway.pure.cel import meter
from gateway.pure.cel.errors import CostExceeded
from gateway.pure.core.conditions import NOT_MATCHED, Excluded, PolicyResult
from gateway.pure.core.verdict import ALLOWED, Allowed, Denied, Failed, FailureReason
from gateway.pure.core.webhook import PolicyRollout, Rollout
from gateway.pure.kyverno.cluster_autogen import rules_for
from gateway.pure.kyverno.cluster_input import Shared, namespace_for_actions
from gateway.pure.kyverno.cluster_rules import (
    NO_BINDING,
    CelRule,
    ClusterPolicy,
    RuleResult,
    unmet_precondition,
)
from gateway.pure.kyverno.go_yaml import as_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from gateway.pure.admission_policies.evaluation import Allowance
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.core.conditions import AccessCheck, AccessDecision, PolicyAnswer
    from gateway.pure.core.policy import PolicyInput
    from gateway.pure.core.review import AdmissionRequest
    from gateway.pure.core.webhook import Webhook
    from gateway.pure.kyverno.cluster_autogen import RuleVariants
    from gateway.pure.kyverno.resource_match import MatchInput

    Json = dict[str, Any]

CODE: Final = 400
"""Kyverno answers without a code, which the API server takes for this one."""
_IN_KYVERNO: Final = {
    "cannot use namespaced paramRef in policy binding that matches cluster-scoped resources": (
        "can't use namespaced paramRef to match cluster-scoped resources"
    ),
    "no params found for policy binding with `Deny` parameterNotFoundAction": "no params found",
}
"""Sentences about parameters that Kyverno has instead of those of the API server."""


class KyvernoClusterPolicy(PolicyInForce[ValidatingPolicy, ValidatingBinding]):
    """A ClusterPolicy or Policy."""

    has_long_warnings = True

    def __init__(
        self,
        kind: str,
        policy: ClusterPolicy,
        params: FixedParams,
        namespace: str = "",
        *,
        is_enforced: bool = False,
    ) -> None:
        """*namespace* is that of a Policy, whose name begins with it and a slash.

        With *is_enforced*, a policy whose rules all have the action Audit refuses requests in the gateway's
        mode Enforce.
        """
        super().__init__(policy, [NO_BINDING, *_bindings(policy)], params)
        self.kind = kind
        self.cluster_policy = policy
        self.namespace = namespace
        actions = [each.own.action for each in policy.cel_rules]
        own_rules = [each for each in policy.cel_rules if not each.is_elsewhere]
        self.is_audit = not any(each.own.action.may_enforce for each in own_rules)
        self.refuses_all = self.is_audit and (is_enforced or not policy.emits_warnings)
        """Whether rules with the action Audit refuse requests, which the mode of the entry may soften."""
        self._has_rules_elsewhere = len(own_rules) < len(policy.cel_rules)
        filters = policy.filters
        self.needs_labels = any(each.needs_labels for each in actions) or any(
            block.namespace_selector is not None for each in filters for block in each.blocks
        )
        """Whether the labels of the namespace count."""
        self.roles = policy.role_source(params)
        self.further_reads = self.roles.reads
        self._plain = {rule for rule in policy.all_rules if rule.is_plain and rule.rules.can_be_all_true}
        needs_more = self.cluster_kind is not None or self.roles.is_needed or len(policy.conditions) > 0
        self._can_allow_fast = len(self._plain) > 0 and not needs_more

    @property
    def shown_name(self) -> str:
        """The name in messages, without a namespace."""
        return self.policy.name.rpartition("/")[2]

    def webhook(self, chosen: PolicyRollout | None = None) -> Webhook:
        """Return the policy as a validating entry, as far in force as *chosen* or as its actions say."""
        own = PolicyRollout(Rollout("Audit" if self.refuses_all else "Enforce"))
        return (chosen or own).applied_to(self.as_entry("validate"))

    @property
    def expressions(self) -> Sequence[tuple[str, str]]:
        """See ``AdmissionPolicy``."""
        exceptions = {
            each.id: each.document.decode()
            for rule in self.cluster_policy.all_rules
            for each in rule.exceptions
        }
        return (*super().expressions, *exceptions.items())

    def excludes(self, request: AdmissionRequest) -> bool:
        """See ``AdmissionPolicy``."""
        return self.namespace != "" and request.namespace != self.namespace

    @property
    def can_allow_fast(self) -> bool:
        """See ``AdmissionPolicy``."""
        return self._can_allow_fast

    def allow_fast(self, policy_input: PolicyInput) -> float | None:
        """See ``AdmissionPolicy``."""
        begin = perf_counter()
        if (
            not self.is_built
            or self.excludes(policy_input.request)
            or self.unknown_namespace(policy_input) is not None
        ):
            return None
        # Filters count steps, too.
        meter.start(meter.BRIEF_LIMIT)
        try:
            is_allowed = self._allows(policy_input)
        except CostExceeded:
            return None
        return perf_counter() - begin if is_allowed else None

    def _allows(self, policy_input: PolicyInput) -> bool:
        """Whether rules are for the request, and all are true, which is found out for certain and quickly.

        Raises:
            CostExceeded: the filters of the rules take too long.
        """
        shared = policy_input.of_cluster_policies
        if shared is None:
            shared = policy_input.of_cluster_policies = Shared(policy_input)
        assert isinstance(shared, Shared)
        is_matched = False
        room: float = meter.BRIEF_LIMIT
        for rules in self.reviewed(shared.found, policy_input):
            for rule in rules_for(rules, shared.found.kind[2], self.cluster_policy.controllers):
                if not rule.matches(shared.found):
                    continue
                if rule not in self._plain:
                    return False
                is_matched = True
                assert rule.rules.all_true is not None
                cost = rule.rules.all_true.cost(rule.rules.variables, shared.values, room)
                room -= cost
                if cost < 0 or room <= 0:
                    return False
                if self.cluster_policy.applies_one:
                    break
        return is_matched

    def unknown_namespace(self, policy_input: PolicyInput) -> Failed | None:
        """Return why the namespace is not known, if it has to be."""
        if not self.needs_labels and not self._needs_namespace:
            return None
        found = namespace_of(policy_input)
        return found if isinstance(found, Failed) else None

    def reviewed(
        self, found: MatchInput, policy_input: PolicyInput
    ) -> tuple[Sequence[RuleVariants[CelRule]], Sequence[RuleVariants[CelRule]]]:
        """Return the rules whose failures may refuse the request, and those that may only warn."""
        policy = self.cluster_policy
        if self.refuses_all and not self._has_rules_elsewhere:
            return policy.cel_rules, ()
        namespace, labels = namespace_for_actions(found, policy_input)
        if self.refuses_all:
            # Kyverno asks whether rules are fit for workloads of those that audit alone.
            audited = [each for each in policy.cel_rules if not each.own.action.is_chosen(namespace, labels)]
            return audited, ()
        chosen = [each for each in policy.cel_rules if each.own.action.is_chosen(namespace, labels)]
        if not policy.emits_warnings:
            return chosen, ()
        return chosen, [each for each in policy.cel_rules if each not in chosen]

    def rule_results(
        self, policy_input: PolicyInput, allowance: Allowance, decisions: Mapping[AccessCheck, AccessDecision]
    ) -> list[RuleResult]:
        """Return the results of all rules, whatever their actions, as ``kyverno test`` has them."""
        return _Run(self, policy_input, decisions, allowance).results_of_all()


class _Run(PolicyRun[ValidatingPolicy, ValidatingBinding]):
    _bound: KyvernoClusterPolicy

    def __init__(
        self,
        bound: KyvernoClusterPolicy,
        policy_input: PolicyInput,
        decisions: Mapping[AccessCheck, AccessDecision],
        allowance: Allowance,
    ) -> None:
        super().__init__(bound, policy_input, decisions, allowance)
        self._shared = Shared(policy_input, self._prepared, bound.roles.within(policy_input))
        self._left_out: Excluded | None = None

    def results_of_all(self) -> list[RuleResult]:
        """See :meth:`KyvernoClusterPolicy.rule_results`."""
        meter.begin()
        if self._bound.excludes(self._request):
            return []
        if self._policy.conditions and self._unmatched_by_kyverno() is not None:
            return []
        return self._results(self._bound.cluster_policy.cel_rules)

    def _result(self) -> PolicyAnswer:
        is_brief = self._allowance.is_brief
        meter.start_expression(meter.BRIEF_LIMIT if is_brief else meter.long_limit())
        try:
            return self._reviewed()
        except ParamsError as error:
            cause = f"the roles of the user are not known: {error}"
            return PolicyResult(Failed(FailureReason.POLICY, cause, 500))
        except CostExceeded as error:
            # Of the filters: expressions have handled their own.
            if is_brief:
                raise TooLongError from None
            return PolicyResult(Failed(FailureReason.POLICY, f"filters of rules: {error}", 500))

    def _reviewed(self) -> PolicyAnswer:
        bound = self._bound
        if bound.excludes(self._request):
            return NOT_MATCHED
        if self._policy.conditions and (unmatched := self._unmatched(None)) is not None:
            failed_condition = Failed(FailureReason.CONDITION, unmatched, 403)
            return PolicyResult(failed_condition) if unmatched else NOT_MATCHED
        if self._policy.conditions and self._unmatched_by_kyverno() is not None:
            return NOT_MATCHED
        if (failed := bound.unknown_namespace(self._input)) is not None:
            return PolicyResult(failed)
        chosen, warned = bound.reviewed(self._shared.found, self._input)
        results = self._results(chosen)
        warnings = self._results(warned)
        if (unresolved := self._unresolved()) is not None:
            return unresolved
        if all(each.status == "skip" for each in (*results, *warnings)):
            return self._left_out or NOT_MATCHED
        verdict = self._verdict(results, warnings)
        return PolicyResult(verdict, verdict, self._elapsed_s())

    def _unmatched_by_kyverno(self) -> str | None:
        """Return as ``_unmatched`` what Kyverno finds after the API server: absent objects have a kind."""
        seen, kind = self._seen, self._seen.document["kind"]
        version = f"{kind['group']}/{kind['version']}".lstrip("/")
        absent = {"apiVersion": version, "kind": kind["kind"]}
        return self._unmatched_by(seen.object or absent, seen.old_object or absent)

    def _results(self, rules: Sequence[RuleVariants[CelRule]]) -> list[RuleResult]:
        found, policy = self._shared.found, self._bound.cluster_policy
        results = []
        for rule in rules_for(rules, found.kind[2], policy.controllers):
            if rule.matches(found):
                results.append(self._result_of(rule))
                if policy.applies_one and results[-1].status != "skip":
                    break
        return results

    def _verdict(self, results: Sequence[RuleResult], warned: Sequence[RuleResult]) -> Allowed | Denied:
        name = self._bound.shown_name
        failed = [each for each in results if each.status in ("fail", "error")]
        fails = self._policy.rules.failure_policy == "Fail"
        if any(each.refuses if each.status == "fail" else fails for each in failed):
            found = self._shared.found
            resource = f"{found.object_kind}/{found.namespace}/{found.name}"
            texts = as_yaml({name: {each.rule: each.message for each in failed}})
            message = f"\n\nresource {resource} was blocked due to the following policies \n\n{texts}"
            return Denied(CODE, "", message)
        warnings = tuple(
            f"policy {name}.{each.rule}: {each.message}"
            for each in (*failed, *warned)
            if each.status in ("fail", "error")
        )
        return Allowed(b"", warnings) if warnings else ALLOWED

    def _result_of(self, rule: CelRule) -> RuleResult:
        found = self._shared.found
        excepted = [each.id for each in rule.exceptions if each.match.make_exception(found)]
        if excepted:
            self._left_out = self._left_out or Excluded(excepted[0], is_exception=True)
            text = f"rule is skipped due to policy exceptions{', '.join(excepted)}"
            return RuleResult(rule.name, "skip", text, refuses=False)
        try:
            params = self._params_of(rule)
        except ParamsError as error:
            text = str(error)
            text = f"error in parameterized resource: {_IN_KYVERNO.get(text, text)}"
            return RuleResult(rule.name, "error", text, refuses=False)
        messages = [self._message(rule, param) for param in params]
        # The results of all parameters come first, and then count in their order.
        for message in messages:
            if message is None:
                return RuleResult(rule.name, "skip", "cel preconditions not met", refuses=False)
            if message:
                namespace, labels = found.namespace, found.namespace_labels
                refuses = self._bound.refuses_all or rule.action.refuses(namespace, labels)
                return RuleResult(rule.name, "fail", message, refuses)
        return RuleResult(rule.name, "pass", f"Validation rule '{rule.name}' passed.", refuses=False)

    def _params_of(self, rule: CelRule) -> Sequence[Json | None]:
        """Return the parameters of *rule*, one None if it uses none; none at all while they are looked up.

        Raises:
            ParamsError: they cannot be found.
        """
        if rule.binding is NO_BINDING:
            return (None,)
        try:
            params = self._bound.params_of(rule.binding, self._input, self._shared.found.namespace)
        except UnreadParamsError as unread:
            self._lookups[unread.lookup] = None
            return ()
        if not params and rule.missing_param:
            raise ParamsError(rule.missing_param)
        return params

    def _message(self, rule: CelRule, param: Json | None) -> str | None:
        """Return why *rule* fails; empty if it does not; None if its preconditions do not hold."""
        shared, prepared = self._shared, self._prepared
        of_object = (*shared.objects, shared.request)
        authorizer, check = prepared.authorizer, prepared.check
        # Kyverno's CEL has plain maps and lists, whatever the version of the API server.
        values = (*of_object, shared.filtered, authorizer, check, param, None, None)
        # As in the API server, conditions do not see the namespace.
        of_conditions = (*of_object, None, *values[4:])
        unmet = unmet_precondition(rule, of_conditions, self._allowance) if rule.conditions else None
        if isinstance(unmet, Excluded):
            self._left_out = self._left_out or unmet
            return None
        if unmet is not None:
            return unmet
        if not rule.rules.validations and not rule.rules.audit_annotations:
            return None
        evaluated = evaluate(
            rule.rules,
            values,
            (*of_object, shared.filtered, None, None, param, None, None),
            (*of_object, shared.whole, authorizer, check, param, None, None),
            self._allowance,
        )
        return evaluated.refusals[0].message if evaluated.refusals else ""


KyvernoClusterPolicy.run_type = _Run


def _bindings(policy: ClusterPolicy) -> Iterator[ValidatingBinding]:
    for rule in policy.all_rules:
        if rule.binding is not NO_BINDING:
            yield rule.binding
