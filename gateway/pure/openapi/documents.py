"""OpenAPI documents: reduced to what the gateway needs, and those that come with it."""

from __future__ import annotations

import gzip
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.pure.openapi.schemas import Schemas

if TYPE_CHECKING:
    from collections.abc import Mapping

FILE: Final = Path(__file__).with_name("built-in.json.gz")
KINDS: Final = "x-kubernetes-group-version-kind"
_KEPT: Final = {
    "$ref",
    "additionalProperties",
    "allOf",
    "default",
    "format",
    "items",
    "properties",
    "type",
    KINDS,
    "x-kubernetes-embedded-resource",
    "x-kubernetes-int-or-string",
    "x-kubernetes-list-map-keys",
    "x-kubernetes-list-type",
    "x-kubernetes-map-type",
    "x-kubernetes-patch-merge-key",
    "x-kubernetes-patch-strategy",
    "x-kubernetes-preserve-unknown-fields",
}
_PATCHES: Final = ("x-kubernetes-patch-merge-key", "x-kubernetes-patch-strategy")


def reduced(document: Mapping[str, Any]) -> dict[str, Any]:
    """Return the OpenAPI v3 *document* with what merging and the types of expressions depend on: a tenth."""
    schemas = (document.get("components") or {}).get("schemas") or {}
    return {"components": {"schemas": {name: _schema(each) for name, each in schemas.items()}}}


def _schema(schema: Mapping[str, Any]) -> dict[str, Any]:
    kept = {name: value for name, value in schema.items() if name in _KEPT}
    if "x-kubernetes-list-type" in kept:
        for name in _PATCHES:
            kept.pop(name, None)
    for name in kept.keys() & {"items", "additionalProperties"}:
        if isinstance(kept[name], dict):
            kept[name] = _schema(kept[name])
    if "properties" in kept:
        kept["properties"] = {name: _schema(each) for name, each in kept["properties"].items()}
    if "allOf" in kept:
        kept["allOf"] = [_schema(each) for each in kept["allOf"]]
    return kept


@cache
def built_in_schemas() -> Schemas:
    """Return the schemas of Kubernetes' own kinds, for clusters that the gateway cannot read.

    They are read when they are first needed, which takes milliseconds.
    """
    return Schemas([orjson.loads(gzip.decompress(FILE.read_bytes()))])
