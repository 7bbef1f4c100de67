"""The parameters that a stream keeps, by their ids.

Source: protos/README.md, section Parameters.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission_gateway_worker.batch import ProtocolViolation
from admission_gateway_worker.http2.messages import StatusCode
from admission_gateway_worker.load import MAX_PARAMETERS_BYTES
from admission_gateway_worker.parameters import MAX_BYTES, MAX_ID

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from admission_gateway_worker.pb import worker_pb2 as pb
    from admission_gateway_worker.rpc import Rpc


class StreamParameters:
    """The parameters of one stream; see ``load.Holder``."""

    def __init__(self, rpc: Rpc, hold: Callable[[int], None]) -> None:
        """*hold* is told how many bytes of all streams it is more, or less."""
        self.held_bytes = 0
        self._rpc = rpc
        self._hold = hold
        self._values: dict[int, bytes] = {0: b""}
        """JSON by id. The id 0 stands for no parameters."""

    @property
    def client(self) -> str:
        """See ``Holder``."""
        return self._rpc.connection.client

    def get(self, number: int) -> bytes | None:
        """Return the JSON with the id *number*; None if the stream has not had it."""
        return self._values.get(number)

    def take(self, sent: Iterable[pb.Parameters]) -> None:
        """Keep the values of a batch.

        Raises:
            ProtocolViolation: an invalid id, or too many bytes.
        """
        before, values = self.held_bytes, self._values
        try:
            for parameters in sent:
                number, json = parameters.id, parameters.json
                if not 0 < number <= MAX_ID:
                    raise ProtocolViolation(f"parameters have the id {number}, expected 1 to {MAX_ID}")
                if len(json) > MAX_BYTES:
                    raise ProtocolViolation(
                        f"parameters have {len(json)} bytes, expected at most {MAX_BYTES}"
                    )
                self.held_bytes += len(json) - len(values.get(number, b""))
                values[number] = json
        finally:
            self._changed(self.held_bytes - before)

    def clear(self) -> None:
        """Forget all, at the end of the stream."""
        self._values = {0: b""}
        change, self.held_bytes = -self.held_bytes, 0
        self._changed(change)

    def release(self, wanted_bytes: int) -> None:
        """See ``Holder``: end the stream."""
        text = f"the parameters of all streams have more than {MAX_PARAMETERS_BYTES} bytes, this one has most"
        self._rpc.abort(StatusCode.RESOURCE_EXHAUSTED, text)

    def _changed(self, change: int) -> None:
        if change:
            self._rpc.hold(change)
            self._hold(change)
