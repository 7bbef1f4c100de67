"""Credentials that a program makes (``exec`` of a kubeconfig).

The program runs at most once at a time, for all requests that wait for it, and outlives the request that
started it. It runs again when its credential has expired or was rejected, at most once a second.

Source: k8s.io/client-go plugin/pkg/client/auth/exec/exec.go; pkg/apis/clientauthentication/v1 types.go.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import signal
import time
from datetime import datetime
from typing import TYPE_CHECKING, Final

import msgspec

from admission_gateway_worker.text import printable

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.config.kinds.kubeconfig import ExecPlugin

log = logging.getLogger(__name__)

RUN_TIMEOUT_S: Final = 60.0
"""Longer than a call may take: the program continues for the next call."""
RUN_AGAIN_AFTER_S: Final = 1.0
"""Seconds until a program runs again that failed, or whose credential had expired or was rejected at once."""


class CredentialsError(Exception):
    """There are no credentials; the text is the reason."""


class ExecCredential(msgspec.Struct, rename="camel"):
    """The ``status`` that a program prints."""

    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None

    @property
    def is_expired(self) -> bool:
        """Whether it has expired.

        Raises:
            ValueError: ``expirationTimestamp`` is not a time.
        """
        text = self.expiration_timestamp
        return text is not None and datetime.fromisoformat(text).timestamp() <= time.time()


class _Printed(msgspec.Struct):
    status: ExecCredential


class ExecCredentialSource:
    """Runs *plugin* and keeps its credential. *server* is the URL that log messages name."""

    def __init__(self, plugin: ExecPlugin, server: str) -> None:
        self._plugin = plugin
        self._server = server
        self._running: asyncio.Task[None] | None = None
        self._credential: ExecCredential | None = None
        self._ended = -RUN_AGAIN_AFTER_S
        """When the program last ended."""
        self._failure: CredentialsError | None = None

    async def credential(self) -> ExecCredential:
        """Return the current credential; the program runs if there is none.

        Raises:
            CredentialsError: the program failed, or its output cannot be used.
        """
        if self._credential is None or self._credential.is_expired:
            self.forget()
        if self._credential is None and self._failure is None:
            if self._running is None:
                self._running = asyncio.get_running_loop().create_task(self._run())
            await asyncio.shield(self._running)
        if self._credential is None:
            raise CredentialsError(str(self._failure))
        return self._credential

    def forget(self) -> None:
        """Run the program again for the next request, unless it has only just run."""
        if time.monotonic() - self._ended >= RUN_AGAIN_AFTER_S:
            self._credential = self._failure = None

    async def close(self) -> None:
        """Kill the program, if it is running."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        command = self._plugin.command
        try:
            async with asyncio.timeout(RUN_TIMEOUT_S):
                self._credential = await self._make()
        except TimeoutError:
            self._failure = CredentialsError(f"exec: {command}: not finished within {RUN_TIMEOUT_S:g}s")
        except CredentialsError as error:
            self._failure = error
        finally:
            self._ended = time.monotonic()
            self._running = None

    async def _make(self) -> ExecCredential:
        plugin = self._plugin
        info = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        variables = {
            **os.environ,
            **dict(plugin.variables),
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(info).decode(),
        }
        try:
            status, output, errors = await run_program((plugin.command, *plugin.arguments), variables)
            if status:
                # Its output is for the operator, and not for users whose requests are denied.
                log.warning(
                    "exec plug-in failed: %s for %s ended with status %d: %s",
                    *(plugin.command, self._server, status, printable(errors.decode(errors="replace"))),
                )
                reason = f"ended with status {status}; its output is in the gateway's log"
                raise CredentialsError(f"exec: {plugin.command}: {reason}")
            credential = msgspec.json.decode(output, type=_Printed).status
            _ = credential.is_expired
        except (OSError, ValueError) as error:
            raise CredentialsError(f"exec: {plugin.command}: {error}") from error
        token, certificate, key = (
            credential.token or "",
            credential.client_certificate_data,
            credential.client_key_data,
        )
        if not token.isascii() or not token.isprintable() or bool(certificate) != bool(key):
            raise CredentialsError(f"exec: {plugin.command} prints an ExecCredential that cannot be used")
        if not token and not certificate:
            reason = "prints an ExecCredential with neither a token nor a certificate"
            raise CredentialsError(f"exec: {plugin.command} {reason}")
        return credential


async def run_program(command: Sequence[str], variables: Mapping[str, str]) -> tuple[int, bytes, bytes]:
    """Run *command* with *variables* as its whole environment; return status, output and error output.

    If cancelled, it kills the program and all processes that the program has started.

    Raises:
        OSError, ValueError: it cannot be started.
    """
    starting = asyncio.ensure_future(
        asyncio.create_subprocess_exec(
            *command,
            env=variables,
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.PIPE,
            # A process group of its own, so that a signal reaches its children too.
            start_new_session=True,
        )
    )
    try:
        # A cancellation while the program starts would leave it running without an owner.
        process = await asyncio.shield(starting)
        output, errors = await process.communicate()
    except asyncio.CancelledError:
        process = await starting
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        # Wait for its end here: the loop may be closed later.
        await process.wait()
        raise
    assert process.returncode is not None
    return process.returncode, output, errors
