"""What Kubernetes' own integration tests check of ValidatingAdmissionPolicies, on any kind of request.

Source: k8s.io/kubernetes test/integration/apiserver/cel/validatingadmissionpolicy_test.go.
"""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.cluster import ADMIN
from tests.e2e.compare import Operation
from tests.e2e.objects import GROUP, config_map, widget, within
from tests.e2e.policy_cases import CONFIG_MAP, checks
from tests.e2e.policy_comparison import LABEL, Scenario, binding, bound, policy
from tests.e2e.setups import rule

Json = dict[str, Any]

NAMESPACES: Final = (rule("namespaces", "CREATE"),)
CONFIG_MAPS: Final = (rule("configmaps", "CREATE"),)
WIDGETS: Final = (rule("widgets", "CREATE", group=GROUP),)
DRY: Final = "?dryRun=All"
RBAC: Final = "rbac.authorization.k8s.io"


def scenario(
    name: str,
    rules: tuple[Json, ...],
    spec: Json,
    *operations: Operation,
    bindings: tuple[Json, ...] = (bound(),),
    match: Json | None = None,
) -> Scenario:
    """Return a scenario whose policy matches objects with its own label."""
    own = {"resourceRules": list(rules), "objectSelector": {"matchLabels": {LABEL: name}}, **(match or {})}
    documents = [policy(name, {"matchConstraints": own, **spec})]
    documents += [binding(f"{name}-{number}", name, each) for number, each in enumerate(bindings)]
    return Scenario(name, tuple(documents), operations)


def created(path: str, document: Json, label: str, user: str = ADMIN, **labels: str) -> Operation:
    metadata = document["metadata"]
    labelled = {**metadata, "labels": {**metadata.get("labels", {}), **labels, LABEL: label}}
    return Operation("POST", path + DRY, {**document, "metadata": labelled}, user=user)


def namespace(name: str, label: str, user: str = ADMIN, **labels: str) -> Operation:
    document = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}}
    return created("/api/v1/namespaces", document, label, user, **labels)


def settings(name: str, label: str, where: str = within("configmaps"), **labels: str) -> Operation:
    return created(where, config_map(name), label, **labels)


def secret(name: str, label: str, **labels: str) -> Operation:
    document = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": name}}
    return created(within("secrets"), document, label, **labels)


def of_namespaces(name: str, expression: str | Json, **spec: Any) -> Scenario:
    """Return a scenario about the names of two namespaces, which are cluster-scoped."""
    made = (namespace("test-k8s", name), namespace("test-other", name))
    return scenario(name, NAMESPACES, {**checks(expression), **spec}, *made)


SUFFIX: Final = "object.metadata.name.endsWith('k8s')"
PARAM: Final = {"paramKind": CONFIG_MAP}
ON_NAMESPACES: Final = (
    of_namespaces("suffix-of-the-object", SUFFIX),
    of_namespaces("suffix-of-the-request", "request.name.endsWith('k8s')"),
    of_namespaces("suffix-forbidden", {"expression": SUFFIX, "reason": "Forbidden"}),
    of_namespaces("unknown-field", "object.nonExistentProperty == 'x'"),
    of_namespaces("unknown-field-ignored", "object.nonExistentProperty == 'x'", failurePolicy="Ignore"),
    of_namespaces("no-params-unguarded", "object.metadata.name.startsWith(params.metadata.name)", **PARAM),
    of_namespaces("no-params-has", f"has(params.metadata) && has(params.metadata.name) && {SUFFIX}", **PARAM),
    of_namespaces(
        "no-params-has-or", f"(has(params.metadata) && has(params.metadata.name)) || {SUFFIX}", **PARAM
    ),
    of_namespaces(
        "no-params-null", "params != null && object.metadata.name.endsWith(params.metadata.name)", **PARAM
    ),
    of_namespaces(
        "no-params-null-or", f"(params != null && params.metadata.name == 'x') || {SUFFIX}", **PARAM
    ),
    of_namespaces("no-params-optional", "params.?metadata.?name.orValue('x') == 'x'", **PARAM),
    of_namespaces("no-namespace-of-a-namespace", "namespaceObject == null"),
    of_namespaces("namespace-of-a-namespace", "namespaceObject.metadata.name == 'x'"),
    of_namespaces("namespace-of-a-namespace-has", "has(namespaceObject.metadata)"),
    of_namespaces(
        "request-namespace", "request.namespace == request.name && object.metadata.name != 'test-k8s'"
    ),
)

AUTHORIZER_CALL: Final = (
    "authorizer.group('apps').resource('deployments').subresource('status').namespace('test').name('backend')"
    ".check('create').allowed()"
)
TOO_MANY_CALLS: Final = " && ".join([AUTHORIZER_CALL] * 3)
TEN: Final = "[1, 2, 3, 4, 5, 6, 7, 8, 9, 10]"
DEEP: Final = (
    "".join(f"{TEN}.all({name}, " for name in ("x", "y", "z", "z2", "z3", "z4", "z5"))
    + "int('1'.find('[0-9]*')) < 100"
    + ")" * 7
)
COSTS: Final = (
    of_namespaces("cost-of-a-loop", DEEP),
    of_namespaces("cost-of-the-authorizer", TOO_MANY_CALLS),
    of_namespaces(
        "cost-of-a-variable", "variables.v", variables=[{"name": "v", "expression": TOO_MANY_CALLS}]
    ),
    of_namespaces(
        "cost-of-a-condition", "true", matchConditions=[{"name": "test", "expression": TOO_MANY_CALLS}]
    ),
    scenario(
        "cost-of-a-policy",
        NAMESPACES,
        checks(*[AUTHORIZER_CALL] * 29),
        namespace("test-k8s", "cost-of-a-policy"),
    ),
    scenario(
        "cost-just-within",
        NAMESPACES,
        checks(*[AUTHORIZER_CALL] * 28, "false"),
        namespace("test-k8s", "cost-just-within"),
    ),
    of_namespaces("cost-ignored", TOO_MANY_CALLS, failurePolicy="Ignore"),
)

ANNOTATED: Final = {
    **PARAM,
    "auditAnnotations": [
        {"key": "example-key", "valueExpression": "'object name: ' + object.metadata.name"},
        {"key": "exclude-key", "valueExpression": "null"},
    ],
}
BROKEN_ANNOTATION: Final = {
    **PARAM,
    "auditAnnotations": [{"key": "example-key", "valueExpression": "string(params.metadata.name)"}],
}


def of_config_maps(name: str, spec: Json, *actions: str) -> Scenario:
    return scenario(name, CONFIG_MAPS, spec, settings("test-nope", name), bindings=(bound(*actions),))


ACTIONS: Final = (
    of_config_maps("audit-annotations", ANNOTATED),
    of_config_maps("audit-annotations-broken", BROKEN_ANNOTATION),
    of_config_maps("audit-annotations-broken-ignored", {**BROKEN_ANNOTATION, "failurePolicy": "Ignore"}),
    of_config_maps("audit-annotations-broken-warn", BROKEN_ANNOTATION, "Warn"),
    of_config_maps("action-warn", {**PARAM, **checks(SUFFIX)}, "Warn"),
    of_config_maps("action-deny-and-audit", {**PARAM, **checks(SUFFIX)}, "Deny", "Audit"),
    of_config_maps("action-audit-of-two", checks("true", SUFFIX, "object.data.none == ''"), "Audit"),
)


def param_ref(name: str, **fields: Any) -> Json:
    return {"paramRef": {"name": name, "parameterNotFoundAction": "Deny", **fields}}


def _labelled_binding(label: str, param: str) -> Json:
    exists = {"matchExpressions": [{"key": label, "operator": "Exists"}]}
    return bound(**param_ref(param), matchResources={"objectSelector": exists})


PARAMS: Final = (
    config_map("suffix", data="k8s"),
    config_map("autofail", autofail="true"),
    config_map("autopass", autofail="false", conditional="false"),
    config_map("condpass", autofail="false", conditional="true", check="prefix-"),
    widget(name="size-limit"),
)
"""Beside those of ``policy_cases``."""
WITH_PARAMS: Final = (
    scenario(
        "params-of-a-given-namespace",
        NAMESPACES,
        {**PARAM, **checks("object.metadata.name.endsWith(params.data.data)")},
        namespace("test-k8s", "params-of-a-given-namespace"),
        namespace("test-foo", "params-of-a-given-namespace"),
        bindings=(bound(**param_ref("suffix", namespace="{namespace}")),),
    ),
    scenario(
        "params-of-no-namespace",
        (rule("clusterroles", "CREATE", group=RBAC),),
        {**PARAM, **checks("params.data.data == 'k8s'")},
        created(
            f"/apis/{RBAC}/v1/clusterroles",
            {"apiVersion": f"{RBAC}/v1", "kind": "ClusterRole", "metadata": {"name": "c"}, "rules": []},
            "params-of-no-namespace",
        ),
        bindings=(bound(**param_ref("suffix")),),
    ),
    scenario(
        "params-of-the-namespace-itself",
        NAMESPACES,
        {**PARAM, **checks("params.data.data == 'k8s'")},
        namespace("test-k8s", "params-of-the-namespace-itself"),
        bindings=(bound(**param_ref("suffix")),),
    ),
    scenario(
        "params-of-each-binding",
        (rule("secrets", "CREATE"),),
        {
            **PARAM,
            **checks(
                "params.data.autofail != 'true' && (params.data.conditional == 'false' "
                "|| object.metadata.name.startsWith(params.data.check))"
            ),
        },
        secret("one", "params-of-each-binding", autofail="true"),
        secret("one", "params-of-each-binding", autopass="true"),
        secret("prefix-one", "params-of-each-binding", condpass="true"),
        secret("one", "params-of-each-binding", condpass="true"),
        secret("one", "params-of-each-binding"),
        secret("one", "params-of-each-binding", autopass="true", condpass="true"),
        bindings=tuple(_labelled_binding(name, name) for name in ("autofail", "autopass", "condpass")),
    ),
    scenario(
        "params-of-a-custom-resource",
        CONFIG_MAPS,
        {
            "paramKind": {"apiVersion": f"{GROUP}/v1", "kind": "Widget"},
            **checks(
                "params.spec.size == 3 && params.spec.ratio == 0.5 && params.kind == 'Widget'",
                "object.metadata.name == 'of-' + string(params.spec.size)",
            ),
        },
        settings("of-3", "params-of-a-custom-resource"),
        settings("of-4", "params-of-a-custom-resource"),
        bindings=(bound(**param_ref("size-limit")),),
    ),
    scenario(
        "params-of-a-missing-kind",
        CONFIG_MAPS,
        {"paramKind": {"apiVersion": "example.com/v1", "kind": "Nothing"}, **checks("true")},
        settings("one", "params-of-a-missing-kind"),
        bindings=(bound(**param_ref("x")),),
    ),
    scenario(
        "params-of-a-missing-kind-audit",
        CONFIG_MAPS,
        {"paramKind": {"apiVersion": "example.com/v1", "kind": "Nothing"}, **checks("true")},
        settings("one", "params-of-a-missing-kind-audit"),
        bindings=(bound("Audit", **param_ref("x")),),
    ),
)

EVERYTHING: Final = {**rule("*", "*", group="*", version="*")}
FALSE: Final = checks({"expression": "false", "message": "matched"})
NOT_DEFAULT: Final = {
    "namespaceSelector": {
        "matchExpressions": [
            {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["default"]}
        ]
    }
}
IN_DEFAULT: Final = "/api/v1/namespaces/default/configmaps"


def _widget(version: str, label: str) -> Operation:
    return created(within("widgets", f"{GROUP}/{version}"), widget(version), label)


def _policy_object(label: str) -> Operation:
    spec = {"matchConstraints": {"resourceRules": list(CONFIG_MAPS)}, **checks("true")}
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicies"
    return created(path, policy("exempt", spec), label)


def _binding_object(label: str) -> Operation:
    path = "/apis/admissionregistration.k8s.io/v1/validatingadmissionpolicybindings"
    return created(path, binding("exempt", "exempt", bound()), label)


MATCHING: Final = (
    scenario(
        "exemption-of-policies",
        (EVERYTHING,),
        FALSE,
        _policy_object("exemption-of-policies"),
        _binding_object("exemption-of-policies"),
        settings("one", "exemption-of-policies"),
    ),
    scenario(
        "object-selector",
        CONFIG_MAPS,
        FALSE,
        settings("denied", "object-selector", foo="bar"),
        settings("allowed", "object-selector"),
        settings("allowed", "object-selector", foo="baz"),
        match={"objectSelector": {"matchLabels": {LABEL: "object-selector", "foo": "bar"}}},
    ),
    scenario(
        "namespace-selector",
        CONFIG_MAPS,
        FALSE,
        settings("one", "namespace-selector"),
        settings("one", "namespace-selector", IN_DEFAULT),
        match=NOT_DEFAULT,
    ),
    scenario(
        "namespace-selector-of-a-binding",
        (*CONFIG_MAPS, *NAMESPACES),
        FALSE,
        settings("one", "namespace-selector-of-a-binding"),
        settings("one", "namespace-selector-of-a-binding", IN_DEFAULT),
        namespace("default2", "namespace-selector-of-a-binding"),
        bindings=(bound(matchResources=NOT_DEFAULT),),
    ),
    scenario(
        "namespace-selector-of-namespaces",
        NAMESPACES,
        FALSE,
        namespace("one", "namespace-selector-of-namespaces", tier="x"),
        namespace("one", "namespace-selector-of-namespaces", tier="y"),
        namespace("one", "namespace-selector-of-namespaces"),
        match={"namespaceSelector": {"matchLabels": {"tier": "x"}}},
    ),
    scenario(
        "resource-names",
        ({**CONFIG_MAPS[0], "resourceNames": ["matched"]},),
        FALSE,
        settings("matched", "resource-names"),
        settings("unmatched", "resource-names"),
        created(
            within("configmaps"),
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"generateName": "matched"}},
            "resource-names",
        ),
    ),
    scenario(
        "excluded-resources",
        (rule("*", "*"),),
        FALSE,
        secret("one", "excluded-resources"),
        settings("one", "excluded-resources"),
        match={"excludeResourceRules": [rule("configmaps", "*")]},
    ),
    scenario(
        "excluded-in-a-binding",
        (rule("*", "*"),),
        FALSE,
        secret("one", "excluded-in-a-binding"),
        settings("one", "excluded-in-a-binding"),
        bindings=(bound(matchResources={"excludeResourceRules": [rule("configmaps", "CREATE")]}),),
    ),
    scenario(
        "rules-of-a-binding",
        (rule("*", "*"),),
        FALSE,
        secret("one", "rules-of-a-binding"),
        settings("one", "rules-of-a-binding"),
        bindings=(bound(matchResources={"resourceRules": [rule("secrets", "CREATE")]}),),
    ),
    scenario(
        "scope-cluster",
        ({**rule("configmaps namespaces", "CREATE"), "scope": "Cluster"},),
        FALSE,
        namespace("test", "scope-cluster"),
        settings("one", "scope-cluster"),
    ),
    scenario(
        "scope-namespaced",
        ({**rule("configmaps namespaces", "CREATE"), "scope": "Namespaced"},),
        FALSE,
        namespace("test", "scope-namespaced"),
        settings("one", "scope-namespaced"),
    ),
    scenario(
        "excluded-operation",
        (rule("configmaps secrets", "CREATE"),),
        FALSE,
        secret("one", "excluded-operation"),
        settings("one", "excluded-operation"),
        match={"excludeResourceRules": [rule("configmaps", "UPDATE"), rule("secrets", "CREATE", "UPDATE")]},
    ),
    scenario(
        "excluded-equivalent",
        WIDGETS,
        FALSE,
        _widget("v1", "excluded-equivalent"),
        _widget("v2", "excluded-equivalent"),
        match={"excludeResourceRules": [rule("widgets", "CREATE", group=GROUP, version="v2")]},
    ),
    scenario(
        "equivalent",
        WIDGETS,
        checks(
            {"expression": "false", "messageExpression": "object.apiVersion + ' ' + request.kind.version"}
        ),
        _widget("v1", "equivalent"),
        _widget("v2", "equivalent"),
    ),
    scenario(
        "exact",
        WIDGETS,
        FALSE,
        _widget("v1", "exact"),
        _widget("v2", "exact"),
        match={"matchPolicy": "Exact"},
    ),
    scenario(
        "exact-binding",
        WIDGETS,
        FALSE,
        _widget("v1", "exact-binding"),
        bindings=(bound(matchResources={"matchPolicy": "Exact", "resourceRules": list(WIDGETS)}),),
    ),
    Scenario(
        "excluded-kind",
        (
            policy(
                "excluded-kind",
                {
                    "matchConstraints": {
                        "resourceRules": [rule("selfsubjectreviews", group="authentication.k8s.io")]
                    },
                    **FALSE,
                },
            ),
            binding("excluded-kind", "excluded-kind", bound()),
        ),
        (
            Operation(
                "POST",
                "/apis/authentication.k8s.io/v1/selfsubjectreviews",
                {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"},
            ),
        ),
    ),
)

SCENARIOS: Final = (
    *ON_NAMESPACES,
    *COSTS,
    *ACTIONS,
    *WITH_PARAMS,
    *MATCHING,
)
