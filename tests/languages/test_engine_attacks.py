"""Policies of other engines that loop, allocate or flood: they cost their own calls, and nothing else.

The gateway, and the worker of each engine that is built, are processes. While hostile policies are evaluated,
reviews that only honest ones match have to be answered as before; what the processes hold is bounded; and the
worker is the same process at the end.
"""

from __future__ import annotations

import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.kit import PATIENCE_S, Process, pool_document
from tests.languages.engine_attacks import ENGINES, Attack, Engine, Question, failed_open
from tests.languages.toolchains import named, unready
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from tests.kit import GatewayProcess, StartGateway

pytestmark = [pytest.mark.process, pytest.mark.timeout(900)]

AT_A_TIME: Final = 4
"""Reviews of one attack at the same time: more than the worker evaluates at a time on two processors."""
ANSWERS: Final = 20
"""Reviews of honest policies that are answered during each attack, and after it."""
GATEWAY_BYTES: Final = 700 << 20


@dataclass
class Honest:
    """Asks honest policies again and again, on a thread of its own, and keeps what is answered wrongly."""

    gateway: GatewayProcess
    questions: Sequence[Question]
    answered: int = 0
    wrong: list[str] = field(default_factory=list)
    _over: threading.Event = field(default_factory=threading.Event)
    _changed: threading.Condition = field(default_factory=threading.Condition)

    def run(self) -> None:
        with closing(self.gateway.connect()) as connection:
            while not self._over.is_set():
                for each in self.questions:
                    answer = json.loads(self.gateway.post(f"{each.path}?timeout=30s", each.body, connection))
                    problem = each.problem(answer["response"])
                    with self._changed:
                        self.answered += 1
                        self.wrong += [problem] if problem else []
                        self._changed.notify_all()

    def wait_for(self, more: int) -> None:
        """Wait for *more* answers."""
        with self._changed:
            wanted = self.answered + more
            assert self._changed.wait_for(lambda: self.answered >= wanted or self._over.is_set(), PATIENCE_S)

    def __enter__(self) -> Honest:
        self._pool = ThreadPoolExecutor(1)
        self._done = self._pool.submit(self.run)
        self._done.add_done_callback(lambda _: self._over.set())
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        self._done.result(PATIENCE_S)
        self._pool.shutdown()


@pytest.fixture(scope="module", params=ENGINES, ids=[each.name for each in ENGINES])
def engine(request: pytest.FixtureRequest) -> Engine:
    """Each engine whose worker is built."""
    chosen: Engine = request.param
    if lacks := unready(named(chosen.name)):
        pytest.skip(f"{chosen.name}: {lacks}")
    return chosen


def memory(process: Process) -> int:
    """The most memory that a process has had, without the pages of its program. Source: proc(5)."""
    text = Path(f"/proc/{process.child.pid}/status").read_text()
    found = {key: int(value) for key, value in re.findall(r"(VmHWM|RssFile):\s+(\d+) kB", text)}
    return (found["VmHWM"] - found["RssFile"]) * 1024


def gateways(
    engine: Engine, target: str, folder: Path, start_gateway: StartGateway
) -> Iterator[tuple[str, Path, GatewayProcess]]:
    """Start a gateway for each failurePolicy."""
    for policy in ("Fail", "Ignore"):
        config = folder / policy
        config.mkdir()
        settings = {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "GatewayConfiguration",
            "policies": {
                "engines": {engine.name: {"pool": "pool", "failurePolicy": policy, "timeoutSeconds": 30}}
            },
        }
        (config / "settings.yaml").write_text(
            json.dumps(settings) + "\n---\n" + pool_document("pool", target)
        )
        engine.write(config, hostile=True)
        yield policy, config, start_gateway(config)


def attacked(gateway: GatewayProcess, attack: Attack) -> list[dict[str, Any]]:
    """Send the review of *attack* several times at once; return the responses."""
    with ThreadPoolExecutor(AT_A_TIME) as threads:
        sent = [
            threads.submit(gateway.post, f"{attack.path}?timeout={attack.timeout_s}s", attack.body)
            for _ in range(AT_A_TIME)
        ]
        return [json.loads(each.result())["response"] for each in sent]


def is_allowed(gateway: GatewayProcess, attack: Attack) -> bool:
    return all(each["allowed"] and not failed_open(each) for each in attacked(gateway, attack))


def test_hostile_policies_cost_their_own_calls(
    engine: Engine, tmp_path: Path, processes: Any, start_gateway: StartGateway
) -> None:
    documents = tmp_path / "documents"
    documents.mkdir()
    engine.write(documents, hostile=True)
    worker = Process(*engine.command(documents))
    processes.callback(worker.stop)
    target = worker.expect(r"worker: serving \d+ policies on (\S+)\n")[1]
    started = list(gateways(engine, target, tmp_path, start_gateway))
    problems: list[str] = []
    for policy, _, gateway in started:
        with Honest(gateway, engine.questions) as honest:
            honest.wait_for(ANSWERS)
            for attack in engine.attacks:
                problems += attack.problems(policy, attacked(gateway, attack))
                honest.wait_for(ANSWERS)
        problems += [f"{policy}: honest: {each}" for each in honest.wrong[:5]]
        assert "Traceback" not in gateway.log
        assert memory(gateway) < GATEWAY_BYTES
    assert not problems, "\n".join([*problems, worker.log])
    assert worker.child.poll() is None
    assert memory(worker) < engine.memory_bytes

    for folder in (documents, *(config for _, config, _ in started)):
        engine.write(folder, hostile=False)
    for _, _, gateway in started:
        for attack in engine.attacks:
            eventually(partial(is_allowed, gateway, attack), f"{attack.name} is gone")
        with Honest(gateway, engine.questions) as honest:
            honest.wait_for(ANSWERS)
        assert not honest.wrong
