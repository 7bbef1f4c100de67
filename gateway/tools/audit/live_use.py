"""Versions of kinds that clients request although they are deprecated, by a metric of the API server.

The metrics of a large cluster have tens of MB. They are read line by line, up to a bound, and no further than
the one metric that counts.

Source: k8s.io/apiserver pkg/endpoints/metrics/metrics.go (``apiserver_requested_deprecated_apis``).
"""

from __future__ import annotations

import asyncio
import re
from contextlib import aclosing
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.base.errors import ClusterError
from gateway.base.text import shown
from gateway.tools.forecast.findings import Finding
from gateway.tools.forecast.kinds import resources

if TYPE_CHECKING:
    from collections.abc import AsyncGenerator

    from gateway.server.kubernetes.api_client import ApiClient

PATH: Final = "/metrics"
MAX_BYTES: Final = 256 * 1024 * 1024
MAX_REQUESTS: Final = 1000
"""Resources that are told apart."""
WITHIN_S: Final = 120.0
_SILENCE_S: Final = 30.0
_METRIC: Final = b"apiserver_requested_deprecated_apis"
_LABEL: Final = re.compile(r'(\w+)="([^"\\]{0,300})"')
_RELEASE: Final = re.compile(r"1\.([0-9]{1,3})")


class Requested(NamedTuple):
    """A resource that clients have requested since the API server has started."""

    group: str
    version: str
    resource: str
    removed: int | None
    """The minor version that removes it. None if none is known."""

    def finding(self, kubernetes: int) -> Finding:
        """Return what it means for Kubernetes 1.*kubernetes*."""
        api_version = f"{self.group}/{self.version}" if self.group else self.version
        where = f"requests for {shown(self.resource)} of {shown(api_version)}"
        known = resources(self.group, self.version).get(self.resource)
        if self.removed is None:
            message = "clients make them, and it is deprecated; no version removes it yet"
            return Finding("note", "forecast-live-use", where, message)
        instead = known.instead(kubernetes) if known is not None else ""
        message = f"clients make them, and 1.{self.removed} removes it{instead}"
        is_gone = self.removed <= kubernetes
        return Finding("warning" if is_gone else "note", "forecast-live-use", where, message)


async def live_use(api: ApiClient, kubernetes: int) -> list[Finding]:
    """Return what clients of the cluster request, and Kubernetes 1.*kubernetes* or a later one removes.

    If the metrics cannot be read, a note says why.
    """
    found: set[Requested] = set()
    try:
        async with asyncio.timeout(WITHIN_S), aclosing(_lines(api)) as lines:
            async for line in lines:
                one = _requested(line.decode(errors="replace"))
                if one is not None and len(found) < MAX_REQUESTS:
                    found.add(one)
    except (ClusterError, TimeoutError) as error:
        reason = str(error) or f"no end within {WITHIN_S:g} s"
        message = f"which deprecated versions clients request is not known: {reason}"
        return [Finding("note", "forecast-limits", f"Kubernetes 1.{kubernetes}", message)]
    return [one.finding(kubernetes) for one in sorted(found, key=lambda one: (one.removed or 999, one))]


async def _lines(api: ApiClient) -> AsyncGenerator[bytes]:
    """Yield the lines of the metric. Metrics are in the order of their names.

    Raises:
        ClusterError: it was refused, there was no answer, or one of more than ``MAX_BYTES``.
    """
    size = 0
    async with api.lines(PATH, {}, _SILENCE_S) as lines:
        async for line in lines:
            size += len(line) + 1
            if size > MAX_BYTES:
                raise ClusterError(f"{PATH} has more than {MAX_BYTES >> 20} MiB")
            name = line.partition(b"{")[0].removeprefix(b"# HELP ").partition(b" ")[0]
            if name == _METRIC and not line.startswith(b"#"):
                yield line
            elif line.startswith(b"# HELP ") and name > _METRIC:
                return


def _requested(line: str) -> Requested | None:
    """Return what the *line* of the metric counts; None if it counts nothing."""
    labels = dict(_LABEL.findall(line))
    if line.rpartition(" ")[2] in ("", "0") or not labels.get("version") or not labels.get("resource"):
        return None
    group, version, resource = labels.get("group", ""), labels["version"], labels["resource"]
    known = resources(group, version).get(resource)
    release = _RELEASE.fullmatch(labels.get("removed_release", ""))
    removed = int(release[1]) if release is not None else known.removed if known is not None else None
    return Requested(group, version, resource, removed)
