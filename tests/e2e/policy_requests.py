"""ValidatingAdmissionPolicies that describe every kind of request, and that ask the authorizer.

Source: k8s.io/kubernetes test/integration/apiserver/cel: admission_policy_test.go, and of
validatingadmissionpolicy_test.go Test_ValidateSecondaryAuthorization and TestAuthorizationDecisionCaching.
"""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.client import MERGE_PATCH
from tests.e2e.cluster import STRANGER
from tests.e2e.compare import Operation
from tests.e2e.objects import GROUP, config_map, deployment, pod, widget, within
from tests.e2e.policy_cases import checks
from tests.e2e.policy_comparison import LABEL, Scenario, binding, bound, policy
from tests.e2e.policy_scenarios import DRY, NAMESPACES, RBAC, namespace, scenario
from tests.e2e.setups import rule

Json = dict[str, Any]

DESCRIPTION: Final = {
    "group": "request.resource.group",
    "version": "request.resource.version",
    "resource": "request.resource.resource",
    "subResource": "request.?subResource.orValue('')",
    "operation": "request.operation",
    "kind": "request.kind.group + '/' + request.kind.version + '/' + request.kind.kind",
    "requestKind": "request.requestKind.version + '/' + request.requestKind.kind",
    "name": "request.?name.orValue('').startsWith('described') ? request.name : 'other'",
    "namespaced": "string(has(request.namespace) && request.namespace != '')",
    "dryRun": "string(request.dryRun)",
    "object": "object == null ? 'none' : object.apiVersion + '/' + object.kind",
    "oldObject": "oldObject == null ? 'none' : oldObject.apiVersion + '/' + oldObject.kind",
    "options": "has(request.options) && request.options != null ? "
    "request.options.?apiVersion.orValue('-') + '/' + request.options.?kind.orValue('-') : 'none'",
    "user": "request.userInfo.username + ' ' + request.userInfo.groups.join(',')",
}


def described(name: str, resources: str, *operations: Operation, group: str = "") -> Scenario:
    """Return a scenario whose warnings describe each request, as in admission_policy_test.go."""
    message = " + ' ' + ".join(f"variables.{key}" for key in DESCRIPTION)
    spec = {
        "variables": [{"name": key, "expression": text} for key, text in DESCRIPTION.items()],
        "validations": [{"expression": "false", "messageExpression": message}],
    }
    return scenario(
        name, (rule(resources, group=group),), spec, *operations, bindings=(bound("Warn", "Audit"),)
    )


def _labelled(label: str, document: Json) -> Json:
    metadata = {**document["metadata"], "name": "described", "labels": {LABEL: label}}
    return {**document, "metadata": metadata}


EXISTING: Final = (
    (within("configmaps"), _labelled("described-config-maps", config_map())),
    (within("pods"), _labelled("described-pods", pod())),
    (within("deployments", "apps/v1"), _labelled("described-deployments", deployment())),
    (within("widgets", f"{GROUP}/v1"), _labelled("described-widgets", widget())),
    (within("configmaps"), config_map("protected", {LABEL: "protected"}, a="a")),
)
"""Objects that exist before the policies do, each with the path of its collection."""
ANNOTATION: Final = {"metadata": {"annotations": {"a": "b"}}}
EXEC: Final = "/exec?command=ls&container=main&stdout=true"


def _every_operation(path: str, document: Json) -> tuple[Operation, ...]:
    one = f"{path}/described{DRY}"
    other = {**document, "metadata": {**document["metadata"], "name": "described-2"}}
    return (
        Operation("POST", path + DRY, other),
        Operation("PATCH", one, ANNOTATION, MERGE_PATCH),
        Operation("PATCH", one, {"metadata": {"labels": {LABEL: "other"}}}, MERGE_PATCH),
        Operation("DELETE", one),
        Operation("DELETE", one, {"gracePeriodSeconds": 0}),
    )


DESCRIBED: Final = (
    described("described-config-maps", "configmaps", *_every_operation(*EXISTING[0])),
    described(
        "described-pods",
        "pods pods/*",
        *_every_operation(*EXISTING[1]),
        Operation("PATCH", within("pods/described/status") + DRY, {"status": {"reason": "x"}}, MERGE_PATCH),
        Operation(
            "PATCH",
            within("pods/described/ephemeralcontainers") + DRY,
            {"spec": {"ephemeralContainers": [{"name": "e", "image": "a"}]}},
            MERGE_PATCH,
        ),
    ),
    described(
        "described-deployments",
        "deployments deployments/status deployments/scale",
        *_every_operation(*EXISTING[2]),
        Operation("PATCH", within("deployments/described/status", "apps/v1") + DRY, ANNOTATION, MERGE_PATCH),
        group="apps",
    ),
    described("described-widgets", "widgets widgets/status", *_every_operation(*EXISTING[3]), group=GROUP),
    Scenario(
        "connections",
        (
            policy(
                "connections",
                {
                    "matchConstraints": {"resourceRules": [rule("pods/exec pods/attach", "CONNECT")]},
                    **checks(
                        {
                            "expression": "!('ls' in object.?command.orValue([]))",
                            "messageExpression": "object.kind + ' ' + object.command[0] + ' ' "
                            "+ request.kind.kind + ' ' + string(oldObject == null)",
                        }
                    ),
                },
            ),
            binding("connections", "connections", bound()),
        ),
        (
            Operation("POST", within("pods/described") + EXEC),
            Operation("POST", within("pods/described") + EXEC.replace("ls", "id")),
            Operation("POST", within("pods/described/attach?container=main&stdout=true")),
        ),
    ),
    scenario(
        "protected",
        (rule("configmaps", "DELETE", "UPDATE"),),
        checks(
            "request.operation != 'DELETE' || oldObject.metadata.labels.policy == 'x'",
            "oldObject == null || object == null || object.?data == oldObject.?data",
        ),
        Operation("DELETE", within("configmaps/protected") + DRY),
        Operation("PATCH", within("configmaps/protected") + DRY, {"data": {"a": "b"}}, MERGE_PATCH),
        Operation("PATCH", within("configmaps/protected") + DRY, ANNOTATION, MERGE_PATCH),
        Operation("DELETE", within("configmaps/described") + DRY),
    ),
)
VERB: Final = "authorizer.requestResource.check('anthropomorphize').allowed()"
DEPLOYMENT: Final = (
    "authorizer.group('apps').resource('deployments').subresource('status').namespace('default')"
    ".name('charmander').check('create').allowed()"
)
ACCOUNT: Final = (
    "authorizer.serviceAccount('default', 'extra-account').group('').resource('pods')"
    ".check('anthropomorphize').allowed()"
)
SAME: Final = (
    "authorizer.requestResource.check('test').reason() == authorizer.requestResource.check('test').reason()"
)
GRANTS: Final = (
    {"apiGroups": [""], "resources": ["namespaces"], "verbs": ["create", "update", "anthropomorphize"]},
    {
        "apiGroups": ["apps"],
        "resources": ["deployments/status"],
        "verbs": ["create"],
        "resourceNames": ["charmander"],
    },
)


def _role(name: str, *rules: Json) -> tuple[str, Json]:
    document = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": name}}
    return f"/apis/{RBAC}/v1/clusterroles", {**document, "rules": list(rules)}


def _granted(name: str, subject: Json) -> tuple[str, Json]:
    document = {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRoleBinding", "metadata": {"name": name}}
    reference = {"apiGroup": RBAC, "kind": "ClusterRole", "name": name}
    return f"/apis/{RBAC}/v1/clusterrolebindings", {**document, "roleRef": reference, "subjects": [subject]}


RIGHTS: Final = (
    _role("policies-stranger", *GRANTS),
    _granted("policies-stranger", {"apiGroup": RBAC, "kind": "User", "name": STRANGER}),
    _role("policies-account", {"apiGroups": [""], "resources": ["pods"], "verbs": ["anthropomorphize"]}),
    _granted("policies-account", {"kind": "ServiceAccount", "namespace": "default", "name": "extra-account"}),
)
"""What the subjects of ``AUTHORIZED`` may do, as paths of collections with objects."""


def authorized(name: str, expression: str) -> Scenario:
    return scenario(
        name, NAMESPACES, checks(expression), namespace("one", name, STRANGER), namespace("one", name)
    )


AUTHORIZED: Final = (
    authorized("may-create-a-deployment", DEPLOYMENT),
    authorized("may-not-create-a-deployment", DEPLOYMENT.replace("charmander", "other")),
    authorized("may-use-a-verb", VERB),
    authorized("may-not-use-a-verb", VERB.replace("anthropomorphize", "personify")),
    authorized("account-may-use-a-verb", ACCOUNT),
    authorized("account-may-not-use-a-verb", ACCOUNT.replace("extra-account", "other-account")),
    authorized("same-reason-twice", SAME),
    authorized("may-read-a-path", "authorizer.path('/healthz').check('get').allowed()"),
    authorized("error-of-the-authorizer", "authorizer.requestResource.check('x').errored()"),
)


SCENARIOS: Final = (*DESCRIBED, *AUTHORIZED)
