"""What a worker writes below its messages, at its worst: other pools and ``/livez`` do not feel it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.faults.hostile_frames import HONEST, RawWorker, WatchedGateway, configuration
from tests.faults.kit import SOME_PORT, all_well, configure, wait_until_ready
from tests.faults.raw_worker import ATTACKS
from tests.kit import WorkerProcess
from tests.load import Load
from tests.waiting import eventually

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    import trustme

pytestmark = pytest.mark.slow

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
    *("goodbyes", "nothing_read", "small_verdict_batches", "unknown_field", "unknown_fields"),
)
"""What is no violation of HTTP/2: it ends the stream, or nothing."""


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
    assert "fault of the gateway" not in gateway.log
