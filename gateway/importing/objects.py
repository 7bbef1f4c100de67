"""Webhook configurations as a cluster has them, to those that are written: what the cluster added is gone.

What comes out is the same for the same webhooks, whether they were read from a cluster, from kubectl's output
or from what was written before: fields have one order, objects the one in which they are called.

Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go; k8s.io/api admissionregistration/v1 types.go.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote

from gateway.config.webhooks import V1BETA1
from gateway.registration.own import PHASES, entries

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Mapping

    Json = dict[str, Any]

ADMISSION: Final = "admissionregistration.k8s.io"
RESOURCE_VERSION: Final = "admission-gateway.io/v1alpha1"
LAST_APPLIED: Final = "kubectl.kubernetes.io/last-applied-configuration"

_ENTRY_FIELDS: Final = (
    *("name", "clientConfig", "rules", "failurePolicy", "matchPolicy", "namespaceSelector", "objectSelector"),
    *("matchConditions", "reinvocationPolicy", "sideEffects", "timeoutSeconds", "admissionReviewVersions"),
)
_RULE_FIELDS: Final = ("operations", "apiGroups", "apiVersions", "resources", "scope")
_LONGEST_STEM: Final = 200
"""Characters. Names of files have 255, names of objects 253, and something stands around them."""


def name_of(document: Mapping[str, Any]) -> str:
    """Return ``metadata.name`` of *document*; empty where there is none."""
    metadata = document.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    return name if isinstance(name, str) else ""


def is_configuration(document: Mapping[str, Any]) -> bool:
    """Whether *document* is a webhook configuration of Kubernetes, in whatever version."""
    version = document.get("apiVersion")
    return (
        isinstance(version, str)
        and version.startswith(f"{ADMISSION}/")
        and document.get("kind") in tuple(PHASES)
    )


def in_order(documents: Iterable[Json]) -> list[Json]:
    """Return *documents* in the order in which they are called: mutating ones first, then by name."""
    phases = tuple(PHASES)
    return sorted(documents, key=lambda one: (phases.index(one["kind"]), name_of(one).encode()))


def without(document: Json, places: Collection[int]) -> Json:
    """Return *document* without the entries at *places*."""
    kept = [entry for place, entry in enumerate(entries(document)) if place not in places]
    return {**document, "webhooks": kept} if places else document


def cleaned(document: Json, *, as_resource: bool) -> Json:
    """Return *document* as it is written: its name, labels, annotations and webhooks.

    With *as_resource* it is a custom resource, which has the defaults of ``v1``: those of ``v1beta1`` are
    written out. It has no labels and annotations either, by which tools take objects for theirs.
    """
    metadata = document.get("metadata")
    kept: Json = {"name": name_of(document)}
    for field in ("labels", "annotations"):
        texts = metadata.get(field) if isinstance(metadata, dict) and not as_resource else None
        if isinstance(texts, dict):
            texts = {key: texts[key] for key in sorted(texts) if key != LAST_APPLIED}
        if texts:
            kept[field] = texts
    version = document["apiVersion"]
    is_old = version == f"{ADMISSION}/v1beta1"
    made = {
        "apiVersion": RESOURCE_VERSION if as_resource else version,
        "kind": document["kind"],
        "metadata": kept,
    }
    webhooks = document.get("webhooks")
    if webhooks is not None and not isinstance(webhooks, list):
        # For the configuration's own reader to refuse.
        return {**made, "webhooks": webhooks}
    return {**made, "webhooks": [_entry(one, with_defaults=is_old and as_resource) for one in webhooks or ()]}


def file_name(document: Json) -> str:
    """Return a name for the file of *document*, which nobody has checked, that is its own in a folder."""
    name = quote(name_of(document), safe="")
    if len(name) > _LONGEST_STEM:
        name = f"{name[:_LONGEST_STEM]}-{hashlib.sha256(name.encode()).hexdigest()[:8]}"
    return f"{document['kind'].removesuffix('WebhookConfiguration').lower()}-{name}.yaml"


def _entry(entry: object, *, with_defaults: bool) -> object:
    if not isinstance(entry, dict):
        return entry
    content = {key: value for key, value in entry.items() if value is not None}
    if with_defaults:
        defaults: Json = {
            "failurePolicy": V1BETA1.failure_policy,
            "matchPolicy": V1BETA1.match_policy,
            "timeoutSeconds": V1BETA1.timeout_s,
            "sideEffects": V1BETA1.side_effects,
            "admissionReviewVersions": list(V1BETA1.review_versions or ()),
        }
        content = {**defaults, **content}
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
    """Return *value* with the fields of mappings sorted; the order of lists may mean something."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return value
