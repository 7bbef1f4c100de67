"""Patches that change an object's identity or break its metadata: with a gateway and without.

Without, the API server refuses the request, whatever the webhook's failurePolicy. Behind the gateway such a
patch is its webhook's failure, so that Ignore lets the request pass as it came. What the API server takes, or
sets right, has to come out the same. The table also records what each version of the API server does.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.client import JSON, MERGE_PATCH
from tests.e2e.objects import (
    GROUP,
    config_map,
    deployment,
    deployments,
    pod,
    widget,
    within,
)
from tests.e2e.setups import BehindGateway, Directly, Hook, rule

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

UID: Final = "4b0e0a50-0000-4000-8000-000000000000"
ENTRY: Final = {"manager": "m", "operation": "Update", "apiVersion": "v1", "fieldsType": "FieldsV1"}
OWNER: Final = {"apiVersion": "v1", "kind": "ConfigMap", "name": "n", "uid": UID}
BUILT_IN: Final = (
    "configmap-create configmap-update deployment-status deployment-scale eviction binding token"
)
CUSTOM: Final = "widget-create widget-update"
ALL: Final = f"{BUILT_IN} {CUSTOM}"


@dataclass(frozen=True)
class Case:
    """A patch of one field, and its effect."""

    patch: tuple[dict[str, Any], ...]
    refused: str = ""
    """Requests of which the API server refuses the patched object, and the gateway the patch."""
    stricter: str = ""
    """Requests for which the API server takes the patched object and the gateway refuses the patch."""
    left: str = ""
    """Requests whose patched object the API server refuses for a reason that the gateway cannot check."""
    varies: str = ""
    """Requests that API servers of some versions refuse and others do not."""


def put(path: str, value: object, refused: str = "", stricter: str = "") -> Case:
    return Case(({"op": "add", "path": path, "value": value},), refused, stricter)


def metadata(field: str, value: object, refused: str = "", stricter: str = "") -> Case:
    return put(f"/metadata/{field}", value, refused, stricter)


def typed(field: str, value: object) -> Case:
    """Return the case of a wrong type. Older API servers do not look at it in custom resources."""
    return Case(metadata(field, value).patch, ALL, varies=CUSTOM)


CASES: Final = {
    "api-version": put("/apiVersion", "v2", ALL),
    "api-version-of-other": put("/apiVersion", f"{GROUP}/v2", BUILT_IN, CUSTOM),
    "api-version-type": put("/apiVersion", 3, ALL),
    "api-version-empty": put("/apiVersion", "", CUSTOM),
    "kind": put("/kind", "Secret", ALL),
    "kind-type": put("/kind", {}, ALL),
    "kind-empty": put("/kind", None, CUSTOM),
    "metadata-type": put("/metadata", "x", ALL),
    "name": metadata(
        "name", "other", "configmap-update deployment-status widget-update eviction binding token"
    ),
    "name-empty": Case(
        metadata("name", "").patch,
        f"configmap-create configmap-update deployment-status eviction binding {CUSTOM}",
        varies="deployment-scale",
    ),
    "name-type": metadata("name", 3, ALL),
    "namespace": metadata(
        "namespace", "elsewhere", "configmap-create configmap-update deployment-status token " + CUSTOM
    ),
    "namespace-empty": Case(metadata("namespace", None).patch, varies="deployment-scale"),
    "namespace-type": metadata("namespace", 3, BUILT_IN, CUSTOM),
    "uid": Case(
        ({"op": "add", "path": "/metadata/uid", "value": UID},),
        "configmap-update deployment-status deployment-scale widget-update",
        # There was none, and that of the Pod or ServiceAccount is not part of the request.
        left="binding token",
        varies="token",
    ),
    "uid-empty": metadata("uid", ""),
    "uid-type": metadata("uid", 3, BUILT_IN, CUSTOM),
    "generation": metadata("generation", 7),
    "generation-type": metadata("generation", "7", BUILT_IN, CUSTOM),
    "created": metadata("creationTimestamp", "2020-01-01T00:00:00.5+02:00"),
    "created-type": metadata("creationTimestamp", "2020-02-30T00:00:00Z", BUILT_IN, CUSTOM),
    "deleted-type": typed("deletionTimestamp", "yesterday"),
    "grace-type": typed("deletionGracePeriodSeconds", 1.5),
    "label-type": typed("labels", {"a": 1}),
    "label-null": metadata("labels", {"a": None}),
    "labels-type": typed("labels", []),
    "annotation-type": typed("annotations", {"a": {}}),
    "finalizer-type": typed("finalizers", [3]),
    "owner-type": typed("ownerReferences", [3]),
    "owner-name-type": metadata("ownerReferences", [{**OWNER, "name": 3}], ALL),
    "owner-controller-type": typed("ownerReferences", [{**OWNER, "controller": "x"}]),
    "owner-twice": metadata("ownerReferences", [OWNER, OWNER]),
    "managed-type": typed("managedFields", [3]),
    "managed-manager-type": typed("managedFields", [{**ENTRY, "manager": 3}]),
    "managed-time-type": typed("managedFields", [{**ENTRY, "time": "x"}]),
    "managed-operation": metadata("managedFields", [{**ENTRY, "operation": "X"}]),
    "managed-fields-type": metadata("managedFields", [{**ENTRY, "fieldsV1": 3}]),
    "unknown": metadata("surprise", {"a": 1}),
}
CALLERS: Final = {f"patched-{name}": case for name, case in CASES.items()}


SOME: Final = tuple(CALLERS)[::6]


def hooks() -> list[Hook]:
    rules = (
        rule("configmaps pods/eviction pods/binding serviceaccounts/token"),
        rule("deployments/status deployments/scale", group="apps"),
        rule("widgets", group=GROUP),
    )
    script = {"by_user": {name: {"patch": list(case.patch)} for name, case in CALLERS.items()}}
    condition = {"name": "patched", "expression": "request.userInfo.username.startsWith('patched-')"}
    fields = {"failurePolicy": "Ignore", "matchConditions": [condition]}
    return [Hook("mutate", "identity.mutate.test", script, rules, fields=fields)]


class Requests:
    """Requests of users, each with the name of the case that patches it."""

    def __init__(self, cluster: Cluster) -> None:
        named = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}}
        self.namespace = cluster.api.create("/api/v1/namespaces", named).document["metadata"]["name"]
        self._api = cluster.api
        self._numbers = itertools.count()

    def run(self, user: str) -> dict[str, Answer]:
        """Return the result of each request of *user*."""

        def ask(method: str, path: str, document: object, content_type: str = JSON) -> Answer:
            headers = {"Impersonate-User": user, "Impersonate-Group": "system:masters"}
            return self._api.request(method, self._path(path), document, content_type, **headers)

        def change(path: str, document: object) -> Answer:
            return ask("PATCH", path, document, MERGE_PATCH)

        name = f"n{next(self._numbers)}"
        custom = within("widgets", f"{GROUP}/v1")
        labels = {"mine": "yes"}
        for path, document in (
            (within("configmaps"), config_map(f"{name}-old", labels)),
            (deployments(), deployment(name)),
            (custom, widget(name=f"{name}-old", labels=labels)),
            (within("pods"), pod(f"{name}-evicted")),
            (within("pods"), pod(f"{name}-bound")),
            (
                within("serviceaccounts"),
                {"apiVersion": "v1", "kind": "ServiceAccount", "metadata": {"name": name}},
            ),
        ):
            made = self._api.create(self._path(path), document)
            assert made.status == 201, made
        eviction = {"apiVersion": "policy/v1", "kind": "Eviction", "metadata": {"name": f"{name}-evicted"}}
        node = {"kind": "Node", "name": "nowhere"}
        binding = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {"name": f"{name}-bound"},
            "target": node,
        }
        token = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenRequest",
            "spec": {"audiences": ["a"]},
        }
        token["metadata"] = {"name": name, "namespace": self.namespace}
        changed = {"metadata": {"labels": {"mine": "changed"}}}
        return {
            "configmap-create": ask("POST", within("configmaps"), config_map(f"{name}-new", labels)),
            "configmap-update": change(within(f"configmaps/{name}-old"), changed),
            "deployment-status": change(deployments(f"{name}/status"), {"status": {"replicas": 1}}),
            "deployment-scale": change(deployments(f"{name}/scale"), {"spec": {"replicas": 2}}),
            "widget-create": ask("POST", custom, widget(name=f"{name}-new", labels=labels)),
            "widget-update": change(f"{custom}/{name}-old", changed),
            "eviction": ask("POST", within(f"pods/{name}-evicted/eviction"), eviction),
            "binding": ask("POST", within(f"pods/{name}-bound/binding"), binding),
            "token": ask("POST", within(f"serviceaccounts/{name}/token"), token),
        }

    def _path(self, path: str) -> str:
        return path.format(namespace=self.namespace)


def result_of(answer: Answer) -> tuple[int, Any, tuple[str, ...]]:
    """Return the part of an *answer* that shows whether the object was patched."""
    found = answer.document.get("metadata") or {}
    shown = ("labels", "annotations", "finalizers", "ownerReferences", "deletionTimestamp")
    return answer.status, {field: found.get(field) for field in shown}, answer.warnings


def test_some_patches_that_the_api_server_refuses_are_their_webhooks_failures(
    cluster: Cluster, widgets: None, tmp_path: Path
) -> None:
    assert_alike(cluster, tmp_path, {name: CALLERS[name] for name in SOME})


def test_the_other_patches_are_failures_too(cluster: Cluster, widgets: None, tmp_path: Path) -> None:
    assert_alike(cluster, tmp_path, {name: case for name, case in CALLERS.items() if name not in SOME})


def assert_alike(cluster: Cluster, folder: Path, callers: dict[str, Case]) -> None:
    """Fail unless the patches of *callers* have the effects in the table, with a gateway and without."""
    found = []
    kinds: tuple[tuple[Callable[..., Directly | BehindGateway], str], ...] = (
        (Directly, "direct"),
        (BehindGateway, "identity"),
    )
    for kind, called in kinds:
        requests = Requests(cluster)
        with kind(cluster, folder / called, hooks(), called):
            found.append({user: requests.run(user) for user in callers})
            plain = requests.run("nobody-in-particular")
    directly, behind_gateway = found
    assert [answer.status < 300 for answer in plain.values()] == [True] * len(plain)
    refused = {
        name: {request for request, answer in answers.items() if answer.status >= 400}
        - {*callers[name].varies.split()}
        for name, answers in directly.items()
    }
    assert refused == {
        name: {*case.refused.split(), *case.left.split()} - {*case.varies.split()}
        for name, case in callers.items()
    }
    for name, case in callers.items():
        for request, answer in behind_gateway[name].items():
            is_failed = request in f"{case.refused} {case.stricter}".split()
            expected = plain[request] if is_failed else directly[name][request]
            assert result_of(answer) == result_of(expected), (name, request, answer)
