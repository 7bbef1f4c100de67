"""The public JSON of each page, from the parts of the processes. Pure functions."""

from __future__ import annotations

import shlex
import socket
import time
from typing import TYPE_CHECKING, Final

from gateway.base.text import rfc3339
from gateway.server.pages import groups, namespaces, overview, rollouts
from gateway.server.pages.process import FILTERS, limit_of

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.server.pages.state import Json, PageRequest

ASKS_ALL: Final = "admission-gateway {command} --cluster"
NOTE: Final = (
    "This is about all processes of the gateway on {host}. Other replicas are not included; "
    f'"{ASKS_ALL}" asks all of them.'
)


def asks_all_for(uid: str) -> str:
    """Return the command that asks all replicas for the decision *uid*, or for all decisions without one."""
    return ASKS_ALL.format(command=f"decisions {shlex.quote(uid)}" if uid else "decisions")


def page_of(path: str) -> str | None:
    """Return the name of the page at *path*; None if there is none."""
    found = {
        "/": "overview",
        "/decisions": "decisions",
        "/webhook": "webhook",
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
            names = {one: name for part in parts for one, name in part["endpointNames"].items()}
            latest = {"decision": max(found, key=lambda one: one["time"])} if found else None
            return latest and head | latest | {"endpointNames": names}
        case "webhook":
            one = _webhook(request, parts)
            return one and head | one
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
    "webhook": "Webhook",
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
    limit = limit_of(request.query)
    return {
        "filter": {name: request.query[name] for name in FILTERS if request.query.get(name)},
        "decisions": found[:limit],
        "groups": groups.merge(parts)[:limit],
        "leftOut": sum(part["leftOut"] for part in parts),
        "since": rfc3339(max(part["sinceSeconds"] for part in parts)),
    }


def _webhook(request: PageRequest, parts: Sequence[Json]) -> Json | None:
    """Return the page of a webhook; None if there is no such webhook."""
    phase, configuration, name = (request.query.get(one, "") for one in ("phase", "configuration", "name"))
    whole = overview.merge([part["overview"] for part in parts], time.time())
    wanted = {"phase": phase, "configuration": configuration, "name": name}
    found = next((one for one in whole["webhooks"] if wanted.items() <= one.items()), None)
    if found is None:
        return None
    of_cells = {"phase": phase, "configuration": configuration, "webhook": name}
    return {
        **{member: whole[member] for member in ("windowSeconds", "timelineBucketSeconds")},
        "webhook": found,
        "pools": [pool for pool in whole["pools"] if pool["name"] == found["pool"]],
        "groups": groups.merge(parts),
        "cells": [one for one in namespaces.merge(parts)["cells"] if of_cells.items() <= one.items()],
    }
