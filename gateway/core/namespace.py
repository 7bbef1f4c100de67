"""A namespace as reviews see it: labels for namespaceSelectors, and the object that workers are shown.

Where it comes from, a document or a watched cluster, is nothing that the core knows.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Namespace:
    """What there is to know of one namespace."""

    name: str
    labels: Mapping[str, str]
    json: bytes
    """The object as compact JSON, handed to workers as ``namespace_object``."""
