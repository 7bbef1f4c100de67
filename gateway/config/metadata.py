"""ObjectMeta: the name, and what else ``kubectl get -o yaml`` prints with an object.

Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go, pkg/api/validation/objectmeta.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.config.names import check_annotations, check_labels

if TYPE_CHECKING:
    from gateway.config.fields import Check, Fields

_SERVER_FIELDS = (
    "creationTimestamp",
    "deletionGracePeriodSeconds",
    "deletionTimestamp",
    "finalizers",
    "generateName",
    "generation",
    "managedFields",
    "ownerReferences",
    "resourceVersion",
    "selfLink",
    "uid",
)
"""Kept by the API server for itself; whatever they hold has no meaning here."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """What of an object's metadata has a meaning here."""

    name: str
    """Empty where it is missing, which the report says."""
    labels: dict[str, str] = field(default_factory=dict)


def read_metadata(fields: Fields, check_name: Check, *, required: bool = True) -> Metadata:
    """Return the metadata of the object behind *fields*, none of whose kinds lives in a namespace.

    A name is missing only where metadata is not *required*.
    """
    metadata = fields.required_mapping("metadata") if required else fields.mapping("metadata")
    if metadata is None:
        return Metadata("")
    read_name = metadata.required_string if required else metadata.optional_string
    name = read_name("name", check_name)
    if metadata.string("namespace", ""):
        metadata.problem("namespace", "has to be left out: objects of this kind are in no namespace")
    labels = metadata.string_map("labels")
    check_labels(labels, metadata.at("labels"), metadata.report)
    check_annotations(metadata.string_map("annotations"), metadata.at("annotations"), metadata.report)
    metadata.accept(*_SERVER_FIELDS)
    metadata.finish()
    return Metadata(name, labels)
