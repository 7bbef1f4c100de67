"""Each rule of the conformance kit holds for an correct worker and is broken by one that faults about it."""

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

from admission_gateway_conformance import vectors
from admission_gateway_conformance.memory import resident_bytes
from admission_gateway_conformance.probe import probe
from admission_gateway_conformance.process import Running
from admission_gateway_conformance.rules import bounds
from admission_gateway_conformance.run import FAILS, HOLDS, NOT_CHECKED, RULES, Result, check
from admission_gateway_conformance.target import find_target
from tests.conformance.faulty_worker import DEADLY, FAULTS
from tests.kit import Process
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission_gateway_conformance.worker import Facts

BY_NAME = {rule.name: rule for rule in RULES}
SHUTDOWN = [name for name in BY_NAME if name.startswith("stop-")]
KEEPALIVE = [name for name in BY_NAME if name.startswith("keepalive-")]
OTHERS = [name for name in BY_NAME if name not in (*SHUTDOWN, *KEEPALIVE)]


class FaultyProcess(Process):
    """A worker that has the fault in its file."""

    def __init__(self, folder: Path, fault: str = "") -> None:
        self.file = folder / "fault"
        self.inject(fault)
        self.target = f"unix:{folder}/worker.sock"
        module = "tests.conformance.faulty_worker"
        super().__init__(
            *(sys.executable, "-m", module, str(self.file), "--listen", self.target, "--grace", "5")
        )
        self.expect("serving")

    def inject(self, fault: str) -> None:
        self.file.write_text(fault)


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for unix sockets."""
    path = Path(tempfile.mkdtemp(prefix="c"))
    yield path
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def worker() -> Iterator[FaultyProcess]:
    """One worker for all faults that need no separate process."""
    path = Path(tempfile.mkdtemp(prefix="c"))
    process = FaultyProcess(path)
    yield process
    process.stop()
    shutil.rmtree(path)


@pytest.fixture(scope="module")
def facts(worker: FaultyProcess) -> Facts:
    """Facts about the worker without a fault."""

    async def scenario() -> Facts:
        async with await find_target(worker.target, None) as target:
            return await probe(target, None, vectors.load(vectors.FOLDER))

    worker.inject("")
    return uvloop.run(scenario())


PATIENCE = 10.0
"""Of rules that are to hold."""


def checked(address: str, facts: Facts, *names: str, **known: Any) -> list[Result]:
    """Return the results of the rules *names*; *known* overrides *facts*."""

    async def scenario() -> list[Result]:
        fresh = replace(facts, mutating=set(), pinged={}, **known)
        async with await find_target(address, None) as target:
            return [result async for result in check(target, fresh, [BY_NAME[name] for name in names])]

    return uvloop.run(scenario())


def test_the_probe_finds_methods_and_policies(facts: Facts) -> None:
    methods = {"Review", "ReviewStream", "ListPolicies", "CheckParameters", "Check", "Watch"}
    assert facts.methods == {*methods, "chains"}
    assert len(facts.samples) == 12
    assert facts.policy == "deny-latest-tag"
    assert facts.baseline == "allowed"
    assert len(facts.vectors) > 50


def test_every_rule_holds_for_a_correct_worker(worker: FaultyProcess, facts: Facts) -> None:
    worker.inject("")
    results = checked(worker.target, facts, *OTHERS, patience=PATIENCE)
    assert [(result.rule.name, result.outcome, str(result.violation)) for result in results] == [
        (name, HOLDS, "None") for name in OTHERS
    ]


def test_the_growth_of_memory_is_bounded(
    worker: FaultyProcess, facts: Facts, monkeypatch: pytest.MonkeyPatch
) -> None:
    worker.inject("")
    child: Any = Child(worker)
    names = ("bounds-empty-payloads", "bounds-many-calls")
    holding = checked(worker.target, facts, *names, process=child, patience=PATIENCE)
    assert [result.outcome for result in holding] == [HOLDS] * 2
    monkeypatch.setattr(bounds, "MAX_GROWTH_BYTES", -(1 << 40))
    for result in checked(worker.target, facts, *names, process=child):
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


@pytest.mark.parametrize(
    ("name", "fault"), [(name, fault) for name in OTHERS for fault in FAULTS[name] if fault not in DEADLY]
)
def test_a_fault_is_detected(worker: FaultyProcess, facts: Facts, name: str, fault: str) -> None:
    worker.inject(fault)
    # Again if the machine was too slow to see an answer that is early.
    violation = eventually(lambda: checked(worker.target, facts, name)[0].violation, "a violation")
    assert violation is not None
    assert violation.action
    assert violation.found
    assert violation.expected


@pytest.mark.parametrize(("name", "fault"), [(name, fault) for name in SHUTDOWN for fault in FAULTS[name]])
def test_a_fault_at_shutdown_is_detected(folder: Path, facts: Facts, name: str, fault: str) -> None:
    def is_detected() -> bool:
        process = FaultyProcess(folder, fault)
        try:
            [result] = checked(process.target, facts, name, process=Child(process))
            return result.outcome == FAILS
        finally:
            process.signal(signal.SIGKILL)
            process.stop()

    # Again if the machine was too slow to see an end that is early.
    eventually(is_detected, "a violation")


def test_all_shutdown_rules_hold_for_a_correct_worker(folder: Path, facts: Facts) -> None:
    process = FaultyProcess(folder)
    try:
        results = checked(process.target, facts, *SHUTDOWN, process=Child(process), patience=PATIENCE)
        assert [(result.rule.name, str(result.violation), result.outcome) for result in results] == [
            (name, "None", HOLDS) for name in SHUTDOWN
        ]
    finally:
        process.stop()


class Child:
    """A process of the test with the interface of ``admission_gateway_conformance.process``."""

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


@pytest.mark.parametrize(("fault", "outcome"), [("", HOLDS), ("few-pings", FAILS)])
def test_pings_are_checked_concurrently(folder: Path, facts: Facts, fault: str, outcome: str) -> None:
    process = FaultyProcess(folder, fault)

    def outcomes(patience: float) -> list[str]:
        results = checked(process.target, facts, *KEEPALIVE, ping_after_s=1.0, patience=patience)
        assert [result.rule.name for result in results] == KEEPALIVE
        return [result.outcome for result in results]

    try:
        if outcome == HOLDS:
            assert outcomes(PATIENCE) == [HOLDS, HOLDS]
        else:
            # Again if the machine was too slow for enough pings.
            eventually(lambda: outcomes(1.0) == [FAILS, FAILS], "two violations")
    finally:
        process.stop()


@pytest.mark.parametrize(
    ("name", "fault"), [(name, fault) for name in OTHERS for fault in FAULTS[name] if fault in DEADLY]
)
def test_a_worker_that_exits_is_reported(folder: Path, facts: Facts, name: str, fault: str) -> None:
    process = FaultyProcess(folder, fault)
    try:
        first, second = checked(process.target, facts, name, "health-check")
        assert first.outcome == FAILS
        assert first.violation is not None
        assert first.violation.found.endswith("the worker is no longer reachable")
        assert (second.outcome, second.note) == (
            NOT_CHECKED,
            f"the worker has not been reachable since {name}",
        )
    finally:
        process.stop()


def test_late_answers_are_waited_for_with_patience(worker: FaultyProcess, facts: Facts) -> None:
    worker.inject("stream-late")
    for patience, outcome in ((1.0, FAILS), (PATIENCE, HOLDS)):
        [result] = checked(worker.target, facts, "call-timeout", patience=patience)
        assert result.outcome == outcome, result


def test_a_call_without_an_answer_is_detected(facts: Facts) -> None:
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
