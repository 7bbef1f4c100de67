"""A worker is asked about parameters for a bounded time, whatever it answers."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, cast

import pytest

from admission_gateway_worker.pb import worker_pb2
from gateway.engine.dispatch import policy_listing
from gateway.engine.dispatch.policy_listing import (
    _CHECKS_AT_A_TIME,
    CHECKED_WITHIN_S,
    MAX_CHECKS,
    PolicyListing,
    check_parameters,
)
from gateway.engine.dispatch.single_call import NoAnswerError
from tests.simulation.loop import VirtualLoop

if TYPE_CHECKING:
    from collections.abc import Collection

    from gateway.engine.dispatch.dialer import Dialer

KNOWN = PolicyListing({"p": False})


class FakeWorker:
    """Answers calls after *delay_s* seconds, with *answer* or this error."""

    def __init__(self, answer: str | NoAnswerError = "", delay_s: float = 0.0) -> None:
        self.answer, self.delay_s, self.calls = answer, delay_s, 0

    async def call_once(self, _: Dialer, method: str, __: bytes, ___: object) -> Any:
        assert method == "CheckParameters"
        self.calls += 1
        await asyncio.sleep(self.delay_s)
        if isinstance(self.answer, NoAnswerError):
            raise self.answer
        return worker_pb2.CheckParametersResponse(problem=self.answer)

    def asked(
        self, monkeypatch: pytest.MonkeyPatch, wanted: Collection[int], known: PolicyListing = KNOWN
    ) -> PolicyListing:
        monkeypatch.setattr(policy_listing, "call_once", self.call_once)
        keys = {("p", str(number).encode()) for number in wanted}
        found: list[PolicyListing] = []

        async def ask() -> None:
            found.append(await check_parameters(cast("Dialer", None), known, keys))

        VirtualLoop().run(ask())
        return found[0]


def test_what_was_judged_before_is_kept_as_far_as_it_is_wanted(monkeypatch: pytest.MonkeyPatch) -> None:
    first = FakeWorker("wrong\nvalue").asked(monkeypatch, range(3))
    assert first.checked == {("p", str(number).encode()): "wrong value" for number in range(3)}
    worker = FakeWorker()
    second = worker.asked(monkeypatch, range(2, 4), first)
    assert second.checked == {("p", b"2"): "wrong value", ("p", b"3"): ""}
    assert worker.calls == 1


@pytest.mark.parametrize("code", ["UNIMPLEMENTED", "DEADLINE_EXCEEDED", ""])
def test_a_worker_that_cannot_answer_is_not_asked_again(monkeypatch: pytest.MonkeyPatch, code: str) -> None:
    worker = FakeWorker(NoAnswerError(f"CheckParameters: {code}: why", code))
    found = worker.asked(monkeypatch, range(50))
    assert (found.checked, found.unchecked) == ({}, f"CheckParameters: {code}: why")
    assert worker.calls <= 4


def test_a_policy_that_is_gone_since_does_not_end_the_questions(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = FakeWorker(NoAnswerError("CheckParameters: NOT_FOUND: …", "NOT_FOUND"))
    found = worker.asked(monkeypatch, range(9))
    assert (set(found.checked.values()), found.unchecked, worker.calls) == ({""}, "", 9)


def test_a_slow_worker_is_asked_for_a_bounded_time(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = FakeWorker(delay_s=CHECKED_WITHIN_S / 2 + 0.1)
    found = worker.asked(monkeypatch, range(500))
    # Two rounds: the second one has begun before the time is over.
    assert worker.calls == 2 * _CHECKS_AT_A_TIME
    assert "not all parameters were judged" in found.unchecked


def test_more_parameters_than_a_worker_is_asked_about(monkeypatch: pytest.MonkeyPatch) -> None:
    worker = FakeWorker()
    found = worker.asked(monkeypatch, range(MAX_CHECKS + 1))
    assert (worker.calls, len(found.checked)) == (MAX_CHECKS, MAX_CHECKS)
    assert found.unchecked.startswith("CheckParameters: 1001 parameters")
