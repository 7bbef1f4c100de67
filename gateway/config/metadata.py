"""ObjectMeta: the name, and the other fields that ``kubectl get -o yaml`` prints.

Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go, pkg/api/validation/objectmeta.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from gateway.config.names import check_annotations, check_labels, dns_1123_label

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
"""Set by the API server, and ignored here."""


@dataclass(frozen=True, slots=True)
class Metadata:
    """The metadata that the gateway uses."""

    name: str
    """Empty if it is missing, which is a problem in the report."""
    labels: dict[str, str] = field(default_factory=dict)
    annotations: dict[str, str] = field(default_factory=dict)
    namespace: str = ""


def read_metadata(
    fields: Fields, check_name: Check, *, required: bool = True, is_namespaced: bool = False
) -> Metadata:
    """Return the metadata of the object behind *fields*.

    The name may be missing if metadata is not *required*. A namespace may be there if *is_namespaced*.
    """
    metadata = fields.required_mapping("metadata") if required else fields.mapping("metadata")
    if metadata is None:
        return Metadata("")
    read_name = metadata.required_string if required else metadata.optional_string
    name = read_name("name", check_name)
    namespace = metadata.string("namespace", "", dns_1123_label if is_namespaced else None)
    if namespace and not is_namespaced:
        metadata.problem("namespace", "is not allowed: objects of this kind are cluster-scoped")
    labels = metadata.string_map("labels")
    check_labels(labels, metadata.at("labels"), metadata.report)
    annotations = metadata.string_map("annotations")
    check_annotations(annotations, metadata.at("annotations"), metadata.report)
    metadata.accept(*_SERVER_FIELDS)
    metadata.finish()
    return Metadata(name, labels, annotations, namespace)
