"""The simulated workers' shared state: their calls, and the parts that all workers of a run share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    import asyncio
    import random

    from gateway.pure.core.review import Json
    from tests.simulation.journal import Journal
    from tests.simulation.policies import Policies

SERVICE: Final = "/admissiongateway.worker.v1.PolicyWorker"


@dataclass(frozen=True)
class WorkerSpec:
    """A worker's address and properties."""

    address: str
    pool: str
    is_streaming: bool
    window_bytes: int
    oddities: tuple[str, ...]
    serves_health: bool
    has_chains: bool


@dataclass(eq=False)
class Question:
    """A call as a worker received it."""

    address: str
    uid: str
    policy: str
    shown: Json | None
    timeout_s: float
    at: float
    latency_s: float = 0.0
    is_odd: bool = False
    is_chained: bool = False
    """Whether it was evaluated on the object that an earlier call left."""
    was_late: bool = False
    """Whether the worker itself answered with DEADLINE_EXCEEDED."""
    script: dict[str, Any] = field(default_factory=dict)
    """What a worker for scripts does."""
    traceparent: str = ""


@dataclass(eq=False)
class Stage:
    """State that all workers of a run share."""

    loop: asyncio.AbstractEventLoop
    dice: random.Random
    policies: Policies
    journal: Journal
    questions: list[Question] = field(default_factory=list)
    breaches: list[str] = field(default_factory=list)
    """Violations of the worker contract by the gateway."""
