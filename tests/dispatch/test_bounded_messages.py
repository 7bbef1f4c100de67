"""The bounds on the parts of an answer: answers within them are unchanged."""

from __future__ import annotations

import contextlib

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.pb import worker_pb2
from gateway.engine.dispatch import bounded_messages
from gateway.engine.dispatch.bounded_messages import MAX_PARTS, MAX_VERDICTS, TooManyPartsError, pieces

TOO_MANY = MAX_PARTS * 5
"""One-character texts, three bytes each: enough for the answer to be scanned."""


def bounded(message: bytes) -> bytes:
    return b"".join(pieces(message))


def read_response(message: bytes) -> worker_pb2.ReviewResponse:
    steps = bounded_messages.read_response(message)
    while True:
        try:
            next(steps)
        except StopIteration as end:
            response: worker_pb2.ReviewResponse = end.value
            return response


def warned(count: int, *, allowed: bool = True) -> worker_pb2.ReviewResponse:
    return worker_pb2.ReviewResponse(allowed=allowed, warnings=["w"] * count)


def denied(count: int) -> worker_pb2.ReviewResponse:
    status = worker_pb2.Status(code=403, message="no", causes=[worker_pb2.StatusCause(message="c")] * count)
    return worker_pb2.ReviewResponse(status=status, patch=b"[]")


def batch(*responses: worker_pb2.ReviewResponse) -> bytes:
    verdicts = [worker_pb2.Verdict(id=number, response=one) for number, one in enumerate(responses, 1)]
    return worker_pb2.VerdictBatch(verdicts=verdicts, draining=True).SerializeToString()


def test_an_answer_with_too_many_parts_becomes_an_error_and_others_are_unchanged() -> None:
    honest = warned(MAX_PARTS - 2)
    honest.patch = b"x" * 100_000
    read = worker_pb2.VerdictBatch.FromString(
        bounded(batch(warned(3), warned(TOO_MANY), honest, warned(TOO_MANY)))
    )
    by_id = {verdict.id: verdict for verdict in read.verdicts}
    assert sorted(by_id) == [1, 2, 3, 4]
    assert (by_id[1].response, by_id[3].response) == (warned(3), honest)
    for number in (2, 4):
        assert by_id[number].error.code == 8
        assert by_id[number].error.message == "an answer with more than 20000 warnings and annotations"
    assert read.draining


@pytest.mark.parametrize("response", [denied(TOO_MANY), warned(TOO_MANY, allowed=False)])
def test_a_denial_with_too_many_parts_keeps_the_first_ones(response: worker_pb2.ReviewResponse) -> None:
    [verdict] = worker_pb2.VerdictBatch.FromString(bounded(batch(response))).verdicts
    short = verdict.response
    assert verdict.WhichOneof("outcome") == "response"
    assert not short.allowed
    assert (short.status.code, short.status.message) == (response.status.code, response.status.message)
    assert 0 < len(short.status.causes) + len(short.warnings) <= MAX_PARTS
    assert read_response(response.SerializeToString()) == short


def test_annotations_count_as_parts() -> None:
    response = worker_pb2.ReviewResponse(
        allowed=True, audit_annotations={str(number): "" for number in range(MAX_PARTS + 1)}
    )
    with pytest.raises(TooManyPartsError, match="more than 20000"):
        read_response(response.SerializeToString())


def test_a_unary_answer_has_the_same_bound() -> None:
    with pytest.raises(TooManyPartsError):
        read_response(warned(TOO_MANY).SerializeToString())
    assert read_response(warned(5).SerializeToString()) == warned(5)
    assert len(read_response(warned(MAX_PARTS - 1).SerializeToString()).warnings) == MAX_PARTS - 1


def test_a_large_message_within_the_bounds_is_unchanged() -> None:
    message = batch(*[warned(1000)] * 100)
    assert bounded(message) == message


def test_repeated_responses_of_a_verdict_are_merged() -> None:
    piece = warned(MAX_PARTS - 10).SerializeToString()
    field = b"\x12" + _varint(len(piece)) + piece
    verdict = b"\x08\x07" + field * 3
    message = b"\x0a" + _varint(len(verdict)) + verdict
    [read] = worker_pb2.VerdictBatch.FromString(bounded(message)).verdicts
    assert (read.id, read.error.code) == (7, 8)


@pytest.mark.parametrize(
    "message",
    [
        pytest.param(b"\x0a\x00" * (MAX_VERDICTS + 1), id="verdicts without end"),
        pytest.param(b"\x0b" * 100_000, id="groups"),
        pytest.param(b"\xff" * 100_000, id="a number without end"),
        pytest.param(b"\x0a\xff\xff\xff\x7f" + b"x" * 100_000, id="longer than the message"),
        pytest.param(b"\x09" + b"\x00" * 7 + b"\x09" * 100_001, id="cut short"),
        pytest.param(b"\x0a" + b"\xa0\x8d\x06" + b"\x10\x00" * 50_000, id="a verdict of many parts"),
    ],
)
def test_an_invalid_message_is_an_error(message: bytes) -> None:
    with pytest.raises(DecodeError):
        bounded(message)


texts = st.text(max_size=5)
statuses = st.builds(
    worker_pb2.Status,
    code=st.integers(-5, 700),
    message=texts,
    causes=st.lists(st.builds(worker_pb2.StatusCause, reason=texts, field=texts), max_size=3),
)
responses = st.builds(
    worker_pb2.ReviewResponse,
    allowed=st.booleans(),
    status=st.none() | statuses,
    patch=st.binary(max_size=9),
    audit_annotations=st.dictionaries(texts, texts, max_size=3),
    warnings=st.lists(texts, max_size=4),
)
verdicts = st.one_of(
    st.builds(worker_pb2.Verdict, id=st.integers(0, 2**64 - 1), response=responses),
    st.builds(
        worker_pb2.Verdict,
        id=st.integers(0, 9),
        error=st.builds(worker_pb2.Error, code=st.integers(-9, 20), message=texts),
    ),
)


@given(given_verdicts=st.lists(verdicts, max_size=4), draining=st.booleans())
def test_a_message_within_the_bounds_reads_the_same(
    given_verdicts: list[worker_pb2.Verdict], draining: bool
) -> None:
    message = worker_pb2.VerdictBatch(verdicts=given_verdicts, draining=draining).SerializeToString()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bounded_messages, "WHOLE_BYTES", 0)
        assert bounded(message) == message


@given(message=st.binary(max_size=60))
def test_any_bytes_are_read_or_a_decode_error(message: bytes) -> None:
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bounded_messages, "WHOLE_BYTES", 0)
        with contextlib.suppress(DecodeError):
            assert bounded(message) == message


@given(response=responses, parts=st.integers(1, 6))
def test_too_many_parts_leave_a_denial_a_denial(response: worker_pb2.ReviewResponse, parts: int) -> None:
    message = response.SerializeToString()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(bounded_messages, "WHOLE_BYTES", 0)
        patched.setattr(bounded_messages, "MAX_PARTS", parts)
        try:
            assert read_response(message).allowed is response.allowed
        except TooManyPartsError:
            assert response.allowed


def _varint(number: int) -> bytes:
    encoded = b""
    while number > 0x7F:
        encoded += bytes([number & 0x7F | 0x80])
        number >>= 7
    return encoded + bytes([number])
