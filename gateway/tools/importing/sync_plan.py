"""Computes the changes that make the gateway's configuration equal to the cluster's objects. Pure.

An object is followed if the gateway's configuration has it, or if it is unregistered. An object is
unregistered only if the configuration was equal in an earlier run, so that no new rule is left unchecked.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

import yaml

from admission_gateway_worker.text import printable
from gateway.tools.importing.objects import file_name, is_configuration, title
from gateway.tools.importing.prepare import Prepared, has_followed_bundles, prepare
from gateway.tools.importing.selection import matches, select
from gateway.tools.registration.gateway_entries import entries, gateway_indices
from gateway.tools.registration.unregistered import is_unregistered, registered_again, unregistered

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Json = dict[str, Any]

_NOT_REGISTERED: Final = frozenset({"clientConfig", "metadata"})
"""Fields that do not affect the registration of the gateway."""


@dataclass(frozen=True, slots=True)
class Choice:
    """Selection of the followed objects, and their format."""

    names: Sequence[str]
    excluded: Sequence[str]
    as_resource: bool


@dataclass(slots=True)
class SyncPlan:
    """The changes of one run."""

    followed: list[Prepared] = field(default_factory=list)
    changed: dict[str, list[str]] = field(default_factory=dict)
    """Changed fields by file name; all fields for a new file."""
    refused: list[Prepared] = field(default_factory=list)
    gone: list[str] = field(default_factory=list)
    """Files whose object no longer exists in the cluster."""
    to_unregister: list[Json] = field(default_factory=list)
    """Objects to write to the cluster; the configuration already has their current state."""
    called: list[str] = field(default_factory=list)
    """``KIND/NAME`` of followed objects that the API server also calls directly."""
    to_restore: list[Json] = field(default_factory=list)
    """Unregistered objects in their original form."""
    has_gateway: bool = False
    """Whether any gateway is registered."""

    @property
    def needs_registration(self) -> bool:
        """Whether a change affects the registration of the gateway."""
        return any(set(fields) - _NOT_REGISTERED for fields in self.changed.values())


def plan_sync(read: Sequence[Json], kept: Mapping[str, str], choice: Choice) -> SyncPlan:
    """Return the plan for the objects *read* from the cluster and the files *kept*, text by name."""
    found = SyncPlan()
    configurations = [one for one in read if is_configuration(one)]
    own = {
        title(document): indices
        for document, indices in zip(configurations, gateway_indices(configurations), strict=True)
    }
    found.has_gateway = any(own.values())
    are_followed = not kept or any(map(has_followed_bundles, kept.values()))
    originals = {title(document): document for document in configurations}
    for document in select(read, choice.names, choice.excluded).imported:
        name, file = title(document), file_name(document)
        marked = [is_unregistered(entry) for entry in entries(document)]
        if any(marked):
            found.to_restore.append(registered_again(originals[name]))
        elif file not in kept:
            continue
        # As before: a gateway without a cluster cannot follow CA bundles.
        follows = has_followed_bundles(kept[file]) if file in kept else are_followed
        (prepared,) = prepare([document], as_resource=choice.as_resource, follows=follows)
        found.followed.append(prepared)
        if prepared.problems:
            found.refused.append(prepared)
        elif kept.get(file) != prepared.text:
            found.changed[file] = _changed(kept.get(file, ""), prepared.text)
        if not all(marked):
            found.called.append(name)
            if not prepared.problems and file not in found.changed:
                found.to_unregister.append(unregistered(originals[name], own[name]))
    for file, text in kept.items():
        document = yaml.safe_load(text)
        chosen = not choice.names or matches(document, choice.names)
        if title(document) not in originals and chosen and not matches(document, choice.excluded):
            found.gone.append(file)
    return found


def _changed(before: str, after: str) -> list[str]:
    """Return the webhook fields that differ between two texts, of which the first may be empty."""
    old, new = (yaml.safe_load(text) if text else {} for text in (before, after))
    old_entries = {printable(one.get("name")): one for one in entries(old)}
    new_entries = {printable(one.get("name")): one for one in entries(new)}
    fields: dict[str, None] = {}
    if list(old_entries) != list(new_entries):
        fields["webhooks"] = None
    for name in old_entries.keys() & new_entries.keys():
        one, other = old_entries[name], new_entries[name]
        fields.update(dict.fromkeys(key for key in sorted({*one, *other}) if one.get(key) != other.get(key)))
    return sorted(fields) or ["metadata"]
