"""Reads webhook configurations and policies from files, standard input, or a cluster."""

from __future__ import annotations

import asyncio
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from gateway.base.files import MAX_FILE_BYTES, UnusableFileError, list_files, read_file
from gateway.config.yaml.documents import Document, read_documents, unreadable

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from gateway.base.errors import Problem
    from gateway.config.kinds.kubernetes_settings import KubernetesSettings

    Json = dict[str, Any]

STANDARD_INPUT: Final = Path("-")


def from_files(paths: Sequence[Path]) -> tuple[list[Json], list[Problem]]:
    """Return all objects in the files and folders *paths*, and problems; ``-`` is standard input.

    Objects may be of any kind. Problems are unreadable files and documents that are not objects.
    """
    documents = list(_documents(paths))
    problems = [problem for one in documents for problem in one.problems.errors()]
    return [one.content for one in documents if one.content is not None and not one.problems.found], problems


def from_cluster(cluster: KubernetesSettings) -> list[Json]:
    """Return the webhook configurations of *cluster*, and its policies with their bindings.

    Raises:
        ClusterError: the cluster is unreachable, or denies the request.
    """
    # These imports are slow.
    from gateway.server.kubernetes.access import connect
    from gateway.server.kubernetes.webhook_configurations import list_policies, list_webhook_configurations

    async def read() -> list[Json]:
        api = await asyncio.to_thread(connect, cluster)
        try:
            return [*await list_webhook_configurations(api), *await list_policies(api)]
        finally:
            await api.close()

    return asyncio.run(read())


def below(paths: Sequence[Path]) -> Iterator[Document]:
    """Yield the documents of *paths*, those of folders with all folders below them; ``-`` is standard input.

    Names with a leading dot and links to folders are left out.
    """
    waiting = [*reversed(paths)]
    while waiting:
        path = waiting.pop()
        yield from _documents([path])
        try:
            folders = [one for one in path.iterdir() if not one.name.startswith(".")] if path.is_dir() else []
        except (OSError, ValueError):
            # A problem of the path, which was reported.
            continue
        waiting += sorted((one for one in folders if one.is_dir() and not one.is_symlink()), reverse=True)


def _documents(paths: Sequence[Path]) -> Iterator[Document]:
    for path in paths:
        if path == STANDARD_INPUT:
            yield from documents_of(Path("standard input"), sys.stdin.buffer.read(MAX_FILE_BYTES + 1))
            continue
        for file, problem in list_files([path]):
            if problem:
                yield unreadable(file, problem)
                continue
            try:
                yield from documents_of(file, read_file(file))
            except UnusableFileError as error:
                yield unreadable(file, str(error))


def documents_of(file: Path, content: bytes) -> Iterator[Document]:
    """Yield the documents in *content*, that of *file*."""
    if len(content) > MAX_FILE_BYTES:
        yield unreadable(file, f"has more than {MAX_FILE_BYTES // (1024 * 1024)} MiB")
        return
    try:
        text = content.decode("utf-8-sig")
    except UnicodeDecodeError:
        yield unreadable(file, "is not UTF-8 text")
    else:
        yield from read_documents(file, text)
