"""Selects the objects to import by ``--name`` and ``--exclude``, without entries that register a gateway."""

from __future__ import annotations

from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from typing import TYPE_CHECKING, Any

from admission_gateway_worker.text import printable
from gateway.tools.importing.objects import in_order, is_configuration, name_of, title, without
from gateway.tools.importing.policies import is_policy
from gateway.tools.registration.gateway_entries import entries, gateway_indices

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    Json = dict[str, Any]


@dataclass(slots=True)
class Selected:
    """The objects that were read, by selection."""

    imported: list[Json] = field(default_factory=list)
    """In call order, without entries that register a gateway."""
    removable: list[Json] = field(default_factory=list)
    """Imported objects that can be deleted in the cluster as a whole."""
    deselected: list[Json] = field(default_factory=list)
    notes: list[str] = field(default_factory=list)
    """Notes about objects that are not imported."""


def select(read: Sequence[Json], names: Sequence[str], excluded: Sequence[str]) -> Selected:
    """Return the selection from *read*: what matches *names*, or all without names, and not *excluded*."""
    found = Selected()
    configurations = in_order(one for one in read if is_configuration(one) or is_policy(one))
    for document in read:
        if _has_conversion(document):
            found.notes.append(
                f"{title(document)}: conversion webhooks are not admission webhooks and are not imported"
            )
    for document, own in zip(configurations, gateway_indices(configurations), strict=True):
        name = name_of(document)
        if name.endswith(".static.k8s.io"):
            found.notes.append(
                f"{title(document)}: not imported, because it is a static manifest of the API server"
            )
        elif own and len(own) == len(entries(document)):
            found.notes.append(f"{title(document)}: not imported, because it registers a gateway")
        elif (names and not matches(document, names)) or matches(document, excluded):
            found.deselected.append(document)
        else:
            found.imported.append(without(document, own))
            if not own:
                found.removable.append(document)
            for index in own:
                entry = printable(entries(document)[index].get("name"))
                found.notes.append(
                    f"{title(document)}: imported without {entry}, which registers a gateway and has to "
                    "remain; remove the other webhooks with kubectl edit"
                )
    if not found.imported:
        found.notes.append("no webhook configuration or policy to import")
    return found


def matches(document: Json, globs: Iterable[str]) -> bool:
    """Whether any of *globs* matches the name of *document*, or ``KIND/NAME`` if the glob has a slash."""
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
