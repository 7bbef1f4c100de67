"""The policies of ``loadtest.policies`` as ValidatingAdmissionPolicies: the API server evaluates them."""

from __future__ import annotations

from typing import Any

from loadtest.policies import SETS
from loadtest.policies.cel import EXPRESSIONS
from tests.e2e.setups import rule


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
