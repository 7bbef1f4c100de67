"""Moving policies to the API server and back: no request is unchecked, whatever fails in between.

The simulation has an API server's store, two API servers with informers that lag, two replicas of which one
may write, and a registration by ``manifests``. A request passes the policies of an API server at one moment,
and its webhooks some time later.
"""

from __future__ import annotations

import random
from dataclasses import dataclass, field, replace
from itertools import count
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.pure.admission_policies.placing import (
    BINDINGS,
    BLOCKED_S,
    VIEW_S,
    WAIT_S,
    Delete,
    Found,
    Named,
    Prove,
    SetSeal,
    Step,
    Target,
    Write,
    Writer,
    by_policy,
    in_force,
    seal_of,
    state_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

KIND = "ValidatingAdmissionPolicy"
SETTLE_S = 8.0
LAG_S = SETTLE_S / 2
"""How far an API server is behind that a proof does not reach."""
SPAN_S = SETTLE_S / 2
"""The longest time of a request from the policies of an API server to its webhooks."""
P, Q = Named(KIND, "p"), Named(KIND, "q")


def target(policy: Named, digest: str = "1", bindings: Iterable[str] = ("a", "b")) -> Target:
    keys = [policy, *(Named(BINDINGS[policy.kind], f"{policy.name}-{one}") for one in bindings)]
    return Target(policy, {key: {"of": policy.name, "digest": digest} for key in keys}, digest)


class ConflictError(Exception):
    """The object is not as it was found."""


class Store:
    """The objects of the API server, with all versions that informers may still have."""

    def __init__(self) -> None:
        self.objects: dict[Named, Found] = {}
        self.versions = count(1)
        self.history: list[tuple[float, dict[Named, Found]]] = [(0.0, {})]

    def found(self) -> list[Found]:
        return list(self.objects.values())

    def _changed(self, now: float) -> None:
        self.history.append((now, dict(self.objects)))

    def write(self, step: Write, policy: Named, now: float) -> Found:
        present = self.objects.get(step.key)
        if present != step.found:
            raise ConflictError
        version = str(next(self.versions))
        if present is None:
            written = Found(step.key, policy, f"uid-{version}", 1, version, step.digest)
        else:
            generation = present.generation + (present.digest != step.digest)
            written = replace(present, generation=generation, version=version, digest=step.digest, seal="")
        self.objects[step.key] = written
        self._changed(now)
        return written

    def set_seal(self, step: SetSeal, now: float) -> None:
        if self.objects.get(step.found.key) != step.found:
            raise ConflictError
        self.objects[step.found.key] = replace(step.found, seal=step.seal, version=str(next(self.versions)))
        self._changed(now)

    def delete(self, found: Found, now: float) -> None:
        if self.objects.get(found.key) != found:
            raise ConflictError
        del self.objects[found.key]
        self._changed(now)

    def tamper(self, key: Named, now: float) -> None:
        """Have another program change an object."""
        one = self.objects[key]
        version = str(next(self.versions))
        self.objects[key] = replace(one, generation=one.generation + 1, version=version)
        self._changed(now)

    def at(self, position: int) -> dict[Named, Found]:
        return self.history[position][1]


def enforces(objects: dict[Named, Found], policy: Named) -> bool:
    """Whether an API server with these *objects* enforces *policy*, by any version of its own."""
    return policy in objects and any(one.policy == policy and one.key != policy for one in objects.values())


@dataclass
class Replica:
    """A gateway: what it wants to be moved, what it has seen, and its writer."""

    targets: dict[Named, Target]
    writer: Writer = field(default_factory=lambda: Writer(SETTLE_S))
    seen: dict[Named, str] = field(default_factory=dict)
    until: float = 0.0

    def evaluates(self, policy: Named, digest: str, now: float) -> bool:
        return now >= self.until or self.seen.get(policy) != digest


class World:
    """All parts, and the law."""

    def __init__(self, rng: random.Random, policies: dict[Named, str]) -> None:
        self.rng = rng
        self.now = 0.0
        self.policies = policies
        """The digest of each, in the files of all replicas."""
        self.store = Store()
        self.replicas = [Replica({}), Replica({})]
        self.leader = self.replicas[0]
        self.positions = [0, 0]
        """Of the informers of each API server."""
        self.unenforced = {(at, policy): 0.0 for at in (0, 1) for policy in policies}
        """When an API server last did not enforce a policy."""
        self.registrations: list[tuple[float, frozenset[Named]]] = [(0.0, frozenset())]
        """The policies whose rules are left out, with the time of each change."""
        self.registered_positions = [0, 0]
        self.annotation: frozenset[Named] = frozenset()
        self.manifests: frozenset[Named] | None = None
        """What a run of manifests has announced to leave out."""

    # -- the law ----------------------------------------------------------------------------------

    def check(self) -> None:
        """Assert that a request that reaches its webhooks now is checked by one end at least."""
        for at in (0, 1):
            objects = self.store.at(self.positions[at])
            left_out = self.registrations[self.registered_positions[at]][1]
            for policy, digest in self.policies.items():
                if not enforces(objects, policy):
                    self.unenforced[at, policy] = self.now
                # A request may have passed the policies up to SPAN_S ago.
                if self.now - self.unenforced[at, policy] < SPAN_S:
                    assert policy not in left_out, f"{policy} is not registered, and was not in force"
                    for replica in self.replicas:
                        assert replica.evaluates(policy, digest, self.now), f"{policy} is evaluated nowhere"

    def advance(self, seconds: float) -> None:
        """Let time pass in small steps; informers are behind by LAG_S at most."""
        end = self.now + seconds
        while self.now < end:
            self.now = min(end, self.now + 1.0)
            for at in (0, 1):
                for changes, positions in (
                    (self.store.history, self.positions),
                    (self.registrations, self.registered_positions),
                ):
                    lowest, last = positions[at], len(changes) - 1
                    while lowest < last and changes[lowest + 1][0] <= self.now - LAG_S + 1.0:
                        lowest += 1
                    positions[at] = self.rng.randint(lowest, last)
            self.check()

    # -- what happens -----------------------------------------------------------------------------

    def want(self, replica: Replica, moved: Iterable[Named]) -> None:
        replica.targets = {policy: target(policy, self.policies[policy]) for policy in moved}

    def look(self, replica: Replica) -> None:
        began_at = self.now
        replica.seen, replica.until = in_force(self.store.found()), began_at + VIEW_S
        self.check()

    def lead(self, *, fails: float = 0.0) -> list[Step]:
        """Have the leader do its next steps; each fails, or its answer is lost, with a probability."""
        writer = self.leader.writer
        left_out = self.annotation
        steps = list(writer.steps(self.leader.targets, self.store.found(), left_out, self.now))
        failed = set[Named]()
        has_changed = False
        for step in steps:
            policy = self.policy_of(step)
            if policy in failed or isinstance(step, Prove):
                continue
            if self.rng.random() < fails:
                failed.add(policy)
                if self.rng.random() < 0.5:
                    continue
            try:
                self.do(step, policy, is_answered=policy not in failed)
                has_changed = True
            except ConflictError:
                failed.add(policy)
            self.check()
        proofs = [step for step in steps if isinstance(step, Prove)]
        if proofs and not has_changed and self.rng.random() >= fails:
            # One API server answers, which has read everything.
            self.positions[0] = len(self.store.history) - 1
            self.check()
            for proof in proofs:
                writer.proved(proof, self.now)
        return steps

    @staticmethod
    def policy_of(step: Step) -> Named:
        match step:
            case Prove(policy):
                return policy
            case SetSeal(found) | Delete(found):
                return found.policy
            case Write(key, spec):
                return Named(KIND, str(spec["of"])) if key.kind != KIND else key

    def do(self, step: Step, policy: Named, *, is_answered: bool = True) -> None:
        if isinstance(step, Write):
            written = self.store.write(step, policy, self.now)
            if is_answered:
                self.leader.writer.wrote(policy, written)
        elif isinstance(step, SetSeal):
            self.store.set_seal(step, self.now)
        elif isinstance(step, Delete):
            self.store.delete(step.found, self.now)

    def register(self) -> None:
        """Do the next step of manifests: announce what is left out, or look again and apply the rules."""
        moved = frozenset(
            policy
            for policy, digest in in_force(self.store.found()).items()
            if digest == self.policies[policy]
        )
        if self.manifests is None:
            self.manifests = moved
            self.annotation |= moved
        else:
            left_out = moved & self.manifests
            self.registrations.append((self.now, left_out))
            self.annotation, self.manifests = left_out, None
        self.check()

    def change_leader(self) -> None:
        self.leader = self.rng.choice(self.replicas)
        self.leader.writer.forget()

    def settle(self, seconds: float = 4 * WAIT_S) -> None:
        """Let all parts work without faults."""
        end = self.now + seconds
        while self.now < end:
            for replica in self.replicas:
                self.look(replica)
            self.lead()
            self.register()
            self.advance(3.0)


ACTIONS: list[Callable[[World], object]] = [
    lambda world: world.lead(),
    lambda world: world.lead(fails=0.5),
    lambda world: world.look(world.rng.choice(world.replicas)),
    lambda world: world.register(),
    lambda world: world.advance(world.rng.choice([1.0, 4.0, 10.0])),
    lambda world: world.advance(4.0),
    lambda world: world.advance(WAIT_S),
    lambda world: world.want(world.rng.choice(world.replicas), world.policies),
    lambda world: world.want(world.rng.choice(world.replicas), [P]),
    lambda world: world.want(world.rng.choice(world.replicas), []),
    lambda world: world.change_leader(),
    lambda world: world.leader.writer.forget(),
    lambda world: setattr(world, "manifests", None),
    lambda world: world.settle(WAIT_S),
]


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, len(ACTIONS) - 1), min_size=5, max_size=60))
def test_every_request_is_checked_by_one_end_whatever_happens(seed: int, actions: list[int]) -> None:
    world = World(random.Random(seed), {P: "1", Q: "1"})
    for index in actions:
        ACTIONS[index](world)
    for replica in world.replicas:
        world.want(replica, world.policies)
    world.settle(2 * BLOCKED_S)
    assert in_force(world.store.found()) == {P: "1", Q: "1"}
    assert not any(one.evaluates(P, "1", world.now) for one in world.replicas)
    assert world.registrations[-1][1] == {P, Q}
    for replica in world.replicas:
        world.want(replica, [])
    world.settle()
    assert not world.store.objects
    assert world.registrations[-1][1] == frozenset()


def moved(policy: Named = P) -> World:
    """Return a world in which *policy* has been moved."""
    world = World(random.Random(1), {policy: "1"})
    for replica in world.replicas:
        world.want(replica, [policy])
    world.settle()
    assert in_force(world.store.found()) == {policy: "1"}
    return world


@settings(max_examples=200, deadline=None)
@given(st.integers(0, 2**32), st.lists(st.integers(0, 6), min_size=20, max_size=60))
def test_a_policy_that_returns_is_checked_by_one_end(seed: int, actions: list[int]) -> None:
    world = moved()
    world.rng.seed(seed)
    for replica in world.replicas:
        world.want(replica, [])
    for index in actions:
        # Without the last ones, which would begin anew.
        ACTIONS[index](world)
    world.settle()
    assert not world.store.objects


@pytest.mark.parametrize("seed", range(10))
def test_a_policy_is_deleted_after_a_replica_that_reads_nothing_has_to_evaluate_it(seed: int) -> None:
    world = moved()
    world.rng.seed(seed)
    world.leader.targets = {}
    world.lead()
    world.register()
    world.register()
    for _ in range(40):
        world.lead()
        world.advance(1.0)
    assert not world.store.objects


@pytest.mark.parametrize("seed", range(10))
def test_a_policy_is_deleted_after_api_servers_have_its_registration(seed: int) -> None:
    world = moved()
    world.rng.seed(seed)
    world.leader.targets = {}
    world.lead()
    for replica in world.replicas:
        world.look(replica)
    world.lead()
    world.advance(2 * WAIT_S)
    world.lead()
    world.register()
    world.register()
    for _ in range(20):
        world.lead()
        world.advance(1.0)
    assert not world.store.objects


def test_a_policy_is_written_proven_and_left_to_settle_before_its_seal() -> None:
    world = World(random.Random(1), {P: "1"})
    world.want(world.leader, [P])
    assert [type(step) for step in world.lead()] == [Write, Write, Write]
    assert [type(step) for step in world.lead()] == [Prove]
    assert world.lead() == []
    world.advance(SETTLE_S)
    (step,) = world.lead()
    assert isinstance(step, SetSeal)
    assert step.seal == seal_of(world.store.found()) != ""
    assert world.lead() == []


@pytest.mark.parametrize("at", range(3))
def test_a_change_of_any_object_ends_the_seal_and_is_corrected(at: int) -> None:
    world = moved()
    key = sorted(world.store.objects)[at]
    world.store.tamper(key, world.now)
    assert in_force(world.store.found()) == {}
    steps = world.lead()
    assert [step.key for step in steps if isinstance(step, Write) and step.is_correction] == [key]
    world.settle()
    assert in_force(world.store.found()) == {P: "1"}


def test_a_deleted_object_is_written_again() -> None:
    world = moved()
    world.store.delete(world.store.objects[P], world.now)
    assert in_force(world.store.found()) == {}
    (step,) = world.lead()
    assert isinstance(step, Write)
    assert (step.key, step.is_correction) == (P, True)


def test_a_binding_of_another_program_ends_the_seal_and_is_deleted() -> None:
    world = moved()
    key = Named(BINDINGS[KIND], "copied")
    world.store.write(Write(key, {}, "1", None, is_correction=False), P, world.now)
    assert in_force(world.store.found()) == {}
    assert [step.found.key for step in world.lead() if isinstance(step, Delete)] == [key]


def test_a_changed_policy_loses_its_seal_with_its_old_content() -> None:
    world = moved()
    world.leader.targets = {P: target(P, "2", ["a"])}
    steps = world.lead()
    assert [type(step) for step in steps] == [Write, Write, Delete]
    assert not any(one.is_correction for one in steps if isinstance(one, Write))
    assert not world.store.objects[P].seal


def test_a_registration_that_leaves_a_policy_out_keeps_it_in_the_api_server() -> None:
    world = moved()
    world.leader.targets = {}
    for _ in range(40):
        world.lead()
        for replica in world.replicas:
            world.look(replica)
        world.advance(4.0)
    assert P in world.store.objects
    assert not world.store.objects[P].seal


def test_bindings_without_their_policy_are_deleted() -> None:
    world = moved()
    world.store.delete(world.store.objects[P], world.now)
    world.leader.targets = {}
    assert [type(step) for step in world.lead()] == [Delete, Delete]
    assert not world.store.objects


def test_a_refused_policy_returns_and_is_tried_again_later() -> None:
    world = World(random.Random(1), {P: "1"})
    world.want(world.leader, [P])
    world.leader.writer.block(P, "1", "it is refused", world.now)
    assert world.leader.writer.blocked(P, "1", world.now) == "it is refused"
    assert world.leader.writer.blocked(P, "2", world.now) == ""
    assert world.lead() == []
    world.advance(BLOCKED_S)
    assert [type(step) for step in world.lead()] == [Write, Write, Write]


def test_states() -> None:
    world = moved()
    found: Any = by_policy(world.store.found())[P]
    wanted = target(P)
    assert state_of(None, ()) == "Gateway"
    assert state_of(wanted, ()) == "Moving"
    assert state_of(wanted, found[:2]) == "Moving"
    assert state_of(wanted, found) == "APIServer"
    assert state_of(target(P, "2"), found) == "Moving"
    assert state_of(None, found) == "Returning"
