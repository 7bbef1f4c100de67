"""``GatewayConfiguration.policies``: the parameters that policies in custom resources may read.

The author of a policy sees its parameters: an expression can put them into a message. So a kind has to be
listed before a custom resource can name it, and a policy of the gateway's own lets only users write policies
and bindings who may read these parameters themselves.

Source: k8s.io/kubernetes pkg/registry/admissionregistration/validatingadmissionpolicy/authz.go and
validatingadmissionpolicybinding/authz.go, for the API server's own policies.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from gateway.base.text import one_of, shown
from gateway.config.documents import GATEWAY_VERSION, POLICY, POLICY_KINDS, plural_of
from gateway.config.fields import Fields, Report
from gateway.config.names import dns_1035_label, group_version
from gateway.pure.core.webhook import PolicyRef
from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from gateway.pure.core.webhook import Webhook

AUTHORS: Final = "policy-authors.admission-gateway.io"
"""The name of the policy that checks the authors of policies."""
MAX_PARAM_KINDS: Final = 32
_RESOURCE: Final = re.compile(r"[a-z]([-a-z0-9]{0,61}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class ListedParamKind:
    """A kind of parameters that policies in custom resources may use."""

    api_version: str
    kind: str
    resource: str
    """The plural name of the kind in the API."""

    @property
    def group(self) -> str:
        """The API group; empty for the core group."""
        return self.api_version.rpartition("/")[0]


@dataclass(frozen=True, slots=True)
class PolicySettings:
    """The settings of policies."""

    param_kinds: tuple[ListedParamKind, ...] = ()
    left_to_api_server: tuple[str, ...] = ()
    """Kinds of policies that the API server evaluates itself."""

    @property
    def plural_names(self) -> dict[tuple[str, str], str]:
        """The plural names of ``param_kinds``, by apiVersion and kind."""
        return {(one.api_version, one.kind): one.resource for one in self.param_kinds}


def read_policy_settings(fields: Fields) -> PolicySettings:
    """Return the ``policies`` group in *fields*."""
    found = fields.mappings("paramKinds")
    if len(found) > MAX_PARAM_KINDS:
        fields.problem("paramKinds", f"found {len(found)}, expected at most {MAX_PARAM_KINDS}")
    kinds: dict[tuple[str, str], ListedParamKind] = {}
    for one in found:
        kind = ListedParamKind(
            one.required_string("apiVersion", group_version),
            one.required_string("kind", lambda text: dns_1035_label(text.lower())),
            one.required_string("resource", _resource),
        )
        one.finish()
        key = kind.api_version, kind.kind
        if key in kinds:
            one.problem("kind", f"found {shown(kind.kind)} of {shown(kind.api_version)} twice")
        elif _RESOURCE.fullmatch(kind.resource):
            _check_resource(one, kind)
        kinds.setdefault(key, kind)
    left = [_left(fields, path, text) for path, text in fields.indexed_strings("leftToAPIServer")]
    fields.finish()
    return PolicySettings(tuple(kinds.values()), tuple(dict.fromkeys(left)))


def _check_resource(fields: Fields, kind: ListedParamKind) -> None:
    """Report a built-in *kind* with the plural name of another one, and Secret by either name.

    The gateway gets the right to read the resource, and the rights of authors are checked for it. A kind that
    is not built in is compared with the API server's discovery while the gateway runs.
    """
    known = RESOURCES.get(kind.group, {})
    of_resource = known.get(kind.resource)
    if not kind.group and (kind.kind.lower() == "secret" or kind.resource == "secrets"):
        name, found = ("kind", kind.kind) if kind.kind.lower() == "secret" else ("resource", kind.resource)
        fields.problem(name, f"found {found}, which is not allowed: messages of policies can contain it")
    elif of_resource is not None and of_resource.kind != kind.kind:
        fields.problem(
            "kind", f"found {shown(kind.kind)}, expected {of_resource.kind}, the kind of {kind.resource}"
        )
    elif of_resource is None:
        for one in known.values():
            if one.kind.lower() == kind.kind.lower():
                reason = f"expected {one.name}, the plural name of {one.kind}"
                fields.problem("resource", f"found {shown(kind.resource)}, {reason}")


def _resource(text: str) -> str | None:
    if _RESOURCE.fullmatch(text):
        return None
    return f"found {shown(text)}, expected the plural name of the kind, in small letters"


def _left(fields: Fields, path: str, text: str) -> str:
    if text not in POLICY_KINDS:
        fields.report.add(path, f"found {shown(text)}, expected {one_of(POLICY_KINDS)}")
    return text


@lru_cache(maxsize=8)
def authors_policy(kinds: tuple[ListedParamKind, ...]) -> Webhook:
    """Return the policy by which only users who may read parameters of *kinds* can write policies with them.

    Other kinds are refused.
    A policy with a paramKind requires the right to get all objects of the kind. A binding does not say of
    which kind its parameters are, so its paramRef requires the right to read the object, or to list all, of
    each kind.
    """
    # Imported late: expressions take time and memory that a configuration without policies does not need.
    from gateway.config.policies import read_validating_binding, read_validating_policy
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
    report = Report(AUTHORS)
    policy = read_validating_policy(Fields({"metadata": {"name": AUTHORS}, "spec": spec}, "", report))
    bound = {"policyName": AUTHORS, "validationActions": ["Deny"]}
    binding = read_validating_binding(Fields({"metadata": {"name": AUTHORS}, "spec": bound}, "", report))
    assert not report.found, report.found
    webhook = as_webhook(policy, [binding])
    return replace(webhook, client=PolicyRef(POLICY, is_guard=True))


def _validations(kind: ListedParamKind) -> tuple[dict[str, str], ...]:
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
