"""Peers that are not workers."""

from __future__ import annotations

import asyncio
from typing import Any


class Says(asyncio.Protocol):
    """A peer that only says something; without anything to say it closes the connection."""

    def __init__(self, said: bytes | None) -> None:
        self.said = said
        self.is_closed = False

    def connection_made(self, transport: Any) -> None:
        if self.said is None:
            transport.close()
        elif self.said:
            transport.write(self.said)

    def connection_lost(self, _: Exception | None) -> None:
        self.is_closed = True
