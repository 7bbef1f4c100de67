"""What engines in tests have in common."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from gateway.engine.snapshot import Surroundings

if TYPE_CHECKING:
    from collections.abc import Callable


async def compute(work: Callable[[], Any]) -> Any:
    """Call *work* without a thread, which would make the order of events differ from run to run."""
    return work()


INLINE: Final = Surroundings(compute=compute)
"""Real clocks without threads."""
