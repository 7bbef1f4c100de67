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
    from gateway.pure.core.webhook import Webhook

    Validation = dict[str, str]

AUTHORS: Final = "policy-authors.admission-gateway.io"
"""The name of the policy that checks the authors of policies."""


@lru_cache(maxsize=8)
def authors_policy(param_kinds: tuple[ListedKind, ...], resources: tuple[ListedKind, ...]) -> Webhook:
    """Return the policy by which only users write policies who may read what these read.

    Policies with parameters of other kinds than *param_kinds*, or that read other kinds than *resources*, are
    refused: otherwise they would come into force, unchecked, once the kind is listed.

    A policy with a paramKind requires the right to get all objects of the kind. A binding does not say of
    which kind its parameters are, so its paramRef requires the right to read the object, or to list all, of
    each kind. An expression that gets or lists objects requires the right to do so for all of them, and one
    of which no constant says what it reads the right to read everything.
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

    spec = {
        "matchConstraints": {
            "resourceRules": [
                {
                    "operations": ["CREATE", "UPDATE"],
                    "apiGroups": [GATEWAY_VERSION.partition("/")[0]],
                    "apiVersions": ["*"],
                    "resources": [plural_of(kind) for pair in POLICY_KINDS.items() for kind in pair],
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
            {
                "name": "reads",
                "expression": "request.resource.resource.endsWith('bindings') ? [] : readsOf(object.spec)",
            },
        ],
        "validations": [*_of_parameters(param_kinds), *_of_reads(resources)],
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
    yield {
        "expression": "!variables.kind.hasValue() || string(variables.kind.kind.orValue('')) "
        f"+ ' of ' + string(variables.kind.apiVersion.orValue('')) in {listed}",
        "message": f"expected a paramKind of policies.paramKinds: {_shown(listed)}",
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


def _of_reads(kinds: tuple[ListedKind, ...]) -> Iterator[Validation]:
    from gateway.pure.cel.spec_reads import EVERYTHING, as_read

    reads = [
        (as_read(verb, kind.api_version, kind.resource), verb, kind)
        for kind in kinds
        for verb in ("get", "list")
    ]
    known = [EVERYTHING, *(read for read, _, _ in reads)]
    listed = _shown([f"{kind.resource} of {kind.api_version}" for kind in kinds])
    yield {
        "expression": f"variables.reads.all(each, each in {known})",
        "message": f"expected expressions that read only policies.resources: {listed}",
    }
    everything = "authorizer.group('*').resource('*')"
    yield {
        "expression": f"!('{EVERYTHING}' in variables.reads) || "
        f"({everything}.check('get').allowed() && {everything}.check('list').allowed())",
        "message": "policies can show what they read: no constant says which objects this one reads, and the "
        "author has no right to get and list all",
        "reason": "Forbidden",
    }
    for read, verb, kind in reads:
        yield {
            "expression": f"!('{read}' in variables.reads) || {_access(kind)}.check('{verb}').allowed()",
            "message": f"policies can show what they read: the author has no right to {verb} all "
            f"{_in_group(kind)}",
            "reason": "Forbidden",
        }


def _access(kind: ListedKind) -> str:
    return f"authorizer.group('{kind.group}').resource('{kind.resource}')"


def _in_group(kind: ListedKind) -> str:
    return f"{kind.resource}.{kind.group}" if kind.group else kind.resource


def _shown(listed: list[str]) -> str:
    return one_of(listed) if listed else "it lists none"
