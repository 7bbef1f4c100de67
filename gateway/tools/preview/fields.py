"""Paths of fields in the texts of policies.

Policies name a field as ``spec.containers[0].image`` (``causes[].field``, and often in messages) or as the
JSON Pointer ``/spec/containers/0/image``.

Source: k8s.io/apimachinery pkg/util/validation/field/path.go (dots, indexes and keys in brackets); RFC 6901.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from gateway.tools.preview.positions import Path

MAX_PARTS: Final = 100
_MAX_CHARS: Final = 4096
_PART: Final = re.compile(r"""\.?([^.\[\]"']+)|\[(?:"([^"]*)"|'([^']*)'|([^\]]*))\]""")
_KNOWN: Final = r"(?:spec|metadata|data|stringData|rules|subjects|roleRef|webhooks|template)"
_KEY: Final = r"""[A-Za-z0-9_$-]+"""
_IN_TEXT: Final = re.compile(
    rf"""(?<![\w./-]){_KNOWN}(?:\.{_KEY}|\[(?:\d{{1,9}}|"[^"\]]{{1,300}}"|'[^'\]]{{1,300}}'|[\w./-]{{1,300}})\])+"""
    rf"""|(?<![\w./-])/{_KNOWN}(?:/[\w.~-]+)+"""
)
_ROOT: Final = frozenset({"object", "self"})


def parse_field(text: str) -> Path:
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


def field_in(message: str) -> str:
    """Return the first path of a field that *message* names; empty if it names none."""
    found = _IN_TEXT.search(message[:_MAX_CHARS])
    return found[0].rstrip(".") if found else ""


def _index(text: str) -> str | int:
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else text
