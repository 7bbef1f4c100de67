"""ObjectMeta and LabelSelector of meta/v1.

Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go, pkg/api/validation/objectmeta.go,
pkg/apis/meta/v1/validation/validation.go (ValidateLabelSelector).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, get_args

from gateway.config.kinds.names import (
    check_annotations,
    check_labels,
    dns_1123_label,
    label_value,
    qualified_name,
)
from gateway.pure.core.labels import EVERYTHING, Operator, Requirement, Selector

if TYPE_CHECKING:
    from gateway.config.yaml.fields import Check, Fields

OPERATORS: tuple[Operator, ...] = get_args(Operator)
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
    """Empty if it is missing, which is a problem."""
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
    check_labels(labels, metadata.at("labels"), metadata.problems)
    annotations = metadata.string_map("annotations")
    check_annotations(annotations, metadata.at("annotations"), metadata.problems)
    metadata.accept(*_SERVER_FIELDS)
    metadata.finish()
    return Metadata(name, labels, annotations, namespace)


def read_selector(fields: Fields | None) -> Selector:
    """Return the selector behind *fields*; an absent selector, None, selects everything."""
    if fields is None:
        return EVERYTHING
    match_labels = fields.string_map("matchLabels")
    check_labels(match_labels, fields.at("matchLabels"), fields.problems)
    requirements = [Requirement(key, "In", frozenset({value})) for key, value in match_labels.items()]
    requirements.extend(map(_read_requirement, fields.mappings("matchExpressions")))
    fields.finish()
    return Selector(tuple(requirements))


def _read_requirement(fields: Fields) -> Requirement:
    key = fields.required_string("key", qualified_name)
    operator = fields.choice("operator", OPERATORS)
    is_known = fields.content.get("operator") in OPERATORS
    values = fields.strings("values", label_value)
    has_values = bool(fields.content.get("values"))
    if is_known and operator in {"In", "NotIn"} and not has_values:
        fields.problem("values", f"is required with the operator {operator}")
    if is_known and operator in {"Exists", "DoesNotExist"} and has_values:
        fields.problem("values", f"is not allowed with the operator {operator}")
    fields.finish()
    return Requirement(key, operator, frozenset(values))
