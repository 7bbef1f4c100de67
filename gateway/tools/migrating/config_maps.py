"""The ConfigMaps from which workers read documents before the switch: as many as hold them.

Source: kubernetes/kubernetes pkg/apis/core/validation/validation.go, ValidateConfigMap;
pkg/apis/core/types.go, MaxSecretSize.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Mapping

HOLDS_BYTES: Final = 1024 * 1024
"""An API server takes no larger values of a ConfigMap, in all."""
FILLED_BYTES: Final = 1_000_000
"""What is put into one with several files: the object has their names and its metadata too."""


def parts(texts: Mapping[str, str]) -> tuple[list[dict[str, str]], dict[str, str]]:
    """Return *texts*, by file, in groups that a ConfigMap holds each, and those that none holds.

    Files are taken in the order of their names, so that the same documents give the same groups.
    """
    groups: list[dict[str, str]] = []
    too_large: dict[str, str] = {}
    filled = 0
    for name, text in sorted(texts.items()):
        size = size_of(text)
        if size > HOLDS_BYTES:
            too_large[name] = text
            continue
        if not groups or filled + size > FILLED_BYTES:
            groups.append({})
            filled = 0
        groups[-1][name] = text
        filled += size
    return groups, too_large


def size_of(text: str) -> int:
    """Return the bytes of *text* in a ConfigMap."""
    return len(text.encode("utf-8", "surrogatepass"))
