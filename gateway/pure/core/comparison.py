"""How the answer of a candidate differs from that of the client in force, for the same request and object.

Objects are compared as they are after the patches, so two patches with the same effect are equal.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from admission_gateway_worker.json_patch.diff import diff
from gateway.pure.core.outcome import object_after
from gateway.pure.core.verdict import Allowed, Denied

if TYPE_CHECKING:
    from collections.abc import Generator

    from gateway.pure.core.outcome import Outcome

DifferenceKind = Literal["newly_denied", "newly_allowed", "failed", "code", "message", "warnings", "object"]
"""``failed``: the candidate gave no usable answer. ``message``: also reason, causes and details."""

MAX_PATHS: Final = 20
"""Paths of a difference between objects; more are left out."""


@dataclass(frozen=True, slots=True)
class Comparison:
    """The differences; none if the answers are equal."""

    kinds: tuple[DifferenceKind, ...] = ()
    paths: tuple[str, ...] = ()
    """JSON Pointers of the parts of the object that differ."""


def is_sampled(uid: str, percent: float) -> bool:
    """Whether the review *uid* is one of the *percent* that a candidate gets; equal for equal uids."""
    digest = hashlib.sha256(uid.encode(errors="replace")).digest()
    return int.from_bytes(digest[:8], "big") * 100 < percent * 2**64


def compare(in_force: Outcome, candidate: Outcome) -> Generator[None, None, Comparison]:
    """Return how *candidate* differs from *in_force*, which is not a failure; yields between steps.

    Raises:
        RecursionError, TypeError: an object nests too deeply.
    """
    mine, other = in_force.verdict, candidate.verdict
    if not isinstance(mine, Allowed | Denied) or not isinstance(other, Allowed | Denied):
        return Comparison(("failed",))
    kinds: list[DifferenceKind] = []
    paths: tuple[str, ...] = ()
    if isinstance(mine, Allowed) and isinstance(other, Denied):
        kinds.append("newly_denied")
    elif isinstance(mine, Denied) and isinstance(other, Allowed):
        kinds.append("newly_allowed")
    elif isinstance(mine, Denied) and isinstance(other, Denied):
        if mine.code != other.code:
            kinds.append("code")
        if _text(mine) != _text(other):
            kinds.append("message")
    elif isinstance(mine, Allowed) and isinstance(other, Allowed) and mine.patch != other.patch:
        before = yield from object_after(in_force)
        after = yield from object_after(candidate)
        operations = diff(before, after, MAX_PATHS)
        if operations:
            kinds.append("object")
            paths = tuple(str(operation["path"]) for operation in operations[:MAX_PATHS])
    if mine.warnings != other.warnings:
        kinds.append("warnings")
    return Comparison(tuple(kinds), paths)


def _text(denied: Denied) -> tuple[object, ...]:
    return denied.message, denied.reason, denied.causes, denied.details
