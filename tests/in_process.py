"""A gateway in the process of the test, on an event loop that has real sockets and virtual time.

The gateway, its API server and its workers are all on the loop, which runs only while the test waits for
something. When no socket is ready, nothing is under way, and the clock jumps to the next timer: no test waits
for real time, and nothing depends on the speed of the machine.
"""

from __future__ import annotations

import asyncio
import logging
import re
import selectors
import socket
import time
from contextlib import AsyncExitStack, contextmanager
from typing import TYPE_CHECKING, Any, Final, TypeVar
from unittest import mock

from gateway.base import logs
from gateway.engine.snapshot import Surroundings
from gateway.server.app import Gateway
from gateway.server.options import Options
from tests.engines import compute, cpu_on
from tests.kit import PATIENCE_S, Answering

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Coroutine, Iterator, Mapping
    from concurrent.futures import Executor
    from contextlib import AbstractAsyncContextManager
    from pathlib import Path

T = TypeVar("T")

START_S: Final = 1000.0
"""The initial time."""
KERNEL_AFTER_S: Final = 0.5
"""Virtual time without a ready socket after which the kernel gets a moment."""
KERNEL_S: Final = 0.001
FIRST_STEP_S: Final = 0.1
"""Virtual time between two looks at a condition, which grows from look to look."""
LONGEST_STEP_S: Final = 2.0
MAX_STEPS: Final = 1000


class SocketLoop(asyncio.SelectorEventLoop):
    """An event loop whose clock stands still while sockets are ready, and else jumps to the next timer.

    What its users do in other threads is done at once in the thread of the loop.
    """

    def __init__(self) -> None:
        self._watched = _Selector(self)
        super().__init__(self._watched)
        self._now = START_S

    def time(self) -> float:
        """Return the virtual time in seconds."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Advance the clock by *seconds*."""
        self._now += seconds

    @property
    def has_connections(self) -> bool:
        """Whether it has any socket but its own."""
        return len(self._watched.get_map()) > 1

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., T], *args: object
    ) -> asyncio.Future[T]:
        """Call *func* now."""
        future: asyncio.Future[T] = self.create_future()
        try:
            future.set_result(func(*args))
        except Exception as error:
            future.set_exception(error)
        return future


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: SocketLoop) -> None:
        super().__init__()
        self._loop = loop
        self._probe = socket.socket(socket.AF_INET, socket.SOCK_DGRAM)
        self._probe.bind(("127.0.0.1", 0))
        self._probe.connect(self._probe.getsockname())
        self._probe.settimeout(PATIENCE_S)
        self._idle_s = 0.0
        """Virtual time that has passed since a socket was ready."""

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        ready = super().select(0)
        if not ready and timeout != 0:
            self._wait_for_kernel()
            ready = super().select(0)
        if not ready and timeout is None:
            ready = super().select(PATIENCE_S)
            assert ready, "nothing is ready and no timer is set"
        if not ready and timeout is not None and timeout > 0:
            self._idle_s += timeout
            if self._idle_s > KERNEL_AFTER_S:
                # Packets that another CPU delivers do not wait for each other.
                self._idle_s = 0.0
                ready = super().select(KERNEL_S)
            if not ready:
                self._loop.advance(timeout)
        if ready:
            self._idle_s = 0.0
        return ready

    def _wait_for_kernel(self) -> None:
        """Wait until packets that were sent before have been delivered.

        On loopback that is so when `send` returns, unless the kernel has too many packets: a thread of its
        own delivers them then, in their order.
        """
        self._probe.send(b".")
        self._probe.recv(1)

    def close(self) -> None:
        self._probe.close()
        super().close()


class InProcessGateway(Answering):
    """A gateway on the loop of its stage."""

    def __init__(self, stage: Stage, options: Options, tls: ssl.SSLContext) -> None:
        self._stage = stage
        self._options = options
        self._tls = tls
        self._is_stopped = False
        self._start: asyncio.Task[None] | None = None
        surroundings = Surroundings(stage.loop.time, stage.loop.time, compute)

        async def make() -> Gateway:
            return Gateway(options, lambda pool: pool.targets, surroundings=surroundings)

        self.gateway = stage.run(make())

    @property
    def log(self) -> str:
        """What the gateways of the stage have logged."""
        return "".join(self._stage.logged)

    @property
    def port(self) -> int:
        return self.gateway.port

    @property
    def admin_port(self) -> int:
        return self.gateway.admin_port

    def begin(self) -> None:
        """Begin to start."""
        assert self._options.admin_listen is not None

        async def start() -> asyncio.Task[None]:
            config = self._options.load_first()
            logs.current.activate(config.gateway.logging)
            assert self._options.admin_listen is not None
            return asyncio.create_task(self.gateway.start(config, self._options.admin_listen))

        self._start = self._stage.run(start())

    def wait_until_started(self) -> None:
        """Return when it serves, or raise what `Gateway.start` does."""
        assert self._start is not None
        self._stage.run(self._start)

    def expect(self, pattern: str, *, after: int = 0) -> re.Match[str]:
        """Wait until the log, from character *after* on, matches *pattern*; return the match in the whole."""
        sought = re.compile(pattern)
        return self._stage.eventually(lambda: sought.search(self.log, after), f"{pattern!r} in the log")

    def exchange(self, path: str, body: bytes) -> tuple[int, bytes]:
        headers = {"Content-Type": "application/json"}
        status, _, answer = self._stage.run(exchange(self.port, self._tls, "POST", path, body, headers))
        return status, answer

    def _admin(self, path: str, headers: dict[str, str]) -> tuple[int, str, str]:
        answering = exchange(self.admin_port, None, "GET", path, b"", headers)
        status, media_type, text = self._stage.run(answering)
        return status, media_type, text.decode()

    def begin_review(self, path: str, body: bytes) -> asyncio.Task[Any]:
        """Send a review; the connection ends with the task that is returned."""
        work = exchange(self.port, self._tls, "POST", path, body, {"Content-Type": "application/json"})
        return self._stage.loop.create_task(work)

    @property
    def is_serving(self) -> bool:
        """Whether it has started."""
        return self._start is not None and self._start.done()

    def stop(self) -> None:
        """Stop it; a second time has no effect."""
        if not self._is_stopped:
            self._is_stopped = True
            self._stage.run(self._stop())

    async def _stop(self) -> None:
        if self._start is not None and not self._start.done():
            self._start.cancel()
            await asyncio.wait((self._start,))
        await self.gateway.stop(0.0)


async def exchange(
    port: int, tls: ssl.SSLContext | None, method: str, path: str, body: bytes, headers: Mapping[str, str]
) -> tuple[int, str, bytes]:
    """Return status, media type and body of the answer to a request."""
    name = None if tls is None else "localhost"
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=tls, server_hostname=name)
    try:
        fields = {"Host": "localhost", "Connection": "close", "Content-Length": str(len(body)), **headers}
        lines = [f"{method} {path} HTTP/1.1", *(f"{name}: {value}" for name, value in fields.items()), "", ""]
        writer.write("\r\n".join(lines).encode() + body)
        head, _, content = (await reader.read()).partition(b"\r\n\r\n")
    finally:
        writer.transport.abort()
    status = head.split(b" ", 2)[1]
    media_type = re.search(rb"(?i)\r\ncontent-type: ([^\r]*)", head)
    return int(status), "" if media_type is None else media_type[1].decode(), content


class Stage:
    """The loop, with what runs on it. Make it by :func:`staged`."""

    def __init__(self, loop: SocketLoop, certificate: tuple[Path, Path], tls: ssl.SSLContext) -> None:
        self.loop = loop
        self.logged: list[str] = []
        """The records of the gateway."""
        self._certificate = certificate
        self._tls = tls
        self._stack = AsyncExitStack()
        self._gateways: list[InProcessGateway] = []

    def run(self, work: Coroutine[Any, Any, T] | asyncio.Task[T]) -> T:
        """Return the result of *work*."""
        return self.loop.run_until_complete(work)

    def enter(self, context: AbstractAsyncContextManager[T]) -> T:
        """Enter *context* until the end of the stage."""
        return self.run(self._stack.enter_async_context(context))

    def eventually(self, condition: Callable[[], T | None], what: str = "the condition") -> T:
        """Let virtual time pass until *condition* returns something true, and return that."""
        step_s = FIRST_STEP_S
        for _ in range(MAX_STEPS):
            if value := condition():
                return value
            self.run(asyncio.sleep(step_s))
            step_s = min(step_s * 1.1, LONGEST_STEP_S)
        raise AssertionError(f"not: {what}; last value {value!r}; log:\n{''.join(self.logged)}")

    def make_gateway(self, *config: Path, **options: Any) -> InProcessGateway:
        """Make a gateway that has not been started; *options* are those of ``Options``."""
        cert_file, key_file = self._certificate
        address = "127.0.0.1:0"
        files = {"tls_cert": cert_file, "tls_key": key_file, "listen": address, "admin_listen": address}
        gateway = InProcessGateway(self, Options(config, **{**files, **options}), self._tls)
        self._gateways.append(gateway)
        return gateway

    def start_gateway(self, *config: Path, **options: Any) -> InProcessGateway:
        """Start a gateway, and return it when it serves."""
        gateway = self.make_gateway(*config, **options)
        gateway.begin()
        gateway.wait_until_started()
        return gateway

    def close(self) -> None:
        """Stop the gateways, and leave the contexts."""
        for gateway in reversed(self._gateways):
            gateway.stop()
        self.run(self._stack.aclose())
        left = asyncio.all_tasks(self.loop)
        for task in left:
            task.cancel()
        if left:
            self.run(asyncio.wait(left))
        self.run(self.loop.shutdown_asyncgens())
        self.eventually(lambda: not self.loop.has_connections, "the end of all connections")


class _Records(logging.Handler):
    def __init__(self, logged: list[str]) -> None:
        super().__init__()
        self.setFormatter(logging.Formatter("%(levelname)s %(message)s"))
        self._logged = logged

    def emit(self, record: logging.LogRecord) -> None:
        self._logged.append(self.format(record) + "\n")


@contextmanager
def staged(certificate: tuple[Path, Path], tls: ssl.SSLContext) -> Iterator[Stage]:
    """Yield a stage whose gateways have *certificate*, and whose clients have *tls*."""
    loop = SocketLoop()
    stage = Stage(loop, certificate, tls)
    began_at = time.time() - loop.time()

    def wall_time() -> float:
        return began_at + loop.time()

    handler = _Records(stage.logged)
    logger = logging.getLogger("gateway")
    logger.addHandler(handler)
    try:
        with (
            mock.patch.object(time, "time", wall_time),
            mock.patch.object(time, "monotonic", loop.time),
            cpu_on(loop.time),
        ):
            try:
                yield stage
            finally:
                stage.close()
    finally:
        logger.removeHandler(handler)
        loop.close()
