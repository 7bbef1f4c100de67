"""Namespace of Kubernetes.

Source: k8s.io/kubernetes pkg/apis/core/v1/defaults.go (the label with its name),
pkg/apis/core/validation/validation.go (its syntax).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

import orjson

from gateway.config.kinds.declare import Declared, Read, Row, optional
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import dns_1123_label
from gateway.pure.core.namespace import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.yaml.fields import Fields

NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Set by the API server on every namespace; immutable."""
KUBE_SYSTEM: Final = "kube-system"


def _read_mapping(source: Fields, name: str) -> Fields | None:
    return source.mapping(name)


@dataclass(frozen=True, slots=True)
class _Shown(Declared):
    spec: Fields | None = optional(Read("mapping", _read_mapping, "object"), "Shown to workers")
    status: Fields | None = optional(Read("mapping", _read_mapping, "object"), "Shown to workers")


def rows() -> Iterator[Row]:
    """Yield the rows of the documentation."""
    about = f"`{NAME_LABEL}` is added, as kube-apiserver does"
    yield Row("metadata.labels", "mapping of strings", "none", about)
    yield from _Shown.rows()


def read_namespace(fields: Fields) -> Namespace:
    """Return the Namespace behind *fields*, with the label that the API server adds to every namespace."""
    metadata = read_metadata(fields, dns_1123_label)
    _Shown.read(fields)
    labels = metadata.labels | {NAME_LABEL: metadata.name}
    written = fields.content.get("metadata")
    shown_metadata = {**(written if isinstance(written, dict) else {}), "labels": labels}
    document = {**fields.content, "metadata": shown_metadata}
    return Namespace(metadata.name, labels, orjson.dumps(document))
