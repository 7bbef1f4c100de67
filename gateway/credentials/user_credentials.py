"""Both sides of a connection to an HTTPS webhook: what the server has to prove, and what the gateway does.

Roots are those of ``caBundle`` alone, as in Go: any certificate among them is trusted, an intermediate one
or the server's own, too, and a certificate's common name counts for nothing. Tokens in files are read again
after some seconds. Certificates and keys are not: where their files have changed, the configuration is
loaded again and makes another server of them.

Source: k8s.io/client-go transport/{transport,token_source,round_trippers}.go,
plugin/pkg/client/auth/exec/exec.go; k8s.io/client-go pkg/apis/clientauthentication/v1 types.go.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import os
import ssl
import tempfile
import time
from datetime import datetime
from functools import lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Final

import msgspec

from gateway.config.credentials import NoCredentialError
from gateway.config.files import MissingFileError, UnusableFileError
from gateway.config.webhook_users import WebhookUser, read_token
from gateway.credentials.exec_plugin import PluginError, run_plugin
from gateway.errors import ConfigError, Problem
from gateway.text import printable

if TYPE_CHECKING:
    from gateway.config.webhook_users import Plugin
    from gateway.core.webhook import HttpsClient

log = logging.getLogger(__name__)

READ_TOKENS_EVERY_S: Final = 10.0
"""Kubelets write a token anew long before the old one expires."""
LOOK_AGAIN_AFTER_S: Final = 1.0
"""A file that is deleted or blank is looked at again after this: it may just be being replaced."""
MADE_WITHIN_S: Final = 60.0
"""Seconds that a program has; it may well need more than one call has."""
RUN_AGAIN_AFTER_S: Final = 1.0
"""Seconds until a program is run again that has failed, or made what was old or refused at once."""


class CredentialsError(Exception):
    """There are no credentials; the text says why."""


class UserCredentials:
    """What the gateway shows to the server behind *client*, and asks of it."""

    def __init__(self, client: HttpsClient, user: WebhookUser | None) -> None:
        """Raises:
        ConfigError: certificates cannot be used.
        """
        self._client = client
        self._user = user or WebhookUser()
        self._made = None if self._user.plugin is None else _Made(self._user.plugin, client.url)
        self._token_file = self._user.token_file
        self._token = _sent(self._user.token)
        self._token_read = -READ_TOKENS_EVERY_S
        self._without_token = ""
        """Why the token's file had none when it was read last."""
        self._is_revoked = False
        self._reading = asyncio.Lock()
        self._fixed = "".join(f"{name}: {_sent(value)}\r\n" for name, value in self._user.impersonation)
        try:
            self._context = tls_context(client.ca_pem, self._user.certificate_pem, self._user.key_pem)
        except (ssl.SSLError, ValueError) as error:
            reason = f"has certificates that OpenSSL does not take: {error}"
            raise ConfigError([Problem("clientConfig", client.url, reason)]) from error

    async def prove(self) -> tuple[str, ssl.SSLContext]:
        """Return the headers to send, as lines, and how to speak TLS.

        Raises:
            CredentialsError: there are none, since a file or a program failed.
        """
        user, context = self._user, self._context
        if self._token_file is not None and self._is_token_old:
            await self._read_token(self._token_file)
        if self._is_revoked:
            raise CredentialsError(self._without_token)
        authorization = f"Bearer {self._token}" if self._token else ""
        if user.basic is not None:
            authorization = f"Basic {base64.b64encode(':'.join(user.basic).encode()).decode()}"
        if self._made is not None:
            made = await self._made.status()
            if made.token and not authorization:
                authorization = f"Bearer {made.token}"
            if made.client_certificate_data:
                context = self._made.context(self._client.ca_pem)
        return (f"Authorization: {authorization}\r\n" if authorization else "") + self._fixed, context

    @property
    def _is_token_old(self) -> bool:
        lasts_s = min(LOOK_AGAIN_AFTER_S, READ_TOKENS_EVERY_S) if self._without_token else READ_TOKENS_EVERY_S
        return time.monotonic() - self._token_read >= lasts_s

    async def _read_token(self, path: Path) -> None:
        async with self._reading:
            if not self._is_token_old:
                return
            try:
                self._token = await asyncio.to_thread(read_token, path)
                self._without_token, self._is_revoked = "", False
            except (MissingFileError, NoCredentialError) as error:
                is_revoked = bool(self._without_token) or not self._token
                self._without_token = f"{path} {error}"
                if is_revoked and not self._is_revoked:
                    log.warning(
                        "no more calls to %s: the token is revoked: %s", self._client.url, self._without_token
                    )
                self._is_revoked = is_revoked
            except UnusableFileError as error:
                # The token there was, or the one beside the file, may still be good.
                if not self._token:
                    raise CredentialsError(f"{path} {error}") from error
            self._token_read = time.monotonic()

    async def close(self) -> None:
        """End a program that is running."""
        if self._made is not None:
            await self._made.close()

    def refused(self) -> None:
        """Make other credentials for the next call, where they are made: the server did not take these."""
        self._token_read = -READ_TOKENS_EVERY_S
        if self._made is not None:
            self._made.forget()


class _Status(msgspec.Struct, rename="camel"):
    token: str | None = None
    client_certificate_data: str | None = None
    client_key_data: str | None = None
    expiration_timestamp: str | None = None

    @property
    def is_old(self) -> bool:
        """Whether it has expired.

        Raises:
            ValueError: it says nothing that is a time.
        """
        text = self.expiration_timestamp
        return text is not None and datetime.fromisoformat(text).timestamp() <= time.time()


class _ExecCredential(msgspec.Struct):
    status: _Status


class _Made:
    """The credential that a program makes: it runs once for all who wait, and outlives their calls."""

    def __init__(self, plugin: Plugin, url: str) -> None:
        self._plugin = plugin
        self._url = url
        self._running: asyncio.Task[None] | None = None
        self._status: _Status | None = None
        self._ended = -RUN_AGAIN_AFTER_S
        """When the program was last run to its end."""
        self._failure: CredentialsError | None = None
        self._context: ssl.SSLContext | None = None

    def forget(self) -> None:
        """Have another made for the next call, unless this one has only just been made."""
        if time.monotonic() - self._ended >= RUN_AGAIN_AFTER_S:
            self._status = self._context = self._failure = None

    def context(self, ca_pem: bytes) -> ssl.SSLContext:
        """Return how to speak TLS with the certificate that was made.

        Raises:
            CredentialsError: it cannot be used.
        """
        if self._context is None:
            assert self._status is not None
            certificate, key = self._status.client_certificate_data or "", self._status.client_key_data or ""
            try:
                self._context = tls_context(ca_pem, certificate.encode(), key.encode())
            except (ssl.SSLError, ValueError) as error:
                text = f"exec: {self._plugin.command} prints a certificate that cannot be used: {error}"
                raise CredentialsError(text) from error
        return self._context

    async def status(self) -> _Status:
        """Return what was made, or is made now.

        Raises:
            CredentialsError: the program fails, or prints something else.
        """
        if self._status is None or self._status.is_old:
            self.forget()
        if self._status is None and self._failure is None:
            if self._running is None:
                self._running = asyncio.get_running_loop().create_task(self._run())
            await asyncio.shield(self._running)
        if self._status is None:
            raise CredentialsError(str(self._failure))
        return self._status

    async def close(self) -> None:
        """End the program, if it is running."""
        if self._running is not None:
            self._running.cancel()
            await asyncio.gather(self._running, return_exceptions=True)

    async def _run(self) -> None:
        try:
            async with asyncio.timeout(MADE_WITHIN_S):
                self._status = await self._make()
        except TimeoutError:
            self._failure = CredentialsError(
                f"exec: {self._plugin.command}: no end within {MADE_WITHIN_S:g}s"
            )
        except CredentialsError as error:
            self._failure = error
        finally:
            self._ended = time.monotonic()
            self._running = None

    async def _make(self) -> _Status:
        plugin = self._plugin
        told = {"apiVersion": plugin.api_version, "kind": "ExecCredential", "spec": {"interactive": False}}
        variables = {
            **os.environ,
            **dict(plugin.variables),
            "KUBERNETES_EXEC_INFO": msgspec.json.encode(told).decode(),
        }
        try:
            printed = await run_plugin((plugin.command, *plugin.arguments), variables)
            status = msgspec.json.decode(printed, type=_ExecCredential).status
            _ = status.is_old
        except PluginError as error:
            # What it says is for whoever runs the gateway, not for users whose requests are refused.
            log.warning("credentials for %s: %s", self._url, printable(error))
            reason = f"it ended with status {error.status}, and what it said is in the gateway's log"
            raise CredentialsError(f"exec: {plugin.command}: {reason}") from error
        except (OSError, ValueError) as error:
            raise CredentialsError(f"exec: {plugin.command}: {error}") from error
        is_pair = bool(status.client_certificate_data) == bool(status.client_key_data)
        if not is_pair or not (status.token or "").isascii() or not (status.token or "").isprintable():
            raise CredentialsError(f"exec: {plugin.command} prints an ExecCredential that cannot be used")
        return status


def _sent(text: str) -> str:
    """Return *text* so that what is written of it, as Latin-1, is UTF-8."""
    return text.encode().decode("latin-1")


def tls_context(ca_pem: bytes, certificate_pem: bytes = b"", key_pem: bytes = b"") -> ssl.SSLContext:
    """Return how to speak TLS to a server that chains to *ca_pem*, or to the system's roots.

    Raises:
        ssl.SSLError, ValueError: a certificate or the key cannot be used.
    """
    if not certificate_pem:
        return _without_certificate(ca_pem)
    context = _make_context(ca_pem)
    # OpenSSL reads them from files only; the folder is for the gateway's own eyes.
    with tempfile.TemporaryDirectory(prefix="admission-gateway-") as folder:
        path = Path(folder, "pair.pem")
        path.write_bytes(key_pem + b"\n" + certificate_pem)
        context.load_cert_chain(path, password="")
    return context


@lru_cache(maxsize=256)
def _without_certificate(ca_pem: bytes) -> ssl.SSLContext:
    """Return a context that servers share: loading the system's roots takes some milliseconds."""
    return _make_context(ca_pem)


def _make_context(ca_pem: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    context.hostname_checks_common_name = False
    context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN
    if ca_pem:
        context.load_verify_locations(cadata=ca_pem.decode("ascii", errors="ignore"))
    else:
        context.set_default_verify_paths()
    return context
