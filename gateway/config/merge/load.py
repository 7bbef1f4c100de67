"""Configuration files to one ``Config``, or to all problems of the files at once."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import fields, is_dataclass, replace
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Final

from gateway.base.errors import ConfigError, Problem
from gateway.base.files import SUFFIXES, UnusableFileError, fingerprint, list_files, read_file, unread
from gateway.base.text import one_of, shown
from gateway.config.merge.policy_authors import AUTHORS
from gateway.config.merge.read import read
from gateway.config.yaml.documents import Document, not_utf_8, read_documents, unreadable
from gateway.pure.core.webhook import HttpsClient, PolicyRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gateway.config.merge.model import Config

__all__ = ["documents_in", "fingerprint", "load", "require_webhooks"]

MAX_UNREAD_NAMES: Final = 20


def load(paths: Sequence[Path], also_used: Iterable[Path] = ()) -> Config:
    """Return the configuration in the files and folders *paths*; without a document, one of defaults.

    Other files in the folders are a warning, unless the configuration names them or *also_used* has them.

    Raises:
        ConfigError: all problems, in the order of files and documents; the first thousand if there are more.
    """
    config = read(documents_in(paths))
    clients = (client for webhook in config.webhooks for client in webhook.clients)
    kubeconfigs = (
        Path(client.image_review.kubeconfig)
        for client in clients
        if isinstance(client, HttpsClient) and client.image_review is not None
    )
    named = _named_files((config.gateway, config.pools))
    used = {os.path.realpath(file) for file in (*paths, *also_used, *named, *kubeconfigs)}
    return replace(config, warnings=(*_unread(paths, used), *config.warnings))


def require_webhooks(config: Config, paths: Sequence[Path], in_force: Config | None = None) -> None:
    """Refuse a *config* of *paths* without webhooks, which would allow every request without a check.

    It is accepted if its policies are left to the API server, unless *in_force*, the configuration before,
    has webhooks that are none of these.

    Raises:
        ConfigError: there is none; the warnings about *config* may have the cause.
    """
    if any(webhook.name != AUTHORS for webhook in config.webhooks):
        return
    left = {key for key in config.policies if key[0] in config.gateway.policies.left_to_api_server}
    before = () if in_force is None else in_force.webhooks
    if left and all(
        hook.name == AUTHORS or (isinstance(hook.client, PolicyRef) and (hook.client.kind, hook.name) in left)
        for hook in before
    ):
        return
    kubernetes = config.gateway.kubernetes
    places = [str(path) for path in paths]
    if kubernetes is not None and kubernetes.custom_resources:
        places.append("the custom resources of the cluster")
    message = (
        f"found no webhooks in {', '.join(places)}: every request would be allowed without a check; "
        "add a webhook configuration, or start serve with --allow-empty if that is intended"
    )
    raise ConfigError([Problem("", "", message), *config.warnings])


def _named_files(value: object) -> Iterator[Path]:
    """Yield the files that *value*, a part of a configuration, names."""
    match value:
        case Path():
            yield value
        case Mapping():
            yield from chain.from_iterable(map(_named_files, value.values()))
        case tuple():
            yield from chain.from_iterable(map(_named_files, value))
        case _ if is_dataclass(value):
            yield from chain.from_iterable(_named_files(getattr(value, each.name)) for each in fields(value))


def _unread(paths: Iterable[Path], used: set[str]) -> Iterator[Problem]:
    for path in paths:
        if names := unread(path, used):
            listed = ", ".join(map(shown, names[:MAX_UNREAD_NAMES]))
            more = f" and {len(names) - MAX_UNREAD_NAMES} more" if len(names) > MAX_UNREAD_NAMES else ""
            yield Problem(
                str(path),
                "",
                f"not read: {listed}{more}; of a folder only the files directly in it are read, "
                f"and of these only {one_of(SUFFIXES)}",
            )


def documents_in(paths: Sequence[Path]) -> Iterator[Document]:
    """Yield the documents in the files and folders *paths*; one that cannot be read has problems."""
    for file, problem in list_files(paths):
        yield from _documents(file, problem)


def _documents(file: Path, problem: str | None) -> Iterator[Document]:
    if problem:
        yield unreadable(file, problem)
        return
    try:
        text = read_file(file).decode("utf-8-sig")
    except UnusableFileError as error:
        yield unreadable(file, str(error))
    except UnicodeDecodeError as error:
        yield not_utf_8(file, error)
    else:
        yield from read_documents(file, text)
