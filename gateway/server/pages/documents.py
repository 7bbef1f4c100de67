"""The public JSON of each page, from the parts of the processes. Pure functions."""

from __future__ import annotations

import socket
import time
from typing import TYPE_CHECKING, Final

from gateway.base.text import rfc3339
from gateway.server.pages import namespaces, overview, rollouts
from gateway.server.pages.process import FILTERS, limit_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.server.pages.state import Json, PageRequest

ASKS_ALL: Final = "admission-gateway {command} --cluster"
NOTE: Final = (
    "This is about all processes of the gateway on {host}. Other replicas are not included; "
    f'"{ASKS_ALL}" asks all of them.'
)


def page_of(path: str) -> str | None:
    """Return the name of the page at *path*; None if there is none."""
    found = {
        "/": "overview",
        "/decisions": "decisions",
        "/differences": "differences",
        "/namespaces": "namespaces",
        "/rollouts": "rollouts",
        "/configz": "configz",
        "/explain": "explain",
    }.get(path)
    for start, page in (("/decisions/", "decision"), (rollouts.PATH, "rollout")):
        if path.startswith(start) and path != start:
            return page
    return found


def merge(page: str, request: PageRequest, parts: Sequence[Json], processes: int) -> Json | None:
    """Return the JSON of *page*, from the *parts* of those of its *processes* that answered.

    Return None if there is no such decision or plan. There is at least one part, except for a form to
    explain.
    """
    host = socket.gethostname()
    note = NOTE.format(host=host, command="decisions" if page in ("decisions", "decision") else "status")
    if page in ("rollouts", "rollout"):
        note = f"Stages, gates and evidence are of all replicas, as the gateway on {host} saw them last."
    head = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": _KINDS[page],
        "scope": {"processes": processes, "answered": len(parts), "host": host, "note": note},
    }
    match page:
        case "overview":
            return head | overview.merge(parts, time.time())
        case "decisions":
            return head | _decisions(request, parts)
        case "decision":
            found = [part["decision"] for part in parts if part["decision"] is not None]
            return head | {"decision": max(found, key=lambda one: one["time"])} if found else None
        case "differences":
            found = [one for part in parts for one in part["differences"]]
            found.sort(key=lambda one: str(one["time"]), reverse=True)
            return head | {"differences": found[: limit_of(request.query)]}
        case "namespaces":
            return head | namespaces.merge(parts)
        case "rollouts":
            return head | {"plans": rollouts.merge(part["plans"] for part in parts)}
        case "rollout":
            plans = rollouts.merge([part["plan"]] for part in parts if part["plan"] is not None)
            return head | {"plan": plans[0]} if plans else None
        case "configz":
            return head | parts[0]
    return head | (parts[0] if parts else {"decisions": [], "notReached": []})


_KINDS: Final = {
    "overview": "Overview",
    "decisions": "DecisionList",
    "decision": "Decision",
    "differences": "DifferenceList",
    "namespaces": "NamespaceCounts",
    "rollouts": "RolloutPlanList",
    "rollout": "RolloutPlan",
    "configz": "Configuration",
    "explain": "Explanation",
}


def _decisions(request: PageRequest, parts: Sequence[Json]) -> Json:
    found = [one for part in parts for one in part["decisions"]]
    found.sort(key=lambda one: one["time"], reverse=True)
    return {
        "filter": {name: request.query[name] for name in FILTERS if request.query.get(name)},
        "decisions": found[: limit_of(request.query)],
        "leftOut": sum(part["leftOut"] for part in parts),
        "since": rfc3339(max(part["sinceSeconds"] for part in parts)),
    }
