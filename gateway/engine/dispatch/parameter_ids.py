"""The ids that one stream has for the parameters of its calls.

A value is sent once, with its id. When all ids are taken, a new value gets that of the value that was used
least recently, so that neither side stores more than ``MAX_IDS`` values for a stream.

Source: protos/README.md, section Parameters.
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final

from gateway.engine.dispatch.review_batch import encoded_parameters

MAX_IDS: Final = 256


class ParameterIds:
    """The ids of one stream."""

    def __init__(self) -> None:
        self._ids: OrderedDict[bytes, int] = OrderedDict()
        """By value, the most recently used last."""
        self._used: set[bytes] = set()
        """Values of the present batch, which has to have an id for each."""

    def begin_batch(self) -> None:
        """Begin the next batch."""
        if self._used:
            self._used = set()

    def has_room(self, calls: int) -> bool:
        """Whether the present batch has ids for the parameters of so many *calls* more."""
        return len(self._used) + calls <= MAX_IDS

    def of(self, parameters: bytes, encoded: list[bytes]) -> tuple[int, int]:
        """Return the id of *parameters*, and their bytes if the stream has not had them.

        Then they are added to *encoded*, the parameters of the batch.
        """
        self._used.add(parameters)
        found = self._ids.get(parameters)
        if found is not None:
            self._ids.move_to_end(parameters)
            return found, 0
        number = len(self._ids) + 1 if len(self._ids) < MAX_IDS else self._ids.popitem(last=False)[1]
        self._ids[parameters] = number
        encoded.append(encoded_parameters(number, parameters))
        return number, len(parameters)
