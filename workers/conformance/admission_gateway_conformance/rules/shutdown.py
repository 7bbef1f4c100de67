"""The rules of how a worker stops, by SIGTERM: checked last, with ``--pid`` or ``--command``.

The worker is stopped once; each rule checks a part of the observations.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission_gateway_conformance.answers import describe, kind
from admission_gateway_conformance.rule import Group, expect
from admission_gateway_conformance.shutdown_probe import (
    AFTER_THE_NOTICE,
    AT_THE_NOTICE,
    END_S,
    HALF_CLOSED,
    HEALTH_S,
    IN_FLIGHT,
    LEFT_OPEN,
    MAX_S,
    SLOW_CALL,
    SLOW_MS,
    SLOW_REVIEW,
    SOON_S,
    ShutdownRecord,
    probe_shutdown,
    socket_of,
)

if TYPE_CHECKING:
    from admission_gateway_conformance.worker import Worker

_STREAM: Final = "ReviewStream"
_QUIET_S: Final = 0.45
"""Half a second, for which a stream has to stay open, less the delay of a message."""

SHUTDOWN: Final = Group("Shutdown", "Review", "Draining", timeout_s=MAX_S)


@SHUTDOWN.rule("sends the drain notice on every stream", method=_STREAM)
async def stop_notice(worker: Worker) -> None:
    """Soon, because calls sent meanwhile may be lost."""
    seen = await _shutdown(worker)
    for name, after_s in seen.notice_s.items():
        expect(after_s is not None, f"{name}, after SIGTERM", f"no notice in {SOON_S:g} s", "draining: true")


@SHUTDOWN.rule("answers calls in flight on streams during the drain", method=_STREAM, samples=("sleeps",))
async def stop_in_flight(worker: Worker) -> None:
    """Also a call that takes longer than the quiet period of a stream."""
    _expect_answer(await _shutdown(worker), SLOW_CALL, "DEADLINE_EXCEEDED")


@SHUTDOWN.rule("answers a Review in flight during the drain", samples=("sleeps",))
async def stop_in_flight_review(worker: Worker) -> None:
    """The call is not aborted: it lasts until its deadline.

    A gRPC server may close the connection with the last call at its deadline, before it has sent the status.
    """
    seen = await _shutdown(worker)
    _expect_answer(seen, SLOW_REVIEW, "DEADLINE_EXCEEDED", "CANCELLED", "UNAVAILABLE")
    action = f"a Review of sleeps with {SLOW_MS} ms, and SIGTERM"
    found = f"an end after {seen.review_took_s:.2f} s"
    expect(seen.review_took_s > SLOW_MS / 1000 - 0.05, action, found, "at its deadline")


@SHUTDOWN.rule("answers calls sent before the gateway received the drain notice", method=_STREAM)
async def stop_crossing(worker: Worker) -> None:
    """Right after the notice, and a moment later, while another call is in flight."""
    seen = await _shutdown(worker)
    for name in (AT_THE_NOTICE, AFTER_THE_NOTICE):
        _expect_answer(seen, name, worker.facts.baseline)


@SHUTDOWN.rule("ends a half-closed stream with OK when no call is in flight", method=_STREAM)
async def stop_half_closed(worker: Worker) -> None:
    """The gateway half-closes after the drain notice."""
    seen = await _shutdown(worker)
    for name in (HALF_CLOSED, IN_FLIGHT):
        _expect_ok(seen, name)


@SHUTDOWN.rule("ends a stream with OK after half a second without a message, not earlier", method=_STREAM)
async def stop_quiet(worker: Worker) -> None:
    """Calls sent before the notice was received must not be lost."""
    seen = await _shutdown(worker)
    _expect_ok(seen, LEFT_OPEN)
    _, after_s = seen.ends[LEFT_OPEN]
    expect(
        after_s > _QUIET_S,
        LEFT_OPEN,
        f"an end {after_s:.2f} s after SIGTERM or the last batch",
        "half a second or later",
    )


@SHUTDOWN.rule("sends NOT_SERVING to health watches, or ends them", method="Watch", needs_policy=False)
async def stop_health(worker: Worker) -> None:
    """After either, the gateway uses another endpoint."""
    seen = await _shutdown(worker)
    expect(
        seen.health != "", "a Watch, after SIGTERM", f"no event in {HEALTH_S:g} s", "NOT_SERVING or the end"
    )


@SHUTDOWN.rule("accepts no new connections", needs_policy=False)
async def stop_refuses(worker: Worker) -> None:
    """Its successor at the address gets them."""
    seen = await _shutdown(worker)
    expect(bool(seen.refused), "a new connection during the drain", f"accepted for {SOON_S:g} s", "a refusal")


@SHUTDOWN.rule("exits with status 0 when no call is left", needs_policy=False)
async def stop_exit(worker: Worker) -> str:
    """Before the end of the grace period, although policies of cancelled calls may still run."""
    seen = await _shutdown(worker)
    expect(seen.has_ended, "SIGTERM", f"still running {END_S:g} s after the last answer", "the exit")
    if seen.exit_status is None:
        return "the exit status is only known with --command"
    expect(seen.exit_status == 0, "SIGTERM", f"exit status {seen.exit_status}", "0")
    return ""


@SHUTDOWN.rule("removes its unix socket", needs_policy=False)
async def stop_socket(worker: Worker) -> None:
    """A leftover socket looks like a hanging worker."""
    worker.need(socket_of(worker) is not None, "needs a worker on unix:PATH")
    seen = await _shutdown(worker)
    expect(seen.left_socket is None, "SIGTERM", f"{seen.left_socket} still exists", "no socket")


def _expect_answer(seen: ShutdownRecord, name: str, *kinds: str) -> None:
    answer = seen.answers[name]
    found = answer if isinstance(answer, str) else describe(answer)
    expect(not isinstance(answer, str) and kind(answer) in kinds, name, found, " or ".join(kinds))


def _expect_ok(seen: ShutdownRecord, name: str) -> None:
    how, _ = seen.ends[name]
    expect(how == "OK", f"{name}, after SIGTERM", how, "OK")


async def _shutdown(worker: Worker) -> ShutdownRecord:
    """Stop the worker on the first call, and return the observations."""
    facts = worker.facts
    worker.need(facts.process is not None, "needs --pid N or --command WORD...")
    if facts.shutdown is None:
        assert facts.process is not None
        facts.shutdown = await probe_shutdown(worker, facts.process)
    return facts.shutdown
