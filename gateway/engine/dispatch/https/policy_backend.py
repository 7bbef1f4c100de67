"""The backends of policies: HTTPS servers from which expressions get data, with ``http.get``.

A backend gets no credentials of the gateway. Redirects are not followed, and nothing is retried.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Final

from gateway.engine.credentials.exec_plugin import CredentialsError
from gateway.engine.dispatch.https.client import GetRequest, exchange
from gateway.engine.dispatch.https.connection import ExchangeError
from gateway.engine.dispatch.https.large_answers import LargeAnswerSlot
from gateway.engine.dispatch.https.server import HttpsServer
from gateway.pure.core.conditions import BackendAnswer

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.config.kinds.kubeconfig import KubeconfigUser
    from gateway.engine.credentials.ca_bundle import CaBundle
    from gateway.engine.dispatch.timer_wheel import TimerWheel
    from gateway.observe.telemetry.metrics import PoolMetrics
    from gateway.pure.core.conditions import BackendGet
    from gateway.pure.core.webhook import HttpsClient

log = logging.getLogger(__name__)

MAX_GETS_IN_FLIGHT: Final = 64
"""Requests to one backend, each with a connection."""
MAX_ANSWER_BYTES: Final = 1024 * 1024


class PolicyBackend(HttpsServer):
    """The backend at the URL of *client*. Make it on a running event loop."""

    def __init__(
        self,
        client: HttpsClient,
        user: KubeconfigUser | None,
        timers: TimerWheel,
        metrics: PoolMetrics,
        bundle: CaBundle | None = None,
    ) -> None:
        """See :class:`HttpsServer`."""
        super().__init__(client, user, timers, metrics, bundle)
        assert client.backend is not None
        self._backend = client.backend
        self._gets: dict[asyncio.Task[None], Callable[[BackendAnswer], None]] = {}

    def get(
        self, request: BackendGet, timeout_s: float, on_result: Callable[[BackendAnswer], None]
    ) -> Callable[[], None]:
        """Send *request*, and return a function that cancels this.

        *on_result* is called once, later, and with an error if there is no answer within *timeout_s* seconds
        or the timeout of the backend.
        """
        loop = asyncio.get_running_loop()
        if len(self._gets) >= MAX_GETS_IN_FLIGHT:
            full = f"{MAX_GETS_IN_FLIGHT} requests are in flight, which is the maximum"
            return loop.call_soon(on_result, self._failed(full)).cancel
        task = loop.create_task(self._get(request, timeout_s, on_result))
        self._gets[task] = on_result
        task.add_done_callback(lambda ended: self._gets.pop(ended, None))

        def cancel() -> None:
            self._gets.pop(task, None)
            task.cancel()

        return cancel

    async def close(self, grace_s: float) -> None:
        """Wait up to *grace_s* seconds for requests in flight, and close all connections."""
        if self._gets:
            await asyncio.wait(tuple(self._gets), timeout=grace_s)
        left = {task: on_result for task, on_result in self._gets.items() if not task.done()}
        for task in left:
            task.cancel()
        await asyncio.gather(*left, return_exceptions=True)
        for on_result in left.values():
            on_result(self._failed("the gateway is shutting down"))
        await super().close(0.0)

    async def _get(
        self, request: BackendGet, timeout_s: float, on_result: Callable[[BackendAnswer], None]
    ) -> None:
        code = "OK"
        try:
            async with asyncio.timeout(max(0.0, min(timeout_s, self._backend.timeout_s))):
                answer = await self._answer(request)
        except TimeoutError:
            code, answer = "DEADLINE_EXCEEDED", self._failed("no answer in time")
        except (ExchangeError, CredentialsError) as error:
            code, answer = "UNAVAILABLE", self._failed(str(error))
        except Exception:
            log.exception("request to a backend of policies failed: internal error: %s", self._backend.name)
            code, answer = "INTERNAL", self._failed("internal error: the gateway's log has the details")
        self._metrics.called(self.client.url, code)
        on_result(answer)

    async def _answer(self, request: BackendGet) -> BackendAnswer:
        if self.bundle is not None and not self.bundle.pem:
            # Not the roots of the system, which would trust other servers.
            return self._failed(self.bundle.warning)
        _, context = await self.current_credentials()
        sent = GetRequest(self.client.url, request.headers)
        with LargeAnswerSlot(self._slots) as slot:
            response = await exchange(sent, request.target, self.connections, context, slot, may_repeat=True)
        if 300 <= response.status < 400:
            return self._failed(f"status {response.status}: redirects are not followed")
        if len(response.body) > MAX_ANSWER_BYTES:
            return self._failed(
                f"found an answer of {len(response.body)} bytes, expected at most {MAX_ANSWER_BYTES}"
            )
        return BackendAnswer(response.status, response.body)

    def _failed(self, reason: str) -> BackendAnswer:
        return BackendAnswer(error=f"backend {self._backend.name}: {reason}")
