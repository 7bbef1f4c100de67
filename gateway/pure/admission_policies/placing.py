"""Moves policies between the gateway and the API server: what to do next, without I/O.

A policy and its bindings are objects of the API server while it evaluates them. Their annotations are all
that the replicas of a gateway have in common:

    written    the objects have the digest of the documents. Both ends evaluate the policy.
    in force   an annotation of the policy has the *seal* of all its objects: their uids and generations. It
               is written after the proof that API servers have read them, and some time later. Only then the
               gateway leaves the policy out.
    returning  the policy has no seal, and is not wanted. Both ends evaluate it. After all replicas must have
               seen that, and after the gateway is registered for the policy again, it is deleted.

The seal holds for one policy with the objects as they were proven. Whatever changes one of them, adds one or
deletes one ends it, because the API server counts generations and never uses a uid again: replicas evaluate
the policy from the next look on, and the writer writes all of it anew. So no object is compared field by
field, and defaults of newer API servers are not a difference.

A replica believes what it has seen for ``VIEW_S`` seconds at most (``gateway.engine.moved``). The writer
waits longer before it deletes. So a replica that cannot read the cluster evaluates the policy in time.

Every write names the version that was read. The policy is the last object that becomes in force, and the
first that is deleted: its version decides between two writers.

Source: k8s.io/apiserver pkg/admission/plugin/policy/generic (both kinds are read by informers);
k8s.io/kubernetes pkg/registry/admissionregistration/*/strategy.go (generation).
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

VIEW_S: Final = 15.0
"""How long a replica believes what it has read, from the moment of its request."""
WAIT_S: Final = 2 * VIEW_S
"""From the end of a seal until the policy is deleted."""
BLOCKED_S: Final = 60.0
"""Until something that the API server refused is tried again."""
BINDINGS: Final = {
    "ValidatingAdmissionPolicy": "ValidatingAdmissionPolicyBinding",
    "MutatingAdmissionPolicy": "MutatingAdmissionPolicyBinding",
}
POLICIES: Final = {binding: policy for policy, binding in BINDINGS.items()}
State = Literal["Gateway", "Moving", "APIServer", "Returning"]
STATES: Final[tuple[State, ...]] = get_args(State)


class Named(NamedTuple):
    """An object of the API server, or a policy."""

    kind: str
    name: str

    def __str__(self) -> str:
        return f"{self.kind} {self.name}"


class Placed(NamedTuple):
    """Where a policy is, for operators."""

    policy: Named
    state: State
    reason: str
    """Why it stays in the gateway. Empty if nothing is known that keeps it there."""


@dataclass(frozen=True, slots=True)
class Target:
    """A policy that the API server is to evaluate."""

    key: Named
    specs: Mapping[Named, dict[str, Any]]
    """The ``spec`` of the policy, which comes first, and of its bindings."""
    digest: str


@dataclass(frozen=True, slots=True)
class Found:
    """An object of the API server that this gateway has written."""

    key: Named
    policy: Named
    """Of a binding, its policy; of a policy, itself."""
    uid: str
    generation: int
    version: str
    """The resourceVersion."""
    digest: str
    seal: str = ""
    """Of a policy; empty if it is not in force."""

    @property
    def identity(self) -> tuple[str, int]:
        """What changes with the content."""
        return self.uid, self.generation


@dataclass(frozen=True, slots=True)
class Write:
    """Create an object, or replace it as it was found."""

    key: Named
    spec: Mapping[str, Any]
    digest: str
    found: Found | None
    is_correction: bool
    """Whether another program changed or deleted it."""


@dataclass(frozen=True, slots=True)
class Prove:
    """Prove that API servers have read all objects that were written before."""

    policy: Named
    seal: str


@dataclass(frozen=True, slots=True)
class SetSeal:
    """Write the seal of a policy, or remove it if it is empty."""

    found: Found
    seal: str


@dataclass(frozen=True, slots=True)
class Delete:
    """Delete an object, if it is as it was found."""

    found: Found


Step = Write | Prove | SetSeal | Delete


def digest_of(kind: str, documents: Iterable[tuple[str, str]]) -> str:
    """Return the digest of a policy of *kind* by its *documents*: ``AdmissionPolicy.expressions``."""
    found = hashlib.sha256(kind.encode())
    for name, text in documents:
        found.update(f"/{name}/{len(text)}/{text}".encode())
    return found.hexdigest()[:32]


def seal_of(objects: Iterable[Found]) -> str:
    """Return the seal of all *objects* of a policy; empty if their digests differ."""
    objects = sorted(objects, key=lambda one: one.key)
    if len({one.digest for one in objects}) != 1:
        return ""
    found = hashlib.sha256()
    for one in objects:
        found.update(f"{one.digest}/{one.key.kind}/{one.key.name}/{one.uid}/{one.generation}\n".encode())
    return found.hexdigest()[:32]


def by_policy(found: Iterable[Found]) -> dict[Named, list[Found]]:
    """Return the objects of each policy."""
    grouped: dict[Named, list[Found]] = {}
    for one in found:
        grouped.setdefault(one.policy, []).append(one)
    return grouped


def in_force(found: Iterable[Found]) -> dict[Named, str]:
    """Return the digest of each policy that API servers have in force by its seal."""
    return {
        policy: head.digest
        for policy, objects in by_policy(found).items()
        if (head := _head(objects)) is not None and head.seal and head.seal == seal_of(objects)
    }


def state_of(target: Target | None, objects: Sequence[Found]) -> State:
    """Return where a policy is, by what this gateway wants and by its *objects*."""
    if not objects:
        return "Gateway" if target is None else "Moving"
    if target is None:
        return "Returning"
    return "APIServer" if in_force(objects).get(target.key) == target.digest else "Moving"


def _head(objects: Iterable[Found]) -> Found | None:
    return next((one for one in objects if one.key == one.policy), None)


@dataclass(slots=True)
class _Progress:
    """What the writer remembers of a policy. Without it, a policy is written and proven again."""

    written: dict[Named, tuple[str, int]] = field(default_factory=dict)
    proven: tuple[str, float] = ("", 0.0)
    """The seal, and when it was proven."""
    unsealed_at: float | None = None
    registered_at: float | None = None
    """Since when all registrations have it."""
    blocked: tuple[str, str, float] = ("", "", 0.0)
    """Why it cannot be moved, with which digest, and until when it is not tried again."""


class Writer:
    """Decides what one replica writes, as long as it is the one that writes."""

    def __init__(self, settle_s: float) -> None:
        """*settle_s* is the time from a proof until the gateway leaves a policy out, and from a registration
        until a policy is deleted: for API servers that the proof did not reach, and for requests that are
        between two admission plugins.
        """
        self._settle_s = settle_s
        self._progress: dict[Named, _Progress] = {}

    def forget(self) -> None:
        """Forget all: another replica may have written meanwhile."""
        self._progress.clear()

    def blocked(self, policy: Named, digest: str, now: float) -> str:
        """Return why *policy* with *digest* stays in the gateway; empty if it need not."""
        progress = self._progress.get(policy)
        reason, of, until = ("", "", 0.0) if progress is None else progress.blocked
        return reason if of == digest and now < until else ""

    def block(self, policy: Named, digest: str, reason: str, now: float) -> None:
        """Note that the API server does not take *policy* as it is, by *reason*."""
        self._of(policy).blocked = reason, digest, now + BLOCKED_S

    def wrote(self, policy: Named, found: Found) -> None:
        """Note that *found* is what was written."""
        self._of(policy).written[found.key] = found.identity

    def proved(self, step: Prove, now: float) -> None:
        """Note that API servers have read all objects of a policy at *now*."""
        self._of(step.policy).proven = step.seal, now

    def _of(self, policy: Named) -> _Progress:
        return self._progress.setdefault(policy, _Progress())

    def steps(
        self,
        targets: Mapping[Named, Target],
        found: Iterable[Found],
        unregistered: Collection[Named],
        now: float,
    ) -> Iterator[Step]:
        """Yield the next steps for all policies, by what was *found* before *now*.

        *unregistered* are the policies that a registration of the gateway leaves out. Of one policy, a step
        is done only if those before it have succeeded. Then read again.
        """
        grouped = by_policy(found)
        for policy in self._progress.keys() - grouped.keys() - targets.keys():
            del self._progress[policy]
        for policy in sorted(grouped.keys() | targets.keys()):
            target, objects = targets.get(policy), grouped.get(policy, [])
            if target is None or self.blocked(policy, target.digest, now):
                yield from self._returned(policy, objects, unregistered, now)
            else:
                progress = self._of(policy)
                progress.unsealed_at = progress.registered_at = None
                yield from self._moved(target, objects, now)

    def _moved(self, target: Target, objects: list[Found], now: float) -> Iterator[Step]:
        if in_force(objects).get(target.key) == target.digest:
            return
        progress = self._of(target.key)
        present = {one.key: one for one in objects}
        head = present.get(target.key)
        was_in_force = (head is not None and bool(head.seal)) or bool(progress.proven[0])
        is_complete = True
        for key, spec in target.specs.items():
            one = present.get(key)
            if one is None or one.digest != target.digest or progress.written.get(key) != one.identity:
                is_complete = False
                is_drift = was_in_force and (one is None or one.digest == target.digest)
                yield Write(key, spec, target.digest, one, is_drift)
        for one in objects:
            # After the new ones, in the order in which API servers see them.
            if one.key not in target.specs:
                is_complete = False
                yield Delete(one)
        if not is_complete:
            return
        seal, (proven, at) = seal_of(objects), progress.proven
        if proven != seal:
            yield Prove(target.key, seal)
        elif now - at >= self._settle_s and head is not None:
            yield SetSeal(head, seal)

    def _returned(
        self, policy: Named, objects: Sequence[Found], unregistered: Collection[Named], now: float
    ) -> Iterator[Step]:
        if not objects:
            return
        progress = self._of(policy)
        progress.written.clear()
        progress.proven = "", 0.0
        head = _head(objects)
        if head is None:
            # Without their policy the bindings have no effect.
            yield from map(Delete, objects)
            return
        if head.seal:
            progress.unsealed_at = progress.registered_at = None
            yield SetSeal(head, "")
            return
        if progress.unsealed_at is None:
            progress.unsealed_at = now
        if policy in unregistered:
            progress.registered_at = None
            return
        if progress.registered_at is None:
            progress.registered_at = now
        if now - progress.unsealed_at >= WAIT_S and now - progress.registered_at >= self._settle_s:
            yield Delete(head)
