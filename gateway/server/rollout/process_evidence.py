"""What a store keeps of the evidence of each process: what plans are judged by, with a bound on its memory.

Others may write evidence too, of any size and content. What is counted stays JSON until a plan is judged: it
would take ten times the memory as objects.
"""

from __future__ import annotations

import sys
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import orjson

from gateway.pure.rollout_plan.evidence import Evidence, Part
from gateway.server.rollout.room import Room

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Json = dict[str, Any]

_MAX_EVIDENCE: Final = 256
"""Processes that have seen requests since the last step of a plan."""
_MAX_BYTES: Final = 64 * 1024 * 1024
"""Of memory, for the evidence of all processes."""
_MAX_NAME: Final = 64
"""Characters of the name of a plan, of its generation and of its window."""
_ENTRY_BYTES: Final = 400
"""Of memory, for a plan without its texts, and for a process without its plans."""


class SeenPlan(NamedTuple):
    """What a process says of one plan."""

    generation: str = ""
    """The digest of the plan that it has, or what it has in place of one."""
    window: str = ""
    part: bytes = b""
    """JSON, which may be anything. Empty: it cannot be read."""


UNSEEN: Final = SeenPlan()


def room_for_evidence() -> Room:
    """Return the room for the evidence that a process keeps."""
    return Room(_MAX_EVIDENCE, _MAX_BYTES)


@dataclass(frozen=True, slots=True)
class ProcessEvidence:
    """The evidence of one process."""

    name: str
    version: str
    """Changes with each write. It has no other meaning."""
    has_ended: bool
    """Whether the process ended in an orderly way."""
    plans: Mapping[str, SeenPlan]
    size: int = field(compare=False)
    """Bytes of memory, estimated."""

    def of(self, plan: str) -> SeenPlan:
        """Return what it says of *plan*, the name of a state."""
        return self.plans.get(plan, UNSEEN)


def read_evidence(name: str, document: Json, version: str) -> ProcessEvidence:
    """Return what is kept of *document*, the evidence of the process *name*. What is odd is left out."""
    found = document.get("plans")
    plans: dict[str, SeenPlan] = {}
    size = _ENTRY_BYTES + sys.getsizeof(name)
    for plan, said in found.items() if isinstance(found, dict) else ():
        if len(plan) > _MAX_NAME or not isinstance(said, dict):
            continue
        one = SeenPlan(_name(said.get("generation")), _name(said.get("window")), _json(said.get("part")))
        size += _ENTRY_BYTES + sys.getsizeof(plan) + sum(map(sys.getsizeof, one))
        plans[plan] = one
    return ProcessEvidence(name, version, document.get("ended") is True, plans, size)


def merged(
    window: str, plan: str, evidence: Iterable[ProcessEvidence], *, is_partial: bool = False
) -> Evidence:
    """Return what all processes have seen of *plan* in *window*. What cannot be read is missing.

    *is_partial* is whether there is more evidence than *evidence*.
    """
    parts = {}
    for one in evidence:
        said = one.of(plan)
        if said.window == window:
            try:
                parts[one.name] = Part.from_json(orjson.loads(said.part))
            except ValueError:
                # Its source is expected as long as it lives, so that the gates are unknown.
                continue
    return Evidence(window, parts, is_partial)


def _name(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= _MAX_NAME else ""


def _json(value: object) -> bytes:
    try:
        # A copy: orjson's own text keeps the kilobytes that it did not need.
        return bytes(memoryview(orjson.dumps(value)))
    except TypeError:
        # It nests deeper than is written.
        return b""
