"""The token that a kubeconfig's plugin makes (``exec``).

lightkube runs the plugin for each request that has no token yet, and leaves it running when that request is
given up. Here it runs once at a time, for all who wait, and is killed with the request that had it run: a
plugin that hangs would otherwise be started, and stay, for every review that looks up a namespace.

Source: k8s.io/client-go pkg/apis/clientauthentication/v1; plugin/pkg/client/auth/exec/exec.go.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

import orjson
from lightkube.config.client_adapter import ExecAuth
from lightkube.core.exceptions import ConfigError as LightkubeError

from gateway.credentials.exec_plugin import PluginError, run_plugin

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    import httpx2
    from lightkube.config.models import UserExec

_UNAUTHORIZED = 401


class PluginAuth(ExecAuth):
    """Signs requests with the token that the plugin *user_exec* prints."""

    def __init__(self, user_exec: UserExec) -> None:
        super().__init__(user_exec)
        self._running = asyncio.Lock()

    async def async_auth_flow(
        self, request: httpx2.Request
    ) -> AsyncGenerator[httpx2.Request, httpx2.Response]:
        """Send *request* with the token there is, and again with a new one where that is refused.

        Raises:
            LightkubeError, OSError, ValueError: the plugin fails, or prints something else.
        """
        used = self._last_bearer
        if used is not None:
            request.headers["Authorization"] = used
            response = yield request
            if response.status_code != _UNAUTHORIZED:
                return
        request.headers["Authorization"] = await self._renewed(used)
        yield request

    async def _renewed(self, used: str | None) -> str:
        async with self._running:
            # Not if another request has had it renewed meanwhile.
            if self._last_bearer is None or self._last_bearer == used:
                command, variables = self._prepare()
                try:
                    printed = await run_plugin(command, variables)
                except PluginError as error:
                    raise LightkubeError(str(error)) from error
                self._last_bearer = f"Bearer {_token(command[0], printed)}"
            return self._last_bearer


def _token(name: str, printed: bytes) -> str:
    match orjson.loads(printed):
        case {"status": {"token": str(token)}} if token:
            return token
    raise LightkubeError(f"Exec {name} prints no ExecCredential with a token")
