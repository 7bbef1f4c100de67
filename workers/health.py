"""grpc.health.v1.Health: the state of the server, ``""``, and of its services.

Source: grpc/health/v1/health.proto, and the texts of its methods.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError
from grpc_health.v1 import health_pb2  # type: ignore[import-untyped] # imports nothing of grpc

from gateway.http2.status import StatusCode
from workers.single import Refused, SingleRequest, answering

if TYPE_CHECKING:
    from workers.rpc import Methods, Rpc

_Status: Final = health_pb2.HealthCheckResponse


class Health:
    """The state that probes and gateways read."""

    def __init__(self, service: str) -> None:
        """Serve, as the whole server and as *service*."""
        self._states: dict[str, int] = {"": _Status.SERVING, service: _Status.SERVING}
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
        self._states = dict.fromkeys(self._states, _Status.NOT_SERVING)
        for rpc, service in self._watches.items():
            rpc.send(self._state(service))

    def _state(self, service: str) -> bytes:
        state = self._states.get(service, _Status.SERVICE_UNKNOWN)
        message: bytes = _Status(status=state).SerializeToString()
        return message

    def _check(self, message: bytes) -> bytes:
        service = _service(message)
        if service not in self._states:
            raise Refused(StatusCode.NOT_FOUND, "the service is unknown")
        return self._state(service)

    def _list(self, _: bytes) -> bytes:
        statuses = {service: _Status(status=state) for service, state in self._states.items()}
        message: bytes = health_pb2.HealthListResponse(statuses=statuses).SerializeToString()
        return message

    def _watch(self, rpc: Rpc, message: bytes) -> None:
        self._watches[rpc] = service = _service(message)
        rpc.send(self._state(service))


def _service(message: bytes) -> str:
    try:
        service: str = health_pb2.HealthCheckRequest.FromString(message).service
    except DecodeError as problem:
        raise Refused(StatusCode.INVALID_ARGUMENT, f"not a HealthCheckRequest: {problem}") from None
    return service
