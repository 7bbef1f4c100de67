"""The schemas of the kinds of a cluster, read from its OpenAPI v3 documents.

The index of the documents is requested again and again; a document is read when the index has another URL for
it. While the API server does not answer, the last known schemas stay. A kind without one has the schema that
comes with the gateway, if it is one of Kubernetes itself.

Source: k8s.io/apiserver pkg/admission/plugin/policy/mutating/patch/typeconverter.go; k8s.io/kube-openapi
pkg/handler3.
"""

from __future__ import annotations

import asyncio
import logging
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import parse_qsl, urlsplit

import orjson

from gateway.base.errors import ClusterError
from gateway.pure.openapi.documents import built_in_schemas, reduced
from gateway.pure.openapi.schemas import Schemas
from gateway.server.kubernetes.access import ClusterAccess

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.server.kubernetes.api_client import ApiClient

    GroupVersion = tuple[str, str]
    """A group and a version; a star stands for all."""

log = logging.getLogger(__name__)

CHECK_S: Final = 5.0
"""Between two requests of the index, as in the API server."""
MAX_BYTES: Final = 32 * 1024 * 1024
"""The size of one document. That of the core group has 2 MB."""
_INDEX: Final = "/openapi/v3"
_OK: Final = 200
_MOVED: Final = range(300, 400)


class ClusterSchemas:
    """The schemas in a cluster until :meth:`close`. Make it on a running event loop."""

    def __init__(self, settings: KubernetesSettings, changed: Callable[[], None] = lambda: None) -> None:
        """*changed* is called after the schemas have changed."""
        self._changed = changed
        self._access = ClusterAccess(settings)
        self._in_use: frozenset[GroupVersion] = frozenset()
        self._wanted: frozenset[GroupVersion] = frozenset()
        self._documents: dict[GroupVersion, tuple[str, dict[str, Any]]] = {}
        """Each with its URL."""
        self._task: asyncio.Task[None] | None = None
        self._read = asyncio.Event()
        self._last_error = ""
        self.current: Schemas = built_in_schemas()
        """The schemas known now, of the kinds of Kubernetes itself and of those that are followed."""

    def stage(self, versions: Collection[GroupVersion]) -> None:
        """Follow the documents of *versions*, beside those in use."""
        self._set(self._in_use | frozenset(versions))

    def activate(self, versions: Collection[GroupVersion]) -> None:
        """Follow only *versions* from now on, which are in force."""
        self._in_use = frozenset(versions)
        self._set(self._in_use)

    def abandon(self) -> None:
        """Follow only those in force."""
        self._set(self._in_use)

    async def wait_until_synced(self, timeout_s: float) -> None:
        """Wait up to *timeout_s* seconds until the documents that are followed were read once."""
        if self._task is not None:
            try:
                async with asyncio.timeout(timeout_s):
                    await self._read.wait()
            except TimeoutError:
                pass

    @property
    def warning(self) -> str:
        """Why the documents cannot be read now; empty if they can, or none is followed."""
        if self._task is None or not self._last_error:
            return ""
        return f"schemas of policies' kinds cannot be read: {self._last_error}"

    async def close(self) -> None:
        """End the requests."""
        task, self._task = self._task, None
        if task is not None:
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        await self._access.close()

    def _set(self, wanted: frozenset[GroupVersion]) -> None:
        if wanted == self._wanted:
            return
        self._wanted = wanted
        if self._task is not None:
            self._task.cancel()
            self._task = None
        if wanted:
            self._read = asyncio.Event()
            self._task = asyncio.create_task(self._run())

    async def _run(self) -> None:
        while True:
            try:
                async with self._access.api() as api:
                    self._last_error = await self._update(api)
                self._read.set()
            except ClusterError as error:
                self._last_error = str(error)
            except Exception:
                log.exception("reading of OpenAPI documents failed: internal error")
                self._last_error = "internal error"
            await asyncio.sleep(CHECK_S)

    async def _update(self, api: ApiClient) -> str:
        """Read what has changed; return why a document could not be read, or nothing.

        An aggregated API server that is down leaves the documents of others readable.

        Raises:
            ClusterError: the API server refuses the index, or gives no answer.
        """
        found = {key: url for key, url in _entries(await api.get(_INDEX)) if self._is_wanted(key)}
        documents = {key: self._documents[key] for key in self._documents.keys() & found.keys()}
        problem = ""
        for key, url in found.items():
            if key not in documents or documents[key][0] != url:
                try:
                    document = await _read_document(api, url)
                except ClusterError as error:
                    problem = str(error)
                    continue
                if document is not None:
                    documents[key] = (url, document)
        if documents != self._documents:
            self._documents = documents
            self.current = Schemas([document for _, document in documents.values()], built_in_schemas())
            self._changed()
        return problem

    def _is_wanted(self, key: GroupVersion) -> bool:
        group, version = key
        return any(one in (group, "*") and other in (version, "*") for one, other in self._wanted)


def _entries(index: dict[str, Any]) -> Iterator[tuple[GroupVersion, str]]:
    """Yield group and version of each document in *index*, with its URL."""
    paths = index.get("paths")
    for path, entry in paths.items() if isinstance(paths, dict) else ():
        url = entry.get("serverRelativeURL") if isinstance(entry, dict) else None
        match path.split("/"):
            case ["api", version] if isinstance(url, str):
                yield ("", version), url
            case ["apis", group, version] if isinstance(url, str):
                yield (group, version), url


async def _read_document(api: ApiClient, url: str) -> dict[str, Any] | None:
    """Return the document at *url*, reduced; None if it has another URL by now.

    Raises:
        ClusterError: the API server refuses it, gives no answer, or another one than a document.
    """
    parts = urlsplit(url)
    status, body = await api.proxied(parts.path, dict(parse_qsl(parts.query)), MAX_BYTES)
    if status in _MOVED:
        return None
    if status != _OK:
        raise ClusterError(f"the API server answers {status} for {parts.path}")
    try:
        return await asyncio.to_thread(lambda: reduced(orjson.loads(body)))
    except (ValueError, AttributeError, TypeError) as error:
        raise ClusterError(f"the OpenAPI document {parts.path} cannot be read: {error}") from None
