"""Whether workers can serve the webhooks of a configuration, by what they say about their policies."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Final, Literal

from gateway.base.errors import Problem
from gateway.base.text import did_you_mean, shown
from gateway.engine.dispatch.parameter_schema import parameter_schema

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Iterable, Iterator, Mapping, Sequence

    from gateway.engine.dispatch.endpoint import WorkerEndpoint
    from gateway.engine.dispatch.parameter_schema import ParameterSchema
    from gateway.engine.dispatch.policy_listing import ParameterKey, PolicyListing
    from gateway.pure.core.webhook import Webhook, WorkerRef

    Served = Mapping[str, bool]
    """Policies of a worker by name, and whether each is mutating."""

Mismatch = Literal["not_served", "other_kind", "parameters"]

MAX_NAMES: Final = 20
"""Names of webhooks or workers in one message."""
_AT_A_TIME: Final = 100
"""Parameters that are compared with a schema in one step."""
MAX_COMPARED: Final = 500
"""Policies among which a similar name is searched, which takes a millisecond for a hundred of them."""


@dataclass(frozen=True, slots=True)
class PolicyMismatch:
    """A webhook whose policy some workers do not serve, or not for its kind, or not with its parameters."""

    webhook: Webhook
    reason: Mismatch
    workers: tuple[str, ...]
    """Their addresses."""
    hint: str = ""
    worker: WorkerRef | None = None
    """The client with the parameters, or that of the candidate. None for the webhook's own."""
    problem: str = ""
    """The reason why the parameters are refused: path, found and expected."""
    is_fatal: bool = True
    """Whether calls fail for it, because no worker accepts the parameters."""
    is_unchecked: bool = False
    """Whether the schema cannot be used."""

    @property
    def key(self) -> tuple[str, ...]:
        """Equal for the same fault at other workers, and after a reload."""
        return *policy_key(self.webhook, self.worker), f"{self.reason}{self.problem}"

    @property
    def is_of_candidate(self) -> bool:
        """Whether it is about the candidate, which decides no request."""
        return self.worker is not None and self.worker is not self.webhook.client

    @property
    def is_of_engine(self) -> bool:
        """Whether the policy was made of a document of another engine."""
        return (self.worker or self.webhook.worker).kind != ""

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
        workers = listed(self.workers)
        effect = "fail closed" if self.webhook.failure_policy == "Fail" else "fail open"
        if self.is_of_candidate:
            effect = "of the candidate fail"
        if self.reason == "parameters":
            result = f"calls {effect}" if self.is_fatal else "its calls may fail: other workers accept them"
            result = "parameters are not checked" if self.is_unchecked else result
            return f"{self.problem} (according to {workers}), so that {result}"
        if self.reason == "not_served":
            return f"not served by {workers}, so that calls {effect}{self.hint}"
        if self.webhook.phase == "validate":
            return f"mutating at {workers}, and the webhook is validating, so that a patch is a failure"
        return f"not mutating at {workers}, and the webhook is mutating, so that it changes nothing"

    def __str__(self) -> str:
        return f"{self.place}: {self.message}"


def policy_mismatches(
    clients: Iterable[tuple[Webhook, WorkerRef]], served: Mapping[str, Served]
) -> Iterator[PolicyMismatch]:
    """Yield the mismatches of *clients*, those of one pool. *served* has its workers' lists by address."""
    every = {name for policies in served.values() for name in policies}
    hints = MAX_NAMES if len(every) <= MAX_COMPARED else 0
    for webhook, worker in clients:
        policy, candidate = worker.policy, None if worker is webhook.client else worker
        absent = tuple(address for address, policies in served.items() if policy not in policies)
        if absent:
            hints -= 1
            hint = did_you_mean(policy, every - {policy}) if hints >= 0 else ""
            yield PolicyMismatch(webhook, "not_served", absent, hint, candidate)
        is_mutating = webhook.phase == "mutate"
        other = tuple(
            address
            for address, policies in served.items()
            if policies.get(policy, is_mutating) != is_mutating
        )
        if other:
            yield PolicyMismatch(webhook, "other_kind", other, worker=candidate)


def parameter_mismatches(
    clients: Iterable[tuple[Webhook, WorkerRef]], listings: Mapping[str, PolicyListing]
) -> Iterator[PolicyMismatch]:
    """Yield the *clients* whose parameters a worker does not accept; *listings* are by address."""
    for webhook, worker in clients:
        serving = {
            address: listing
            for address, listing in listings.items()
            if worker.policy in (listing.policies or ())
        }
        found = {
            address: parameter_problems(worker, listing) or _faults(worker, listing)
            for address, listing in serving.items()
        }
        addresses: dict[str, list[str]] = {}
        for address, problems in found.items():
            for problem in problems:
                addresses.setdefault(problem, []).append(address)
        is_fatal = all(parameter_problems(worker, listing) for listing in serving.values())
        for problem, refusing in addresses.items():
            yield PolicyMismatch(
                *(webhook, "parameters", tuple(refusing)),
                worker=worker,
                problem=problem,
                is_fatal=is_fatal,
                is_unchecked=any(problem in _faults(worker, serving[address]) for address in refusing),
            )


def parameter_problems(worker: WorkerRef, listing: PolicyListing) -> list[str]:
    """Return why calls of *worker* fail at the worker of *listing* because of their parameters.

    That is by the schema that the worker declares, or else by its own judgement.
    """
    schema = parameter_schema(listing.schemas.get(worker.policy, ""))
    if schema.takes_none and worker.parameters_annotation:
        return ["found parametersFrom, expected none: the policy takes no parameters"]
    is_partial = worker.parameters_annotation != ""
    found = _schema_problems(listing.schemas.get(worker.policy, ""), worker.parameters, is_partial=is_partial)
    if found:
        return [f"parameters{one}" for one in found]
    problem = "" if worker.parameters_annotation else listing.checked.get(parameter_key(worker), "")
    return [problem] if problem else []


@lru_cache(maxsize=1024)
def _schema_problems(schema: str, parameters: bytes, *, is_partial: bool) -> Sequence[str]:
    """Kept: the workers of a pool declare the same."""
    return parameter_schema(schema).problems(parameters, is_partial=is_partial)


def _faults(worker: WorkerRef, listing: PolicyListing) -> list[str]:
    schema = parameter_schema(listing.schemas.get(worker.policy, ""))
    return [f"the JSON Schema of its parameters cannot be used: {schema.fault}"] if schema.fault else []


def parameter_key(worker: WorkerRef) -> ParameterKey:
    """Return the policy and the parameters of *worker*, about which its worker can be asked."""
    return worker.policy, worker.parameters


async def in_steps(clients: Iterable[WorkerRef]) -> AsyncIterator[WorkerRef]:
    """Yield *clients*, of which there can be thousands, and let other tasks run in between."""
    for number, client in enumerate(clients, 1):
        yield client
        if number % _AT_A_TIME == 0:
            await asyncio.sleep(0)


async def ask(
    endpoint: WorkerEndpoint, clients: Iterable[WorkerRef], listing: PolicyListing | None = None
) -> PolicyListing:
    """Return the list of a worker, unless *listing* is it, with its judgement of the parameters of *clients*.

    It is asked about parameters that its schema accepts. Those that each namespace completes are not known as
    a whole. Raises nothing.
    """
    if listing is None:
        listing = await endpoint.list_policies()
    if listing.policies is None:
        return listing
    wanted = set()
    async for worker in in_steps(clients):
        schema = listing.schemas.get(worker.policy, "")
        is_whole = worker.policy in listing.policies and not worker.parameters_annotation
        if is_whole and (worker.parameters or schema):
            problems = _schema_problems(schema, worker.parameters, is_partial=False)
            wanted |= set() if problems else {parameter_key(worker)}
    return await endpoint.check_parameters(listing, wanted)


@dataclass(frozen=True, slots=True)
class Rejection:
    """The reason why no call of a client can succeed."""

    field: str
    """Below ``clientConfig.worker``: ``policy``, ``parameters`` or a part of these."""
    message: str

    def problem(self, worker: WorkerRef) -> Problem:
        """Return the problem of the document that has *worker*, the client."""
        where, _, path = worker.place.rpartition(": ")
        return Problem(where, f"{path}.{self.field}", self.message)


def rejection(
    worker: WorkerRef, listings: Iterable[PolicyListing], *, is_ready_made: bool = False
) -> Rejection | None:
    """Return why every reachable worker of a pool rejects *worker*; None if they do not all.

    *listings* are the answers of the workers of the pool. A worker rejects a policy that its list does not
    have, parameters that its schema does not allow, and parameters that it judges to be unusable itself. A
    worker that is not reachable does not count. One whose list is not known may accept. With *is_ready_made*
    the message names the ready-made policies instead of workers.
    """
    pool = shown(worker.pool)
    reached = [listing for listing in listings if listing.is_reached]
    served: list[list[str]] = []
    names: set[str] = set()
    for listing in reached:
        if listing.policies is None:
            return None
        names.update(listing.policies)
        if worker.policy in listing.policies:
            served.append(parameter_problems(worker, listing))
    if not reached or not all(served):
        return None
    if not served:
        close = did_you_mean(worker.policy, names) if len(names) <= MAX_COMPARED else ""
        which = "is not a ready-made policy" if is_ready_made else f"no worker of pool {pool} serves"
        return Rejection("policy", f"found {shown(worker.policy)}, which {which}{close}")
    # The least: the same for every gateway that asks the same workers.
    problem = min(map(min, served))
    path, _, text = problem.partition(": ")
    if not path.startswith("parameters") or " " in path:
        path, text = "parameters", problem
    return Rejection(path, text if is_ready_made else f"{text} (no worker of pool {pool} accepts it)")


def policy_key(hook: Webhook, worker: WorkerRef | None = None) -> tuple[str, ...]:
    """Return what identifies the policy of *hook*, or that of *worker*, one of its clients."""
    return hook.phase, hook.configuration, hook.name, (worker or hook.worker).policy


def declared_schemas(
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


def listed(names: Sequence[str]) -> str:
    """Return the first ``MAX_NAMES`` of *names*, and how many more there are."""
    more = len(names) - MAX_NAMES
    return ", ".join(names[:MAX_NAMES]) + (f" and {more} more" if more > 0 else "")
