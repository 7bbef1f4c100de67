"""Rules of keepalive pings, which take minutes: checked with ``--keepalive``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import grpc

from admission_gateway_conformance.rule import ANSWER_S, Group, Violation
from admission_gateway_conformance.target import Recorder
from admission_gateway_conformance.worker import STREAM
from gateway.engine.dispatch.dialer import Unreachable
from gateway.engine.dispatch.keepalive import KEEPALIVE_TIME_S, KEEPALIVE_TIMEOUT_S

if TYPE_CHECKING:
    from admission_gateway_conformance.worker import Worker

_PINGS: Final = 5
"""gRPC servers tolerate two pings that are too early, and one more after the start of a stream."""
_WITHIN_S: Final = _PINGS * KEEPALIVE_TIME_S + 4 * KEEPALIVE_TIMEOUT_S
_LOOK_S: Final = 0.02

KEEPALIVE: Final = Group("Keepalive", "Review", "Sizes and connections")


@KEEPALIVE.rule(
    f"accepts keepalive pings every {KEEPALIVE_TIME_S:g} s on a connection without calls",
    needs_policy=False,
    timeout_s=_WITHIN_S,
)
async def keepalive_without_calls(worker: Worker) -> str:
    """The gateway sends them for Review."""
    return await _checked(worker, "keepalive_without_calls")


@KEEPALIVE.rule(
    f"accepts keepalive pings every {KEEPALIVE_TIME_S:g} s on a connection with a stream",
    method="ReviewStream",
    needs_policy=False,
    timeout_s=_WITHIN_S,
)
async def keepalive_with_calls(worker: Worker) -> str:
    """The gateway sends them for ReviewStream."""
    return await _checked(worker, "keepalive_with_calls")


async def _checked(worker: Worker, name: str) -> str:
    """Wait for the check of the rule *name*; both rules are checked concurrently."""
    facts = worker.facts
    worker.need(facts.ping_after_s > 0, "takes three minutes: use --keepalive")
    if not facts.pinged:
        both = {"keepalive_without_calls": _idle(worker), "keepalive_with_calls": _streaming(worker)}
        facts.pinged = {name: asyncio.create_task(silence) for name, silence in both.items()}
    await facts.pinged[name]
    return f"{_PINGS} pings"


async def _idle(worker: Worker) -> None:
    """Check with the keepalive of the gRPC library, which shows only whether the connection survives."""
    after_s = worker.facts.ping_after_s
    action = f"{_PINGS} pings after {after_s:g} s without traffic each, on a connection without calls"
    async with worker.target.open_channel(round(after_s * 1000)) as channel:
        async with asyncio.timeout(worker.within(ANSWER_S)):
            await channel.channel_ready()
        try:
            async with asyncio.timeout((_PINGS + 0.5) * after_s):
                await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        except TimeoutError:
            return
    raise Violation(action, "the worker closed the connection", "an open connection")


async def _streaming(worker: Worker) -> None:
    """Check with the gateway's own connection."""
    after_s = worker.facts.ping_after_s
    action = f"{_PINGS} pings after {after_s:g} s without traffic each, on a connection with an open stream"
    recorder = Recorder()
    try:
        connection = await worker.target.dial(STREAM, recorder)
    except Unreachable as error:
        raise Violation(action, str(error), "a stream") from None
    try:
        for number in range(1, _PINGS + 1):
            await asyncio.sleep(after_s)
            connection.ping()
            await asyncio.sleep(
                min(KEEPALIVE_TIMEOUT_S, after_s / 2) if number == _PINGS else 0.5 * min(1, after_s)
            )
            for _ in range(round(worker.within(KEEPALIVE_TIMEOUT_S) / _LOOK_S)):
                if not connection.owes_a_pong or recorder.status is not None:
                    break
                await asyncio.sleep(_LOOK_S)
            if recorder.status is not None or recorder.is_leaving:
                how = (
                    "GOAWAY"
                    if recorder.status is None
                    else f"{recorder.status.code} {recorder.status.details}"
                )
                raise Violation(action, f"{how} after ping {number}", "an open connection")
            if connection.owes_a_pong:
                raise Violation(action, f"no acknowledgement of ping {number}", "an acknowledgement")
    finally:
        await connection.close()
