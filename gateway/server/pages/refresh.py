"""Pages that a reader asks to load again and again, by a header: a page has no script."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final, NamedTuple
from urllib.parse import urlencode

from gateway.base.text import rfc3339
from gateway.server.pages.state import number_in

if TYPE_CHECKING:
    from collections.abc import Mapping

PAGES: Final = frozenset(
    {"overview", "webhook", "decisions", "differences", "namespaces", "rollouts", "rollout", "configz"}
)
"""Those that show the present state."""
LOWEST_S: Final = 5
HIGHEST_S: Final = 3600
_USUAL_S: Final = 10


class Refresh(NamedTuple):
    """When a page was made, and the links that load it again."""

    made: str
    seconds: int
    """The page is loaded again after so many; 0 for never."""
    once: str
    often: str
    stop: str


def refresh_s(page: str, query: Mapping[str, str]) -> int:
    """Return after how many seconds the browser is to load *page* again by its *query*; 0 for never."""
    seconds = number_in(query, "refresh")
    return 0 if seconds is None or page not in PAGES else min(max(seconds, LOWEST_S), HIGHEST_S)


def refresh_of(page: str, query: Mapping[str, str]) -> Refresh | None:
    """Return the links of *page* for a request with *query*; None if it does not show the present state."""
    if page not in PAGES:
        return None
    without = {name: value for name, value in query.items() if name != "refresh"}
    made = rfc3339(time.time())
    links = (_link(query), _link({**without, "refresh": str(_USUAL_S)}), _link(without))
    return Refresh(made, refresh_s(page, query), *links)


def _link(query: Mapping[str, str]) -> str:
    return "?" + urlencode(query, errors="replace")
