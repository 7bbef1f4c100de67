"""The reviews of one pass: lists the objects, and leaves out those whose verdict holds."""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import quote

from gateway.base.errors import ClusterError, ReviewError
from gateway.engine.object_review import RequestOptions, request_for
from gateway.server.kubernetes.api_client import TooLargeError
from gateway.tools.audit.keys import short_digest
from gateway.tools.audit.restarts import findings_of_plug_ins, is_part, is_running, next_pod
from gateway.tools.audit.subject import (
    COLLAPSED,
    left_out,
    metadata_of,
    same_pods,
    subject_of,
    uid_of,
)
from gateway.tools.replay.cases import Case
from gateway.tools.replay.cluster import listed_items
from gateway.tools.replay.objects import as_sent, creation_options
from gateway.tools.replay.results import known

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from gateway.pure.core.namespace import Namespace
    from gateway.pure.workloads.known import KnownObjects, Refusal
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.audit.keys import Context, Keys
    from gateway.tools.audit.pace import Pace
    from gateway.tools.audit.run import Options, Pass
    from gateway.tools.audit.store import Store
    from gateway.tools.audit.subject import Subject
    from gateway.tools.audit.wanted import WantedKinds
    from gateway.tools.replay.cluster import ListedKind

    Json = dict[str, Any]

CREATION: Final = RequestOptions(user="admission-gateway:audit")
UNUSABLE: Final = "an object that is not complete, or nests too deep"
NOT_RUNNING: Final = "workloads without a next Pod: no replicas, suspended, or ended"


class Target(NamedTuple):
    """What is read: the objects of one kind, in one namespace or all."""

    kind: ListedKind
    namespace: str = ""

    @property
    def path(self) -> str:
        """The path of the list."""
        if not self.namespace:
            return self.kind.path
        version, _, resource = self.kind.path.rpartition("/")
        return f"{version}/namespaces/{quote(self.namespace, safe='')}/{resource}"


@dataclass(frozen=True, slots=True)
class AuditCase(Case):
    """One review of a pass."""

    subject: Subject | None = None
    digest: bytes = b""
    context: Context | None = None
    known: KnownObjects | None = None
    """Of a next Pod, what plug-ins of the API server read."""


class _Made(NamedTuple):
    """The review of one subject."""

    request: Json
    known: KnownObjects | None = None
    refusals: Sequence[Refusal] = ()
    """Why plug-ins of the API server refuse it before webhooks."""


class Scan:
    """The objects of one pass."""

    def __init__(
        self,
        api: ApiClient,
        store: Store,
        pace: Pace,
        options: Options,
        wanted: WantedKinds,
        this: Pass,
        keys: Keys,
        namespaces: Mapping[str, Namespace],
    ) -> None:
        """*wanted* says what is evaluated. What is read is noted in *this*."""
        self._api = api
        self._store = store
        self._pace = pace
        self._options = options
        self._wanted = wanted
        self._this = this
        self._keys = keys
        self._namespaces = namespaces
        self._follows = False
        """Whether objects come one by one, so that verdicts on Pods that are alike are those of the state."""
        self._parts: set[str] = set()
        """What the last object has verdicts on, or will have."""
        self.templates: set[bytes] = set()
        """What Pods share whose number has changed."""
        self.others: list[tuple[Target, str]] = []
        """Objects, by place and name, that need a verdict because another one is deleted."""

    async def cases(self, targets: Sequence[Target]) -> AsyncIterator[AuditCase]:
        """Yield the reviews of the objects of *targets* whose result is not known.

        Raises:
            ClusterError: the cluster cannot be reached.
        """
        this = self._this
        note: Callable[[str], None] = this.found.problems.append
        for number, target in enumerate(targets):
            try:
                async for item, part in listed_items(self._api, target.path, note, self._pace.request):
                    this.found.read = (number + part) / len(targets)
                    this.listed += 1
                    for case in self._cases_of(target.kind, item):
                        yield case
            except ClusterError as error:
                if not (error.status or isinstance(error, TooLargeError)):
                    raise
                note(f"{target.path}: {error}")
                continue
            this.read.append((target.kind.named, target.namespace))

    def changed(self, kind: ListedKind, item: Json) -> Sequence[AuditCase]:
        """Return the reviews that *item*, which was created or changed, needs.

        Verdicts that it has no more are removed.
        """
        self._this.listed += 1
        self._follows, self._parts = True, set()
        template = same_pods(kind, item)
        cases = self._cases_of(kind, item)
        if not template or left_out(item):
            self.removed(kind, uid_of(kind, item), self._parts)
        else:
            self.templates.add(template)
        return cases

    def removed(self, kind: ListedKind, uid: str, kept: Iterable[str] = ()) -> None:
        """Remove the verdicts on *uid*, which was deleted, other than those on the parts *kept*."""
        template, other = self._store.remove(uid, kept)
        if template:
            self.templates.add(template)
        if other is not None:
            self.others.append((Target(kind, other[0]), other[1]))

    def _cases_of(self, kind: ListedKind, item: Json) -> Sequence[AuditCase]:
        """Return the reviews that *item* needs."""
        this = self._this
        reason = left_out(item)
        if reason:
            this.skipped[reason] += 1
            return ()
        metadata = metadata_of(item)
        name = str(metadata.get("namespace") or (metadata.get("name") if kind.named == "namespaces" else ""))
        namespace = self._namespaces.get(name)
        labels = {} if namespace is None else namespace.labels
        whole = kind.whole(item)
        if self._options.kubernetes is not None:
            this.writers.add(whole, self._options.kubernetes)
        subject = subject_of(kind, whole, "object", self._options.owner_label, labels)
        same = same_pods(kind, item)
        if same:
            self._store.join(subject, same)
            first, number = this.alike.get(same, ("", 0))
            if not first and self._follows:
                first = self._store.first_of(same)
            first = first or subject.uid
            this.alike[same] = first, number + 1
            if first != subject.uid:
                this.skipped[COLLAPSED] += 1
                return ()
        cases = []
        parts = self._wanted.parts(kind)
        if "object" in parts:
            context = self._keys.context(kind.group, kind.resource, namespace)
            cases.append(self._case(subject, whole, namespace, context, partial(_as_created, kind, whole)))
        if "restart" in parts and not is_part(whole):
            if is_running(whole):
                restarted = replace(subject, part="restart")
                context = self._keys.restart_context(namespace)
                made = partial(self._restarted, whole, name)
                cases.append(self._case(restarted, whole, namespace, context, made))
            else:
                this.skipped[NOT_RUNNING] += 1
        return [one for one in cases if one is not None]

    def _case(
        self,
        subject: Subject,
        whole: Json,
        namespace: Namespace | None,
        context: Context,
        made: Callable[[], _Made | None],
    ) -> AuditCase | None:
        """Return the review that *made* makes of the object *whole*; None if *subject* has its verdict."""
        this = self._this
        before = self._store.known(subject)
        if before is not None and (
            before.context != context.digest
            or (context.is_timed and this.began - before.at >= self._options.max_age_s)
        ):
            before = None
        if before is not None and subject.version and before.version == subject.version:
            self._keep(subject)
            return None
        try:
            digest = short_digest(as_sent(whole))
            if before is not None and before.hash == digest:
                self._keep(subject)
                return None
            found = made()
        except (ReviewError, TypeError, RecursionError):
            this.found.leave_out(UNUSABLE)
            this.unusable[subject.uid] = subject.resource
            return None
        if found is None:
            return None
        this.subjects += 1
        self._parts.add(subject.part)
        if found.refusals:
            # No webhook is called.
            this.evaluated += 1
            findings = findings_of_plug_ins(found.refusals)
            self._store.write(subject, digest, context, this.began, findings)
            return None
        case = AuditCase(found.request, "", None, namespace, known(allowed=True))
        return replace(case, subject=subject, digest=digest, context=context, known=found.known)

    def _restarted(self, whole: Json, namespace: str) -> _Made | None:
        objects = self._keys.plug_ins.of(namespace)
        found = next_pod(whole, objects, self._keys.minor)
        if found is None:
            return None
        pod, created, refusals = found
        options = RequestOptions(user=created.user, groups=created.groups, namespace=namespace)
        return _Made(request_for(pod, options), objects, refusals)

    def _keep(self, subject: Subject) -> None:
        self._this.subjects += 1
        self._parts.add(subject.part)
        self._store.keep(subject)


def _as_created(kind: ListedKind, whole: Json) -> _Made:
    options = creation_options(whole, CREATION)
    options = replace(options, resource=kind.resource, is_namespaced=kind.is_namespaced)
    return _Made(request_for(as_sent(whole), options))
