"""Which of a cluster's registered webhooks lead to a gateway, told by what ``manifests`` writes.

An entry is a gateway's by its name, which ends in ``.admission-gateway.io``; one that somebody has written by
hand also by its backend and path, where another entry with that backend has such a name.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import urlsplit

from gateway.registration.plan import DOMAIN

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Json = Mapping[str, Any]

_PATH: Final = re.compile(
    r"/(?:mutate|validate)(?:\.(?:fail|ignore))?(?:\.(?:only|except|versions(?:\.[1-9][0-9]*)?))?(?:/.*)?"
)


def gateway_indices(documents: Sequence[Json]) -> list[list[int]]:
    """Return, for each of the webhook configurations *documents*, at which places entries are a gateway's."""
    backends = {backend(entry) for document in documents for entry in entries(document) if _is_named(entry)}
    return [
        [
            place
            for place, entry in enumerate(entries(document))
            if _is_named(entry) or (backend(entry) in backends and gateway_path(entry) is not None)
        ]
        for document in documents
    ]


def entries(document: Json) -> list[Json]:
    """Return the webhooks of *document*, which nobody has checked."""
    found = document.get("webhooks")
    return [entry for entry in found if isinstance(entry, dict)] if isinstance(found, list) else []


def backend(entry: Json) -> tuple[str, ...] | None:
    """Return namespace and name of the Service of *entry*, or the host of its URL alone; None: neither."""
    match entry.get("clientConfig"):
        case {"service": {"namespace": str(namespace), "name": str(name)}}:
            return namespace, name
        case {"url": str(url)} if (host := _netloc(url)) is not None:
            return (host,)
    return None


def gateway_path(entry: Json) -> str | None:
    """Return the part of the path of *entry* that a gateway would be asked for; None if it is no such path.

    Before it a URL may have the path at which the gateway stands.
    """
    match entry.get("clientConfig"):
        case {"service": {"path": str(path)}}:
            return path if _PATH.fullmatch(path) else None
        case {"url": str(url)} if _netloc(url) is not None:
            path = urlsplit(url).path
            places = [match.start() for match in re.finditer("/", path)]
            return next((path[place:] for place in places if _PATH.fullmatch(path[place:])), None)
    return None


def _netloc(url: str) -> str | None:
    try:
        return urlsplit(url).netloc
    except ValueError:
        return None


def _is_named(entry: Json) -> bool:
    name = entry.get("name")
    return isinstance(name, str) and name.endswith(f".{DOMAIN}")
