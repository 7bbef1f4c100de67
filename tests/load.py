"""Sends reviews to a gateway as kube-apiserver does, and counts their outcomes.

A closed loop over TLS connections that are kept alive, on an event loop in a thread of its own:

    with Load(gateway, "/validate?timeout=5s", "pod-create-validate", connections=16) as load:
        load.wait_for(200)
        ...a fault...
        load.wait_for(500)
    assert load.tally.lost == 0

It behaves like kube-apiserver's client: an answer with ``Connection: close`` is the last of its connection, a
connection that the server has closed is not used again, and a POST on a connection that is just being closed
is lost, because Go's ``net/http`` does not repeat requests that are not idempotent. With ``retry_refused`` a
review that is refused with 503 and ``Retry-After`` is sent again after that time, up to ten times, as
``client-go`` does.

Bounded in count and, by ``PATIENCE_S``, in time. It does not measure performance: ``loadtest`` does.
"""

from __future__ import annotations

import asyncio
import json
import threading
import time
import uuid
from typing import TYPE_CHECKING, Self

import uvloop

from tests.connection import Answer, Connection, NoAnswer, Server
from tests.kit import PATIENCE_S, REVIEWS
from tests.tally import Counts, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from types import TracebackType

__all__ = ["Load", "Tally"]

MAX_REVIEWS = 200_000
MAX_RETRIES = 10
"""Of a review that is refused. Source: kubernetes/client-go rest/request.go, ``maxRetries``."""
RECONNECT_AFTER_S = 0.05
"""Prevents a tight loop if there is no gateway."""


class Load:
    """A load that runs during a ``with`` block.

    Args:
        server: The gateway.
        path: With its query, such as ``/validate?timeout=5s``; several are used in turn.
        body: An AdmissionReview in JSON, or the name of a recorded one. Each request gets its own uid.
        connections: Opened before the block is entered; also the number of reviews in flight.
        headers: Additional headers.
        rate: Reviews a second, at most; None for no limit.
        retry_refused: Whether refused reviews are sent again after ``Retry-After``.
        count: Number of reviews, at most; see :meth:`finish`.
    """

    def __init__(
        self,
        server: Server,
        path: str | Sequence[str],
        body: str | bytes,
        *,
        connections: int = 16,
        headers: Mapping[str, str] | None = None,
        rate: float | None = None,
        retry_refused: bool = False,
        count: int = MAX_REVIEWS,
    ) -> None:
        review = body if isinstance(body, bytes) else (REVIEWS / f"{body}.json").read_bytes()
        uid: str = json.loads(review)["request"]["uid"]
        self._parts = review.split(uid.encode())
        lines = [f"Host: 127.0.0.1:{server.port}", "Content-Type: application/json"]
        lines += [f"{name}: {value}" for name, value in (headers or {}).items()]
        rest = "".join(f"{line}\r\n" for line in lines)
        paths = [path] if isinstance(path, str) else path
        self._heads = [f"POST {path} HTTP/1.1\r\n{rest}".encode() for path in paths]
        self._uids = uuid.uuid4().int >> 64 << 64
        self._rate = rate
        self._retries = MAX_RETRIES if retry_refused else 0
        self._limit = count
        self._counts = Counts()
        self._in_flight: set[int] = set()
        """By number, counted from 0."""
        self._changed = threading.Condition()
        self._is_open = self._is_stopping = self._is_over = False
        self._error: BaseException | None = None
        self._begun = self._ends_at = 0.0
        self._server = server
        self._width = connections
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        with self._changed:
            opened = self._changed.wait_for(lambda: self._is_open or self._is_over, PATIENCE_S)
        if not opened or self._error is not None:
            raise AssertionError(f"the load could not connect: {self._error!r}") from self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._is_stopping = True
        self._thread.join(2 * PATIENCE_S)
        if error is None:
            assert self._error is None, self._error
            assert self._is_over, f"the load does not end: {self.tally}"

    @property
    def tally(self) -> Tally:
        """The outcomes so far; complete after the ``with`` block."""
        with self._changed:
            return self._counts.tally()

    def wait_for(self, answers: int) -> None:
        """Wait until so many more reviews have been answered."""
        with self._changed:
            wanted = self._counts.answered + answers
            self._changed.wait_for(lambda: self._counts.answered >= wanted or self._is_over, PATIENCE_S)
            enough = self._counts.answered >= wanted
        assert enough, f"not {wanted} answers: {self.tally}"

    def wait_for_those_in_flight(self) -> None:
        """Wait until all reviews that are in flight now have ended."""
        with self._changed:
            awaited = self._in_flight.copy()
            ended = self._changed.wait_for(lambda: awaited.isdisjoint(self._in_flight), PATIENCE_S)
        assert ended, f"reviews that do not end: {self.tally}"

    def wait_until(self, holds: Callable[[Tally], bool]) -> None:
        """Wait until *holds* is true of the tally."""
        end = time.monotonic() + PATIENCE_S
        while True:
            is_over = self._is_over
            tally = self.tally
            if holds(tally):
                return
            assert not is_over, tally
            assert time.monotonic() < end, tally
            with self._changed:
                self._changed.wait(0.1)

    def finish(self) -> None:
        """Wait until all ``count`` reviews have ended."""
        with self._changed:
            ended = self._changed.wait_for(lambda: self._is_over, 2 * PATIENCE_S)
        assert ended, f"the load does not end: {self.tally}"

    # -- on the thread of the load ----------------------------------------------------------------

    def _run(self) -> None:
        try:
            with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
                runner.run(self._main())
        except BaseException as error:
            self._error = error
        finally:
            with self._changed:
                self._is_over = True
                self._changed.notify_all()

    async def _main(self) -> None:
        opening = asyncio.Semaphore(64)

        async def open_one() -> Connection:
            async with opening:
                return await Connection.open(self._server)

        connections = await asyncio.gather(*(open_one() for _ in range(self._width)))
        self._begun = time.monotonic()
        self._ends_at = self._begun + PATIENCE_S
        with self._changed:
            self._is_open = True
            self._changed.notify_all()
        await asyncio.gather(*(self._use(connection) for connection in connections))

    async def _use(self, connection: Connection) -> None:
        """Send one review after another over one connection and its replacements."""
        while not self._is_stopping and self._counts.sent < self._limit and time.monotonic() < self._ends_at:
            number = self._counts.sent
            with self._changed:
                self._counts.sent += 1
                self._in_flight.add(number)
            if self._rate is not None:
                await asyncio.sleep(self._begun + number / self._rate - time.monotonic())
            try:
                connection = await self._review(connection, number)
            except (NoAnswer, OSError, TimeoutError) as error:
                self._settle(number, self._lost, f"{type(error).__name__}: {error}")
                await connection.close()
                await asyncio.sleep(RECONNECT_AFTER_S)
        await connection.close()

    async def _review(self, connection: Connection, number: int) -> Connection:
        """Send a review, again while it is refused, and return the connection of its last answer."""
        uid = str(uuid.UUID(int=self._uids | number))
        body = uid.encode().join(self._parts)
        head = self._heads[number % len(self._heads)]
        request = b"%bContent-Length: %d\r\n\r\n%b" % (head, len(body), body)
        for retries_left in range(self._retries, -1, -1):
            if not connection.is_open:
                connection = await Connection.open(self._server)
            answer = await connection.exchange(request)
            if answer.status != 503 or not retries_left or "retry-after" not in answer.headers:
                break
            self._counts.retried += 1
            await asyncio.sleep(float(answer.headers["retry-after"]))
        self._settle(number, self._judge, uid, answer)
        return connection

    def _settle(self, number: int, count: Callable[..., None], *arguments: object) -> None:
        with self._changed:
            self._in_flight.discard(number)
            count(*arguments)
            self._changed.notify_all()

    def _judge(self, uid: str, answer: Answer) -> None:
        counts = self._counts
        if answer.status == 503:
            counts.refused += 1
            counts.note(f"503: {answer.body.decode(errors='replace')[:200]}")
            return
        try:
            assert answer.status == 200
            document = json.loads(answer.body)
            assert document["kind"] == "AdmissionReview"
            response = document["response"]
            assert response["uid"] == uid, f"the answer is to {response['uid']}"
            allowed, status = response["allowed"], response.get("status", {})
            assert isinstance(allowed, bool)
        except (AssertionError, ValueError, KeyError, TypeError) as error:
            self._lost(f"{answer.status} {error}: {answer.body.decode(errors='replace')[:200]}")
            return
        counts.answered += 1
        if allowed:
            counts.allowed += 1
            counts.failed_open += any("failed-open." in key for key in response.get("auditAnnotations", {}))
        elif status.get("code") == 500:
            counts.failed += 1
            counts.note(status.get("message", ""))
        else:
            counts.denied += 1

    def _lost(self, text: str) -> None:
        self._counts.lost += 1
        self._counts.note(text)
