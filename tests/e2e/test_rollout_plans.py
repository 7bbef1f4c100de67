"""States of rollout plans in a real API server, with the deployed rights: one of two writers wins."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from deploy.monitoring import CHART_FILES
from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.server.rollout.cluster_store import ClusterStore
from gateway.server.rollout.documents import read_state
from gateway.server.rollout.follower import event_of
from gateway.server.rollout.live_plan import LivePlan
from gateway.server.rollout.store import EVIDENCE, PLURALS
from tests.e2e.cluster import NAMESPACE
from tests.e2e.setups import deployed_account
from tests.kit import run_command
from tests.rollout.test_plans import NAME, PLAN, Process, Time, hook
from tests.waiting import eventually, until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster

INSTALLATION = f"{NAMESPACE}/e2e"


@pytest.fixture(scope="module")
def account(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A kubeconfig of the deployed service account with the rights of rollout-plans.yaml."""
    applied = cluster.kubectl("apply", "--server-side", f"--filename={CHART_FILES / 'crds.yaml'}")
    assert applied.returncode == 0, applied.stderr
    cluster.wait_until_served(*(f"{plural}.admission-gateway.io" for plural in PLURALS.values()))
    folder = tmp_path_factory.mktemp("account")
    with deployed_account(cluster, folder, "rollout-plans.yaml") as kubeconfig:
        yield kubeconfig


@pytest.fixture(autouse=True)
def nothing_stays(cluster: Cluster) -> Iterator[None]:
    yield
    for plural in PLURALS.values():
        cluster.kubectl("delete", f"{plural}.admission-gateway.io", "--all", f"--namespace={NAMESPACE}")


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


def command(*arguments: object) -> str:
    done = run_command("rollout", *arguments)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_two_deciders_promote_once_and_commands_change_both(
    cluster: Cluster, account: Path, tmp_path: Path
) -> None:
    options = ("--installation", INSTALLATION, "--kubeconfig", account)

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

            said = await asyncio.to_thread(command, "skip", *options, "--reason", "by hand")
            assert "stage 3 of 3 (Enforce)" in said
            await until(lambda: one.rollout == other.rollout == PLAN.stages[2].rollout)
            await asyncio.to_thread(command, "rollback", *options)
            await until(lambda: one.rollout == other.rollout == PLAN.stages[1].rollout)
            async with followed(account, tmp_path, time, "late") as late:
                assert late.rollout == PLAN.stages[1].rollout
            last = read_state(store_of(one).states[NAME]).decisions[-1]
            assert last.who == f"system:serviceaccount:{NAMESPACE}:admission-gateway"

            plan = LivePlan(NAME, hook(), PLAN)
            for process in both:
                store_of(process).announce(NAME, event_of(plan, last))
            shown = await asyncio.to_thread(eventually, lambda: events(cluster))
            assert len(shown) == 1
            assert (shown[0]["reason"], shown[0]["type"]) == ("RolloutRollback", "Warning")

    asyncio.run(run())
    printed = cluster.kubectl("get", "rolloutstates", f"--namespace={NAMESPACE}").stdout
    assert "a.policies.test" in printed
    assert "RolledBack" in printed


def events(cluster: Cluster) -> list[dict[str, Any]]:
    # Not by the client of the cluster, whose connections belong to a thread.
    shown = cluster.kubectl("get", "events.events.k8s.io", f"--namespace={NAMESPACE}", "--output=json")
    return [one for one in json.loads(shown.stdout)["items"] if one.get("action") == "Rollout"]


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
            await store.put_evidence("p0", {"process": "p0", "beat": 2})
            await until(lambda: "p0" in store.evidence and store.evidence["p0"].document["beat"] == 2)
            await store.remove(EVIDENCE, store.evidence["p0"])
            await until(lambda: not store.evidence)

    asyncio.run(run())
