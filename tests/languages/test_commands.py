"""Workers that the gateway starts itself (``command``), in each language."""

from __future__ import annotations

import os
import signal
from pathlib import Path
from typing import TYPE_CHECKING

from tests.faults.kit import wait_until_ready
from tests.faults.rotating import command_pool, named
from tests.kit import webhook_document
from tests.process.kit import children_of, runs
from tests.waiting import eventually

if TYPE_CHECKING:
    from tests.kit import GatewayProcess, StartGateway
    from tests.languages.toolchains import Language

POLICY = "always-pull-images"


def worker_of(gateway: GatewayProcess, language: Language) -> list[int]:
    """Return the processes of *language*'s worker: one, or none during a restart."""
    program = Path(language.run[-1]).name
    return [pid for pid in children_of(gateway.child.pid) if program in command_line(pid)]


def command_line(pid: int) -> str:
    try:
        return Path(f"/proc/{pid}/cmdline").read_text()
    except OSError:
        return ""


def test_the_gateway_starts_restarts_and_stops_a_worker(
    tmp_path: Path, start_gateway: StartGateway, language: Language
) -> None:
    config = tmp_path / "config"
    config.mkdir()
    (config / "c.yaml").write_text(
        command_pool("own", *language.run) + named(webhook_document("mutate", "m", "own", {}), POLICY)
    )
    gateway = start_gateway(config, "--state", str(tmp_path / "s"))
    # The gateway serves when its workers are ready, or have had ten seconds to become so.
    wait_until_ready(gateway, 1, "own")
    assert "patch" in gateway.review("/mutate?timeout=30s", "pod-create-mutate")
    (first,) = worker_of(gateway, language)
    os.kill(first, signal.SIGKILL)
    eventually(lambda: worker_of(gateway, language) not in ([], [first]))
    eventually(lambda: "patch" in gateway.review("/mutate?timeout=30s", "pod-create-mutate"))
    (second,) = worker_of(gateway, language)
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0, gateway.log
    assert not runs(second)
    assert "serving 12 policies on unix:" in gateway.log
    assert not list((tmp_path / "s").glob("*.sock"))
    assert "Traceback" not in gateway.log
