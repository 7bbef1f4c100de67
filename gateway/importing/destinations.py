"""Where the gateway's configuration is that ``sync`` keeps: files of a folder, or custom resources."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any, Protocol

import yaml

from gateway.config.documents import PHASES, read_documents
from gateway.config.files import UnusableFileError, list_files, read_file
from gateway.errors import GatewayError
from gateway.importing.field_managers import FIELD_MANAGER
from gateway.importing.folder import write
from gateway.importing.objects import RESOURCE_VERSION, cleaned, file_name, name_of
from gateway.kubernetes import webhook_configurations
from gateway.registration.yaml_output import to_yaml

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path

    from gateway.kubernetes.api_client import ApiClient

    Json = dict[str, Any]

_PREFIXES = ("mutating-", "validating-")


class Destination(Protocol):
    """A configuration, of which each object is a text with the name of a file."""

    async def read(self, api: ApiClient) -> dict[str, str]:
        """Return what ``import`` and ``sync`` have written to it, by the name of the file."""
        ...

    async def write(self, api: ApiClient, texts: Mapping[str, str]) -> None:
        """Write *texts*, by the names of their files, and replace what is there."""
        ...

    async def remove(self, api: ApiClient, files: Sequence[str]) -> None:
        """Take *files* away."""
        ...

    def place(self, file: str) -> str:
        """Return what the object of *file* is called in messages."""
        ...


class Folder:
    """Files as ``import --output`` writes them; others in the folder are left alone."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    async def read(self, _: ApiClient) -> dict[str, str]:
        """Return the files that ``import`` could have written.

        Raises:
            GatewayError: one of them, or the folder, cannot be read.
        """
        return await asyncio.to_thread(self._read)

    async def write(self, _: ApiClient, texts: Mapping[str, str]) -> None:
        """Write files, all or none.

        Raises:
            GatewayError: the folder cannot be written to.
        """
        await asyncio.to_thread(write, self._folder, texts, force=True)

    async def remove(self, _: ApiClient, files: Sequence[str]) -> None:
        """Remove files."""
        for file in files:
            (self._folder / file).unlink(missing_ok=True)

    def place(self, file: str) -> str:
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
    """Objects of ``admission-gateway.io/v1alpha1`` in the cluster whose webhooks are followed."""

    def __init__(self) -> None:
        self._there: dict[str, Json] = {}

    async def read(self, api: ApiClient) -> dict[str, str]:
        """Return all webhook configurations of the gateway's own version.

        Raises:
            ClusterError: they cannot be read.
        """
        found = await webhook_configurations.list_webhook_configurations(api, RESOURCE_VERSION)
        self._there = {file_name(one): one for one in found}
        return {file: to_yaml(cleaned(one, as_resource=True)) for file, one in self._there.items()}

    async def write(self, api: ApiClient, texts: Mapping[str, str]) -> None:
        """Make or replace objects, one after another.

        Raises:
            ClusterError: one was refused; those before it have been written.
        """
        for file, text in texts.items():
            document = yaml.safe_load(text)
            there = self._there.get(file)
            if there is not None:
                document = {**document, "metadata": there["metadata"]}
            await webhook_configurations.write(api, document, FIELD_MANAGER)

    async def remove(self, api: ApiClient, files: Sequence[str]) -> None:
        """Delete objects.

        Raises:
            ClusterError: one was refused.
        """
        for file in files:
            await webhook_configurations.delete(api, self._there[file])

    def place(self, file: str) -> str:
        """Return kind and name of the object of *file*."""
        there = self._there.get(file)
        return file.removesuffix(".yaml") if there is None else f"custom resource {name_of(there)}"


def _is_of(document: Json | None, name: str) -> bool:
    return document is not None and document.get("kind") in PHASES and file_name(document) == name
