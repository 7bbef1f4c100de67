"""Whether workers serve the policies that webhooks name, and whether a pool has a reachable worker.

Both are checked about once a second. A change is logged, and ``/readyz?verbose`` has the present state.
A pool that is lost and found again and again is logged at most once in ``QUIET_S`` seconds.

A worker that does not serve ListPolicies is not checked. The list of a worker is read again when it connects
again, so that the list is that of the present process.
"""

from __future__ import annotations

import asyncio
import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal

from gateway.core.webhook import WorkerRef
from gateway.dispatch.parameter_schema import parameter_schema
from gateway.dispatch.policy_listing import PolicyListing
from gateway.text import did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from gateway.config.model import Config
    from gateway.core.webhook import Webhook
    from gateway.dispatch.endpoint import WorkerEndpoint
    from gateway.dispatch.parameter_schema import ParameterSchema
    from gateway.dispatch.parameters import ParameterTable
    from gateway.dispatch.pool import Pool
    from gateway.telemetry.metrics import Metrics

    Served = Mapping[str, bool]
    """Policies of a worker by name, and whether each is mutating."""

log = logging.getLogger(__name__)

Mismatch = Literal["not_served", "other_kind", "parameters"]

LOST_AFTER_S: Final = 2.0
"""How long a pool is without a reachable worker before that is logged: a restart takes less."""
QUIET_S: Final = 30.0
MAX_NAMES: Final = 20
"""Names of webhooks or workers in one message."""
MAX_COMPARED: Final = 500
"""Policies among which a similar name is searched, which takes a millisecond for a hundred of them."""
MAX_LISTINGS: Final = 8
"""Lists that are read at a time."""


@dataclass(frozen=True, slots=True)
class PolicyMismatch:
    """A webhook whose policy some workers do not serve, or not for its kind, or not with its parameters."""

    webhook: Webhook
    reason: Mismatch
    workers: tuple[str, ...]
    """Their addresses."""
    hint: str = ""
    worker: WorkerRef | None = None
    """The client with the parameters, which may be that of the candidate; None for other reasons."""
    problem: str = ""
    """The reason why the parameters are refused: path, found and expected."""
    is_fatal: bool = True
    """Whether calls fail for it, because no worker accepts the parameters."""
    is_unchecked: bool = False
    """Whether the schema cannot be used."""

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for the same fault at other workers, and after a reload."""
        return *_policy_key(self.webhook, self.worker), f"{self.reason}{self.problem}"

    @property
    def place(self) -> str:
        """The webhook and its policy."""
        hook, worker = self.webhook, self.worker or self.webhook.worker
        document = "" if self.worker is None else f"{worker.place}: "
        return (
            f"{document}webhook {hook.configuration}/{hook.name}: "
            f"policy {shown(worker.policy)} of pool {worker.pool}"
        )

    @property
    def message(self) -> str:
        """The fault and its effect."""
        workers = _listed(self.workers)
        effect = "fail closed" if self.webhook.failure_policy == "Fail" else "fail open"
        if self.reason == "parameters":
            if self.worker is not self.webhook.client:
                effect = "of the candidate fail"
            result = f"calls {effect}" if self.is_fatal else "its calls may fail: other workers accept them"
            result = "parameters are not checked" if self.is_unchecked else result
            return f"{self.problem} (declared by {workers}), so that {result}"
        if self.reason == "not_served":
            return f"not served by {workers}, so that calls {effect}{self.hint}"
        if self.webhook.phase == "validate":
            return f"mutating at {workers}, and the webhook is validating, so that a patch is a failure"
        return f"not mutating at {workers}, and the webhook is mutating, so that it changes nothing"

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


def policy_mismatches(webhooks: Iterable[Webhook], served: Mapping[str, Served]) -> Iterator[PolicyMismatch]:
    """Yield the mismatches of *webhooks*, those of one pool. *served* has its workers' lists by address."""
    every = {name for policies in served.values() for name in policies}
    hints = MAX_NAMES if len(every) <= MAX_COMPARED else 0
    for webhook in webhooks:
        policy = webhook.worker.policy
        absent = tuple(address for address, policies in served.items() if policy not in policies)
        if absent:
            hints -= 1
            hint = did_you_mean(policy, every - {policy}) if hints >= 0 else ""
            yield PolicyMismatch(webhook, "not_served", absent, hint)
        is_mutating = webhook.phase == "mutate"
        other = tuple(
            address
            for address, policies in served.items()
            if policies.get(policy, is_mutating) != is_mutating
        )
        if other:
            yield PolicyMismatch(webhook, "other_kind", other)


def parameter_mismatches(
    clients: Iterable[tuple[Webhook, WorkerRef]], listings: Mapping[str, PolicyListing]
) -> Iterator[PolicyMismatch]:
    """Yield the *clients* whose parameters a worker does not accept; *listings* are by address."""
    for webhook, worker in clients:
        serving = {
            address: parameter_schema(listing.schemas.get(worker.policy, ""))
            for address, listing in listings.items()
            if worker.policy in (listing.policies or ())
        }
        problems: dict[str, list[str]] = {}
        for address, schema in serving.items():
            for problem in _problems(worker, schema):
                problems.setdefault(problem, []).append(address)
        is_fatal = all(not schema.fault and _problems(worker, schema) for schema in serving.values())
        for problem, addresses in problems.items():
            yield PolicyMismatch(
                *(webhook, "parameters", tuple(addresses)),
                worker=worker,
                problem=problem,
                is_fatal=is_fatal,
                is_unchecked=any(serving[address].fault for address in addresses),
            )


def _problems(worker: WorkerRef, schema: ParameterSchema) -> list[str]:
    if schema.fault:
        return [f"the JSON Schema of its parameters cannot be used: {schema.fault}"]
    if schema.takes_none and worker.parameters_annotation:
        return ["found parametersFrom, expected none: the policy takes no parameters"]
    found = schema.problems(worker.parameters, is_partial=worker.parameters_annotation != "")
    return [f"parameters{one}" for one in found]


@dataclass(slots=True)
class _WatchedPool:
    """One pool of the configuration in force."""

    pool: Pool
    webhooks: Sequence[Webhook]
    clients: Sequence[tuple[Webhook, WorkerRef]] = ()
    """Webhooks with their clients and those of their candidates, which the pool serves."""
    lost_at: float | None = None
    """When no worker was reachable first; None: one is."""
    is_logged: bool = False
    """Whether it was logged that no worker is reachable."""
    logged_at: float = float("-inf")
    losses: int = 0
    """How often the last worker was lost since this was last logged."""
    mismatches: Mapping[tuple[str, ...], PolicyMismatch] = field(default_factory=dict)
    compared: object = None
    """The workers and the versions of their lists of which ``mismatches`` is the result."""

    def effect(self) -> str:
        """Return what follows for the webhooks while no worker is reachable."""
        closed = [hook.name for hook in self.webhooks if hook.failure_policy == "Fail"]
        opened = [hook.name for hook in self.webhooks if hook.failure_policy != "Fail"]
        parts = [f"webhooks that fail closed: {_listed(closed)}"] if closed else []
        parts += [f"webhooks that fail open: {_listed(opened)}"] if opened else []
        return "; ".join(parts) or "no webhook uses it"


class WorkerWatch:
    """Watches the pools of the configuration in force. Make it on a running event loop."""

    def __init__(
        self, metrics: Metrics | None, now: Callable[[], float], parameters: ParameterTable | None = None
    ) -> None:
        """*parameters* is told what workers declare."""
        self._metrics = metrics
        self._parameters = parameters
        self._now = now
        self._pools: dict[str, _WatchedPool] = {}
        self._listings: dict[WorkerEndpoint, tuple[int, PolicyListing]] = {}
        """By endpoint, its list, and how often the endpoint had connected by then."""
        self._tasks: dict[WorkerEndpoint, asyncio.Task[None]] = {}
        self._limit = asyncio.Semaphore(MAX_LISTINGS)

    def use(self, config: Config, pools: Mapping[str, Pool]) -> None:
        """Watch *pools*, those of *config*, from now on; log those without a reachable worker at once."""
        webhooks: dict[str, list[Webhook]] = {name: [] for name in pools}
        clients: dict[str, list[tuple[Webhook, WorkerRef]]] = {name: [] for name in pools}
        for webhook in (*config.mutating, *config.validating):
            for client in webhook.clients:
                if isinstance(client, WorkerRef) and client.pool in clients:
                    clients[client.pool].append((webhook, client))
            if isinstance(webhook.client, WorkerRef) and webhook.client.pool in webhooks:
                webhooks[webhook.client.pool].append(webhook)
        before, self._pools = self._pools, {}
        for name, pool in pools.items():
            watched = before.get(name)
            if watched is None or watched.pool is not pool:
                watched = _WatchedPool(pool, ())
                if self._parameters is not None:
                    # What other workers declared does not hold for these.
                    self._parameters.declare(name, {})
                if not pool.is_reachable:
                    # The configuration has waited for its workers already.
                    watched.lost_at = self._now() - LOST_AFTER_S
            watched.webhooks, watched.clients, watched.compared = webhooks[name], clients[name], None
            self._pools[name] = watched
        if self._parameters is not None:
            for name in before.keys() - self._pools.keys():
                self._parameters.declare(name, {})
        self.check()

    def check(self) -> None:
        """Compare the present state with the last one, and log the difference."""
        for name, watched in self._pools.items():
            self._check_reachability(name, watched)
            if watched.clients:
                for endpoint in watched.pool.endpoints:
                    self._read_policies(endpoint)
            self._check_policies(name, watched)
        present = {endpoint for watched in self._pools.values() for endpoint in watched.pool.endpoints}
        for endpoint in self._listings.keys() - present:
            del self._listings[endpoint]
        if self._metrics is not None:
            self._metrics.policy_mismatches = {
                (one.webhook.name, one.webhook.phase, one.reason): len(one.workers)
                for one in self.mismatches()
            }

    def unreachable(self) -> list[tuple[str, str]]:
        """Return the name of each pool without a reachable worker, and the effect."""
        return [(name, one.effect()) for name, one in self._pools.items() if one.lost_at is not None]

    def mismatches(self) -> list[PolicyMismatch]:
        """Return the policies that are not as the webhooks need them."""
        return [one for watched in self._pools.values() for one in watched.mismatches.values()]

    def warnings(self) -> list[str]:
        """Return a line for each fault that there is now."""
        lost = [
            f"worker pool {name}: no worker is reachable; {effect}" for name, effect in self.unreachable()
        ]
        return lost + [str(one) for one in self.mismatches()]

    async def read_all(self) -> list[tuple[str, str]]:
        """Read the lists of all workers that are connected; return place and reason of those that failed.

        A worker that does not serve ListPolicies is none of these.
        """
        self.check()
        await asyncio.gather(*self._tasks.values())
        self.check()
        return [
            (f"worker {endpoint.address}", listing.why)
            for endpoint, (_, listing) in self._listings.items()
            if listing.policies is None and "UNIMPLEMENTED" not in listing.why
        ]

    async def close(self) -> None:
        """End the calls that are under way."""
        tasks = list(self._tasks.values())
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _check_reachability(self, name: str, watched: _WatchedPool) -> None:
        now = self._now()
        if watched.pool.is_reachable:
            if watched.is_logged and watched.lost_at is not None:
                log.info(
                    "worker pool reachable again: %s, after %.0f s; its webhooks are called",
                    *(name, now - watched.lost_at),
                )
            watched.lost_at, watched.is_logged = None, False
            return
        if watched.lost_at is None:
            watched.lost_at = now
            watched.losses += 1
        is_due = now - watched.lost_at >= LOST_AFTER_S and now - watched.logged_at >= QUIET_S
        if watched.is_logged or not is_due:
            return
        often = f" (lost {watched.losses} times since the last such record)" if watched.losses > 1 else ""
        why = watched.pool.unreachable_reason or "not connected yet"
        log.warning(
            "worker pool unreachable: %s: no worker is reachable%s; %s: %s",
            name,
            often,
            watched.effect(),
            why,
        )
        watched.is_logged, watched.logged_at, watched.losses = True, now, 0

    def _read_policies(self, endpoint: WorkerEndpoint) -> None:
        """Read the list of a worker that has connected since the last time."""
        count = endpoint.connected_count
        known, _ = self._listings.get(endpoint, (0, None))
        if count > known and endpoint not in self._tasks and not endpoint.lost_reason:
            task = asyncio.get_running_loop().create_task(self._read(endpoint, count))
            self._tasks[endpoint] = task
            task.add_done_callback(lambda _: self._tasks.pop(endpoint))

    async def _read(self, endpoint: WorkerEndpoint, count: int) -> None:
        try:
            async with self._limit:
                listing = await endpoint.list_policies()
        except Exception as error:
            # Without a result the next check would try again, each second.
            log.exception("policies of a worker are not known: %s: internal error", endpoint.address)
            listing = PolicyListing(None, f"internal error: {type(error).__name__}")
        if listing.policies is None:
            log.debug("policies of a worker are not known: %s: %s", endpoint.address, listing.why)
        self._listings[endpoint] = count, listing
        for name, watched in self._pools.items():
            if endpoint in watched.pool.endpoints:
                self._check_policies(name, watched)

    def _check_policies(self, name: str, watched: _WatchedPool) -> None:
        lists, listings, versions = {}, {}, []
        for endpoint in watched.pool.endpoints:
            version, listing = self._listings.get(endpoint, (0, None))
            if listing is not None and listing.policies is not None:
                lists[endpoint.address], listings[endpoint.address] = listing.policies, listing
                versions.append((endpoint.address, version))
        if not lists and watched.mismatches:
            # Nothing is known anew, such as while the workers are replaced.
            wanted = {_policy_key(hook, client) for hook, client in watched.clients}
            watched.mismatches = {key: one for key, one in watched.mismatches.items() if key[:-1] in wanted}
        if not lists or versions == watched.compared:
            return
        watched.compared = versions
        before = watched.mismatches
        if self._parameters is not None:
            self._parameters.declare(name, _declared(watched.clients, listings.values()))
        mismatches = [
            *policy_mismatches(watched.webhooks, lists),
            *parameter_mismatches(watched.clients, listings),
        ]
        found = {one.key: one for one in mismatches}
        new = [one for key, one in found.items() if key not in before]
        for one in new[:MAX_NAMES]:
            log.warning("policy mismatch: %s", one)
        if len(new) > MAX_NAMES:
            log.warning("policy mismatch: %d more; /readyz?verbose has all", len(new) - MAX_NAMES)
        over = [one for key, one in before.items() if key not in found]
        if over:
            log.info("policy mismatch over: %s", _listed([one.webhook.name for one in over]))
        watched.mismatches = found


def _policy_key(hook: Webhook, worker: WorkerRef | None = None) -> tuple[str, ...]:
    return hook.phase, hook.configuration, hook.name, (worker or hook.worker).policy


def _declared(
    clients: Iterable[tuple[Webhook, WorkerRef]], listings: Iterable[PolicyListing]
) -> dict[str, tuple[ParameterSchema, ...]]:
    """Return the different schemas of each policy of *clients*, unless there are no parameters."""
    found: dict[str, tuple[ParameterSchema, ...]] = {}
    serving = list(listings)
    for _, worker in clients:
        texts = {
            one.schemas.get(worker.policy, "") for one in serving if worker.policy in (one.policies or ())
        }
        if texts and (worker.has_parameters or texts != {""}):
            found[worker.policy] = tuple(parameter_schema(text) for text in sorted(texts))
    return found


def _listed(names: Sequence[str]) -> str:
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
