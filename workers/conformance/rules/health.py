"""The rules of ``grpc.health.v1.Health``, for what is served of it."""

from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Final

import grpc

from gateway.pb import worker_pb2 as pb
from workers.conformance.answers import in_words
from workers.conformance.rule import ANSWER_S, Breach, Group, expect
from workers.conformance.worker import SERVICE

if TYPE_CHECKING:
    from workers.conformance.worker import Worker

CHECK: Final = "/grpc.health.v1.Health/Check"
WATCH: Final = "/grpc.health.v1.Health/Watch"
_STATUSES: Final = ("UNKNOWN", "SERVING", "NOT_SERVING", "SERVICE_UNKNOWN")
_NAMES: Final = ("", SERVICE)
_UNKNOWN: Final = "conformance.example.NoService"
_SILENCE_S: Final = 0.2

HEALTH: Final = Group("Health", "Check", "Health")


@HEALTH.rule("Check says SERVING of the whole server and of the service", asks_a_policy=False)
async def health_check(worker: Worker) -> None:
    """The first is what probes ask."""
    for name in _NAMES:
        found = await _check(worker, name)
        expect(found == "SERVING", f"Check of {name!r}", found, "SERVING")


@HEALTH.rule("Check answers NOT_FOUND for a service that it does not know", asks_a_policy=False)
async def health_check_unknown(worker: Worker) -> None:
    """As gRPC's health checking protocol has it."""
    found = await _check(worker, _UNKNOWN)
    expect(found.startswith("NOT_FOUND"), f"Check of {_UNKNOWN!r}", found, "NOT_FOUND")


@HEALTH.rule("Watch says SERVING of both, and stays", method="Watch", asks_a_policy=False)
async def health_watch(worker: Worker) -> None:
    """The first is what the gateway follows."""
    for name in _NAMES:
        found, rest = await _watch(worker, name)
        expect(found == "SERVING", f"Watch of {name!r}", found, "SERVING")
        expect(not rest, f"Watch of {name!r}", f"SERVING, then {rest}", "no more until something changes")


@HEALTH.rule(
    "Watch says SERVICE_UNKNOWN of a service that it does not know, and stays",
    method="Watch",
    asks_a_policy=False,
)
async def health_watch_unknown(worker: Worker) -> None:
    """It may become known."""
    found, rest = await _watch(worker, _UNKNOWN)
    expect(found == "SERVICE_UNKNOWN", f"Watch of {_UNKNOWN!r}", found, "SERVICE_UNKNOWN")
    expect(not rest, f"Watch of {_UNKNOWN!r}", f"SERVICE_UNKNOWN, then {rest}", "no more")


def request(name: str) -> bytes:
    """Return the HealthCheckRequest of a service."""
    encoded = name.encode()
    return bytes([0x0A, len(encoded)]) + encoded


def status(message: bytes) -> str:
    """Return the name of the status in a HealthCheckResponse."""
    # One enum, number 1; 0 is not written.
    if message == b"":
        return _STATUSES[0]
    if len(message) == 2 and message[0] == 0x08 and message[1] < len(_STATUSES):
        return _STATUSES[message[1]]
    return f"the bytes {message[:20]!r}"


async def _check(worker: Worker, name: str) -> str:
    answer = await worker.call(CHECK, request(name))
    return in_words(answer) if isinstance(answer, pb.Error) else status(answer)


async def _watch(worker: Worker, name: str) -> tuple[str, str]:
    """Return the first status of a Watch, and what came right after it."""
    call = worker.watch(WATCH, request(name))
    try:
        async with asyncio.timeout(ANSWER_S):
            first = await _next(call)
        rest = ""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(_SILENCE_S):
                rest = await _next(call)
        return first, rest
    except TimeoutError:
        raise Breach(f"Watch of {name!r}", f"nothing within {ANSWER_S:g} s", "a status at once") from None
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
