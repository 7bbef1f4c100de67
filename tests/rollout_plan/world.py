"""Replicas that decide about one plan in virtual time, from seeds: they die, are late, and have wrong clocks.

A store keeps the state by compare and swap, and the evidence of each source. Every write of the state is kept
with the true time and with what the writer knew, so that laws can be checked afterwards.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gateway.pure.rollout_plan.decide import (
    ActionRefused,
    approve,
    decide,
    forget,
    hold,
    pause,
    resume,
    roll_back,
    skip,
)
from gateway.pure.rollout_plan.evidence import Evidence, Part, Tally
from gateway.pure.rollout_plan.model import STRENGTH, Gates, Plan, Rollback, Stage
from gateway.pure.rollout_plan.state import PlanState, started
from tests.rollout_plan.build import CANARY, CRITICAL, START_S

if TYPE_CHECKING:
    from collections.abc import Iterator

MODES = STRENGTH[:3]


def some_plan(chance: random.Random) -> Plan:
    """A valid plan of one to six stages."""
    stages, mode, percent = [], 0, 0
    for _ in range(chance.randint(1, 5)):
        mode = chance.randint(mode, 2)
        percent = chance.choice([percent, chance.randint(percent, 100)])
        gates = Gates(
            max_newly_denied=chance.choice([None, 0, 3]),
            max_denied_owners=chance.choice([None, 0, 5]),
            max_failures=chance.choice([None, 2]),
            min_reviews=chance.choice([1, 5]),
            min_namespaces=chance.choice([0, 2]),
            max_newly_denied_percent=chance.choice([None, 12.5]),
            max_denied_percent=chance.choice([None, 20.0]) if percent else None,
        )
        time_s, needs_approval = chance.choice([0.0, 60.0, 3600.0]), chance.random() < 0.2
        stages.append(Stage(MODES[mode], percent, time_s, gates, needs_approval=needs_approval))
    stages.append(Stage("Enforce", 0, chance.choice([0.0, 600.0]), Gates(max_denied_owners=5)))
    rollback = chance.choice([None, Rollback(2, 2)])
    critical = chance.random() < 0.2
    wait_s = chance.choice([600.0, 36_000.0])
    return Plan.of(stages, (CANARY, CRITICAL), rollback=rollback, is_critical=critical, max_wait_s=wait_s)


@dataclass
class Write:
    """A write of the state that took place."""

    true_s: float
    before: PlanState | None
    after: PlanState
    plan: Plan
    known: Evidence
    expected: tuple[str, ...]


@dataclass
class Replica:
    """One process."""

    source: str
    wall_offset_s: float
    plan: Plan
    seen: PlanState
    version: int
    read_at_s: float
    """True time, which its monotonic clock follows."""
    tally: Tally = field(default_factory=Tally)
    pending: tuple[int, PlanState, Evidence, tuple[str, ...]] | None = None
    """A write that it was about to make when it was stopped, with the version that it had read."""


class World:
    """The store, the replicas and the true time."""

    def __init__(self, seed: int, *, faults: bool = True) -> None:
        self.chance = random.Random(seed)
        self.faults = faults
        self.plan = some_plan(self.chance)
        self.is_removed = False
        """Whether no replica has the plan."""
        self.true_s = 0.0
        self.starts = 0
        self.evidence: dict[str, tuple[str, Part]] = {}
        """By source: the window, and what was published of it."""
        self.lost: set[str] = set()
        """Sources whose evidence was deleted in this window."""
        if not faults:
            self.plan = replace(self.plan, max_wait_s=1e6)
        self.state = state = started(self.plan, START_S)
        self.version = 1
        self.writes = [Write(0.0, None, state, self.plan, Evidence(state.evidence_window), ())]
        self.replicas = [self.replica() for _ in range(self.chance.randint(1, 3))]

    def replica(self) -> Replica:
        self.starts += 1
        skew = self.chance.choice([0.0, 0.0, 30.0, -30.0])
        state = self.state
        return Replica(f"r{self.starts}", START_S + skew, self.plan, state, self.version, self.true_s)

    def observe(self, one: Replica) -> None:
        state = self.state
        if state.evidence_window != one.seen.evidence_window:
            one.tally = Tally()
        if self.version != one.version:
            one.seen, one.version, one.read_at_s = state, self.version, self.true_s

    def traffic(self, one: Replica) -> None:
        bad = self.chance.random() < 0.05 and self.faults
        stage = self.plan.stages[one.seen.step]
        for index in range(self.chance.randint(3, 6)):
            one.tally.answered(
                f"n{index % 3}",
                f"u{index % 2}",
                0.003,
                refuses=bad,
                is_enforced=stage.mode == "Enforce"
                or (stage.is_enforced_somewhere and self.chance.random() < 0.6),
                is_failure=bad and index == 0,
                owner=f"ReplicaSet/{self.chance.randint(0, 4)}",
            )

    def publish(self, one: Replica) -> None:
        self.evidence[one.source] = (one.seen.evidence_window, one.tally.part())
        self.lost.discard(one.source)

    def look(self, one: Replica) -> None:
        """Decide from what *one* has read, and write it, now or later."""
        known = Evidence(one.seen.evidence_window)
        for source, (window, part) in self.evidence.items():
            known = known.merged(Evidence(window, {source: part}))
        expected = tuple(each.source for each in self.replicas)
        now_s = one.wall_offset_s + self.true_s
        if self.is_removed:
            found = None if one.seen.is_of_removed_plan else hold(one.seen, now_s)
            self.propose(one, found, known, expected)
            return
        since_s = self.true_s - one.read_at_s
        found = decide(one.plan, one.seen, known, now_s, since_s=since_s, expected=expected)
        self.propose(one, found, known, expected)

    def propose(
        self, one: Replica, found: PlanState | None, known: Evidence, expected: tuple[str, ...]
    ) -> None:
        """Write *found* in place of what *one* has read, now or later."""
        if found is None:
            return
        one.pending = one.version, found, known, expected
        if not self.faults or self.chance.random() < 0.8:
            self.write(one)

    def write(self, one: Replica) -> None:
        """Let the write of *one* arrive: only what it has read may be replaced."""
        if one.pending is None:
            return
        (version, found, known, expected), one.pending = one.pending, None
        if version == self.version:
            self.put(found, known, expected, one.plan)
            self.observe(one)

    def put(self, found: PlanState, known: Evidence, expected: tuple[str, ...], plan: Plan) -> None:
        before = self.state
        self.state, self.version = PlanState.from_json(found.as_json()), self.version + 1
        self.writes.append(Write(self.true_s, before, found, plan, known, expected))

    def person(self) -> None:
        action = self.chance.choice([pause, resume, resume, skip, roll_back, approve, approve, forget])
        state = self.state
        try:
            found = action(self.plan, state, who="ann", why="", now_s=START_S + self.true_s)
        except ActionRefused:
            return
        self.put(found, Evidence(state.evidence_window), (), self.plan)

    def turn(self) -> None:
        """Let something happen."""
        chance, one = self.chance, self.chance.choice(self.replicas)
        self.true_s += chance.choice([1.0, 10.0, 120.0, 1500.0])
        what = chance.random()
        if not self.faults and self.state.stage.needs_approval and not self.state.approved_by:
            self.put(
                approve(self.plan, self.state, who="ann", why="", now_s=START_S + self.true_s),
                Evidence(self.state.evidence_window),
                (),
                self.plan,
            )
        if what < 0.6 or not self.faults:
            self.observe(one)
            self.traffic(one)
            self.publish(one)
            self.look(one)
        elif what < 0.75:
            self.look(one)  # of what it read some time ago
        elif what < 0.8:
            self.write(one)
        elif what < 0.85:
            one.wall_offset_s += chance.choice([-1e6, -900.0, 900.0, 1e6])
        elif what < 0.9:
            self.replicas[self.replicas.index(one)] = self.replica()
        elif what < 0.94 and self.evidence:
            gone = chance.choice(sorted(self.evidence))
            del self.evidence[gone]
            self.lost.add(gone)
        elif what < 0.965:
            self.person()
        elif what < 0.98:
            self.is_removed = not self.is_removed
        else:
            self.plan = replace(self.plan, max_wait_s=self.plan.max_wait_s + 1)
            for each in self.replicas:
                each.plan = self.plan

    def decisions(self) -> Iterator[tuple[Write, PlanState, PlanState]]:
        """Yield each write that is a decision, with the states before and after it."""
        for write in self.writes:
            if write.before is not None and write.after.revision != write.before.revision:
                yield write, write.before, write.after
