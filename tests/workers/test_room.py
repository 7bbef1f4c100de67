"""What is evaluated at a time is bounded, and connections take turns when calls wait."""

from __future__ import annotations

import asyncio
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker import PolicyServer, Review, room
from admission_gateway_worker.counters import Counters
from admission_gateway_worker.evaluation import Evaluator, Running
from admission_gateway_worker.room import Room
from tests.kit import PATIENCE_S
from tests.waiting import until

if TYPE_CHECKING:
    from admission_gateway_worker.answer import Outcome

SMALL = b'{"object": {}, "x": "%s"}' % (100 * b"x")
SIZE = len(SMALL)


@pytest.fixture(autouse=True)
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """There is room for three requests."""
    monkeypatch.setattr(room, "MAX_EVALUATED_BYTES", 3 * SIZE)


class HeldPolicies:
    """An evaluator with policies that wait until they are let go."""

    def __init__(self, evaluator: Evaluator) -> None:
        self.evaluator = evaluator
        self.gate = asyncio.Event()
        self.let_go = threading.Event()
        self.begun: list[str] = []
        self.ended: list[tuple[str, Outcome]] = []
        self.server = PolicyServer()

        @self.server.policy("task")
        async def task(review: Review) -> None:
            self.begun.append(review.traceparent)
            await self.gate.wait()

        @self.server.policy("thread", blocking=True)
        def thread(review: Review) -> None:
            self.begun.append("")
            self.let_go.wait(PATIENCE_S)

        self.server.policy("at once")(lambda review: None)

    def begin(self, policy: str, owner: str, text: bytes = SMALL, timeout_s: float = 60.0) -> Any:
        review = Review(text, deadline=time.monotonic() + timeout_s)
        return self.evaluator.begin(
            self.server.policies[policy],
            review,
            lambda outcome: self.ended.append((owner, outcome)),
            b"",
            owner,
        )

    async def close(self) -> None:
        self.gate.set()
        self.let_go.set()
        await until(lambda: not self.evaluator.room.used_bytes)
        assert not self.evaluator.room._waiting
        await self.evaluator.close()


@pytest.mark.parametrize("policy", ["task", "thread"])
async def test_calls_above_the_bound_wait_for_room(policy: str) -> None:
    held = HeldPolicies(Evaluator())
    calls = [held.begin(policy, "a") for _ in range(8)]
    assert all(isinstance(call, Running) for call in calls)
    await until(lambda: len(held.begun) == 3)
    assert held.evaluator.room.used_bytes == 3 * SIZE
    # A policy that needs no task needs no room.
    assert not isinstance(held.begin("at once", "a"), Running)
    calls[7].cancel()
    await held.close()
    assert len(held.ended) == 7


async def test_a_request_larger_than_the_bound_is_evaluated_alone() -> None:
    held = HeldPolicies(Evaluator())
    large = SMALL[:-1] + SIZE * 5 * b" " + b"}"
    held.begin("task", "a", large)
    held.begin("task", "a")
    await until(lambda: len(held.begun) == 1)
    assert held.evaluator.room.used_bytes == len(large)
    await held.close()
    assert len(held.begun) == 2


async def test_a_call_that_waits_expires_without_being_begun() -> None:
    counters = Counters(["task", "thread", "at once"])
    held = HeldPolicies(Evaluator(counters))
    for _ in range(3):
        held.begin("task", "a")
    timeout_s = 0.01
    while not isinstance(held.begin("task", "b", b"not JSON", timeout_s), Running):
        timeout_s *= 2  # it had expired before it could wait
    await until(lambda: bool(held.ended))
    owner, outcome = held.ended[0]
    assert (owner, getattr(outcome, "code", 0)) == ("b", 4)
    assert len(held.begun) == 3
    await held.close()
    assert counters.in_flight("task") == 0


def test_connections_take_turns() -> None:
    order: list[str] = []
    found = Room()
    for owner in "aaaaaabcbc":
        found.enter(owner, object(), SIZE, lambda owner=owner: order.append(owner))  # type: ignore[misc]
    assert order == ["a"] * 3
    for _ in range(7):
        found.leave(SIZE)
    assert order[3:] == ["a", "b", "c", "a", "b", "c", "a"]


@given(
    st.lists(
        st.tuples(
            st.sampled_from(["enter", "leave", "withdraw"]), st.integers(0, 2), st.integers(0, 5 * SIZE)
        ),
        max_size=40,
    )
)
def test_room_is_bounded_and_nothing_waits_beside_room(steps: list[tuple[str, int, int]]) -> None:
    found = Room()
    inside: list[int] = []
    waiting: dict[int, tuple[int, int]] = {}
    for number, (step, owner, size) in enumerate(steps):
        if step == "enter":
            waiting[number] = (owner, size)

            def begin(number: int = number, size: int = size) -> None:
                del waiting[number]
                inside.append(size)

            found.enter(owner, number, size, begin)
        elif step == "leave" and inside:
            found.leave(inside.pop(size % len(inside)))
        elif step == "withdraw" and waiting:
            call = sorted(waiting)[size % len(waiting)]
            found.withdraw(waiting.pop(call)[0], call)
        assert found.used_bytes == sum(inside)
        assert found.used_bytes <= 3 * SIZE or sum(size > 0 for size in inside) <= 1
        assert not waiting or found.used_bytes
