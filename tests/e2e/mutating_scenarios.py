"""Kubernetes' own integration tests of MutatingAdmissionPolicy as scenarios.

Source: k8s.io/kubernetes test/integration/apiserver/cel/mutatingadmissionpolicy_test.go.
"""

# ruff: noqa: E501 - tables

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.e2e.compare import Operation
from tests.e2e.mutating_cases import (
    CONFIG_MAP,
    annotate,
    apply,
    created,
    documents,
    patch,
)
from tests.e2e.objects import GROUP, config_map, metadata, pod, widget
from tests.e2e.policy_comparison import Scenario
from tests.e2e.setups import rule

if TYPE_CHECKING:
    from collections.abc import Sequence

    Json = dict[str, Any]

PARAMS: Final = (
    config_map("native-param", None, key="myFooKey", value="myFooValue"),
    config_map("multi-1", {"multi": "true"}, key1="value1"),
    config_map("multi-2", {"multi": "true"}, key2="value2", key3="value3"),
    config_map("again-1", {"again": "true"}, firstApplied="true"),
    config_map("again-2", {"again": "true"}, secondApplied="true"),
    config_map("again-3", None, thirdApplied="true"),
    {
        **widget(name="param", labels={"param-label": "param-value", "shared-label": "from-param"}),
        "spec": {"foods": ["bamboo", "eucalyptus"], "habitat": {"name": "Sichuan"}},
    },
)
FINALIZERS: Final = "Object{{metadata: Object.metadata{{finalizers: {}}}}}"
NEW: Final = 'Object.metadata{finalizers: ["finalizer.k8s.io/new"]}.finalizers'
ADDRESSES: Final = "Object.subsets.addresses"


def endpoints(name: str, subsets: Sequence[Json] = (), **fields: Any) -> Json:
    """Return an Endpoints object."""
    one = {"apiVersion": "v1", "kind": "Endpoints", "metadata": metadata(name, **fields)}
    return {**one, "subsets": list(subsets)} if subsets else one


def case(name: str, *mutations: Json, **spec: Any) -> Scenario:
    """Return a policy for Endpoints, and the creation of an object."""
    current = spec.pop("current", None) or endpoints(name)
    made = documents(name, mutations, resources="endpoints", **spec)
    return Scenario(name, made, (created(current, name, "endpoints"),))


def add_addresses(name: str, value: str) -> Scenario:
    """Return a policy that adds addresses; *value* is an expression."""
    expression = f'[JSONPatch{{op: "add", path: "/subsets/0/addresses", value: {value}}}]'
    subset = {"notReadyAddresses": [{"ip": "1.2.3.4"}]}
    return case(name, patch(expression), current=endpoints(name, [subset]))


def finalizers(name: str, value: str) -> Scenario:
    """Return a policy that sets finalizers; *value* is an expression."""
    current = endpoints(name, finalizers=["finalizer.k8s.io/original"])
    return case(name, apply(FINALIZERS.format(value)), current=current)


COUNT: Final = '?"foo": optional.of(string(int(object.metadata.annotations["foo"]) + 1))'


def counting(name: str, key: str, label: str, **spec: Any) -> tuple[Json, ...]:
    """Return a policy that counts in an annotation."""
    expression = f'Object{{metadata: Object.metadata{{annotations: {{{COUNT}, "{key}": "true"}}}}}}'
    return documents(name, [apply(expression)], label=label, resources="endpoints", **spec)


def by_ref(**fields: Any) -> Json:
    """Return the spec of a binding with a parameter."""
    return {"paramRef": {"parameterNotFoundAction": "Allow", **fields}}


PARAM_DATA: Final = apply("Object{metadata: Object.metadata{annotations: params.data}}")
PARAM_AND_COUNT: Final = (
    PARAM_DATA,
    apply(f"Object{{metadata: Object.metadata{{annotations: {{{COUNT}}}}}}}"),
)
TEST_ONLY: Final = {
    "name": "test-only",
    "expression": 'object.metadata.?labels["environment"] == optional.of("test")',
}
PRODUCTION: Final = {
    "name": "production",
    "expression": 'object.metadata.?labels["environment"] == optional.of("production")',
}
APPLIED: Final = apply('Object{metadata: Object.metadata{labels: {"applied": "updated"}}}')

NATIVE: Final = (
    case("basic", annotate("my-foo-annotation", '"myAnnotationValue"')),
    add_addresses("complex-struct-object", f'[{ADDRESSES}{{ip: "10.0.0.1"}}]'),
    add_addresses("complex-struct", "[object.subsets[0].notReadyAddresses[0]]"),
    add_addresses("slice-complex-struct", "object.subsets[0].notReadyAddresses"),
    add_addresses("list-concat", "object.subsets[0].notReadyAddresses + [object.subsets[0].notReadyAddresses[0]]"),
    add_addresses("concat-typed-struct", f'object.subsets[0].notReadyAddresses + [{ADDRESSES}{{ip: "10.0.0.1"}}, {ADDRESSES}{{ip: "10.0.0.2"}}]'),
    add_addresses("concat-struct-typed", f'[{ADDRESSES}{{ip: "10.0.0.1"}}, {ADDRESSES}{{ip: "10.0.0.2"}}] + object.subsets[0].notReadyAddresses'),
    add_addresses("concat-struct-struct", f'[{ADDRESSES}{{ip: "10.0.0.1"}}] + [{ADDRESSES}{{ip: "10.0.0.2"}}]'),
    finalizers("apply-concat-typed-struct", f"object.metadata.finalizers + {NEW}"),
    finalizers("apply-concat-struct-typed", f"{NEW} + object.metadata.finalizers"),
    finalizers("apply-concat-struct-struct", f"{NEW} + {NEW.replace('new', 'newer')}"),
    case("map-comprehension", patch('[JSONPatch{op: "add", path: "/metadata/labels/added", value: object.metadata.labels.all(k, k != "invalid") ? "true" : "false"}]')),
    Scenario(
        "multiple-policies",
        (
            *documents("multi-policy-1", [annotate("foo1", '"foo1Value"')], label="multiple-policies", resources="endpoints"),
            *documents("multi-policy-2", [annotate("foo2", '"foo2Value"')], label="multiple-policies", resources="endpoints"),
        ),
        (created(endpoints("multi-policy"), "multiple-policies", "endpoints"),),
    ),
    case("native-param", apply('Object{metadata: Object.metadata{annotations: {params.data["key"]: params.data["value"]}}}'), paramKind=CONFIG_MAP, bindings=[by_ref(name="native-param")]),
    case("multi-param", PARAM_DATA, paramKind=CONFIG_MAP, bindings=[by_ref(selector={"matchLabels": {"multi": "true"}}, namespace="{namespace}")]),
    case(
        "policy-with-variables",
        annotate("foo1", "variables.foo1"),
        patch('[JSONPatch{op: "test", path: "/metadata/annotations", value: {"foo1": variables.foo1}}, JSONPatch{op: "add", path: "/metadata/annotations/foo2", value: variables.foo2}]'),
        annotate("foo3", '"foo3Value"'),
        variables=[
            {"name": "foo1", "expression": '"foo1" + "Value"'},
            {"name": "foo2", "expression": 'variables.foo1.replace("1", "2")'},
        ],
    ),
    case("match-condition", APPLIED, matchConditions=[TEST_ONLY], current=endpoints("match-condition", labels={"environment": "test"})),
    Scenario(
        "requiring-reinvocation",
        (
            *counting("policy-1", "firstApplied", "requiring-reinvocation", reinvocationPolicy="IfNeeded"),
            *counting("policy-2", "secondApplied", "requiring-reinvocation", reinvocationPolicy="IfNeeded"),
            *counting("policy-3", "thirdApplied", "requiring-reinvocation"),
        ),
        (created(endpoints("reinvoked", annotations={"foo": "0"}), "requiring-reinvocation", "endpoints"),),
    ),
    Scenario(
        "list-concat-of-a-pod",
        documents("list-concat-of-a-pod", [apply('Object{spec: Object.spec{containers: object.spec.containers + [Object.spec.containers{name: "sidecar", image: "busybox:1.36"}]}}')], resources="pods"),
        (created(pod("concat"), "list-concat-of-a-pod", "pods"),),
    ),
)  # fmt: skip

SLOW: Final = (
    case("unbound-policy", annotate("foo", '"fooValue"'), bindings=[]),
    case("failure-policy-ignore", apply('Object{spec: Object.spec{invalidField: "invalid apply configuration"}}'), failurePolicy="Ignore"),
    case("no-match-condition", APPLIED, matchConditions=[TEST_ONLY], current=endpoints("no-match", labels={"environment": "production"})),
    Scenario(
        "some-conditions-match",
        (
            *documents("some-1", [apply('Object{metadata: Object.metadata{labels: {"applied": "wrong"}}}')], label="some-conditions-match", resources="endpoints", matchConditions=[PRODUCTION]),
            *documents("some-2", [APPLIED], label="some-conditions-match", resources="endpoints", matchConditions=[TEST_ONLY]),
        ),
        (created(endpoints("some", labels={"environment": "test"}), "some-conditions-match", "endpoints"),),
    ),
    Scenario(
        "status-of-a-namespace",
        documents(
            "status-of-a-namespace",
            [apply('Object{status: Object.status{conditions: [Object.status.conditions{type: "NamespaceDeletionContentFailure", message: "mutated"}]}}')],
            matchConstraints={
                "resourceRules": [rule("namespaces/status", "*")],
                "objectSelector": {"matchLabels": {"kubernetes.io/metadata.name": "default"}},
            },
        ),
        (
            Operation(
                "PATCH",
                "/api/v1/namespaces/default/status?dryRun=All",
                {"status": {"conditions": [{"type": "NamespaceDeletionContentFailure", "status": "Unknown"}]}},
                "application/merge-patch+json",
            ),
        ),
    ),
    case("multi-binding", PARAM_DATA, paramKind=CONFIG_MAP, bindings=[by_ref(name="multi-1", namespace="{namespace}"), by_ref(name="multi-2", namespace="{namespace}")]),
    Scenario(
        "params-causing-reinvocation",
        (
            *documents("reinvoking", PARAM_AND_COUNT, [by_ref(selector={"matchLabels": {"again": "true"}})], "params-causing-reinvocation", "endpoints", paramKind=CONFIG_MAP, reinvocationPolicy="IfNeeded"),
            *documents("reinvoking-no-more", PARAM_AND_COUNT, [by_ref(name="again-3")], "params-causing-reinvocation", "endpoints", paramKind=CONFIG_MAP),
        ),
        (created(endpoints("params", annotations={"foo": "0"}), "params-causing-reinvocation", "endpoints"),),
    ),
)  # fmt: skip

CUSTOM: Final[dict[str, Any]] = {"resources": "widgets", "group": GROUP}


def custom(name: str, expression: str, spec: Json) -> Scenario:
    """Return a policy with a JSON Patch for widgets, and the creation of one with *spec*."""
    made = documents(name, [patch(expression)], **CUSTOM)
    return Scenario(name, made, (created({**widget(name=name), "spec": spec}, name, "widgets"),))


def applied(name: str, expression: str, spec: Json, *versions: str) -> Scenario:
    """Return a policy with an ApplyConfiguration for widgets, and the creation of one in each version."""
    made = documents(name, [apply(expression)], **CUSTOM)
    widgets = [{**widget(version, f"{name}-{version}"), "spec": spec} for version in versions or ("v1",)]
    return Scenario(name, made, tuple(created(each, name, "widgets") for each in widgets))


FOODS: Final[Json] = {"foods": ["bamboo"]}
CUSTOM_RESOURCES: Final = (
    custom("custom-concat-1", '[JSONPatch{op: "add", path: "/spec/foods", value: object.spec.foods + [Object.spec.foods{item: "eucalyptus"}]}]', {"foods": [{"item": "bamboo"}]}),
    custom("custom-concat-2", '[JSONPatch{op: "add", path: "/spec/foods", value: [Object.spec.foods{item: "eucalyptus"}] + object.spec.foods}]', {"foods": [{"item": "bamboo"}]}),
    custom("custom-concat-3", '[JSONPatch{op: "add", path: "/spec/foods", value: object.spec.foods + ["eucalyptus"]}]', FOODS),
    custom("custom-field", '[JSONPatch{op: "add", path: "/spec/diet/secondary", value: "eucalyptus"}, JSONPatch{op: "replace", path: "/spec/diet/dailyKg", value: "25"}]', {"diet": {"primary": "bamboo", "dailyKg": "15"}}),
    custom("custom-insertion", '[JSONPatch{op: "add", path: "/spec/habitat", value: Object.spec.habitat{name: "mountain", protected: true}}]', {"diet": {"primary": "bamboo"}}),
)  # fmt: skip
CUSTOM_APPLIED: Final = (
    applied("custom-versions", 'Object{metadata: Object.metadata{labels: {"mutated-panda": "true"}}}', FOODS, "v1", "v2"),
    applied("custom-apply-1", 'Object{spec: Object.spec{foods: object.spec.foods + Object.spec{foods: ["eucalyptus"]}.foods}}', FOODS),
    applied("custom-apply-2", 'Object{spec: Object.spec{foods: Object.spec{foods: ["eucalyptus"]}.foods + object.spec.foods}}', FOODS),
    applied("custom-apply-3", 'Object{spec: Object.spec{foods: object.spec.foods + ["eucalyptus"]}}', FOODS),
    applied("custom-apply-map", 'Object{spec: Object.spec{habitat: Object.spec.habitat{humidity: "85%", temperature: "20C"}}}', {"habitat": {"name": "bamboo-forest", "temperature": "22C"}}),
)  # fmt: skip
CUSTOM_PARAMS: Final = (
    Scenario(
        "custom-param",
        documents(
            "custom-param",
            [apply('Object{metadata: Object.metadata{annotations: {"panda-food": params.spec.foods[0], "panda-habitat": params.spec.habitat.name}, labels: params.metadata.labels}}')],
            [by_ref(name="param")],
            resources="pods",
            paramKind={"apiVersion": f"{GROUP}/v1", "kind": "Widget"},
        ),
        (created(pod("by-param", {"pod-label": "pod-value", "shared-label": "from-pod"}), "custom-param", "pods"),),
    ),
)  # fmt: skip
SCENARIOS: Final = (*NATIVE, *SLOW, *CUSTOM_RESOURCES, *CUSTOM_APPLIED, *CUSTOM_PARAMS)
