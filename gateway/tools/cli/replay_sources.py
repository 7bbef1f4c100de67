"""The reviews that ``replay`` and ``migrate prove`` run: the options that name them, and their cluster."""

from __future__ import annotations

from dataclasses import replace
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.server.kubernetes import select_cluster as cluster

if TYPE_CHECKING:
    import argparse
    from collections.abc import AsyncIterator, Callable, Iterator

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.merge.model import Config
    from gateway.pure.core.namespace import Namespace
    from gateway.tools.replay.cases import Case, Found

_MAX_NAMESPACES: Final = 20_000
"""Namespaces of a cluster that are kept."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options that name reviews to *parser*."""
    add = parser.add_argument
    add("files", metavar="RECORDING", nargs="*", type=Path, help="recordings, or folders of them")
    add(
        "--audit-log",
        metavar="FILE",
        type=Path,
        action="append",
        default=[],
        help="audit log of an API server",
    )
    add(
        "--updates-as-creates",
        action="store_true",
        help="with --audit-log: replay the objects that updates led to as creations",
    )
    add(
        "--objects",
        metavar="DIR_OR_FILE",
        type=Path,
        action="append",
        default=[],
        help="files with objects, replayed as creations; may be repeated",
    )
    add("--cluster-objects", action="store_true", help="replay the objects of a cluster as creations")
    add(
        "--namespaces",
        metavar="FILE",
        type=Path,
        help="file with Namespaces, for those that are not recorded",
    )
    cluster.add_arguments(parser, "that has the namespaces that are not recorded")


def check(parsed: argparse.Namespace, refuse: Callable[[str], object]) -> None:
    """Call *refuse*, which exits with an error, unless *parsed* names a source of reviews."""
    if not (parsed.files or parsed.audit_log or parsed.objects or parsed.cluster_objects):
        refuse("expected RECORDING, --audit-log, --objects or --cluster-objects")
    if parsed.updates_as_creates and not parsed.audit_log:
        refuse("--updates-as-creates needs --audit-log")
    for path in (*parsed.files, *parsed.audit_log, *parsed.objects):
        if not path.exists():
            refuse(f"{path}: there is no such file or folder")


async def cases(
    parsed: argparse.Namespace,
    config: Config,
    target: KubernetesSettings | None,
    found: Found,
    left_out: set[tuple[str, str, str]],
) -> AsyncIterator[Case]:
    """Yield the reviews of the sources that were chosen, one source after the other, numbered."""
    numbers = count()
    for case in _file_cases(parsed, found, left_out):
        yield replace(case, number=next(numbers))
    if parsed.cluster_objects:
        from gateway.tools.replay.cluster import ClusterObjects

        assert target is not None
        async for case in ClusterObjects(target, config.webhooks).cases(found):
            yield replace(case, number=next(numbers))


def _file_cases(
    parsed: argparse.Namespace, found: Found, left_out: set[tuple[str, str, str]]
) -> Iterator[Case]:
    if parsed.files:
        from gateway.tools.replay.recordings import Recordings

        yield from Recordings(parsed.files, left_out).cases(found)
    if parsed.audit_log:
        from gateway.tools.replay.audit_log import AuditLog

        yield from AuditLog(parsed.audit_log, updates_as_creates=parsed.updates_as_creates).cases(found)
    if parsed.objects:
        from gateway.tools.replay.objects import ObjectFiles

        yield from ObjectFiles(parsed.objects).cases(found)


def with_cluster(config: Config, target: KubernetesSettings | None) -> Config:
    """Return *config* with the cluster of the command."""
    old = config.gateway.kubernetes
    if target is None or old is None:
        return config
    settings = replace(target, custom_resources=old.custom_resources)
    return replace(config, gateway=replace(config.gateway, kubernetes=settings))


class Namespaces:
    """The namespaces that the source does not have: of a file, the configuration, or a cluster."""

    def __init__(self, file: Path | None, config: Config, target: KubernetesSettings | None) -> None:
        from gateway.config.merge.load import load

        self._known: dict[str, Namespace | None] = dict(config.namespaces)
        if file is not None:
            self._known |= load([file]).namespaces
        self._cluster = None
        if target is not None:
            from gateway.server.kubernetes.namespaces import ClusterNamespaces

            self._cluster = ClusterNamespaces(target)

    async def find(self, name: str) -> Namespace | None:
        """Return the namespace *name*; None if it is not known."""
        if name not in self._known and self._cluster is not None:
            found = await self._cluster.get(name)
            if len(self._known) >= _MAX_NAMESPACES:
                return found
            self._known[name] = found
        return self._known.get(name)

    async def close(self) -> None:
        """Release the connection."""
        if self._cluster is not None:
            await self._cluster.close()
