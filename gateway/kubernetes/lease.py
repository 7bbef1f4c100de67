"""One of several processes at a time, by a Lease in the gateway's own namespace.

Who holds it renews it every few seconds; who does not looks as often, and takes it over when it was given up,
or when nothing about it has changed for as long as its holder said. That is measured by one's own clock from
when the change was seen, so that clocks need not agree. The API server sees to it that of two who take it
over one is refused.

Nothing depends on there never being two for a moment: what is written under a lease is the same for all.

Source: k8s.io/client-go tools/leaderelection; k8s.io/api coordination/v1 types.go.
"""

from __future__ import annotations

import asyncio
import logging
import math
import random
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, Final

from gateway.errors import ClusterError

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.kubernetes.access import ClusterAccess
    from gateway.kubernetes.api_client import ApiClient, Json

log = logging.getLogger(__name__)

NAME: Final = "admission-gateway"
RELEASE_WITHIN_S: Final = 2.0
"""Of the time that a process has to stop."""
_VERSION: Final = "coordination.k8s.io/v1"
_NOT_FOUND, _CONFLICT = 404, 409


@dataclass(frozen=True, slots=True)
class LeasePace:
    """How long things take, in seconds."""

    lasts_s: float = 15.0
    """Without a renewal, after which others may take over; others read it in whole seconds."""
    counts_s: float = 10.0
    """After a renewal the holder counts on it for this long: less, since answers take their time."""
    every_s: float = 5.0
    """Between two looks, a fifth more or less, so that not all look at once."""


class Lease:
    """The task that holds the lease, or waits for it. Make it on a running event loop."""

    def __init__(
        self, access: ClusterAccess, holder: str, gained: Callable[[], None], pace: LeasePace
    ) -> None:
        """*holder* is what no other process is called; *gained* is told when the lease has become its own."""
        self._access = access
        self._holder = holder
        self._gained = gained
        self._pace = pace
        self._now = asyncio.get_running_loop().time
        self._held_until = -math.inf
        self._may_be_holder = False
        """Also where a write was on its way when :meth:`run` was ended."""
        self._seen: tuple[object, float] = (None, 0.0)
        """What the lease of another looked like, and since when it has."""
        self._is_told = False

    @property
    def is_held(self) -> bool:
        """Whether this process is the one."""
        return self._now() < self._held_until

    async def run(self) -> None:
        """Hold the lease whenever that is possible, until cancelled."""
        while True:
            try:
                async with self._access.api() as api:
                    await self._look(api)
                self._is_told = False
            except ClusterError as error:
                if not self._is_told and error.status != _CONFLICT:
                    self._is_told = True
                    log.warning("the lease %s cannot be had, which status and events need: %s", NAME, error)
            except Exception:
                log.exception("internal error with the lease; it is read again")
            await asyncio.sleep(self._pace.every_s * random.uniform(0.8, 1.2))  # noqa: S311

    async def release(self) -> None:
        """Let another take over at once, if this process is the one. Call it when :meth:`run` has ended."""
        if not self._may_be_holder:
            return
        self._held_until = -math.inf
        try:
            async with asyncio.timeout(RELEASE_WITHIN_S), self._access.api() as api:
                found = await api.get(f"{_path(api)}/{NAME}")
                if _spec(found).get("holderIdentity") == self._holder:
                    await self._put(api, found, None)
        except (ClusterError, TimeoutError) as error:
            log.debug("the lease is left to run out: %s", error)

    async def _look(self, api: ApiClient) -> None:
        asked = self._now()
        try:
            found = await api.get(f"{_path(api)}/{NAME}")
        except ClusterError as error:
            if error.status != _NOT_FOUND:
                raise
            self._may_be_holder = True
            await api.write("POST", _path(api), self._document({}, self._holder))
            self._hold(asked)
            return
        spec = _spec(found)
        holder = spec.get("holderIdentity")
        if holder and holder != self._holder and not self._has_run_out(found, spec):
            self._held_until, self._may_be_holder = -math.inf, False
            return
        self._may_be_holder = True
        await self._put(api, found, self._holder)
        self._hold(asked)

    def _hold(self, since: float) -> None:
        was_held = self.is_held
        self._held_until = since + self._pace.counts_s
        if not was_held:
            log.info("this process writes the status of custom resources")
            self._gained()

    def _has_run_out(self, found: Json, spec: Json) -> bool:
        now = self._now()
        state = (spec.get("holderIdentity"), spec.get("renewTime"), spec.get("leaseTransitions"))
        if self._seen[0] != state:
            self._seen = state, now
        lasts = spec.get("leaseDurationSeconds")
        return now - self._seen[1] >= (lasts if isinstance(lasts, int) else self._pace.lasts_s)

    async def _put(self, api: ApiClient, found: Json, holder: str | None) -> None:
        """Write the lease over *found*; where somebody else has been faster that is refused (409)."""
        await api.write("PUT", f"{_path(api)}/{NAME}", self._document(found, holder))

    def _document(self, found: Json, holder: str | None) -> dict[str, Any]:
        metadata = found.get("metadata")
        version = metadata.get("resourceVersion") if isinstance(metadata, dict) else None
        before = _spec(found)
        now = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        is_same, transitions = before.get("holderIdentity") == holder, before.get("leaseTransitions")
        spec: dict[str, Any] = {
            "leaseDurationSeconds": max(1, math.ceil(self._pace.lasts_s)),
            "renewTime": now,
            "acquireTime": before.get("acquireTime", now) if is_same else now,
            "leaseTransitions": (transitions if isinstance(transitions, int) else 0) + (not is_same),
        }
        if holder is not None:
            spec["holderIdentity"] = holder
        name = {"name": NAME, **({"resourceVersion": version} if version else {})}
        return {"apiVersion": _VERSION, "kind": "Lease", "metadata": name, "spec": spec}


def _path(api: ApiClient) -> str:
    return f"/apis/{_VERSION}/namespaces/{api.namespace}/leases"


def _spec(found: Json) -> Json:
    spec = found.get("spec")
    return spec if isinstance(spec, dict) else {}
