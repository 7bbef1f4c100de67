"""The credentials of one user for one server, as headers and a TLS context, kept up to date.

A token file is read again after some seconds. Certificates and keys are not: where their files have changed,
the configuration is loaded again, and replaces the credentials.

Source: k8s.io/client-go transport/{token_source,round_trippers}.go.
"""

from __future__ import annotations

import asyncio
import base64
import logging
import math
import ssl
import time
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.client_tls import insecure_tls_context, tls_context
from gateway.base.credentials import NoCredentialError
from gateway.base.files import MissingFileError, UnusableFileError
from gateway.config.kinds.kubeconfig import read_token
from gateway.engine.credentials.exec_plugin import CredentialsError, ExecCredentialSource

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.kinds.kubeconfig import KubeconfigUser
    from gateway.engine.credentials.exec_plugin import ExecCredential

    Headers = list[tuple[str, str]]
    """Names and values; a value encoded as Latin-1 is UTF-8."""

log = logging.getLogger(__name__)

READ_TOKENS_EVERY_S: Final = 10.0
"""Kubelets renew a token long before the old one expires."""
READ_AGAIN_AFTER_S: Final = 1.0
"""Seconds until a missing or blank file is read again: it may be in the middle of a replacement."""


class UserCredentials:
    """The credentials of *user* for the *server*, a URL that log messages name."""

    def __init__(
        self, user: KubeconfigUser, server: str, ca_pem: bytes = b"", *, is_insecure: bool = False
    ) -> None:
        """Without *ca_pem* the system's roots verify the server; if *is_insecure*, nothing does.

        Raises:
            CredentialsError: certificates cannot be used.
        """
        self._user = user
        self._server = server
        self._ca_pem = ca_pem
        self._exec = None if user.plugin is None else ExecCredentialSource(user.plugin, server)
        self._exec_context: tuple[ExecCredential, ssl.SSLContext] | None = None
        self._token = user.token
        self._token_read = -math.inf
        self._missing_token = ""
        """Why the last read of the token file found no token."""
        self._is_revoked = False
        self._reading = asyncio.Lock()
        self._current: Headers = []
        self.context = self._context(is_insecure=is_insecure)

    async def get(self) -> tuple[Headers, ssl.SSLContext]:
        """Return the headers to send and the TLS context to connect with.

        Raises:
            CredentialsError: there are none, since a file or a program failed.
        """
        user, context = self._user, self.context
        if user.token_file is not None and self._is_token_old:
            await self._read_token(user.token_file)
        if self._is_revoked:
            raise CredentialsError(self._missing_token)
        authorization = f"Bearer {self._token}" if self._token else ""
        if user.basic is not None:
            authorization = f"Basic {base64.b64encode(':'.join(user.basic).encode()).decode()}"
        if self._exec is not None:
            made = await self._exec.credential()
            if made.token and not authorization:
                authorization = f"Bearer {made.token}"
            if made.client_certificate_data:
                context = self._context_with(made)
        headers = [("Authorization", authorization)] if authorization else []
        headers += user.impersonation
        self._current = [(name, value.encode().decode("latin-1")) for name, value in headers]
        return self._current, context

    def use_roots(self, ca_pem: bytes) -> None:
        """Verify the server by *ca_pem* from now on: new connections need the new ``context``.

        Raises:
            CredentialsError: the certificates cannot be used; nothing has changed.
        """
        before, self._ca_pem = self._ca_pem, ca_pem
        try:
            self.context = self._context()
        except CredentialsError:
            self._ca_pem = before
            raise
        self._exec_context = None

    def _context(self, *, is_insecure: bool = False) -> ssl.SSLContext:
        pair = self._user.certificate_pem, self._user.key_pem
        try:
            return insecure_tls_context(*pair) if is_insecure else tls_context(self._ca_pem, *pair)
        except (ssl.SSLError, ValueError) as error:
            raise CredentialsError(f"OpenSSL rejects the certificates: {error}") from error

    def reject(self, headers: Headers) -> None:
        """Renew the credentials for the next request: the server has rejected *headers* (401)."""
        if headers != self._current:
            return
        self._token_read = -math.inf
        if self._exec is not None:
            self._exec.forget()

    async def close(self) -> None:
        """Kill an exec plug-in that is running."""
        if self._exec is not None:
            await self._exec.close()

    def _context_with(self, made: ExecCredential) -> ssl.SSLContext:
        if self._exec_context is None or self._exec_context[0] is not made:
            certificate, key = made.client_certificate_data or "", made.client_key_data or ""
            try:
                context = tls_context(self._ca_pem, certificate.encode(), key.encode())
            except (ssl.SSLError, ValueError) as error:
                raise CredentialsError(f"exec: the program's certificate cannot be used: {error}") from error
            self._exec_context = made, context
        return self._exec_context[1]

    @property
    def _is_token_old(self) -> bool:
        lasts_s = min(READ_AGAIN_AFTER_S, READ_TOKENS_EVERY_S) if self._missing_token else READ_TOKENS_EVERY_S
        return time.monotonic() - self._token_read >= lasts_s

    async def _read_token(self, path: Path) -> None:
        async with self._reading:
            if not self._is_token_old:
                return
            try:
                self._token = await asyncio.to_thread(read_token, path)
                self._missing_token, self._is_revoked = "", False
            except (MissingFileError, NoCredentialError) as error:
                is_revoked = bool(self._missing_token) or not self._token
                self._missing_token = f"{path} {error}"
                if is_revoked and not self._is_revoked:
                    log.warning(
                        "token revoked, no more requests to %s: %s", self._server, self._missing_token
                    )
                self._is_revoked = is_revoked
            except UnusableFileError as error:
                # The token that was read before, or the one in the kubeconfig, may still be valid.
                if not self._token:
                    raise CredentialsError(f"{path} {error}") from error
            self._token_read = time.monotonic()
