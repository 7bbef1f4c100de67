"""Runs reviews through the webhooks and workers of a configuration, without the HTTPS front end."""

from __future__ import annotations

import asyncio
import shutil
import tempfile
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from gateway.engine.admit import Admission, needs_namespace
from gateway.engine.cluster_source import NO_CLUSTER
from gateway.engine.engine import Engine
from gateway.engine.policy_check import PolicyCheck
from gateway.observe.telemetry.metrics import Metrics
from gateway.pure.core.deadline import Deadline
from gateway.pure.core.explain import explain
from gateway.pure.core.matching import Selection
from gateway.pure.core.response import encode
from gateway.pure.core.review import decode
from gateway.pure.core.verdict import Denied
from gateway.server.process.local_workers import STOP_GRACE_S, LocalWorkers, targets_of

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Collection, Iterator, Mapping, Sequence

    from gateway.config.merge.model import Config
    from gateway.engine.paths import Paths
    from gateway.engine.snapshot import Snapshot
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.decision import Decision
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.outcome import Outcome
    from gateway.pure.core.review import Json
    from gateway.pure.core.webhook import Phase
    from gateway.server.cluster import ClusterOnce

BUDGET_S: Final = 30.0
"""The time for each phase."""
BOTH_PHASES: Final[tuple[Phase, ...]] = ("mutate", "validate")
_READY_WITHIN_S: Final = 10.0


@dataclass(frozen=True, slots=True)
class OfflineReview:
    """A review after its phases."""

    answers: tuple[Answer, ...]
    """The answers of the phases that were reached, in order. There is at least one."""
    not_reached: tuple[Selection, ...]
    """The webhooks of the phases after one that rejected the request."""

    @property
    def decision(self) -> Decision:
        """The decision of all phases together, as a client of the API server sees it."""
        last = self.answers[-1].decision
        return replace(
            last,
            patch=self.answers[0].decision.patch if last.allowed else b"",
            warnings=tuple(dict.fromkeys(text for one in self.answers for text in one.decision.warnings)),
            audit_annotations={
                key: value
                for answer in reversed(self.answers)
                for key, value in answer.decision.audit_annotations.items()
            },
        )

    @property
    def result(self) -> Literal["allowed", "denied", "undecided"]:
        """The result; undecided: no webhook denied the request, and the failure of one rejects it."""
        if self.answers[-1].decision.allowed:
            return "allowed"
        return "denied" if any(isinstance(one.verdict, Denied) for one in self.rejections) else "undecided"

    @property
    def rejections(self) -> list[Outcome]:
        """The outcomes that reject the request, in order."""
        return [one for one in self.outcomes if one.rejects]

    @property
    def outcomes(self) -> list[Outcome]:
        """The outcomes of all phases, in order."""
        return [outcome for answer in self.answers for outcome in answer.evaluation.outcomes]

    @property
    def final_object(self) -> Json | None:
        """The object after all changes."""
        return self.answers[-1].evaluation.final_object

    def response(self) -> bytes:
        """Return the JSON of the AdmissionReview that answers all phases together."""
        request = self.answers[0].evaluation.request
        return encode(request.api_version, request.uid, self.decision)

    def explained(self) -> Iterator[str]:
        """Yield one or more lines about each webhook, in order."""
        for answer in self.answers:
            yield from explain(answer.evaluation, answer.selection)
        for selection in self.not_reached:
            for webhook in selection.webhooks:
                yield (
                    f"{selection.phase} {webhook.configuration}/{webhook.name}: not reached, the mutating "
                    "phase rejected the request"
                )


class OfflineGateway:
    """The webhooks of one configuration with their workers; see :func:`offline_gateway`."""

    def __init__(self, snapshot: Snapshot, metrics: Metrics, cluster: ClusterOnce | None) -> None:
        self._snapshot = snapshot
        self._metrics = metrics
        self._cluster = cluster

    @property
    def namespaces(self) -> Mapping[str, Namespace]:
        """The namespaces of the configuration, by name."""
        return self._snapshot.namespaces

    @property
    def paths(self) -> Paths:
        """The webhooks that each path of the front end selects."""
        return self._snapshot.paths

    async def review(
        self,
        body: bytes,
        phases: Sequence[Phase] = BOTH_PHASES,
        namespaces: Mapping[str, Namespace] | None = None,
        webhooks: Collection[str] = (),
    ) -> OfflineReview:
        """Return the review *body*, an AdmissionReview as JSON, after *phases*.

        With two phases the second gets the object with the changes of the first. *namespaces* replaces the
        namespaces of the configuration and of the cluster. Of *webhooks*, if there are any, only those with
        these names take part. Several reviews may run at the same time.

        Raises:
            ReviewError: *body* is not a valid review.
            ClusterError: the namespace of the request is needed, and the cluster is unreachable.
        """
        snapshot = self._snapshot
        if namespaces is not None:
            snapshot = replace(snapshot, namespaces=namespaces)
        elif self._cluster is not None:
            request = decode(body)
            is_needed = any(needs_namespace(self.paths[f"/{phase}"], request) for phase in phases)
            found = await self._cluster.namespaces.get(request.namespace) if is_needed else None
            snapshot = replace(snapshot, namespaces={} if found is None else {found.name: found})
        admission = Admission(snapshot, self._metrics)
        answers: list[Answer] = []
        for phase in phases:
            if answers and not answers[-1].decision.allowed:
                break
            answers.append(await _run(admission, self._selection(phase, webhooks), body))
            body = after(answers[-1], body)
        rest = phases[len(answers) :]
        return OfflineReview(tuple(answers), tuple(self._selection(phase, webhooks) for phase in rest))

    async def answer(
        self, selection: Selection, body: bytes, namespace: Namespace | None, clock: Callable[[], float]
    ) -> Answer:
        """Return the answer of the webhooks of *selection* to the review *body*, whose namespace is given.

        *clock* is that of exceptions, in seconds since 1970.

        Raises:
            ReviewError: *body* is not a valid review.
        """
        namespaces = {} if namespace is None else {namespace.name: namespace}
        snapshot = replace(self._snapshot, namespaces=namespaces, look_up=None)
        return await _run(Admission(snapshot, self._metrics, clock), selection, body)

    @property
    def digest(self) -> str:
        """The digest of the configuration."""
        return self._snapshot.digest

    def _selection(self, phase: Phase, webhooks: Collection[str]) -> Selection:
        whole = self.paths[f"/{phase}"]
        if not webhooks:
            return whole
        named = [webhook for webhook in whole.webhooks if webhook.name in webhooks]
        return Selection(phase, named, whole.exceptions)


@asynccontextmanager
async def offline_gateway(config: Config, *, uses_cluster: bool = True) -> AsyncIterator[OfflineGateway]:
    """Start the workers that *config* has a command for, connect to the others, and end them on exit.

    Parameters are checked as by ``serve``, with the schemas of the workers that are connected at the start.

    With *uses_cluster*, namespaces, decisions of the authorizer, custom resources, CA bundles and parameters
    of policies come from the cluster that *config* names.

    Raises:
        ConfigError: a pool's TLS files are unreadable.
        ClusterError: custom resources are needed, and the cluster is unreachable.
    """
    settings = config.gateway.kubernetes if uses_cluster else None
    cluster: ClusterOnce | None = None
    if settings is not None:
        # Imported late: it loads much, which only a configuration with a cluster needs.
        from gateway.server.cluster import ClusterOnce

        cluster = ClusterOnce(settings)
    try:
        async with local_engine(_READY_WITHIN_S) as (engine, metrics):
            watch = PolicyCheck(None, asyncio.get_running_loop().time, engine.parameters)
            try:
                change = engine.activate(await engine.prepare(config, cluster or NO_CLUSTER))
                watch.use(change.config, change.pools)
                await watch.read_all()
                yield OfflineGateway(change.snapshot, metrics, cluster)
            finally:
                await watch.close()
    finally:
        if cluster is not None:
            await cluster.close()


@asynccontextmanager
async def local_engine(others_within_s: float) -> AsyncIterator[tuple[Engine, Metrics]]:
    """Make an engine that starts the workers of its configuration, and ends them and itself on exit.

    Other workers have *others_within_s* seconds until they are reachable.
    """
    runtime = Path(tempfile.mkdtemp(prefix="admission-gateway-"))
    workers, metrics = LocalWorkers(runtime), Metrics()
    engine = Engine(
        metrics,
        lambda pool: targets_of(pool, runtime),
        lambda config: workers.update(config.pools),
        others_within_s=others_within_s,
    )
    try:
        yield engine, metrics
    finally:
        await engine.close()
        await workers.stop(STOP_GRACE_S)
        shutil.rmtree(runtime, ignore_errors=True)


async def _run(admission: Admission, selection: Selection, body: bytes) -> Answer:
    answered: asyncio.Future[Answer] = asyncio.get_running_loop().create_future()
    deadline = Deadline.after(BUDGET_S, admission.snapshot.backends.now())
    has_ended = False

    def end(settle: Callable[[Any], None], value: Answer | Exception) -> None:
        nonlocal has_ended
        has_ended = True
        if not answered.done():  # it may have been cancelled
            settle(value)

    done, failed = partial(end, answered.set_result), partial(end, answered.set_exception)
    cancel = admission.review(selection, body, deadline, done, failed)
    try:
        return await answered
    finally:
        if not has_ended:
            cancel()


def after(answer: Answer, body: bytes) -> bytes:
    """Return the review as input of the next phase."""
    if not answer.decision.patch:
        return body
    request = answer.evaluation.request
    changed = {**request.document, "object": answer.evaluation.final_object}
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": request.api_version, "request": changed})
