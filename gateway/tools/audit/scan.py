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
from gateway.tools.audit.restarts import is_part, is_running, is_workload, next_pod
from gateway.tools.audit.subject import (
    COLLAPSED,
    SECRETS,
    left_out,
    metadata_of,
    same_pods,
    subject_of,
    uid_of,
)
from gateway.tools.replay.cases import Case
from gateway.tools.replay.cluster import has_creation_rule, listed_items, listed_kinds
from gateway.tools.replay.objects import as_sent, creation_options
from gateway.tools.replay.results import known

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterable, Mapping, Sequence

    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.webhook import Webhook
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.audit.keys import Context, Keys
    from gateway.tools.audit.pace import Pace
    from gateway.tools.audit.run import Options, Pass
    from gateway.tools.audit.store import Store
    from gateway.tools.audit.subject import Subject
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


class Scan:
    """The objects of one pass."""

    def __init__(
        self,
        api: ApiClient,
        store: Store,
        pace: Pace,
        options: Options,
        webhooks: Sequence[Webhook],
        this: Pass,
        keys: Keys,
        namespaces: Mapping[str, Namespace],
    ) -> None:
        """*webhooks* are those that are called. What is read is noted in *this*."""
        self._api = api
        self._store = store
        self._pace = pace
        self._options = options
        self._webhooks = webhooks
        self._this = this
        self._keys = keys
        self._namespaces = namespaces
        self._reviewed: dict[str, bool] = {}
        """By resource, whether webhooks have rules for it."""
        self._reviews_pods = has_creation_rule(webhooks, "", "pods")
        self._follows = False
        """Whether objects come one by one, so that verdicts on Pods that are alike are those of the state."""
        self._parts: set[str] = set()
        """What the last object has verdicts on, or will have."""
        self.templates: set[bytes] = set()
        """What Pods share whose number has changed."""
        self.others: list[tuple[Target, str]] = []
        """Objects, by place and name, that need a verdict because another one is deleted."""

    async def wanted(self) -> list[ListedKind]:
        """Return the kinds that are read.

        Raises:
            ClusterError: the cluster cannot be reached.
        """
        found = [one async for one in listed_kinds(self._api)]
        missing = self._options.kinds - {one.named for one in found}
        problems = self._this.found.problems
        problems += [f"--kinds {one}: the cluster has no such resource" for one in sorted(missing)]
        return [one for one in found if self._is_wanted(one)]

    def parts(self, kind: ListedKind) -> set[str]:
        """Return what is evaluated of an object of *kind*, one of those of :meth:`wanted`."""
        named = {"object"} if self._is_reviewed(kind) else set()
        return named | ({"restart"} if self._restarts(kind) else set())

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

    def _is_wanted(self, kind: ListedKind) -> bool:
        options = self._options
        if (options.kinds and kind.named not in options.kinds) or not self.parts(kind):
            return False
        if kind.named == "secrets" and not options.includes_secrets:
            self._this.notes.append(SECRETS)
            return False
        return True

    def _is_reviewed(self, kind: ListedKind) -> bool:
        found = self._reviewed.get(kind.named)
        if found is None:
            found = self._reviewed[kind.named] = has_creation_rule(self._webhooks, kind.group, kind.resource)
        return found

    def _restarts(self, kind: ListedKind) -> bool:
        """Whether *kind* is read for the Pods that its objects get."""
        return self._reviews_pods and is_workload(kind)

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
        made: Callable[[], Json | None]
        if self._is_reviewed(kind):
            context = self._keys.context(kind.group, kind.resource, namespace)
            made = partial(_as_created, kind, whole)
            cases.append(self._case(subject, whole, namespace, context, made))
        if self._restarts(kind) and not is_part(whole):
            if is_running(whole):
                restarted = replace(subject, part="restart")
                context = self._keys.context("", "pods", namespace)
                cases.append(
                    self._case(restarted, whole, namespace, context, lambda: _restarted(whole, name))
                )
            else:
                this.skipped[NOT_RUNNING] += 1
        return [one for one in cases if one is not None]

    def _case(
        self,
        subject: Subject,
        whole: Json,
        namespace: Namespace | None,
        context: Context,
        request: Callable[[], Json | None],
    ) -> AuditCase | None:
        """Return the review by *request* of the object *whole*; None if the verdict on *subject* holds."""
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
            made = request()
        except (ReviewError, TypeError, RecursionError):
            this.found.leave_out(UNUSABLE)
            this.unusable[subject.uid] = subject.resource
            return None
        if made is None:
            return None
        this.subjects += 1
        self._parts.add(subject.part)
        expected = known(allowed=True)
        return AuditCase(made, "", None, namespace, expected, subject=subject, digest=digest, context=context)

    def _keep(self, subject: Subject) -> None:
        self._this.subjects += 1
        self._parts.add(subject.part)
        self._store.keep(subject)


def _as_created(kind: ListedKind, whole: Json) -> Json:
    options = creation_options(whole, CREATION)
    options = replace(options, resource=kind.resource, is_namespaced=kind.is_namespaced)
    return request_for(as_sent(whole), options)


def _restarted(whole: Json, namespace: str) -> Json | None:
    found = next_pod(whole, namespace)
    if found is None:
        return None
    pod, created = found
    return request_for(pod, RequestOptions(user=created.user, groups=created.groups, namespace=namespace))
