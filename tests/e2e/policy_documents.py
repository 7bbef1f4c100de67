"""ValidatingAdmissionPolicies and bindings, valid and invalid.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation_test.go.
"""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.policy_comparison import binding, bound, policy
from tests.recorded.recording import path_of

Json = dict[str, Any]

FILE: Final = path_of("policy-documents")
"""The fields at which the API server refuses them."""
RULE: Final = {
    "operations": ["CREATE"],
    "apiGroups": ["a"],
    "apiVersions": ["v1"],
    "resources": ["things"],
}
TRUE: Final = {"expression": "true"}
BROKEN: Final = "object.x in [1, 2, "
LONG: Final = "k" * 64


def _policy(name: str = "config", **spec: Any) -> Json:
    found = {"matchConstraints": {"resourceRules": [RULE]}, "validations": [TRUE], **spec}
    return policy(name, {key: value for key, value in found.items() if value is not None})


def _rules(*rules: Json, **match: Any) -> Json:
    return _policy(matchConstraints={"resourceRules": list(rules), **match})


def _rule(**fields: Any) -> Json:
    return _rules({**RULE, **fields})


def _resources(*resources: str) -> Json:
    return _rule(resources=list(resources))


def _validation(**fields: Any) -> Json:
    return _policy(validations=[{**TRUE, **fields}])


def _annotation(key: str = "something", value: str = "'x'", name: str = "config") -> Json:
    return _policy(name, auditAnnotations=[{"key": key, "valueExpression": value}])


def _condition(**fields: Any) -> Json:
    return _policy(matchConditions=[{"name": "c", **TRUE, **fields}])


def _variables(*pairs: tuple[str, str], use: str = "true") -> Json:
    return _policy(
        variables=[{"name": name, "expression": text} for name, text in pairs],
        validations=[{"expression": use}],
    )


def _param_kind(version: str, kind: str = "Example") -> Json:
    return _policy(paramKind={"apiVersion": version, "kind": kind})


def _binding(name: str = "b", policy_name: str = "config", **spec: Any) -> Json:
    found = {**bound(), **spec}
    return binding(name, policy_name, {key: value for key, value in found.items() if value is not None})


def _match(**fields: Any) -> Json:
    return _binding(matchResources={"resourceRules": [RULE], **fields})


def _param_ref(**fields: Any) -> Json:
    return _binding(paramRef={"parameterNotFoundAction": "Deny", **fields})


_NO_OPERATIONS: Final = ({**RULE, "operations": []}, {**RULE, "operations": []})
POLICIES: Final[dict[str, Json]] = {
    "minimal": _policy(),
    "name": _policy("!!!!"),
    "name-with-dots": _policy("a.b.c"),
    "name-in-capitals": _policy("Config"),
    "failure-policy": _policy(failurePolicy="other"),
    "failure-policy-ignore": _policy(failurePolicy="Ignore"),
    "param-kind-version-only": _param_kind("test.example.com"),
    "param-kind-no-kind": _param_kind("v1", ""),
    "param-kind-no-version": _param_kind(""),
    "param-kind-signs": _param_kind("!!!"),
    "param-kind-group-signs": _param_kind("!!!/v1"),
    "param-kind-version-signs": _param_kind("example.com/!!!"),
    "param-kind-slashes": _param_kind("a/b/c"),
    "param-kind-kind-signs": _param_kind("v1", "Exa mple"),
    "param-kind-core": _param_kind("v1", "ConfigMap"),
    "param-kind-group": _param_kind("example.com/v1beta1"),
    "no-validations": _policy(validations=None),
    "empty-validations": _policy(validations=[]),
    "annotations-only": _policy(validations=None, auditAnnotations=[{"key": "k", "valueExpression": "'x'"}]),
    "reason": _validation(reason="other"),
    "reason-unauthorized": _validation(reason="Unauthorized"),
    "reason-empty": _validation(reason=""),
    "reason-too-large": _validation(reason="RequestEntityTooLarge"),
    "no-match-constraints": _policy(matchConstraints=None),
    "no-rules": _rules(),
    "no-versions": _rule(apiVersions=None),
    "empty-versions": _rule(apiVersions=[]),
    "no-groups": _rule(apiGroups=[]),
    "no-resources": _rule(resources=[]),
    "empty-version": _rule(apiVersions=[""]),
    "empty-resource": _rule(resources=[""]),
    "core-group": _rule(apiGroups=[""]),
    "version-beside-all": _rule(apiVersions=["*", "v1"]),
    "group-beside-all": _rule(apiGroups=["*", "a"]),
    "scope": _rule(scope="other"),
    "scope-cluster": _rule(scope="Cluster"),
    "no-expression": _policy(validations=[{"message": "m"}]),
    "blank-expression": _policy(validations=[{"expression": "  "}]),
    "resource-name": _rule(resourceNames=["/./."]),
    "resource-name-dot": _rule(resourceNames=["."]),
    "resource-name-percent": _rule(resourceNames=["a%b"]),
    "resource-name-empty": _rule(resourceNames=[""]),
    "resource-names": _rule(resourceNames=["a", "A b", "c:d"]),
    "resource-name-twice": _rule(resourceNames=["test", "test"]),
    "match-policy": _rules(RULE, matchPolicy="other"),
    "match-policy-exact": _rules(RULE, matchPolicy="Exact"),
    "no-operations": _rules(*_NO_OPERATIONS, excludeResourceRules=list(_NO_OPERATIONS)),
    "operation-empty": _rule(operations=[""]),
    "operation-unknown": _rule(operations=["PATCH"]),
    "operation-lower-case": _rule(operations=["create"]),
    "operation-beside-all": _rule(operations=["*", "CREATE"]),
    "operation-connect": _rule(operations=["CONNECT", "DELETE", "UPDATE"]),
    "resources-all-and-subresource": _resources("*", "a/x"),
    "resources-all-and-one": _resources("*", "a"),
    "resources-all-of-one-and-one": _resources("a/*", "a/x"),
    "resources-all-of-one-and-itself": _resources("a/*", "a"),
    "resources-subresource-of-all": _resources("*/a", "x/a"),
    "resources-everything-and-one": _resources("*/*", "a"),
    "resources-subresource": _resources("pods/log"),
    "resources-slashes": _resources("a/b/c"),
    "resources-twice": _resources("a", "a"),
    "exclude-unknown-operation": _rules(RULE, excludeResourceRules=[{**RULE, "operations": ["x"]}]),
    "namespace-selector": _rules(RULE, namespaceSelector={"matchLabels": {"a b": "c"}}),
    "namespace-selector-value": _rules(RULE, namespaceSelector={"matchLabels": {"a": "b c"}}),
    "object-selector": _rules(RULE, objectSelector={"matchExpressions": [{"key": "a", "operator": "In"}]}),
    "object-selector-operator": _rules(
        RULE, objectSelector={"matchExpressions": [{"key": "a", "operator": "x", "values": ["b"]}]}
    ),
    "expression-syntax": _policy(validations=[{"expression": BROKEN}]),
    "expression-type": _policy(validations=[{"expression": "1"}]),
    "expression-dyn": _policy(validations=[{"expression": "object.a"}]),
    "expression-optional": _policy(validations=[{"expression": "object.?a"}]),
    "expression-list-of-types": _policy(validations=[{"expression": "object.a in [1, 'a']"}]),
    "expression-unknown-name": _policy(validations=[{"expression": "subject == 1"}]),
    "expression-params": _policy(validations=[{"expression": "params.a == 1"}]),
    "expression-variables": _policy(validations=[{"expression": "variables.a == 1"}]),
    "expression-request-field": _policy(validations=[{"expression": "request.nothing == 1"}]),
    "expression-namespace-field": _policy(validations=[{"expression": "namespaceObject.nothing == 1"}]),
    "expression-long": _policy(validations=[{"expression": "'" + "x" * 20_000 + "' != ''"}]),
    "message-lines": _validation(message="a\nb"),
    "message-carriage-return": _validation(message="a\rb"),
    "message-outer-lines": _validation(message="\na\n"),
    "message-blank": _validation(message="  "),
    "message-empty": _validation(message=""),
    "expression-lines-without-message": _policy(validations=[{"expression": "true ||\nfalse"}]),
    "expression-lines-with-message": _policy(validations=[{"expression": "true ||\nfalse", "message": "m"}]),
    "expression-lines-with-message-expression": _policy(
        validations=[{"expression": "true ||\nfalse", "messageExpression": "'m'"}]
    ),
    "expression-outer-lines": _policy(validations=[{"expression": "\ntrue\n"}]),
    "message-expression-syntax": _validation(messageExpression=BROKEN),
    "message-expression-type": _validation(messageExpression="0 == 0"),
    "message-expression-dyn": _validation(messageExpression="object.a"),
    "message-expression-blank": _validation(messageExpression=" "),
    "message-expression-empty": _validation(messageExpression=""),
    "message-expression-authorizer": _validation(
        messageExpression="authorizer.path('/').check('get').reason()"
    ),
    "annotation-key": _annotation("@"),
    "annotation-key-slash": _annotation("a/b"),
    "annotation-key-empty": _annotation(""),
    "annotation-key-of-policy": _annotation("key", name="nope!"),
    "annotation-key-long": _annotation(LONG),
    "annotation-key-longest": _annotation(LONG[1:]),
    "annotation-key-of-long-policy": _annotation(LONG[1:], name="p" * 253),
    "annotation-key-twice": _policy(
        auditAnnotations=[{"key": "a", "valueExpression": "'1'"}, {"key": "a", "valueExpression": "'2'"}]
    ),
    "annotation-type": _annotation(value="true"),
    "annotation-dyn": _annotation(value="object.a"),
    "annotation-null": _annotation(value="null"),
    "annotation-syntax": _annotation(value=BROKEN),
    "annotation-empty": _annotation(value=""),
    "annotation-long": _annotation(value="'" + "x" * 5119 + "'"),
    "annotation-longest": _annotation(value="'" + "x" * 5118 + "'"),
    "annotations-most": _policy(
        auditAnnotations=[{"key": f"k{number}", "valueExpression": "'x'"} for number in range(20)]
    ),
    "annotations-too-many": _policy(
        auditAnnotations=[{"key": f"k{number}", "valueExpression": "'x'"} for number in range(21)]
    ),
    "condition-name": _condition(name=""),
    "condition-name-signs": _condition(name="a b"),
    "condition-name-prefix": _condition(name="example.com/a"),
    "condition-syntax": _condition(expression=BROKEN),
    "condition-type": _condition(expression="1"),
    "condition-empty": _condition(expression=" "),
    "condition-params": _condition(expression="params.a == 'x'"),
    "condition-params-of-kind": _policy(
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"},
        matchConditions=[{"name": "c", "expression": "params.a == 'x'"}],
    ),
    "condition-variables": _policy(
        variables=[{"name": "a", "expression": "1"}],
        matchConditions=[{"name": "c", "expression": "variables.a == 1"}],
    ),
    "condition-authorizer": _condition(expression="authorizer.path('/').check('get').allowed()"),
    "conditions-of-one-name": _policy(matchConditions=[{"name": "c", **TRUE}, {"name": "c", **TRUE}]),
    "conditions-most": _policy(matchConditions=[{"name": f"c{number}", **TRUE} for number in range(64)]),
    "conditions-too-many": _policy(matchConditions=[{"name": f"c{number}", **TRUE} for number in range(65)]),
    "variable-no-name": _variables(("", "true")),
    "variable-name": _variables(("4ever", "true")),
    "variable-name-reserved": _variables(("if", "true")),
    "variable-name-dash": _variables(("a-b", "true")),
    "variable-name-underscore": _variables(("_", "true")),
    "variable-name-of-another": _variables(("object", "true"), use="variables.object"),
    "variable-twice": _variables(("a", "true"), ("a", "1"), use="variables.a == 1"),
    "variable-type": _variables(("a", "114 + '514'")),
    "variable-empty": _variables(("a", "")),
    "variable-unknown": _variables(("foo", "1"), use="variables.replicas == 2"),
    "variables-in-order": _variables(("foo", "1"), ("bar", "variables.foo + 1"), use="variables.bar > 1"),
    "variables-wrong-order": _variables(("a", "object"), ("b", "variables.foo + 1"), ("foo", "1")),
    "variable-itself": _variables(("a", "variables.a")),
    "variable-broken-and-used": _variables(("a", BROKEN), use="variables.a == 1"),
    "variable-authorizer": _variables(
        ("a", "authorizer.path('/').check('get').allowed()"), use="variables.a"
    ),
    "variable-authorizer-in-message": _policy(
        variables=[{"name": "a", "expression": "authorizer.path('/').check('get').reason()"}],
        validations=[{"expression": "true", "messageExpression": "variables.a"}],
    ),
    "variable-list-as-map": _variables(("a", "[1]"), use="variables.a['b'] == 1"),
    "variable-text-as-number": _variables(("a", "['b']"), use="variables.a[0] == 1"),
    "variable-number-as-text": _variables(("a", "1"), use="variables.a == 'b'"),
    "variable-of-optional-type": _variables(("a", "object.?b"), use="variables.a.hasValue()"),
    "unknown-field": _policy(unknown=1),
}
BINDINGS: Final[dict[str, Json]] = {
    "minimal": _binding(),
    "name": _binding("!!!!"),
    "no-policy-name": _binding(policy_name=""),
    "policy-name": _binding(policy_name="A b"),
    "match-policy": _match(matchPolicy="other"),
    "match-without-rules": _binding(matchResources={}),
    "match-with-empty-rules": _binding(matchResources={"resourceRules": []}),
    "no-operations": _match(resourceRules=list(_NO_OPERATIONS), excludeResourceRules=list(_NO_OPERATIONS)),
    "operation-empty": _match(resourceRules=[{**RULE, "operations": [""]}]),
    "operation-unknown": _match(resourceRules=[{**RULE, "operations": ["PATCH"]}]),
    "operation-beside-all": _match(resourceRules=[{**RULE, "operations": ["*", "CREATE"]}]),
    "resources-all-and-subresource": _match(resourceRules=[{**RULE, "resources": ["*", "a/x"]}]),
    "resources-all-of-one-and-one": _match(resourceRules=[{**RULE, "resources": ["a/*", "a/x"]}]),
    "resources-all-of-one-and-itself": _match(resourceRules=[{**RULE, "resources": ["a/*", "a"]}]),
    "resources-subresource-of-all": _match(resourceRules=[{**RULE, "resources": ["*/a", "x/a"]}]),
    "resources-everything-and-one": _match(resourceRules=[{**RULE, "resources": ["*/*", "a"]}]),
    "selector": _match(objectSelector={"matchLabels": {"a": "b c"}}),
    "no-actions": _binding(validationActions=None),
    "empty-actions": _binding(validationActions=[]),
    "action-twice": _binding(validationActions=["Deny", "Deny"]),
    "action-unknown": _binding(validationActions=["illegal"]),
    "actions-deny-and-warn": _binding(validationActions=["Deny", "Warn"]),
    "actions-deny-and-audit": _binding(validationActions=["Audit", "Deny"]),
    "param-name-and-selector": _param_ref(name="foo", selector={"matchLabels": {"a": "b"}}),
    "param-nothing": _param_ref(),
    "param-no-action": _binding(paramRef={"name": "foo"}),
    "param-action": _param_ref(name="foo", parameterNotFoundAction="invalid"),
    "param-name": _param_ref(name="a/b"),
    "param-name-capitals": _param_ref(name="A:b"),
    "param-namespace": _param_ref(name="a", namespace="b"),
    "param-namespace-signs": _param_ref(name="a", namespace="B c"),
    "param-selector": _param_ref(selector={}),
    "param-selector-invalid": _param_ref(selector={"matchLabels": {"a": "b c"}}),
}
DOCUMENTS: Final = {
    **{f"policy-{name}": each for name, each in POLICIES.items()},
    **{f"binding-{name}": each for name, each in BINDINGS.items()},
}
"""All by name."""
