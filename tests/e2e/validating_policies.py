"""The policies of ``loadtest.policies`` as ValidatingAdmissionPolicies: the API server evaluates them."""

from __future__ import annotations

from typing import Any, Final

from loadtest.policies import LABELS, SETS
from tests.e2e.setups import rule

_EACH: Final = "object.spec.containers.all(c, {})"
EXPRESSIONS: Final = {
    "deny-privileged": _EACH.format(
        "!has(c.securityContext) || !has(c.securityContext.privileged) || !c.securityContext.privileged"
    ),
    "deny-latest": _EACH.format("!c.image.endsWith(':latest')"),
    "require-limits": _EACH.format(
        "has(c.resources) && has(c.resources.limits)"
        " && 'cpu' in c.resources.limits && 'memory' in c.resources.limits"
    ),
} | {
    f"require-{label}": f"has(object.metadata.labels) && '{label}' in object.metadata.labels"
    for label in LABELS
}


def documents(which: str) -> list[dict[str, Any]]:
    """Return a policy and its binding for each policy of the set *which*."""
    head = {"apiVersion": "admissionregistration.k8s.io/v1"}
    found: list[dict[str, Any]] = []
    for name in SETS[which]:
        metadata = {"name": name}
        policy = {
            "failurePolicy": "Fail",
            "matchConstraints": {"resourceRules": [rule("pods", "CREATE")]},
            "validations": [{"expression": EXPRESSIONS[name], "message": f"denied by {name}"}],
        }
        binding = {"policyName": name, "validationActions": ["Deny"]}
        found += [
            {**head, "kind": "ValidatingAdmissionPolicy", "metadata": metadata, "spec": policy},
            {**head, "kind": "ValidatingAdmissionPolicyBinding", "metadata": metadata, "spec": binding},
        ]
    return found
