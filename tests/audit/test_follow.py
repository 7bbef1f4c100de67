"""An audit that follows the cluster has the findings of a full audit, once nothing changes any more."""

from __future__ import annotations

import asyncio
import json
import time
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.config.merge.load import load
from gateway.server.kubernetes.access import ClusterAccess
from gateway.server.kubernetes.watch import Pace as WatchPace
from gateway.tools.audit import follow
from gateway.tools.audit.follow import Follower
from gateway.tools.audit.pace import Pace
from gateway.tools.audit.run import Audit, Options
from gateway.tools.audit.store import Store
from gateway.tools.cli.replay_sources import with_cluster
from gateway.tools.offline.gateway import offline_gateway
from tests.audit.kit import NAMED, NEXT, PLUG_INS, World, deployment, limit_range, owned, path_of, pod
from tests.kit import PATIENCE_S
from tests.kubernetes.server import ApiServer

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable
    from pathlib import Path

    from gateway.tools.offline.gateway import OfflineGateway

FAST = WatchPace(watch_s=(30, 30), first_pause_s=0.002, longest_pause_s=0.01, steady_s=0.01)
OPTIONS = Options(owner_label="team")


@pytest.fixture(autouse=True)
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "AGAIN_AFTER_S", 0.01)
    monkeypatch.setattr(follow, "REFRESH_S", 0.01)


class Followed:
    """An audit that follows a world."""

    def __init__(self, world: World, options: Options) -> None:
        self.world = world
        self.settings = KubernetesSettings(world.server.kubeconfig(world.folder), None)
        self.access = ClusterAccess(self.settings)
        self.store = Store(None)
        self.follower = Follower(self.settings, self.access, self.store, Pace(10_000), options, FAST)

    @asynccontextmanager
    async def gateway(self) -> AsyncIterator[OfflineGateway]:
        """The webhooks of the configuration as it is."""
        async with offline_gateway(with_cluster(load([self.world.config]), self.settings)) as gateway:
            yield gateway

    @asynccontextmanager
    async def round(self) -> AsyncIterator[None]:
        """The audit with the configuration as it is."""
        async with self.gateway() as gateway:
            await self.follower.use(gateway, time.time())
            yield

    async def until(self, condition: Callable[[], bool]) -> None:
        """Go on until *condition* is true."""
        give_up = time.monotonic() + PATIENCE_S
        while not condition():
            assert time.monotonic() < give_up, (self.findings(), self.follower.problems)
            await self.follower.step(0.02)

    async def settled(self) -> None:
        """Go on until all that is known is evaluated."""
        await self.until(lambda: self.follower.is_settled)

    def findings(self) -> list[str]:
        """Return the findings that are followed."""
        return shown(self.store)

    async def fully(self) -> list[str]:
        """Return the findings of a full audit."""
        store = Store(None)
        try:
            async with self.gateway() as gateway, self.access.api() as api:
                await Audit(api, gateway, store, Pace(10_000), OPTIONS).run(time.time())
            return shown(store)
        finally:
            store.close()

    async def close(self) -> None:
        await self.follower.close()
        await self.access.close()
        self.store.close()


def shown(store: Store) -> list[str]:
    """Return the findings in *store*. Which Pod stands for others that are alike does not matter."""
    rows = ({**one, "uid": "", "name": ""} if one["owner"] else one for one in store.results())
    return sorted(json.dumps(one, sort_keys=True) for one in rows)


@asynccontextmanager
async def following(
    folder: Path, options: Options = OPTIONS, *, watch_lists: bool = True
) -> AsyncIterator[Followed]:
    async with ApiServer() as server:
        server.has_watch_lists, server.limits_pages = watch_lists, True
        world = World(server, folder)
        world.policy()
        followed = Followed(world, options)
        await followed.follower.start()
        try:
            yield followed
        finally:
            await followed.close()


async def test_a_change_is_evaluated_without_a_list_and_a_deleted_object_has_no_finding(
    tmp_path: Path,
) -> None:
    async with following(tmp_path) as followed, followed.round():
        world = followed.world
        await followed.settled()
        lists = world.server.asked("list params")
        world.add("shop", "pods", "a", **pod())
        await followed.until(lambda: len(followed.findings()) == 1)
        world.add("shop", "pods", "a", **pod(labels={"team": "x"}))
        await followed.until(lambda: not followed.findings())
        world.add("shop", "configmaps", "b", data={})
        await followed.until(lambda: len(followed.findings()) == 1)
        world.remove("shop", "configmaps", "b")
        await followed.until(lambda: not followed.findings())
        assert world.server.asked("list params") == lists
        assert followed.follower.result().is_complete


async def test_another_pod_stands_for_a_deleted_one_of_its_template(tmp_path: Path) -> None:
    async with following(tmp_path) as followed, followed.round():
        world = followed.world
        for name in ("a", "b", "c"):
            metadata = owned("ReplicaSet", "web", "uid-web", "t")
            world.add("shop", "pods", name, **pod(**metadata))
        await followed.until(lambda: [one["alike"] for one in followed.store.results()] == [3])
        (first,) = followed.store.results()
        world.remove("shop", "pods", first["name"])
        await followed.until(lambda: [one["alike"] for one in followed.store.results()] == [2])
        (second,) = followed.store.results()
        assert second["name"] != first["name"]


@pytest.mark.parametrize("watch_lists", [True, False])
async def test_after_a_lost_place_only_what_changed_is_evaluated(
    tmp_path: Path, *, watch_lists: bool
) -> None:
    async with following(tmp_path, Options(frozenset({"pods"})), watch_lists=watch_lists) as followed:
        world = followed.world
        for number in range(20):
            world.add("shop", "pods", f"p{number}", **pod())
        async with followed.round():
            await followed.until(lambda: len(followed.findings()) == 20)
            await followed.settled()
            evaluated = followed.follower.this.evaluated
            lists = world.server.asked("list params")
            world.server.end_watches(abruptly=True)
            world.server.keep(path_of("shop", "pods", "new"), is_shown=False, metadata={"uid": "n"})
            del world.server.objects[path_of("shop", "pods", "p3")]
            world.server.compact()
            await followed.until(
                lambda: {"p3", "new"} & {one["name"] for one in followed.store.results()} == {"new"}
            )
            assert followed.follower.this.evaluated == evaluated + 1
            assert (world.server.asked("list params") == lists) == watch_lists


async def test_what_plug_ins_read_is_followed_in_its_namespace(tmp_path: Path) -> None:
    async with following(tmp_path) as followed:
        world = followed.world
        world.policy("next", NEXT, resources=["pods"])
        for space in ("shop", "bank"):
            world.add(space, "deployments", "web", **deployment(team="a"))
        async with followed.round():
            await followed.until(lambda: len(followed.findings()) == 2)
            await followed.settled()
            evaluated = followed.follower.this.evaluated
            world.set("limitranges", "shop", limit_range(default={"memory": "1Gi"}))
            await followed.until(lambda: len(followed.findings()) == 1)
            await followed.settled()
            assert followed.follower.this.evaluated == evaluated + 1
            world.set("limitranges", "shop", None)
            await followed.until(lambda: len(followed.findings()) == 2)


async def test_more_changes_than_are_kept_are_listed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(follow, "MAX_CHANGES", 5)
    async with following(tmp_path) as followed, followed.round():
        await followed.settled()
        for number in range(30):
            followed.world.add("shop", "pods", f"p{number}", **pod())
        await followed.until(lambda: len(followed.findings()) == 30)
        assert len(followed.follower._changes) <= 6


async def test_a_kind_that_may_not_be_read_makes_the_audit_incomplete(tmp_path: Path) -> None:
    async with following(tmp_path) as followed:
        server = followed.world.server
        for kind in ("list params", "watch params"):
            server.faults[kind].extend([lambda handler: handler.refuse(403, "not allowed")] * 500)
        async with followed.round():
            await followed.until(lambda: bool(followed.follower.problems))
            result = followed.follower.result()
            assert not result.is_complete
            assert "not allowed" in str(result.found.problems)


NAMES = st.sampled_from(["a", "b", "c"])
SPACES = st.sampled_from(["shop", "bank"])
STEPS = st.one_of(
    st.tuples(st.just("object"), SPACES, st.sampled_from(["pods", "configmaps"]), NAMES, st.booleans()),
    st.tuples(st.just("template"), SPACES, NAMES, st.sampled_from(["t", "u"]), st.booleans()),
    st.tuples(st.just("workload"), SPACES, NAMES, st.integers(0, 1), st.booleans()),
    st.tuples(st.just("ending"), SPACES, NAMES),
    st.tuples(st.just("remove"), SPACES, st.sampled_from(["pods", "configmaps", "deployments"]), NAMES),
    st.tuples(st.just("labels"), SPACES, st.booleans()),
    st.tuples(st.just("plug-ins"), st.sampled_from(PLUG_INS)),
    st.tuples(st.just("policy"), st.booleans(), st.booleans()),
    st.tuples(st.just("exception"), st.booleans()),
    st.tuples(st.just("again")),
    st.tuples(st.just("drop"), st.booleans()),
    st.tuples(st.just("lost")),
    st.tuples(st.just("watch lists"), st.booleans()),
    st.tuples(st.just("go on"), st.integers(1, 5)),
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=st.lists(STEPS, max_size=25))
def test_what_is_followed_equals_a_full_audit(
    steps: list[tuple[Any, ...]], tmp_path_factory: pytest.TempPathFactory
) -> None:
    asyncio.run(_law(steps, tmp_path_factory.mktemp("law")))


async def _law(steps: list[tuple[Any, ...]], folder: Path) -> None:
    async with following(folder) as followed:
        followed.world.policy("next", NEXT, resources=["pods"])
        rest = steps
        while True:
            async with followed.round():
                changes_policy = False
                while rest and not changes_policy:
                    (name, *values), rest = rest[0], rest[1:]
                    if name == "go on":
                        for _ in range(values[0]):
                            await followed.follower.step(0.005)
                    changes_policy = change(followed.world, name, *values)
                if not rest and not changes_policy:
                    expected = await followed.fully()
                    await followed.until(lambda: followed.findings() == expected)  # noqa: B023 - called here
                    await followed.settled()
                    assert followed.findings() == expected
                    return


def change(world: World, name: str, *values: Any) -> bool:  # noqa: C901 - one case for each
    """Change *world*, and return whether that is its configuration."""
    server = world.server
    match name, *values:
        case "object", space, resource, which, is_good:
            content = pod() if resource == "pods" else {"data": {}}
            world.add(space, resource, which, **{**content, "metadata": team(is_good)})
        case "template", space, which, template, is_good:
            metadata = owned("ReplicaSet", template, f"uid-{template}", template)
            metadata["labels"] |= {"team": "x"} if is_good and template == "t" else {}
            world.add(space, "pods", f"owned-{template}-{which}", **pod(**metadata))
        case "workload", space, which, replicas, is_good:
            world.add(space, "deployments", which, **deployment(replicas, **team(is_good).get("labels", {})))
        case "ending", space, which:
            if path_of(space, "pods", which) in server.objects:
                metadata = {"deletionTimestamp": "2027-01-01T00:00:00Z"}
                world.add(space, "pods", which, **pod(**metadata))
        case "remove", space, resource, which:
            if path_of(space, resource, which) in server.objects:
                world.remove(space, resource, which)
        case "labels", space, is_selected:
            server.put(space, **({"audited": "no"} if is_selected else {}))
        case "plug-ins", found:
            world.set(*found)
        case "policy", is_narrow, is_named:
            constraints = {
                "namespaceSelector": {"matchExpressions": [{"key": "audited", "operator": "DoesNotExist"}]}
            }
            binding = {"matchResources": constraints} if is_narrow else {}
            world.policy("named", NAMED if is_named else "true", binding=binding)
            return True
        case "exception", is_there:
            spec = {"webhooks": ["named"], "reason": "r", "owner": "o", "permanent": True}
            world.write(
                "exception",
                *[
                    {
                        "apiVersion": "admission-gateway.io/v1alpha1",
                        "kind": "ClusterPolicyException",
                        "metadata": {"name": "e"},
                        "spec": {**spec, "match": {"namespaces": ["shop"]}},
                    }
                ][:is_there],
            )
            return True
        case ("again",):
            if server.events:
                server.events.append((server.version, *server.events[-1][1:]))
                with server.changed:
                    server.notify()
        case "drop", is_abrupt:
            server.end_watches(abruptly=is_abrupt)
        case ("lost",):
            server.end_watches(abruptly=True)
            server.compact()
        case "watch lists", has:
            server.has_watch_lists = has
    return False


def team(is_good: bool) -> dict[str, Any]:
    return {"labels": {"team": "x"}} if is_good else {}
