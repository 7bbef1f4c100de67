"""The decision about a request, and what the user and the audit log learn of it.

Source: k8s.io/pod-security-admission v0.37.1 admission/admission.go and admission/response.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.pods import pod_template
from admission_gateway_worker.policies.builtin import aggregated, forbidden, invalid, quoted
from admission_gateway_worker.policies.pod_security import metrics
from admission_gateway_worker.policies.pod_security.evaluation import Result, evaluate
from admission_gateway_worker.policies.pod_security.existing_pods import warn_of_existing_pods
from admission_gateway_worker.policies.pod_security.levels import (
    MODES,
    PREFIX,
    PRIVILEGED,
    LevelVersion,
    Policy,
    is_stricter,
    policy_of,
)
from admission_gateway_worker.policies.pod_security.pod import Pod
from admission_gateway_worker.review import Cause, Denied

if TYPE_CHECKING:
    from collections.abc import Awaitable, Sequence

    from admission_gateway_worker.policies.builtin import FieldError
    from admission_gateway_worker.policies.pod_security.parameters import Settings
    from admission_gateway_worker.review import Review

_IGNORED_SUBRESOURCES: Final = frozenset(
    {"exec", "attach", "binding", "eviction", "log", "portforward", "proxy", "status"}
)
"""Any other subresource of a Pod is evaluated: a new one may change the spec."""


def pod_security(review: Review) -> Awaitable[None] | None:
    """Check Pods and workloads against the level of their namespace, and the labels of namespaces.

    Raises:
        Denied: the Pod violates the level that is enforced, or a Namespace has invalid labels.
    """
    if review.operation not in ("CREATE", "UPDATE"):
        return None
    resource, sub_resource = review.resource, review.sub_resource
    group, name = resource.get("group", ""), resource.get("resource", "")
    if not group and name == "namespaces":
        return None if sub_resource else _check_namespace(review)
    if not group and name == "pods":
        if sub_resource not in _IGNORED_SUBRESOURCES:
            _check_pod(review)
    elif not sub_resource:
        _check_workload(review)
    return None


# -- namespaces -----------------------------------------------------------------------------------


def _check_namespace(review: Review) -> Awaitable[None] | None:
    settings: Settings = review.parameters
    if not isinstance(review.object, dict):
        raise _malformed(review, "failed to decode namespace")
    new, errors = policy_of(review.object, settings.defaults)
    if review.operation == "CREATE":
        if errors:
            raise invalid(review, errors)
        if review.namespace in settings.namespaces:
            _warn_of_exemption(review, new)
        return None
    if not isinstance(review.old_object, dict):
        raise _malformed(review, "failed to decode  old namespace")
    old, old_errors = policy_of(review.old_object, settings.defaults)
    if errors and errors != old_errors:
        raise invalid(review, errors)
    tightened = new.enforce
    if (
        tightened == old.enforce
        or tightened.level == PRIVILEGED
        or (tightened.minor == old.enforce.minor and not is_stricter(tightened, old.enforce))
    ):
        return None
    if review.namespace in settings.namespaces:
        _warn_of_exemption(review, new)
        return None
    return warn_of_existing_pods(review, tightened)


def _warn_of_exemption(review: Review, policy: Policy) -> None:
    """Warn that the labels of an exempt namespace have no effect."""
    if policy.is_privileged or policy.is_equivalent(review.parameters.defaults):
        return
    labels = (review.object.get("metadata") or {}).get("labels") or {}
    chosen = ", ".join(
        f"{mode}={level}"
        for mode, level in zip(MODES, policy, strict=True)
        if level.level != PRIVILEGED and (PREFIX + mode in labels or f"{PREFIX}{mode}-version" in labels)
    )
    name = (review.object.get("metadata") or {}).get("name") or ""
    review.warn(
        f"namespace {quoted(name)} is exempt from Pod Security, and the policy ({chosen}) will be ignored"
    )


# -- pods and workloads ---------------------------------------------------------------------------


def _check_pod(review: Review) -> None:
    if _is_exempt(review):
        return
    namespace = review.namespace_object
    if namespace is None:
        raise _lookup_failed(review)
    policy, errors = policy_of(namespace, review.parameters.defaults)
    if not errors and policy.is_privileged:
        metrics.count_evaluation(review, "allow", policy.enforce, "enforce")
        review.annotate("enforce-policy", "privileged:latest")
        return
    found = review.object
    if not isinstance(found, dict) or found.get("kind", "Pod") != "Pod":
        raise _malformed(review, "failed to decode pod")
    if review.operation == "UPDATE":
        old = review.old_object
        if not isinstance(old, dict) or old.get("kind", "Pod") != "Pod":
            raise _malformed(review, "failed to decode old pod")
        if not _is_significant(found.get("spec") or {}, old.get("spec") or {}):
            return
    _evaluate(review, policy, errors, found, enforce=True)


def _check_workload(review: Review) -> None:
    if _is_exempt(review):
        return
    namespace = review.namespace_object
    if namespace is None:
        metrics.count_error(review, fatal=True)
        review.annotate(
            "error", f"failed to lookup namespace {quoted(review.namespace)}: {_no_namespace(review)}"
        )
        return
    policy, errors = policy_of(namespace, review.parameters.defaults)
    if not errors and policy.warn.level == PRIVILEGED and policy.audit.level == PRIVILEGED:
        return
    try:
        template = pod_template(review.kind, review.object)
    except ValueError as error:
        metrics.count_error(review, fatal=True)
        review.annotate("error", f"failed to extract pod template: {error}")
        return
    if template is not None:
        _evaluate(review, policy, errors, template, enforce=False)


def _is_exempt(review: Review) -> bool:
    """Whether the namespace or the user is exempt, which is then counted and annotated."""
    settings: Settings = review.parameters
    if review.namespace in settings.namespaces:
        reason = "namespace"
    elif settings.usernames and review.user_info.get("username") in settings.usernames:
        reason = "user"
    else:
        return False
    _note_exemption(review, reason)
    return True


def _note_exemption(review: Review, reason: str) -> None:
    metrics.count_exemption(review)
    review.annotate("exempt", reason)


def _evaluate(
    review: Review, policy: Policy, errors: Sequence[FieldError], template: dict[str, Any], *, enforce: bool
) -> None:
    """Evaluate the pod or *template* for each mode, and enforce only if *enforce*."""
    settings: Settings = review.parameters
    pod = Pod(template)
    if settings.runtime_classes and pod.spec.get("runtimeClassName") in settings.runtime_classes:
        _note_exemption(review, "runtimeClass")
        return
    if errors:
        review.annotate("error", f"Failed to parse policy: {aggregated(map(str, errors))}")
        metrics.count_error(review, fatal=False)
    results: dict[LevelVersion, Result] = {}

    def result_of(level: LevelVersion) -> Result:
        if level not in results:
            results[level] = evaluate(level, pod, settings, review.namespace)
        return results[level]

    denial = None
    if enforce:
        review.annotate("enforce-policy", str(policy.enforce))
        result = result_of(policy.enforce)
        if result.violations:
            text = f"violates PodSecurity {quoted(str(policy.enforce))}: {result.detail}"
            denial = forbidden(review, text, review.name)
        metrics.count_evaluation(review, "deny" if denial else "allow", policy.enforce, "enforce")
    result = result_of(policy.audit)
    if result.violations:
        review.annotate("audit-violations", _would_violate(policy.audit, result))
        metrics.count_evaluation(review, "deny", policy.audit, "audit")
    if denial is None:
        result = result_of(policy.warn)
        if result.violations:
            review.warn(_would_violate(policy.warn, result))
            metrics.count_evaluation(review, "deny", policy.warn, "warn")
    if exempt := sorted({name for result in results.values() for name in result.exempt}):
        review.annotate("exempt-controls", ", ".join(exempt))
    if denial is not None:
        raise denial


def _would_violate(policy: LevelVersion, result: Result) -> str:
    return f"would violate PodSecurity {quoted(str(policy))}: {result.detail}"


def _is_significant(spec: dict[str, Any], old: dict[str, Any]) -> bool:
    """Whether an update changes images or the number of containers, the fields that can change and count."""
    for field in ("containers", "initContainers"):
        if _images(spec, field) != _images(old, field):
            return True
    before = {
        each.get("name"): each.get("image") or "" for each in reversed(old.get("ephemeralContainers") or ())
    }
    return any(
        before.get(each.get("name")) != (each.get("image") or "")
        for each in spec.get("ephemeralContainers") or ()
    )


def _images(spec: dict[str, Any], field: str) -> list[str]:
    return [each.get("image") or "" for each in spec.get(field) or ()]


# -- failures -------------------------------------------------------------------------------------


def _lookup_failed(review: Review) -> Denied:
    problem = f"failed to lookup namespace {quoted(review.namespace)}"
    message = f"Internal error occurred: {problem}"
    metrics.count_error(review, fatal=True)
    review.annotate("error", f"{message}: {_no_namespace(review)}")
    return Denied(message, code=500, reason="InternalError", causes=[Cause(problem, reason="")])


def _no_namespace(review: Review) -> str:
    return f"namespaces {quoted(review.namespace)} not found"


def _malformed(review: Review, message: str) -> Denied:
    metrics.count_error(review, fatal=True)
    review.annotate("error", message)
    return Denied(message, code=400, reason="BadRequest")
