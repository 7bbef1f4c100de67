"""MutatingAdmissionPolicies with objects that show the rules of the API server."""

# ruff: noqa: E501 - a table

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.compare import Operation
from tests.e2e.objects import GROUP, config_map, deployment, widget, within
from tests.e2e.policy_comparison import HEAD, LABEL, MARK, Scenario
from tests.e2e.setups import rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    Json = dict[str, Any]

PARAMS: Final = (
    config_map("one", {"set": "both"}, key="a", value="1"),
    config_map("two", {"set": "both"}, key="b", value="2"),
)
"""Created in the namespace of the test, and written into the configuration."""
CONFIG_MAP: Final = {"apiVersion": "v1", "kind": "ConfigMap"}


def patch(expression: str) -> Json:
    """Return a mutation by a JSON Patch."""
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def apply(expression: str) -> Json:
    """Return a mutation by an ApplyConfiguration."""
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def add(path: str, value: str, op: str = "add") -> Json:
    """Return a mutation by one operation; *value* is an expression."""
    return patch(f'[JSONPatch{{op: "{op}", path: "{path}", value: {value}}}]')


def annotate(key: str, value: str) -> Json:
    """Return a mutation that sets an annotation to the value of an expression."""
    return apply(f'Object{{metadata: Object.metadata{{annotations: {{"{key}": {value}}}}}}}')


def documents(
    name: str,
    mutations: Sequence[Json],
    bindings: Sequence[Json] = ({},),
    label: str = "",
    resources: str = "configmaps",
    group: str = "",
    **spec: Any,
) -> tuple[Json, ...]:
    """Return a policy with its *bindings*, for objects with the *label*, by default the policy's name."""
    match = {
        "resourceRules": [rule(resources, "CREATE", "UPDATE", group=group)],
        "objectSelector": {"matchLabels": {LABEL: label or name}},
        **spec.pop("matchConstraints", {}),
    }
    policy = {"matchConstraints": match, "reinvocationPolicy": "Never", "mutations": list(mutations), **spec}
    made = [{**HEAD, "kind": "MutatingAdmissionPolicy", "metadata": {"name": name}, "spec": policy}]
    for number, binding in enumerate(bindings):
        made.append(
            {
                **HEAD,
                "kind": "MutatingAdmissionPolicyBinding",
                "metadata": {"name": f"{name}-{number}"},
                "spec": {"policyName": name, **binding},
            }
        )
    return tuple(made)


def created(document: Json, label: str, resource: str = "configmaps") -> Operation:
    """Return the creation of *document*, labelled, as a dry run."""
    labels = {**document["metadata"].get("labels", {}), LABEL: label}
    named = {**document, "metadata": {**document["metadata"], "labels": labels}}
    return Operation("POST", within(f"{resource}?dryRun=All", document["apiVersion"]), named)


def case(name: str, *mutations: Json, data: Json | None = None, **spec: Any) -> Scenario:
    """Return a policy for ConfigMaps, and the creation of one with *data*."""
    one = config_map(name, None, **(data or {"a": "1"}))
    one["metadata"]["annotations"] = {"count": "0"}
    return Scenario(name, documents(name, mutations, **spec), (created(one, name),))


def workload(name: str, *mutations: Json, **spec: Any) -> Scenario:
    """Return a policy for Deployments, and the creation of one."""
    made = documents(name, mutations, resources="deployments", group="apps", **spec)
    return Scenario(name, made, (created(deployment(name), name, "deployments"),))


COUNT: Final = annotate("count", 'string(int(object.metadata.annotations["count"]) + 1)')
TEMPLATE: Final = "Object{{spec: Object.spec{{template: Object.spec.template{{{}}}}}}}"


def template_spec(fields: str) -> str:
    """Return an ApplyConfiguration of the pod template's spec."""
    return TEMPLATE.format(f"spec: Object.spec.template.spec{{{fields}}}")


def containers(fields: str) -> str:
    """Return an ApplyConfiguration of one container."""
    return template_spec(f"containers: [Object.spec.template.spec.containers{{{fields}}}]")


_LABELLED: Final = [{"name": "labelled", "expression": "has(object.metadata.labels)"}]
_COMPARED: Final = add("/metadata/annotations", "{'labels': object.metadata.labels == '' ? 'x' : 'y'}")
GO_TYPES: Final = (
    case("go-map", add("/metadata/annotations", "object.metadata.labels"), matchConditions=_LABELLED),
    case("go-map-within", add("/metadata", "{'labels': object.metadata.labels}"), matchConditions=_LABELLED),
    case("go-list", add("/metadata/finalizers", "request.userInfo.groups")),
    case("go-struct", add("/data", "dyn(request.userInfo)")),
    case("go-map-compared", _COMPARED, matchConditions=_LABELLED),
)
"""A policy with matchConditions has typed objects in its mutations."""
JSON_PATCHES: Final = (
    case("map-of-object", add("/metadata/annotations", "object.metadata.labels")),
    case("map-of-object-compared", _COMPARED),
    case("empty-map-below", add("/metadata/labels", "{}"), add("/metadata/labels/a", "'b'")),
    case("empty-list-below", add("/metadata/finalizers", "[]"), add("/metadata/finalizers/-", "'example.com/a'")),
    workload("empty-selector-below", add("/spec/template/spec/nodeSelector", "{}"), add("/spec/template/spec/nodeSelector/a", "'b'")),
    workload("empty-limits-below", patch('object.spec.template.spec.containers.filter(c, !has(c.resources.limits)).map(c, JSONPatch{op: "add", path: "/spec/template/spec/containers/0/resources/limits", value: {}})'), add("/spec/template/spec/containers/0/resources/limits/memory", "'1Gi'")),
    workload("limits-below-whole", add("/spec/template/spec/containers/0/resources/limits", "{'cpu': '1'}"), add("/spec/template/spec/containers/0/resources/limits/memory", "'1Gi'")),
    case("empty-annotations-below", patch('[JSONPatch{op: "remove", path: "/metadata/annotations/count"}]'), add("/metadata/annotations/a", "'b'")),
    workload("empty-struct-below", add("/spec/template/spec/securityContext", "{}"), add("/spec/template/spec/securityContext/runAsNonRoot", "true")),
    case("add", add("/data/b", '"2"')),
    case("add-map", add("/data", '{"b": "2"}')),
    case("add-escaped", patch('[JSONPatch{op: "add", path: "/metadata/annotations/" + jsonpatch.escapeKey("a.b/c~d"), value: "x"}]')),
    case("remove", patch('[JSONPatch{op: "remove", path: "/data/a"}]')),
    case("replace", add("/data/a", '"2"', "replace")),
    case("replace-absent", add("/data/b", '"2"', "replace")),
    case("move", patch('[JSONPatch{op: "move", from: "/data/a", path: "/data/b"}]')),
    case("copy", patch('[JSONPatch{op: "copy", from: "/data/a", path: "/data/b"}]')),
    case("test-holds", patch('[JSONPatch{op: "test", path: "/data/a", value: "1"}, JSONPatch{op: "add", path: "/data/b", value: "2"}]')),
    case("test-fails", patch('[JSONPatch{op: "add", path: "/data/b", value: "2"}, JSONPatch{op: "test", path: "/data/a", value: "9"}]')),
    case("test-absent-null", patch('[JSONPatch{op: "test", path: "/data/b", value: null}, JSONPatch{op: "add", path: "/data/c", value: "2"}]')),
    case("test-no-parent", patch('[JSONPatch{op: "test", path: "/nothing/b", value: "1"}]')),
    case("no-operations", patch('object.metadata.name == "x" ? [JSONPatch{op: "remove", path: "/data"}] : []')),
    case("add-nowhere", add("/nothing/b", '"2"')),
    case("remove-absent", patch('[JSONPatch{op: "remove", path: "/data/b"}]')),
    case("remove-nowhere", patch('[JSONPatch{op: "remove", path: "/nothing/b"}]')),
    case("replace-nowhere", add("/nothing/b", '"2"', "replace")),
    case("replace-root-by-text", add("", '"x"', "replace")),
    case("move-absent", patch('[JSONPatch{op: "move", from: "/data/b", path: "/data/c"}]')),
    case("move-from-nowhere", patch('[JSONPatch{op: "move", from: "/nothing/b", path: "/data/c"}]')),
    case("move-to-nowhere", patch('[JSONPatch{op: "move", from: "/data/a", path: "/nothing/c"}]')),
    case("move-without-from", patch('[JSONPatch{op: "move", path: "/data/c"}]')),
    case("copy-from-nowhere", patch('[JSONPatch{op: "copy", from: "/nothing/b", path: "/data/c"}]')),
    case("copy-to-nowhere", patch('[JSONPatch{op: "copy", from: "/data/a", path: "/nothing/c"}]')),
    case("unknown-operation", patch('[JSONPatch{op: "merge", path: "/data"}]')),
    case("empty-operation", patch("[JSONPatch{}]")),
    case("add-to-root", add("", '{"a": "b"}')),
    case("no-slash", add("data", '"x"')),
    case("control-character", add("/data/b", '"x\\\\ny"')),
    case("control-character-in-path", patch('[JSONPatch{op: "add", path: "/data/a\\ab", value: "x"}]')),
    case("divides-by-zero", add("/data/b", 'string(1 / (int(object.data.a) - 1))')),
    case("type-of-value", add("/data/b", "timestamp('2026-01-01T00:00:00Z')")),
    case("duration-value", add("/data/b", "duration('90s')")),
    case("bytes-value", add("/data/b", "b'abc'")),
    case("quantity-value", add("/data/b", "quantity('1Ki')")),
    case("optional-value", add("/data/b", "optional.of('x')")),
    case("optional-none-value", add("/data/b", "optional.none()")),
    case("integer-keys", add("/data", "{1: 'a'}")),
    case("wrong-type-name", add("/metadata", 'Object.metadata{annotations: Object.metadata.labels{a: "b"}}')),
    case("fields-of-structs", add("/data", '{"op": JSONPatch{op: "x"}.op, "path": JSONPatch{}.path, "o": string(Object{a: "1"}.a), "has": string(has(Object{}.a))}')),
    case("equality-of-structs", add("/data", '{"a": string(JSONPatch{} == JSONPatch{op: ""}), "b": string(Object{a: 1} == Object{a: 1}), "c": string(Object{a: 1} == Object{a: 2})}')),
    workload("list-insert", add("/spec/template/spec/containers/0", '{"name": "first", "image": "x:1"}')),
    workload("list-append", add("/spec/template/spec/containers/-", '{"name": "last", "image": "x:1"}')),
    workload("list-struct", add("/spec/template/spec/containers/-", 'Object.spec.template.spec.containers{name: "x", image: "x:1", ports: [Object.spec.template.spec.containers.ports{containerPort: 80}]}')),
    workload("list-concatenation", add("/spec/template/spec/containers", 'object.spec.template.spec.containers + [Object.spec.template.spec.containers{name: "x", image: "x:1"}]')),
    workload("list-out-of-range", add("/spec/template/spec/containers/7", '{"name": "x"}')),
    workload("list-no-index", add("/spec/template/spec/containers/x", '{"name": "x"}')),
    workload("list-replace-end", add("/spec/template/spec/containers/-", '{"name": "x"}', "replace")),
    workload("list-remove-out-of-range", patch('[JSONPatch{op: "remove", path: "/spec/template/spec/containers/7"}]')),
    workload("list-test-out-of-range", patch('[JSONPatch{op: "test", path: "/spec/template/spec/containers/7", value: 1}]')),
    workload("list-copy-out-of-range", patch('[JSONPatch{op: "copy", from: "/spec/template/spec/containers/0", path: "/spec/template/spec/containers/7"}]')),
    workload("list-move-to-end", patch('[JSONPatch{op: "copy", from: "/spec/template/spec/containers/0", path: "/spec/template/spec/initContainers"}, JSONPatch{op: "remove", path: "/spec/template/spec/initContainers"}]')),
    workload("list-wrong-type-name", add("/spec/template/spec/containers/-", 'Object.spec.template.spec.containers{name: "x", ports: [Object.spec.template.spec.containers.portz{containerPort: 80}]}')),
    workload("number", add("/spec/replicas", "object.spec.replicas + 2")),
    workload("double", add("/spec/replicas", "3.0")),
    workload("node-selector", add("/spec/template/spec/nodeSelector", '{"zone": "a"}')),
)  # fmt: skip

APPLY_CONFIGURATIONS: Final = (
    case("apply-annotation", annotate("x", '"y"')),
    case("apply-data", apply('Object{data: {"b": "2"}}')),
    case("apply-nothing", apply("Object{}")),
    case("apply-optional", apply('Object{?data: has(object.data) ? optional.of({"z": "1"}) : optional.none(), ?binaryData: optional.none()}')),
    case("apply-kind", apply('Object{kind: "Secret", metadata: Object.metadata{labels: {"x": "y"}}}')),
    case("apply-unknown-field", apply('Object{datax: {"a": "b"}}')),
    case("apply-wrong-type", apply('Object{data: ["a"]}')),
    case("apply-wrong-scalar", apply("Object{data: {'a': 1}}")),
    case("apply-wrong-name", apply('Object{metadata: Object.metadatax{name: "x"}}')),
    case("apply-immutable", apply("Object{immutable: true}")),
    case("apply-null", apply("Object{data: null}")),
    workload("apply-replicas", apply("Object{spec: Object.spec{replicas: object.spec.replicas + 1}}")),
    workload("apply-image", apply(containers('name: "main", image: "x:2"'))),
    workload("apply-sidecar", apply(containers('name: "side", image: "x:2"'))),
    workload("apply-env", apply(containers('name: "main", env: [Object.spec.template.spec.containers.env{name: "A", value: "1"}]'))),
    workload("apply-resources", apply(containers('name: "main", resources: Object.spec.template.spec.containers.resources{limits: {"cpu": "1"}}'))),
    workload("apply-volumes", apply(template_spec('volumes: [Object.spec.template.spec.volumes{name: "x", emptyDir: Object.spec.template.spec.volumes.emptyDir{}}]'))),
    workload("apply-tolerations", apply(template_spec('tolerations: [Object.spec.template.spec.tolerations{key: "a", operator: "Exists"}]'))),
    workload("apply-args", apply(containers('name: "main", args: ["a"]'))),
    workload("apply-selector", apply('Object{spec: Object.spec{selector: Object.spec.selector{matchLabels: {"l": "v"}}}}')),
    workload("apply-no-key", apply(containers('image: "x:2"'))),
    workload("apply-two-alike", apply(template_spec('containers: [Object.spec.template.spec.containers{name: "main", image: "x:1"}, Object.spec.template.spec.containers{name: "main", image: "x:2"}]'))),
    workload("apply-order", apply(template_spec('containers: [Object.spec.template.spec.containers{name: "side", image: "x:1"}, Object.spec.template.spec.containers{name: "main", image: "x:2"}]'))),
    workload("apply-concatenation", apply("Object{spec: Object.spec{template: Object.spec.template{spec: Object.spec.template.spec{containers: object.spec.template.spec.containers + [Object.spec.template.spec.containers{name: 'x', image: 'x:1'}]}}}}")),
)  # fmt: skip


def _with_many_policies(name: str, reinvocation: Sequence[str], *, namespaced: bool = False) -> Scenario:
    """Return policies that count: each changes the same annotation."""
    found: list[Json] = []
    for number, policy in enumerate(reinvocation):
        found += documents(f"{name}-{number}", [COUNT], label=name, reinvocationPolicy=policy)
    one = config_map(name, None, a="1")
    one["metadata"]["annotations"] = {"count": "0"}
    return Scenario(name, tuple(found), (created(one, name),))


WHEN_A_IS_1: Final = {"name": "a", "expression": 'object.data.a == "1"'}
RULES: Final = (
    case("two-mutations", annotate("x", '"1"'), annotate("y", "object.metadata.annotations.x + '2'")),
    case("first-fails", add("/nothing/a", "1"), annotate("x", '"1"'), failurePolicy="Ignore"),
    case("both-fail", add("/nothing/a", "1"), add("/nothing/b", "1")),
    case("variables", annotate("x", "string(variables.n + variables.n)"), variables=[{"name": "n", "expression": "size(object.data)"}]),
    case("variables-again", add("/data/b", '"2"'), annotate("x", "string(variables.n)"), variables=[{"name": "n", "expression": "size(object.data)"}]),
    case("variable-fails", annotate("x", "string(variables.n)"), variables=[{"name": "n", "expression": "1 / 0"}]),
    case("condition-true", annotate("x", '"1"'), matchConditions=[WHEN_A_IS_1]),
    case("condition-false", annotate("x", '"1"'), data={"a": "2"}, matchConditions=[WHEN_A_IS_1]),
    case("condition-fails", annotate("x", '"1"'), matchConditions=[{"name": "a", "expression": "object.data.b == '1'"}]),
    case("condition-fails-ignored", annotate("x", '"1"'), failurePolicy="Ignore", matchConditions=[{"name": "a", "expression": "object.data.b == '1'"}]),
    case("ignored", apply('Object{datax: "x"}'), failurePolicy="Ignore"),
    case("costly", annotate("x", "string([1,2,3,4,5,6,7,8,9,10].all(a, [1,2,3,4,5,6,7,8,9,10].all(b, [1,2,3,4,5,6,7,8,9,10].all(c, [1,2,3,4,5,6,7,8,9,10].all(d, [1,2,3,4,5,6,7,8,9,10].all(e, [1,2,3,4,5,6,7,8,9,10].all(f, '0123456789' == '0123456789')))))))")),
    case("request", annotate("x", "request.operation + request.kind.kind + request.resource.resource + string(request.dryRun)")),
    case("namespace-object", annotate("x", "string(namespaceObject.metadata.name.size() > 0)")),
    case("old-object", annotate("x", "string(oldObject == null)")),
    case("authorizer", annotate("x", "string(authorizer.group('').resource('pods').namespace('default').check('create').allowed())")),
    case("param", annotate("x", "params.data.value"), paramKind=CONFIG_MAP, bindings=[{"paramRef": {"name": "one", "parameterNotFoundAction": "Deny"}}]),
    case("no-param", annotate("x", "params.data.value"), paramKind=CONFIG_MAP, bindings=[{"paramRef": {"name": "none", "parameterNotFoundAction": "Deny"}}]),
    case("no-param-allowed", annotate("x", "params.data.value"), paramKind=CONFIG_MAP, bindings=[{"paramRef": {"name": "none", "parameterNotFoundAction": "Allow"}}]),
    case("no-param-ignored", annotate("x", "params.data.value"), paramKind=CONFIG_MAP, failurePolicy="Ignore", bindings=[{"paramRef": {"name": "none", "parameterNotFoundAction": "Deny"}}]),
    case("params-by-label", apply("Object{metadata: Object.metadata{annotations: {params.data.key: params.data.value}}}"), paramKind=CONFIG_MAP, bindings=[{"paramRef": {"selector": {"matchLabels": {"set": "both"}}, "parameterNotFoundAction": "Deny"}}]),
    case("two-bindings", apply("Object{metadata: Object.metadata{annotations: {params.data.key: params.data.value}}}"), paramKind=CONFIG_MAP, bindings=[{"paramRef": {"name": each, "parameterNotFoundAction": "Deny"}} for each in ("one", "two")]),
    case("params-counted-again", apply("Object{metadata: Object.metadata{annotations: {params.data.key: params.data.value}}}"), COUNT, reinvocationPolicy="IfNeeded", paramKind=CONFIG_MAP, bindings=[{"paramRef": {"selector": {"matchLabels": {"set": "both"}}, "parameterNotFoundAction": "Deny"}}]),
    case("binding-does-not-match", annotate("x", '"1"'), bindings=[{"matchResources": {"objectSelector": {"matchLabels": {"no": "no"}}}}]),
    case("binding-excludes", annotate("x", '"1"'), bindings=[{"matchResources": {"excludeResourceRules": [rule("configmaps", "*")]}}]),
    case("unbound", annotate("x", '"1"'), bindings=[]),
    case("again", COUNT, reinvocationPolicy="IfNeeded"),
    case("again-under-a-condition", COUNT, reinvocationPolicy="IfNeeded", matchConditions=[{"name": "a", "expression": 'object.metadata.annotations["count"] == "0"'}]),
    _with_many_policies("once-each", ["Never"] * 3),
    _with_many_policies("again-each", ["IfNeeded", "IfNeeded", "Never"]),
    _with_many_policies("again-last", ["Never", "IfNeeded"]),
    Scenario(
        "selects-by-own-label",
        (
            *documents("selects-by-own-label-1", [apply('Object{metadata: Object.metadata{labels: {"second": "yes"}}}')], label="selects-by-own-label"),
            *documents("selects-by-own-label-2", [annotate("x", '"1"')], matchConstraints={"objectSelector": {"matchLabels": {"second": "yes"}}}),
        ),
        (created(config_map("selects", None, a="1"), "selects-by-own-label"),),
    ),
)  # fmt: skip


def _generated(seed: int) -> Scenario:
    """Return a policy with random operations on the data of a ConfigMap, or its annotations."""
    chance = random.Random(seed)
    add_data = 'JSONPatch{op: "add", path: "/data", value: {"c": "3"}}'
    places = [f"/data/{key}" for key in "abc"] + [f"/metadata/annotations/{key}" for key in ("count", "x")]
    places += ["/data/a/b", "/nothing/a"]
    values = ['"1"', '"2"', "object.data.?a.orValue('no')", "string(size(object.data))"]
    operations = (
        [chance.choice(['JSONPatch{op: "remove", path: "/data"}', add_data])] if chance.random() < 0.2 else []
    )
    for _ in range(chance.randint(1, 4)):
        op = chance.choice(["add", "add", "add", "remove", "replace", "move", "copy", "test"])
        fields = [f'op: "{op}"', f'path: "{chance.choice(places)}"']
        if op in ("move", "copy"):
            fields.append(f'from: "{chance.choice(places)}"')
        elif op != "remove":
            fields.append(f"value: {chance.choice(values)}")
        operations.append(f"JSONPatch{{{', '.join(fields)}}}")
    mutations = [patch(f"[{', '.join(operations)}]")]
    if chance.random() < 0.4:
        mutations.append(annotate("y", 'string(object.metadata.?annotations["x"].orValue("none"))'))
    data = {key: str(chance.randint(1, 2)) for key in "abc" if chance.random() < 0.6}
    policies = {
        "failurePolicy": chance.choice(["Fail", "Fail", "Ignore"]),
        "reinvocationPolicy": chance.choice(["Never", "IfNeeded"]),
    }
    return case(f"generated-{seed}", *mutations, data=data or {"z": "0"}, **policies)  # fmt: skip


GENERATED: Final = tuple(_generated(seed) for seed in range(80))
SCENARIOS: Final = (*GO_TYPES, *JSON_PATCHES, *APPLY_CONFIGURATIONS, *RULES, *GENERATED)


DIFFERENT: Final = (
    (case("unknown-field", add("/unknown", '"x"')), 500, 201),
    (case("wrong-type", add("/data", '"x"')), 500, 500),
    (
        workload(
            "between-mutations",
            add("/spec/template/spec/hostNetwork", "false"),
            patch('[JSONPatch{op: "remove", path: "/spec/template/spec/hostNetwork"}]'),
        ),
        403,
        201,
    ),
)
"""Scenarios with the status in the API server, and behind the gateway, which has no types of Go."""


def _canary() -> Scenario:
    name, custom = "zz-canary", "zy-canary"
    made = (created(config_map(name), name), created(widget(name=custom), custom, "widgets"))
    marking = documents(custom, [annotate(MARK, '"yes"')], resources="widgets", group=GROUP)
    return Scenario(name, (*marking, *documents(name, [add("/nothing/here", "1")])), made)


CANARY: Final = _canary()
"""Its name is the last one, so that all others are in force if it is. Another policy marks a custom resource,
whose schema the API server and the gateway read now and then."""
