"""The exceptions of the configuration in force, and their uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.server.pages.state import rfc_3339

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.observe.telemetry.exception_uses import Uses
    from gateway.pure.core.exemptions import PolicyException
    from gateway.server.pages.state import Json

SHOWN: Final = 200


def part(exceptions: Sequence[PolicyException], uses: Mapping[str, Uses]) -> list[Json]:
    """Return the first *exceptions* by id, each with its *uses* by this process; null if not counted."""
    found = []
    for one in exceptions[:SHOWN]:
        used = uses.get(one.id)
        found.append(
            {
                "name": one.id,
                "webhooks": list(one.webhooks),
                "reason": one.reason,
                "owner": one.owner,
                "expires": one.expires,
                "expiresAtSeconds": one.expires_at,
                "uses": None if used is None else used.number,
                "lastUseSeconds": 0.0 if used is None else used.last_at,
            }
        )
    return found


def merged(parts: Iterable[Sequence[Json]], now: float) -> list[Json]:
    """Return the exceptions of the *parts* of all processes; *now* is in seconds since 1970."""
    found: dict[str, Json] = {}
    for one in (one for exceptions in parts for one in exceptions):
        known = found.setdefault(one["name"], one)
        if known is not one and one["uses"] is not None:
            known["uses"] = (known["uses"] or 0) + one["uses"]
            known["lastUseSeconds"] = max(known["lastUseSeconds"], one["lastUseSeconds"])
    return [_document(one, now) for one in found.values()]


def _document(one: Json, now: float) -> Json:
    end, last_use = one["expiresAtSeconds"], one["lastUseSeconds"]
    members = ("name", "webhooks", "reason", "owner", "expires", "uses")
    return {
        **{name: one[name] for name in members},
        "remainingSeconds": None if end is None else round(end - now),
        "lastUse": rfc_3339(last_use) if last_use else "",
    }
