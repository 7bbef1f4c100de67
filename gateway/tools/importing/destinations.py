"""The configuration that ``sync`` updates: files in a folder, or custom resources."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import yaml

from gateway.base.errors import GatewayError
from gateway.base.files import UnusableFileError, list_files, read_file
from gateway.config.yaml.documents import PHASES, read_documents
from gateway.server.kubernetes import webhook_configurations
from gateway.tools.importing.field_managers import FIELD_MANAGER
from gateway.tools.importing.folder import write
from gateway.tools.importing.objects import RESOURCE_VERSION, cleaned, file_name, name_of
from gateway.tools.registration.yaml_output import to_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gateway.server.kubernetes.api_client import ApiClient

    Json = dict[str, Any]

_PREFIXES = ("mutating-", "validating-")


class Destination(Protocol):
    """A configuration in which each object is a text with a file name."""

    async def read(self, api: ApiClient) -> dict[str, str]:
        """Return the objects that ``import`` and ``sync`` have written, by file name."""
        ...

    async def write(self, api: ApiClient, texts: Mapping[str, str]) -> None:
        """Write or replace *texts*, by file name."""
        ...

    async def remove(self, api: ApiClient, files: Sequence[str]) -> None:
        """Remove *files*."""
        ...

    def describe(self, file: str) -> str:
        """Return the name of the object of *file* for messages."""
        ...


class Folder:
    """Files of ``import --output``; other files in the folder are ignored."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def read(self, _: ApiClient) -> dict[str, str]:
        """Return the files that ``import`` may have written.

        Raises:
            GatewayError: a file or the folder is unreadable.
        """
        return await asyncio.to_thread(self._read)

    async def write(self, _: ApiClient, texts: Mapping[str, str]) -> None:
        """Write all files or none.

        Raises:
            GatewayError: the folder is not writable.
        """
        await asyncio.to_thread(write, self._folder, texts, force=True)

    async def remove(self, _: ApiClient, files: Sequence[str]) -> None:
        """Remove files."""
        for file in files:
            (self._folder / file).unlink(missing_ok=True)

    def describe(self, file: str) -> str:
        """Return the path of *file*."""
        return str(self._folder / file)

    def _read(self) -> dict[str, str]:
        texts = {}
        for file, problem in list_files([self._folder] if self._folder.is_dir() else []):
            if problem:
                raise GatewayError(f"{file} {problem}")
            if not file.name.startswith(_PREFIXES):
                continue
            try:
                text = read_file(file).decode()
            except (UnusableFileError, UnicodeDecodeError) as error:
                raise GatewayError(f"{file} {error}") from error
            documents = [one.content for one in read_documents(file, text)]
            if len(documents) == 1 and _is_of(documents[0], file.name):
                texts[file.name] = text
        return texts


class CustomResources:
    """Objects of ``admission-gateway.io/v1alpha1`` in the same cluster."""

    def __init__(self) -> None:
        self._existing: dict[str, Json] = {}

    async def read(self, api: ApiClient) -> dict[str, str]:
        """Return all webhook configurations of the gateway's API group.

        Raises:
            ClusterError: the cluster is unreachable, or denies the request.
        """
        found = await webhook_configurations.list_webhook_configurations(api, RESOURCE_VERSION)
        self._existing = {file_name(one): one for one in found}
        return {file: to_yaml(cleaned(one, as_resource=True)) for file, one in self._existing.items()}

    async def write(self, api: ApiClient, texts: Mapping[str, str]) -> None:
        """Create or replace objects, one after another.

        Raises:
            ClusterError: an object was rejected; the objects before it have been written.
        """
        for file, text in texts.items():
            document = yaml.safe_load(text)
            existing = self._existing.get(file)
            if existing is not None:
                document = {**document, "metadata": existing["metadata"]}
            await webhook_configurations.write(api, document, FIELD_MANAGER)

    async def remove(self, api: ApiClient, files: Sequence[str]) -> None:
        """Delete objects.

        Raises:
            ClusterError: a deletion was rejected.
        """
        for file in files:
            await webhook_configurations.delete(api, self._existing[file])

    def describe(self, file: str) -> str:
        """Return kind and name of the object of *file*."""
        existing = self._existing.get(file)
        return file.removesuffix(".yaml") if existing is None else f"custom resource {name_of(existing)}"


def _is_of(document: Json | None, name: str) -> bool:
    return document is not None and document.get("kind") in PHASES and file_name(document) == name
