"""Sends reviews to a gateway as kube-apiserver does, and counts their outcomes, while a test makes faults.

    with Load(gateway, "/validate?timeout=5s", "pod-create-validate", connections=16) as load:
        load.wait_for(200)
        ...a fault...
        load.wait_for(500)
    assert load.tally.lost == 0

``loadtest.generator`` sends, on an event loop in a thread of its own.
"""

from __future__ import annotations

import asyncio
import json
import threading
import uuid
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import cycle
from typing import TYPE_CHECKING, Protocol, Self

import uvloop

from loadtest.generator import Generator, Outcomes
from loadtest.http_client import Address, Answer, Request, post
from loadtest.outcomes import outcome_of
from tests.kit import PATIENCE_S, REVIEWS

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping, Sequence
    from types import TracebackType

MAX_REVIEWS = 200_000
MAX_RETRIES = 10
"""Of a review that is refused. Source: kubernetes/client-go rest/request.go, ``maxRetries``."""
MAX_TEXTS = 20


class Server(Protocol):
    """A server on 127.0.0.1, such as a ``GatewayProcess``; asked again for each connection."""

    @property
    def port(self) -> int:
        """The port that it listens on."""

    @property
    def client_context(self) -> ssl.SSLContext:
        """The TLS context of its clients."""


@dataclass(frozen=True, slots=True)
class Tally:
    """Counts of outcomes. When the load has ended, ``sent == answered + refused + lost``."""

    sent: int = 0
    """Reviews, not requests: a review that was refused and sent again counts once."""
    allowed: int = 0
    failed_open: int = 0
    """Allowed answers with the annotation of a webhook that failed open."""
    denied: int = 0
    failed: int = 0
    """Denied with code 500: a webhook failed whose failurePolicy is Fail."""
    refused: int = 0
    """HTTP 503; with ``retry_refused`` also after all retries."""
    retried: int = 0
    """Requests that repeat a refused request."""
    lost: int = 0
    """No answer, another status, or the answer to another review."""
    texts: tuple[str, ...] = ()
    """Messages of failures, refusals and losses: the first few different ones."""

    @property
    def answered(self) -> int:
        """With the right AdmissionReview."""
        return self.allowed + self.denied + self.failed

    def plus(self, *names: str, text: str = "") -> Tally:
        """Return these counts with one more of each of *names*."""
        texts = self.texts
        if text and text not in texts and len(texts) < MAX_TEXTS:
            texts = (*texts, text)
        return replace(self, texts=texts, **{name: getattr(self, name) + 1 for name in names})


class InThread(Outcomes[Request]):
    """A load that runs during a ``with`` block, on a thread of its own, with the methods of ``Outcomes``."""

    def __init__(self, address: Callable[[], Address], connections: int, **options: float | None) -> None:
        self._changed = threading.Condition()
        """Guards all that both threads use."""
        self._is_open = self._is_over = False
        self._error: BaseException | None = None
        self._address, self._width, self._options = address, connections, options
        self._in_flight: set[str] = set()
        """By uid."""
        self._generator: Generator[Request]
        self._loop: asyncio.AbstractEventLoop
        self._thread = threading.Thread(target=self._run, name="load", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        self._wait(lambda: self._is_open or self._is_over, "the load could not connect")
        if self._error is not None:
            raise AssertionError(f"the load could not connect: {self._error!r}") from self._error
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        """Wait until all requests in flight have ended; after an error of the test, end them."""
        end = self._generator.is_over.set if error is not None else self._generator.stop
        with suppress(RuntimeError):  # the loop is closed
            self._loop.call_soon_threadsafe(end)
        self._thread.join(PATIENCE_S)
        if error is None:
            assert self._error is None, self._error
            assert self._is_over, f"the load does not end: {self}"

    def finish(self) -> None:
        """Wait until all ``count`` requests have ended."""
        self._wait(lambda: self._is_over, "the load does not end")

    def wait_for_those_in_flight(self) -> None:
        """Wait until all requests that are in flight now have ended."""
        with self._changed:
            awaited = self._in_flight.copy()
        self._wait(lambda: awaited.isdisjoint(self._in_flight), "requests that do not end")

    def _wait(self, holds: Callable[[], bool], problem: str) -> None:
        """Wait until *holds*, which is checked after each outcome, or all requests have ended."""
        with self._changed:
            self._changed.wait_for(lambda: self._is_over or holds(), PATIENCE_S)
            assert self._error is None, self._error
            assert holds(), f"{problem}: {self}"

    # -- on the thread of the load ----------------------------------------------------------------

    def requests(self) -> Iterator[Request]:
        """Yield what is sent."""
        raise NotImplementedError

    def ended(self, request: Request, answer: Answer | None, reason: str) -> bool:
        """Return whether *answer* is right; without an answer *reason* says why there is none."""
        raise NotImplementedError

    def judge(self, request: Request, answer: Answer) -> bool:
        """See ``Outcomes``."""
        return self._settle(request, answer, "")

    def lost(self, request: Request | None, reason: str) -> None:
        """See ``Outcomes``. A server may close a connection that is idle."""
        if request is not None:
            self._settle(request, None, reason)

    def _settle(self, request: Request, answer: Answer | None, reason: str) -> bool:
        with self._changed:
            self._in_flight.discard(request.uid)
            is_right = self.ended(request, answer, reason)
            self._changed.notify_all()
        return is_right

    def _sent(self) -> Iterator[Request]:
        for request in self.requests():
            with self._changed:
                self._in_flight.add(request.uid)
            yield request

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
        self._loop = asyncio.get_running_loop()
        self._generator = Generator(self._address, self._sent(), self, **self._options)  # type: ignore[arg-type]
        await self._generator.open(self._width)
        with self._generator.sending():
            with self._changed:
                self._is_open = True
                self._changed.notify_all()
            await self._generator.is_over.wait()
        await self._generator.close()


class Load(InThread):
    """Reviews, bounded in count."""

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
        """Set the parameters.

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
        super().__init__(
            lambda: Address("127.0.0.1", server.port, server.client_context),
            connections,
            rate=rate,
            max_retries=MAX_RETRIES if retry_refused else 0,
        )
        self._review = body if isinstance(body, bytes) else (REVIEWS / f"{body}.json").read_bytes()
        self._paths = [path] if isinstance(path, str) else path
        self._headers, self._count = headers, count
        self._tally = Tally()

    def __str__(self) -> str:
        return str(self._tally)

    @property
    def tally(self) -> Tally:
        """The outcomes so far; complete after the ``with`` block."""
        return self._tally

    def wait_for(self, answers: int) -> None:
        """Wait until so many more reviews have been answered."""
        wanted = self._tally.answered + answers
        self._wait(lambda: self._tally.answered >= wanted, f"not {wanted} answers")

    def wait_until(self, holds: Callable[[Tally], bool]) -> None:
        """Wait until *holds* is true of the tally."""
        self._wait(lambda: holds(self._tally), "the load does not come so far")

    def requests(self) -> Iterator[Request]:
        """See ``InThread``."""
        uid: str = json.loads(self._review)["request"]["uid"]
        parts = self._review.split(uid.encode())
        first = uuid.uuid4().int >> 64 << 64
        for number, path in zip(range(self._count), cycle(self._paths), strict=False):
            own = str(uuid.UUID(int=first | number))
            self._add("sent")
            yield Request(own, post(path, "127.0.0.1", own.encode().join(parts), self._headers))

    def ended(self, request: Request, answer: Answer | None, reason: str) -> bool:
        """See ``InThread``."""
        outcome, text = outcome_of(answer, request.uid) if answer is not None else ("lost", reason)
        also = ("allowed",) if outcome == "failed open" else ()
        self._add(outcome.replace(" ", "_"), *also, text="" if outcome == "denied" else text)
        return outcome != "lost"

    def retried(self, request: Request) -> None:
        """See ``Outcomes``."""
        with self._changed:
            self._add("retried")
            self._changed.notify_all()

    def _add(self, *names: str, text: str = "") -> None:
        self._tally = self._tally.plus(*names, text=text)
