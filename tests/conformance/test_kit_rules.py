"""Each rule of the conformance kit holds for a correct worker and is broken by one that has a fault about it.

Kit and worker share an event loop on virtual time.
"""

from __future__ import annotations

import asyncio
import os
import shutil
import sys
import tempfile
import time
from concurrent.futures import Future
from contextlib import asynccontextmanager
from dataclasses import replace
from functools import cache
from typing import TYPE_CHECKING, Any, TypeVar
from unittest import mock

import h2.config
import h2.connection
import pytest

from admission_gateway_conformance import vectors
from admission_gateway_conformance.memory import resident_bytes
from admission_gateway_conformance.probe import probe
from admission_gateway_conformance.process import Running
from admission_gateway_conformance.rules import bounds
from admission_gateway_conformance.run import FAILS, HOLDS, NOT_CHECKED, RULES, Result, check
from admission_gateway_worker.listen import parse_address
from admission_gateway_worker.samples import server
from gateway.engine.dispatch.keepalive import KEEPALIVE_TIME_S
from tests.conformance.channel import find_local_target
from tests.conformance.faulty_worker import DEADLY, FAULTS, FaultyServing, changed
from tests.in_process import SocketLoop
from tests.kit import Process
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine
    from pathlib import Path

    from admission_gateway_conformance.worker import Facts

T = TypeVar("T")
BY_NAME = {rule.name: rule for rule in RULES}
SHUTDOWN = [name for name in BY_NAME if name.startswith("stop-")]
KEEPALIVE = [name for name in BY_NAME if name.startswith("keepalive-")]
OTHERS = [name for name in BY_NAME if name not in (*SHUTDOWN, *KEEPALIVE)]
GRACE_S = 5.0
TICK_S = 1e-5
"""Time between two readings of ``time.monotonic``, so that slices of work end."""


def run(main: Coroutine[Any, Any, T]) -> T:
    """Return the result of *main* on a loop of its own, in virtual time."""
    with asyncio.Runner(loop_factory=SocketLoop) as runner:
        loop = runner.get_loop()
        assert isinstance(loop, SocketLoop)

        def monotonic() -> float:
            loop.advance(TICK_S)
            return loop.time()

        with mock.patch.object(time, "monotonic", monotonic):
            return runner.run(main)


class InlineThreads:
    """Stands in for the SDK's threads: virtual time does not wait for any."""

    def submit(self, function: Callable[[], None]) -> Future[None]:
        function()
        done: Future[None] = Future()
        done.set_result(None)
        return done

    def shutdown(self, **_: bool) -> None:
        pass


class SampleWorker:
    """A worker on the running event loop, with the interface of ``admission_gateway_conformance.process``."""

    pid = os.getpid()

    def __init__(self, address: str, fault: str) -> None:
        self.address = address
        self._fault = fault
        self._serving = FaultyServing(fault, server.policies)
        self._stopping: asyncio.Task[int] | None = None

    async def start(self) -> None:
        self._serving._evaluator.threads = self._serving._evaluator.large = InlineThreads()  # type: ignore[assignment]
        await self._serving.start([parse_address(self.address)], None)

    def terminate(self) -> None:
        self._stopping = asyncio.get_running_loop().create_task(self._serving.stop(GRACE_S))

    def has_ended(self) -> bool:
        return self._stopping is not None and self._stopping.done() and self._fault != "lingers"

    @property
    def status(self) -> int | None:
        return (3 if self._fault == "exit-status" else 0) if self.has_ended() else None

    async def close(self) -> None:
        if self._stopping is None:
            self.terminate()
        assert self._stopping is not None
        await self._stopping


@asynccontextmanager
async def sample_worker(fault: str) -> AsyncIterator[SampleWorker]:
    """Serve the samples with *fault* at a unix socket."""
    folder = tempfile.mkdtemp(prefix="c")  # the path of a unix socket has to be short
    with changed(fault):
        worker = SampleWorker(f"unix:{folder}/worker.sock", fault)
        await worker.start()
        try:
            yield worker
        finally:
            await worker.close()
            shutil.rmtree(folder)


@cache
def facts() -> Facts:
    """Return the facts about the worker without a fault."""

    async def scenario() -> Facts:
        async with sample_worker("") as worker, await find_local_target(worker.address) as target:
            return await probe(target, None, vectors.load(vectors.FOLDER))

    return run(scenario())


def checked(fault: str, *names: str, **known: Any) -> list[Result]:
    """Return the results of the rules *names* for a worker with *fault*; *known* overrides its facts."""
    fresh = replace(facts(), mutating=set(), pinged={}, **known)

    async def scenario() -> list[Result]:
        async with sample_worker(fault) as worker, await find_local_target(worker.address) as target:
            fresh.process = worker
            return [result async for result in check(target, fresh, [BY_NAME[name] for name in names])]

    return run(scenario())


def faults(names: list[str], *, deadly: bool = False) -> pytest.MarkDecorator:
    """Return a decorator with the parameters *name* and *fault*, for the rules of these names."""
    found = [(name, fault) for name in names for fault in FAULTS[name] if (fault in DEADLY) is deadly]
    return pytest.mark.parametrize(("name", "fault"), found)


@pytest.fixture(autouse=True)
def _few_calls(monkeypatch: pytest.MonkeyPatch) -> None:
    """Have the rule ``bounds-many-calls`` send less: 4096 calls of 400 kB take seconds of CPU."""
    monkeypatch.setattr(bounds, "_CALLS", 64)
    monkeypatch.setattr(bounds, "_PAYLOAD_BYTES", 40_000)


def test_the_probe_finds_methods_and_policies() -> None:
    found = facts()
    methods = {"Review", "ReviewStream", "ListPolicies", "CheckParameters", "Check", "Watch"}
    assert found.methods == {*methods, "chains"}
    assert len(found.samples) == 12
    assert found.policy == "deny-latest-tag"
    assert found.baseline == "allowed"
    assert len(found.vectors) > 50


def test_every_rule_holds_for_a_correct_worker() -> None:
    results = checked("", *BY_NAME, ping_after_s=KEEPALIVE_TIME_S)
    assert [(result.rule.name, result.outcome, str(result.violation)) for result in results] == [
        (name, HOLDS, "None") for name in BY_NAME
    ]


def test_the_growth_of_memory_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    names = ("bounds-empty-payloads", "bounds-many-calls")
    assert [result.outcome for result in checked("", *names)] == [HOLDS] * 2
    monkeypatch.setattr(bounds, "MAX_GROWTH_BYTES", -(1 << 40))
    for result in checked("", *names):
        assert result.outcome == FAILS
        assert result.violation is not None
        assert result.violation.found.startswith("the worker's memory grew by")


def test_the_memory_of_a_process_is_that_of_its_children_too() -> None:
    # The pipe ends with the parent, and the child with the pipe.
    code = "from subprocess import *; import sys; Popen([sys.executable, '-c', %r], stdin=PIPE).wait()"
    large = "b = bytes(range(256)) * 400_000; print('ready', flush=True); input()"
    process = Process(sys.executable, "-c", code % f"import sys; sys.stdout = sys.stderr; {large}")
    try:
        process.expect("ready")
        assert (resident_bytes(process.child.pid) or 0) > 100 * 10**6
    finally:
        process.stop()
    assert resident_bytes(2**30) is None


def test_there_is_a_fault_for_every_rule() -> None:
    assert set(FAULTS) == set(BY_NAME)
    assert all(FAULTS.values())


@faults(OTHERS)
def test_a_fault_is_detected(name: str, fault: str) -> None:
    [result] = checked(fault, name)
    assert result.outcome == FAILS, result
    violation = result.violation
    assert violation is not None
    assert violation.action
    assert violation.found
    assert violation.expected


@faults(SHUTDOWN)
def test_a_fault_at_shutdown_is_detected(name: str, fault: str) -> None:
    [result] = checked(fault, name)
    assert result.outcome == FAILS, result


def test_pings_are_checked_concurrently() -> None:
    results = checked("few-pings", *KEEPALIVE, ping_after_s=KEEPALIVE_TIME_S)
    assert [(result.rule.name, result.outcome) for result in results] == [(name, FAILS) for name in KEEPALIVE]


@faults(OTHERS, deadly=True)
def test_a_worker_that_exits_is_reported(name: str, fault: str) -> None:
    first, second = checked(fault, name, "health-check")
    assert first.outcome == FAILS
    assert first.violation is not None
    assert first.violation.found.endswith("the worker is no longer reachable")
    assert (second.outcome, second.note) == (
        NOT_CHECKED,
        f"the worker has not been reachable since {name}",
    )


def test_late_answers_are_waited_for_with_patience() -> None:
    for patience, outcome in ((1.0, FAILS), (10.0, HOLDS)):
        [result] = checked("stream-late", "call-timeout", patience=patience)
        assert result.outcome == outcome, result


def test_a_call_without_an_answer_is_detected(tmp_path: Path) -> None:
    connections: set[asyncio.Task[None]] = set()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Serve HTTP/2 without an answer to any call. gRPC servers would end calls at their deadline."""
        task = asyncio.current_task()
        assert task is not None
        connections.add(task)
        connection = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        connection.initiate_connection()
        writer.write(connection.data_to_send())
        try:
            while read := await reader.read(65536):
                connection.receive_data(read)
                writer.write(connection.data_to_send())
        finally:
            writer.transport.abort()

    async def scenario() -> Result:
        async with await asyncio.start_unix_server(silent, tmp_path / "s"):
            async with await find_local_target(f"unix:{tmp_path}/s") as target:
                [result] = [result async for result in check(target, known, [BY_NAME["review-deadline"]])]
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)
            return result

    known = facts()
    result = run(scenario())
    assert result.outcome == FAILS
    assert result.violation is not None
    assert "2 s after the deadline" in result.violation.found


def test_a_zombie_process_has_ended() -> None:
    child = os.spawnlp(os.P_NOWAIT, "true", "true")
    running = Running(child)
    try:
        eventually(running.has_ended)
    finally:
        os.waitpid(child, 0)
    assert running.has_ended()
    assert running.status is None
