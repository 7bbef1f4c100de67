"""Every policy has an answer for any object, in any form, with any parameters that match its schema."""

from __future__ import annotations

import copy
from contextlib import suppress
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from admission_gateway_worker import Denied
from admission_gateway_worker.payload import MalformedPayload
from admission_gateway_worker.policies import definitions
from admission_gateway_worker.policies.cluster import ClusterError
from admission_gateway_worker.policies.definition import Definition
from admission_gateway_worker.policies.malformed import denying_malformed
from tests.library.requests import request, run

if TYPE_CHECKING:
    from hypothesis.strategies import SearchStrategy

    from admission_gateway_worker import Review
    from tests.library.api_server import ApiServer

    Json = dict[str, Any]

_CONTAINER: Final[Json] = {
    "name": "app",
    "image": "registry.example.com/app:1",
    "imagePullPolicy": "Always",
    "restartPolicy": "Always",
    "ports": [{"containerPort": 80, "hostPort": 80}],
    "env": [{"name": "a", "value": "b"}],
    "resources": {"requests": {"cpu": "1", "example.com/gpu": "1"}, "limits": {"memory": "1Gi"}},
    "volumeMounts": [{"name": "host", "mountPath": "/a", "readOnly": True}],
    "livenessProbe": {"httpGet": {"host": "a", "port": 80}},
    "readinessProbe": {"tcpSocket": {"host": "a", "port": 80}},
    "lifecycle": {"preStop": {"httpGet": {"host": "a", "port": 80}}},
    "securityContext": {
        "privileged": False,
        "runAsUser": 0,
        "runAsNonRoot": True,
        "procMount": "Default",
        "allowPrivilegeEscalation": False,
        "capabilities": {"add": ["NET_BIND_SERVICE"], "drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
        "seLinuxOptions": {"type": "container_t", "user": ""},
        "appArmorProfile": {"type": "RuntimeDefault"},
        "windowsOptions": {"hostProcess": True},
    },
}
_SPEC: Final[Json] = {
    "containers": [_CONTAINER],
    "initContainers": [_CONTAINER],
    "ephemeralContainers": [_CONTAINER],
    "hostNetwork": True,
    "hostUsers": False,
    "os": {"name": "linux"},
    "overhead": {"cpu": "1"},
    "nodeSelector": {"disk": "ssd"},
    "priority": 0,
    "priorityClassName": "high",
    "preemptionPolicy": "Never",
    "resources": {"requests": {"cpu": "2"}, "limits": {"cpu": "2"}},
    "restartPolicy": "Always",
    "runtimeClassName": "sandbox",
    "securityContext": {
        "runAsUser": 0,
        "sysctls": [{"name": "kernel.shm_rmid_forced", "value": "0"}],
        "seccompProfile": {"type": "Unconfined"},
        "seLinuxOptions": {"type": "container_t"},
        "windowsOptions": {"hostProcess": False},
    },
    "affinity": {
        "podAntiAffinity": {
            "requiredDuringSchedulingIgnoredDuringExecution": [{"topologyKey": "kubernetes.io/hostname"}]
        }
    },
    "tolerations": [{"key": "team", "operator": "Equal", "value": "a", "tolerationSeconds": 3}],
    "volumes": [
        {"name": "host", "hostPath": {"path": "/var/log"}},
        {"name": "image", "image": {"reference": "app:1", "pullPolicy": "Always"}},
    ],
}
_TEMPLATE: Final[Json] = {"metadata": {"labels": {"app": "a"}, "annotations": {"a": "b"}}, "spec": _SPEC}
_OF_WORKLOAD: Final[Json] = {
    "replicas": 1,
    "minReplicas": 1,
    "selector": {"matchLabels": {"app": "a"}, "matchExpressions": [{"key": "a", "operator": "Exists"}]},
    "template": _TEMPLATE,
}
_CSR: Final[Json] = {
    "signerName": "kubernetes.io/kube-apiserver-client",
    "request": "LS0tLS1CRUdJTiBDRVJUSUZJQ0FURSBSRVFVRVNULS0tLS0K",
}
_KINDS: Final[dict[str, tuple[str, Json]]] = {
    "pods": ("Pod", {"spec": _SPEC}),
    "pods/binding": ("Binding", {"target": {"kind": "Node", "name": "n"}}),
    "podtemplates": ("PodTemplate", {"template": _TEMPLATE}),
    "deployments": ("Deployment", {"spec": _OF_WORKLOAD}),
    "deployments/scale": ("Scale", {"kind": "Scale", "spec": {"replicas": 1}}),
    "horizontalpodautoscalers": ("HorizontalPodAutoscaler", {"spec": {"minReplicas": 1}}),
    "cronjobs": ("CronJob", {"spec": {"jobTemplate": {"spec": _OF_WORKLOAD}}}),
    "namespaces": ("Namespace", {}),
    "nodes": ("Node", {"spec": {"taints": [{"key": "a", "effect": "NoSchedule"}]}}),
    "services": ("Service", {"spec": {"externalIPs": ["10.0.0.1"]}}),
    "ingresses": (
        "Ingress",
        {"spec": {"ingressClassName": "a", "rules": [{"host": "a.example.com"}]}},
    ),
    "events": ("Event", {"source": {"component": "a"}, "involvedObject": {"kind": "Pod", "name": "a"}}),
    "certificatesigningrequests": (
        "CertificateSigningRequest",
        {"spec": _CSR, "status": {"certificate": "YQ==", "conditions": [{"type": "Approved"}]}},
    ),
    "persistentvolumeclaims": (
        "PersistentVolumeClaim",
        {
            "spec": {"storageClassName": "a", "resources": {"requests": {"storage": "1Gi"}}},
            "status": {"phase": "Bound"},
        },
    ),
    "priorityclasses": ("PriorityClass", {"globalDefault": True, "value": 1}),
}
_LISTS: Final = [
    "/api/v1/namespaces/default/pods",
    "/api/v1/nodes",
    "/apis/networking.k8s.io/v1/ingressclasses",
    "/apis/networking.k8s.io/v1/ingresses",
    "/apis/node.k8s.io/v1/runtimeclasses",
    "/apis/policy/v1/namespaces/default/poddisruptionbudgets",
    "/apis/scheduling.k8s.io/v1/priorityclasses",
    "/apis/storage.k8s.io/v1/storageclasses",
]
_METADATA: Final[Json] = {
    "name": "web",
    "namespace": "default",
    "labels": {"team": "a", "pod-security.kubernetes.io/enforce": "restricted"},
    "annotations": {"container.apparmor.security.beta.kubernetes.io/app": "runtime/default"},
    "finalizers": ["kubernetes.io/pv-protection"],
    "ownerReferences": [
        {"apiVersion": "v1", "kind": "Pod", "name": "a", "uid": "1", "blockOwnerDeletion": True}
    ],
}
_ODD: Final = st.sampled_from(
    [None, "", "x", "1e999999999", "-1", "\ud7ff\U0010ffff/@:", 0, -1, 1.5, 10**18, True, False]
) | st.sampled_from([[], [None], [[]], [{}], ["x"], [1], {}, {"x": None}, {"": {}}, {"x": [None]}])


def _places(found: object, path: tuple[Any, ...] = ()) -> list[tuple[Any, ...]]:
    """Return the paths of all parts of *found*."""
    each = found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    return [path, *(place for key, value in each for place in _places(value, (*path, key)))]


@st.composite
def _odd(draw: st.DrawFn, found: Json) -> Json:
    """Return *found* with odd values in up to three places, or without these."""
    changed = {"object": copy.deepcopy(found)}
    for _ in range(draw(st.integers(0, 3))):
        # Not the object itself, which the gateway sends as an object or null.
        places = _places(changed)[2:]
        if not places:
            break
        *path, key = draw(st.sampled_from(places))
        parent: Any = changed
        for each in path:
            parent = parent[each]
        if draw(st.booleans()) or isinstance(parent, list):
            parent[key] = copy.deepcopy(draw(_ODD))
        else:
            del parent[key]
    return changed["object"]


def _valid(schema: Any) -> SearchStrategy[Any]:
    """Return a strategy for documents that match *schema*, with the keywords that the library uses."""
    if "enum" in schema:
        return st.sampled_from(schema["enum"])
    kind = schema["type"]
    if isinstance(kind, list):
        return st.one_of(*(_valid({"type": each}) for each in kind))
    if kind == "array":
        items = _valid(schema["items"])
        unique = schema.get("uniqueItems", False)
        return st.lists(items, min_size=schema.get("minItems", 0), max_size=3, unique=unique)
    if kind == "object":
        required = set(schema.get("required", ()))
        known = {key: _valid(value) for key, value in schema.get("properties", {}).items()}
        fixed = st.fixed_dictionaries(
            {key: value for key, value in known.items() if key in required},
            optional={key: value for key, value in known.items() if key not in required},
        )
        others = schema.get("additionalProperties")
        if not isinstance(others, dict):
            return fixed
        named = st.dictionaries(
            st.sampled_from(["cpu", "memory", "team", "default"]), _valid(others), max_size=2
        )
        return st.builds(lambda more, found: {**more, **found}, named, fixed)
    if "pattern" in schema:
        return st.from_regex(schema["pattern"].replace("$", r"\Z"))
    texts = st.sampled_from(["1", "2Gi", "a", "a=b", "[", "x" * 70]) | st.text(min_size=1)
    return {
        "string": texts if schema.get("minLength") else texts | st.just(""),
        "integer": st.integers(schema.get("minimum", -(2**31)), 2**31),
        "number": st.integers() | st.floats(allow_nan=False, allow_infinity=False),
        "boolean": st.booleans(),
    }[kind]


@st.composite
def _requests(draw: st.DrawFn, definition: Definition) -> Json:
    """Return a request that matches the rules of *definition*, of any of their resources."""
    rule = draw(st.sampled_from(definition.rules))
    plurals = [each for each in rule["resources"] if each in _KINDS] or list(_KINDS)
    plural = draw(st.sampled_from(plurals))
    kind, found = _KINDS[plural]
    operations = [each for each in rule["operations"] if each != "*"] or ["CREATE", "UPDATE"]
    operation = draw(st.sampled_from(operations))
    resource, _, sub_resource = plural.partition("/")
    group = rule["apiGroups"][0].replace("*", "")
    whole = {"metadata": _METADATA, **found}
    return request(
        group,
        rule["apiVersions"][0].replace("*", "v1"),
        kind,
        draw(_odd(whole)) if operation != "DELETE" else None,
        None if operation == "CREATE" else draw(_odd(whole)),
        resource={"group": group, "version": "v1", "resource": resource},
        operation=operation,
        subResource=sub_resource,
        name="web",
        userInfo={"username": "ann", "groups": ["a"]},
    )


_NAMESPACE: Final[Json] = {"metadata": {"name": "default", "labels": {"a": "b"}, "annotations": {"a": "b"}}}


@pytest.mark.parametrize("definition", definitions(), ids=lambda each: each.name)
def test_a_policy_answers_whatever_the_object_is(definition: Definition, api_server: ApiServer) -> None:
    served = replace(definition, function=denying_malformed(definition.function))
    api_server.lists.update((path, []) for path in _LISTS)

    @settings(
        max_examples=30,
        deadline=None,
        suppress_health_check=[HealthCheck.too_slow],
    )
    @given(_requests(definition), _valid(definition.parameters))
    def check(admission_request: Json, parameters: Json) -> None:
        try:
            definition.prepare(copy.deepcopy(parameters))
        except ValueError:
            return
        with suppress(Denied):
            run(served, admission_request, parameters, namespace_object=_NAMESPACE).changes()

    check()


def _of(problem: Exception) -> Definition:
    def function(_: Review) -> None:
        raise problem

    return Definition("p", "", denying_malformed(function), (), "", "images")


@pytest.mark.parametrize(
    ("found", "text", "fields"),
    [
        ({"a": 1, "b": [{"c": [1, None]}]}, "b[0].c[1] is null (TypeError: bad)", ["b[0].c[1]"]),
        ({"a": None, "b": [{}]}, "a field has a wrong type, or is missing (TypeError: bad)", []),
    ],
)
def test_the_denial_names_the_null_in_a_list(
    found: Json, text: str, fields: list[str], caplog: pytest.LogCaptureFixture
) -> None:
    with pytest.raises(Denied) as caught:
        run(_of(TypeError("bad")), request("", "v1", "Pod", found))
    denied = caught.value
    assert (denied.message, denied.code, denied.reason) == (
        f"the Pod is malformed: {text}",
        400,
        "BadRequest",
    )
    assert [cause.field for cause in denied.causes] == fields
    assert caplog.messages == ["a policy cannot read the Pod of the review 1"]


@pytest.mark.parametrize("problem", [LookupError("no namespace"), MalformedPayload("x"), ClusterError("x")])
def test_other_failures_stay_failures(problem: Exception) -> None:
    with pytest.raises(type(problem), match=str(problem)):
        run(_of(problem), request("", "v1", "Pod", {}))
