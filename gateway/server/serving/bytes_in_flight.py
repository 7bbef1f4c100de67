"""A bound on the bytes of request bodies that a listener holds, and the refusals when it is exceeded.

Received bytes count, not announced ones: an announcement costs its sender nothing, and twenty of 7 MiB would
take all the room for as long as a request may last, without a byte of body being sent. Two rules keep the
bound:

1. A review has to fit in beside the complete and unanswered ones. The head is checked with the announced
   length, so that nothing is read in vain, and the complete body is checked again.
2. Bodies that are still arriving have the rest. When it is too little, the oldest of them is refused: the
   body of an API server arrives within milliseconds, so slow senders make room for fast ones, and an
   unfinished body never keeps a complete one out.

Requests that only webhooks with failurePolicy Ignore decide leave the last eighth to the others.

Heads and unsent answers, which are bounded for each connection, and the one read buffer are not counted.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from gateway.server.serving.message import unavailable

if TYPE_CHECKING:
    from gateway.server.serving.message import Exchange, Response

RESERVED_DIVISOR: Final = 8
"""One part in this many is reserved for reviews that a webhook with failurePolicy Fail may decide."""


def limit_when_failing_open(limit: int) -> int:
    """Return the part of *limit* for reviews that only webhooks with failurePolicy Ignore decide."""
    return limit - limit // RESERVED_DIVISOR


class Arriving(Protocol):
    """The reader of a body that is not complete."""

    def refuse(self, refusal: Response) -> None:
        """Answer the request that is being read with *refusal*, and drop its body."""


class BytesInFlight:
    """The bytes of bodies that are arriving, and of those that are complete and not answered."""

    def __init__(self, limit_bytes: int, body_bytes: int) -> None:
        self._arriving: OrderedDict[Arriving, int] = OrderedDict()
        self.arriving_bytes = 0
        self.complete_bytes = 0
        """Reduced by ``Exchange.release``."""
        self.use(limit_bytes, body_bytes)

    def __repr__(self) -> str:
        return f"<BytesInFlight {self.arriving_bytes} arriving, {self.complete_bytes} complete>"

    def use(self, limit_bytes: int, body_bytes: int) -> None:
        """Hold up to *limit_bytes* from now on; *body_bytes* is how long a single body may be."""
        self.limit_bytes = limit_bytes
        # The longest allowed body has to fit in when there is nothing else.
        self._failing_open_limit_bytes = max(
            limit_when_failing_open(limit_bytes), min(body_bytes, limit_bytes)
        )

    @property
    def total_bytes(self) -> int:
        """Bytes of all bodies."""
        return self.arriving_bytes + self.complete_bytes

    def has_room(self, exchange: Exchange, body_bytes: int) -> bool:
        """Whether a request with a body of *body_bytes* fits in beside the complete ones."""
        limit_bytes = self._failing_open_limit_bytes if exchange.route.fails_open else self.limit_bytes
        return self.complete_bytes + body_bytes <= limit_bytes

    def refusal(self) -> Response:
        """Return the answer to a request that does not fit in."""
        limit = f"limits.maxBytesInFlight allows {self.limit_bytes}"
        return unavailable(f"too many bytes of requests are in flight, {limit}")

    def hold(self, reader: Arriving, held_bytes: int) -> None:
        """Note that *reader* holds *held_bytes* of an incomplete body."""
        self.arriving_bytes += held_bytes - self._arriving.get(reader, 0)
        self._arriving[reader] = held_bytes
        self._trim()

    def drop(self, reader: Arriving) -> None:
        """Note that *reader* no longer holds a body."""
        self.arriving_bytes -= self._arriving.pop(reader, 0)

    def complete(self, exchange: Exchange) -> bool:
        """Count a request whose body is complete until it is answered; False if it does not fit in."""
        body_bytes = len(exchange.request.body)
        if not self.has_room(exchange, body_bytes):
            return False
        exchange.counted_bytes = body_bytes
        exchange.byte_counter = self
        self.complete_bytes += body_bytes
        if self.arriving_bytes:
            self._trim()
        return True

    def _trim(self) -> None:
        while self._arriving and self.arriving_bytes + self.complete_bytes > self.limit_bytes:
            oldest, held_bytes = self._arriving.popitem(last=False)
            self.arriving_bytes -= held_bytes
            oldest.refuse(self.refusal())
