"""Registrations as files beside the API server: manifest-based admission configuration of Kubernetes 1.37.

The API server reads them at its start, before it serves, and follows changes. They work without etcd, and
no user of the API can change them. Each plug-in has a folder of its own.

Source: KEP-5793; k8s.io/apiserver pkg/admission/plugin/manifest, plugin/webhook/manifest/loader.
"""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from gateway.base.errors import GatewayError
from gateway.base.files import UnusableFileError, read_file
from gateway.config.yaml.documents import read_documents
from gateway.tools.registration.gateway_entries import entries
from gateway.tools.registration.yaml_output import to_yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from pathlib import Path

    from gateway.tools.registration.plan import Plan

SUFFIX: Final = ".static.k8s.io"
"""The end of the name of every object in such a file. The API refuses it for other objects."""
PLUGINS: Final = {
    "MutatingWebhookConfiguration": ("MutatingAdmissionWebhook", "mutating"),
    "ValidatingWebhookConfiguration": ("ValidatingAdmissionWebhook", "validating"),
}
"""By kind, the plug-in that reads it, and the name of its folder."""
_SUFFIXES: Final = (".yaml", ".yml", ".json")
_VERSION: Final = "admissionregistration.k8s.io/v1"
_CONFIGURATION: Final = "apiserver.config.k8s.io/v1"


@dataclass(frozen=True, slots=True)
class Mistake:
    """A reason for which the API server refuses a file."""

    place: str
    message: str


def write(made: Plan, folder: Path) -> str:
    """Write the objects of *made* below *folder*, and return the AdmissionConfiguration that names them.

    A file is replaced as a whole, so that the API server never reads half of it.

    Raises:
        GatewayError: a file cannot be written.
    """
    plugins = []
    try:
        for document in made.documents:
            plugin, name = PLUGINS[str(document["kind"])]
            plugin_folder = folder.absolute() / name
            plugin_folder.mkdir(parents=True, exist_ok=True)
            _replace(plugin_folder / f"{made.name}.yaml", to_yaml(_renamed(document, made.name)))
            configuration = {
                "apiVersion": _CONFIGURATION,
                "kind": "WebhookAdmissionConfiguration",
                "staticManifestsDir": str(plugin_folder),
            }
            plugins.append({"name": plugin, "configuration": configuration})
    except OSError as error:
        raise GatewayError(
            f"--static: {error.filename or folder} cannot be written: {error.strerror}"
        ) from None
    head = "# For kube-apiserver: --admission-control-config-file. The folders are those on its machine.\n"
    return head + to_yaml(
        {"apiVersion": _CONFIGURATION, "kind": "AdmissionConfiguration", "plugins": plugins}
    )


def read(folder: Path) -> tuple[list[dict[str, Any]], list[Mistake]]:
    """Return the webhook configurations below *folder*, and why the API server refuses files of it.

    Raises:
        GatewayError: *folder* has no folder of a plug-in.
    """
    found: list[dict[str, Any]] = []
    mistakes: list[Mistake] = []
    folders = {kind: folder / name for kind, (_, name) in PLUGINS.items() if (folder / name).is_dir()}
    if not folders:
        names = " or ".join(name for _, name in PLUGINS.values())
        raise GatewayError(f"--static: {folder} has no folder {names}, which manifests --static makes")
    for kind, plugin_folder in folders.items():
        names_seen: dict[str, str] = {}
        for file in sorted(plugin_folder.iterdir(), key=lambda path: os.fsencode(path.name)):
            if file.is_dir() or file.suffix.lower() not in _SUFFIXES:
                mistakes.append(Mistake(str(file), f"is not read, expected a file {', '.join(_SUFFIXES)}"))
                continue
            try:
                text = read_file(file).decode(errors="replace")
            except UnusableFileError as error:
                mistakes.append(Mistake(str(file), str(error)))
                continue
            for document in read_documents(file, text):
                where, content = document.problems.where, document.content
                mistakes += [Mistake(where, message) for _, message in document.problems.found]
                if content is not None:
                    wrong = list(_mistakes(content, kind, names_seen, where))
                    mistakes += wrong
                    if not wrong:
                        found.append(content)
    return found, mistakes


def _mistakes(content: Mapping[str, Any], kind: str, seen: dict[str, str], where: str) -> Iterator[Mistake]:
    if (content.get("apiVersion"), content.get("kind")) != (_VERSION, kind):
        yield Mistake(where, f"expected a {kind} of {_VERSION} in this folder")
        return
    metadata = content.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    if not isinstance(name, str) or not name.endswith(SUFFIX):
        yield Mistake(where, f"metadata.name: expected a name that ends in {SUFFIX}")
    elif name in seen:
        yield Mistake(where, f"metadata.name: is also the name of {seen[name]}")
    else:
        seen[name] = where
    for index, entry in enumerate(entries(content)):
        client = entry.get("clientConfig")
        if not isinstance(client, dict) or not client.get("url") or client.get("service") is not None:
            yield Mistake(
                where, f"webhooks[{index}].clientConfig: expected url, which is all that is allowed"
            )


def _renamed(document: Mapping[str, object], name: str) -> dict[str, object]:
    metadata = document["metadata"]
    assert isinstance(metadata, dict)
    return {**document, "metadata": {**metadata, "name": name + SUFFIX}}


def _replace(file: Path, text: str) -> None:
    # A dot and no suffix: the API server skips it.
    unfinished = file.with_name(f".{file.stem}.new")
    unfinished.write_text(text)
    unfinished.replace(file)
