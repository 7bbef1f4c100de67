"""The pages of a gateway with several processes: the parts of all of them, by their admin sockets."""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, urlencode

import orjson

from gateway.base.errors import Unavailable
from gateway.observe.telemetry.aggregation import FetchError, fetch

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gateway.server.pages.state import Json, PageRequest

log = logging.getLogger(__name__)

_EXPLAINED_WITHIN_S: Final = 35.0
"""Longer than the longest review."""


class AllProcesses:
    """The source of the pages of several processes; see ``gateway.server.pages.routes.Source``."""

    def __init__(self, sockets: Sequence[Path]) -> None:
        """*sockets* are those of the admin ports of the processes."""
        self._sockets = sockets

    @property
    def processes(self) -> int:
        """The number of processes."""
        return len(self._sockets)

    async def parts(self, request: PageRequest) -> Sequence[Json]:
        """Return the part of each process that answers; a review is explained by one of them.

        Raises:
            Unavailable: no process answers.
        """
        target = f"{quote(request.path)}?{urlencode({**request.query, 'format': 'process'})}"
        if request.body:
            for socket in self._sockets:
                part = await _part(socket, target, request.body)
                if part is not None:
                    return [part]
        else:
            found = await asyncio.gather(*(_part(socket, target) for socket in self._sockets))
            if any(found):
                return [part for part in found if part is not None]
        raise Unavailable("no process answers")


async def _part(socket: Path, target: str, body: bytes = b"") -> Json | None:
    """Return the part of the process at *socket*; None if it has none, or does not answer."""
    try:
        status, answer = await (
            fetch(socket, target, body, _EXPLAINED_WITHIN_S) if body else fetch(socket, target)
        )
    except FetchError as error:
        log.debug("no part of a page: %s: %s", socket.name, error)
        return None
    if status != 200:
        log.debug("no part of a page: %s: status %d", socket.name, status)
        return None
    part: Json = orjson.loads(answer)
    return part
