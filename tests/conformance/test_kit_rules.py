"""Each rule of the conformance kit holds for an honest worker and is broken by one that lies about it."""

from __future__ import annotations

import asyncio
import os
import shutil
import signal
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h2.config
import h2.connection
import pytest
import uvloop

from tests.conformance.lying_worker import DEADLY, LIES
from tests.kit import ROOT, Process
from workers.conformance import vectors
from workers.conformance.probe import probe
from workers.conformance.process import Running
from workers.conformance.run import FAILS, HOLDS, NOT_CHECKED, RULES, Result, check
from workers.conformance.target import find_target

if TYPE_CHECKING:
    from collections.abc import Iterator

    from workers.conformance.worker import Facts

BY_NAME = {rule.name: rule for rule in RULES}
SHUTDOWN = [name for name in BY_NAME if name.startswith("stop-")]
KEEPALIVE = [name for name in BY_NAME if name.startswith("keepalive-")]
OTHERS = [name for name in BY_NAME if name not in (*SHUTDOWN, *KEEPALIVE)]


class LyingProcess(Process):
    """A worker that tells the lie in its file."""

    def __init__(self, folder: Path, lie: str = "") -> None:
        self.file = folder / "lie"
        self.tell(lie)
        self.target = f"unix:{folder}/worker.sock"
        script = ROOT / "tests" / "conformance" / "lying_worker.py"
        super().__init__(sys.executable, str(script), str(self.file), "--listen", self.target, "--grace", "5")
        self.expect("serving")

    def tell(self, lie: str) -> None:
        self.file.write_text(lie)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for unix sockets."""
    path = Path(tempfile.mkdtemp(prefix="c"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def worker() -> Iterator[LyingProcess]:
    """One worker for all lies that need no start of their own."""
    path = Path(tempfile.mkdtemp(prefix="c"))
    process = LyingProcess(path)
    yield process
    process.stop()
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def facts(worker: LyingProcess) -> Facts:
    """What is known of the worker when it is honest."""

    async def scenario() -> Facts:
        async with await find_target(worker.target, None) as target:
            return await probe(target, None, vectors.load(vectors.FOLDER))

    worker.tell("")
    return uvloop.run(scenario())


def checked(address: str, facts: Facts, *names: str, **known: Any) -> list[Result]:
    """Return what comes of the rules of these names; *known* is said of the worker beside *facts*."""

    async def scenario() -> list[Result]:
        fresh = replace(facts, mutating=set(), pinged={}, **known)
        async with await find_target(address, None) as target:
            return [result async for result in check(target, fresh, [BY_NAME[name] for name in names])]

    return uvloop.run(scenario())


def test_the_worker_is_seen_for_what_it_is(facts: Facts) -> None:
    assert facts.methods == {"Review", "ReviewStream", "ListPolicies", "Check", "Watch"}
    assert len(facts.samples) == 11
    assert facts.policy == "deny-latest-tag"
    assert facts.usual == "allowed"
    assert len(facts.vectors) > 50


def test_every_rule_holds_for_an_honest_worker(worker: LyingProcess, facts: Facts) -> None:
    worker.tell("")
    results = checked(worker.target, facts, *OTHERS)
    assert [(result.rule.name, result.outcome, str(result.breach)) for result in results] == [
        (name, HOLDS, "None") for name in OTHERS
    ]


def test_there_is_a_lie_for_every_rule() -> None:
    assert set(LIES) == set(BY_NAME)
    assert all(LIES.values())


@pytest.mark.parametrize(
    ("name", "lie"), [(name, lie) for name in OTHERS for lie in LIES[name] if lie not in DEADLY]
)
def test_a_lie_is_caught(worker: LyingProcess, facts: Facts, name: str, lie: str) -> None:
    worker.tell(lie)
    [result] = checked(worker.target, facts, name)
    assert result.outcome == FAILS
    assert result.breach is not None
    assert result.breach.asked
    assert result.breach.found
    assert result.breach.expected


@pytest.mark.parametrize(("name", "lie"), [(name, lie) for name in SHUTDOWN for lie in LIES[name]])
def test_a_lie_at_the_end_is_caught(folder: Path, facts: Facts, name: str, lie: str) -> None:
    process = LyingProcess(folder, lie)
    try:
        [result] = checked(process.target, facts, name, process=Child(process))
        assert result.outcome == FAILS
    finally:
        process.signal(signal.SIGKILL)
        process.stop()


def test_the_end_of_an_honest_worker_keeps_to_all_rules(folder: Path, facts: Facts) -> None:
    process = LyingProcess(folder)
    try:
        results = checked(process.target, facts, *SHUTDOWN, process=Child(process))
        assert [(result.rule.name, str(result.breach), result.outcome) for result in results] == [
            (name, "None", HOLDS) for name in SHUTDOWN
        ]
    finally:
        process.stop()


class Child:
    """A process of the test's, as the kit wants to have it: like one that it has started itself."""

    def __init__(self, process: Process) -> None:
        self._child = process.child
        self.pid = process.child.pid

    def terminate(self) -> None:
        self._child.terminate()

    def has_ended(self) -> bool:
        return self._child.poll() is not None

    @property
    def status(self) -> int | None:
        return self._child.poll()


@pytest.mark.parametrize(("lie", "outcome"), [("", HOLDS), ("few-pings", FAILS)])
def test_pings_are_checked_side_by_side(folder: Path, facts: Facts, lie: str, outcome: str) -> None:
    process = LyingProcess(folder, lie)
    try:
        results = checked(process.target, facts, *KEEPALIVE, ping_after_s=1.0)
        assert [(result.rule.name, result.outcome) for result in results] == [
            (name, outcome) for name in KEEPALIVE
        ]
    finally:
        process.stop()


@pytest.mark.parametrize(
    ("name", "lie"), [(name, lie) for name in OTHERS for lie in LIES[name] if lie in DEADLY]
)
def test_a_worker_that_dies_is_reported_as_such(folder: Path, facts: Facts, name: str, lie: str) -> None:
    process = LyingProcess(folder, lie)
    try:
        first, second = checked(process.target, facts, name, "health-check")
        assert first.outcome == FAILS
        assert first.breach is not None
        assert first.breach.found.endswith("and the worker is gone")
        assert (second.outcome, second.note) == (NOT_CHECKED, f"the worker has been gone since {name}")
    finally:
        process.stop()


def test_a_call_that_is_never_ended_is_caught(facts: Facts) -> None:
    connections: set[asyncio.Task[None]] = set()

    async def silent(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Speak HTTP/2 and answer no call. Servers of gRPC end it at its deadline, whoever serves it."""
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
        async with await asyncio.start_server(silent, "127.0.0.1", 0) as server:
            address = f"127.0.0.1:{server.sockets[0].getsockname()[1]}"
            async with await find_target(address, None) as target:
                [result] = [result async for result in check(target, facts, [BY_NAME["review-deadline"]])]
            for task in connections:
                task.cancel()
            await asyncio.gather(*connections, return_exceptions=True)
            return result

    result = asyncio.run(scenario())
    assert result.outcome == FAILS
    assert result.breach is not None
    assert "2 s after the deadline" in result.breach.found


def test_a_process_that_is_gone_but_not_waited_for_has_ended() -> None:
    child = os.spawnlp(os.P_NOWAIT, "true", "true")
    running = Running(child)
    try:

        async def scenario() -> None:
            async with asyncio.timeout(10):
                while not running.has_ended():
                    await asyncio.sleep(0.01)

        asyncio.run(scenario())
    finally:
        os.waitpid(child, 0)
    assert running.has_ended()
    assert running.status is None
