"""Rules of ``grpc.health.v1.Health``."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import grpc

from admission_gateway_conformance.answers import describe
from admission_gateway_conformance.rule import ANSWER_S, Group, Violation, expect
from admission_gateway_conformance.worker import SERVICE
from admission_gateway_worker.pb import worker_pb2 as pb

if TYPE_CHECKING:
    from admission_gateway_conformance.worker import Worker

CHECK: Final = "/grpc.health.v1.Health/Check"
WATCH: Final = "/grpc.health.v1.Health/Watch"
_STATUSES: Final = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_NAMES: Final = ("", SERVICE)
_UNKNOWN: Final = "conformance.example.NoService"
_SILENCE_S: Final = 0.2

HEALTH: Final = Group("Health", "Check", "Health")


@HEALTH.rule("Check returns SERVING for the server and for the service", needs_policy=False)
async def health_check(worker: Worker) -> None:
    """Probes use the first."""
    for name in _NAMES:
        found = await _check(worker, name)
        expect(found == "SERVING", f"Check of {name!r}", found, "SERVING")


@HEALTH.rule("Check answers NOT_FOUND for an unknown service", needs_policy=False)
async def health_check_unknown(worker: Worker) -> None:
    """Source: GRPC Health Checking Protocol."""
    found = await _check(worker, _UNKNOWN)
    expect(found.startswith("NOT_FOUND"), f"Check of {_UNKNOWN!r}", found, "NOT_FOUND")


@HEALTH.rule("Watch sends SERVING for both, and stays open", method="Watch", needs_policy=False)
async def health_watch(worker: Worker) -> None:
    """The gateway uses the first."""
    for name in _NAMES:
        found, rest = await _watch(worker, name)
        expect(found == "SERVING", f"Watch of {name!r}", found, "SERVING")
        expect(not rest, f"Watch of {name!r}", f"SERVING, then {rest}", "an open watch")


@HEALTH.rule(
    "Watch sends SERVICE_UNKNOWN for an unknown service, and stays open",
    method="Watch",
    needs_policy=False,
)
async def health_watch_unknown(worker: Worker) -> None:
    """The service may be added later."""
    found, rest = await _watch(worker, _UNKNOWN)
    expect(found == "SERVICE_UNKNOWN", f"Watch of {_UNKNOWN!r}", found, "SERVICE_UNKNOWN")
    expect(not rest, f"Watch of {_UNKNOWN!r}", f"SERVICE_UNKNOWN, then {rest}", "an open watch")


def request(name: str) -> bytes:
    """Return the HealthCheckRequest of a service."""
    encoded = name.encode()
    return bytes([0x0A, len(encoded)]) + encoded


def status(message: bytes) -> str:
    """Return the name of the status in a HealthCheckResponse."""
    # One enum field, number 1; the value 0 is not encoded.
    if message == b"":
        return _STATUSES[0]
    if len(message) == 2 and message[0] == 0x08 and message[1] < len(_STATUSES):
        return _STATUSES[message[1]]
    return f"the bytes {message[:20]!r}"


async def _check(worker: Worker, name: str) -> str:
    answer = await worker.call(CHECK, request(name))
    return describe(answer) if isinstance(answer, pb.Error) else status(answer)


async def _watch(worker: Worker, name: str) -> tuple[str, str]:
    """Return the first status of a Watch, and a status or end right after it."""
    call = worker.watch(WATCH, request(name))
    answer_s = worker.within(ANSWER_S)
    try:
        async with asyncio.timeout(answer_s):
            first = await _next(call)
        rest = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SILENCE_S):
                rest = await _next(call)
        return first, rest
    except TimeoutError:
        raise Violation(f"Watch of {name!r}", f"no status within {answer_s:g} s", "a status") from None
    finally:
        call.cancel()


async def _next(call: grpc.aio.UnaryStreamCall[bytes, bytes]) -> str:
    try:
        message = await call.read()
        if isinstance(message, bytes):
            return status(message)
        return f"the end with {(await call.code()).name}"
    except grpc.aio.AioRpcError as error:
        return f"the end with {error.code().name}"
