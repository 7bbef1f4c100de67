"""The class that is marked as the default, of StorageClasses or IngressClasses.

Source: kubernetes pkg/volume/util storageclass.go; plugin/pkg/admission/network/defaultingressclass.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable


def default_class(classes: Iterable[dict[str, Any]], *annotations: str) -> str | None:
    """Return the name of the newest class with one of *annotations* ``true``; by name if equally old."""
    marked = [
        each["metadata"]
        for each in classes
        if any((each["metadata"].get("annotations") or {}).get(name) == "true" for name in annotations)
    ]
    by_name = sorted(marked, key=lambda metadata: str(metadata["name"]))
    # Times of creation are RFC 3339 in UTC with whole seconds, so that their texts compare.
    newest = max(by_name, key=lambda metadata: str(metadata.get("creationTimestamp") or ""), default=None)
    return None if newest is None else newest["name"]
