"""The rules of pings in silence, which take minutes: checked with ``--keepalive``."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

import grpc

from gateway.dispatch.dialer import Unreachable
from gateway.dispatch.stream_connection import KEEPALIVE_TIME_S, KEEPALIVE_TIMEOUT_S
from workers.conformance.rule import ANSWER_S, Breach, Group
from workers.conformance.target import Recorder
from workers.conformance.worker import STREAM

if TYPE_CHECKING:
    from workers.conformance.worker import Worker

_PINGS: Final = 5
"""gRPC's servers put up with two that come too soon, and reset_window once more after a stream has begun."""
_WITHIN_S: Final = _PINGS * KEEPALIVE_TIME_S + 4 * KEEPALIVE_TIMEOUT_S

KEEPALIVE: Final = Group("Keepalive", "Review", "Sizes and connections")


@KEEPALIVE.rule(
    f"keeps a connection without calls that is pinged after {KEEPALIVE_TIME_S:g} s of silence",
    asks_a_policy=False,
    within_s=_WITHIN_S,
)
async def keepalive_without_calls(worker: Worker) -> str:
    """As the gateway has it for Review."""
    return await _checked(worker, "keepalive_without_calls")


@KEEPALIVE.rule(
    f"keeps a stream whose connection is pinged after {KEEPALIVE_TIME_S:g} s of silence",
    method="ReviewStream",
    asks_a_policy=False,
    within_s=_WITHIN_S,
)
async def keepalive_with_calls(worker: Worker) -> str:
    """As the gateway has it for ReviewStream."""
    return await _checked(worker, "keepalive_with_calls")


async def _checked(worker: Worker, name: str) -> str:
    """Wait for the rule of that name, which is checked side by side with the other."""
    facts = worker.facts
    worker.need(facts.ping_after_s > 0, "takes three minutes: say --keepalive")
    if not facts.pinged:
        both = {"keepalive_without_calls": _idle(worker), "keepalive_with_calls": _streaming(worker)}
        facts.pinged = {name: asyncio.create_task(silence) for name, silence in both.items()}
    await facts.pinged[name]
    return f"{_PINGS} pings"


async def _idle(worker: Worker) -> None:
    """By gRPC's own keepalive: nothing says that it has pinged, but it hears how it is taken."""
    after_s = worker.facts.ping_after_s
    asked = f"{_PINGS} pings after {after_s:g} s of silence each, on a connection without calls"
    async with worker.target.open_channel(round(after_s * 1000)) as channel:
        async with asyncio.timeout(ANSWER_S):
            await channel.channel_ready()
        try:
            async with asyncio.timeout((_PINGS + 0.5) * after_s):
                await channel.wait_for_state_change(grpc.ChannelConnectivity.READY)
        except TimeoutError:
            return
    raise Breach(asked, "the worker ended the connection", "a connection that stays")


async def _streaming(worker: Worker) -> None:
    """By the gateway's own connection."""
    after_s = worker.facts.ping_after_s
    asked = f"{_PINGS} pings after {after_s:g} s of silence each, on a connection with an open stream"
    recorder = Recorder()
    try:
        connection = await worker.target.dial(STREAM, recorder)
    except Unreachable as error:
        raise Breach(asked, str(error), "a stream") from None
    try:
        for number in range(1, _PINGS + 1):
            await asyncio.sleep(after_s)
            connection.ping()
            await asyncio.sleep(
                min(KEEPALIVE_TIMEOUT_S, after_s / 2) if number == _PINGS else 0.5 * min(1, after_s)
            )
            if recorder.status is not None or recorder.is_leaving:
                how = (
                    "GOAWAY"
                    if recorder.status is None
                    else f"{recorder.status.code} {recorder.status.details}"
                )
                raise Breach(asked, f"{how} after ping {number}", "a connection that stays")
            if connection.owes_a_pong:
                raise Breach(asked, f"no answer to ping {number}", "an answer")
    finally:
        await connection.close()
