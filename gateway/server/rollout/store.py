"""Where the states of plans and the evidence of processes are kept, for all processes of a gateway.

A state is replaced by compare and swap: a write names the version that was read, and one that is late has no
effect. So of any number of processes that decide at the same time, one decides. Evidence is an object for
each process, which no other process writes. What is kept is observed, not asked for: ``states`` and
``evidence`` are as the store last showed them, and stay so while it cannot be reached.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Protocol

from gateway.base.errors import GatewayError
from gateway.server.rollout.room import Room

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.core.webhook import Webhook
    from gateway.server.rollout.process_evidence import ProcessEvidence

Json = dict[str, Any]

STATE: Final = "RolloutState"
EVIDENCE: Final = "RolloutEvidence"
PLURALS: Final = {STATE: "rolloutstates", EVIDENCE: "rolloutevidences"}
"""The kinds of a cluster's objects."""
MAX_TEXT: Final = 4096
"""Characters of a text of a document that kubectl prints."""
MAX_BYTES: Final = 1024 * 1024
"""Of one object: two thirds of what etcd takes."""
_MAX_STATES: Final = 10_000
_MAX_STATES_BYTES: Final = 64 * 1024 * 1024
"""Of the JSON of all states."""


class StoreError(GatewayError):
    """The store cannot be read or written."""


class StoreFullError(StoreError):
    """There is more evidence than is kept."""


@dataclass(frozen=True, slots=True)
class Stored:
    """A state as the store has it."""

    name: str
    document: Json
    version: str
    """Changes with each write. It has no other meaning."""
    size: int = field(default=0, compare=False)
    """Bytes of its JSON, where they are counted."""


def room_for_states() -> Room:
    """Return the room for the states that a process keeps."""
    return Room(_MAX_STATES, _MAX_STATES_BYTES)


class PlanStore(Protocol):
    """Keeps states and evidence. Make it on a running event loop."""

    @property
    def states(self) -> Mapping[str, Stored]:
        """The states as they were last observed, by name. Empty until ``is_synced``."""

    @property
    def evidence(self) -> Mapping[str, ProcessEvidence]:
        """The evidence of all processes as it was last observed, by the name of the process.

        It is bounded, see ``excess``.
        """

    @property
    def excess(self) -> str:
        """Why evidence is in the store that is not read. Empty if all is read."""

    @property
    def is_synced(self) -> bool:
        """Whether everything has been read once."""

    @property
    def fault(self) -> str:
        """Why changes do not arrive now. Empty if they do."""

    async def start(self) -> None:
        """Begin to observe; this does not wait for anything."""

    async def replace(self, name: str, before: Stored | None, document: Json) -> bool:
        """Write the state *name* if it is still *before*; None if there is none yet.

        Returns whether it was: otherwise another writer was faster, and nothing has changed.

        Raises:
            StoreError: the store refuses, or gives no answer. What was written is not known.
        """

    async def put_evidence(self, name: str, document: Json) -> None:
        """Write the evidence of the process *name*, which is the only one that writes it.

        Raises:
            StoreError: the store refuses, or gives no answer. ``StoreFullError``: there is too much already.
        """

    async def remove(self, kind: str, one: Stored | ProcessEvidence) -> None:
        """Remove *one*, of a *kind* of ``PLURALS``, unless it has changed since.

        Raises:
            StoreError: the store refuses, or gives no answer.
        """

    async def close(self) -> None:
        """Stop to observe."""


def name_of(webhook: Webhook) -> str:
    """Return the name of the state of *webhook*: the same in all processes and after a restart."""
    identity = "/".join(webhook.plan_id)
    return hashlib.sha256(identity.encode(errors="replace")).hexdigest()[:16]
