"""The parts of the gateway that reach out of the process, on a loop in virtual time."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from gateway.engine.dispatch import targets
from gateway.engine.dispatch.dialer import Dialer
from tests.engines import cpu_on
from tests.simulation.unary_channel import open_channel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.loop import VirtualLoop


@contextmanager
def in_memory(loop: VirtualLoop) -> Iterator[None]:
    """Have the gateway look up names, open channels and read clocks on *loop*."""
    with (
        mock.patch.object(targets, "look_up", loop.look_up),
        mock.patch.object(Dialer, "open_channel", open_channel),
        cpu_on(loop.time),
    ):
        yield
