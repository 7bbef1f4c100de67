"""One unary call over a connection of its own, for rare questions to a worker such as ListPolicies."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final, TypeVar

from google.protobuf.message import DecodeError

from gateway.engine.dispatch.dialer import Unreachable
from gateway.engine.dispatch.unary import SERVICE

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.engine.dispatch.dialer import Dialer
    from gateway.engine.dispatch.rpc import CallStatus

T = TypeVar("T")

ANSWERED_WITHIN_S: Final = 5.0
MAX_ANSWER_BYTES: Final = 1024 * 1024
"""Ten thousand policies with a description of 100 characters."""


class NoAnswerError(Exception):
    """The worker gave no answer that can be used; the text is the reason."""

    def __init__(self, why: str, code: str = "") -> None:
        super().__init__(why)
        self.code = code
        """The gRPC status of the call. Empty without one, as when the worker cannot be reached."""


async def call_once(dialer: Dialer, method: str, request: bytes, parse: Callable[[bytes], T]) -> T:
    """Send *request* to *method* of the service of policies at *dialer*, and return its answer after *parse*.

    Raises:
        NoAnswerError: the worker cannot be reached, answers with an error, or not within
            ``ANSWERED_WITHIN_S``, or *parse* raised a DecodeError.
    """
    answer = _Answer(method)
    code = ""
    try:
        async with asyncio.timeout(ANSWERED_WITHIN_S):
            connection = await dialer.dial(f"{SERVICE}/{method}", answer)
            code = "DEADLINE_EXCEEDED"
            try:
                connection.send(request)
                connection.finish_writing()
                return parse(await answer.result)
            finally:
                connection.abort()
    except Unreachable as error:
        raise NoAnswerError(str(error)) from None
    except TimeoutError:
        why = f"{dialer.address}: {method}: no answer within {ANSWERED_WITHIN_S:g}s"
        raise NoAnswerError(why, code) from None
    except DecodeError:
        raise NoAnswerError(f"{method}: no valid {method}Response", "OK") from None


class _Answer:
    """The messages of one call."""

    def __init__(self, method: str) -> None:
        self._method = method
        self.result: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()

    # -- called by the connection -----------------------------------------------------------------

    def received(self, message: bytes | bytearray) -> None:
        """Take the answer."""
        if len(message) > MAX_ANSWER_BYTES:
            self._fail(f"an answer of {len(message)} bytes", "OK")
        elif not self.result.done():
            self.result.set_result(bytes(message))

    def writable(self) -> None:
        """Ignored: the only message is sent."""

    def leaving(self) -> None:
        """Ignored: the answer to the call may follow."""

    def ended(self, status: CallStatus) -> None:
        """The call has ended, perhaps without an answer."""
        self._fail(f"{status.code}: {status.details}", status.code)

    def _fail(self, why: str, code: str) -> None:
        if not self.result.done():
            self.result.set_exception(NoAnswerError(f"{self._method}: {why}", code))
            # An answer may be given up, after which nothing reads the exception.
            self.result.exception()
