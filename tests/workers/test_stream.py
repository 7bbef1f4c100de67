"""The ReviewStream of a real server, over a unix socket."""

from __future__ import annotations

import asyncio
from typing import Any

import grpc
import pytest

from admission_gateway_worker import Denied, PolicyServer, Review
from admission_gateway_worker import stream as stream_module
from admission_gateway_worker.pb import worker_pb2 as pb
from tests.waiting import until

EVENT_LOOPS = ("uvloop",)


class Probe:
    """Policies whose progress a test can observe and control."""

    def __init__(self) -> None:
        self.server = PolicyServer()
        self.started = 0
        self.ended: list[str] = []
        self.gate = asyncio.Event()
        for name, function in {"allow": self.allow, "deny": self.deny, "wait": self.wait}.items():
            self.server.policy(name)(function)

    def allow(self, review: Review) -> None:
        self.started += 1

    def deny(self, review: Review) -> None:
        raise Denied("no")

    async def wait(self, review: Review) -> None:
        self.started += 1
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.ended.append("cancelled")
            raise
        self.ended.append("answered")


async def test_a_batch_of_policies_that_need_not_wait_is_answered_in_one_message(
    serve: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_module, "TOGETHER_S", 60.0)
    probe = Probe()
    async with serve(probe.server) as worker:
        stream = worker.stream()
        await stream.send(calls=[(i, "deny" if i % 3 else "allow") for i in range(100)])
        batch = await stream.receive()
        assert [verdict.id for verdict in batch.verdicts] == list(range(100))
        assert [verdict.response.allowed for verdict in batch.verdicts] == [not i % 3 for i in range(100)]
        assert not batch.draining
        await stream.close()


async def test_calls_point_into_the_payloads_of_their_batch(serve: Any) -> None:
    server = PolicyServer()
    seen = []

    @server.policy("see")
    def see(review: Review) -> None:
        namespace = review.namespace_object
        seen.append((review.uid, namespace and namespace["metadata"]["name"]))

    async with serve(server) as worker:
        stream = worker.stream()
        payloads = [
            pb.Payload(admission_request=b'{"uid": "a"}', namespace_object=b'{"metadata": {"name": "n"}}'),
            pb.Payload(admission_request=b'{"uid": "b"}'),
        ]
        calls = [
            pb.Call(id=i, payload=p, policy="see", timeout_millis=5000) for i, p in enumerate([1, 0, 1, 2])
        ]
        await stream.call.write(pb.ReviewBatch(payloads=payloads, calls=calls))
        verdicts = await stream.verdicts(4)
        assert verdicts[3].code == grpc.StatusCode.INVALID_ARGUMENT.value[0]
        assert verdicts[3].message == "the call is for payload 2, the batch has 2"
        assert all(verdicts[i].allowed for i in range(3))
        await stream.close()
    assert seen == [("b", None), ("a", "n"), ("b", None)]


async def test_a_cancelled_call_is_stopped_and_gets_no_verdict(serve: Any) -> None:
    probe = Probe()
    async with serve(probe.server) as worker:
        stream = worker.stream()
        await stream.send(calls=[(1, "wait"), (2, "wait")])
        await until(lambda: probe.started == 2)
        await stream.send(cancelled=[1, 99])
        await until(lambda: probe.ended == ["cancelled"])
        probe.gate.set()
        assert list(await stream.verdicts(1)) == [2]
        await stream.close()


async def test_a_call_cancelled_in_its_own_batch_does_not_run(serve: Any) -> None:
    probe = Probe()
    async with serve(probe.server) as worker:
        stream = worker.stream()
        await stream.send(calls=[(1, "wait"), (2, "allow")], cancelled=[1])
        assert list(await stream.verdicts(1)) == [2]
        assert probe.started == 1
        await stream.close()


@pytest.mark.parametrize("how", ["cancel", "close"])
async def test_calls_are_cancelled_when_the_gateway_disconnects(
    serve: Any, how: str, caplog: pytest.LogCaptureFixture
) -> None:
    probe = Probe()
    async with serve(probe.server) as worker:
        stream = worker.stream()
        await stream.send(calls=[(1, "wait"), (2, "wait")])
        await until(lambda: probe.started == 2)
        if how == "cancel":
            stream.call.cancel()
        else:
            await worker.channel.close()
        await until(lambda: probe.ended == ["cancelled", "cancelled"])
    # grpc logs errors about a closed loop on the next loop.
    assert not [text for text in caplog.messages if "PollerCompletionQueue" not in text]


@pytest.mark.parametrize(
    ("messages", "details"),
    [
        ([b"\xff\xff"], "not a ReviewBatch"),
        (
            [
                pb.ReviewBatch(
                    payloads=[pb.Payload(admission_request=b"{}")],
                    calls=[pb.Call(id=7, policy="wait", timeout_millis=5000)] * 2,
                ).SerializeToString()
            ],
            "call id 7 is used again",
        ),
    ],
)
async def test_a_broken_contract_ends_the_stream(serve: Any, messages: list[bytes], details: str) -> None:
    probe = Probe()
    async with serve(probe.server) as worker:
        call = worker.channel.stream_stream("/admissiongateway.worker.v1.PolicyWorker/ReviewStream")()
        for message in messages:
            await call.write(message)
        assert await call.code() is grpc.StatusCode.INVALID_ARGUMENT
        assert details in await call.details()
        assert "answered" not in probe.ended


async def test_nothing_more_is_read_while_the_gateway_takes_no_verdicts(serve: Any) -> None:
    server = PolicyServer()
    runs = []

    @server.policy("large", mutating=True)
    async def large(review: Review) -> None:  # async without an await: never moved to a thread
        runs.append(review.uid)
        review.object["text"] = "x" * (3 * 1024 * 1024)

    server.policy("allow")(lambda review: None)
    async with serve(server) as worker:
        stream = worker.stream()
        for i in range(3):
            calls = [(i * 5 + n, "large") for n in range(5)]
            await stream.send(pb.Payload(admission_request=b'{"object":{}}'), calls)
        assert (await worker.unary("allow")).allowed
        # Two of the first batch are more than fits into a message or a flow control window.
        assert 1 <= len(runs) <= 2
        assert sorted(await stream.verdicts(15)) == list(range(15))
        await stream.close()
