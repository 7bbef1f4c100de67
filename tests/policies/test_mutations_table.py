"""What mutating policies make of an object, as documents with a review.

``test_mutating.py`` has the other rows of these tables.

Source of the tables: k8s.io/apiserver pkg/admission/plugin/policy/mutating/patch/json_patch_test.go,
smd_test.go, compilation_test.go, dispatcher_test.go, plugin_test.go.
"""

# ruff: noqa: E501 - tables

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import ConfigError
from gateway.pure.core.conditions import AccessDecision
from gateway.pure.core.namespace import Namespace
from tests.core.build import resource
from tests.policies.documents import decided, mutating

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    Json = dict[str, Any]

X = "Object.spec.template.spec"
AT = "/spec/template/spec"
APP, COMMAND = {"name": "main-app", "image": "nginx:1.24"}, ["sh", "-c", "echo hello"]
REQUESTS = {"cpu": "100m", "memory": "128Mi"}
INIT = [
    {"name": f"init-{number}", "image": "alpine:3.18", "command": ["echo", f"init{number}"]}
    for number in (1, 2)
]
INITS = [
    f'{X}.initContainers{{name: "init-{number}", image: "alpine:3.18", command: ["echo", "init{number}"]}}'
    for number in (1, 2)
]
PLAIN = [{"name": f"init{number}", "image": "alpine:3.18"} for number in (1, 2)]
PLAINS = [f'{{"name": "init{number}", "image": "alpine:3.18"}}' for number in (1, 2)]
CONTAINERS = "object.spec.template.spec.containers"


def deployment(
    *containers: Json,
    labels: Json | None = None,
    init: Sequence[Json] = (),
    pod: Json | None = None,
    **spec: Any,
) -> Json:
    of_pod = {
        "containers": list(containers),
        **({"initContainers": list(init)} if init else {}),
        **(pod or {}),
    }
    return {
        "apiVersion": "apps/v1",
        "kind": "Deployment",
        "metadata": {"name": "d1", "namespace": "default", **({} if labels is None else {"labels": labels})},
        "spec": {**spec, "template": {"spec": of_pod}},
    }


def of_pod(fields: str) -> str:
    return f"Object{{spec: Object.spec{{template: Object.spec.template{{spec: {X}{{{fields}}}}}}}}}"


def add(path: str, value: str) -> str:
    return f'[JSONPatch{{op: "add", path: "{path}", value: {value}}}]'


def labels(**values: str) -> str:
    """Labels with these expressions, which may have dashes for ``_``."""
    listed = ", ".join(f'"{key.replace("_", "-")}": {value}' for key, value in values.items())
    return add("/metadata/labels", f"{{{listed}}}")


ALL = 'JSONPatch{{op: "add", path: "{}", from: "{}", value: {}}}'
SAME = ALL.format("path", "from", 1)
# Expression, object, object afterwards.
MUTATIONS: dict[str, tuple[str, Json, Json]] = {
    "fields of a patch": (
        labels(op='JSONPatch{op: "opValue"}.op', path='JSONPatch{path: "pathValue"}.path', **{"from": 'JSONPatch{from: "fromValue"}.from'}, value='string(JSONPatch{value: "valueValue"}.value)'),
        deployment(labels={}),
        deployment(labels={"op": "opValue", "path": "pathValue", "from": "fromValue", "value": "valueValue"}),
    ),
    "fields that a patch has": (
        labels(
            **{each: f'string(has(JSONPatch{{{each}: "x"}}.{each}))' for each in ("op", "path", "from", "value")},
            **{f"{each}_unset": f"string(has(JSONPatch{{}}.{each}))" for each in ("op", "path", "from", "value")},
        ),
        deployment(labels={}),
        deployment(labels={**dict.fromkeys(("op", "path", "from", "value"), "true"), **dict.fromkeys(("op-unset", "path-unset", "from-unset", "value-unset"), "false")}),
    ),
    "equal patches": (
        labels(
            empty="string(JSONPatch{} == JSONPatch{})",
            partial='string(JSONPatch{op: "add"} == JSONPatch{op: "add"})',
            same_all=f"string({SAME} == {SAME})",
            different_op='string(JSONPatch{op: "add"} == JSONPatch{op: "remove"})',
            different_path=f"string({ALL.format('x', 'from', 1)} == {SAME})",
            different_from=f"string({ALL.format('path', 'x', 1)} == {SAME})",
            different_value="string({} == {})".format(ALL.format("path", "from", '"1"'), SAME),
        ),
        deployment(labels={}),
        deployment(labels={**dict.fromkeys(("empty", "partial", "same-all"), "true"), **dict.fromkeys(("different-op", "different-path", "different-from", "different-value"), "false")}),
    ),
    "fields of an object": (labels(value='Object{field: "fieldValue"}.field'), deployment(labels={}), deployment(labels={"value": "fieldValue"})),
    "fields that an object has": (
        labels(field='string(has(Object{field: "fieldValue"}.field))', field_unset="string(has(Object{}.field))"),
        deployment(labels={}),
        deployment(labels={"field": "true", "field-unset": "false"}),
    ),
    "equal objects": (
        labels(empty="string(Object{} == Object{})", same='string(Object{field: "x"} == Object{field: "x"})', different='string(Object{field: "x"} == Object{field: "y"})'),
        deployment(labels={}),
        deployment(labels={"empty": "true", "same": "true", "different": "false"}),
    ),
    "types of objects are names": (add("/spec", "Object.invalid{replicas: 1}"), deployment(), {**deployment(), "spec": {"replicas": 1}}),
    # The API server refuses this field: a difference in the documentation.
    "fields that the kind does not have": (
        add(f"{AT}/containers/-", f'{X}.containers{{name: "x", ports: [{X}.containers.ports{{containerPortZ: 8080}}]}}'),
        deployment(APP),
        deployment(APP, {"name": "x", "ports": [{"containerPortZ": 8080}]}),
    ),
    "lists of other fields": (add(f"{AT}/containers", f"object.spec.template.spec.initContainers + {CONTAINERS}"), deployment(APP, init=PLAIN[:1]), deployment(PLAIN[0], APP, init=PLAIN[:1])),
    "a map before those of the object": (add(f"{AT}/initContainers", f"[{PLAINS[0]}] + {CONTAINERS}"), deployment(APP), deployment(APP, init=[PLAIN[0], APP])),
    "two maps": (add(f"{AT}/initContainers", f"[{PLAINS[0]}] + [{PLAINS[1]}]"), deployment(APP), deployment(APP, init=PLAIN)),
    "an Object after those of the object": (add(f"{AT}/initContainers", f"{CONTAINERS} + [{INITS[0]}]"), deployment(APP), deployment(APP, init=[APP, INIT[0]])),
    "a list of Objects": (add(f"{AT}/initContainers", f"[{INITS[0]}, {INITS[1]}]"), deployment(APP), deployment(APP, init=INIT)),
    "a number and a truth value": (
        f'[JSONPatch{{op: "add", path: "/spec/progressDeadlineSeconds", value: object.spec.replicas}}, JSONPatch{{op: "add", path: "{AT}/hostNetwork", value: object.spec.paused}}]',
        deployment(replicas=3, paused=True),
        deployment(replicas=3, paused=True, progressDeadlineSeconds=3, pod={"hostNetwork": True}),
    ),
    "quantities of the object": (
        add(f"{AT}/containers/0/resources/limits", '{"cpu": object.spec.template.spec.containers[0].resources.requests["cpu"], "memory": object.spec.template.spec.containers[0].resources.requests["memory"]}'),
        deployment({**APP, "resources": {"requests": REQUESTS}}),
        deployment({**APP, "resources": {"requests": REQUESTS, "limits": REQUESTS}}),
    ),
    "a map of quantities": (
        add(f"{AT}/containers/0/resources/limits", f"{CONTAINERS}[0].resources.requests"),
        deployment({**APP, "resources": {"requests": REQUESTS}}),
        deployment({**APP, "resources": {"requests": REQUESTS, "limits": REQUESTS}}),
    ),
    "a list of texts": (add(f"{AT}/containers/0/args", f"{CONTAINERS}[0].command"), deployment({**APP, "command": COMMAND}), deployment({**APP, "command": COMMAND, "args": COMMAND})),
    "an Object with Objects": (
        add(f"{AT}/containers/1", f'{X}.containers{{name: "sidecar", command: ["sh", "-c", "echo hello"], resources: {X}.containers.resources{{limits: {{"cpu": "100m", "memory": "128Mi"}}}}}}'),
        deployment(APP),
        deployment(APP, {"name": "sidecar", "command": COMMAND, "resources": {"limits": REQUESTS}}),
    ),
    "the kind of the request": (add("/spec/replicas", "request.kind.group == 'apps' && request.kind.version == 'v1' && request.kind.kind == 'Deployment' ? 10 : 0"), deployment(), deployment(replicas=10)),
    "the namespace": (add("/spec/replicas", "namespaceObject.metadata.name == 'ns1' ? 10 : 0"), deployment(), deployment(replicas=10)),
    "the authorizer": (add("/spec/replicas", "authorizer.group('').resource('endpoints').check('create').allowed() ? 10 : 0"), deployment(), deployment(replicas=10)),
    "an element is added": (of_pod(f'volumes: [{X}.volumes{{name: "y"}}]'), deployment(pod={"volumes": [{"name": "x"}]}), deployment(pod={"volumes": [{"name": "x"}, {"name": "y"}]})),
    "an element is merged": (
        of_pod(f'volumes: [{X}.volumes{{name: "y", hostPath: {X}.volumes.hostPath{{path: "a"}}}}]'),
        deployment(pod={"volumes": [{"name": "x"}, {"name": "y"}]}),
        deployment(pod={"volumes": [{"name": "x"}, {"name": "y", "hostPath": {"path": "a"}}]}),
    ),
    "the old object": ("Object{spec: Object.spec{replicas: oldObject.spec.replicas % 2 == 0 ? oldObject.spec.replicas + 1 : oldObject.spec.replicas}}", deployment(replicas=1), deployment(replicas=3)),
    "an Object of many": (
        f'Object{{spec: Object.spec{{replicas: 1, template: Object.spec.template{{metadata: Object.spec.template.metadata{{labels: {{"app": "nginx"}}}}, spec: {X}{{containers: [{X}.containers{{name: "nginx", image: "nginx:1.14.2", ports: [{X}.containers.ports{{containerPort: 80}}], resources: {X}.containers.resources{{limits: {{"cpu": "128M"}}}}}}]}}}}}}}}',
        {**deployment(), "spec": {}},
        {**deployment(), "spec": {"replicas": 1, "template": {"metadata": {"labels": {"app": "nginx"}}, "spec": {"containers": [{"name": "nginx", "image": "nginx:1.14.2", "ports": [{"containerPort": 80}], "resources": {"limits": {"cpu": "128M"}}}]}}}},
    ),
    "annotations and data": (
        'Object{metadata: Object.metadata{annotations: {"foo": "bar"}}, data: {"myfield": "myvalue"}}',
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c"}},
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "c", "annotations": {"foo": "bar"}}, "data": {"myfield": "myvalue"}},
    ),
    "a container is injected": (
        'Object{metadata: Object.metadata{annotations: {"foo": "bar"}}, spec: Object.spec{initContainers: [Object.spec.initContainers{name: "injected", image: "image"}]}}',
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": {"initContainers": [APP]}},
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p", "annotations": {"foo": "bar"}}, "spec": {"initContainers": [APP, {"name": "injected", "image": "image"}]}},
    ),
}  # fmt: skip
OF_DEPLOYMENT = {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "resource": resource("apps/v1/deployments")}  # fmt: skip
SPACE = Namespace("default", {}, b'{"metadata":{"name":"ns1"}}')


def allowed(_: Json) -> AccessDecision:
    return AccessDecision(allowed=True)


@pytest.mark.parametrize("case", MUTATIONS)
def test_a_mutation_changes_the_object(tmp_path: Path, case: str) -> None:
    expression, current, expected = MUTATIONS[case]
    members = {**OF_DEPLOYMENT, "object": current, "oldObject": deployment(replicas=2), "operation": "UPDATE"}
    documents = mutating("p", expression)
    answer = decided(tmp_path, documents, members, phase="mutate", authorize=allowed, space=SPACE)
    assert (answer.denials, answer.evaluation.final_object) == ([], expected)


DEAR = "".join(f"variables.list.all(x{number}, " for number in range(5)) + '"0123456789" == "0123456789")))))'


@pytest.mark.parametrize("form", [add("/spec/replicas", "{}"), "Object{{spec: Object.spec{{replicas: {}}}}}"])
def test_an_expression_that_costs_too_much(tmp_path: Path, form: str) -> None:
    mutation = (
        form.replace("{}", f"{DEAR} ? 1 : 0") if form.startswith("[") else form.format(f"{DEAR} ? 1 : 0")
    )
    listed = [{"name": "list", "expression": "lists.range(16)"}]
    documents = mutating("p", mutation, variables=listed)
    answer = decided(tmp_path, documents, {**OF_DEPLOYMENT, "object": deployment()}, phase="mutate")
    (denial,) = answer.denials
    assert denial.endswith("operation cancelled: actual cost limit exceeded")


@pytest.mark.parametrize(
    ("mutation", "problem"),
    [
        ('"teapot"', "must evaluate to Object but got string"),
        ("Object.spec.metadata{}", "must evaluate to Object but got Object.spec.metadata"),
    ],
)
def test_an_apply_configuration_is_an_object(tmp_path: Path, mutation: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        decided(tmp_path, mutating("p", mutation), phase="mutate")


def label(key: str, value: str) -> str:
    return f'Object{{metadata: Object.metadata{{labels: {{"{key}": {value}}}}}}}'


COUNT = 'string(int(object.?metadata.labels["count"].orValue("1")) + 1)'
PRODUCTION = [{"name": "prodonly", "expression": 'object.?metadata.labels["environment"].orValue("") == "production"'}]  # fmt: skip
SETS, NEEDS = label("environment", '"production"'), label("invoked", '"true"')
ENVIRONMENT = {"environment": "production"}


@pytest.mark.parametrize("reinvocation", ["Never", "IfNeeded"])
@pytest.mark.parametrize(
    ("first", "second", "expected"),
    [
        (
            mutating("policy1", label("policy1", COUNT)),
            mutating("policy2", label("policy2", COUNT)),
            {"policy1": "2", "policy2": "2"},
        ),
        (
            mutating("policy1", SETS),
            mutating("policy2", NEEDS, matchConditions=PRODUCTION),
            {**ENVIRONMENT, "invoked": "true"},
        ),
        # What the second policy changes does not make the first one match any more.
        (mutating("policy1", NEEDS, matchConditions=PRODUCTION), mutating("policy2", SETS), ENVIRONMENT),
    ],
    ids=["both", "the first makes the second match", "the second comes too late"],
)
def test_policies_of_one_object(
    tmp_path: Path, first: Sequence[Json], second: Sequence[Json], expected: Json, reinvocation: str
) -> None:
    documents = [
        {**each, "spec": {**each["spec"], "reinvocationPolicy": reinvocation}}
        if each["kind"] == "MutatingAdmissionPolicy"
        else each
        for each in (*first, *second)
    ]
    current = deployment(pod={"volumes": [{"name": "x"}]})
    answer = decided(tmp_path, documents, {**OF_DEPLOYMENT, "object": current}, phase="mutate")
    assert answer.evaluation.final_object == deployment(labels=expected, pod={"volumes": [{"name": "x"}]})
