"""The items of a batch are counted before they become objects, and its calls begin in slices."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker import PolicyServer, Review, batch
from admission_gateway_worker.batch import ProtocolViolation, read_batch
from admission_gateway_worker.evaluation import Evaluator
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.stream import AllowedVerdicts
from admission_gateway_worker.turns import Turns
from tests.workers.conftest import make_calls

LONG = b"\x0a" + b"\x80\x80\x0c" + b"\x92\x03\x00" * 65536
"""A payload that makes a message long enough to be counted, of a field that is not known."""
BOUNDS = {
    b"\x0a\x00": (batch.MAX_PAYLOADS, "payloads"),
    b"\x12\x00": (batch.MAX_CALLS, "calls"),
    b"\x18\x05": (batch.MAX_CANCELLED, "cancelled ids"),
    b"\x22\x00": (256, "parameters"),
    b"\x28\x05": (batch.MAX_FIELDS, "fields"),
}


@pytest.mark.parametrize("is_long", [False, True])
@pytest.mark.parametrize("item", BOUNDS)
def test_each_item_is_counted(item: bytes, *, is_long: bool) -> None:
    bound, name = BOUNDS[item]
    rest = LONG if is_long else b""
    allowed = bound - bool(is_long and name in ("payloads", "fields"))
    read_batch(rest + item * allowed)
    with pytest.raises(ProtocolViolation, match=f"a batch has more than {bound} {name}"):
        read_batch(rest + item * (allowed + 1))


@pytest.mark.parametrize("count", [4096, 4097])
@pytest.mark.parametrize("number", [1, 2**64 - 1])
def test_packed_ids_are_counted(number: int, count: int) -> None:
    message = LONG + pb.ReviewBatch(cancelled=[number] * count).SerializeToString()
    if count <= batch.MAX_CANCELLED:
        assert len(read_batch(message).cancelled) == count
    else:
        with pytest.raises(ProtocolViolation, match="more than 4096 cancelled ids"):
            read_batch(message)


def test_too_many_items_never_become_objects(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch, "pb", None)
    for item in BOUNDS:
        with pytest.raises(ProtocolViolation, match="more than"):
            read_batch(item * (4 * 1024 * 1024))


_BATCHES = st.builds(
    pb.ReviewBatch,
    payloads=st.lists(st.builds(pb.Payload, admission_request=st.binary(max_size=300)), max_size=5),
    calls=st.lists(
        st.builds(
            pb.Call, id=st.integers(0, 2**64 - 1), policy=st.text(max_size=150), after=st.integers(0, 9)
        ),
        max_size=5,
    ),
    cancelled=st.lists(st.integers(0, 2**64 - 1), max_size=5),
    parameters=st.lists(
        st.builds(pb.Parameters, id=st.integers(0, 300), json=st.binary(max_size=9)), max_size=5
    ),
)


@given(_BATCHES, st.binary(max_size=20))
def test_what_is_counted_is_what_is_read(message: pb.ReviewBatch, noise: bytes) -> None:
    text = LONG + message.SerializeToString()
    assert read_batch(text) == pb.ReviewBatch.FromString(text)
    try:
        expected = pb.ReviewBatch.FromString(text + noise)
    except Exception:
        with pytest.raises(ProtocolViolation, match="not a ReviewBatch"):
            read_batch(text + noise)
    else:
        assert read_batch(text + noise) == expected


async def test_a_batch_begins_in_slices_without_keeping_parsed_requests() -> None:
    server = PolicyServer()
    seen: list[str] = []

    @server.policy("look")
    def look(review: Review) -> None:
        seen.append(review.uid)

    message = pb.ReviewBatch(payloads=[pb.Payload(admission_request=b'{"uid":"%d"}' % i) for i in range(3)])
    for number in range(12):
        message.calls.add(id=number, payload=number % 3, policy="look", timeout_millis=60_000)
    evaluator = Evaluator()
    reported: list[int] = []
    calls, _ = make_calls(server, evaluator, lambda number, *_: reported.append(number))
    calls.accept(message, evaluator.loop.time())
    assert calls
    payloads: Any = calls._batch.payloads  # type: ignore[union-attr]
    for done in range(1, 13):
        assert calls.is_busy
        calls.go_on(0.0)
        assert reported == list(range(done))
        assert not any(payload._parsed for payload in payloads)
    assert not calls
    calls.accept(message, evaluator.loop.time())
    calls.go_on(0.0)
    calls.cancel_all()
    assert not calls
    calls.accept(message, evaluator.loop.time())
    calls.is_pausing = True
    calls.go_on(float("inf"))
    assert not calls
    assert seen == [str(number % 3) for number in (*range(12), 0, *range(12))]
    await evaluator.close()


async def test_calls_behind_their_deadline_are_not_begun() -> None:
    server = PolicyServer()
    server.policy("look")(lambda review: review.uid and None)
    message = pb.ReviewBatch(payloads=[pb.Payload(admission_request=b'{"uid":"a"}')])
    message.calls.add(id=1, policy="look", timeout_millis=1000)
    evaluator = Evaluator()
    outcomes: list[Any] = []
    calls, _ = make_calls(server, evaluator, lambda _, outcome, __: outcomes.append(outcome))
    calls.accept(message, evaluator.loop.time() - 2)
    calls.go_on(0.0)
    assert [outcome.code for outcome in outcomes] == [4]
    await evaluator.close()


class Turner:
    """A connection with work for some turns."""

    def __init__(self, turns: Turns, order: list[str], name: str, count: int) -> None:
        self.client = name[0]
        self.name = name
        self.spent_s = 0.0
        self._turns, self._order, self._count = turns, order, count

    def take_turn(self) -> None:
        self._order.append(self.name)
        self.spent_s += 1.0
        self._count -= 1
        if self._count:
            self._turns.add(self)
        if self._count == 1:
            raise RuntimeError("a turn that fails")


async def test_clients_take_turns_and_of_one_the_connection_that_had_least() -> None:
    order: list[str] = []
    loop = asyncio.get_running_loop()
    loop.set_exception_handler(lambda *_: None)
    turns = Turns(loop)
    for name, count in (("a1", 3), ("a2", 4), ("b1", 3)):
        turns.add(Turner(turns, order, name, count))
    for iteration in range(1, 11):
        await asyncio.sleep(0)
        assert len(order) == iteration
        if iteration == 5:
            turns.add(Turner(turns, order, "a3", 1))
    # a3 comes with its first turn before the third of a1; one turn is in each iteration of the loop.
    assert order[:6] == ["a1", "b1", "a2", "b1", "a1", "b1"]
    assert order[6] == "a3"


@given(st.lists(st.integers(1, 2**64 - 1) | st.integers(1, 300)))
def test_verdicts_that_allow_have_the_bytes_of_protobuf(numbers: list[int]) -> None:
    verdicts = AllowedVerdicts()
    expected = pb.VerdictBatch()
    for number in numbers:
        expected.verdicts.add(id=number).response.allowed = True
    assert b"".join(map(verdicts.encoded, numbers)) == expected.SerializeToString()
