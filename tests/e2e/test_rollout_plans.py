"""States of rollout plans in a real API server, with the deployed rights: one of two writers wins."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.server.rollout.cluster_store import ClusterStore
from gateway.server.rollout.documents import read_state
from gateway.server.rollout.follower import event_of
from gateway.server.rollout.live_plan import LivePlan
from gateway.server.rollout.store import EVIDENCE, STATE
from tests.e2e.cluster import NAMESPACE
from tests.e2e.plan_states import SeenPlan, plan_account, remove_states
from tests.rollout.test_plans import NAME, PLAN, Process, Time, hook
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster

INSTALLATION = f"{NAMESPACE}/e2e"


@pytest.fixture(scope="module")
def account(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """See ``plan_account``."""
    with plan_account(cluster, tmp_path_factory.mktemp("account")) as kubeconfig:
        yield kubeconfig


@pytest.fixture(autouse=True)
def nothing_stays(cluster: Cluster) -> Iterator[None]:
    yield
    remove_states(cluster)


@asynccontextmanager
async def followed(account: Path, folder: Path, time: Time, name: str) -> AsyncIterator[Process]:
    """A process with its states in the cluster."""
    process = Process(folder, time, name)
    store = ClusterStore(KubernetesSettings(account), INSTALLATION, process.plans.changed)
    process.plans._store = store
    await store.start()
    try:
        await until(lambda: store.is_synced and not store.fault)
        process.plans.observe()
        yield process
    finally:
        await store.close()


def store_of(process: Process) -> ClusterStore:
    store = process.plans._store
    assert isinstance(store, ClusterStore)
    return store


def test_two_deciders_promote_once_and_commands_change_both(
    cluster: Cluster, account: Path, tmp_path: Path
) -> None:
    seen = SeenPlan(cluster, account, INSTALLATION, hook().name)

    async def run() -> None:
        time = Time()
        async with (
            followed(account, tmp_path, time, "p0") as one,
            followed(account, tmp_path, time, "p1") as other,
        ):
            both = (one, other)
            await asyncio.gather(*(process.plans.look() for process in both))
            await until(lambda: all(NAME in store_of(process).states for process in both))
            await asyncio.gather(*(process.plans.look() for process in both))
            await until(lambda: all(len(store_of(process).evidence) == 2 for process in both))
            for process in both:
                process.see()
            while one.plans.plans[NAME].step == 0:
                time.seconds += 60
                await asyncio.gather(*(process.plans.look() for process in both))
            await until(lambda: one.rollout == other.rollout == PLAN.stages[1].rollout)
            state = read_state(store_of(one).states[NAME])
            assert [decision.action for decision in state.decisions] == ["start", "promote"]

            said = await asyncio.to_thread(seen.command, "skip", "--reason", "by hand")
            assert "stage 3 of 3 (Enforce)" in said
            await until(lambda: one.rollout == other.rollout == PLAN.stages[2].rollout)
            await asyncio.to_thread(seen.command, "rollback")
            await until(lambda: one.rollout == other.rollout == PLAN.stages[1].rollout)
            async with followed(account, tmp_path, time, "late") as late:
                assert late.rollout == PLAN.stages[1].rollout
            last = read_state(store_of(one).states[NAME]).decisions[-1]
            assert last.who == f"system:serviceaccount:{NAMESPACE}:admission-gateway"

            plan = LivePlan(NAME, hook(), PLAN)
            for process in both:
                store_of(process).announce(NAME, event_of(plan, last))
            (event,) = await until(lambda: seen.events)
            assert (event["reason"], event["type"]) == ("RolloutRollback", "Warning")

    asyncio.run(run())
    printed = cluster.kubectl("get", "rolloutstates", f"--namespace={NAMESPACE}").stdout
    assert "a.policies.test" in printed
    assert "RolledBack" in printed


def test_of_writers_with_one_version_one_wins(account: Path, tmp_path: Path) -> None:
    async def run() -> None:
        time = Time()
        async with followed(account, tmp_path, time, "p0") as one:
            store = store_of(one)
            results = await asyncio.gather(*(store.replace(NAME, None, {"n": n}) for n in range(6)))
            assert sum(results) == 1
            await until(lambda: NAME in store.states)
            before = store.states[NAME]
            results = await asyncio.gather(*(store.replace(NAME, before, {"n": n}) for n in range(6, 12)))
            assert sum(results) == 1
            await until(lambda: store.states[NAME] != before)
            assert store.states[NAME].document == {"n": 6 + results.index(True)}
            await store.put_evidence("p0", {"process": "p0", "beat": 1})
            await store.put_evidence("p0", {"process": "p0", "beat": 2, "ended": True})
            await until(lambda: "p0" in store.evidence and store.evidence["p0"].has_ended)
            await store.remove(EVIDENCE, store.evidence["p0"])
            await until(lambda: not store.evidence)

    asyncio.run(run())


def test_a_state_is_removed_when_nobody_has_needed_it_for_a_day_and_only_as_it_was_read(
    account: Path, tmp_path: Path
) -> None:
    async def run() -> None:
        time = Time()
        async with followed(account, tmp_path, time, "p0") as one:
            store = store_of(one)
            await one.plans.look()
            first = await until(lambda: store.states.get(NAME))
            assert first is not None
            assert await store.replace(NAME, first, {**first.document, "reason": "changed meanwhile"})
            await until(lambda: store.states[NAME] != first)
            await store.remove(STATE, first)
            changed = store.states[NAME]
            assert await store.replace(NAME, changed, changed.document)

            one.plans.activate([])
            await one.plans.look()
            await until(lambda: not store.evidence["p0"].plans)
            await one.plans.look()
            time.seconds += 86_399
            await one.plans.look()
            assert NAME in store.states
            time.seconds += 1
            await one.plans.look()
            await until(lambda: not store.states)
            # What is gone already is no fault.
            await store.remove(STATE, changed)

    asyncio.run(run())
