"""The next Pod of a workload is what the API server's plug-ins make of it, or refuse."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.pure.workloads.known import LIMIT_RANGE, SERVICE_ACCOUNT, KnownObjects
from gateway.server.kubernetes.access import AccessPool
from gateway.tools.audit import plug_ins
from gateway.tools.audit.restarts import refusals_after
from tests.audit.kit import World, deployment, limit_range, pod
from tests.audit.test_follow import FAST
from tests.audit.test_incremental import scan
from tests.kit import PATIENCE_S
from tests.kubernetes.server import ApiServer
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.kit import Json

LIMITED = "object.spec.containers.all(c, has(c.resources.limits) && 'memory' in c.resources.limits)"
RUNTIME = {"handler": "h", "scheduling": {"nodeSelector": {"sandbox": "yes"}}}


def workload(**spec: Any) -> Json:
    """The content of a Deployment whose Pods have members of their spec."""
    found = deployment()
    found["spec"]["template"]["spec"] |= spec
    return found


@pytest.mark.parametrize(
    ("expression", "resource", "namespace", "content", "spec"),
    [
        (LIMITED, "limitranges", "shop", limit_range(default={"memory": "1Gi"}), {}),
        (
            "object.spec.nodeSelector['sandbox'] == 'yes'",
            *("runtimeclasses", "", RUNTIME),
            {"runtimeClassName": "only"},
        ),
        (
            "object.spec.priority == 7",
            *("priorityclasses", "", {"value": 7}),
            {"priorityClassName": "only"},
        ),
        (
            "object.spec.imagePullSecrets[0].name == 'pull'",
            *("serviceaccounts", "shop", {"imagePullSecrets": [{"name": "pull"}]}),
            {"serviceAccountName": "only"},
        ),
    ],
)
def test_policies_see_what_the_next_pod_gets_from_objects_of_the_cluster(
    world: World, expression: str, resource: str, namespace: str, content: Json, spec: Json
) -> None:
    world.policy("next", expression, resources=["pods"])
    world.add("shop", "deployments", "web", **workload(**spec))
    assert world.audit(status=1)["refusedAtRestart"] == 1
    world.set(resource, namespace, content)
    report = world.audit()
    assert (report["complete"], report["refusedAtRestart"], report["notes"]) == (True, 0, [])


def test_a_pod_that_a_plug_in_refuses_is_refused_at_the_next_restart(world: World) -> None:
    world.policy("all", "true", resources=["pods"])
    world.add("shop", "deployments", "lost", **workload(serviceAccountName="gone"))
    world.add("bank", "deployments", "large", **deployment())
    world.set("limitranges", "bank", limit_range(max={"memory": "1Gi"}, default={"memory": "2Gi"}))
    report = world.audit(status=1)
    assert (report["denied"], report["refusedAtRestart"], report["verdicts"]) == (0, 2, 2)
    found = {one["workload"]: (one["webhooks"], one["message"]) for one in report["workloads"]}
    assert found == {
        "Deployment/lost": (
            "ServiceAccount",
            'error looking up service account shop/gone: serviceaccount "gone" not found',
        ),
        "Deployment/large": (
            "LimitRanger",
            "maximum memory usage per Container is 1Gi, but limit is 2Gi",
        ),
    }


def test_what_webhooks_have_changed_is_looked_at_again() -> None:
    known = KnownObjects("shop")
    content = {"apiVersion": "v1", "kind": LIMIT_RANGE[1], "metadata": {"name": "only"}}
    known.add({**content, **limit_range(max={"memory": "1Gi"}, default={"memory": "512Mi"})})
    found = {"apiVersion": "v1", "kind": "Pod", **pod(name="p")}
    (refusal,) = refusals_after(found, known, 37, has_changed=False)
    assert refusal.message.endswith("No limit is specified")
    # A container that a webhook added gets the default, too.
    assert not refusals_after(found, known, 37, has_changed=True)


def test_without_the_rights_it_is_noted_and_the_audit_goes_on(world: World) -> None:
    world.policy("next", LIMITED, resources=["pods"])
    world.add("shop", "deployments", "web", **workload(serviceAccountName="gone"))
    world.set("limitranges", "shop", limit_range(default={"memory": "1Gi"}))
    refused = [lambda handler: handler.refuse(403, "not yours")] * len(plug_ins.KINDS)
    world.server.faults["list params"].extend(refused)
    report = world.audit(status=1)
    assert (report["complete"], report["refusedAtRestart"]) == (True, 1)
    assert report["workloads"][0]["webhooks"] == "next/next"
    resources = [line.partition(" ")[0] for line in report["notes"]]
    assert resources == ["limitranges", "serviceaccounts", "priorityclasses", "runtimeclasses"]
    assert all("not yours" in line for line in report["notes"])


@pytest.mark.parametrize("bound", ["MAX_BYTES", "MAX_OBJECT_BYTES"])
def test_objects_above_the_bounds_are_not_considered(
    world: World, monkeypatch: pytest.MonkeyPatch, bound: str
) -> None:
    monkeypatch.setattr(plug_ins, "MAX_OBJECTS", 1)
    monkeypatch.setattr(plug_ins, bound, 1000)
    world.policy("next", LIMITED, resources=["pods"])
    world.add("shop", "deployments", "web", **workload(serviceAccountName="z"))
    for name in ("a", "b"):
        world.add("shop", "serviceaccounts", name)
    world.set("limitranges", "shop", {**limit_range(default={"memory": "1Gi"}), "other": "x" * 1000})
    report = world.audit(status=1)
    # The account may be one of those that are not known.
    assert [one["webhooks"] for one in report["workloads"]] == ["next/next"]
    assert [line.partition(" ")[0] for line in report["notes"]] == ["limitranges", "serviceaccounts"]


async def test_the_bounds_hold_for_what_is_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plug_ins, "MAX_OBJECTS", 2)
    monkeypatch.setattr(plug_ins, "MAX_BYTES", 1500)
    accounts = {"namespace": "shop", "resource": "serviceaccounts"}
    async with ApiServer() as server:
        world = World(server, tmp_path)
        found = plug_ins.ClusterPlugIns()
        accesses: AccessPool[str] = AccessPool(KubernetesSettings(server.kubeconfig(tmp_path), None))
        found.follow(accesses, FAST)
        assert await found.wait_until_synced(PATIENCE_S)

        def known() -> list[str]:
            return [one["metadata"]["name"] for one in found.known().of("shop").all(SERVICE_ACCOUNT)]

        try:
            for name in ("a", "b"):
                world.add(**accounts, name=name, note="x" * 500)
            await until(lambda: known() == ["a", "b"])
            assert not found.notes
            # The second is above the bytes now, and the third above the number.
            world.add(**accounts, name="b", note="x" * 900)
            world.add(**accounts, name="c")
            await until(lambda: known() == ["a"] and bool(found.notes))
            world.add(**accounts, name="b", note="x" * 500)
            await until(lambda: known() == ["a", "b"])
            world.remove("shop", "serviceaccounts", "a")
            world.add(**accounts, name="d", note="x" * 600)
            await until(lambda: known() == ["b", "d"])
        finally:
            await found.close(accesses)
            await accesses.close()


def test_only_workloads_that_a_changed_object_concerns_are_evaluated_again(
    world: World, tmp_path: Path
) -> None:
    state = tmp_path / "state.db"
    world.policy("next", LIMITED, resources=["pods"])
    for namespace in ("shop", "bank"):
        world.add(namespace, "deployments", "web", **deployment())
        world.add(namespace, "pods", "p", **pod())
    assert scan(world, state)[0].evaluated == 4
    assert scan(world, state)[0].evaluated == 0
    world.set("limitranges", "shop", limit_range(default={"memory": "1Gi"}))
    changed, found = scan(world, state)
    assert changed.evaluated == 1
    assert [one["namespace"] for one in found if one["part"] == "restart"] == ["bank"]
    world.set("priorityclasses", "", {"value": 7})
    assert scan(world, state)[0].evaluated == 2
    # What plug-ins do not read does not count.
    world.set("priorityclasses", "", {"value": 7, "metadata": {"labels": {"a": "b"}}})
    assert scan(world, state)[0].evaluated == 0
