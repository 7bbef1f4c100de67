"""Parameters of policies, over the stream and the unary method of a real server."""

from __future__ import annotations

import asyncio
import logging
from typing import Any

import grpc
import orjson
import pytest
import uvloop
from grpc import aio

from admission_gateway_worker import PolicyServer, Review
from admission_gateway_worker.parameters import MAX_BYTES, MAX_ID, MAX_PREPARED, MAX_PREPARED_BYTES
from admission_gateway_worker.pb import worker_pb2 as pb

EVENT_LOOPS = ("uvloop",)

SCHEMA = {"type": "object", "properties": {"suffix": {"type": "string"}}}


class Probe:
    """A worker whose policies report their parameters as a warning."""

    def __init__(self) -> None:
        self.server = PolicyServer()
        self.prepared: list[dict[str, Any]] = []

        def prepare(parameters: dict[str, Any]) -> dict[str, Any]:
            self.prepared.append(parameters)
            if "bad" in parameters:
                raise LookupError(f"no {parameters['bad']}")
            return parameters

        def show(review: Review) -> None:
            review.warn(orjson.dumps(review.parameters).decode())

        async def show_later(review: Review) -> None:
            await asyncio.sleep(0)
            show(review)

        server = self.server
        server.policy("shows", parameters=SCHEMA, prepare=prepare)(show)
        server.policy("shows in a thread", parameters=SCHEMA, blocking=True)(show)
        server.policy("shows later", parameters=SCHEMA)(show_later)
        server.policy("allows", parameters=SCHEMA)(lambda review: None)
        server.policy("takes none")(show)


def batch(
    calls: list[tuple[int, str, int]],
    parameters: dict[int, bytes] | None = None,
    after: dict[int, int] | None = None,
) -> pb.ReviewBatch:
    """Return a batch of (id, policy, id of parameters)."""
    return pb.ReviewBatch(
        payloads=[pb.Payload(admission_request=b'{"object": {}}')],
        calls=[
            pb.Call(
                id=number,
                policy=policy,
                timeout_millis=10_000,
                parameters=of,
                after=(after or {}).get(number, 0),
            )
            for number, policy, of in calls
        ],
        parameters=[pb.Parameters(id=number, json=json) for number, json in (parameters or {}).items()],
    )


def seen(answer: Any) -> Any:
    """Return the parameters that the policy of an allowed *answer* saw."""
    assert answer.allowed, answer
    [warning] = answer.warnings
    return orjson.loads(warning)


@pytest.mark.parametrize("policy", ["shows", "shows in a thread", "shows later"])
async def test_stream_and_unary_give_the_same_answers(serve: Any, policy: str) -> None:
    async with serve(Probe().server) as worker:
        stream = worker.stream()
        for number, json in enumerate((b'{"suffix":"x"}', b"", b"[]", b"{", b'{"suffix": "x"}'), 1):
            given = {number: json} if json else {}
            await stream.call.write(batch([(number, policy, number if json else 0)], given))
            streamed = (await stream.verdicts(1))[number]
            assert streamed == await worker.unary(policy, b'{"object": {}}', parameters=json), json
        await stream.close()


async def test_a_value_is_prepared_once_and_the_last_used_are_kept(serve: Any) -> None:
    probe = Probe()
    async with serve(probe.server) as worker:
        for _ in range(3):
            await worker.unary("shows", parameters=b'{"suffix":"x"}')
            await worker.unary("shows")
        assert probe.prepared == [{"suffix": "x"}, {}]
        stream = worker.stream()
        await stream.call.write(batch([(1, "shows", 1), (2, "shows", 1)], {1: b'{"suffix":"x"}'}))
        await stream.verdicts(2)
        assert len(probe.prepared) == 2
        for number in range(MAX_PREPARED - 1):
            await stream.call.write(batch([(3, "shows", 2)], {2: b'{"n":%d}' % number}))
            await stream.verdicts(1)
        await stream.close()
        await worker.unary("shows", parameters=b'{"suffix":"x"}')
        assert len(probe.prepared) == MAX_PREPARED + 1
        await worker.unary("shows")
        assert len(probe.prepared) == MAX_PREPARED + 2


async def test_the_bytes_of_prepared_values_are_bounded(serve: Any) -> None:
    probe = Probe()
    async with serve(probe.server) as worker:
        first = b'{"n":0}'
        kept = MAX_PREPARED_BYTES // MAX_BYTES
        for number in range(kept):
            json = b'{"n":%d}' % number
            await worker.unary("shows", parameters=json + b" " * (MAX_BYTES - len(json)))
        await worker.unary("shows", parameters=first)
        assert len(probe.prepared) == kept + 1
        await worker.unary("shows", parameters=first + b" " * (MAX_BYTES - len(first)))
        assert len(probe.prepared) == kept + 2


def test_a_failure_of_prepare_is_the_failure_of_each_call_and_logged_once(
    serve: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with serve(Probe().server) as worker:
            text = 'the parameters of policy "shows" cannot be used: LookupError: no wine'
            for _ in range(2):
                answer = await worker.unary("shows", b'{"uid":"u1"}', parameters=b'{"bad":"wine"}')
                assert answer == pb.Error(code=3, message=text)

    with caplog.at_level(logging.ERROR, "admission_gateway_worker"):
        uvloop.run(scenario())
    [record] = caplog.records
    assert record.message == 'policy failed: policy="shows" uid="u1" error="LookupError: no wine"'
    assert record.exc_info is not None


async def test_parameters_that_cannot_be_used_are_an_error_of_their_calls(serve: Any) -> None:
    async with serve(Probe().server) as worker:
        stream = worker.stream()
        calls = [(1, "takes none", 1), (2, "allows", 2), (3, "allows", 3), (4, "allows", 0)]
        await stream.call.write(batch(calls, {1: b"{}", 2: b"[]"}))
        answers = await stream.verdicts(4)
        assert [answers[number] for number in (1, 2, 3)] == [
            pb.Error(code=3, message='policy "takes none" takes no parameters'),
            pb.Error(code=3, message="parameters is to be a JSON object, found list"),
            pb.Error(code=3, message="the call has an id of parameters that this stream has not had"),
        ]
        assert answers[4].allowed
        # A call after one that fails is evaluated on the unchanged object.
        await stream.call.write(batch([(1, "allows", 9), (2, "shows", 2)], {2: b"{}"}, after={2: 1}))
        answers = await stream.verdicts(2)
        assert answers[1].code == 3
        assert seen(answers[2]) == {}
        await stream.close()


@pytest.mark.parametrize(
    ("number", "json", "text"),
    [
        (0, b"{}", "parameters have the id 0, expected 1 to 256"),
        (MAX_ID + 1, b"{}", "parameters have the id 257, expected 1 to 256"),
        (1, b" " * (MAX_BYTES + 1), "parameters have 65537 bytes, expected at most 65536"),
    ],
)
async def test_parameters_beyond_the_bounds_end_the_stream(
    serve: Any, number: int, json: bytes, text: str
) -> None:
    async with serve(Probe().server) as worker:
        stream = worker.stream()
        await stream.call.write(batch([], {number: json}))
        with pytest.raises(aio.AioRpcError, match=text) as caught:
            await stream.receive()
        assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


async def test_unary_parameters_are_bounded_too(serve: Any) -> None:
    async with serve(Probe().server) as worker:
        answer = await worker.unary("allows", parameters=b" " * (MAX_BYTES + 1))
        assert answer == pb.Error(code=3, message="the parameters have 65537 bytes, expected at most 65536")


async def problem(worker: Any, policy: str, json: bytes) -> str:
    """Return the answer of CheckParameters."""
    request = pb.CheckParametersRequest(policy=policy, parameters=json)
    return str((await worker.check_parameters(request)).problem)


UNUSABLE = [
    ("shows", b'{"bad":"wine"}', 'the parameters of policy "shows" cannot be used: LookupError: no wine'),
    ("shows", b'{"bad":"%s"}' % (3000 * b"x"), None),
    ("shows", b"[]", "parameters is to be a JSON object, found list"),
    ("shows", b"{", None),
    ("takes none", b"{}", 'policy "takes none" takes no parameters'),
    ("allows", b" " * (MAX_BYTES + 1), "the parameters have 65537 bytes, expected at most 65536"),
]


@pytest.mark.parametrize(("policy", "json", "text"), UNUSABLE)
def test_a_check_tells_what_a_call_would(
    serve: Any, caplog: pytest.LogCaptureFixture, policy: str, json: bytes, text: str | None
) -> None:
    async def scenario() -> None:
        async with serve(Probe().server) as worker:
            found = await problem(worker, policy, json)
            assert found
            assert text in (None, found)
            assert not caplog.records
            # The call after it logs its failure, which is of a review.
            assert await worker.unary(policy, parameters=json) == pb.Error(code=3, message=found)

    with caplog.at_level(logging.ERROR, "admission_gateway_worker"):
        uvloop.run(scenario())
    assert len(caplog.records) == (b"bad" in json)


async def test_a_check_prepares_a_value_for_calls_and_evaluates_nothing(serve: Any) -> None:
    probe = Probe()
    async with serve(probe.server) as worker:
        for json in (b'{"suffix":"x"}', b""):
            assert await problem(worker, "shows", json) == ""
            assert await problem(worker, "shows", json) == ""
            assert seen(await worker.unary("shows", parameters=json)) == orjson.loads(json or b"{}")
        assert probe.prepared == [{"suffix": "x"}, {}]
        assert await problem(worker, "takes none", b"") == ""


async def test_list_policies_has_the_schema(serve: Any) -> None:
    async with serve(Probe().server) as worker:
        policies = {policy.name: policy for policy in (await worker.list_policies(b"")).policies}
        assert orjson.loads(policies["shows"].parameters_schema) == SCHEMA
        assert policies["takes none"].parameters_schema == ""


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"parameters": "object"}, "have to be a JSON Schema, a dict; found 'object'"),
        ({"parameters": {"enum": {1, 2}}}, "cannot be written as JSON"),
        ({"parameters": {}, "prepare": None}, "has to be a function; found None"),
        ({"prepare": tuple}, 'policy "a" has prepare, but no parameters'),
    ],
)
def test_errors_are_raised_at_the_registration(options: dict[str, Any], message: str) -> None:
    with pytest.raises(TypeError, match=message):
        PolicyServer().policy("a", **options)(lambda review: None)


def test_a_unit_test_gives_the_parameters_itself() -> None:
    assert Review.from_json({}).parameters is None
    assert Review.from_json({}, parameters={"suffix": "x"}).parameters == {"suffix": "x"}
