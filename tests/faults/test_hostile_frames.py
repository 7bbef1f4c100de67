"""Hostile HTTP/2 frames of a worker: other pools and ``/livez`` are not affected."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.faults.kit import SOME_PORT, all_well, configure, resources, wait_until_ready
from tests.kit import REVIEWS, GatewayProcess, WorkerProcess, pool_document, webhook_document
from tests.load import Load
from tests.waiting import eventually
from tests.worker.attacks import ATTACKS

if TYPE_CHECKING:
    from contextlib import ExitStack

    import trustme

pytestmark = pytest.mark.process

HONEST = "/validate/good?timeout=20s"
WEBHOOKS = 24
LARGE_BYTES = 4 * 1024 * 1024
MAX_GROWN_BYTES = 80 * 1024 * 1024
"""32 MiB of queued requests, the body, and its decoded form. All requests together have 96 MiB."""
MAX_HELD_S = 0.2
"""CPU time for which one read may hold the event loop. A slice has 2 ms; a message of 8 MiB takes several."""
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
"""Attacks that do not violate HTTP/2 or are too small: the worker is not banned."""


def attacking(*attacks: str, seed: int = 0) -> WorkerProcess:
    """Start a worker that attacks, with a target for each of *attacks*."""
    flags = [f"--attack={attack}" for attack in attacks]
    return WorkerProcess(SOME_PORT, f"--seed={seed}", *flags)


class WatchedGateway(GatewayProcess):
    """A gateway that measures for how long the bytes of workers hold its event loop."""

    module = "tests.faults.watched_gateway"

    def longest_hold_s(self) -> float:
        """Stop the gateway, and return the longest time in seconds of CPU."""
        self.stop()
        found = re.search(r"longest hold: (\S+) s", self.log)
        assert found is not None, self.log
        return float(found[1])


def configuration(honest: str, *hostile: str, **pool: object) -> tuple[str, ...]:
    """Return the documents of an honest pool with a webhook, and of a hostile one with two."""
    bad = {policy: {"failurePolicy": policy, "timeoutSeconds": 2} for policy in ("Fail", "Ignore")}
    return (
        pool_document("pool", honest),
        webhook_document("validate", "good", "pool", {}),
        pool_document("bad", *hostile, **pool),
        *(
            webhook_document("validate", f"bad-{policy.lower()}", "bad", {}, **fields)
            for policy, fields in bad.items()
        ),
    )


@pytest.mark.parametrize(
    ("attacks", "seed"),
    [
        *(pytest.param((name,), 0, id=name) for name in ATTACKS),
        pytest.param(tuple(ATTACKS), 0, id="all"),
        *(pytest.param(("fuzz",) * 4, seed, id=f"fuzz-{seed}") for seed in SEEDS),
    ],
)
def test_malformed_frames_affect_only_the_webhooks_of_their_worker(
    processes: ExitStack,
    tmp_path: Path,
    certificate: tuple[Path, Path],
    authority: trustme.CA,
    attacks: tuple[str, ...],
    seed: int,
) -> None:
    honest = WorkerProcess(SOME_PORT)
    processes.callback(honest.stop)
    hostile = attacking(*attacks, seed=seed)
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
            # An attack may answer calls before it begins.
            assert is_right + tally.allowed - tally.failed_open == tally.sent, tally
        if not set(NOT_BANNED) & set(attacks) and seed == 0:
            eventually(lambda: "violated the protocol" in gateway.log, "the worker is left alone")
        assert gateway.admin("/livez")[0] == 200
        load.wait_for(HONEST_REVIEWS)
    assert all_well(load.tally), load.tally
    assert gateway.longest_hold_s() < MAX_HELD_S
    assert "Traceback" not in gateway.log
    assert "internal error" not in gateway.log


@pytest.mark.parametrize("transport", ["Auto", "Unary"])
def test_a_worker_that_does_not_read_does_not_exhaust_memory(
    processes: ExitStack,
    tmp_path: Path,
    certificate: tuple[Path, Path],
    authority: trustme.CA,
    transport: str,
) -> None:
    hostile = attacking("nothing_read")
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
    assert grown < MAX_GROWN_BYTES, f"{grown >> 20} MiB"
