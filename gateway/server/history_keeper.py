"""Keeps the configurations that come into force, for ``rollback``, without any effect on reviews."""

from __future__ import annotations

import asyncio
import logging
from functools import partial
from typing import TYPE_CHECKING

from gateway.config.merge.merged import resources_in_force
from gateway.config.merge.model import summary
from gateway.server.history import History, HistoryError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gateway.config.merge.merged import Merged
    from gateway.config.merge.model import Pinned

log = logging.getLogger(__name__)


class HistoryKeeper:
    """Writes what one process has in force. Make it on a running event loop."""

    def __init__(self, history: History | None, sources: Sequence[Path], number: int) -> None:
        """*history* is None if nothing is kept. *sources* are the files of the configuration.

        Of several processes, *number* 0 keeps the configuration for all.
        """
        self._history = history
        self._sources = tuple(map(str, sources))
        self._number = number
        self.errors = 0
        """Writes that failed."""
        self._pinned: Pinned | None = None
        self._digest = ""
        self._last = ""
        """The last error, which is not logged again."""
        self._writing: asyncio.Task[None] | None = None

    @property
    def is_pinned(self) -> bool:
        """Whether the configuration in force is one to which the gateway is pinned."""
        return self._pinned is not None

    @property
    def warnings(self) -> list[str]:
        """That the configuration is pinned; empty if it is not."""
        pinned = self._pinned
        return [] if pinned is None else [f"configuration pinned to {pinned.digest} since {pinned.since}"]

    def keep(self, merged: Merged, digest: str) -> None:
        """Keep the configuration *merged*, which is in force now."""
        config = merged.config
        self._digest, self._pinned = digest, config.pinned

        def write(history: History) -> None:
            if config.pinned is None and self._number == 0:
                if not config.source:
                    raise HistoryError("the configuration cannot be written as JSON")
                history.record(config, resources_in_force(merged), digest, self._sources, summary(config))
            history.report(self._number, digest, "" if config.pinned is None else config.pinned.digest, "")

        self._start(write)

    def refused(self, problem: str) -> None:
        """Note that a configuration was refused, for the command that waits for it."""
        pinned = "" if self._pinned is None else self._pinned.digest
        self._start(lambda history: history.report(self._number, self._digest, pinned, problem))

    def _start(self, write: Callable[[History], None]) -> None:
        if self._history is not None:
            # One after another: the last one counts.
            self._writing = asyncio.create_task(self._write(partial(write, self._history), self._writing))

    async def _write(self, write: Callable[[], None], before: asyncio.Task[None] | None) -> None:
        if before is not None:
            await asyncio.wait([before])
        try:
            await asyncio.to_thread(write)
        except Exception as error:
            self.errors += 1
            if str(error) != self._last:
                log.warning(
                    "configuration not kept for rollback: %s",
                    error,
                    exc_info=not isinstance(error, HistoryError),
                )
            self._last = str(error)
        else:
            self._last = ""

    async def close(self) -> None:
        """Wait for the last write."""
        if self._writing is not None:
            await asyncio.wait([self._writing])
