"""What replicas have seen in one stage of a plan: the evidence on which its gates decide.

Each replica counts for itself, in a :class:`Tally`, and publishes a :class:`Part`. The process that decides
merges the parts of all replicas into :class:`Evidence`.

1. Merging is commutative, associative and idempotent. Of one source the part with the higher sequence counts.
   A source is one start of one replica: counts that begin again are those of another source.
2. Evidence is of one window. A window ends with every decision, so nothing that was seen under what was in
   force before counts for what is in force now.
3. Dry runs are no evidence. Nor are reviews of which the webhook's answer is not known.
4. Everything is bounded. A set that is full says that there is more.
"""

from __future__ import annotations

import hashlib
from bisect import bisect_left
from dataclasses import dataclass, field
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final

from gateway.pure.core.workload import controller_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Json = dict[str, Any]

MAX_SOURCES: Final = 256
"""Starts of replicas in one window."""
MAX_OWNERS: Final = 200
"""Owners, each with its namespace, that a part names."""
MAX_SEEN: Final = 200
"""Namespaces, and users, that a part counts."""
MAX_NAME: Final = 300
"""Characters of the name of an owner."""
MAX_COUNT: Final = 2**53
BOUNDS_MS: Final = (
    *(1, 2, 3, 4, 5, 6, 8, 10, 12, 15, 20, 25, 30, 40, 50, 60, 80, 100, 120, 150, 200, 250, 300, 400, 500),
    *(600, 800, 1000, 1200, 1500, 2000, 2500, 3000, 4000, 5000, 6000, 8000, 10000, 15000, 20000, 30000),
)
"""Upper bounds of the buckets of latencies. One more bucket has what is longer."""
MIN_LATENCIES: Final = 100
"""A 99th percentile of fewer calls is only their maximum."""


class InvalidEvidence(ValueError):
    """The document is not evidence."""


@dataclass(frozen=True, slots=True)
class Seen:
    """A set of texts with a bound."""

    items: frozenset[str] = frozenset()
    has_more: bool = False

    def __len__(self) -> int:
        """Return how many there are at least."""
        return len(self.items) + self.has_more

    def __or__(self, other: Seen) -> Seen:
        """Return the union, whose size is bounded by the number of parts."""
        return Seen(self.items | other.items, self.has_more or other.has_more)


NOTHING: Final = Seen()


@dataclass(frozen=True, slots=True)
class Part:
    """What one source has seen in one window."""

    sequence: int = 0
    """How much it has counted: a later part has more."""
    reviews: int = 0
    """Answers of the webhook, failures among them."""
    enforced: int = 0
    """Those of them where it is enforced."""
    namespaces: Seen = NOTHING
    """Digests of the namespaces of these reviews."""
    users: Seen = NOTHING
    newly_denied: int = 0
    newly_denied_owners: Seen = NOTHING
    """``NAMESPACE KIND/NAME``."""
    denied: int = 0
    denied_owners: Seen = NOTHING
    compared: int = 0
    differences: int = 0
    failures: int = 0
    exception_uses: int = 0
    latencies: tuple[int, ...] = (0,) * (len(BOUNDS_MS) + 1)
    """Calls in each bucket."""

    def as_json(self) -> Json:
        """Return it as JSON."""
        return {
            **{name: getattr(self, attribute) for name, attribute in _COUNTS.items()},
            **{
                name: {"items": sorted(seen.items), "hasMore": seen.has_more}
                for name, attribute, _ in _SETS
                for seen in (getattr(self, attribute),)
            },
            "latencies": list(self.latencies),
        }

    @classmethod
    def from_json(cls, document: object) -> Part:
        """Return the part in *document*.

        Raises:
            InvalidEvidence: *document* is not what ``as_json`` makes.
        """
        found = _mapping(document, "the part")
        values: dict[str, Any] = {one: _count(found.get(name), name) for name, one in _COUNTS.items()}
        for name, attribute, bound in _SETS:
            values[attribute] = _seen(found.get(name), name, bound)
        latencies = found.get("latencies")
        if not isinstance(latencies, list) or len(latencies) != len(BOUNDS_MS) + 1:
            raise InvalidEvidence(f"latencies: expected a list of {len(BOUNDS_MS) + 1} counts")
        return cls(**values, latencies=tuple(_count(one, "latencies") for one in latencies))


_COUNTS: Final = {
    "sequence": "sequence",
    "reviews": "reviews",
    "enforced": "enforced",
    "newlyDenied": "newly_denied",
    "denied": "denied",
    "compared": "compared",
    "differences": "differences",
    "failures": "failures",
    "exceptionUses": "exception_uses",
}
_SETS: Final = (
    ("namespaces", "namespaces", MAX_SEEN),
    ("users", "users", MAX_SEEN),
    ("newlyDeniedOwners", "newly_denied_owners", MAX_OWNERS),
    ("deniedOwners", "denied_owners", MAX_OWNERS),
)


@dataclass(frozen=True, slots=True)
class Evidence:
    """What all sources have seen in one window."""

    window: str
    """``PlanState.evidence_window``."""
    parts: Mapping[str, Part] = field(default_factory=dict)
    """By source. A source with an empty part has seen nothing, and is there."""
    is_partial: bool = False
    """Whether there are further parts, which are not known."""

    def merged(self, other: Evidence) -> Evidence:
        """Return this and *other*; of another window nothing counts."""
        if other.window != self.window:
            return self
        parts = dict(self.parts)
        for source, part in other.parts.items():
            mine = parts.get(source)
            parts[source] = part if mine is None else max(mine, part, key=_rank)
        return Evidence(self.window, parts, self.is_partial or other.is_partial)

    @property
    def total(self) -> Part:
        """The sum of all parts."""
        parts = self.parts.values()
        values: dict[str, Any] = {one: sum(getattr(part, one) for part in parts) for one in _COUNTS.values()}
        for _, attribute, _ in _SETS:
            seen = NOTHING
            for part in parts:
                seen |= getattr(part, attribute)
            values[attribute] = seen
        columns = zip(*(part.latencies for part in parts), strict=True)
        return Part(**values, latencies=tuple(map(sum, columns)) if self.parts else Part().latencies)


def p99_ms(latencies: tuple[int, ...]) -> float | None:
    """Return the lower bound of the bucket with the 99th percentile; None for too few calls.

    So a limit is compared with it as if it were rounded up to the next bound.
    """
    number = sum(latencies)
    if number < MIN_LATENCIES:
        return None
    wanted = -(-number * 99 // 100)
    index = next(index for index, below in enumerate(accumulate(latencies)) if below >= wanted)
    return BOUNDS_MS[index - 1] if index else 0


def namespaces_of(owners: Seen) -> set[str]:
    """Return the namespaces of *owners*. Objects without a namespace are in none."""
    return {one.partition(" ")[0] for one in owners.items} - {""}


def names_of(owners: Seen) -> set[str]:
    """Return *owners* without their namespaces: owners of equal kind and name are one."""
    return {one.partition(" ")[2] for one in owners.items}


def owner_of(found: object, kind: str) -> str:
    """Return the owner of the object *found* of *kind*, ``KIND/NAME``: its controller, or else itself.

    A controller that tries again is one owner, however many Pods it makes. Of a Secret it is a digest instead
    of the name, as logs and reports leave such names out.
    """
    controller = controller_of(found)
    if controller is not None:
        return f"{controller.get('kind')}/{controller.get('name')}"[:MAX_NAME]
    metadata = found.get("metadata") if isinstance(found, dict) else None
    metadata = metadata if isinstance(metadata, dict) else {}
    name = str(metadata.get("name") or metadata.get("generateName") or "")
    if kind == "Secret":
        name = hashlib.sha256(name.encode(errors="replace")).hexdigest()[:12]
    return f"{kind}/{name}"[:MAX_NAME]


class Tally:
    """Counts what one source sees in one window."""

    def __init__(self) -> None:
        self._counts = dict.fromkeys(_COUNTS.values(), 0)
        self._seen: dict[str, set[str]] = {attribute: set() for _, attribute, _ in _SETS}
        self._more: set[str] = set()
        self._latencies = [0] * (len(BOUNDS_MS) + 1)

    def answered(
        self,
        namespace: str,
        user: str,
        seconds: float | None = None,
        *,
        is_failure: bool = False,
        refuses: bool = False,
        is_enforced: bool = False,
        owner: str = "",
    ) -> None:
        """Count an answer of the webhook, which took *seconds* if a call was made.

        *refuses* is whether it refuses the request, or would if it were enforced. *owner* is ``owner_of`` the
        object.
        """
        self._add("reviews")
        self._add("enforced", is_enforced)
        self._add("failures", is_failure)
        if namespace:
            self._see("namespaces", _short(namespace), MAX_SEEN)
        self._see("users", _short(user), MAX_SEEN)
        if seconds is not None:
            self._latencies[bisect_left(BOUNDS_MS, seconds * 1000)] += 1
        if refuses:
            name = "denied" if is_enforced else "newly_denied"
            self._add(name)
            self._see(f"{name}_owners", f"{namespace} {owner}"[:MAX_NAME], MAX_OWNERS)

    def compared(self, *, is_different: bool) -> None:
        """Count a comparison of the candidate with the client in force."""
        self._add("compared")
        self._add("differences", is_different)

    def excepted(self) -> None:
        """Count a request for which an exception left the webhook out."""
        self._add("exception_uses")

    def part(self) -> Part:
        """Return what has been counted."""
        seen = {name: Seen(frozenset(items), name in self._more) for name, items in self._seen.items()}
        values: dict[str, Any] = self._counts | seen
        return Part(**values, latencies=tuple(self._latencies))

    def _add(self, name: str, number: int = 1) -> None:
        self._counts[name] += number
        self._counts["sequence"] += number

    def _see(self, name: str, text: str, bound: int) -> None:
        items = self._seen[name]
        if len(items) < bound:
            items.add(text)
        elif text not in items:
            self._more.add(name)


def _short(text: str) -> str:
    """Return a digest of *text*: evidence says how many there are, not who."""
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]


def _rank(part: Part) -> tuple[int, str]:
    return part.sequence, repr(sorted(part.as_json().items()))


def _mapping(value: object, name: str) -> Json:
    if not isinstance(value, dict):
        raise InvalidEvidence(f"{name}: expected a mapping")
    return value


def _count(value: object, name: str) -> int:
    if type(value) is not int or not 0 <= value <= MAX_COUNT:
        raise InvalidEvidence(f"{name}: expected a count from 0 to {MAX_COUNT}")
    return value


def _seen(value: object, name: str, bound: int) -> Seen:
    found = _mapping(value, name)
    items: Iterable[object] = found.get("items")  # type: ignore[assignment]
    if not isinstance(items, list) or len(items) > bound:
        raise InvalidEvidence(f"{name}.items: expected a list of at most {bound} texts")
    texts = frozenset(one for one in items if isinstance(one, str) and len(one) <= MAX_NAME)
    if len(texts) != len(items) or not isinstance(found.get("hasMore"), bool):
        raise InvalidEvidence(
            f"{name}: expected different texts of at most {MAX_NAME} characters, and hasMore"
        )
    return Seen(texts, found["hasMore"])
