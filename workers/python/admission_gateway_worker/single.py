"""Handlers of RPCs with one request message."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission_gateway_worker.http2.messages import StatusCode

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission_gateway_worker.rpc import Rpc


class Refused(Exception):
    """A request that is answered with a status."""

    def __init__(self, code: StatusCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class SingleRequest:
    """Begins when the request is complete."""

    is_busy = False

    def __init__(
        self,
        rpc: Rpc,
        begin: Callable[[Rpc, bytes], None],
        cancelled: Callable[[Rpc], object] | None = None,
    ) -> None:
        """*begin* gets the message; it may raise Refused. *cancelled* is called if the RPC ends after it."""
        self._rpc = rpc
        self._begin = begin
        self._cancelled = cancelled
        self._message: bytes | None = None
        self._has_begun = False

    def go_on(self) -> None:
        """See ``Handler``."""

    def received(self, message: bytes) -> None:
        """See ``Handler``."""
        if self._message is not None:
            self._rpc.finish(StatusCode.UNIMPLEMENTED, "more than one message for a method that takes one")
        self._message = message
        self._rpc.hold(len(message))  # until the answer

    def half_closed(self) -> None:
        """See ``Handler``."""
        message, self._message = self._message, None
        if message is None:
            self._rpc.finish(StatusCode.UNIMPLEMENTED, "no message for a method that takes one")
            return
        try:
            self._begin(self._rpc, message)
            self._has_begun = True
        except Refused as refused:
            self._rpc.finish(refused.code, str(refused))

    def cancelled(self) -> None:
        """See ``Handler``."""
        if self._has_begun and self._cancelled is not None:
            self._cancelled(self._rpc)

    def writable(self) -> None:
        """See ``Handler``."""


def answering(answer: Callable[[bytes], bytes], rpc: Rpc) -> SingleRequest:
    """Return the handler of *rpc* that sends the result of *answer* at once."""

    def begin(rpc: Rpc, message: bytes) -> None:
        rpc.send(answer(message))
        rpc.finish()

    return SingleRequest(rpc, begin)
