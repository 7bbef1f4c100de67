"""Recognises the webhook entries in a cluster that call a gateway.

The name of an entry of a gateway ends in ``.admission-gateway.io``, as ``manifests`` writes it. An entry with
another name is recognised by its path, if its backend is that of an entry with such a name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from gateway.tools.registration.plan import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Json = Mapping[str, Any]

_PATH: Final = re.compile(
    r"/(?:mutate|validate)(?:\.(?:fail|ignore))?(?:\.(?:only|except|versions(?:\.[1-9][0-9]*)?))?(?:/.*)?"
)


def gateway_indices(documents: Sequence[Json]) -> list[list[int]]:
    """Return, for each of the webhook configurations *documents*, the indices of its gateway entries."""
    backends = {backend(entry) for document in documents for entry in entries(document) if _is_named(entry)}
    return [
        [
            index
            for index, entry in enumerate(entries(document))
            if _is_named(entry) or (backend(entry) in backends and gateway_path(entry) is not None)
        ]
        for document in documents
    ]


def entries(document: Json) -> list[Json]:
    """Return the webhooks of *document*, which is not validated."""
    found = document.get("webhooks")
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def backend(entry: Json) -> tuple[str, ...] | None:
    """Return namespace and name of the Service of *entry*, or the host of its URL. None for neither."""
    match entry.get("clientConfig"):
        case {"service": {"namespace": str(namespace), "name": str(name)}}:
            return namespace, name
        case {"url": str(url)} if (host := _netloc(url)) is not None:
            return (host,)
    return None


def gateway_path(entry: Json) -> str | None:
    """Return the gateway path in the clientConfig of *entry*; None if there is none.

    In a URL it may follow a path prefix.
    """
    match entry.get("clientConfig"):
        case {"service": {"path": str(path)}}:
            return path if _PATH.fullmatch(path) else None
        case {"url": str(url)} if _netloc(url) is not None:
            path = urlsplit(url).path
            starts = [match.start() for match in re.finditer("/", path)]
            return next((path[start:] for start in starts if _PATH.fullmatch(path[start:])), None)
    return None


def _netloc(url: str) -> str | None:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return None


def _is_named(entry: Json) -> bool:
    name = entry.get("name")
    return isinstance(name, str) and name.endswith(f".{DOMAIN}")
