"""One pass of an audit: lists the objects of a cluster, and reviews those whose verdict may have changed.

A review is a creation of the object as a dry run, through both phases. Reviews are run as those of a replay.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, Final

from gateway.base.errors import ClusterError, ReviewError
from gateway.engine.object_review import RequestOptions, request_for
from gateway.pure.core.webhook import WorkerRef
from gateway.server.kubernetes.namespaces import PATH as NAMESPACES
from gateway.server.kubernetes.namespaces import namespace_of
from gateway.tools.audit.findings import findings_of
from gateway.tools.audit.keys import Keys, short_digest
from gateway.tools.audit.subject import COLLAPSED, SECRETS, left_out, same_pods, subject_of
from gateway.tools.replay.cases import Case, Found
from gateway.tools.replay.cluster import has_creation_rule, listed_items, listed_kinds
from gateway.tools.replay.objects import as_sent, creation_options
from gateway.tools.replay.results import known
from gateway.tools.replay.run import Replay, Side, left_out_webhooks

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable

    from gateway.pure.core.namespace import Namespace
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.audit.keys import Context
    from gateway.tools.audit.pace import Pace
    from gateway.tools.audit.store import Store
    from gateway.tools.audit.subject import Subject
    from gateway.tools.offline.gateway import OfflineGateway
    from gateway.tools.replay.cluster import ListedKind
    from gateway.tools.replay.results import Result, WebhookKey

    Json = dict[str, Any]

OPTIONS: Final = RequestOptions(user="admission-gateway:audit")
UNUSABLE: Final = "an object that is not complete, or nests too deep"


@dataclass(frozen=True, slots=True)
class Options:
    """What a pass is about, and for how long verdicts hold."""

    kinds: frozenset[str] = frozenset()
    """``RESOURCE`` or ``RESOURCE.GROUP``. Empty for all that webhooks have rules for."""
    includes_secrets: bool = False
    owner_label: str = ""
    max_age_s: float = 86_400.0
    """How long a verdict holds that may depend on more than its key."""


@dataclass(frozen=True, slots=True)
class AuditCase(Case):
    """One review of a pass."""

    subject: Subject | None = None
    digest: bytes = b""
    context: Context | None = None


@dataclass
class Pass:
    """What one pass read and did."""

    began: float
    """In seconds since 1970."""
    listed: int = 0
    """Objects that were read."""
    subjects: int = 0
    """Those that have a verdict."""
    evaluated: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    """Objects that have no verdict of their own, by reason."""
    notes: list[str] = field(default_factory=list)
    """What it did not read, on purpose."""
    found: Found = field(default_factory=Found)
    alike: dict[bytes, tuple[str, int]] = field(default_factory=dict)
    """Of the Pods of each controller and template, the uid of the first, and their number."""
    read: list[str] = field(default_factory=list)
    """The resources that were read as a whole."""
    stopped: str = ""
    """Why it ended early. Empty if it did not."""

    @property
    def is_complete(self) -> bool:
        """Whether all objects were read, and each that was not skipped has a verdict."""
        return not (self.stopped or self.found.problems or self.found.left_out)


class Audit:
    """The passes over one cluster with one configuration."""

    def __init__(
        self, api: ApiClient, gateway: OfflineGateway, store: Store, pace: Pace, options: Options
    ) -> None:
        self._api = api
        self._gateway = gateway
        self._store = store
        self._pace = pace
        self._options = options
        self._policies: dict[WebhookKey, str] = {
            (one.phase, one.configuration, one.name): f"{one.client.pool}/{one.client.policy}"
            for one in gateway.config.webhooks
            if isinstance(one.client, WorkerRef)
        }
        left = set(left_out_webhooks(gateway.config))
        self._webhooks = [
            one for one in gateway.config.webhooks if (one.phase, one.configuration, one.name) not in left
        ]

    async def run(self, now: float, done: Callable[[float], None] = lambda part: None) -> Pass:
        """Make a pass at *now*, in seconds since 1970. *done* is called with the part that was read.

        Raises:
            ClusterError: the cluster cannot be reached.
        """
        this = Pass(now)
        version = str((await self._api.get("/version")).get("gitVersion") or "")
        keys = Keys(self._gateway, now, version)
        namespaces = await self._namespaces(this)
        results = _Results(self, this)

        async def find(name: str) -> Namespace | None:
            return namespaces.get(name)

        replay = Replay(results, this.found, Side(self._gateway, now), None, find)
        await replay.run(self._cases(this, keys, namespaces), lambda: done(this.found.read))
        this.stopped = results.stopped
        self._store.set_alike((number, uid) for uid, number in this.alike.values() if number > 1)
        self._store.finish(now, () if this.stopped else this.read)
        return this

    async def _namespaces(self, this: Pass) -> dict[str, Namespace]:
        found = {}
        pages = listed_items(self._api, NAMESPACES, this.found.problems.append, self._pace.request)
        async for item, _ in pages:
            one = namespace_of(item)
            found[one.name] = one
        return found

    async def _cases(
        self, this: Pass, keys: Keys, namespaces: dict[str, Namespace]
    ) -> AsyncIterator[AuditCase]:
        """Yield the reviews whose result is not known."""
        wanted = [one async for one in listed_kinds(self._api) if self._is_wanted(one, this)]
        missing = self._options.kinds - {one.named for one in wanted}
        this.found.problems += [f"--kinds {one}: the cluster has no such resource" for one in sorted(missing)]
        for number, kind in enumerate(wanted):
            path, note = kind.path, this.found.problems.append
            try:
                async for item, part in listed_items(self._api, path, note, self._pace.request):
                    this.found.read = (number + part) / len(wanted)
                    this.listed += 1
                    case = await self._case(this, keys, namespaces, kind, item)
                    if case is not None:
                        yield case
            except ClusterError as error:
                if not error.status:
                    raise
                note(f"{kind.path}: {error}")
                continue
            this.read.append(kind.named)

    def _is_wanted(self, kind: ListedKind, this: Pass) -> bool:
        if self._options.kinds:
            return kind.named in self._options.kinds
        if not has_creation_rule(self._webhooks, kind.group, kind.resource):
            return False
        if kind.named == "secrets" and not self._options.includes_secrets:
            this.notes.append(SECRETS)
            return False
        return True

    async def _case(
        self,
        this: Pass,
        keys: Keys,
        namespaces: dict[str, Namespace],
        kind: ListedKind,
        item: Json,
    ) -> AuditCase | None:
        """Return the review of *item*; None if it needs none."""
        reason = left_out(item)
        if reason:
            this.skipped[reason] += 1
            return None
        metadata: Json = item.get("metadata") or {}
        name = str(metadata.get("namespace") or (metadata.get("name") if kind.named == "namespaces" else ""))
        namespace = namespaces.get(name)
        labels = {} if namespace is None else namespace.labels
        subject = subject_of(kind, item, "object", self._options.owner_label, labels)
        same = same_pods(kind, item)
        if same in this.alike:
            first, number = this.alike[same]
            this.alike[same] = first, number + 1
            this.skipped[COLLAPSED] += 1
            return None
        if same:
            this.alike[same] = subject.uid, 1
        context = keys.context(kind.group, kind.resource, namespace)
        return self._review(this, context, kind, item, subject, namespace)

    def _review(
        self,
        this: Pass,
        context: Context,
        kind: ListedKind,
        item: Json,
        subject: Subject,
        namespace: Namespace | None,
    ) -> AuditCase | None:
        """Return the creation of *item*; None if the verdict on *subject* holds."""
        before = self._store.known(subject)
        if before is not None and (
            before.context != context.digest
            or (context.is_timed and this.began - before.at >= self._options.max_age_s)
        ):
            before = None
        this.subjects += 1
        if before is not None and subject.version and before.version == subject.version:
            self._store.keep(subject)
            return None
        sent = as_sent(kind.whole(item))
        try:
            digest = short_digest(sent)
            if before is not None and before.hash == digest:
                self._store.keep(subject)
                return None
            options = replace(
                creation_options(sent, OPTIONS), resource=kind.resource, is_namespaced=kind.is_namespaced
            )
            request = request_for(sent, options)
        except (ReviewError, TypeError):
            this.found.leave_out(UNUSABLE)
            this.subjects -= 1
            return None
        expected = known(allowed=True)
        return AuditCase(
            request, "", None, namespace, expected, subject=subject, digest=digest, context=context
        )

    def write(self, case: AuditCase, result: Result, at: float) -> None:
        """Keep *result* of *case*."""
        assert case.subject is not None
        assert case.context is not None
        findings = findings_of(case.request, result, self._policies)
        self._store.write(case.subject, case.digest, case.context, at, findings)


class _Results:
    """Takes the results of the reviews of a pass: a ``Results`` of a replay."""

    def __init__(self, audit: Audit, this: Pass) -> None:
        self.notes: Counter[str] = Counter()
        self.stopped = ""
        self._audit = audit
        self._this = this

    def add(self, case: Case, before: Result, after: Result) -> None:
        """Keep *after*."""
        del before
        assert isinstance(case, AuditCase)
        self._this.evaluated += 1
        self._audit.write(case, after, self._this.began)
