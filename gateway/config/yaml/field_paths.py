"""The text of a field's path to its parts.

Policies and problems name a field as ``spec.containers[0].image`` or as the JSON Pointer
``/spec/containers/0/image``.

Source: k8s.io/apimachinery pkg/util/validation/field/path.go (dots, indexes and keys in brackets); RFC 6901.
"""

from __future__ import annotations

import re
from typing import Final, TypeAlias

FieldPath: TypeAlias = "tuple[str | int, ...]"
"""Keys and indexes, from the root of a document or an object."""

MAX_PARTS: Final = 100
_MAX_CHARS: Final = 4096
_PART: Final = re.compile(r"""\.?([^.\[\]"']+)|\[(?:"([^"]*)"|'([^']*)'|([^\]]*))\]""")
_ROOT: Final = frozenset({"object", "self"})


def parse_field(text: str) -> FieldPath:
    """Return the parts of the path *text*; as many as can be read."""
    text = text.strip()[:_MAX_CHARS]
    if text.startswith("/"):
        parts = text.rstrip("/").split("/")[1:]
        return tuple(_index(part.replace("~1", "/").replace("~0", "~")) for part in parts[:MAX_PARTS])
    found: list[str | int] = []
    position = 1 if text.startswith("$") else 0
    while position < len(text) and len(found) < MAX_PARTS:
        match = _PART.match(text, position)
        if match is None:
            break
        name, double, single, bare = match.groups()
        if name is not None:
            found.append(name)
        elif bare is not None:
            found.append(_index(bare))
        else:
            found.append(double if double is not None else single)
        position = match.end()
    return tuple(found[1:] if found and found[0] in _ROOT else found)


def _index(text: str) -> str | int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text
