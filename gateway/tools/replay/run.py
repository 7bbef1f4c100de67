"""Runs the reviews of a source through one or two configurations, many at a time, and adds them to a report.

The results are taken in the order of the input, whatever the order of the answers. Reviews are sent as dry
runs. Webhooks whose side effects a dry run does not prevent are left out.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final, Protocol

import orjson

from gateway.base.errors import ReviewError
from gateway.engine.dry_run import BOTH_PHASES
from gateway.engine.second_pass import changed_again, conflicts
from gateway.pure.core.review import V1
from gateway.tools.replay.results import UnusableResultError, made

if TYPE_CHECKING:
    from collections import Counter
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterable

    from gateway.config.merge.model import Config
    from gateway.engine.dry_run import DryRun
    from gateway.engine.second_pass import ChangedAgain
    from gateway.pure.core.matching import Selection
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.policy import ParamKind, ParamPaths
    from gateway.tools.offline.gateway import OfflineGateway
    from gateway.tools.replay.cases import Case, Found
    from gateway.tools.replay.results import Result, WebhookKey

AT_ONCE: Final = 128
MAX_FAILING: Final = 1000
"""Reviews in a row with a failed webhook, after which a replay ends: its workers are gone."""
NO_NAMESPACE: Final = "the labels of the namespace are not known (see --namespaces)"
NOT_VALID: Final = "the request is not a valid AdmissionRequest"
DAMAGED: Final = "the recorded answer is damaged"
NO_PATH: Final = (
    "its path is not one of the configuration: all webhooks of its phase and failurePolicy are called"
)


def left_out_webhooks(config: Config) -> list[WebhookKey]:
    """Return the webhooks of *config* that may not be called, in order."""
    return [
        (webhook.phase, webhook.configuration, webhook.name)
        for webhook in config.webhooks
        if not webhook.allows_dry_run
    ]


class UnknownObjectsError(Exception):
    """Policies of a review read objects that neither files nor a cluster have."""

    def __init__(self, kinds: Iterable[ParamKind]) -> None:
        named = sorted({f"{kind.kind} of {kind.api_version}" for kind in kinds})
        super().__init__(f"policies read objects that are not known (see --context): {', '.join(named)}")


class UnknownObjects:
    """The objects of the cluster for one review: a ``Params`` that has none, and notes which are needed."""

    def __init__(self) -> None:
        self.asked: set[ParamKind] = set()

    def of(self, kind: ParamKind, paths: ParamPaths) -> None:
        """Return None."""
        del paths
        self.asked.add(kind)


@dataclass
class Side:
    """A configuration that reviews are run through."""

    gateway: OfflineGateway
    now: float
    """The time of all reviews, in seconds since 1970: exceptions are those of the replay."""
    lacks_cluster: bool = False
    """Whether policies read objects of a cluster that the replay does not use."""
    calls_again: bool = False
    """Whether mutating webhooks are called a second time, on their own results."""
    observe: Callable[[Case, DryRun, Namespace | None], None] | None = None
    """Gets each review that was answered, in any order."""
    _selections: dict[str, tuple[Selection, bool]] = field(default_factory=dict)

    async def review(self, case: Case, namespace: Namespace | None) -> tuple[Result, bool]:
        """Return what came of *case*, and whether its path is one of the configuration.

        Raises:
            ReviewError: it is not a valid review.
            UnknownObjectsError: its policies read objects that are not known.
        """
        request = {**case.request, "dryRun": True}
        try:
            body = orjson.dumps({"kind": "AdmissionReview", "apiVersion": V1, "request": request})
        except TypeError:
            raise ReviewError("it nests too deeply") from None
        paths = [case.path] if case.path else [f"/{phase}" for phase in BOTH_PHASES]
        found = [self._selection(path) for path in paths]
        objects = UnknownObjects() if self.lacks_cluster else None
        namespaces = {} if namespace is None else {namespace.name: namespace}
        run = await self.gateway.dry_run(
            body,
            [selection for selection, _ in found],
            side_effects="left_out",
            at=self.now,
            namespaces=namespaces,
            objects=objects,
        )
        again: tuple[ChangedAgain, ...] = ()
        if self.calls_again:
            again = await changed_again(
                self.gateway.dry_run,
                run,
                side_effects="left_out",
                at=self.now,
                namespaces=namespaces,
                objects=objects,
            )
        if objects is not None and objects.asked:
            raise UnknownObjectsError(objects.asked)
        if self.observe is not None:
            self.observe(case, run, namespace)
        named = tuple(
            (f"{one.webhook.configuration}/{one.webhook.name}", one.line(with_values=False)) for one in again
        )
        lines = tuple(one.line(with_values=False) for one in conflicts(run)) if self.calls_again else ()
        result = replace(made(run.answers), conflicts=lines, again=named)
        return result, all(is_path for _, is_path in found)

    def _selection(self, path: str) -> tuple[Selection, bool]:
        """Return the webhooks at *path* that may be called, and whether there is such a path."""
        known = self._selections.get(path)
        if known is None:
            found = self.gateway.paths.get(path)
            is_path = found is not None
            if found is None:
                # /PHASE.POLICY.versions/… of another registration.
                phase, *more = path[1:].partition("/")[0].split(".")
                policy = "".join(f".{one}" for one in more if one in ("fail", "ignore"))
                found = self.gateway.paths.get(f"/{phase}{policy}")
            if found is None:
                raise ReviewError(f"{path}: no path of a gateway")
            known = found, is_path
            if len(self._selections) < AT_ONCE:
                self._selections[path] = known
        return known


class Results(Protocol):
    """Takes the results of a replay, in the order of the input."""

    notes: Counter[str]
    """Reviews by what their source does not have."""
    stopped: str
    """Why the replay is to end early. Empty if it is not."""

    def add(self, case: Case, before: Result, after: Result) -> object:
        """Add one review, whose namespace *case* has if it is known.

        Raises:
            UnusableResultError: the recorded answer is damaged.
        """


class Replay:
    """One replay. *before* is None: results are compared with those of the source."""

    def __init__(
        self,
        report: Results,
        found: Found,
        new: Side,
        before: Side | None,
        namespace: Callable[[str], Awaitable[Namespace | None]],
    ) -> None:
        """*namespace* looks up a namespace that the source does not have."""
        self._report = report
        self._found = found
        self._new = new
        self._before = before
        self._namespace = namespace
        self._failing = 0

    async def run(self, cases: AsyncIterator[Case], done: Callable[[], None]) -> None:
        """Replay *cases*; *done* is called after each."""
        waiting: deque[tuple[Case, asyncio.Task[_Outcome]]] = deque()
        try:
            async for case in cases:
                waiting.append((case, asyncio.create_task(self._review(case))))
                if len(waiting) >= AT_ONCE:
                    await self._take(waiting)
                    done()
                if self._report.stopped:
                    return
            while waiting and not self._report.stopped:
                await self._take(waiting)
                done()
        finally:
            for _, task in waiting:
                task.cancel()
            await asyncio.gather(*(task for _, task in waiting), return_exceptions=True)

    async def _review(self, case: Case) -> _Outcome:
        name = case.request.get("namespace")
        try:
            namespace = case.namespace
            if namespace is None and isinstance(name, str) and name:
                namespace = await self._namespace(name)
            result, is_known = await self._new.review(case, namespace)
            before = case.expected
            if self._before is not None:
                before, _ = await self._before.review(case, namespace)
        except UnknownObjectsError as error:
            return str(error)
        except ReviewError:
            return NOT_VALID
        if result.lacks_namespace or (before is not None and before.lacks_namespace):
            return NO_NAMESPACE
        return replace(case, namespace=namespace), before, result, is_known

    async def _take(self, waiting: deque[tuple[Case, asyncio.Task[_Outcome]]]) -> None:
        """Take the result of the first review."""
        _, task = waiting[0]
        outcome = await task
        waiting.popleft()
        if isinstance(outcome, str):
            self._found.leave_out(outcome)
            self._found.unanswered += 1
            return
        case, before, result, is_known = outcome
        if before is None:
            self._found.leave_out("the source has no decision to compare with (see --against)")
            return
        try:
            self._report.add(case, before, result)
        except UnusableResultError:
            self._found.leave_out(DAMAGED)
            return
        if not is_known:
            self._report.notes[NO_PATH] += 1
        if result.failures:
            self._failing += 1
        elif result.webhooks:
            self._failing = 0
        if self._failing >= MAX_FAILING:
            self._report.stopped = f"{MAX_FAILING} reviews in a row had a webhook that failed"


_Outcome = str | tuple["Case", "Result | None", "Result", bool]
"""The case with its namespace, both results, and whether the path is known; or why it is left out."""


def now() -> float:
    """Return the time for all reviews of a replay."""
    return time.time()
