"""What engines in tests have in common."""

from __future__ import annotations

from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Final
from unittest import mock

from gateway.engine.dispatch.cpu_budget import CpuBudget
from gateway.engine.snapshot import Surroundings
from gateway.pure.core.answer import NO_ORIGIN
from gateway.pure.core.deadline import Deadline

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gateway.engine.engine import Engine
    from gateway.engine.snapshot import Snapshot
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.matching import Selection


async def compute(work: Callable[[], Any]) -> Any:
    """Call *work* without a thread, which would make the order of events differ from run to run."""
    return work()


INLINE: Final = Surroundings(compute=compute)
"""Real clocks without threads."""


@contextmanager
def cpu_on(clock: Callable[[], float]) -> Iterator[None]:
    """Have CPU time counted on *clock*, in seconds: real CPU time differs from run to run.

    A clock in virtual time stands still while code runs.
    """
    with mock.patch.object(CpuBudget, "cpu", clock), mock.patch.object(CpuBudget, "clock", clock):
        yield


def snapshot_of(engine: Engine) -> Snapshot:
    """Return the configuration in force, which there has to be."""
    assert engine.snapshot is not None
    return engine.snapshot


def begin(
    engine: Engine,
    selection: Selection,
    body: bytes,
    answered: Callable[[Answer], None],
    failed: Callable[[Exception], None],
    budget_s: float = 30.0,
) -> Callable[[], None]:
    """Begin a review of *body* that ends within *budget_s* seconds, and return a function that cancels it."""
    deadline = Deadline.after(budget_s, snapshot_of(engine).backends.now())
    return engine.review(selection, body, deadline, answered, failed, NO_ORIGIN)
