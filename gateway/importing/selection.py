"""Selects the objects to import: by ``--name`` and ``--exclude``, without the registration of a gateway."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from gateway.importing.objects import in_order, is_configuration, name_of, title, without
from gateway.registration.gateway_entries import entries, gateway_indices
from gateway.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Json = dict[str, Any]


@dataclass(slots=True)
class Selected:
    """What was read, by what becomes of it."""

    imported: list[Json] = field(default_factory=list)
    """In the order in which they are called, the gateway's own entries taken out."""
    removable: list[Json] = field(default_factory=list)
    """Those of them that can be deleted in the cluster as they are."""
    deselected: list[Json] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """What was left out, and why."""


def select(read: Sequence[Json], names: Sequence[str], excluded: Sequence[str]) -> Selected:
    """Return what becomes of the objects *read*: those with one of *names*, if any, and none *excluded*."""
    found = Selected()
    configurations = in_order(one for one in read if is_configuration(one))
    for document in read:
        if _has_conversion(document):
            found.notes.append(
                f"{title(document)}: conversion webhooks are not admission, and stay as they are"
            )
    for document, own in zip(configurations, gateway_indices(configurations), strict=True):
        name = name_of(document)
        if name.endswith(".static.k8s.io"):
            found.notes.append(
                f"{title(document)}: a static manifest of the API server, which reads it from its own files"
            )
        elif own and len(own) == len(entries(document)):
            found.notes.append(f"{title(document)}: left out, since it registers a gateway itself")
        elif (names and not matches(document, names)) or matches(document, excluded):
            found.deselected.append(document)
        else:
            found.imported.append(without(document, own))
            if not own:
                found.removable.append(document)
            for place in own:
                entry = printable(entries(document)[place].get("name"))
                found.notes.append(
                    f"{title(document)}: without {entry}, which registers a gateway itself and has to stay: "
                    "take the others out with kubectl edit"
                )
    if not found.imported:
        found.notes.append("no webhook configuration to import was found")
    return found


def matches(document: Json, globs: Iterable[str]) -> bool:
    """Whether any of *globs* matches the name of *document*, or ``KIND/NAME`` where it has a slash."""
    name = name_of(document)
    return any(
        fnmatchcase(name, glob) or ("/" in glob and fnmatchcase(f"{document['kind']}/{name}", glob))
        for glob in globs
    )


def _has_conversion(document: Json) -> bool:
    match document:
        case {"kind": "CustomResourceDefinition", "spec": {"conversion": {"strategy": "Webhook"}}}:
            return True
    return False
