"""What a worker writes below its messages, at its worst: other pools and ``/livez`` do not feel it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.hostile_frames import HONEST, RawWorker, WatchedGateway, configuration
from tests.faults.kit import SOME_PORT, all_well, configure, resources, wait_until_ready
from tests.faults.raw_worker import ATTACKS
from tests.kit import REVIEWS, GatewayProcess, WorkerProcess, pool_document, webhook_document
from tests.load import Load
from tests.waiting import eventually

if TYPE_CHECKING:
    from contextlib import ExitStack

    import trustme

pytestmark = pytest.mark.slow

WEBHOOKS = 24
LARGE_BYTES = 4 * 1024 * 1024
MOST_GROWN_BYTES = 80 * 1024 * 1024
"""32 MiB of requests, and the body with what is made of it. All requests together have 96 MiB."""
MOST_HELD_S = 0.03
"""CPU time for which the event loop may be held: a slice has 2 ms, and a message of 8 MiB takes several."""
HONEST_REVIEWS = 200
SEEDS = (1, 2)
NOT_BANNED = (
    *(
        "answers_held_back",
        "answers_of_nested_fields",
        "answers_of_unknown_fields",
        "drains",
        "empty_verdicts",
    ),
    *("goodbyes", "nothing_read", "pings_between_answers", "small_verdict_batches"),
    *("unknown_field", "unknown_fields"),
)
"""What is no violation of HTTP/2, or stops before it costs enough: it ends the stream, or nothing."""


@pytest.mark.parametrize(
    ("attacks", "seed"),
    [
        *(pytest.param((name,), 0, id=name) for name in ATTACKS),
        pytest.param(tuple(ATTACKS), 0, id="all"),
        *(pytest.param(("fuzz",) * 4, seed, id=f"fuzz-{seed}") for seed in SEEDS),
    ],
)
def test_what_a_worker_writes_costs_its_own_webhooks_alone(
    processes: ExitStack,
    tmp_path: Path,
    certificate: tuple[Path, Path],
    authority: trustme.CA,
    attacks: tuple[str, ...],
    seed: int,
) -> None:
    honest = WorkerProcess(SOME_PORT)
    processes.callback(honest.stop)
    hostile = RawWorker(*attacks, seed=seed)
    processes.callback(hostile.stop)
    folder = configure(tmp_path, *configuration(honest.target, *hostile.targets))
    gateway = WatchedGateway(folder, certificate, authority)
    processes.callback(gateway.stop)
    wait_until_ready(gateway, 1)
    with Load(gateway, HONEST, "pod-create-validate", connections=4, rate=200) as load:
        for policy in ("fail", "ignore"):
            path = f"/validate/bad-{policy}?timeout=20s"
            with Load(gateway, path, "pod-create-validate", connections=4, count=8) as attacked:
                attacked.finish()
            tally = attacked.tally
            assert tally.answered == tally.sent
            is_right = tally.failed_open if policy == "ignore" else tally.failed
            # An attack may have answered a call before it began, or may never have.
            assert is_right + tally.allowed - tally.failed_open == tally.sent, tally
        if not set(NOT_BANNED) & set(attacks) and seed == 0:
            eventually(lambda: "broke the protocol" in gateway.log, "the worker is left alone")
        assert gateway.admin("/livez")[0] == 200
        load.wait_for(HONEST_REVIEWS)
    assert all_well(load.tally), load.tally
    assert gateway.longest_hold_s() < MOST_HELD_S
    assert "Traceback" not in gateway.log
    assert "internal error" not in gateway.log


@pytest.mark.parametrize("transport", ["Auto", "Unary"])
def test_a_worker_that_reads_nothing_does_not_fill_the_memory(
    processes: ExitStack,
    tmp_path: Path,
    certificate: tuple[Path, Path],
    authority: trustme.CA,
    transport: str,
) -> None:
    hostile = RawWorker("nothing_read")
    processes.callback(hostile.stop)
    webhooks = webhook_document(
        "validate", "bad", "bad", *[{"number": number} for number in range(WEBHOOKS)], timeoutSeconds=3
    )
    folder = configure(tmp_path, pool_document("bad", *hostile.targets, transport=transport), webhooks)
    gateway = GatewayProcess(folder, certificate, authority)
    processes.callback(gateway.stop)
    document = json.loads((REVIEWS / "pod-create-validate.json").read_bytes())
    gateway.post("/validate/bad?timeout=5s", json.dumps(document).encode())
    before = resources(gateway.child.pid).resident_bytes
    document["request"]["object"]["metadata"]["annotations"] = {"large": "x" * LARGE_BYTES}
    response = json.loads(gateway.post("/validate/bad?timeout=5s", json.dumps(document).encode()))["response"]
    assert not response["allowed"]
    status = Path(f"/proc/{gateway.child.pid}/status").read_text()
    grown = int(status.split("VmHWM:")[1].split()[0]) * 1024 - before
    assert grown < MOST_GROWN_BYTES, f"{grown >> 20} MiB"
