"""The scenario of one seed: its pools, webhooks, reviews, and the times of its faults."""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gateway.config.kinds.gateway_configuration import GatewaySettings
from gateway.config.kinds.worker_pool import Hedge, WorkerPool
from gateway.config.merge.model import Config
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.webhook import WorkerRef
from tests.core.build import POD, body, document, labelled, webhook
from tests.simulation.stage import WorkerSpec
from tests.simulation.worker import ODDITIES

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.config.kinds.worker_pool import TransportMode
    from gateway.pure.core.annotations import AuditLevel
    from gateway.pure.core.review import Json
    from gateway.pure.core.webhook import Phase, Webhook

NAMESPACES: Final = {
    "default": Namespace("default", {"team": "a"}, b""),
    "blue": Namespace("blue", {}, b"{}"),
}
BUDGETS_S: Final = (0.05, 0.5, 2.9, 9.9, 9.9, 29.9)
UNBOUNDED: Final = 1024
"""A ``maxInFlight`` above the load of any scenario."""
WIDE_BYTES: Final = 65_535
"""A flow control window larger than any batch of a scenario."""
LARGE_BYTES: Final = 70_000
"""Size of an object that is sent by a unary call."""

FAULTS: Final = (
    *("crash", "crash", "farewell", "vanish", "stop", "cut off", "drain", "goaway", "refuse", "mute"),
    *("garbage", "raw garbage", "end", "reset", "window", "slow", "unwell", "other service"),
)
"""Faults of a worker; each ends."""

LASTING_S: Final = (0.0, 0.05, 0.3, 1.0, 3.0, 8.0)
LONG_S: Final = (20.0, 45.0, 60.0)
"""Longer than keepalive needs to detect a loss."""


@dataclass(frozen=True)
class Fault:
    """A fault of one worker: its kind, begin and duration."""

    at: float
    address: str
    kind: str
    lasting_s: float


@dataclass(frozen=True)
class Review:
    """A review that the gateway receives."""

    uid: str
    at: float
    phase: Phase
    budget_s: float
    body: bytes
    cancelled_after_s: float | None


@dataclass(frozen=True)
class Scenario:
    """The input of one run. Times are seconds from its beginning."""

    seed: int
    worker_specs: tuple[WorkerSpec, ...]
    names: dict[str, list[str]]
    """Addresses by name, at first."""
    configs: tuple[tuple[float, Config], ...]
    """Configurations, and when each is loaded."""
    reviews: tuple[Review, ...]
    faults: tuple[Fault, ...]
    moves: tuple[tuple[float, str, list[str] | None], ...]
    """Changes of a name's addresses; None if its look-up fails."""
    waits: bool
    """Whether reviews begin only after the workers were reached."""

    @property
    def end(self) -> float:
        """Time when the last event has begun and all faults are over."""
        ends = [fault.at + fault.lasting_s for fault in self.faults]
        return max([0.0, *ends, *(review.at for review in self.reviews), *(at for at, *_ in self.moves)])


@dataclass
class _Draft:
    """The parts of a scenario while it is drawn."""

    seed: int
    dice: random.Random
    is_quiet: bool
    """Whether it has no faults."""
    worker_specs: list[WorkerSpec] = field(default_factory=list)
    names: dict[str, list[str]] = field(default_factory=dict)


def scenario_of(seed: int, *, is_quiet: bool = False) -> Scenario:
    """Return the scenario of a seed."""
    dice = random.Random(seed)
    draft = _Draft(seed, dice, is_quiet)
    pools = {f"p{number}": _pool(draft, f"p{number}") for number in range(dice.choice((1, 1, 2, 2, 3)))}
    configs = [(0.0, _config(draft, pools, generation=0))]
    moments = [dice.random() * 8 for _ in range(dice.randint(1, 3))]
    if dice.random() < 0.3:
        configs.append(
            (dice.choice(moments) + dice.random(), _config(draft, _changed(draft, pools), generation=1))
        )
    reviews = _reviews(draft, moments)
    return Scenario(
        seed,
        tuple(draft.worker_specs),
        draft.names,
        tuple(configs),
        tuple(reviews),
        () if is_quiet else tuple(_faults(draft, moments)),
        () if is_quiet else tuple(_moves(draft, moments)),
        waits=is_quiet or dice.random() < 0.8,
    )


def _pool(draft: _Draft, name: str) -> WorkerPool:
    dice = draft.dice
    count = dice.choice((1, 1, 2, 2, 2, 3, 4))
    is_streaming = dice.random() < 0.9
    oddities = tuple(odd for odd in ODDITIES if dice.random() < 0.4)
    is_odd = not draft.is_quiet and dice.random() < 0.25
    addresses = [f"10.0.0.{len(draft.worker_specs) + number + 1}" for number in range(count)]
    for address in addresses:
        window_bytes = WIDE_BYTES if draft.is_quiet else dice.choice((WIDE_BYTES, WIDE_BYTES, 8192, 700))
        has_health, has_chains = dice.random() < 0.5, dice.random() < 0.7
        draft.worker_specs.append(
            WorkerSpec(
                address,
                name,
                is_streaming,
                window_bytes,
                oddities if is_odd else (),
                has_health,
                has_chains,
            )
        )
    if dice.random() < 0.3:
        draft.names[f"{name}.test"] = addresses
        targets: tuple[str, ...] = (f"{name}.test:1",)
    else:
        targets = (f"ipv4:{','.join(f'{address}:1' for address in addresses)}",)
    limit = UNBOUNDED if draft.is_quiet else dice.choice((UNBOUNDED,) * 4 + (1, 3))
    hedge = (
        Hedge(dice.choice((None, 0.02, 0.2)), 50.0, dice.choice((5.0, 50.0)))
        if dice.random() < 0.25
        else None
    )
    transport: TransportMode = "Stream" if is_streaming and dice.random() < 0.2 else "Auto"
    if dice.random() < 0.12:
        transport = "Unary"
    return WorkerPool(name, targets, transport=transport, max_in_flight=limit, hedge=hedge)


def _changed(draft: _Draft, pools: dict[str, WorkerPool]) -> dict[str, WorkerPool]:
    """Return the pools of another configuration: some with other settings, and perhaps one more."""
    changed = {
        name: replace(pool, max_in_flight=pool.max_in_flight + 1) if draft.dice.random() < 0.5 else pool
        for name, pool in pools.items()
    }
    if draft.dice.random() < 0.5:
        changed["new"] = _pool(draft, "new")
    return changed


def _config(draft: _Draft, pools: dict[str, WorkerPool], generation: int) -> Config:
    phases: tuple[Phase, Phase] = ("mutate", "validate")
    mutating, validating = (
        tuple(
            _webhook(draft, phase, f"{phase[0]}{generation}{number}", list(pools)) for number in range(count)
        )
        for phase, count in zip(phases, (draft.dice.randrange(8), draft.dice.randrange(6)), strict=True)
    )
    level: AuditLevel = draft.dice.choice(("None", "Metadata", "Request"))
    return Config(mutating, validating, pools, NAMESPACES, gateway=GatewaySettings(audit_level=level))


def _webhook(draft: _Draft, phase: Phase, name: str, pools: Sequence[str]) -> Webhook:
    dice = draft.dice
    selectors = (EVERYTHING, EVERYTHING, EVERYTHING, labelled("team", "a"), labelled("team", "b"))
    # Every pool exists: a configuration that names a missing pool is refused.
    return webhook(
        name,
        phase=phase,
        client=WorkerRef(dice.choice(pools), name),
        failure_policy=dice.choice(("Fail", "Ignore", "Ignore")),
        side_effects=dice.choice(("None", "None", "None", "NoneOnDryRun", "Some")),
        reinvocation_policy=dice.choice(("Never", "IfNeeded")) if phase == "mutate" else "Never",
        object_selector=dice.choice(selectors),
        namespace_selector=dice.choice((*selectors, EVERYTHING, EVERYTHING)),
        timeout_s=dice.choice((1, 2, 5, 10)),
    )


def _reviews(draft: _Draft, moments: Sequence[float]) -> list[Review]:
    dice = draft.dice
    count = dice.choice((1, 4, 10, 10, 16, 16, 40))
    spread_s = dice.choice((0.0, 0.02, 0.5, 3.0))
    return [
        Review(
            uid := f"r{number}",
            dice.choice(moments) + dice.random() * spread_s,
            dice.choice(("mutate", "mutate", "validate")),
            9.9 if draft.is_quiet else dice.choice(BUDGETS_S),
            body(_request(dice, uid)),
            dice.choice((0.0, 0.001, 0.02, 1.0)) if not draft.is_quiet and dice.random() < 0.08 else None,
        )
        for number in range(count)
    ]


def _request(dice: random.Random, uid: str) -> Json:
    shown: dict[str, Any] = {**POD, "metadata": {"name": uid, "labels": {"team": dice.choice("ab")}}}
    if dice.random() < 0.03:
        shown["filler"] = "x" * LARGE_BYTES
    operation = dice.choice(("CREATE", "CREATE", "UPDATE", "DELETE"))
    return document(
        uid=uid,
        namespace=dice.choice(("default", "default", "blue", "gone")),
        operation=operation,
        object=shown if operation != "DELETE" else None,
        oldObject=shown if operation != "CREATE" else None,
        dryRun=dice.random() < 0.1,
    )


def _faults(draft: _Draft, moments: Sequence[float]) -> list[Fault]:
    """Return faults near the *moments* at which reviews come; a worker has one fault at a time."""
    dice = draft.dice
    # Some workers have no faults, so that pools of two can retry at the other.
    doomed = [spec.address for spec in draft.worker_specs if dice.random() < 0.6]
    faults: list[Fault] = []
    busy_until: dict[str, float] = {}
    count = dice.choice((1, 2, 4, 8)) if doomed else 0
    times = sorted(max(0.0, dice.choice(moments) + dice.gauss(0.02, 0.5)) for _ in range(count))
    for at in times:
        address = dice.choice(doomed)
        begin = max(at, busy_until.get(address, 0.0))
        lasting_s = dice.choice(LASTING_S if dice.random() < 0.95 else LONG_S) * dice.choice(
            (1, dice.random())
        )
        faults.append(Fault(begin, address, dice.choice(FAULTS), lasting_s))
        busy_until[address] = begin + lasting_s + dice.choice((0.001, 0.1, 2.0))
    return sorted(faults, key=lambda fault: fault.at)


def _moves(draft: _Draft, moments: Sequence[float]) -> list[tuple[float, str, list[str] | None]]:
    dice = draft.dice
    moves: list[tuple[float, str, list[str] | None]] = []
    for name, addresses in draft.names.items():
        for _ in range(dice.choice((0, 1, 2))):
            at = dice.choice(moments) + dice.random() * 10 - 5
            fewer = [address for address in addresses if dice.random() < 0.6]
            moves.append((max(0.0, at), name, fewer or dice.choice((None, addresses))))
    return sorted(moves, key=lambda move: move[0])
