"""The rules of how a worker stops, by SIGTERM: checked last, with ``--pid`` or ``--command``.

It is stopped once. What is seen then is noted, and each rule looks at a part of it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workers.conformance.answers import in_words, kind
from workers.conformance.rule import Group, expect
from workers.conformance.shutdown_probe import (
    AFTER_THE_NOTICE,
    AT_THE_NOTICE,
    END_S,
    HALF_CLOSED,
    HEALTH_S,
    IN_FLIGHT,
    LEFT_OPEN,
    MOST_S,
    SLOW_CALL,
    SLOW_MS,
    SLOW_REVIEW,
    SOON_S,
    ShutdownRecord,
    probe_shutdown,
    socket_of,
)

if TYPE_CHECKING:
    from workers.conformance.worker import Worker

_STREAM: Final = "ReviewStream"
_QUIET_S: Final = 0.45
"""The half second for which a stream stays open, less what a message may take on its way."""

SHUTDOWN: Final = Group("Stopping", "Review", "Draining", within_s=MOST_S)


@SHUTDOWN.rule("tells every stream that it drains", method=_STREAM)
async def stop_notice(worker: Worker) -> None:
    """Soon: what the gateway sends meanwhile may be lost."""
    seen = await _stopped(worker)
    for name, after_s in seen.notice_s.items():
        expect(after_s is not None, f"{name}, after SIGTERM", f"no notice in {SOON_S:g} s", "draining: true")


@SHUTDOWN.rule("answers calls in flight on streams while it drains", method=_STREAM, samples=("sleeps",))
async def stop_in_flight(worker: Worker) -> None:
    """A call that takes longer than the quiet after which a stream ends."""
    _expect_answer(await _stopped(worker), SLOW_CALL, "DEADLINE_EXCEEDED")


@SHUTDOWN.rule("answers a Review in flight while it stops", samples=("sleeps",))
async def stop_in_flight_review(worker: Worker) -> None:
    """It is not cut off."""
    seen = await _stopped(worker)
    _expect_answer(seen, SLOW_REVIEW, "DEADLINE_EXCEEDED", "CANCELLED")
    asked = f"a Review of sleeps with {SLOW_MS} ms, and SIGTERM"
    found = f"its end after {seen.review_took_s:.2f} s"
    expect(seen.review_took_s > SLOW_MS / 1000 - 0.05, asked, found, "at its deadline")


@SHUTDOWN.rule("answers calls that crossed the notice on their way", method=_STREAM)
async def stop_crossing(worker: Worker) -> None:
    """At once after it, and within the half second for which a stream stays open."""
    seen = await _stopped(worker)
    for name in (AT_THE_NOTICE, AFTER_THE_NOTICE):
        _expect_answer(seen, name, worker.facts.usual)


@SHUTDOWN.rule("ends a stream with OK once it is half-closed and nothing is in flight", method=_STREAM)
async def stop_half_closed(worker: Worker) -> None:
    """As the gateway does on the notice."""
    seen = await _stopped(worker)
    for name in (HALF_CLOSED, IN_FLIGHT):
        _expect_ok(seen, name)


@SHUTDOWN.rule(
    "ends a stream on which nothing comes for half a second with OK, and not before", method=_STREAM
)
async def stop_quiet(worker: Worker) -> None:
    """What crossed the notice must not be lost."""
    seen = await _stopped(worker)
    _expect_ok(seen, LEFT_OPEN)
    _, after_s = seen.ends[LEFT_OPEN]
    expect(
        after_s > _QUIET_S,
        LEFT_OPEN,
        f"its end {after_s:.2f} s after the last batch",
        "half a second, or more",
    )


@SHUTDOWN.rule(
    "says NOT_SERVING to who watches its health, or ends the watch", method="Watch", asks_a_policy=False
)
async def stop_health(worker: Worker) -> None:
    """Either moves the gateway to another endpoint."""
    seen = await _stopped(worker)
    expect(
        seen.health != "", "a Watch, after SIGTERM", f"nothing in {HEALTH_S:g} s", "NOT_SERVING, or its end"
    )


@SHUTDOWN.rule("takes no new connections", asks_a_policy=False)
async def stop_refuses(worker: Worker) -> None:
    """So that whatever takes its place at the address gets them."""
    seen = await _stopped(worker)
    expect(bool(seen.refused), "connecting, while it drains", f"accepted for {SOON_S:g} s", "a refusal")


@SHUTDOWN.rule("ends with exit status 0 when nothing that anybody waits for is left", asks_a_policy=False)
async def stop_exit(worker: Worker) -> str:
    """Before its grace is over, though policies ran for calls and streams that were cancelled."""
    seen = await _stopped(worker)
    expect(seen.has_ended, "SIGTERM", f"it still runs {END_S:g} s after its last answer", "its end")
    if seen.exit_status is None:
        return "the status is known with --command"
    expect(seen.exit_status == 0, "SIGTERM", f"exit status {seen.exit_status}", "0")
    return ""


@SHUTDOWN.rule("removes its unix socket", asks_a_policy=False)
async def stop_socket(worker: Worker) -> None:
    """Whoever finds it would take it for a worker that hangs."""
    worker.need(socket_of(worker) is not None, "needs a worker on unix:PATH")
    seen = await _stopped(worker)
    expect(seen.left_socket is None, "SIGTERM", f"{seen.left_socket} is still there", "no socket")


def _expect_answer(seen: ShutdownRecord, name: str, *kinds: str) -> None:
    answer = seen.answers[name]
    found = answer if isinstance(answer, str) else in_words(answer)
    expect(not isinstance(answer, str) and kind(answer) in kinds, name, found, " or ".join(kinds))


def _expect_ok(seen: ShutdownRecord, name: str) -> None:
    how, _ = seen.ends[name]
    expect(how == "OK", f"{name}, after SIGTERM", how, "OK")


async def _stopped(worker: Worker) -> ShutdownRecord:
    """Stop the worker, if that has not been done, and return what was seen."""
    facts = worker.facts
    worker.need(facts.process is not None, "needs --pid N or --command WORD...")
    if facts.shutdown is None:
        assert facts.process is not None
        facts.shutdown = await probe_shutdown(worker, facts.process)
    return facts.shutdown
