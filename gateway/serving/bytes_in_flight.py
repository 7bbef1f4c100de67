"""How many bytes of request bodies a listener holds, and who is refused when they become too many.

What counts is what has come, not what was announced: an announcement costs its sender nothing, and twenty of
7 MiB would take all the room there is for as long as a request may last, without a byte of body being sent.
Two rules keep the bound:

1. A review has to fit in beside those that are complete and unanswered. That is asked at its head, of the
   length that it announces (so that nothing is read in vain), and again when its body is complete.
2. Bodies that are still arriving have what those leave. When it is too little, the one that began first is
   refused: an API server's body is here within milliseconds, so that who sends slowly makes room for who
   does not, and nobody's unfinished body keeps a whole one out.

Paths that select only webhooks with failurePolicy Ignore leave the last eighth to the others.

Not counted are heads and unsent answers, which are bounded for each connection, and the one read buffer.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import TYPE_CHECKING, Final, Protocol

from gateway.serving.message import unavailable

if TYPE_CHECKING:
    from gateway.serving.message import HttpRequest, Response

KEPT_BACK: Final = 8
"""One part in so many is kept for reviews that a webhook with failurePolicy Fail may decide."""


def left_to_ignored(limit: int) -> int:
    """Return how much of *limit* there is for reviews that no webhook with failurePolicy Fail decides."""
    return limit - limit // KEPT_BACK


class Arriving(Protocol):
    """Whoever reads a body that is not complete."""

    def refuse(self, refusal: Response) -> None:
        """Answer what is being read with *refusal*, and let go of it."""


class BytesInFlight:
    """The bytes of bodies that are arriving, and of those that are complete and not answered."""

    def __init__(self, limit_bytes: int, body_bytes: int) -> None:
        self._arriving: OrderedDict[Arriving, int] = OrderedDict()
        self.arriving_bytes = 0
        self.complete_bytes = 0
        """Counted down by the requests themselves, see ``HttpRequest.release``."""
        self.use(limit_bytes, body_bytes)

    def __repr__(self) -> str:
        return f"<BytesInFlight {self.arriving_bytes} arriving, {self.complete_bytes} complete>"

    def use(self, limit_bytes: int, body_bytes: int) -> None:
        """Hold up to *limit_bytes* from now on; *body_bytes* is how long a single body may be."""
        self.limit_bytes = limit_bytes
        # A body that is allowed has to fit in when nothing else is there.
        self._ignored_limit_bytes = max(left_to_ignored(limit_bytes), min(body_bytes, limit_bytes))

    @property
    def total_bytes(self) -> int:
        """All that is held."""
        return self.arriving_bytes + self.complete_bytes

    def has_room(self, request: HttpRequest, body_bytes: int) -> bool:
        """Whether *request* with a body of *body_bytes* fits in beside the complete ones."""
        limit_bytes = self._ignored_limit_bytes if request.fails_open else self.limit_bytes
        return self.complete_bytes + body_bytes <= limit_bytes

    def refusal(self) -> Response:
        """Return the answer to what does not fit in."""
        limit = f"limits.maxBytesInFlight allows {self.limit_bytes}"
        return unavailable(f"too many bytes of requests are in flight, {limit}")

    def hold(self, reader: Arriving, held_bytes: int) -> None:
        """Take note that *reader* holds *held_bytes* of a body that is to be continued."""
        self.arriving_bytes += held_bytes - self._arriving.get(reader, 0)
        self._arriving[reader] = held_bytes
        self._trim()

    def drop(self, reader: Arriving) -> None:
        """Take note that *reader* holds nothing any more."""
        self.arriving_bytes -= self._arriving.pop(reader, 0)

    def complete(self, request: HttpRequest) -> bool:
        """Take in *request*, whose body is complete, until it is answered; False if it does not fit in."""
        body_bytes = len(request.body)
        if not self.has_room(request, body_bytes):
            return False
        request.held_bytes = body_bytes
        request.holder = self
        self.complete_bytes += body_bytes
        if self.arriving_bytes:
            self._trim()
        return True

    def _trim(self) -> None:
        while self._arriving and self.arriving_bytes + self.complete_bytes > self.limit_bytes:
            oldest, held_bytes = self._arriving.popitem(last=False)
            self.arriving_bytes -= held_bytes
            oldest.refuse(self.refusal())
