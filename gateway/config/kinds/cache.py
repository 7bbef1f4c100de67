"""``cache`` of a webhook.

Source: docs/configuration.md, cache.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from gateway.config.kinds.declare import Declared, Integer, Type, declare, required
from gateway.pure.core.webhook import Cache, CacheKey

if TYPE_CHECKING:
    from gateway.config.kinds.declare import Schema
    from gateway.config.yaml.fields import Fields

_LONGEST_TTL_S: Final = 24 * 60 * 60
_MOST_ENTRIES: Final = 65_536
_MAX_KEY_CHARS: Final = 16384


class _Key(Type["CacheKey | None"]):
    """The expression of a cache, compiled. None after a problem."""

    words = "CEL expression with a JSON value"

    def read(self, source: Fields, name: str, default: object) -> CacheKey | None:
        text = source.required_string(name)
        if not text:
            return None
        # The import takes 60 ms and 6 MB, which a configuration without expressions does not need.
        from gateway.pure.cel.errors import InvalidExpression
        from gateway.pure.conditions.cache_key import CompiledKey

        try:
            return CompiledKey(text.strip())
        except InvalidExpression as error:
            source.problem(name, str(error))
            return None

    def schema(self) -> Schema:
        return {"type": "string", "minLength": 1, "maxLength": _MAX_KEY_CHARS}


@dataclass(frozen=True, slots=True)
class CacheEntry(Declared):
    """The fields of ``cache``."""

    ttl_seconds: int = required(
        Integer(1, _LONGEST_TTL_S, "seconds"), f"From 1 to {_LONGEST_TTL_S}: how long a verdict holds"
    )
    key: CacheKey | None = required(_Key(), "Everything that the policy looks at")
    max_entries: int = declare(
        Integer(1, _MOST_ENTRIES, "verdicts"),
        f"From 1 to {_MOST_ENTRIES}. Above it, or above 16 MiB in memory, the least recently used ones go",
        default=1024,
    )

    @property
    def cache(self) -> Cache | None:
        """None after a problem."""
        return None if self.key is None else Cache(self.ttl_seconds, self.key, self.max_entries)
