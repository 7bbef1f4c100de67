"""The webhooks that the overview shows: some of many, those that need attention first."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, NamedTuple

from gateway.server.pages.notices import in_rollout
from gateway.server.pages.state import number_in

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from gateway.server.pages.state import Json

SIZE: Final = 50
"""Webhooks on a page."""
FILTERED_FROM: Final = 20
"""With more webhooks the page has a form, and those that need attention are first."""

STATES: Final = {
    "": "any",
    "attention": "needs attention",
    "denying": "denies requests",
    "rollout": "in a roll-out",
    "idle": "not called in 15 minutes",
}


class Listed(NamedTuple):
    """What is shown."""

    rows: list[Json]
    """The webhooks, each with its ``number`` in call order within its phase, from 1."""
    first: int
    """The number of the first row among those that match, from 1."""
    number: int
    """Webhooks that match."""
    has_filter: bool = False
    size: int = SIZE
    previous: dict[str, str] | None = None
    """The query of the page before; None if there is none."""
    next: dict[str, str] | None = None


def listed(overview: Json, query: Mapping[str, str]) -> Listed:
    """Return the webhooks of *overview* that *query* selects by ``name``, ``state`` and ``page``."""
    rows = _numbered(overview["webhooks"])
    if len(rows) <= FILTERED_FROM:
        return Listed(rows, 1, len(rows))
    lost = {pool["name"] for pool in overview["pools"] if not pool["ready"]}

    def rank(one: Json) -> int:
        return 0 if _needs_attention(one, lost) else 1 if one["recent"]["denied"] else 2

    states: dict[str, Callable[[Json], Any]] = {
        "attention": lambda one: _needs_attention(one, lost),
        "denying": lambda one: one["recent"]["denied"],
        "rollout": lambda one: in_rollout([one]),
        "idle": lambda one: one["timeline"] is None,
    }
    name, state = query.get("name", "").strip(), query.get("state", "")
    named = [one for one in rows if name in one["name"]]
    found = sorted(filter(states[state], named) if state in states else named, key=rank)
    pages = max(-(-len(found) // SIZE), 1)
    page = min(number_in(query, "page") or 1, pages)
    first = (page - 1) * SIZE
    before, after = ({**query, "page": str(number)} for number in (page - 1, page + 1))
    return Listed(
        *(found[first : first + SIZE], first + 1, len(found)),
        has_filter=True,
        previous=before if page > 1 else None,
        next=after if page < pages else None,
    )


def _numbered(webhooks: Sequence[Json]) -> list[Json]:
    counts: dict[str, int] = {}
    rows = []
    for one in webhooks:
        counts[one["phase"]] = counts.get(one["phase"], 0) + 1
        rows.append({**one, "number": counts[one["phase"]]})
    return rows


def _needs_attention(webhook: Json, lost_pools: set[str]) -> bool:
    recent, plan = webhook["recent"], webhook["plan"]
    return (
        bool(recent["failedClosed"] or recent["failedOpen"])
        or webhook["pool"] in lost_pools
        or (plan is not None and plan["phase"] in ("Paused", "RolledBack"))
    )
