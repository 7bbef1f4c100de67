"""Follows the keys of the webhook tokens of the configuration in force, if it has any."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.config.kinds.gateway_configuration import GatewaySettings
    from gateway.engine.credentials.webhook_tokens import WebhookTokens
    from gateway.server.kubernetes.token_keys import TokenKeys


class TokenKeyFollower:
    """The keys that a process follows, or none. Use it on a running event loop."""

    def __init__(self) -> None:
        self._keys: TokenKeys | None = None
        self._closing: set[asyncio.Task[None]] = set()

    @property
    def not_read(self) -> str | None:
        """Why there are no keys yet. None if there are, or none are needed."""
        keys = self._keys
        return (
            None if keys is None or keys.tokens.keys else f"keys of webhook tokens not read: {keys.problem}"
        )

    def activate(self, settings: GatewaySettings, tokens: WebhookTokens | None) -> None:
        """Follow the keys of *tokens*, if there are any, from now on, unless they are in a file."""
        old, followed = self._keys, None if tokens is None else tokens.settings
        cluster = settings.kubernetes if followed is not None and followed.needs_cluster else None
        if old is not None and old.tokens is tokens and old.cluster == cluster:
            return
        self._keys = None
        if old is not None:
            task = asyncio.get_running_loop().create_task(old.close())
            self._closing.add(task)
            task.add_done_callback(self._closing.discard)
        if tokens is not None and tokens.settings.jwks_file is None:
            # Imported late: a gateway without webhook tokens does not need the client of the cluster.
            from gateway.server.kubernetes.token_keys import TokenKeys

            self._keys = TokenKeys(tokens, cluster)

    async def close(self) -> None:
        """Follow no keys any more."""
        if self._keys is not None:
            await self._keys.close()
        await asyncio.gather(*self._closing, return_exceptions=True)
