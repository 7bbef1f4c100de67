"""ObjectMeta and LabelSelector of meta/v1.

Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go, pkg/api/validation/objectmeta.go,
pkg/apis/meta/v1/validation/validation.go (ValidateLabelSelector).
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, TypeVar, get_args

from gateway.base.text import one_of, shown
from gateway.config.kinds.declare import Choice, Declared, Groups, Read, Text, Type, declare, required
from gateway.config.kinds.names import (
    KEY_LENGTH,
    LABEL_LENGTH,
    NAME_PART,
    QUALIFIED,
    check_annotations,
    check_labels,
    dns_1123_label,
    label_value,
    qualified_name,
)
from gateway.config.yaml.fields import child
from gateway.pure.core.labels import EVERYTHING, Operator, Requirement, Selector

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.kinds.declare import Row, Schema
    from gateway.config.yaml.fields import Check, Fields

C = TypeVar("C", bound=str)
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


def annotated(fields: Fields, metadata: Metadata, key: str, allowed: tuple[C, ...]) -> C | None:
    """Return the value of the annotation *key*, one of *allowed*, of the object behind *fields*.

    None without the annotation, or after a problem.
    """
    text = metadata.annotations.get(key)
    value = next((one for one in allowed if one == text), None)
    if text is not None and value is None:
        path = child(child(fields.at("metadata"), "annotations"), key)
        fields.problems.add(path, f"found {shown(text)}, expected {one_of(allowed)}")
    return value


_MAX_ENTRIES = 50
"""Entries of each list in a selector of a custom resource: without a bound it could have no rules."""
_VALUE: dict[str, Any] = {"type": "string", "maxLength": LABEL_LENGTH, "pattern": f"^({NAME_PART})?$"}
_KEY_RULE = {
    "rule": f"self.all(key, key.size() <= {KEY_LENGTH} && key.matches(r'^{QUALIFIED}$'))",
    "message": "a key is a name, perhaps with a DNS name and a slash before it",
}
_LABELS: dict[str, Any] = {
    "maxProperties": _MAX_ENTRIES,
    "additionalProperties": _VALUE,
    "x-kubernetes-validations": [_KEY_RULE],
}
_VALUES_RULE = {
    "rule": "(self.operator in ['In', 'NotIn']) == (has(self.values) && self.values.size() > 0)",
    "message": "values are required with In and NotIn, and have to be left out with Exists and DoesNotExist",
}


def _read_labels(source: Fields, name: str) -> dict[str, str]:
    labels = source.string_map(name)
    check_labels(labels, source.at(name), source.problems)
    return labels


def _read_values(source: Fields, name: str) -> tuple[str, ...]:
    return source.strings(name, label_value)


@dataclass(frozen=True, slots=True)
class _Condition(Declared):
    """One condition of a selector. Most configurations have some: its rule is checked without CEL."""

    key: str = required(
        Text("label key", qualified_name, maxLength=KEY_LENGTH, pattern=f"^{QUALIFIED}$"), "Label key"
    )
    operator: Operator = required(Choice(OPERATORS), "How the label relates to the values")
    values: tuple[str, ...] = declare(
        Read("list of label values", _read_values, "array", maxItems=_MAX_ENTRIES, items=_VALUE),
        "Required with `In` and `NotIn`, refused with the others",
        default=(),
    )

    def check(self, source: Fields) -> None:
        """Report values that do not fit the operator."""
        needs_values, has_values = self.operator in ("In", "NotIn"), bool(source.content.get("values"))
        if source.content.get("operator") in OPERATORS and needs_values != has_values:
            expected = "required" if needs_values else "not allowed"
            source.problem("values", f"is {expected} with the operator {self.operator}")

    @classmethod
    def schema(cls, *, is_custom: bool = False) -> Schema:
        """As in the class above, with the rule."""
        # The zero-argument form of super does not know the class with slots.
        return {**super(_Condition, cls).schema(), "x-kubernetes-validations": [_VALUES_RULE]}


@dataclass(frozen=True, slots=True)
class _Selector(Declared):
    match_labels: dict[str, str] = declare(
        Read("mapping of labels", _read_labels, "object", **_LABELS),
        "Labels and their required values",
        default={},
    )
    match_expressions: tuple[_Condition, ...] = declare(
        Groups(_Condition, maxItems=_MAX_ENTRIES), "Conditions that all have to hold", default=()
    )


class LabelSelector(Type[Selector]):
    """A selector of labels. An absent one selects everything."""

    words = "LabelSelector"

    def read(self, source: Fields, name: str, default: object) -> Selector:
        """As in :class:`Type`."""
        return read_selector(source.mapping(name))

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return _Selector.schema()

    def written(self, value: Selector) -> str:
        """As in :class:`Type`."""
        return ""

    def rows(self, path: str) -> Iterator[Row]:
        """As in :class:`Type`."""
        return _Selector.rows(f"{path}.")


def read_selector(fields: Fields | None) -> Selector:
    """Return the selector behind *fields*; an absent selector, None, selects everything."""
    if fields is None:
        return EVERYTHING
    found = _Selector.read(fields)
    requirements = [Requirement(key, "In", frozenset({value})) for key, value in found.match_labels.items()]
    for one in found.match_expressions:
        requirements.append(Requirement(one.key, one.operator, frozenset(one.values)))
    return Selector(tuple(requirements))
