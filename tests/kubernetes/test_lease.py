"""The lease: one process at a time, given up at the end, taken over from one that is gone."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

from gateway.config.model import Kubernetes
from gateway.kubernetes.access import ClusterAccess
from gateway.kubernetes.lease import Lease, LeasePace
from tests.kubernetes.server import LEASE, ApiServer, hang_up, refuse
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

FAST = LeasePace(lasts_s=60.0, counts_s=60.0, every_s=0.005)


@asynccontextmanager
async def candidate(
    file: Path, name: str, pace: LeasePace = FAST, *, releases: bool = True
) -> AsyncIterator[Lease]:
    """A process called *name*; one that does not release is one that was killed."""
    access = ClusterAccess(Kubernetes(file))
    lease = Lease(access, name, lambda: None, pace)
    task = asyncio.create_task(lease.run())
    try:
        yield lease
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)
        if releases:
            await lease.release()
        await access.close()


def holder(server: ApiServer) -> object:
    with server.changed:
        return server.objects.get(LEASE, {}).get("spec", {}).get("holderIdentity")


def test_of_many_one_holds_it_until_it_lets_go(server: ApiServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        file = server.kubeconfig(tmp_path)
        async with candidate(file, "b") as other:
            await until(lambda: other.is_held)
            async with candidate(file, "a") as waiting, candidate(file, "c") as third:
                seen = server.asked("get")
                await until(lambda: server.asked("get") > seen + 20)
                assert (waiting.is_held, third.is_held) == (False, False)
                assert holder(server) == "b"
                await other.release()
                # Its own task may be the first to look: it is a candidate as the others are.
                await until(lambda: [waiting.is_held, other.is_held, third.is_held].count(True) == 1)
        assert holder(server) is None

    asyncio.run(scenario())


def test_one_that_was_killed_is_followed_when_its_lease_has_run_out(
    server: ApiServer, tmp_path: Path
) -> None:
    async def scenario() -> None:
        file = server.kubeconfig(tmp_path)
        async with candidate(file, "a", LeasePace(2.0, 2.0, 0.005), releases=False) as first:
            await until(lambda: first.is_held)
        async with candidate(file, "b") as second:
            seen = server.asked("get")
            await until(lambda: server.asked("get") > seen)
            assert not second.is_held
            await until(lambda: second.is_held)
            assert holder(server) == "b"
            assert server.objects[LEASE]["spec"]["leaseTransitions"] == 2

    asyncio.run(scenario())


def test_a_holder_that_cannot_renew_does_not_count_on_it(server: ApiServer, tmp_path: Path) -> None:
    async def scenario() -> None:
        file = server.kubeconfig(tmp_path)
        async with candidate(file, "a", LeasePace(60.0, 2.0, 0.005)) as lease:
            await until(lambda: lease.is_held)
            server.faults["get"].extend([refuse(500), hang_up] * 2000)
            await until(lambda: not lease.is_held)
            server.faults["get"].clear()
            await until(lambda: lease.is_held)

    asyncio.run(scenario())


def test_of_two_that_take_it_at_once_one_is_refused(server: ApiServer, tmp_path: Path) -> None:
    """The other has written in between, which the version shows."""

    async def scenario() -> None:
        file = server.kubeconfig(tmp_path)
        async with candidate(file, "a") as lease:
            server.faults["post"].append(refuse(409, "already exists"))
            await until(lambda: lease.is_held)
            server.faults["put"].append(refuse(409, "modified"))
            seen = server.asked("put")
            await until(lambda: server.asked("put") > seen + 1)
            assert lease.is_held

    asyncio.run(scenario())
