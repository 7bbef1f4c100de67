"""The objects that controllers create from workloads, and what the API server adds to Pods."""

from __future__ import annotations

from typing import Any

import pytest

from gateway.pure.workloads.expansion import created_by
from gateway.pure.workloads.known import PRIORITY_CLASS, RUNTIME_CLASS, SERVICE_ACCOUNT, KnownObjects
from gateway.pure.workloads.plug_ins import admitted

_TEMPLATE: dict[str, Any] = {
    "metadata": {"labels": {"app": "shop"}, "annotations": {"note": "kept"}},
    "spec": {"containers": [{"name": "shop", "image": "shop:1"}]},
}
_SPECS: dict[tuple[str, str], dict[str, Any]] = {
    ("apps/v1", "Deployment"): {"template": _TEMPLATE, "selector": {"matchLabels": {"app": "shop"}}},
    ("apps/v1", "ReplicaSet"): {"template": _TEMPLATE},
    ("apps/v1", "StatefulSet"): {
        "template": _TEMPLATE,
        "serviceName": "shops",
        "volumeClaimTemplates": [{"metadata": {"name": "data"}, "spec": {}}],
    },
    ("apps/v1", "DaemonSet"): {"template": _TEMPLATE},
    ("v1", "ReplicationController"): {"template": _TEMPLATE},
    ("batch/v1", "Job"): {"template": _TEMPLATE, "completionMode": "Indexed", "completions": 2},
    ("batch/v1", "CronJob"): {"schedule": "* * * * *", "jobTemplate": {"spec": {"template": _TEMPLATE}}},
    ("argoproj.io/v1alpha1", "Rollout"): {"template": _TEMPLATE},
}


def _workload(api_version: str, kind: str) -> dict[str, Any]:
    spec = _SPECS[api_version, kind]
    return {"apiVersion": api_version, "kind": kind, "metadata": {"name": "shop"}, "spec": spec}


@pytest.mark.parametrize(
    ("kind", "made", "controllers"),
    [
        (("apps/v1", "Deployment"), ["ReplicaSet", "Pod"], ["deployment", "replicaset"]),
        (("apps/v1", "ReplicaSet"), ["Pod"], ["replicaset"]),
        (("apps/v1", "StatefulSet"), ["PersistentVolumeClaim", "Pod"], ["statefulset", "statefulset"]),
        (("apps/v1", "DaemonSet"), ["Pod"], ["daemon-set"]),
        (("v1", "ReplicationController"), ["Pod"], ["replication"]),
        (("batch/v1", "Job"), ["Pod"], ["job"]),
        (("batch/v1", "CronJob"), ["Job", "Pod"], ["cronjob", "job"]),
    ],
)
def test_each_workload_has_its_chain(kind: tuple[str, str], made: list[str], controllers: list[str]) -> None:
    created = created_by(_workload(*kind), "shops")
    assert [one.object["kind"] for one in created] == made
    users = [f"system:serviceaccount:kube-system:{name}-controller" for name in controllers]
    assert [one.user for one in created] == users
    assert all(one.object["metadata"]["namespace"] == "shops" for one in created)
    pod = created[-1].object
    assert pod["metadata"]["labels"]["app"] == "shop"
    assert pod["metadata"]["annotations"]["note"] == "kept"
    assert pod["spec"]["containers"][0]["imagePullPolicy"] == "IfNotPresent"
    assert created == created_by(_workload(*kind), "shops"), "names and uids stay"


def test_the_pod_belongs_to_what_is_between() -> None:
    replica_set, pod = (one.object for one in created_by(_workload("apps/v1", "Deployment"), "shops"))
    name = replica_set["metadata"]["name"]
    assert pod["metadata"]["generateName"] == f"{name}-"
    assert "name" not in pod["metadata"]
    assert pod["metadata"]["ownerReferences"][0]["name"] == name
    assert pod["metadata"]["labels"]["pod-template-hash"] == name.removeprefix("shop-")


def test_paths_lead_to_the_template() -> None:
    for kind in _SPECS:
        workload = _workload(*kind)
        for one in created_by(workload, "shops"):
            found: Any = workload
            for name in one.template:
                found = found[int(name)] if isinstance(found, list) else found[name]
            assert isinstance(found, dict)


def test_an_unknown_kind_with_a_template_is_a_guess() -> None:
    [pod] = created_by(_workload("argoproj.io/v1alpha1", "Rollout"), "shops")
    assert pod.is_guess
    assert not any(one.is_guess for one in created_by(_workload("apps/v1", "Deployment"), "shops"))


@pytest.mark.parametrize(
    "found", [{}, {"kind": "Pod", "apiVersion": "v1"}, {"apiVersion": "v1", "kind": "List"}]
)
def test_other_objects_create_nothing(found: dict[str, Any]) -> None:
    assert created_by(found, "shops") == ()


def test_plug_ins_add_once() -> None:
    pod = created_by(_workload("apps/v1", "DaemonSet"), "shops")[-1].object
    once, refusals = admitted(pod, KnownObjects())
    assert not refusals
    spec = once["spec"]
    assert spec["serviceAccountName"] == "default"
    assert spec["volumes"][0]["name"] == spec["containers"][0]["volumeMounts"][0]["name"]
    assert spec["priority"] == 0
    # The DaemonSet's own tolerations of nodes that are not ready are without a time.
    assert spec["tolerations"] == pod["spec"]["tolerations"]
    assert admitted(once, KnownObjects()) == (once, [])
    assert "serviceAccountName" not in pod["spec"], "the Pod itself stays"


def test_a_class_gives_the_priority() -> None:
    known = KnownObjects()
    gold = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": "gold"}}
    assert known.add({**gold, "value": 7})

    def priority(name: str) -> object:
        pod = {"apiVersion": "v1", "kind": "Pod", "spec": {"priorityClassName": name, "containers": []}}
        return admitted(pod, known)[0]["spec"].get("priority")

    assert [priority(name) for name in ("gold", "system-node-critical", "other")] == [7, 2_000_001_000, None]


def test_what_is_known_only_in_part_refuses_nothing() -> None:
    spec = {"serviceAccountName": "a", "priorityClassName": "b", "runtimeClassName": "c", "containers": []}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "p"}, "spec": spec}
    assert admitted(pod, KnownObjects())[1] == []
    for kind, plug_in in (
        (SERVICE_ACCOUNT, "ServiceAccount"),
        (PRIORITY_CLASS, "Priority"),
        (RUNTIME_CLASS, "RuntimeClass"),
    ):
        [refusal] = admitted(pod, KnownObjects("shops", whole=frozenset({kind})))[1]
        assert refusal.plug_in == plug_in
