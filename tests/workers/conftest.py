"""A real worker on a unix socket, and a client of the worker contract without the SDK."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import grpc
import orjson
import pytest
from grpc import aio

from admission_gateway_worker import PolicyServer, Review
from admission_gateway_worker import serving as serving_module
from admission_gateway_worker.calls import Calls
from admission_gateway_worker.http2.frames import PREFACE
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.stream_parameters import StreamParameters
from tests import frames as raw
from tests.workers.raw_client import Client, Connect

if TYPE_CHECKING:
    from admission_gateway_worker.evaluation import Evaluator

SERVICE = "/admissiongateway.worker.v1.PolicyWorker/"
LIMIT = 8 * 1024 * 1024
OPTIONS = [
    ("grpc.max_receive_message_length", LIMIT),
    ("grpc.max_send_message_length", LIMIT),
    # A flow control window that grows with the connection's speed would accept unread bytes.
    ("grpc.http2.bdp_probe", 0),
    # Channels to one address share connections by default: a new channel could get a closing connection.
    ("grpc.use_local_subchannel_pool", 1),
]
REVIEWS = Path(__file__).parents[1] / "reviews"


POD = orjson.dumps(orjson.loads((REVIEWS / "pod-create-6kb.json").read_bytes())["request"])


class RpcOfCalls:
    """What ``Calls`` needs of an RPC."""

    def __init__(self) -> None:
        self.held_bytes = 0
        self.connection = self
        self.client = ""

    def hold(self, change: int) -> None:
        self.held_bytes += change


def make_calls(server: PolicyServer, evaluator: Evaluator, report: Any) -> tuple[Calls, RpcOfCalls]:
    """Return the calls of a stream without a connection, and its RPC."""
    rpc: Any = RpcOfCalls()
    parameters = StreamParameters(rpc, lambda _: None)
    return Calls(server.policies, evaluator, report, lambda: None, rpc, parameters), rpc


class Worker:
    """A client of one worker."""

    def __init__(self, channel: aio.Channel, address: str) -> None:
        self.address = address
        self.channel = channel
        self.review: Any = channel.unary_unary(
            SERVICE + "Review", response_deserializer=pb.ReviewResponse.FromString
        )
        self.list_policies: Any = channel.unary_unary(
            SERVICE + "ListPolicies", response_deserializer=pb.ListPoliciesResponse.FromString
        )

        self.check_parameters: Any = channel.unary_unary(
            SERVICE + "CheckParameters",
            request_serializer=pb.CheckParametersRequest.SerializeToString,
            response_deserializer=pb.CheckParametersResponse.FromString,
        )

    async def unary(
        self,
        policy: str,
        request: bytes = POD,
        namespace: bytes = b"",
        timeout_s: float = 60,
        parameters: bytes = b"",
    ) -> Any:
        """Return the ReviewResponse, or an Error with the status."""
        message = pb.ReviewRequest(
            policy=policy, admission_request=request, namespace_object=namespace, parameters=parameters
        )
        try:
            return await self.review(message.SerializeToString(), timeout=timeout_s)
        except aio.AioRpcError as error:
            return pb.Error(code=error.code().value[0], message=error.details() or "")

    def stream(self) -> Stream:
        """Open a ReviewStream."""
        return Stream(self.channel)

    async def streamed(self, policy: str, request: bytes = POD, namespace: bytes = b"") -> Any:
        """Return the ReviewResponse or Error of one call over a stream of its own."""
        stream = self.stream()
        await stream.send(pb.Payload(admission_request=request, namespace_object=namespace), [(1, policy)])
        [verdict] = (await stream.receive()).verdicts
        await stream.close()
        assert verdict.id == 1
        return verdict.response if verdict.HasField("response") else verdict.error


class Stream:
    """One ReviewStream, as a gateway sees it."""

    def __init__(self, channel: aio.Channel) -> None:
        self.call: Any = channel.stream_stream(
            SERVICE + "ReviewStream",
            request_serializer=pb.ReviewBatch.SerializeToString,
            response_deserializer=pb.VerdictBatch.FromString,
        )()

    async def send(
        self,
        payload: pb.Payload | None = None,
        calls: list[tuple[int, str]] | None = None,
        *,
        timeout_ms: int = 10_000,
        cancelled: list[int] | None = None,
    ) -> None:
        """Write one batch: (id, policy) each on the one payload."""
        await self.call.write(
            pb.ReviewBatch(
                payloads=[payload or pb.Payload(admission_request=POD)],
                calls=[pb.Call(id=i, policy=name, timeout_millis=timeout_ms) for i, name in calls or []],
                cancelled=cancelled or [],
            )
        )

    async def receive(self) -> Any:
        """Return the next VerdictBatch, or ``aio.EOF``."""
        return await self.call.read()

    async def verdicts(self, count: int) -> dict[int, Any]:
        """Return that many verdicts by id, from any number of messages."""
        found: dict[int, Any] = {}
        while len(found) < count:
            batch = await self.receive()
            assert batch is not aio.EOF, f"the stream ended after {sorted(found)}"
            for verdict in batch.verdicts:
                assert verdict.id not in found
                found[verdict.id] = verdict.response if verdict.HasField("response") else verdict.error
        return found

    async def close(self) -> None:
        """Half-close the stream, and read its rest."""
        await self.call.done_writing()
        while await self.call.read() is not aio.EOF:
            pass


async def stop_at_once(server: PolicyServer) -> None:
    """Stop *server* without a wait for clients: a test that still refers to a call keeps its connection."""
    with patch.object(serving_module, "CLOSE_S", 0.0):
        await server.stop(0)


Serve = Callable[[PolicyServer], Any]


@pytest.fixture
def folder() -> Iterator[Path]:
    """A folder with a path short enough for unix sockets."""
    path = Path(tempfile.mkdtemp(prefix="w"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def serve(folder: Path) -> Serve:
    """``async with serve(server) as worker``: the server runs on a unix socket."""

    @asynccontextmanager
    async def serving(server: PolicyServer) -> AsyncIterator[Worker]:
        [address] = await server.start(f"unix:{folder}/worker.sock")
        try:
            async with aio.insecure_channel(address, options=OPTIONS) as channel:
                yield Worker(channel, address)
        finally:
            await stop_at_once(server)

    return serving


def _code_of(answer: pb.Error) -> grpc.StatusCode:
    assert isinstance(answer, pb.Error), answer
    return next(code for code in grpc.StatusCode if code.value[0] == answer.code)


@pytest.fixture(scope="session")
def code_of() -> Callable[[Any], grpc.StatusCode]:
    """``code_of(answer)``: the status code of an Error."""
    return _code_of


@pytest.fixture(scope="session")
def pod() -> bytes:
    """JSON of an AdmissionRequest that creates a Pod of usual size."""
    return POD


@pytest.fixture(scope="session")
def recorded() -> Callable[[str], Review]:
    """``recorded(name)``: a recorded review as a policy gets it in a unit test."""
    return lambda name: Review.from_json((REVIEWS / f"{name}.json").read_bytes())


@pytest.fixture
def connect(folder: Path) -> Connect:
    """``async with connect(server) as client``: ``await client()`` is a settled connection."""

    @asynccontextmanager
    async def connecting(server: PolicyServer) -> AsyncIterator[Callable[..., Any]]:
        await server.start(f"unix:{folder}/worker.sock")
        opened: list[asyncio.StreamWriter] = []

        async def client(start: bytes = PREFACE + raw.frame(raw.SETTINGS)) -> Client:
            reader, writer = await asyncio.open_unix_connection(f"{folder}/worker.sock")
            opened.append(writer)
            writer.write(start)
            return Client(reader, writer)

        try:
            yield client
        finally:
            for writer in opened:
                writer.close()
            await server.stop(0)

    return connecting
