"""Kubeconfigs: which cluster and which user a context stands for.

Only what is needed to choose is read here, so that a configuration can be checked without a cluster, and
entries that other tools keep in the same file do not matter.

Source: k8s.io/client-go tools/clientcmd/api/v1/types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from gateway.config.files import UnusableFileError, read_file
from gateway.config.model import Kubernetes
from gateway.config.parsing import parse_yaml
from gateway.text import described, did_you_mean, one_of, printable, shown, url_without_secrets

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from gateway.config.fields import Fields

    Entry = Mapping[str, object]


@dataclass(frozen=True, slots=True)
class Kubeconfig:
    """One context of a kubeconfig."""

    cluster: Entry
    """As written; ``server`` is in it."""
    user: Entry
    """As written; empty for a context without a user."""
    namespace: str | None = None
    """The context's own; None: it names none."""


def read_kubernetes(fields: Fields | None, folder: Path) -> Kubernetes | None:
    """Return the ``kubernetes`` group behind *fields*, which stand in a file in *folder*."""
    if fields is None:
        return None
    file, context = fields.string("kubeconfig", None), fields.string("context", None)
    path = None if file is None else folder / file
    if context == "":
        fields.problem("context", "is empty, expected the name of a context")
    elif file == "":
        fields.problem("kubeconfig", "is empty, expected the path of a file")
    elif path is not None:
        try:
            document = read_document(path)
        except UnusableFileError as error:
            fields.problem("kubeconfig", f"{printable(path)} {error}")
        else:
            _check_context(fields, path, document, context)
    elif context is not None:
        fields.problem("context", "needs kubeconfig: the service account of a pod has no contexts")
    custom_resources = fields.content["customResources"] if fields.has("customResources") else False
    if not isinstance(custom_resources, bool):
        fields.problem("customResources", f"found {described(custom_resources)}, expected true or false")
    fields.finish()
    return Kubernetes(path, context, custom_resources is True)


def read_kubeconfig(path: Path, context: str | None) -> Kubeconfig:
    """Return what *context*, or the file's ``current-context``, stands for in the kubeconfig at *path*.

    Raises:
        UnusableFileError: the file cannot be read or is no kubeconfig, or has no such context.
    """
    return _choose(read_document(path), context)


def _check_context(fields: Fields, path: Path, document: Entry, context: str | None) -> None:
    try:
        _choose(document, context)
    except UnusableFileError as error:
        fields.problem("kubeconfig" if context is None else "context", f"{printable(path)} {error}")


def read_document(path: Path) -> dict[str, object]:
    """Return the kubeconfig at *path* as it is written.

    Raises:
        UnusableFileError: it cannot be read, or is no kubeconfig.
    """
    try:
        text = read_file(path).decode("utf-8-sig")
    except UnicodeDecodeError:
        raise UnusableFileError("is not UTF-8 text") from None
    documents = list(parse_yaml(text))
    for document in documents:
        for field, message in document.found:
            reason = ": ".join(filter(None, (field, message)))
            raise UnusableFileError(f"cannot be read as a kubeconfig: {reason}")
    if len(documents) != 1:
        raise UnusableFileError(f"holds {len(documents)} documents, expected one kubeconfig")
    root = documents[0].root
    if not isinstance(root, dict):
        # Not what it holds: a file with a token in it may have been named by mistake.
        raise UnusableFileError("holds no mapping, expected a kubeconfig")
    if root.get("kind", "Config") != "Config":
        raise UnusableFileError(f"holds the kind {shown(root['kind'])}, expected a kubeconfig of kind Config")
    return root


def _choose(document: Entry, context: str | None) -> Kubeconfig:
    name = context if context is not None else document.get("current-context")
    if not isinstance(name, str) or not name:
        raise UnusableFileError("has no current-context, expected one, or a context named beside kubeconfig")
    chosen = _entry(document, "context", name)
    cluster = _entry(document, "cluster", _reference(chosen, "cluster", name))
    server = cluster.get("server")
    if not isinstance(server, str) or not server.startswith(("https://", "http://")):
        found = shown(url_without_secrets(server) if isinstance(server, str) else server)
        raise UnusableFileError(
            f"has the server {found} for the cluster of context {shown(name)}, expected an https URL"
        )
    user, namespace = chosen.get("user"), chosen.get("namespace")
    return Kubeconfig(
        cluster,
        _entry(document, "user", _reference(chosen, "user", name)) if user else {},
        namespace if isinstance(namespace, str) and namespace else None,
    )


def _reference(context: Entry, kind: str, name: str) -> str:
    value = context.get(kind)
    if not isinstance(value, str):
        raise UnusableFileError(f"names no {kind} in context {shown(name)}, expected one")
    return value


def _entry(document: Entry, kind: str, name: str) -> Entry:
    """Return the entry *name* of the list ``KINDs``, from under its member ``KIND``."""
    listed = document.get(f"{kind}s")
    found: dict[str, object] = {}
    for item in listed if isinstance(listed, list) else ():
        if isinstance(item, dict) and isinstance(item.get("name"), str):
            value = item.get(kind)
            found.setdefault(item["name"], {} if value is None else value)
    entry = found.get(name)
    if isinstance(entry, dict):
        return entry
    if name in found:
        raise UnusableFileError(f"has {described(entry)} for the {kind} {shown(name)}, expected a mapping")
    expected = f"; expected {one_of(map(shown, found))}{did_you_mean(name, found)}" if found else ""
    raise UnusableFileError(f"has no {kind} {shown(name)}{expected}")
