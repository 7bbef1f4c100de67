"""grpc.health.v1.Health: the state of the server, ``""``, and of its services.

The messages are written here, because the package that has them depends on the whole gRPC library.

Source: grpc/health/v1/health.proto, and the texts of its methods.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from google.protobuf.wrappers_pb2 import StringValue

from admission_gateway_worker.http2.messages import StatusCode
from admission_gateway_worker.single import Refused, SingleRequest, answering

if TYPE_CHECKING:
    from admission_gateway_worker.rpc import Methods, Rpc

_SERVING: Final = 1
_NOT_SERVING: Final = 2
_SERVICE_UNKNOWN: Final = 3


class Health:
    """The state that probes and gateways read."""

    def __init__(self, service: str) -> None:
        """Serve, as the whole server and as *service*."""
        self._states: dict[str, int] = {"": _SERVING, service: _SERVING}
        self._watches: dict[Rpc, str] = {}

    def methods(self) -> Methods:
        """Return the methods."""
        prefix = "/grpc.health.v1.Health/"
        return {
            prefix + "Check": partial(answering, self._check),
            prefix + "List": partial(answering, self._list),
            prefix + "Watch": lambda rpc: SingleRequest(rpc, self._watch, self._watches.pop),
        }

    def stop(self) -> None:
        """Report NOT_SERVING from now on, to open watches too."""
        self._states = dict.fromkeys(self._states, _NOT_SERVING)
        for rpc, service in self._watches.items():
            rpc.send(self._state(service))

    def _state(self, service: str) -> bytes:
        return _response(self._states.get(service, _SERVICE_UNKNOWN))

    def _check(self, message: bytes) -> bytes:
        service = _service(message)
        if service not in self._states:
            raise Refused(StatusCode.NOT_FOUND, "the service is unknown")
        return self._state(service)

    def _list(self, _: bytes) -> bytes:
        return b"".join(
            _field(1, _field(1, service.encode()) + _field(2, _response(state)))
            for service, state in self._states.items()
        )

    def _watch(self, rpc: Rpc, message: bytes) -> None:
        self._watches[rpc] = service = _service(message)
        rpc.send(self._state(service))


def _service(message: bytes) -> str:
    try:
        service: str = StringValue.FromString(message).value  # which has the same only field
    except DecodeError as problem:
        raise Refused(StatusCode.INVALID_ARGUMENT, f"not a HealthCheckRequest: {problem}") from None
    return service


def _response(state: int) -> bytes:
    """Return a HealthCheckResponse."""
    return bytes([1 << 3, state])


def _field(number: int, content: bytes) -> bytes:
    """Return a field of a message with *content* of less than 128 bytes."""
    return bytes([number << 3 | 2, len(content)]) + content
