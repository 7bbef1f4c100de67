"""The policy of the gateway's own that checks the authors of policies with parameters.

The author of a policy sees its parameters. So only users may write policies and bindings who may read these
parameters themselves.

Source: k8s.io/kubernetes pkg/registry/admissionregistration/validatingadmissionpolicy/authz.go and
validatingadmissionpolicybinding/authz.go, for the API server's own policies.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gateway.base.text import one_of
from gateway.config.yaml.documents import GATEWAY_VERSION, POLICY_KINDS, plural_of
from gateway.config.yaml.fields import Fields, Problems

if TYPE_CHECKING:
    from gateway.config.kinds.policy_settings import ListedKind
    from gateway.pure.core.webhook import Webhook

AUTHORS: Final = "policy-authors.admission-gateway.io"
"""The name of the policy that checks the authors of policies."""


@lru_cache(maxsize=8)
def authors_policy(kinds: tuple[ListedKind, ...]) -> Webhook:
    """Return the policy by which only users who may read parameters of *kinds* can write policies with them.

    Other kinds are refused.
    A policy with a paramKind requires the right to get all objects of the kind. A binding does not say of
    which kind its parameters are, so its paramRef requires the right to read the object, or to list all, of
    each kind.
    """
    # Imported late: expressions take time and memory that a configuration without policies does not need.
    from gateway.config.kinds.validating_policy import read_validating_binding, read_validating_policy
    from gateway.pure.admission_policies.policy import as_webhook

    listed = [f"{kind.kind} of {kind.api_version}" for kind in kinds]
    resources = [plural_of(kind) for pair in POLICY_KINDS.items() for kind in pair]
    spec = {
        "matchConstraints": {
            "resourceRules": [
                {
                    "operations": ["CREATE", "UPDATE"],
                    "apiGroups": [GATEWAY_VERSION.partition("/")[0]],
                    "apiVersions": ["*"],
                    "resources": resources,
                    "scope": "Cluster",
                }
            ]
        },
        "matchConditions": [
            {
                "name": "spec-has-changed",
                "expression": "request.operation == 'CREATE' || object.spec != oldObject.spec",
            }
        ],
        "variables": [
            {"name": "kind", "expression": "object.spec.?paramKind"},
            {"name": "ref", "expression": "object.spec.?paramRef"},
            {"name": "of_object", "expression": "variables.ref.name.orValue('')"},
            {"name": "in_namespace", "expression": "variables.ref.namespace.orValue('')"},
        ],
        "validations": [
            # Otherwise it would come into force, unchecked, once its kind is listed.
            {
                "expression": "!variables.kind.hasValue() || string(variables.kind.kind.orValue('')) "
                f"+ ' of ' + string(variables.kind.apiVersion.orValue('')) in {listed}",
                "message": f"expected a paramKind of policies.paramKinds: {one_of(listed)}",
            },
            *(validation for kind in kinds for validation in _validations(kind)),
        ],
    }
    problems = Problems(AUTHORS)
    policy = read_validating_policy(Fields({"metadata": {"name": AUTHORS}, "spec": spec}, "", problems))
    bound = {"policyName": AUTHORS, "validationActions": ["Deny"]}
    binding = read_validating_binding(Fields({"metadata": {"name": AUTHORS}, "spec": bound}, "", problems))
    assert not problems.found, problems.found
    return as_webhook(policy, [binding], checks_parameter_authors=True)


def _validations(kind: ListedKind) -> tuple[dict[str, str], ...]:
    # None of these texts has a quote.
    readable = f"authorizer.group('{kind.group}').resource('{kind.resource}')"
    in_group = f"{kind.resource}.{kind.group}" if kind.group else kind.resource
    return (
        {
            "expression": f"variables.kind.kind.orValue('') != '{kind.kind}' || "
            f"variables.kind.apiVersion.orValue('') != '{kind.api_version}' || "
            f"{readable}.check('get').allowed()",
            "message": f"policies can show their parameters: the author has no right to get all {in_group}",
            "reason": "Forbidden",
        },
        {
            "expression": "!variables.ref.hasValue() || "
            f"{readable}.namespace(variables.in_namespace).name(variables.of_object)"
            ".check(variables.of_object == '' ? 'list' : 'get').allowed()",
            "message": "policies can show their parameters: the author has no right to read the "
            f"{in_group} of this paramRef",
            "reason": "Forbidden",
        },
    )
