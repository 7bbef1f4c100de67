"""The metrics of the plugin PodSecurity, under their own names.

Source: k8s.io/pod-security-admission v0.37.1 metrics/metrics.go.
"""

from __future__ import annotations

from itertools import product
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.counters import CounterFamily
from admission_gateway_worker.policies.pod_security.levels import (
    BASELINE,
    LATEST,
    PRIVILEGED,
    RESTRICTED,
    LevelVersion,
)
from admission_gateway_worker.policies.pod_security.registry import NEWEST

if TYPE_CHECKING:
    from admission_gateway_worker.review import Review

_FUTURE: Final = "future"
_VERSIONS: Final = (*(f"v1.{minor}" for minor in range(NEWEST + 1)), LATEST, _FUTURE)
_OPERATIONS: Final = ("create", "update")
_POD: Final = (("pod", ""), ("pod", "ephemeralcontainers"), ("pod", "resize"))
_CONTROLLER: Final = (("controller", ""),)
_REQUEST: Final = ("request_operation", "resource", "subresource")

_evaluations: Final = CounterFamily(
    "pod_security_evaluations_total",
    "Number of policy evaluations that occurred, not counting ignored or exempt requests.",
    ("decision", "policy_level", "policy_version", "mode", *_REQUEST),
    [
        (decision, level, version, mode, operation, *target)
        for levels, modes, targets in (
            (((PRIVILEGED, LATEST),), (("allow", "enforce"),), _POD),
            (
                tuple(product((BASELINE, RESTRICTED), _VERSIONS)),
                (("allow", "enforce"), ("deny", "enforce")),
                _POD,
            ),
            (
                tuple(product((BASELINE, RESTRICTED), _VERSIONS)),
                (("deny", "audit"), ("deny", "warn")),
                _POD + _CONTROLLER,
            ),
        )
        for (level, version), (decision, mode), operation, target in product(
            levels, modes, _OPERATIONS, targets
        )
    ],
)
_exemptions: Final = CounterFamily(
    "pod_security_exemptions_total",
    "Number of exempt requests, not counting ignored or out of scope requests.",
    _REQUEST,
    [(operation, *target) for operation, target in product(_OPERATIONS, _POD + _CONTROLLER)],
)
_errors: Final = CounterFamily(
    "pod_security_errors_total",
    "Number of errors preventing normal evaluation. Non-fatal errors may result in the latest restricted "
    "profile being used for evaluation.",
    ("fatal", *_REQUEST),
    [
        (fatal, operation, *target)
        for fatal, operation, target in product(("true", "false"), _OPERATIONS, _POD + _CONTROLLER)
    ],
)


def count_evaluation(review: Review, decision: str, policy: LevelVersion, mode: str) -> None:
    """Count a decision, ``allow`` or ``deny``, of *policy* in one mode."""
    version = policy.version
    if policy.level == PRIVILEGED:
        version = LATEST  # it has no checks in any version
    elif policy.minor is not None and policy.minor > NEWEST:
        version = _FUTURE
    _evaluations.count(decision, policy.level, version, mode, *_request(review))


def count_exemption(review: Review) -> None:
    """Count a request that is not checked."""
    _exemptions.count(*_request(review))


def count_error(review: Review, *, fatal: bool) -> None:
    """Count a request that cannot be evaluated (*fatal*), or whose namespace has invalid labels."""
    _errors.count(str(fatal).lower(), *_request(review))


def _request(review: Review) -> tuple[str, str, str]:
    resource = review.resource.get("resource")
    kind = {"pods": "pod", "namespaces": "namespace"}.get(resource or "", "controller")
    return review.operation.lower(), kind, review.sub_resource
