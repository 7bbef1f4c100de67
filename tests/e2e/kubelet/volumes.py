"""The volumes of a Pod as folders: ConfigMap, Secret, emptyDir, downward API, and projected ones with tokens.

Files are published as a kubelet does: in a new folder, to which the symbolic link ``..data`` is moved in one
step. Tokens are requested once and never renewed.

Source: k8s.io/kubernetes pkg/volume/util/atomic_writer.go; pkg/volume/projected
"""

from __future__ import annotations

import base64
import os
import shutil
import stat
import time
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Api

_FILE_MODE: Final = 0o644
Files = dict[str, tuple[bytes, int]]
"""Content and mode of each file of a volume, by path."""


class NotYet(Exception):
    """Something that the Pod names does not exist; the text says what."""


class Volumes:
    """The volumes of one Pod, in a folder of their own."""

    def __init__(self, api: Api, pod: dict[str, Any], folder: Path, owner: tuple[int, int]) -> None:
        """Take the Pod, and the user and the group that may read its files."""
        self._api, self._pod, self._folder, self._owner = api, pod, folder, owner
        self._published: dict[str, Files] = {}
        self._tokens: dict[str, bytes] = {}

    def update(self, pod: dict[str, Any]) -> None:
        """Write what is new or has changed since the last time.

        Raises:
            NotYet: a ConfigMap or a Secret is missing.
        """
        self._pod = pod
        for volume in pod["spec"].get("volumes", []):
            name = volume["name"]
            if "emptyDir" in volume:
                self._make(self.folder(name), 0o2777)
                continue
            files = dict(self._files(volume))
            if self._published.get(name) != files:
                self._publish(self.folder(name), files)
                self._published[name] = files

    def folder(self, name: str) -> Path:
        """Return the folder of the volume *name*."""
        return self._folder / name

    def _files(self, source: dict[str, Any]) -> Iterator[tuple[str, tuple[bytes, int]]]:
        """Yield the files of a volume, or of one source of a projected volume."""
        match source:
            case {"projected": projected}:
                for each in projected["sources"]:
                    for path, (content, mode) in self._files(each):
                        yield path, (content, mode if "serviceAccountToken" in each else _mode(projected))
            case {"configMap": reference}:
                yield from self._keys("configmaps", reference, reference["name"])
            case {"secret": reference}:
                name = reference.get("secretName") or reference["name"]
                yield from self._keys("secrets", reference, name)
            case {"downwardAPI": reference}:
                for item in reference["items"]:
                    yield (
                        item["path"],
                        (field(self._pod, item["fieldRef"]["fieldPath"]).encode(), _mode(reference)),
                    )
            case {"serviceAccountToken": reference}:
                yield reference["path"], (self._token(reference), 0o600)
            case _:
                raise NotImplementedError(f"the stand-in for the kubelet has no such volume: {source}")

    def _keys(
        self, resource: str, reference: dict[str, Any], name: str
    ) -> Iterator[tuple[str, tuple[bytes, int]]]:
        found = contents(self._api, self._pod, resource, name, optional=reference.get("optional", False))
        items = reference.get("items") or [{"key": key, "path": key} for key in found]
        for item in items:
            if item["key"] in found:
                yield item["path"], (found[item["key"]], item.get("mode") or _mode(reference))
            elif not reference.get("optional"):
                raise NotYet(f"references non-existent key {item['key']} of {resource} {name}")

    def _token(self, reference: dict[str, Any]) -> bytes:
        if reference["path"] not in self._tokens:
            metadata, account = self._pod["metadata"], self._pod["spec"]["serviceAccountName"]
            spec: dict[str, Any] = {
                "expirationSeconds": reference.get("expirationSeconds", 3600),
                "boundObjectRef": {
                    "apiVersion": "v1",
                    "kind": "Pod",
                    "name": metadata["name"],
                    "uid": metadata["uid"],
                },
            }
            if "audience" in reference:
                spec["audiences"] = [reference["audience"]]
            path = f"/api/v1/namespaces/{metadata['namespace']}/serviceaccounts/{account}/token"
            document = {"apiVersion": "authentication.k8s.io/v1", "kind": "TokenRequest", "spec": spec}
            answer = self._api.create(path, document)
            if answer.status != 201:
                raise NotYet(answer.message)
            self._tokens[reference["path"]] = answer.document["status"]["token"].encode()
        return self._tokens[reference["path"]]

    def _make(self, folder: Path, mode: int) -> None:
        if not folder.is_dir():
            folder.mkdir(parents=True)
            os.chown(folder, 0, self._owner[1])
            folder.chmod(mode)

    def _publish(self, folder: Path, files: Files) -> None:
        self._make(folder, 0o755)
        link, former = folder / "..data", None
        if link.is_symlink():
            former = folder / link.readlink()
        version = folder / f"..{time.time_ns()}"
        self._make(version, 0o755)
        for path, (content, mode) in files.items():
            file = version / path
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes(content)
            # A file for one user alone, as a token is, belongs to the container's user.
            os.chown(file, self._owner[0] if mode == 0o600 else 0, self._owner[1])
            file.chmod(mode | (stat.S_IRGRP if mode != 0o600 else 0))
        unfinished = folder / "..data_tmp"
        unfinished.symlink_to(version.name)
        unfinished.rename(link)
        top = {path.partition("/")[0] for path in files}
        for name in top:
            if not (folder / name).is_symlink():
                (folder / name).symlink_to(f"..data/{name}")
        for entry in folder.iterdir():
            if not entry.name.startswith("..") and entry.name not in top:
                entry.unlink()
        if former is not None:
            shutil.rmtree(former)


def contents(api: Api, pod: dict[str, Any], resource: str, name: str, *, optional: bool) -> dict[str, bytes]:
    """Return the values of a ConfigMap or a Secret in the namespace of *pod*; none of a missing optional one.

    Raises:
        NotYet: it is missing.
    """
    answer = api.get(f"/api/v1/namespaces/{pod['metadata']['namespace']}/{resource}/{name}")
    if answer.status != 200:
        if optional and answer.status == 404:
            return {}
        raise NotYet(f"{resource} {name}: {answer.message}")
    document = answer.document
    data = document.get("data") or {}
    if resource == "secrets":
        return {key: base64.b64decode(value) for key, value in data.items()}
    binary = {key: base64.b64decode(value) for key, value in (document.get("binaryData") or {}).items()}
    return {key: value.encode() for key, value in data.items()} | binary


def field(pod: dict[str, Any], path: str) -> str:
    """Return the field *path* of *pod*, in the form of the downward API."""
    root, _, rest = path.partition(".")
    value = pod[root]
    name, bracket, key = rest.partition("['")
    value = value.get(name, {} if bracket or name in ("labels", "annotations") else "")
    if bracket:
        return str(value.get(key.removesuffix("']"), ""))
    if isinstance(value, dict):
        return "\n".join(f'{key}="{text}"' for key, text in sorted(value.items()))
    return str(value)


def _mode(reference: dict[str, Any]) -> int:
    return int(reference.get("defaultMode", _FILE_MODE))
