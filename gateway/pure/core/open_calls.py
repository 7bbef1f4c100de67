"""The calls of an evaluation whose verdicts are still needed, by the index of the webhook."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.core.call import Call, Payload


class OpenCalls:
    """The calls of one evaluation; those that become unwanted are withdrawn."""

    __slots__ = ("by_index", "discarded_ahead", "withdrawn")

    def __init__(self, size: int) -> None:
        self.by_index: list[Call | None] = [None] * size
        self.withdrawn: list[Call] = []
        """The calls without a verdict that became unwanted."""
        self.discarded_ahead = 0
        """The number of speculative calls that became unwanted."""

    def has(self, call: Call) -> bool:
        """Whether *call* is still wanted."""
        return call.index < len(self.by_index) and self.by_index[call.index] is call

    def clear(self, size: int) -> None:
        """Begin a round with *size* webhooks."""
        self.by_index = [None] * size

    def take_withdrawn(self) -> list[Call]:
        """Return ``withdrawn``, and begin a new list."""
        withdrawn, self.withdrawn = self.withdrawn, []
        return withdrawn

    def drop(self, call: Call) -> None:
        """Forget *call*, and discard those after it."""
        self.by_index[call.index] = None
        self._discard_orphans(call)

    def discard(self, index: int) -> None:
        """Discard the call at *index*, if there is one, and those after it."""
        call = self.by_index[index]
        if call is not None:
            self._withdraw(call)
            self._discard_orphans(call)

    def discard_all(self, first: int) -> None:
        """Discard the calls from the index *first* on."""
        for index in range(first, len(self.by_index)):
            self.discard(index)

    def discard_outdated(
        self, first: int, payload: Payload, settled: Call | None = None, *, is_allowed: bool = False
    ) -> None:
        """Discard the calls from *first* on that are on other objects than that of *payload*.

        The call *settled* has left this object, or a policy has if that is None. Calls after *settled* stay
        if it was allowed; otherwise the worker may have left another object.
        """
        is_left = is_allowed and payload.can_be_chained
        for index in range(first, len(self.by_index)):
            call = self.by_index[index]
            if call is None:
                continue
            is_next = settled is not None and call.after is settled
            if is_next and is_left:
                call.after = None
                call.is_matched = call.payload is payload
                call.payload = payload
            elif is_next or (call.after is None and call.payload is not payload):
                self.discard(index)

    def move(self, first: int, indices: Mapping[int, int], size: int) -> None:
        """Put the calls from *first* on at the *indices* of their positions; discard those without one.

        *size* is the number of webhooks from now on.
        """
        for index in range(first, len(self.by_index)):
            call = self.by_index[index]
            if call is not None and call.invocation.position not in indices:
                self.discard(index)
        waiting = [call for call in self.by_index[first:] if call is not None]
        self.by_index = [None] * size
        for call in waiting:
            call.index = indices[call.invocation.position]
            self.by_index[call.index] = call

    def _discard_orphans(self, gone: Call) -> None:
        """Discard the calls after *gone*, which was discarded, and those after them."""
        if gone.is_followed:
            for call in self.by_index[gone.index + 1 :]:
                after = None if call is None else call.after
                if call is not None and after is not None and not self.has(after):
                    self._withdraw(call)

    def _withdraw(self, call: Call) -> None:
        self.by_index[call.index] = None
        self.discarded_ahead += call.is_ahead
        if call.verdict is None:
            self.withdrawn.append(call)
