"""Lines that explain the outcome of each webhook: ``admission-gateway review --explain``."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gateway.pure.core.matching import checks_authors, selectors_match
from gateway.pure.core.rules import is_never_sent, rules_match
from gateway.pure.core.verdict import Allowed, Denied, DryRunRefused, Failed
from gateway.pure.core.webhook import PolicyRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.exemptions import PolicyException
    from gateway.pure.core.matching import Selection
    from gateway.pure.core.outcome import Outcome
    from gateway.pure.core.policy import AdmissionPolicy
    from gateway.pure.core.review import AdmissionRequest, Resource
    from gateway.pure.core.webhook import Webhook


def explain(evaluation: Evaluation, selection: Selection) -> Iterator[str]:
    """Yield one or more lines for each webhook of *selection*, in order, about a finished *evaluation*."""
    for position, webhook in enumerate(selection.webhooks):
        title = f"{selection.phase} {webhook.configuration}/{webhook.name}"
        if _is_on_templates(webhook):
            title = f"{title} on pod templates"
        outcomes = [o for o in evaluation.outcomes if o.invocation.position == position]
        for outcome in outcomes:
            again = " again" if outcome.round else ""
            yield f"{title}: matched{again}, {_outcome(outcome)}"
            if outcome.worker_verdict is not None:
                for text in outcome.worker_verdict.warnings:
                    yield f"{title}: warning: {text}"
                for key, value in outcome.worker_verdict.audit_annotations:
                    yield f"{title}: audit annotation {key}: {value}"
        if not outcomes:
            yield f"{title}: {mismatch(webhook, evaluation)}"


def _outcome(outcome: Outcome) -> str:
    verdict = outcome.verdict
    mode = f"; the mode {outcome.mode} lets the request pass" if outcome.mode != "Enforce" else ""
    took = f" in {outcome.elapsed_s * 1000:.1f} ms" if outcome.elapsed_s is not None else ""
    match verdict:
        case Allowed():
            patched = verdict.patch.decode(errors="replace")
            if outcome.would_change:
                return f"allowed{took}, the mode {outcome.mode} does not apply its patch: {patched}"
            changed = "changed the object" if outcome.has_changed else "changed nothing"
            patch = f", {changed}: {patched}" if outcome.is_patched else ""
            return f"allowed{took}{patch}"
        case Denied():
            return f"denied{took} with {verdict.code}: {verdict.message or 'no explanation'}{mode}"
        case Failed():
            policy = outcome.invocation.webhook.failure_policy
            if not outcome.would_reject:
                return f"failed{took}: {verdict.cause}; failurePolicy {policy} lets it pass"
            return f"failed{took}: {verdict.cause}{mode or f'; failurePolicy {policy} rejects the request'}"
        case DryRunRefused():
            effects = outcome.invocation.webhook.side_effects
            effect = mode or ", which rejects the request"
            return f"not called: sideEffects {effects} forbids a dry run{effect}"


def mismatch(webhook: Webhook, evaluation: Evaluation) -> str:
    """Return why *webhook*, which has no outcome, was not called by a finished *evaluation*."""
    request = evaluation.request
    if is_never_sent(request) and not checks_authors(webhook):
        return f"not matched, {_named(request.resource, '')} is never sent to webhooks"
    if not rules_match(webhook, request):
        return f"not matched, no rule is for {_request(request)}"
    if selectors_match(webhook, request, evaluation.final_object, evaluation.namespace) is False:
        return "not matched, its namespaceSelector or objectSelector does not select the request"
    for exemption in evaluation.exemptions:
        if exemption.invocation.webhook is webhook:
            return f"not called, {_exempted(exemption.exception)}"
    for invocation, excluded in evaluation.exclusions:
        if invocation.webhook is webhook:
            if excluded.is_exception:
                return f"not called, exempted by PolicyException {excluded.condition}"
            if not excluded.condition:
                return "not matched, its matchConditions have no value, and its failurePolicy is Ignore"
            return f'not matched, its matchCondition "{excluded.condition}" is false'
    webhooks = evaluation.selection.webhooks
    if any(webhooks[at] is webhook and mode == "Shadow" for at, mode in evaluation.modes.items()):
        return "called after the answer, by its mode Shadow"
    if (policy := webhook.policy) is not None:
        return (_unmatched_template if _is_on_templates(webhook) else _unmatched_policy)(policy, evaluation)
    return "not reached, the request was rejected before its turn"


def _unmatched_policy(policy: AdmissionPolicy, evaluation: Evaluation) -> str:
    if evaluation.is_mutating and evaluation.request.operation == "DELETE":
        return "not matched, DELETE has no object to change"
    if policy.excludes(evaluation.request):
        return "not matched, its resourceNames or excludeResourceRules exclude the request"
    return "not matched, its bindings, parameters or matchConditions exclude the request"


def _is_on_templates(webhook: Webhook) -> bool:
    return isinstance(webhook.client, PolicyRef) and webhook.client.is_on_templates


def _unmatched_template(policy: AdmissionPolicy, evaluation: Evaluation) -> str:
    if policy.excludes(evaluation.request):
        unchanged = "the request leaves the pod template as it is"
        return f"not matched, {unchanged}, or the objectSelector excludes its Pods"
    return "not matched, its bindings, parameters or matchConditions exclude the Pods of the template"


def _exempted(exception: PolicyException) -> str:
    until = f"until {exception.expires}" if exception.expires else "permanent"
    return f"exempted by PolicyException {exception.id} ({until}): {exception.reason}"


def _request(request: AdmissionRequest) -> str:
    requested = _named(request.request_resource, request.request_sub_resource)
    sent = _named(request.resource, request.sub_resource)
    also = f" (sent as {sent})" if sent != requested else ""
    scope = f" in namespace {request.namespace}" if request.namespace else ""
    return f"{request.operation} {requested}{also}{scope}"


def _named(resource: Resource, sub_resource: str) -> str:
    group, version, name = resource
    return f"{group or 'core'}/{version} {name}{'/' if sub_resource else ''}{sub_resource}"
