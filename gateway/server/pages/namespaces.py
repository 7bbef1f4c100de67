"""Namespaces by webhooks: which namespaces have denials, failures and fail-opens, and by which webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.observe.decisions.namespaces import COUNTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.server.pages.state import Json

SHOWN_NAMESPACES: Final = 200
SHOWN_WEBHOOKS: Final = 8
"""Of each namespace, on the page; the JSON has all."""


def merge(parts: Sequence[Json]) -> Json:
    """Return the sums of *parts*, the namespaces and webhooks with the highest counts first."""
    cells: dict[tuple[str, str, str, str], Json] = {}
    for part in parts:
        for one in part["cells"]:
            key = one["namespace"], one["phase"], one["configuration"], one["webhook"]
            found = cells.setdefault(key, {**one, **dict.fromkeys(COUNTS, 0)})
            for name in COUNTS:
                found[name] += one[name]
    ordered = sorted(cells.values(), key=lambda one: (-_total(one), *_names(one)))
    return {"cells": ordered, "leftOut": sum(part["leftOut"] for part in parts)}


def _names(cell: Json) -> tuple[str, str, str, str]:
    return cell["namespace"], cell["phase"], cell["configuration"], cell["webhook"]


def table(cells: Sequence[Json]) -> Json:
    """Return *cells*, the highest first, as ``rows`` of namespaces: sums, and the first webhooks."""
    by_namespace: dict[str, list[Json]] = {}
    for one in cells:
        by_namespace.setdefault(one["namespace"], []).append(one)
    ordered = sorted(by_namespace.items(), key=lambda found: -sum(map(_total, found[1])))
    return {
        "namespacesLeftOut": max(len(ordered) - SHOWN_NAMESPACES, 0),
        "rows": [
            {
                "namespace": namespace,
                "webhooks": found[:SHOWN_WEBHOOKS],
                "webhooksLeftOut": max(len(found) - SHOWN_WEBHOOKS, 0),
                **{name: sum(one[name] for one in found) for name in COUNTS},
            }
            for namespace, found in ordered[:SHOWN_NAMESPACES]
        ],
    }


def _total(cell: Json) -> int:
    return sum(cell[name] for name in COUNTS)
