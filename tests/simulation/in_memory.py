"""The parts of the gateway that reach out of the process, on a loop in virtual time."""

from __future__ import annotations

from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING
from unittest import mock

from gateway.engine.dispatch import targets
from gateway.engine.dispatch.cpu_budget import CpuBudget
from gateway.engine.dispatch.dialer import Dialer
from tests.simulation.unary_channel import open_channel

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.simulation.loop import VirtualLoop


@contextmanager
def in_memory(loop: VirtualLoop) -> Iterator[None]:
    """Have the gateway look up names, open channels and read clocks on *loop*."""
    with ExitStack() as stack:
        stack.enter_context(mock.patch.object(targets, "look_up", loop.look_up))
        stack.enter_context(mock.patch.object(Dialer, "open_channel", open_channel))
        # Real CPU time differs from run to run. Virtual time stands still while code runs.
        for clock in ("cpu", "clock"):
            stack.enter_context(mock.patch.object(CpuBudget, clock, loop.time))
        yield
