"""States and evidence in an API server to which others write: what is kept is bounded."""

from __future__ import annotations

from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import pytest

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.pure.rollout_plan.state import started
from gateway.server.kubernetes.watch import Pace
from gateway.server.rollout import bounded_watch, process_evidence, store
from gateway.server.rollout.cluster_store import ClusterStore
from gateway.server.rollout.documents import state_document
from gateway.server.rollout.store import PLURALS
from tests.kit import call_command
from tests.kubernetes.server import GATEWAY, ApiServer
from tests.rollout.test_plans import NAME, PLAN, Process, Time, hook
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

INSTALLATION = "policies/gateway"
STATES, EVIDENCE = (f"{GATEWAY}/namespaces/policies/{plural}" for plural in PLURALS.values())
HOSTILE = 1000
"""Objects of a hostile writer, each of 8 KiB. The bounds are as much below the real ones."""
MOST, MOST_BYTES = 40, 128 * 1024


@pytest.fixture(autouse=True)
def bounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(process_evidence, "_MAX_EVIDENCE", MOST)
    monkeypatch.setattr(process_evidence, "_MAX_BYTES", MOST_BYTES)
    monkeypatch.setattr(bounded_watch, "MAX_PAGE_BYTES", MOST_BYTES // 2)
    monkeypatch.setattr(store, "_MAX_STATES", MOST)
    monkeypatch.setattr(store, "_MAX_STATES_BYTES", MOST_BYTES)


@asynccontextmanager
async def cluster() -> AsyncIterator[ApiServer]:
    async with ApiServer() as server:
        server.followed |= {STATES, EVIDENCE}
        server.limits_pages = True
        yield server


@asynccontextmanager
async def followed(
    server: ApiServer, folder: Path, time: Time
) -> AsyncIterator[tuple[Process, ClusterStore]]:
    """A process whose states are in the cluster."""
    process = Process(folder / "unused", time, "p0")
    pace = Pace(first_pause_s=0.01, longest_pause_s=0.05)
    found = ClusterStore(
        KubernetesSettings(server.kubeconfig(folder)), INSTALLATION, process.plans.changed, pace
    )
    process.plans._store = found
    await found.start()
    try:
        await until(lambda: found.is_synced)
        process.plans.observe()
        yield process, found
    finally:
        await found.close()


def flood(server: ApiServer, path: str, *, number: int = HOSTILE, texts: int = 80) -> None:
    """Write *number* objects, each of about *texts* times 100 bytes, which are listed before all others."""
    part = {"items": ["x" * 100] * texts}
    plans = {NAME: {"generation": "g", "window": "w", "part": part}}
    status = {"plans": plans, "ended": True, "state": part}
    for index in range(number):
        server.hold(f"{path}/gateway.{index:05}", status=status)


def end(server: ApiServer, path: str) -> None:
    """Remove the objects of a flood."""
    for name in [name for name in server.objects if name.startswith(f"{path}/gateway.0")]:
        server.drop(name)


async def begin(process: Process, found: ClusterStore) -> None:
    """Let the plan begin, and evidence of it be written."""
    await until(lambda: not found.fault)
    await process.plans.look()
    await until(lambda: NAME in found.states)
    await process.plans.look()
    await until(lambda: "p0" in found.evidence)


async def pass_minutes(process: Process, found: ClusterStore, time: Time, number: int = 70) -> None:
    """Let time pass, and wait until each decision is observed."""
    one = process.plans.plans[NAME]
    for _ in range(number):
        time.seconds += 60
        await until(lambda: not found.fault)
        await process.plans.look()
        await until(lambda: one.stored is None or one.stored.version != one.written_over)


@pytest.mark.parametrize("texts", [80, 1])
async def test_what_a_hostile_writer_has_written_is_not_kept_beyond_a_bound(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, texts: int
) -> None:
    time = Time()
    async with cluster() as server:
        flood(server, EVIDENCE, texts=texts)
        async with followed(server, tmp_path, time) as (process, found):
            assert 0 < len(found.evidence) <= MOST
            assert 0 < sum(one.size for one in found.evidence.values()) <= MOST_BYTES
            # The list was not read to its end, and of large objects in small pages.
            assert server.asked("list rolloutevidences") <= MOST
            said = "there are more RolloutEvidences than 40, or of 0.125 MiB: the others are not read"
            assert f"rollout plans: {said}" in caplog.messages
            # Neither larger nor more objects.
            flood(server, EVIDENCE, number=2 * HOSTILE, texts=4 * texts)
            server.hold(f"{STATES}/gateway.last", status={})
            await until(lambda: "last" in found.states)
            assert sum(one.size for one in found.evidence.values()) <= MOST_BYTES
            # What all processes have is not known: no plan begins.
            await until(lambda: not found.fault)
            await process.plans.look()
            assert NAME not in found.states
            assert f"{EVIDENCE}/gateway.p0" not in server.objects
            assert process.plans.faults[0] == said
            assert f"whether all processes have this plan: {said}" in process.plans.faults[1]
            end(server, EVIDENCE)
            server.end_watches(abruptly=False)
            await until(lambda: not found.excess)
            await begin(process, found)


@pytest.mark.parametrize("is_refused", [False, True])
async def test_during_a_flood_a_plan_is_not_promoted_and_its_own_evidence_pauses_it(
    tmp_path: Path, *, is_refused: bool
) -> None:
    time = Time()
    async with cluster() as server, followed(server, tmp_path, time) as (process, found):
        await begin(process, found)
        flood(server, EVIDENCE)
        await until(lambda: found.excess != "")
        process.see(refuses=is_refused)
        await pass_minutes(process, found, time)
        one = process.plans.plans[NAME]
        assert (one.step, one.phase) == (0, "Paused" if is_refused else "Progressing")
        if not is_refused:
            assert (
                "evidence: of some processes is not read: there is too much"
                in one.waiting(0, since_s=0).texts
            )
            end(server, EVIDENCE)
            server.end_watches(abruptly=False)
            await until(lambda: not found.excess)
            await pass_minutes(process, found, time, 2)
            assert one.step == 1


async def test_more_states_than_are_kept_are_a_fault(tmp_path: Path) -> None:
    async with cluster() as server:
        flood(server, STATES)
        async with followed(server, tmp_path, Time()) as (process, found):
            assert 0 < len(found.states) <= MOST
            await until(lambda: "more RolloutStates than 40, or of 0.125 MiB" in process.plans.fault)
            await process.plans.look()
            assert not server.asked("post")


async def test_odd_objects_keep_nothing_away(tmp_path: Path) -> None:
    nested: list[object] = []
    for _ in range(280):
        nested = [nested]
    odd = {"plans": {NAME: nested, "x" * 65: {}, "a": {"generation": "g", "part": nested}}, "state": nested}
    async with cluster() as server:
        for path in (EVIDENCE, STATES):
            for name, status in (
                ("gateway.odd", odd),
                ("gateway.text", "x"),
                ("other.a", odd),
                ("gateway", odd),
            ):
                server.hold(f"{path}/{name}", status=status)
        async with followed(server, tmp_path, Time()) as (process, found):
            server.hold(f"{EVIDENCE}/gateway.later", status=odd)
            await until(lambda: "later" in found.evidence)
            assert set(found.states) == {"odd", "text"}
            assert set(found.evidence) == {"odd", "text", "later"}
            (said,) = found.evidence["odd"].plans.items()
            assert (said[0], said[1].generation, said[1].part) == ("a", "g", b"")
            await until(lambda: not found.fault)
            await process.plans.look()
            assert "processes have another plan, such as later" in process.plans.faults[0]


async def test_events_of_the_last_decisions_are_created_before_the_end(tmp_path: Path) -> None:
    async with cluster() as server:
        async with followed(server, tmp_path, Time()) as (_, found):
            found.announce(NAME, {"revision": 1, "reason": "RolloutPromote"})
        assert server.asked("post") == 1


def test_commands_read_no_evidence(tmp_path: Path) -> None:
    state = state_document(hook().plan_id, ["a", "b", "c"], started(PLAN, 1e9))
    with ApiServer() as server:
        server.followed.add(STATES)
        server.hold(f"{STATES}/gateway.{NAME}", status=state)
        options = ("--installation", INSTALLATION, "--kubeconfig", server.kubeconfig(tmp_path))
        done = call_command("rollout", "status", *options)
        assert (done.returncode, "stage 1 of 3 (a)" in done.stdout) == (0, True), done
        assert "  you can: pause, skip\n" in done.stdout
        server.hold(f"{STATES}/gateway.{NAME}", status={**state, "state": {}})
        done = call_command("rollout", "status", *options)
        assert done.stdout.startswith("a.policies.test: its state cannot be read by this version: the state ")
        assert {kind for kind, _ in server.requests} <= {"list rolloutstates", "watch rolloutstates"}
