"""Puts policies into the API server, keeps them there, and has reviews leave them out.

Every process reads the objects, and leaves out what has a valid seal. One of all replicas, which has the
Lease, also writes: ``gateway.pure.admission_policies.placing`` says what.
"""

from __future__ import annotations

import asyncio
import logging
import os
import secrets
import socket
import time
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.base.errors import ClusterError
from gateway.config.kinds.policy_settings import NO_OWNER
from gateway.pure.admission_policies.placing import (
    BINDINGS,
    VIEW_S,
    Delete,
    Found,
    Named,
    Placed,
    Prove,
    SetSeal,
    State,
    Step,
    Target,
    Write,
    Writer,
    by_policy,
    digest_of,
    in_force,
    state_of,
)
from gateway.server.kubernetes.access import ClusterAccess
from gateway.server.kubernetes.lease import Lease
from gateway.server.kubernetes.placed_objects import NotOwnedError, PlacedObjects

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.config.merge.model import Config
    from gateway.engine.moved import MovedPolicies
    from gateway.pure.admission_policies.in_force import PolicyInForce
    from gateway.server.kubernetes.api_client import ApiClient

log = logging.getLogger(__name__)

LOOK_S: Final = 4.0
"""From one look at the objects to the next. Three fit into ``VIEW_S``."""
MAX_ROUNDS: Final = 8
"""Of steps in one look: the Lease has to be renewed."""
_CONFLICT: Final = 409
_OF_ONE_POLICY: Final = (400, 403, 404, 409, 422)
_FAULT: Final = "policies cannot be moved to the API server or back now"


@dataclass(frozen=True, slots=True)
class Placing:
    """What is to be moved."""

    installation: str
    """``NAMESPACE/NAME``."""
    settle_s: float
    targets: Mapping[Named, Target]
    reasons: Mapping[Named, str]
    """Why policies that are to be moved cannot be."""


def placing_of(config: Config, minor: int | None) -> Placing | None:
    """Return what is to be moved by *config* to API servers of Kubernetes 1.*minor*, if anything ever was.

    *minor* is None if it is not known.
    """
    settings = config.gateway.policies
    if settings.installation is None:
        return None
    # Imported late: they need CEL.
    from gateway.config.merge.placement import placements, policies_by_key

    policies = policies_by_key(config)
    targets, reasons = dict[Named, Target](), dict[Named, str]()
    version = None if minor is None else (1, minor)
    for one in placements(config, version):
        key = Named(one.kind, one.name)
        entries = policies[key]
        if one.can_move and len(entries) == 1:
            targets[key] = _target(key, entries[0])
        elif one.wanted != "Gateway":
            reasons[key] = "; ".join(one.reasons)
    return Placing(settings.installation, settings.settle_seconds, targets, reasons)


def _target(key: Named, policy: PolicyInForce[Any, Any]) -> Target:
    specs = {key: orjson.loads(policy.policy.document)}
    for binding in policy.bindings:
        specs[Named(BINDINGS[key.kind], binding.name)] = orjson.loads(binding.document)
    return Target(key, specs, digest_of(key.kind, policy.expressions))


class PolicyPlacement:
    """The task that moves policies, until :meth:`close`. Make it on a running event loop."""

    def __init__(
        self,
        settings: KubernetesSettings,
        moved: MovedPolicies,
        minor: Callable[[], int | None],
        now: Callable[[], float] = time.monotonic,
        evaluated_there: Callable[[frozenset[tuple[str, str]]], None] = lambda policies: None,
    ) -> None:
        """*moved* gets the policies that reviews leave out; *now* is its clock.

        *minor* returns the minor version of the API server, or None as long as it is not known.
        *evaluated_there* is called with kind and name of all policies in the state APIServer, when these
        change.
        """
        self._settings = settings
        self._minor = minor
        self._evaluated_there = evaluated_there
        self._moved = moved
        self._now = now
        self._access = ClusterAccess(settings)
        self._holder = f"{socket.gethostname()}-{os.getpid()}-{secrets.token_hex(4)}"
        self._config: Config | None = None
        self._placing: tuple[Config, int | None, Placing | None] | None = None
        """What is to be moved by a configuration and a version."""
        self._mover: _Mover | None = None
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self.corrections: Counter[str] = Counter()
        """By kind of the policy, how often an object was written again that another program had changed or
        deleted."""
        self.warning = ""
        """Why policies cannot be moved now. Empty if they can."""
        self.placed: list[Placed] = []
        """The policies that are moved or to be moved, by name."""

    def activate(self, config: Config) -> None:
        """Move the policies of *config* from now on, as far as it wants that."""
        self._config = config
        policies = config.gateway.policies
        if policies.installation is None:
            # What is in the API server stays there, and the gateway evaluates it too.
            self._moved.renew({}, 0.0)
            self._place([])
            self._warn(NO_OWNER if policies.placement != "Gateway" else "")
            return
        self._wake.set()
        if self._task is None:
            self._task = asyncio.create_task(self._run())

    @property
    def fault(self) -> str:
        """A line for operators about ``warning``, or an empty text."""
        return self.warning and f"{_FAULT}: {self.warning}"

    @property
    def counts(self) -> Mapping[str, int] | None:
        """The number of policies by state. None without an installation."""
        config = self._config
        if config is None or config.gateway.policies.installation is None:
            return None
        return Counter(one.state for one in self.placed)

    async def close(self) -> None:
        """End, and leave the Lease to others."""
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            if self._mover is not None and self._mover.lease.is_held:
                try:
                    async with self._access.api() as api:
                        await self._mover.lease.release(api)
                except ClusterError as error:
                    log.debug("the Lease %s was not released: %s", self._mover.lease.name, error)
        await self._access.close()

    async def _run(self) -> None:
        while True:
            await self.look()
            self._wake.clear()
            try:
                async with asyncio.timeout(LOOK_S):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def look(self) -> None:
        """Read the objects, have reviews leave out what is in force, and do what follows."""
        try:
            placing = await self._wanted()
            if placing is None:
                return
            mover = self._mover_of(placing)
            async with self._access.api() as api:
                warning = await self._look(api, mover, placing)
        except ClusterError as error:
            warning = str(error)
        except Exception:
            # Without more looks all policies are evaluated here, which is safe, but for ever.
            log.exception("internal error: policies are not moved, trying again in %g s", LOOK_S)
            warning = "internal error: the gateway's log has the details"
        self._warn(warning)

    def _warn(self, warning: str) -> None:
        if warning and warning != self.warning:
            log.warning("%s: %s", _FAULT, warning)
        self.warning = warning

    async def _wanted(self) -> Placing | None:
        config, minor = self._config, self._minor()
        if config is None:
            return None
        if self._placing is None or self._placing[0] is not config or self._placing[1] != minor:
            # Some thousands of policies take a while.
            self._placing = config, minor, await asyncio.to_thread(placing_of, config, minor)
        return self._placing[2]

    def _mover_of(self, placing: Placing) -> _Mover:
        identity = placing.installation, placing.settle_s
        if self._mover is None or self._mover.identity != identity:
            self._mover = _Mover(self._settings, placing, self._holder, self._now, self.corrections)
        return self._mover

    async def _look(self, api: ApiClient, mover: _Mover, placing: Placing) -> str:
        """Read the objects, and do what follows. Return what is in the way, or an empty text.

        Raises:
            ClusterError: the API server cannot be reached, or refuses.
        """
        found = await self._read(api, mover, placing)
        # Others have nothing to write, and need no right to.
        if not placing.targets and not found and not mover.objects.has_proofs:
            return ""
        warning = ""
        for _ in range(MAX_ROUNDS):
            if not await mover.lease.take(api):
                mover.writer.forget()
                return ""
            has_changed, warning = await mover.move(api, placing, found)
            if not has_changed:
                break
            found = await self._read(api, mover, placing)
        return warning

    async def _read(self, api: ApiClient, mover: _Mover, placing: Placing) -> list[Found]:
        began_at = self._now()
        found = await mover.objects.found(api)
        if self._placing is not None and self._placing[2] is placing and self._placing[0] is self._config:
            self._moved.renew(in_force(found), began_at + VIEW_S)
            self._note(mover, placing, found)
        return found

    def _note(self, mover: _Mover, placing: Placing, found: list[Found]) -> None:
        before = {one.policy: one.state for one in self.placed}
        grouped = by_policy(found)
        placed: list[Placed] = []
        for policy in sorted(grouped.keys() | placing.targets.keys()):
            target, reason = placing.targets.get(policy), ""
            if target is not None and (reason := mover.writer.blocked(policy, target.digest, self._now())):
                target = None
            state = state_of(target, grouped.get(policy, ()))
            placed.append(Placed(policy, state, reason))
            if state != before.get(policy, "Gateway"):
                log.info("policy placement: %s: %s", policy, _MEANS[state])
        for policy in before.keys() - {one.policy for one in placed}:
            log.info("policy placement: %s: %s", policy, _MEANS["Gateway"])
        self._place(placed)

    def _place(self, placed: list[Placed]) -> None:
        before, now = (
            frozenset((one.policy.kind, one.policy.name) for one in each if one.state == "APIServer")
            for each in (self.placed, placed)
        )
        self.placed = placed
        if now != before:
            self._evaluated_there(now)


_MEANS: Final[Mapping[State, str]] = {
    "Gateway": "the gateway evaluates it",
    "Moving": "both evaluate it, until the API server has it in force",
    "APIServer": "the API server evaluates it",
    "Returning": "both evaluate it, until it is deleted in the API server",
}


class _Mover:
    """What the replica that has the Lease does."""

    def __init__(
        self,
        settings: KubernetesSettings,
        placing: Placing,
        holder: str,
        now: Callable[[], float],
        corrections: Counter[str],
    ) -> None:
        self.identity = placing.installation, placing.settle_s
        namespace, _, name = placing.installation.partition("/")
        self.lease = Lease(namespace, f"{name}-placement", holder, now)
        self.objects = PlacedObjects(settings, placing.installation, self.lease.path)
        self.writer = Writer(placing.settle_s)
        self._now = now
        self._corrections = corrections

    async def move(self, api: ApiClient, placing: Placing, found: list[Found]) -> tuple[bool, str]:
        """Do the next steps. Return whether anything has changed, and what is in the way.

        Raises:
            ClusterError: the API server cannot be reached, or refuses what is not about one policy.
        """
        blocked = {
            policy
            for policy, target in placing.targets.items()
            if self.writer.blocked(policy, target.digest, self._now())
        }
        present = {one.policy for one in found}
        returning = (present - placing.targets.keys()) | (present & blocked)
        unregistered = await self.objects.unregistered(api) if returning else set[Named]()
        steps = list(self.writer.steps(placing.targets, found, unregistered, self._now()))
        proofs = [step for step in steps if isinstance(step, Prove)]
        failed = dict[Named, str]()
        has_changed = False
        for step in steps:
            policy = _policy_of(step, placing)
            if policy in failed or isinstance(step, Prove):
                continue
            if not self.lease.is_held:
                return True, ""
            try:
                await self._do(api, policy, step)
                has_changed = True
            except ClusterError as error:
                if error.status not in _OF_ONE_POLICY and not isinstance(error, NotOwnedError):
                    raise
                failed[policy] = str(error)
                self._refused(policy, placing, step, error)
        if failed:
            policy, text = next(iter(failed.items()))
            return has_changed, f"{policy}: {text}"
        if not has_changed and (reason := await self._prove(api, proofs)):
            return False, f"not proven to be in force: {reason}"
        if self.objects.has_proofs and not placing.targets and not found:
            await self.objects.end_proofs(api)
        if waiting := sorted(returning & unregistered):
            return has_changed, (
                f"{waiting[0]} stays in the API server until the gateway is registered for it: apply what "
                "`manifests` prints"
            )
        return has_changed, ""

    async def _prove(self, api: ApiClient, proofs: list[Prove]) -> str:
        """Return why *proofs* have failed, or an empty text."""
        if not proofs:
            return ""
        reason = await self.objects.prove(api, {step.policy.kind for step in proofs})
        if not reason:
            for step in proofs:
                self.writer.proved(step, self._now())
        return reason

    async def _do(self, api: ApiClient, policy: Named, step: Step) -> None:
        if isinstance(step, Write):
            if step.is_correction:
                changed_by = "" if step.found is None else await self.objects.changed_by(api, step.key)
                how = f"changed by {changed_by or 'an unknown program'}" if step.found else "deleted"
                log.warning("policy placement: %s was %s, and is written again", step.key, how)
                self._corrections[policy.kind] += 1
            self.writer.wrote(policy, await self.objects.write(api, step))
        elif isinstance(step, SetSeal):
            await self.objects.set_seal(api, step)
        elif isinstance(step, Delete):
            await self.objects.delete(api, step)

    def _refused(self, policy: Named, placing: Placing, step: Step, error: ClusterError) -> None:
        is_conflict = error.status == _CONFLICT and not isinstance(error, NotOwnedError)
        target = placing.targets.get(policy)
        if isinstance(step, Write) and target is not None and not is_conflict:
            self.writer.block(policy, target.digest, str(error), self._now())
            log.warning("policy placement: %s stays in the gateway: %s", policy, error)


def _policy_of(step: Step, placing: Placing) -> Named:
    match step:
        case Prove(policy):
            return policy
        case SetSeal(found) | Delete(found):
            return found.policy
        case Write(key):
            return next(policy for policy, target in placing.targets.items() if key in target.specs)
