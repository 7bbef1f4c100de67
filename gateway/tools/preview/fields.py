"""Paths of fields in the messages of policies."""

from __future__ import annotations

import re
from typing import Final

_MAX_CHARS: Final = 4096
_KNOWN: Final = r"(?:spec|metadata|data|stringData|rules|subjects|roleRef|webhooks|template)"
_KEY: Final = r"""[A-Za-z0-9_$-]+"""
_IN_TEXT: Final = re.compile(
    rf"""(?<![\w./-]){_KNOWN}(?:\.{_KEY}|\[(?:\d{{1,9}}|"[^"\]]{{1,300}}"|'[^'\]]{{1,300}}'|[\w./-]{{1,300}})\])+"""
    rf"""|(?<![\w./-])/{_KNOWN}(?:/[\w.~-]+)+"""
)


def field_in(message: str) -> str:
    """Return the first path of a field that *message* names; empty if it names none."""
    found = _IN_TEXT.search(message[:_MAX_CHARS])
    return found[0].rstrip(".") if found else ""
