"""Attacks of ``raw_worker`` on a gateway that other pools use, too.

    python -m tests.faults.hostile_frames [SEED [ATTACK...]]

prints for each attack (all of them without names; ``fuzz`` makes frames at random by the seed) how long
reviews of another pool took meanwhile, and for how long the gateway's event loop was held at most, in CPU
time. It judges nothing: on a busy machine everything takes longer.
"""

from __future__ import annotations

import re
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Final

import trustme

from tests.faults.kit import SOME_PORT, configure, resources, wait_until_ready
from tests.faults.raw_worker import ATTACKS
from tests.kit import GatewayProcess, Process, WorkerProcess, pool_document, webhook_document
from tests.load import Load

if TYPE_CHECKING:
    from tests.tally import Tally

HONEST: Final = "/validate/good?timeout=20s"
ATTACKED: Final = "/validate/bad-ignore?timeout=20s"


class RawWorker(Process):
    """``raw_worker`` as a process."""

    def __init__(self, *attacks: str, seed: int = 0) -> None:
        command = (sys.executable, "-m", "tests.faults.raw_worker", str(seed), *attacks)
        super().__init__(*command, stdout=subprocess.PIPE)
        assert self.child.stdout is not None
        self.targets = [f"127.0.0.1:{port}" for port in self.child.stdout.readline().split()]


class WatchedGateway(GatewayProcess):
    """A gateway that knows for how long the bytes of workers held its event loop."""

    module = "tests.faults.watched_gateway"

    def longest_hold_s(self) -> float:
        """End the gateway, and return the longest time, in seconds of CPU."""
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


def attack_for(seconds: float, name: str, seed: int, hostile: int, **pool: object) -> str:
    """Return what is to be said of an attack, or of none if *name* is empty."""
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        authority = trustme.CA()
        issued = authority.issue_cert("127.0.0.1")
        issued.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))
        issued.private_key_pem.write_to_path(str(folder / "tls.key"))
        honest = WorkerProcess(SOME_PORT)
        stack.callback(honest.stop)
        targets = [honest.target]
        if name:
            worker = RawWorker(*[name] * hostile, seed=seed)
            stack.callback(worker.stop)
            targets = worker.targets
        (folder / "config").mkdir()
        configured = configure(folder / "config", *configuration(honest.target, *targets, **pool))
        gateway = WatchedGateway(configured, (folder / "tls.crt", folder / "tls.key"), authority)
        stack.callback(gateway.stop)
        wait_until_ready(gateway, 1)
        with (
            Load(gateway, HONEST, "pod-create-validate", connections=4, rate=200) as load,
            Load(gateway, ATTACKED, "pod-create-validate", connections=16, rate=100) as attacked,
        ):
            time.sleep(seconds)
            livez = gateway.admin("/livez")[0]
        memory = resources(gateway.child.pid).resident_bytes / 2**20
        said = f"/livez {livez}, {memory:.0f} MiB, held {gateway.longest_hold_s() * 1000:.1f} ms of CPU"
        return f"{_delays(load.tally)}; {said}; bad: {attacked.tally}"


def _delays(tally: Tally) -> str:
    ms = sorted(1000 * latency for latency in tally.latencies_s)
    p99 = statistics.quantiles(ms, n=100)[98]
    return (
        f"{len(ms)} of {tally.sent} answered, p50 {ms[len(ms) // 2]:.1f}, p99 {p99:.1f}, max {ms[-1]:.1f} ms"
    )


def main(seed: int = 0, *names: str) -> None:
    for name in ("", *(names or (*ATTACKS, "fuzz"))):
        for hostile in (1, 4) if name else (1,):
            said = attack_for(4.0, name, seed, hostile)
            print(f"{name or 'no attack'} by {hostile}: {said}", flush=True)  # noqa: T201


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 0, *sys.argv[2:])
