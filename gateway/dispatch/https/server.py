"""An HTTPS webhook server, as the dispatcher sees it: one address, and the calls in flight to it.

A call is a task: it ends with its verdict, or is cancelled at its deadline or when nobody wants its answer
any more, and the connection goes with it. There is one address only, so nobody else can be asked; which of
several servers behind a Service or a name takes a connection is up to the network.
"""

from __future__ import annotations

import asyncio
import logging
import math
import os
import uuid
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from gateway.config.kubeconfig import KubeconfigUser
from gateway.credentials.exec_plugin import CredentialsError
from gateway.credentials.user_credentials import UserCredentials
from gateway.dispatch.https.client import HttpRequest, ask
from gateway.dispatch.https.connection import AnswerTooLargeError, ExchangeError
from gateway.dispatch.https.connection_pool import ConnectionPool
from gateway.dispatch.https.large_answers import LargeAnswerSlot, LargeAnswerSlots
from gateway.dispatch.https.proxy import proxy_for
from gateway.dispatch.https.response import judge
from gateway.dispatch.https.review import failed_before, failed_call, write_review
from gateway.dispatch.in_flight import InFlightCalls
from gateway.dispatch.verdicts import failed_status
from gateway.errors import ConfigError, Problem
from gateway.work_queue import WorkQueue, finish

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.core.call import Call
    from gateway.core.verdict import Failed, Verdict
    from gateway.core.webhook import HttpsClient
    from gateway.dispatch.backends import Endpoint
    from gateway.dispatch.calls import CallGroup
    from gateway.dispatch.outlier_detection import State
    from gateway.dispatch.timer_wheel import TimerWheel
    from gateway.telemetry.metrics import PoolMetrics

log = logging.getLogger(__name__)

POOL: Final = "https"
"""What stands in metrics for the name of a worker pool."""
MAX_IN_FLIGHT: Final = 1024
"""Calls to one server, as many as a worker gets unless its pool says otherwise; each has a connection."""

READ_AT_ONCE_BYTES: Final = 64 * 1024
"""Of an answer. Longer ones are read in turns: in a step of each the event loop reads up to 8 MiB of JSON."""

_SHOWN_CHARS: Final = 500
"""Of a URL in the cause of a failure, so that there is room for the reason."""


class HttpsServer(InFlightCalls):
    """The server behind *client*, to which the gateway is *user*. Make it on a running event loop."""

    state: State = "ready"

    def __init__(
        self,
        client: HttpsClient,
        user: KubeconfigUser | None,
        deadlines: TimerWheel,
        metrics: PoolMetrics,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        """*environment* may name a proxy.

        Raises:
            ConfigError: certificates cannot be used.
        """
        super().__init__(MAX_IN_FLIGHT, deadlines)
        self.client = client
        self.user = user
        self._metrics = metrics
        try:
            self._credentials = UserCredentials(user or KubeconfigUser(), client.url, client.ca_pem)
        except CredentialsError as error:
            raise ConfigError([Problem("clientConfig", client.url, str(error))]) from error
        parts = urlsplit(client.url)
        host, port = parts.hostname or "", parts.port or 443
        self.connections = ConnectionPool((host, port), proxy_for(host, port, environment))
        self._tasks: dict[tuple[CallGroup, int], asyncio.Task[None]] = {}
        self._turns = WorkQueue()
        self._rooms = LargeAnswerSlots()
        self._no_room = failed_status(
            "RESOURCE_EXHAUSTED", f"{client.url}: {MAX_IN_FLIGHT} calls are in flight, as many as may be"
        )
        metrics.remember(client.url)

    def __repr__(self) -> str:
        return f"<HttpsServer {self.client.url}, {self.in_flight} in flight, {self.connections.idle} idle>"

    def choose(self, *, may_shed: bool = False) -> HttpsServer | Failed:
        """Return itself, or why there is no room; a call is ended to make some if *may_shed*."""
        if not self.is_full or (may_shed and self.shed(self._no_room)):
            return self
        return self._no_room

    def another(self, endpoint: Endpoint, *, may_reuse: bool) -> Endpoint | None:
        """Return None: there is nobody else, and what can be sent again has been."""

    def submit(self, group: CallGroup) -> None:
        """Ask; the observer is told each verdict, at the deadline at the latest."""
        if not group.open_count:
            return
        self._enter(group)
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
        self._let_go(group, index)

    def count_retries(self, number: int) -> None:
        """Count calls that are asked here since another was lost with them."""
        self._metrics.retries += number

    async def close(self, grace_s: float) -> None:
        """End everything; calls in flight get up to *grace_s* seconds."""
        await self._wait_until_idle(grace_s)
        tasks = dict(self._tasks)
        for task in tasks.values():
            task.cancel()
        await asyncio.gather(*tasks.values(), return_exceptions=True)
        for group, index in tasks:
            self._finish((group, index), failed_call("the gateway ends its connections"), "CANCELLED")
        self.connections.close()
        await self._credentials.close()
        self._metrics.forget(self.client.url)

    def _start(self, place: tuple[CallGroup, int], call: Call) -> None:
        self._tasks[place] = task = asyncio.get_running_loop().create_task(self._call(place, call))
        task.add_done_callback(lambda ended: self._ended(place, ended))

    def _ended(self, place: tuple[CallGroup, int], task: asyncio.Task[None]) -> None:
        del self._tasks[place]
        error = None if task.cancelled() else task.exception()
        if error is not None:
            log.error("webhook at %s: a bug in its call", self.client.url, exc_info=error)
            self._finish(place, failed_before(f"a bug in the call: {type(error).__name__}"), "INTERNAL")

    async def _call(self, place: tuple[CallGroup, int], call: Call) -> None:
        with LargeAnswerSlot(self._rooms) as room:
            code, verdict = await self._review(place[0], call, room)
        self._finish(place, verdict, code)

    def _finish(self, place: tuple[CallGroup, int], verdict: Verdict, code: str) -> None:
        """Settle a call, unless it has ended."""
        group, index = place
        call = group.calls[index]
        if call is not None:
            self._metrics.called(self.client.url, code)
            self._let_go(group, index)
            group.observer.on_verdict(group, call, verdict)

    async def _review(self, group: CallGroup, call: Call, room: LargeAnswerSlot) -> tuple[str, Verdict]:
        """Return how the call ended, for the metrics, and the verdict."""
        webhook, uid = call.invocation.webhook, str(uuid.uuid4())
        try:
            body = write_review(webhook.review_version, call.payload.json, uid)
        except TypeError:
            return "INTERNAL", failed_before("could not create admission objects: it nests too deeply")
        announced = f"{max(1, math.ceil(group.deadline.remaining_s(self._timers.now())))}s"
        try:
            headers, context = await self._credentials.get()
            question = HttpRequest(self.client.url, headers, body)
            may_repeat = webhook.side_effects == "None"
            response = await ask(question, announced, self.connections, context, room, may_repeat=may_repeat)
        except CredentialsError as error:
            return "UNAUTHENTICATED", failed_before(f"could not get REST client: {error}")
        except ExchangeError as error:
            code = "RESOURCE_EXHAUSTED" if isinstance(error, AnswerTooLargeError) else "UNAVAILABLE"
            return code, failed_call(f'Post "{self.client.url[:_SHOWN_CHARS]}?timeout={announced}": {error}')
        if response.status == 401:
            self._credentials.reject(headers)
        steps = judge(response, webhook, uid)
        if len(response.body) <= READ_AT_ONCE_BYTES:
            return finish(steps)
        await room.enter()
        return await self._turns.run(steps)
