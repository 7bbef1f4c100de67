"""Namespaces by webhooks: which namespaces have denials, failures and fail-opens, and by which webhooks."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Final

from gateway.observe.decisions.namespaces import COUNTS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.server.pages.state import Json

SHOWN_NAMESPACES: Final = 200
SHOWN_WEBHOOKS: Final = 40
"""In the table of the page; the JSON has all."""
_SHADES: Final = 5


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


def table(found: Json) -> Json:
    """Return *found*, the merged counts, as a table: ``webhooks`` as columns, ``rows`` of namespaces.

    Each cell has the counts and a ``shade`` from 0 (none) to 5 (the highest), on a logarithmic scale, because
    counts differ by orders of magnitude.
    """
    by_webhook: dict[tuple[str, str, str], int] = {}
    by_namespace: dict[str, int] = {}
    cells = {}
    for one in found["cells"]:
        count = _total(one)
        webhook = one["phase"], one["configuration"], one["webhook"]
        by_webhook[webhook] = by_webhook.get(webhook, 0) + count
        by_namespace[one["namespace"]] = by_namespace.get(one["namespace"], 0) + count
        cells[one["namespace"], webhook] = one
    webhooks = sorted(by_webhook, key=lambda webhook: -by_webhook[webhook])[:SHOWN_WEBHOOKS]
    namespaces = sorted(by_namespace, key=lambda namespace: -by_namespace[namespace])[:SHOWN_NAMESPACES]
    highest = max(map(_total, found["cells"]), default=0)
    return {
        "webhooks": [dict(zip(("phase", "configuration", "name"), one, strict=True)) for one in webhooks],
        "webhooksLeftOut": len(by_webhook) - len(webhooks),
        "namespacesLeftOut": len(by_namespace) - len(namespaces),
        "rows": [
            {
                "namespace": namespace,
                "total": by_namespace[namespace],
                "cells": [_cell(cells.get((namespace, webhook)), highest) for webhook in webhooks],
            }
            for namespace in namespaces
        ],
    }


def _cell(one: Json | None, highest: int) -> Json:
    if one is None:
        return {"count": 0, "shade": 0, **dict.fromkeys(COUNTS, 0)}
    count = _total(one)
    shade = 1 + (_SHADES - 1) * math.log(count) / math.log(highest) if highest > 1 else _SHADES
    return {"count": count, "shade": round(shade), **{name: one[name] for name in COUNTS}}


def _total(cell: Json) -> int:
    return sum(cell[name] for name in COUNTS)
