"""A second audit evaluates only what may have another verdict, and its result is that of a full scan."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.config.merge.load import load
from gateway.server.kubernetes.access import ClusterAccess
from gateway.tools.audit.pace import Pace
from gateway.tools.audit.run import Audit, Options
from gateway.tools.audit.store import Store
from gateway.tools.cli.replay_sources import with_cluster
from gateway.tools.offline.gateway import offline_gateway
from tests.audit.kit import NAMED, NEXT, PLUG_INS, World, deployment, path_of, pod
from tests.kit import pool_document, webhook_document
from tests.kubernetes.server import ApiServer

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.tools.audit.run import Pass
    from tests.faults.kit import StartWorker

HOUR = 3600.0
NOON = 1_800_000_000.0
"""2027-01-15T08:00:00Z."""


async def audited(world: World, state: Path | None, now: float, max_age_s: float) -> tuple[Pass, list[Any]]:
    target = KubernetesSettings(world.server.kubeconfig(world.folder), None)
    config, store, access = with_cluster(load([world.config]), target), Store(state), ClusterAccess(target)
    try:
        async with offline_gateway(config) as gateway, access.api() as api:
            options = Options(owner_label="team", max_age_s=max_age_s)
            this = await Audit(api, gateway, store, Pace(10_000), options).run(now)
        return this, list(store.results())
    finally:
        store.close()
        await access.close()


def scan(
    world: World, state: Path | None = None, now: float = NOON, max_age_s: float = HOUR
) -> tuple[Pass, list[Any]]:
    """Return a pass at *now*, and its findings."""
    return asyncio.run(audited(world, state, now, max_age_s))


def exception(world: World, expires: str | None = None) -> None:
    """Write an exception from the policy ``named`` for the namespace shop."""
    spec: dict[str, Any] = {
        "webhooks": ["named"], "reason": "r", "owner": "o", "match": {"namespaces": ["shop"]},
    }  # fmt: skip
    world.write(
        "exception",
        {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "ClusterPolicyException",
            "metadata": {"name": "e"},
            "spec": {**spec, **({"permanent": True} if expires is None else {"expires": expires})},
        },
    )


@pytest.fixture
def state(tmp_path: Path) -> Path:
    return tmp_path / "state.db"


def test_a_second_audit_evaluates_only_the_objects_that_changed(world: World, state: Path) -> None:
    world.policy()
    for number in range(5):
        world.add("shop", "pods", f"p{number}", **pod())
    first, before = scan(world, state)
    assert (first.evaluated, len(before)) == (5, 5)
    second, after = scan(world, state, NOON + 5)
    assert (second.evaluated, second.subjects) == (0, 5)
    assert after == before
    world.add("shop", "pods", "p1", **pod(labels={"team": "a"}))
    # What only the API server writes does not count.
    world.add("shop", "pods", "p2", **pod(), status={"phase": "Running"})
    world.remove("shop", "pods", "p3")
    third, now = scan(world, state, NOON + 10)
    assert third.evaluated == 1
    assert [one["name"] for one in now] == ["p0", "p2", "p4"]


def test_a_changed_policy_is_evaluated_on_the_objects_of_its_rules_and_namespaces(
    world: World, state: Path
) -> None:
    world.policy("pods", "false", resources=["pods"])
    world.policy("maps", "false", resources=["configmaps"])
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}
    rules = [{"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}]
    world.policy("shops", "false", matchConstraints={"resourceRules": rules, **selector})
    for namespace in ("shop", "bank"):
        world.add(namespace, "pods", "p", **pod())
        world.add(namespace, "configmaps", "m")
    assert scan(world, state)[0].evaluated == 4
    world.policy("maps", "true", resources=["configmaps"])
    assert scan(world, state)[0].evaluated == 2
    world.policy("shops", "true", matchConstraints={"resourceRules": rules, **selector})
    changed, found = scan(world, state)
    assert changed.evaluated == 1
    assert found == scan(world)[1]


def test_labels_of_a_namespace_and_exceptions_by_the_clock_count(world: World, state: Path) -> None:
    world.policy()
    for namespace in ("shop", "bank"):
        world.add(namespace, "pods", "p", **pod())
    exception(world, "2027-01-15T08:30:00Z")
    first, found = scan(world, state)
    assert (first.evaluated, [one["namespace"] for one in found]) == (2, ["bank"])
    world.server.put("bank", team="b")
    labels, found = scan(world, state)
    assert (labels.evaluated, [one["ownerLabel"] for one in found]) == (1, ["b"])
    later, found = scan(world, state, NOON + HOUR)
    assert (later.evaluated, [one["namespace"] for one in found]) == (1, ["bank", "shop"])
    exception(world)
    again, found = scan(world, state, NOON + HOUR)
    assert (again.evaluated, [one["namespace"] for one in found]) == (1, ["bank"])


def test_a_verdict_that_may_depend_on_more_holds_for_a_time_and_others_hold(
    world: World, state: Path
) -> None:
    asks = "authorizer.group('').resource('pods').check('get').allowed() || true"
    kubernetes = {"kubeconfig": str(world.server.kubeconfig(world.folder))}
    world.write(
        "gateway",
        {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "GatewayConfiguration",
            "metadata": {"name": "g"},
            "kubernetes": kubernetes,
        },
    )
    conditions = [{"name": "asks", "expression": asks}]
    world.policy("asking", "false", matchConditions=conditions, resources=["pods"])
    world.policy("maps", "false", resources=["configmaps"])
    world.add("shop", "pods", "p", **pod())
    world.add("shop", "configmaps", "m")
    assert scan(world, state)[0].evaluated == 2
    assert scan(world, state, NOON + HOUR / 2)[0].evaluated == 0
    assert scan(world, state, NOON + HOUR)[0].evaluated == 1
    assert scan(world, state, NOON + 100 * HOUR, max_age_s=1000 * HOUR)[0].evaluated == 0


def test_an_object_without_a_verdict_is_evaluated_again(
    world: World, state: Path, start_worker: StartWorker
) -> None:
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
    (world.config / "c.yaml").write_text(
        pool_document("pool", start_worker().target)
        + webhook_document("validate", "v", "pool", {"status": "INTERNAL"}, rules=rules, timeoutSeconds=30)
    )
    world.add("shop", "pods", "p", **pod())
    first, found = scan(world, state)
    assert [one["finding"] for one in found] == ["failed"]
    assert first.evaluated == scan(world, state)[0].evaluated == 1


def test_a_kind_that_was_not_read_keeps_its_verdicts_for_the_next_time(world: World, state: Path) -> None:
    world.policy(resources=["configmaps"])
    world.add("shop", "configmaps", "m")
    scan(world, state)
    world.server.faults["list params"].append(lambda handler: handler.refuse(403, "no"))
    broken, found = scan(world, state)
    assert (broken.is_complete, found) == (False, [])
    mended, found = scan(world, state)
    assert (mended.evaluated, len(found)) == (0, 1)


NAMES = st.sampled_from(["a", "b", "c"])
NAMESPACES = st.sampled_from(["shop", "bank"])
KINDS = st.sampled_from(["pods", "configmaps", "deployments"])
STEPS = st.one_of(
    st.tuples(st.just("add"), NAMESPACES, KINDS, NAMES, st.sampled_from(["", "a", "b"])),
    st.tuples(st.just("remove"), NAMESPACES, KINDS, NAMES),
    st.tuples(st.just("label"), NAMESPACES, st.sampled_from(["dev", "prod"])),
    st.tuples(
        st.just("policy"), st.sampled_from(["named", "other"]), st.sampled_from([NAMED, "true", "false"])
    ),
    st.tuples(st.just("select"), st.sampled_from(["dev", "prod"])),
    st.tuples(st.just("mode"), st.sampled_from(["Deny", "Audit"])),
    st.tuples(st.just("except"), st.sampled_from([0.0, 2 * HOUR, 4 * HOUR])),
    st.tuples(st.just("wait"), st.sampled_from([60.0, 3 * HOUR])),
    st.tuples(st.just("plug-ins"), st.sampled_from(PLUG_INS)),
    st.tuples(st.just("scan")),
)


@settings(max_examples=12, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(steps=st.lists(STEPS, min_size=3, max_size=14))
def test_after_any_changes_the_result_is_that_of_a_full_scan(
    tmp_path_factory: pytest.TempPathFactory, steps: list[tuple[Any, ...]]
) -> None:
    folder, now = tmp_path_factory.mktemp("law"), NOON
    state = folder / "state.db"
    with ApiServer() as server:
        world = World(server, folder)
        world.policy()
        world.policy("next", NEXT, resources=["pods"])
        world.add("shop", "deployments", "web", **deployment())
        scan(world, state, now)
        for step in steps:
            match step:
                case ("add", namespace, kind, name, team):
                    labels = {"labels": {"team": team}} if team else {}
                    spec = deployment(**labels.get("labels", {}))["spec"] if kind == "deployments" else {}
                    world.add(namespace, kind, name, metadata=labels, spec=spec)
                case ("remove", namespace, kind, name):
                    if path_of(namespace, kind, name) in server.objects:
                        world.remove(namespace, kind, name)
                case ("label", namespace, tier):
                    server.put(namespace, tier=tier)
                case ("policy", name, expression):
                    world.policy(name, expression)
                case ("select", tier):
                    match_tier = {"namespaceSelector": {"matchLabels": {"tier": tier}}}
                    world.policy("tiers", "false", binding={"matchResources": match_tier})
                case ("mode", action):
                    world.policy("modes", "false", binding={"validationActions": [action]})
                case ("except", seconds):
                    exception(world, f"2027-01-15T{8 + int(seconds / HOUR):02d}:30:00Z")
                case ("plug-ins", found):
                    world.set(*found)
                case ("wait", seconds):
                    now += seconds
                case _:
                    scan(world, state, now)
        partial, found = scan(world, state, now)
        whole, expected = scan(world, None, now)
    assert found == expected
    assert (partial.subjects, partial.listed) == (whole.subjects, whole.listed)
    assert partial.evaluated <= whole.evaluated
