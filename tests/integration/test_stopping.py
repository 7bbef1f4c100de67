"""The shutdown of a gateway in this process."""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING

import pytest

from gateway.server.app import Gateway
from gateway.server.options import Options
from tests.kit import pool_document
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

HEAD = "apiVersion: admission-gateway.io/v1alpha1\nkind: GatewayConfiguration\nlisten: 127.0.0.1:0\n"


async def test_a_configuration_that_changes_during_the_drain_is_ignored(
    tmp_path: Path,
) -> None:
    """A rollout changes both at once. Pools that are made during the drain would never be closed."""
    file = tmp_path / "c.yaml"
    file.write_text(HEAD)
    options = Options((file,), dev=True, state=tmp_path / "state", allow_empty=True)
    gateway = Gateway(options, lambda pool: [])
    await gateway.start(options.load(), "127.0.0.1:0")
    listener = gateway._front_end._listener
    assert listener is not None
    with socket.create_connection(("127.0.0.1", gateway.port)):
        await until(lambda: listener.accepted)
        stopping = asyncio.create_task(gateway.stop(0.2))
        await asyncio.sleep(0)
        file.write_text(f"{HEAD}---\n{pool_document('pool', 'unix:/nowhere')}")
        listener.tick()
        assert all(task.cancelling() for task in gateway._tasks)
        await stopping
    assert gateway.config is not None
    assert not gateway.config.pools
