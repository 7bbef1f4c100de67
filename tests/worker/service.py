"""The service of the scripted worker: each method as a handler of the SDK's RPCs."""

from __future__ import annotations

import asyncio
import json
import os
import random
from collections import Counter
from functools import partial
from typing import TYPE_CHECKING, Any

from admission_gateway_worker.health import Health
from admission_gateway_worker.http2.messages import StatusCode
from admission_gateway_worker.pb import worker_pb2
from admission_gateway_worker.single import Refused, SingleRequest, answering
from admission_gateway_worker.unary import SERVICE
from tests.frames import varint
from tests.worker import answers
from tests.worker.script import GARBAGE, count, patched, respond, script_of, unsolicited, verdict_of

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine
    from pathlib import Path

    from admission_gateway_worker.rpc import Handler, Methods, Rpc

FOREVER_S = 3600.0


class SwitchedHealth(Health):
    """SERVING and NOT_SERVING in turn."""

    def switch(self) -> None:
        """Change the state, and report it to open watches."""
        is_serving = 1 in self._states.values()
        self._states = dict.fromkeys(self._states, 2 if is_serving else 1)
        for rpc, service in self._watches.items():
            rpc.send(self._state(service))


class Service:
    """The methods of a scripted worker. The arguments are the flags of ``tests.worker``."""

    def __init__(
        self,
        *,
        override: dict[str, Any] | None = None,
        every: int = 1,
        log: Path | None = None,
        has_chains: bool = False,
        has_stream: bool = True,
        has_health: bool = False,
        declared: Path | None = None,
    ) -> None:
        self.seen: Counter[str] = Counter()
        """Counts of calls and messages so far."""
        self.health = SwitchedHealth(SERVICE) if has_health else None
        self.has_chains = has_chains
        self.die: Callable[[], object] = partial(os._exit, 1)
        """Ends the worker at once."""
        self._override = override or {}
        self._every = every
        self._log = None if log is None else os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        self._has_stream = has_stream
        self._declared = declared
        self._unary: dict[Rpc, asyncio.Task[None]] = {}

    def methods(self) -> Methods:
        methods: dict[str, Callable[[Rpc], Handler]] = {
            "Review": lambda rpc: SingleRequest(rpc, self._review, self._cancel_review),
            "ReviewStream": partial(Stream, self),
            "ListPolicies": partial(answering, self._list_policies),
            "CheckParameters": partial(answering, self._check_parameters),
        }
        if not self._has_stream:
            del methods["ReviewStream"]
        if self._declared is None:
            del methods["ListPolicies"], methods["CheckParameters"]
        served = {f"/{SERVICE}/{name}": method for name, method in methods.items()}
        return served if self.health is None else {**served, **self.health.methods()}

    def script(self, policy: str, payload: bytes) -> dict[str, Any]:
        """Return the script of a new call."""
        if self._log is not None:
            os.write(self._log, f"{json.loads(payload)['uid']} {policy}\n".encode())
        return script_of(policy, self.seen, self._override, self._every)

    async def wait(self, script: dict[str, Any]) -> None:
        """Wait until the answer is due."""
        delay = script.get("delay_ms", 0)
        if script.get("exit"):
            self.die()
        if script.get("hang"):
            await asyncio.sleep(FOREVER_S)
        if delay:
            await asyncio.sleep((random.uniform(*delay) if isinstance(delay, list) else delay) / 1000)
        while "until" in script and not os.path.exists(script["until"]):  # noqa: PTH110
            await asyncio.sleep(0.01)

    def _list_policies(self, _: bytes) -> bytes:
        policies = [
            worker_pb2.Policy(
                name=name,
                mutating=one.get("mutating", False),
                parameters_schema=json.dumps(one["schema"]) if "schema" in one else "",
            )
            for name, one in self._read_declared().items()
        ]
        return worker_pb2.ListPoliciesResponse(policies=policies).SerializeToString()

    def _check_parameters(self, message: bytes) -> bytes:
        request = worker_pb2.CheckParametersRequest.FromString(message)
        declared = self._read_declared()
        if not any("problem" in one for one in declared.values()):
            raise Refused(StatusCode.UNIMPLEMENTED, "not declared")
        if request.policy not in declared:
            raise Refused(StatusCode.NOT_FOUND, "no such policy")
        problem = declared[request.policy].get("problem", "")
        return worker_pb2.CheckParametersResponse(problem=problem).SerializeToString()

    def _read_declared(self) -> dict[str, Any]:
        assert self._declared is not None
        declared: dict[str, Any] = json.loads(self._declared.read_bytes())
        return declared

    def _review(self, rpc: Rpc, message: bytes) -> None:
        self.seen["unary"] += 1
        request = worker_pb2.ReviewRequest.FromString(message)
        script = self.script(request.policy, request.admission_request)
        self._unary[rpc] = started(rpc, self._answer(rpc, script, request))

    def _cancel_review(self, rpc: Rpc) -> None:
        if rpc in self._unary:
            self.seen["cancelled"] += 1
            self._unary.pop(rpc).cancel()

    async def _answer(self, rpc: Rpc, script: dict[str, Any], request: worker_pb2.ReviewRequest) -> None:
        await self.wait(script)
        self._unary.pop(rpc)
        if "status" in script:
            rpc.finish(StatusCode[script["status"]], script.get("details", ""))
        elif script.get("garbage"):
            rpc.send(GARBAGE)
        elif "answer" in script:
            rpc.send(answers.message(script["answer"]))
        else:
            payload, namespace = request.admission_request, request.namespace_object
            answer = respond(script, payload, namespace, self.seen, rpc.traceparent)
            rpc.send(answer.SerializeToString())
        rpc.finish()


class Stream:
    """The handler of a ReviewStream."""

    is_busy = False

    def __init__(self, service: Service, rpc: Rpc) -> None:
        service.seen["streams"] += 1
        self._service = service
        self._rpc = rpc
        self._tasks: dict[int, asyncio.Task[None]] = {}
        """Calls that can be cancelled, by id."""
        self._stubborn: set[asyncio.Task[None]] = set()
        self._has_room = asyncio.Event()
        self._is_half_closed = False

    def go_on(self) -> None:
        """See ``Handler``."""

    def received(self, message: bytes) -> None:
        """Begin the calls of a batch."""
        service = self._service
        batch = worker_pb2.ReviewBatch.FromString(message)
        count(batch, service.seen)
        for number in batch.cancelled:
            task = self._tasks.pop(number, None)
            if task is not None:
                task.cancel()
        left: dict[int, asyncio.Future[bytes]] = {}
        for call in batch.calls:
            payload = batch.payloads[call.payload]
            script = service.script(call.policy, payload.admission_request)
            before = left[call.after] if call.after and service.has_chains else None
            left[call.id] = asyncio.get_running_loop().create_future()
            task = started(self._rpc, self._answer(script, call, payload, left[call.id], before))
            if script.get("stubborn"):
                self._stubborn.add(task)
                task.add_done_callback(self._stubborn.discard)
            else:
                self._tasks[call.id] = task

    def half_closed(self) -> None:
        """End the stream after the calls in flight."""
        self._is_half_closed = True
        self._end_if_done()

    def cancelled(self) -> None:
        """Drop the calls in flight."""
        for task in (*self._tasks.values(), *self._stubborn):
            task.cancel()

    def writable(self) -> None:
        """See ``Handler``."""
        self._has_room.set()

    def _end_if_done(self) -> None:
        if self._is_half_closed and not self._tasks and not self._stubborn:
            self._rpc.finish()

    async def _write(self, message: bytes) -> None:
        while not self._rpc.can_send:
            self._has_room.clear()
            await self._has_room.wait()
        self._rpc.send(message)

    async def _answer(
        self,
        script: dict[str, Any],
        call: worker_pb2.Call,
        payload: worker_pb2.Payload,
        left: asyncio.Future[bytes],
        before: asyncio.Future[bytes] | None,
    ) -> None:
        """Send the verdict of a call, and the object that it leaves to *left*; *before* has its object."""
        seen, number = self._service.seen, call.id
        request = payload.admission_request if before is None else await asyncio.shield(before)
        await self._service.wait(script)
        if script.get("garbage"):
            await self._write(GARBAGE)
            return
        if script.get("end"):
            self._rpc.finish()
            self.cancelled()
            return
        if "answer" in script:
            script = {**script, "empty": True}
        verdict = verdict_of(
            script,
            number,
            self._tasks,
            lambda: respond(script, request, payload.namespace_object, seen, call.traceparent),
            is_chained=before is not None,
        )
        left.set_result(patched(request, verdict.response))
        encoded = verdict.SerializeToString()
        if "answer" in script:
            # The field ``response``, assembled from bytes, because protobuf would take too long.
            response = answers.message(script["answer"])
            encoded += b"\x12" + varint(len(response)) + response
        drain = b"\x10\x01" if script.get("drain") else b""
        self._tasks.pop(number, None)
        for _ in range(2 if script.get("twice") else 1):
            await self._write(b"\x0a" + varint(len(encoded)) + encoded + drain)
        if script.get("flood"):
            await self._flood()
        self._end_if_done()

    async def _flood(self) -> None:
        flood = unsolicited(1000)
        while self._rpc.handler is not None:
            await self._write(flood)
            self._service.seen["flooded"] += 1000
            await asyncio.sleep(0)


def started(rpc: Rpc, answering: Coroutine[Any, Any, None]) -> asyncio.Task[None]:
    """Start a task that answers a call of *rpc*, which fails if the script has a mistake."""

    async def run() -> None:
        try:
            await answering
        except Exception as error:
            rpc.abort(StatusCode.UNKNOWN, f"the script failed: {error!r}")
            raise

    task = asyncio.get_running_loop().create_task(run())
    # A task that is cancelled before its first step never awaits the coroutine.
    task.add_done_callback(lambda _: answering.close())
    return task
