"""Decides how a policy gets a request that other calls of the batch need as well.

Policies that leave the request as it is share one. Whether a policy did is found out after each call: by the
request's JSON, or by its values, types and references, which takes twice as long, see ``payload``. Most
policies that change or keep a part do so in their first calls, which are checked in full, as are some of the
later ones. What a function left that only reads, see ``reading``, is checked in no others. A policy that
changed or kept a part gets requests of its own from then on, since parsing costs less than to check it
and to parse for the others.
"""

from __future__ import annotations

from typing import Final, Literal

from admission_gateway_worker.reading import only_reads

Way = Literal["own", "full", "json", "unchecked"]
"""A request of its own, or shared, and how it is checked."""

FIRST_CALLS: Final = 32
"""The calls that are checked in full before others."""
PERIOD: Final = 64
"""Later, one of so many calls is checked in full."""
OWN_CALLS: Final = 100
"""The calls with a request of their own, after a call that changed or kept a part."""


class Sharing:
    """What the calls of one policy did with the requests that they shared."""

    __slots__ = ("_calls", "_function", "_usual")

    def __init__(self, function: object, calls: int = 0) -> None:
        """*function* is the policy's, of which so many *calls* left the request as it was."""
        self._function = function
        self._calls = calls
        """Negative: so many calls are to have a request of their own."""
        self._usual: Way | None = None
        """That of most calls. None until it is needed, when the names in the function have their values."""

    def next_way(self) -> Way:
        """Return how the next call gets its request."""
        calls = self._calls = self._calls + 1
        if calls > FIRST_CALLS and calls % PERIOD:
            if self._usual is None:
                self._usual = "unchecked" if only_reads(self._function) else "json"
            return self._usual
        return "full" if calls > 0 else "own"

    def failed(self) -> None:
        """The last call changed or kept a part of the request."""
        self._calls = -OWN_CALLS
        self._usual = "json"
