"""A worker of the Python SDK on grpc.aio instead of its own server, so that faults can wait and abort."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import grpc
from grpc import aio
from grpc_health.v1 import health, health_pb2, health_pb2_grpc  # type: ignore[import-untyped]

from admission_gateway_worker.evaluation import Evaluator
from admission_gateway_worker.http2.messages import StatusCode
from admission_gateway_worker.listen import Address
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.single import Refused
from admission_gateway_worker.unary import SERVICE, PolicyWorker

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from admission_gateway_worker.policy import Policy

CLOSE_S = 0.5


class AioRpc:
    """The RPC of the SDK's handlers. Messages that they send wait in a queue."""

    def __init__(self, deadline: float = float("inf")) -> None:
        self.deadline = deadline
        self.traceparent = ""
        self.connection = self
        self.client = ""
        self.sent: asyncio.Queue[bytes | tuple[grpc.StatusCode, str]] = asyncio.Queue()
        self.read_further = asyncio.Event()

    @property
    def can_send(self) -> bool:
        return self.sent.empty()

    def hold(self, change: int) -> None:
        pass

    def send(self, message: bytes) -> None:
        self.sent.put_nowait(message)

    def finish(self, code: StatusCode = StatusCode.OK, text: str = "") -> None:
        self.sent.put_nowait((grpc.StatusCode[code.name], text))


class AioWorker(PolicyWorker):
    """The methods of the service for grpc.aio."""

    def handlers(self) -> grpc.GenericRpcHandler:
        return grpc.method_handlers_generic_handler(
            SERVICE,
            {
                "ListPolicies": grpc.unary_unary_rpc_method_handler(self.list_policies),
                "CheckParameters": grpc.unary_unary_rpc_method_handler(self.check_parameters),
                "Review": grpc.unary_unary_rpc_method_handler(self.review),
                "ReviewStream": grpc.stream_stream_rpc_method_handler(self.review_stream),
            },
        )

    async def list_policies(self, message: bytes, rpc: Any) -> bytes:
        return self._list_policies(message)

    async def check_parameters(self, message: bytes, rpc: Any) -> bytes:
        try:
            return self._check_parameters(message)
        except Refused as refused:
            await rpc.abort(grpc.StatusCode[refused.code.name], str(refused))
            raise

    async def review(self, message: bytes, rpc: Any) -> bytes:
        raise NotImplementedError

    async def outcome(self, message: bytes, rpc: Any) -> Any:
        """Return the ReviewResponse or Error of a review."""
        remaining_s = rpc.time_remaining()
        now = asyncio.get_running_loop().time()
        adapter: Any = AioRpc(float("inf") if remaining_s is None else now + remaining_s)
        try:
            self._review(adapter, message)
            answer = await adapter.sent.get()
        except Refused as refused:
            return pb.Error(code=refused.code, message=str(refused))
        finally:
            self._cancel_review(adapter)
        if isinstance(answer, bytes):
            return pb.ReviewResponse.FromString(answer)
        return pb.Error(code=answer[0].value[0], message=answer[1])

    async def review_stream(self, messages: object, rpc: Any) -> None:
        adapter: Any = AioRpc()
        stream = self._review_stream(adapter)

        async def read() -> None:
            while isinstance(message := await rpc.read(), bytes):
                stream.received(message)
                while stream.is_busy or not adapter.can_send:
                    if adapter.can_send:
                        await asyncio.sleep(0)
                        stream.go_on()
                        continue
                    adapter.read_further.clear()
                    await adapter.read_further.wait()
            stream.half_closed()

        reader = asyncio.create_task(read())
        try:
            while True:
                next_one = asyncio.ensure_future(adapter.sent.get())
                await asyncio.wait({next_one, reader}, return_when=asyncio.FIRST_COMPLETED)
                if reader.done():
                    await reader
                sent = await next_one
                if isinstance(sent, tuple):
                    if sent[0] is not grpc.StatusCode.OK:
                        await rpc.abort(*sent)
                    return
                await rpc.write(sent)
                adapter.read_further.set()
                stream.writable()
        except (aio.UsageError, aio.InternalError):
            pass  # the call ended between two steps
        finally:
            reader.cancel()
            stream.cancelled()


class AioServing:
    """See ``admission_gateway_worker.serving.Serving``."""

    options: tuple[tuple[str, int], ...] = ()
    make_worker: Callable[..., AioWorker] = AioWorker
    make_health: Callable[[], Any] = health.aio.HealthServicer

    def __init__(self, policies: Mapping[str, Policy], **_: object) -> None:
        self._evaluator = Evaluator()
        self._worker = type(self).make_worker(policies, self._evaluator)
        self._health = type(self).make_health()
        self._server = aio.server(options=self.options)
        self._server.add_generic_rpc_handlers((self._worker.handlers(),))
        health_pb2_grpc.add_HealthServicer_to_server(self._health, self._server)
        self.addresses: tuple[str, ...] = ()

    async def start(self, addresses: Sequence[Address], _: object) -> None:
        ports = [(address, self._server.add_insecure_port(str(address))) for address in addresses]
        await self._server.start()
        self.addresses = tuple(
            str(address if address.path is not None else Address(address.host, port))
            for address, port in ports
        )
        await self._health.set(SERVICE, health_pb2.HealthCheckResponse.SERVING)

    async def stop(self, grace_s: float) -> int:
        await self._health.enter_graceful_shutdown()
        closing = asyncio.create_task(self._server.stop(grace_s))
        await asyncio.sleep(0)
        self._worker.drain()
        with suppress(TimeoutError):
            await asyncio.wait_for(self._worker.idle.wait(), grace_s)
        await asyncio.wait({closing}, timeout=CLOSE_S)
        await self._server.stop(None)
        await closing
        await self._evaluator.close()
        return self._evaluator.busy_threads
