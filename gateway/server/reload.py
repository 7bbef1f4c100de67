"""What a reload stages, and how everything follows the configuration that came into force."""

from __future__ import annotations

import logging
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Sequence

    from gateway.config.kinds.gateway_configuration import GatewaySettings
    from gateway.config.merge.model import Config
    from gateway.engine.engine import Change, Prepared
    from gateway.observe.tracing.tracing import StagedTracing
    from gateway.server.cluster import LiveCluster
    from gateway.server.serving.front_end import Credentials
    from gateway.server.serving.page_access import PageAccess

    Follower = tuple[str, Callable[["Reload"], Awaitable[None] | None]]
    """The name for messages, and what is called after the configuration has come into force. The result is
    awaited after all were called."""

log = logging.getLogger(__name__)

NOT_FOLLOWED: Final = "internal error: the configuration is in force and not followed by"


@dataclass(frozen=True, slots=True, eq=False)
class FromFiles:
    """What is read again with the files of a configuration."""

    credentials: Credentials
    page_access: PageAccess
    tracing: StagedTracing


@dataclass(frozen=True, slots=True, eq=False)
class Staged:
    """A configuration for which everything that can fail was done."""

    files: Config
    """The part that is from files."""
    from_files: FromFiles | None
    """None if only the cluster has changed. Then files, which may be broken by now, are not read again."""
    cluster: LiveCluster | None
    prepared: Prepared


@dataclass(frozen=True, slots=True, eq=False)
class Reload:
    """A configuration that has come into force."""

    staged: Staged
    change: Change

    @property
    def settings(self) -> GatewaySettings:
        """The settings of the gateway."""
        return self.staged.files.gateway


class Followers:
    """What follows the configuration in force. Each fails by itself, and the configuration stays in force."""

    def __init__(self, always: Sequence[Follower], new: Sequence[Follower], last: Sequence[Follower]) -> None:
        """*new* are called if the configuration has changed; *always* before and *last* after them."""
        self._always = always
        self._new = new
        self._last = last
        self.failed: Sequence[str] = ()
        """The names of those that do not follow the configuration in force, by an error in the gateway."""

    async def notify(self, reload: Reload) -> None:
        """Call all, and log those that fail."""
        failed: list[str] = []
        work: list[tuple[str, Awaitable[None]]] = []
        for name, follow in (*self._always, *(self._new if reload.change.is_new else ()), *self._last):
            try:
                later = follow(reload)
            except Exception:
                log.exception("%s: %s", NOT_FOLLOWED, name)
                failed.append(name)
            else:
                work += [] if later is None else [(name, later)]
        # Nothing waits before all were called.
        for name, later in work:
            try:
                await later
            except Exception:
                log.exception("%s: %s", NOT_FOLLOWED, name)
                failed.append(name)
        self.failed = failed
