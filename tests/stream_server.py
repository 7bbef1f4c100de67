"""A server of streams on the event loop of a test."""

from __future__ import annotations

import asyncio
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Coroutine


@asynccontextmanager
async def stream_server(
    serve: Callable[[asyncio.StreamReader, asyncio.StreamWriter], Coroutine[Any, Any, None]], **options: Any
) -> AsyncIterator[int]:
    """Serve each connection by *serve*, and yield the port; *options* are those of ``asyncio.start_server``.

    At the end every connection is closed: one that is left would be a warning in a later test.
    """
    loop = asyncio.get_running_loop()
    connections: dict[asyncio.Task[None], asyncio.StreamWriter] = {}

    def accept(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        task = loop.create_task(serve(reader, writer))
        connections[task] = writer
        # Not by the task: the end may come before its first step.
        task.add_done_callback(lambda _: connections.pop(task).close())

    server = await asyncio.start_server(accept, **({"host": "127.0.0.1", "port": 0, **options}))
    try:
        yield server.sockets[0].getsockname()[1]
    finally:
        # asyncio never closes a connection that it has accepted but not yet made when its server is closed.
        for listening in server.sockets:
            loop.remove_reader(listening)
        await asyncio.sleep(0)
        server.close()
        while connections or _has_connections(server):
            for task, writer in connections.items():
                if not task.cancelling():
                    task.cancel()
                writer.transport.abort()
            await asyncio.sleep(0)


def _has_connections(server: Any) -> bool:
    """Whether *server* has some, in whatever state. Its ``wait_closed`` waits for none before Python 3.12."""
    return bool(server._clients if hasattr(server, "_clients") else server._active_count)
