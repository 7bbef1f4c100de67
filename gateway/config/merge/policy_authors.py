"""The policy of the gateway's own that checks the authors of policies that read objects of the cluster.

The author of a policy sees its parameters, and what its expressions read. So only users may write policies
and bindings who may read these objects themselves.

Source: k8s.io/kubernetes pkg/registry/admissionregistration/validatingadmissionpolicy/authz.go and
validatingadmissionpolicybinding/authz.go, for the API server's own policies with parameters.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gateway.base.text import one_of
from gateway.config.yaml.documents import GATEWAY_VERSION, POLICY_KINDS, plural_of
from gateway.config.yaml.fields import Fields, Problems

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.kinds.policy_settings import ListedKind
    from gateway.config.yaml.documents import Engine
    from gateway.pure.core.webhook import Webhook

    Validation = dict[str, str]

AUTHORS: Final = "policy-authors.admission-gateway.io"
"""The name of the policy that checks the authors of policies."""
READING_KINDS: Final = {"policies.kyverno.io": ["ValidatingPolicy", "MutatingPolicy"]}
"""Kinds of other engines, by group, that may read objects as custom resources.

Those in namespaces may not: a registration can leave namespaces out, and then nothing checks the authors."""
_MAX_READS: Final = 24
"""Rights that expressions of one policy may need. The budget of expressions is for 28 checks."""


@lru_cache(maxsize=8)
def authors_policy(param_kinds: tuple[ListedKind, ...], engines: tuple[Engine, ...]) -> Webhook:
    """Return the policy by which only users write policies who may read what these read.

    The policies are those of the gateway, and those for all namespaces of *engines*.

    A policy with a paramKind requires the right to get all objects of the kind. Other kinds than
    *param_kinds* are refused: otherwise the policy would come into force, unchecked, once the kind is listed.
    A binding does not say of which kind its parameters are, so its paramRef requires the right to read the
    object, or to list all, of each kind.

    An expression that gets or lists objects requires the right to do so for all of them, whether their kind
    is listed or not. If no constant says what it reads, it requires the right to read everything.
    """
    # Imported late: expressions take time and memory that a configuration without policies does not need.
    from gateway.config.kinds.validating_policy import (
        ValidatingPolicySpec,
        read_validating_binding,
        read_validating_policy,
    )
    from gateway.pure.admission_policies.policy import as_webhook
    from gateway.pure.cel.spec_reads import OF_AUTHORS

    class Spec(ValidatingPolicySpec):
        DIALECT = OF_AUTHORS

    checked = {GATEWAY_VERSION.partition("/")[0]: [kind for pair in POLICY_KINDS.items() for kind in pair]}
    if "Kyverno" in engines:
        checked |= READING_KINDS
    spec = {
        "matchConstraints": {
            "resourceRules": [
                {
                    "operations": ["CREATE", "UPDATE"],
                    "apiGroups": [group],
                    "apiVersions": ["*"],
                    "resources": list(map(plural_of, kinds)),
                    "scope": "Cluster",
                }
                for group, kinds in checked.items()
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
            {
                "name": "reads",
                "expression": "request.resource.resource.endsWith('bindings') ? [] : readsOf(object.spec)",
            },
        ],
        "validations": [*_of_parameters(param_kinds), *_of_reads()],
    }
    problems = Problems(AUTHORS)
    source = Fields({"metadata": {"name": AUTHORS}, "spec": spec}, "", problems)
    policy = read_validating_policy(source, Spec)
    bound = {"policyName": AUTHORS, "validationActions": ["Deny"]}
    binding = read_validating_binding(Fields({"metadata": {"name": AUTHORS}, "spec": bound}, "", problems))
    assert not problems.found, problems.found
    return as_webhook(policy, [binding], checks_authors=True)


# None of the texts of a listed kind has a quote.


def _of_parameters(kinds: tuple[ListedKind, ...]) -> Iterator[Validation]:
    listed = [f"{kind.kind} of {kind.api_version}" for kind in kinds]
    expected = one_of(listed) if listed else "it lists none"
    yield {
        "expression": "!variables.kind.hasValue() || string(variables.kind.kind.orValue('')) "
        f"+ ' of ' + string(variables.kind.apiVersion.orValue('')) in {listed}",
        "message": f"expected a paramKind of policies.paramKinds: {expected}",
    }
    for kind in kinds:
        yield {
            "expression": f"variables.kind.kind.orValue('') != '{kind.kind}' || "
            f"variables.kind.apiVersion.orValue('') != '{kind.api_version}' || "
            f"{_access(kind)}.check('get').allowed()",
            "message": "policies can show their parameters: the author has no right to get all "
            f"{_in_group(kind)}",
            "reason": "Forbidden",
        }
        yield {
            "expression": "!variables.ref.hasValue() || "
            f"{_access(kind)}.namespace(variables.in_namespace).name(variables.of_object)"
            ".check(variables.of_object == '' ? 'list' : 'get').allowed()",
            "message": "policies can show their parameters: the author has no right to read the "
            f"{_in_group(kind)} of this paramRef",
            "reason": "Forbidden",
        }


def _of_reads() -> Iterator[Validation]:
    count = "variables.reads.size()"
    yield {
        "expression": f"{count} <= {_MAX_READS}",
        "message": f"expected at most {_MAX_READS} kinds that expressions get or list",
    }
    # One expression affords two checks only.
    for index in range(_MAX_READS):
        read = f"variables.reads[{index}]"
        access = f"authorizer.group({read}.group).resource({read}.resource).check({read}.verb)"
        in_group = f"{read}.resource + ({read}.group == '' ? '' : '.' + {read}.group)"
        yield {
            "expression": f"{count} <= {index} || {access}.allowed()",
            "messageExpression": "'policies can show what they read: the author has no right to ' + "
            f"{read}.verb + ' all ' + {in_group}",
            "reason": "Forbidden",
        }


def _access(kind: ListedKind) -> str:
    return f"authorizer.group('{kind.group}').resource('{kind.resource}')"


def _in_group(kind: ListedKind) -> str:
    return f"{kind.resource}.{kind.group}" if kind.group else kind.resource
