"""Reads the public keys of the issuer of webhook tokens, every few minutes and on demand.

The keys come from the cluster's API server (``/openid/v1/jwks``), or from the issuer by OpenID Connect
Discovery. The last keys stay in use while neither answers.

Source: kubernetes.io "Configure Service Accounts", section "Service account issuer discovery"; OpenID Connect
Discovery 1.0, section 4.
"""

from __future__ import annotations

import asyncio
import logging
import random
import ssl
from contextlib import suppress
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

import httpx2
import orjson

from gateway.base.errors import ClusterError
from gateway.base.files import UnusableFileError, read_file
from gateway.engine.credentials.webhook_tokens import MAX_KEYS_BYTES, read_keys
from gateway.server.kubernetes.access import ClusterAccess

if TYPE_CHECKING:
    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.engine.credentials.webhook_tokens import WebhookTokens

log = logging.getLogger(__name__)

EVERY_S: Final = 300.0
"""Between two readings; random, up to a tenth less. A removed key is in use for so long."""
AT_LEAST_S: Final = 10.0
"""Between two readings that unknown keys cause, or that failed, so that made-up tokens cause no more."""
TIMEOUT_S: Final = 10.0
JWKS_PATH: Final = "/openid/v1/jwks"


class TokenKeys:
    """Follows the keys for *tokens*, until :meth:`close`. Make it on a running event loop."""

    def __init__(self, tokens: WebhookTokens, cluster: KubernetesSettings | None) -> None:
        """Read the keys from *cluster*, or from the issuer if that is None."""
        self.tokens = tokens
        self.problem = "they have not been read yet"
        """Why the last reading failed. Empty if it succeeded."""
        self.cluster = cluster
        self._access = None if cluster is None else ClusterAccess(cluster)
        self._wanted = asyncio.Event()
        self._may_read_again = True
        tokens.request_keys = self._request
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def close(self) -> None:
        """Read no more; the keys stay."""
        self._task.cancel()
        await asyncio.gather(self._task, return_exceptions=True)
        if self._access is not None:
            await self._access.close()

    def _request(self) -> bool:
        """Have the keys read soon, and return whether a caller should try again after that."""
        if self._may_read_again:
            self._wanted.set()
        return self._may_read_again

    async def _run(self) -> None:
        while True:
            self._may_read_again = True
            self._wanted.clear()
            await self._read_once()
            self._may_read_again = False
            await asyncio.sleep(AT_LEAST_S)
            self._may_read_again = True
            with suppress(TimeoutError):
                # Jitter, so that many replicas do not read at the same moment.
                wait_s = 0.0 if self.problem else EVERY_S * random.uniform(0.9, 1)  # noqa: S311
                async with asyncio.timeout(wait_s):
                    await self._wanted.wait()

    async def _read_once(self) -> None:
        before = self.problem
        try:
            keys = await asyncio.to_thread(read_keys, await self._get_keys())
        except (
            ClusterError,
            UnusableFileError,
            httpx2.HTTPError,
            httpx2.InvalidURL,
            OSError,
            ValueError,
        ) as error:
            self.problem = " ".join(str(error).split())[:500] or type(error).__name__
        except Exception:
            # The task must not end: changed keys would stay unknown.
            log.exception("keys of webhook tokens cannot be read: internal error")
            self.problem = "internal error: the gateway's log has the details"
        else:
            self.problem = ""
            if keys.keys() != self.tokens.keys.keys():
                log.info("keys of webhook tokens in use: %d", len(keys))
            self.tokens.use_keys(keys)
        if self.problem and self.problem != before:
            kept = "the last ones stay in use" if self.tokens.keys else "no token is accepted"
            log.warning("keys of webhook tokens cannot be read, %s: %s", kept, self.problem)

    async def _get_keys(self) -> bytes:
        if self._access is not None:
            async with self._access.api() as api:
                return orjson.dumps(await api.get(JWKS_PATH))
        settings = self.tokens.settings
        context = ssl.create_default_context()
        if settings.issuer_ca_file is not None:
            pem = await asyncio.to_thread(read_file, settings.issuer_ca_file)
            context = ssl.create_default_context(cadata=pem.decode("ascii", "ignore"))
        url = f"{settings.issuer.rstrip('/')}/.well-known/openid-configuration"
        async with asyncio.timeout(TIMEOUT_S), httpx2.AsyncClient(verify=context) as client:
            match orjson.loads(await _get(client, url)):
                case {"issuer": settings.issuer, "jwks_uri": str(keys_url)} if _is_https(keys_url):
                    return await _get(client, keys_url)
        raise ClusterError(f"{url}: it names another issuer, or no https URL of keys")


def _is_https(url: str) -> bool:
    return urlsplit(url).scheme == "https"


async def _get(client: httpx2.AsyncClient, url: str) -> bytes:
    """Return the body at *url*.

    Raises:
        ClusterError: another status than 200, or too large.
    """
    body = bytearray()
    async with client.stream("GET", url) as response:
        if response.status_code != 200:
            raise ClusterError(f"{url}: status {response.status_code}")
        async for chunk in response.aiter_bytes():
            body += chunk
            if len(body) > MAX_KEYS_BYTES:
                raise ClusterError(f"{url}: more than {MAX_KEYS_BYTES} bytes")
    return bytes(body)
