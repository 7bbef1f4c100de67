"""An API server with the objects and rights that a test gives it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

from tests.kubernetes import server

if TYPE_CHECKING:
    import asyncio
    import ssl

Json = dict[str, Any]

TOKEN = "of-the-worker"


class ApiServer(server.ApiServer):
    """Answers GET of ``lists`` and of their objects by name."""

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        super().__init__(tls)
        self.token = TOKEN
        self.lists: dict[str, list[Json]] = {}
        """Objects by the path of their list."""
        self.others: dict[str, Json | str] = {}
        """Documents by path, such as those of discovery, and texts that are not JSON."""

    def handler(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> server.Handler:
        return _Handler(self, reader, writer)


class _Handler(server.Handler):
    server: ApiServer

    async def _do_get(self) -> None:
        if not await self._admit("get", {"path": self.path}):
            return
        url, lists = urlsplit(self.path), self.server.lists
        listed, _, name = url.path.rpartition("/")
        named = [one for one in lists.get(listed, ()) if one["metadata"]["name"] == name]
        other = self.server.others.get(url.path)
        if isinstance(other, str):
            self.send(200, other.encode())
        elif other is not None or named:
            self.answer(200, other or named[0])
        elif url.path in lists:
            self.answer_page(lists[url.path], dict(parse_qsl(url.query)))
        else:
            self.refuse(404, f"{name} not found")
