"""The parts of one gateway process."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.errors import Unavailable
from gateway.pages import overview

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.pages.state import Json, ProcessState
    from gateway.telemetry.window import Window


class OneProcess:
    """The source of the pages of a gateway with one process; see ``gateway.pages.routes.Source``."""

    processes: Final = 1

    def __init__(self, state: Callable[[], ProcessState | None], window: Window) -> None:
        """*state* returns the present state; None: no configuration is in force yet."""
        self._state = state
        self._window = window

    async def parts(self, target: str, body: bytes = b"") -> Sequence[Json]:
        """Return the part of this process for *target*.

        Raises:
            Unavailable: no configuration is in force yet.
        """
        state = self._state()
        if state is None:
            raise Unavailable("starting: no configuration is in force yet")
        return [await overview.part(state, self._window)]
