"""What a roll-out would change: the counts by which somebody decides to enforce a webhook or a candidate."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.server.pages.state import Json


def in_rollout(webhooks: Iterable[Json]) -> list[Json]:
    """Return those of *webhooks*, of an overview, that are not enforced everywhere or have a candidate.

    A webhook of which a mode let something pass since the start is one of them, whatever its mode is now.
    """
    return [webhook for webhook in webhooks if _is_in_rollout(webhook)]


def _is_in_rollout(webhook: Json) -> bool:
    total, rollout = webhook["total"], webhook.get("rollout") or {}
    return (
        webhook["mode"] not in ("", "Enforce")
        or bool(rollout.get("percentOfReviewsForCandidate"))
        or any((total["wouldBeDenied"], total["wouldFailClosed"], total["candidate"]["compared"]))
    )
