"""An HTTPS webhook server as a backend of the dispatcher: one URL, and the calls in flight to it.

A call is a task. It ends with its verdict; at the deadline, or when the call is withdrawn, it is cancelled,
and its connection is closed. There is no other endpoint to retry at: the network decides which server behind
a Service or a name gets a connection.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import uuid
from functools import partial
from typing import TYPE_CHECKING, Final, TypeVar
from urllib.parse import urlsplit

from admission_gateway_worker.json_patch.steps import finish
from gateway.base.errors import ConfigError, Problem
from gateway.base.work_queue import WorkQueue
from gateway.config.kinds.kubeconfig import KubeconfigUser
from gateway.engine.credentials.ca_bundle import CaBundle
from gateway.engine.credentials.exec_plugin import CredentialsError
from gateway.engine.credentials.user_credentials import UserCredentials
from gateway.engine.dispatch.calls import InFlightCalls
from gateway.engine.dispatch.https.client import WebhookRequest, send
from gateway.engine.dispatch.https.connection import AnswerTooLargeError, ExchangeError, HttpResponse
from gateway.engine.dispatch.https.connection_pool import ConnectionPool
from gateway.engine.dispatch.https.large_answers import LargeAnswerSlot, LargeAnswerSlots
from gateway.engine.dispatch.https.proxy import proxy_for
from gateway.engine.dispatch.https.response import judge
from gateway.engine.dispatch.https.review import failed_before, failed_call, read_answer, write_review
from gateway.engine.dispatch.verdicts import failed_status

if TYPE_CHECKING:
    import ssl
    from collections.abc import Generator, Sequence

    from gateway.engine.dispatch.calls import CallGroup, Endpoint, EndpointState, Sheds
    from gateway.engine.dispatch.timer_wheel import TimerWheel
    from gateway.observe.telemetry.metrics import PoolMetrics
    from gateway.pure.core.call import Call
    from gateway.pure.core.verdict import Failed, Verdict
    from gateway.pure.core.webhook import HttpsClient

Result = TypeVar("Result")

log = logging.getLogger(__name__)

POOL: Final = "https"
"""The value of the label ``pool`` in metrics."""
MAX_IN_FLIGHT: Final = 1024
"""Calls to one server, each with a connection: as many as the default of a worker pool."""

MAX_UNQUEUED_BYTES: Final = 64 * 1024
"""A longer answer is decoded one step at a time. A step blocks the event loop for up to 8 MiB."""

_TOO_DEEP: Final = "not called: the request nests too deeply to be written again"
_SHOWN_CHARS: Final = 500
"""Characters of a URL in the cause of a failure, so that the reason is not cut off."""


class HttpsServer:
    """The server at the URL of *client*. Make it on a running event loop."""

    state: EndpointState = "ready"

    def __init__(
        self,
        client: HttpsClient,
        user: KubeconfigUser | None,
        timers: TimerWheel,
        metrics: PoolMetrics,
        bundle: CaBundle | None = None,
    ) -> None:
        """*user*: the gateway's credentials for it. The environment may name a proxy.

        *bundle* has the root certificates if the client names a source of them. Without it, such a server is
        never called.

        Raises:
            ConfigError: certificates cannot be used.
        """
        self.calls = InFlightCalls(MAX_IN_FLIGHT, timers)
        self.now = timers.now
        self.client = client
        self.address = client.url
        self.user = user
        self._metrics = metrics
        try:
            self._credentials = UserCredentials(user or KubeconfigUser(), client.url, client.ca_pem)
        except CredentialsError as error:
            raise ConfigError([Problem("clientConfig", client.url, str(error))]) from error
        self.bundle = bundle if client.ca_from is None or bundle is not None else CaBundle(client.ca_from)
        """The root certificates that are followed. None if they are fixed."""
        self._roots = client.ca_pem
        """The root certificates in use."""
        parts = urlsplit(client.url)
        host, port = parts.hostname or "", parts.port or 443
        proxy = None if client.connect_to else proxy_for(host, port, os.environ)
        self.connections = ConnectionPool((host, port), proxy, client.connect_to)
        self._tasks: dict[tuple[CallGroup, int], asyncio.Task[None]] = {}
        self._decoding = WorkQueue()
        self._slots = LargeAnswerSlots()
        self._overloaded = failed_status(
            "RESOURCE_EXHAUSTED", f"{client.url}: {MAX_IN_FLIGHT} calls are in flight, which is the maximum"
        )
        metrics.remember(client.url)

    def __repr__(self) -> str:
        return f"<HttpsServer {self.client.url}, {self.calls.count} in flight, {self.connections.idle} idle>"

    def choose(self, sheds: Sheds = "None") -> HttpsServer | Failed:
        """Return itself, or a failure if it is full and there is no call that *sheds* allows to end."""
        if self.calls.free or self.calls.shed(self._overloaded, sheds):
            return self
        return self._overloaded

    def alternative_to(self, endpoint: Endpoint, *, may_reuse: bool) -> Endpoint | None:
        """Return None: there is no other endpoint."""

    def submit(self, group: CallGroup) -> None:
        """Send the calls of *group*; its observer gets each verdict, at the deadline at the latest."""
        if not group.open_count:
            return
        self.calls.enter(group)
        group.was_sent = True
        for index, call in enumerate(group.calls):
            if call is not None:
                self._start((group, index), call)

    def withdraw(self, group: CallGroup, index: int, code: str) -> None:
        """Cancel a call and count it with status *code*; the observer is not called."""
        task = self._tasks.get((group, index))
        if task is not None:
            task.cancel()
            self._metrics.called(self.client.url, code)
        self.calls.release(group, (index,))

    def count_retries(self, number: int) -> None:
        """Count calls that are retried here."""
        self._metrics.retries += number

    async def close(self, grace_s: float) -> None:
        """Wait up to *grace_s* seconds for calls in flight, and close all connections."""
        await self.calls.wait_until_idle(grace_s)
        tasks = dict(self._tasks)
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        for group, index in tasks:
            self._finish((group, index), failed_call("the gateway is shutting down"), "CANCELLED")
        self.connections.close()
        await self._credentials.close()
        self._metrics.forget(self.client.url)

    def _start(self, key: tuple[CallGroup, int], call: Call) -> None:
        self._tasks[key] = task = asyncio.get_running_loop().create_task(self._call(key, call))
        task.add_done_callback(lambda ended: self._ended(key, ended))

    def _ended(self, key: tuple[CallGroup, int], task: asyncio.Task[None]) -> None:
        del self._tasks[key]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("internal error in a call to %s; the call fails", self.client.url, exc_info=error)
            self._finish(key, failed_before(f"internal error: {type(error).__name__}"), "INTERNAL")

    async def _call(self, key: tuple[CallGroup, int], call: Call) -> None:
        with LargeAnswerSlot(self._slots) as slot:
            code, verdict = await self.review(key[0], call, slot)
        self._finish(key, verdict, code)

    def _finish(self, key: tuple[CallGroup, int], verdict: Verdict, code: str) -> None:
        """End a call with *verdict*, unless it has ended."""
        group, index = key
        call = group.calls[index]
        if call is not None:
            self._metrics.called(self.client.url, code)
            self.calls.release(group, (index,))
            group.observer.on_verdicts({group: [(call, verdict)]})

    async def review(self, group: CallGroup, call: Call, slot: LargeAnswerSlot) -> tuple[str, Verdict]:
        """Return the status code for the metrics, and the verdict."""
        webhook, uid = call.invocation.webhook, str(uuid.uuid4())
        try:
            body = write_review(webhook.review_version, call.payload.json, uid)
        except TypeError:
            return "INTERNAL", failed_before(_TOO_DEEP)
        timeout_text = f"{max(1, math.ceil(group.deadline.remaining_s(self.now())))}s"
        response = await self.post(call, slot, body, timeout_text)
        if not isinstance(response, HttpResponse):
            return response
        read = partial(read_answer, phase=webhook.phase, version=webhook.review_version, uid=uid)
        return await self.read(response, slot, judge(response, read))

    async def read(
        self, response: HttpResponse, slot: LargeAnswerSlot, steps: Generator[None, None, Result]
    ) -> Result:
        """Return the result of *steps*, which read *response*."""
        if len(response.body) <= MAX_UNQUEUED_BYTES:
            return finish(steps)
        await slot.acquire()
        return await self._decoding.run(steps)

    async def current_credentials(self) -> tuple[list[tuple[str, str]], ssl.SSLContext]:
        """Return the header fields to send, and the context to connect with, by the roots as they are now.

        Raises:
            CredentialsError: there are none.
        """
        if self.bundle is not None and self.bundle.pem is not self._roots:
            self._credentials.use_roots(self.bundle.pem)
            self._roots = self.bundle.pem
        return await self._credentials.get()

    async def post(
        self, call: Call, slot: LargeAnswerSlot, body: Sequence[bytes | memoryview], timeout_text: str
    ) -> HttpResponse | tuple[str, Failed]:
        """Send *body* for *call*, and return the response; without one the status code and the failure.

        *slot* and *timeout_text* are those of :func:`send`.
        """
        bundle = self.bundle
        if bundle is not None and not bundle.pem:
            # Not the roots of the system, which would trust other servers.
            return "UNAUTHENTICATED", failed_before(f"not called: {bundle.warning}")
        try:
            headers, context = await self.current_credentials()
            trace = (("traceparent", call.traceparent),) if call.traceparent else ()
            call.sent_at = self.now()
            request = WebhookRequest(self.client.url, (*headers, *trace), body)
            idempotent = call.invocation.webhook.side_effects == "None"
            response = await send(
                request, timeout_text, self.connections, context, slot, may_repeat=idempotent
            )
        except CredentialsError as error:
            return "UNAUTHENTICATED", failed_before(f"could not get REST client: {error}")
        except ExchangeError as error:
            code = "RESOURCE_EXHAUSTED" if isinstance(error, AnswerTooLargeError) else "UNAVAILABLE"
            query = f"?timeout={timeout_text}" if timeout_text else ""
            return code, failed_call(f'Post "{self.client.url[:_SHOWN_CHARS]}{query}": {error}')
        if response.status == 401:
            self._credentials.reject(headers)
        return response
