"""``cache`` of a webhook: the key of its verdicts, and how long they hold."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.core.webhook import Cache

if TYPE_CHECKING:
    from gateway.config.fields import Fields
    from gateway.pure.core.webhook import SideEffects

LONGEST_TTL_S: Final = 24 * 60 * 60
DEFAULT_ENTRIES: Final = 1024
MOST_ENTRIES: Final = 65_536


def read_cache(webhook: Fields, side_effects: SideEffects) -> Cache | None:
    """Return the cache of *webhook*, which has these *side_effects*; None if it has no valid one."""
    fields = webhook.mapping("cache")
    if fields is None:
        return None
    if not fields.has("ttlSeconds"):
        fields.problem("ttlSeconds", f"is required, expected 1 to {LONGEST_TTL_S}")
    ttl_s = fields.integer("ttlSeconds", 1, 1, LONGEST_TTL_S)
    max_entries = fields.integer("maxEntries", DEFAULT_ENTRIES, 1, MOST_ENTRIES)
    expression = fields.required_string("key").strip()
    fields.finish()
    if side_effects != "None":
        webhook.problem("cache", f"requires sideEffects None, found {side_effects}: calls are left out")
    if not expression:
        return None
    # The import takes 60 ms and 6 MB, which a configuration without expressions does not need.
    from gateway.pure.cel.errors import InvalidExpression
    from gateway.pure.conditions.cache_key import CompiledKey

    try:
        return Cache(ttl_s, CompiledKey(expression), max_entries)
    except InvalidExpression as error:
        fields.problem("key", str(error))
        return None
