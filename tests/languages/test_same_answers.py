"""Answers of the workers, unary and on streams: they mean the same in every language."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

import grpc
import pytest

from admission_gateway_conformance.answers import Answer, difference
from admission_gateway_worker.pb import worker_pb2 as pb
from tests.kit import PATIENCE_S, REVIEWS
from tests.languages.kit import MUTATING, VALIDATING, vectors
from tests.languages.toolchains import PYTHON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import Any

    from tests.languages.kit import Sample

SERVICE: Final = "/admissiongateway.worker.v1.PolicyWorker/"
IN_A_BATCH: Final = 16


def requests() -> list[pb.ReviewRequest]:
    """Return the vectors, every recorded review for every policy, and invalid requests."""
    found = [
        pb.ReviewRequest(
            policy=vector["policy"],
            admission_request=json.dumps(vector["request"]).encode(),
            namespace_object=json.dumps(vector["namespaceObject"]).encode()
            if "namespaceObject" in vector
            else b"",
            parameters=json.dumps(vector["parameters"]).encode() if "parameters" in vector else b"",
        )
        for vector in vectors()
    ]
    for file in sorted(REVIEWS.glob("*.json")):
        request = json.dumps(json.loads(file.read_bytes())["request"]).encode()
        for policy in (*MUTATING, *VALIDATING, "fails", "no-such-policy", ""):
            found.append(pb.ReviewRequest(policy=policy, admission_request=request))
    return found


def unary(channel: grpc.Channel, questions: Sequence[pb.ReviewRequest]) -> Iterator[Answer]:
    """Yield the answers of *questions*, one call each."""
    method: Any = channel.unary_unary(
        SERVICE + "Review",
        request_serializer=pb.ReviewRequest.SerializeToString,
        response_deserializer=pb.ReviewResponse.FromString,
    )
    for request in questions:
        call = method.future(request, timeout=PATIENCE_S)
        if call.exception() is None:
            yield call.result()
        else:
            yield pb.Error(code=call.code().value[0], message=call.details())


def streamed(channel: grpc.Channel, questions: Sequence[pb.ReviewRequest]) -> Iterator[Answer]:
    """Yield the answers of *questions*, in batches over one stream."""
    method: Any = channel.stream_stream(
        SERVICE + "ReviewStream",
        request_serializer=pb.ReviewBatch.SerializeToString,
        response_deserializer=pb.VerdictBatch.FromString,
    )

    def batches() -> Iterator[pb.ReviewBatch]:
        for begin in range(0, len(questions), IN_A_BATCH):
            batch = pb.ReviewBatch()
            for number, request in enumerate(questions[begin : begin + IN_A_BATCH], begin):
                payload = len(batch.payloads)
                batch.payloads.add(
                    admission_request=request.admission_request, namespace_object=request.namespace_object
                )
                batch.calls.add(id=number, payload=payload, policy=request.policy, timeout_millis=60_000)
            yield batch

    verdicts: dict[int, Answer] = {}
    for message in method(batches(), timeout=PATIENCE_S):
        for verdict in message.verdicts:
            assert verdict.id not in verdicts
            verdicts[verdict.id] = getattr(verdict, verdict.WhichOneof("outcome"))
    assert sorted(verdicts) == list(range(len(questions)))
    return iter([verdicts[number] for number in range(len(questions))])


@pytest.mark.parametrize("ask", [unary, streamed])
def test_every_language_answers_as_python(
    samples: dict[str, Sample],
    ask: Callable[[grpc.Channel, Sequence[pb.ReviewRequest]], Iterator[Answer]],
) -> None:
    questions = requests()
    answered = {}
    for name, sample in samples.items():
        with grpc.insecure_channel(sample.target) as channel:
            answered[name] = list(ask(channel, questions))
    expected = answered.pop(PYTHON.name)
    # The answers are not all empty.
    assert len({str(answer) for answer in expected}) > len(REVIEWS_WITH_A_UID)
    for name, answers in answered.items():
        wrong = [
            f"{request.policy} {json.loads(request.admission_request).get('uid')}: {differing}"
            for request, wanted, found in zip(questions, expected, answers, strict=True)
            if (differing := difference(found, wanted, request.admission_request))
        ]
        assert not wrong, f"{name}, {len(wrong)} of {len(questions)}:\n" + "\n".join(wrong[:5])


REVIEWS_WITH_A_UID: Final = sorted(REVIEWS.glob("*.json"))
"""Each leads to at least one distinct answer, because ``fails`` names the review."""
