"""A namespace, from a document or a watched cluster: its labels, and the object for workers."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Mapping


@dataclass(frozen=True, slots=True)
class Namespace:
    """One namespace."""

    name: str
    labels: Mapping[str, str]
    json: bytes
    """The object as compact JSON, which workers get as ``namespace_object``."""
