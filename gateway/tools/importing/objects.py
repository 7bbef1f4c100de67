"""Normalises webhook configurations: removes the fields that the cluster adds, and orders the rest.

The result is the same for the same webhooks, whether they were read from a cluster, from kubectl's output or
from an earlier result. Objects are in call order.

Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go; k8s.io/api admissionregistration/v1 types.go.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from admission_gateway_worker.text import printable
from gateway.config.kinds.declare import defaults
from gateway.config.kinds.webhook_entry import OLD_SIDE_EFFECTS, V1, V1BETA1
from gateway.config.yaml.documents import PHASES
from gateway.tools.importing.policies import KINDS, is_policy, written
from gateway.tools.registration.gateway_entries import entries
from gateway.tools.registration.unregistered import registered_again

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    Json = dict[str, Any]

ADMISSION: Final = "admissionregistration.k8s.io"
RESOURCE_VERSION: Final = "admission-gateway.io/v1alpha1"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_OLD: Final = f"{ADMISSION}/v1beta1"
_ENTRY_FIELDS: Final = (
    *("name", "clientConfig", "rules", "failurePolicy", "matchPolicy", "namespaceSelector", "objectSelector"),
    *("matchConditions", "reinvocationPolicy", "sideEffects", "timeoutSeconds", "admissionReviewVersions"),
)
_RULE_FIELDS: Final = ("operations", "apiGroups", "apiVersions", "resources", "scope")
_LONGEST_STEM: Final = 200
"""Characters. File names have at most 255, object names 253, and the file name has a prefix and a suffix."""


def name_of(document: Mapping[str, Any]) -> str:
    """Return ``metadata.name`` of *document*; empty if there is none."""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def title(document: Mapping[str, Any]) -> str:
    """Return ``KIND/NAME`` of *document*."""
    return f"{document['kind']}/{printable(name_of(document)) or '(no name)'}"


def texts(document: Mapping[str, Any], field: str) -> Json:
    """Return the labels or annotations (*field*) of *document*; empty if there are none."""
    metadata = document.get("metadata")
    found = metadata.get(field) if isinstance(metadata, dict) else None
    return found if isinstance(found, dict) else {}


def is_configuration(document: Mapping[str, Any]) -> bool:
    """Whether *document* is a webhook configuration of Kubernetes, in any version."""
    version = document.get("apiVersion")
    return (
        isinstance(version, str)
        and version.startswith(f"{ADMISSION}/")
        and document.get("kind") in tuple(PHASES)
    )


def in_order(documents: Iterable[Json]) -> list[Json]:
    """Return *documents* in call order: mutating configurations first, then by name; policies last."""
    kinds = (*PHASES, *KINDS)
    return sorted(documents, key=lambda one: (kinds.index(one["kind"]), name_of(one).encode()))


def without(document: Json, indices: Collection[int]) -> Json:
    """Return *document* without the entries at *indices*."""
    kept = [entry for index, entry in enumerate(entries(document)) if index not in indices]
    return {**document, "webhooks": kept} if indices else document


def cleaned(document: Json, *, as_resource: bool) -> Json:
    """Return *document* in the form that is written: its name, labels, annotations and webhooks.

    Unregistered webhooks are registered again in the result. A cluster returns objects that were created as
    ``v1beta1`` as ``v1``; those with sideEffects that only ``v1beta1`` allows become ``v1beta1`` again. With
    *as_resource* the result is a custom resource, with the defaults of ``v1`` and without labels and
    annotations, by which tools find their objects. If the version changes, the result has the defaults of
    the old version as explicit values.
    """
    kept: Json = {"name": name_of(document)}
    for field in () if as_resource else ("labels", "annotations"):
        found = texts(document, field)
        if found := {key: found[key] for key in sorted(found) if key != LAST_APPLIED}:
            kept[field] = found
    if is_policy(document):
        return written(document, kept, as_resource=as_resource)
    webhooks = registered_again(document).get("webhooks")
    version = document["apiVersion"]
    new_version = RESOURCE_VERSION if as_resource else _OLD if _is_v1beta1(webhooks) else version
    is_changed = (new_version == _OLD) is not (version == _OLD)
    # Those of reinvocationPolicy, which validating webhooks have not, are the same in both versions.
    old_defaults = defaults((V1BETA1 if version == _OLD else V1)["validate"]) if is_changed else {}
    made = {
        "apiVersion": new_version,
        "kind": document["kind"],
        "metadata": kept,
    }
    if webhooks is not None and not isinstance(webhooks, list):
        # Left for validation to reject.
        return {**made, "webhooks": webhooks}
    return {**made, "webhooks": [_entry(one, old_defaults) for one in webhooks or ()]}


def file_name(document: Json) -> str:
    """Return the file name of *document*, which is not validated; unique in a folder."""
    name = file_stem(name_of(document))
    return f"{document['kind'].removesuffix('WebhookConfiguration').lower()}-{name}.yaml"


def file_stem(text: str) -> str:
    """Return *text* as a part of a file name."""
    name = quote(text, safe="", errors="replace")
    if len(name) > _LONGEST_STEM:
        name = f"{name[:_LONGEST_STEM]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return name


def _is_v1beta1(webhooks: object) -> bool:
    """Whether any of *webhooks* has sideEffects that only ``v1beta1`` allows."""
    entries_there = webhooks if isinstance(webhooks, list) else []
    return any(isinstance(one, dict) and one.get("sideEffects") in OLD_SIDE_EFFECTS for one in entries_there)


def _entry(entry: object, defaults: Json) -> object:
    if not isinstance(entry, dict):
        return entry
    content = {**defaults, **{key: value for key, value in entry.items() if value is not None}}
    rules = content.get("rules")
    if isinstance(rules, list):
        content["rules"] = [_ordered(rule, _RULE_FIELDS) for rule in rules]
    return _ordered(content, _ENTRY_FIELDS)


def _ordered(content: object, fields: tuple[str, ...]) -> object:
    if not isinstance(content, dict):
        return content
    rest = sorted(key for key in content if key not in fields)
    ordered = {key: content[key] for key in (*fields, *rest) if key in content}
    return {key: _sorted(value) for key, value in ordered.items()}


def _sorted(value: object) -> object:
    """Return *value* with sorted mappings; the order of lists may have a meaning."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return value
