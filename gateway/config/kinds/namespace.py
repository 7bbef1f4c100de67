"""Namespace of Kubernetes.

Source: k8s.io/kubernetes pkg/apis/core/v1/defaults.go (the label with its name),
pkg/apis/core/validation/validation.go (its syntax).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import dns_1123_label
from gateway.pure.core.namespace import Namespace

if TYPE_CHECKING:
    from gateway.config.yaml.fields import Fields

NAME_LABEL: Final = "kubernetes.io/metadata.name"


def read_namespace(fields: Fields) -> Namespace:
    """Return the Namespace behind *fields*, with the label that the API server adds to every namespace."""
    metadata = read_metadata(fields, dns_1123_label)
    for name in ("spec", "status"):
        fields.mapping(name)
    fields.finish()
    labels = metadata.labels | {NAME_LABEL: metadata.name}
    written = fields.content.get("metadata")
    shown_metadata = {**(written if isinstance(written, dict) else {}), "labels": labels}
    document = {**fields.content, "metadata": shown_metadata}
    return Namespace(metadata.name, labels, orjson.dumps(document))
