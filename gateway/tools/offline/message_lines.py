"""The lines of denials without what joins and orders them, which differs between engines.

Source: docs/gatekeeper.md and docs/kyverno.md (lines of several constraints, messages of several policies).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gateway.pure.core.verdict import Denied

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.pure.core.outcome import Outcome

_BETWEEN: Final = re.compile(r"\r?\n|; (?=Policy )")
"""Kyverno joins the messages of its policies in CEL by a semicolon, all others are lines."""


def lines_of(messages: Iterable[str]) -> tuple[str, ...]:
    """Return the lines of *messages*, sorted, without indentation, each once."""
    found = (line.strip() for message in messages for line in _BETWEEN.split(message))
    return tuple(sorted({line for line in found if line}))


def lines_of_denials(rejections: Iterable[Outcome]) -> tuple[str, ...]:
    """Return the lines of the denials among *rejections*, without the names of their webhooks."""
    return lines_of(one.verdict.message for one in rejections if isinstance(one.verdict, Denied))
