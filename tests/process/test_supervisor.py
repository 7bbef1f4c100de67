"""Settings that the parent of several processes takes from a new configuration."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.server.options import Options
from gateway.server.process import supervisor
from gateway.server.process.local_workers import LocalWorkers
from gateway.server.process.supervisor import Supervisor
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

HEAD = "apiVersion: admission-gateway.io/v1alpha1\nkind: GatewayConfiguration\n"


class Process:
    """Stands for a gateway process; records its grace period."""

    graces_s: list[float]
    pid = None
    status = 0

    def __init__(self, name: str, command: list[str], *, descriptors: list[int]) -> None:
        """Start nothing."""

    async def stop(self, grace_s: float) -> None:
        Process.graces_s.append(grace_s)


@pytest.mark.parametrize(("later_s", "grace_s"), [(60, 65.0), (1, 7.0)])
async def test_processes_get_the_time_to_drain_that_was_configured_meanwhile(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, later_s: int, grace_s: float
) -> None:
    """A process that is killed before the end of its ``drainSeconds`` loses reviews."""
    Process.graces_s = []
    monkeypatch.setattr(supervisor, "Child", Process)
    monkeypatch.setattr(supervisor, "_POLL_S", 0.001)
    file = tmp_path / "c.yaml"

    def write(drain_s: int) -> None:
        file.write_text(f"{HEAD}listen: 127.0.0.1:0\ndrainSeconds: {drain_s}\n")

    write(2)
    options = Options(
        (file,),
        dev=True,
        state=tmp_path / "state",
        admin_listen="127.0.0.1:0",
        processes=2,
        allow_empty=True,
    )
    parent = Supervisor(options, options.load(), [], tmp_path, LocalWorkers(tmp_path))
    await parent.start()
    write(later_s)
    await parent.reload()
    await until(lambda: parent._in_force.gateway.drain_s == later_s)
    await parent.stop()
    assert Process.graces_s == [grace_s] * 2
