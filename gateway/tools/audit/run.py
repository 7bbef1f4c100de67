"""One pass of an audit: reviews the objects of a cluster whose verdict may have changed.

A review is a creation of the object as a dry run, through both phases. Reviews are run as those of a replay.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from gateway.pure.core.webhook import WorkerRef
from gateway.server.kubernetes.namespaces import PATH as NAMESPACES
from gateway.server.kubernetes.namespaces import namespace_of
from gateway.tools.audit.findings import findings_of
from gateway.tools.audit.keys import Keys
from gateway.tools.audit.plug_ins import ClusterPlugIns
from gateway.tools.audit.restarts import findings_of_plug_ins, refusals_after
from gateway.tools.audit.scan import AuditCase, Scan, Target
from gateway.tools.audit.wanted import WantedKinds
from gateway.tools.audit.writers import Writers
from gateway.tools.replay.cases import Found
from gateway.tools.replay.cluster import listed_items
from gateway.tools.replay.run import Replay, Side, left_out_webhooks

if TYPE_CHECKING:
    from collections.abc import Callable

    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.webhook import Webhook
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.audit.pace import Pace
    from gateway.tools.audit.store import Store
    from gateway.tools.offline.gateway import OfflineGateway
    from gateway.tools.replay.cases import Case
    from gateway.tools.replay.results import Result, WebhookKey


@dataclass(frozen=True, slots=True)
class Options:
    """What a pass is about, and for how long verdicts hold."""

    kinds: frozenset[str] = frozenset()
    """``RESOURCE`` or ``RESOURCE.GROUP``. Empty for all that webhooks have rules for."""
    includes_secrets: bool = False
    owner_label: str = ""
    max_age_s: float = 86_400.0
    """How long a verdict holds that may depend on more than its key."""
    kubernetes: int | None = None
    """The minor version of Kubernetes for which it looks for clients that write in a removed version."""


@dataclass
class Pass:
    """What one pass read and did."""

    began: float
    """In seconds since 1970."""
    listed: int = 0
    """Objects that were read."""
    subjects: int = 0
    """Verdicts on objects, and on the Pods that workloads get."""
    evaluated: int = 0
    skipped: Counter[str] = field(default_factory=Counter)
    """Objects that have no verdict of their own, by reason."""
    notes: list[str] = field(default_factory=list)
    """What it did not read, on purpose."""
    found: Found = field(default_factory=Found)
    alike: dict[bytes, tuple[str, int]] = field(default_factory=dict)
    """Of the Pods of each controller and template, the uid of the first, and their number."""
    read: list[tuple[str, str]] = field(default_factory=list)
    """The resources and namespaces that were read as a whole. An empty namespace stands for all."""
    writers: Writers = field(default_factory=Writers)
    """Who has written objects in a version that is removed."""
    unusable: dict[str, str] = field(default_factory=dict)
    """By uid of objects of which no review can be made, their resources."""
    stopped: str = ""
    """Why it ended early. Empty if it did not."""

    @property
    def is_complete(self) -> bool:
        """Whether all objects were read, and each that was not skipped has a verdict."""
        return not (self.stopped or self.found.problems or self.found.left_out)


def called_webhooks(gateway: OfflineGateway) -> list[Webhook]:
    """Return the webhooks of *gateway* that may be called for a dry run."""
    left = set(left_out_webhooks(gateway.config))
    return [one for one in gateway.config.webhooks if (one.phase, one.configuration, one.name) not in left]


async def server_version(api: ApiClient) -> str:
    """Return the version of the API server.

    Raises:
        ClusterError: it cannot be reached.
    """
    return str((await api.get("/version")).get("gitVersion") or "")


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

    async def run(self, now: float, done: Callable[[float], None] = lambda part: None) -> Pass:
        """Make a pass at *now*, in seconds since 1970. *done* is called with the part that was read.

        Raises:
            ClusterError: the cluster cannot be reached.
        """
        this = Pass(now)
        this.found.problems += self._gateway.ca_problems
        self._store.begin()
        version, namespaces = await server_version(self._api), await self._namespaces(this)

        async def find(name: str) -> Namespace | None:
            return namespaces.get(name)

        wanted = WantedKinds(called_webhooks(self._gateway), self._options)
        kinds = await wanted.read(self._api, this)
        plug_ins = ClusterPlugIns()
        if any("restart" in wanted.parts(kind) for kind in kinds):
            await plug_ins.read(self._api, self._pace, this.found.problems.append)
            this.notes += plug_ins.notes
        keys = Keys(self._gateway, now, version, plug_ins.known())
        results = AuditResults(self._gateway, self._store, this)
        scan = Scan(self._api, self._store, self._pace, self._options, wanted, this, keys, namespaces)
        replay = Replay(results, this.found, Side(self._gateway, now), None, find)
        targets = [Target(kind) for kind in kinds]
        await replay.run(scan.cases(targets), lambda: done(this.found.read))
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


class AuditResults:
    """Takes the results of the reviews of a pass: a ``Results`` of a replay."""

    def __init__(self, gateway: OfflineGateway, store: Store, this: Pass) -> None:
        self.notes: Counter[str] = Counter()
        self.stopped = ""
        self.waiting: dict[tuple[str, str], str] = {}
        """By uid and part, the resources of what has no result yet."""
        self._store = store
        self._this = this
        self._minor = gateway.config.gateway.kubernetes_minor
        self._policies: dict[WebhookKey, str] = {
            (one.phase, one.configuration, one.name): f"{one.client.pool}/{one.client.policy}"
            for one in gateway.config.webhooks
            if isinstance(one.client, WorkerRef)
        }

    def add(self, case: Case, before: Result, after: Result) -> None:
        """Keep *after*."""
        del before
        assert isinstance(case, AuditCase)
        assert case.subject is not None
        assert case.context is not None
        self._this.evaluated += 1
        self.waiting.pop((case.subject.uid, case.subject.part), None)
        findings = findings_of(case.request, after, self._policies)
        if case.known is not None and after.allowed:
            pod: Any = after.final_object() if after.has_changed else case.request["object"]
            refusals = refusals_after(pod, case.known, self._minor, has_changed=bool(after.has_changed))
            findings += findings_of_plug_ins(refusals)
        self._store.write(case.subject, case.digest, case.context, self._this.began, findings)
