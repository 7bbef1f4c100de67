"""Custom resources of a cluster beside what files say: which are in force, and why the others are not.

Files are one whole, refused as one. Custom resources have many authors, so each stands for itself: one that
is wrong is refused alone, and its last good version stays in force. These rules follow from that.

1. Files come first. A name that a file has is not taken by a custom resource, and a webhook of a file asks
   WorkerPools of files only: whoever may write custom resources changes nothing that files say.
2. What was deleted is gone, good or not. Webhooks whose WorkerPool went fail by their failurePolicy.
3. Of a webhook configuration that was never good, the webhooks that can be told (name, rules, selectors,
   matchPolicy and failurePolicy are in order) fail by their failurePolicy. So a webhook with ``Fail`` is a
   closed door from the moment it is there, and never an open one because of an error elsewhere in its object.
4. A WorkerPool that no webhook asks is read and judged, and not connected to.

Pure: the same objects, in whatever order they came, and the same last good versions give the same.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from gateway.config.documents import CUSTOM_KINDS, PHASES
from gateway.config.fields import Fields, Report
from gateway.config.model import WorkerPool
from gateway.config.resources import read_worker_pool
from gateway.config.webhooks import V1, WebhookConfiguration, read_webhook_configuration
from gateway.core.webhook import HttpsClient, Phase, Webhook, WorkerRef
from gateway.errors import Problem
from gateway.text import did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.config.model import Config

    Key = tuple[str, str]
    """Kind and name."""
    Meaning = WorkerPool | WebhookConfiguration

log = logging.getLogger(__name__)

PLURALS = {kind: f"{kind.lower()}s" for kind in CUSTOM_KINDS}

_TOLD_BY = ("name", "rules", "namespaceSelector", "objectSelector", "matchPolicy", "failurePolicy")


@dataclass(frozen=True, slots=True, eq=False)
class CustomResource:
    """One object as the API server told of it. Another version of it is another ``CustomResource``."""

    kind: str
    name: str
    document: Mapping[str, object]

    @property
    def key(self) -> Key:
        """What no other object has."""
        return self.kind, self.name

    @property
    def where(self) -> str:
        """What messages call it."""
        return f"cluster: {self.kind} {shown(self.name)}"

    @property
    def uid(self) -> object:
        """What an object of the same name that came later does not have."""
        return _metadata(self.document).get("uid")

    @property
    def generation(self) -> int:
        """Counts the changes of what its author says."""
        found = _metadata(self.document).get("generation")
        return found if isinstance(found, int) else 0

    def says_the_same(self, other: CustomResource) -> bool:
        """Whether *other* is the same object with the same content, its status and metadata aside."""
        return self.uid == other.uid and _content(self.document) == _content(other.document)


def _metadata(document: Mapping[str, object]) -> Mapping[str, object]:
    found = document.get("metadata")
    return found if isinstance(found, dict) else {}


def _content(document: Mapping[str, object]) -> dict[str, object]:
    # Lists may say once what holds for all of them.
    beside = ("apiVersion", "kind", "metadata", "status")
    return {name: value for name, value in document.items() if name not in beside}


@dataclass(frozen=True, slots=True, eq=False)
class Read:
    """What a custom resource says, read by itself."""

    resource: CustomResource
    meaning: Meaning
    """With placeholders wherever ``problems`` has an entry."""
    closed: WebhookConfiguration | None
    """The webhooks that fail by their failurePolicy where this counts for want of a good version."""
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class Judgement:
    """What came of one custom resource."""

    resource: CustomResource
    reason: str
    """A word for programs: Accepted, Invalid, NameInFiles, NoWorkerPool."""
    problems: tuple[Problem, ...] = ()
    """Empty: it is in force as it stands."""
    remains: str = ""
    """What counts in place of it, in words."""


@dataclass(frozen=True, slots=True)
class Combined:
    """Files and custom resources as one configuration."""

    config: Config
    judgements: tuple[Judgement, ...] = ()
    """By kind and name."""
    read: Mapping[Key, Read] = field(default_factory=dict)
    """Every resource as it is now, so that it need not be read again."""
    good: Mapping[Key, Read] = field(default_factory=dict)
    """The last good version of each, as far as it is known."""


def read_resource(resource: CustomResource) -> Read:
    """Return what *resource* says. Never raises, whatever it holds."""
    report = Report(resource.where)
    # The rest of metadata is the API server's, which may know more of it than is known here.
    fields = Fields({**resource.document, "metadata": {"name": resource.name}}, "", report)
    fields.accept("apiVersion", "kind", "status")
    phase = PHASES.get(resource.kind)
    meaning: Meaning = WorkerPool(resource.name)
    try:
        meaning = (
            read_worker_pool(fields, None) if phase is None else read_webhook_configuration(fields, phase, V1)
        )
    except Exception:
        # One object that no test has thought of is not to keep all others from being read.
        log.exception("%s cannot be read", resource.where)
        report.add("", "cannot be read: internal error: the gateway's log has the details")
    if not isinstance(meaning, WorkerPool):
        meaning = replace(meaning, webhooks=tuple(map(_as_custom, meaning.webhooks)))
    closed = None if isinstance(meaning, WorkerPool) else _closed(resource, meaning, report)
    return Read(resource, meaning, closed, tuple(report.problems()), tuple(report.warnings()))


def _as_custom(hook: Webhook) -> Webhook:
    client = hook.client
    return replace(hook, client=replace(client, is_custom=True)) if isinstance(client, HttpsClient) else hook


def _closed(
    resource: CustomResource, configuration: WebhookConfiguration, report: Report
) -> WebhookConfiguration:
    hooks = tuple(
        replace(hook, client=WorkerRef(f"for the refused {resource.kind}", ""), match_conditions=None)
        for index, hook in enumerate(configuration.webhooks)
        if not any(_is_about(path, index) for path, _ in report.found)
    )
    return replace(configuration, name=resource.name, webhooks=hooks, pools=())


def _is_about(path: str, index: int) -> bool:
    """Whether the field at *path* has a say in what the webhook at *index* is for."""
    entry = f"webhooks[{index}]"
    return path in ("webhooks", entry) or any(
        path == f"{entry}.{name}" or path.startswith((f"{entry}.{name}.", f"{entry}.{name}["))
        for name in _TOLD_BY
    )


def combine(files: Config, resources: Iterable[CustomResource], before: Combined | None) -> Combined:
    """Return what *files* and *resources* are together, after *before*; None: there was nothing before."""
    known: Mapping[Key, Read] = {} if before is None else before.read
    read: dict[Key, Read] = {}
    for resource in sorted(resources, key=lambda one: one.key):
        earlier = known.get(resource.key)
        is_known = earlier is not None and earlier.resource.says_the_same(resource)
        # Judged and told of as the newest object that says so, without its content being read again.
        read[resource.key] = (
            replace(earlier, resource=resource)
            if earlier is not None and is_known
            else read_resource(resource)
        )
    good = {
        key: earlier
        for key, earlier in ({} if before is None else before.good).items()
        if key in read and read[key].resource.uid == earlier.resource.uid
    }
    whole = _Whole(files, read, good)
    judgements = [whole.judge(kind, name) for kind in CUSTOM_KINDS for of, name in read if of == kind]
    return Combined(whole.config(), tuple(sorted(judgements, key=lambda one: one.resource.key)), read, good)


class _Whole:
    """One combination under way. Pools are judged before the configurations that ask them."""

    def __init__(self, files: Config, read: Mapping[Key, Read], good: dict[Key, Read]) -> None:
        self._files = files
        self._read = read
        self._good = good
        """Brought up to date."""
        self._pools: dict[str, WorkerPool] = {}
        self._configurations: list[WebhookConfiguration] = []
        self._warnings: list[Problem] = []

    def judge(self, kind: str, name: str) -> Judgement:
        """Put the resource in force, or what counts in place of it, and return what came of it."""
        read = self._read[kind, name]
        resource = read.resource
        if self._is_in_files(kind, name):
            message = f"found {shown(name)}, which a file of the gateway has already, and files come first"
            self._good.pop((kind, name), None)
            problem = Problem(resource.where, "metadata.name", message)
            return Judgement(resource, "NameInFiles", (problem,), "it does not count")
        problems, reason = read.problems, "Invalid"
        if not problems:
            problems, reason = self._missing_pools(read), "NoWorkerPool"
        if not problems:
            self._good[kind, name] = read
            self._warnings += read.warnings
            self._add(read.meaning)
            return Judgement(resource, "Accepted")
        good = self._good.get((kind, name))
        if good is not None:
            self._add(good.meaning)
            return Judgement(resource, reason, problems, _since(good))
        return Judgement(resource, reason, problems, self._close(read))

    def config(self) -> Config:
        """Return files and what was put in force as one."""
        files, added = self._files, self._configurations
        asked = {
            hook.client.pool for one in added for hook in one.webhooks if isinstance(hook.client, WorkerRef)
        }

        def webhooks(phase: Phase, of_files: tuple[Webhook, ...]) -> tuple[Webhook, ...]:
            of_cluster = [hook for one in added if one.phase == phase for hook in one.webhooks]
            # Stable: within a configuration the order is as written.
            return tuple(sorted((*of_files, *of_cluster), key=lambda hook: hook.configuration.encode()))

        return replace(
            files,
            mutating=webhooks("mutate", files.mutating),
            validating=webhooks("validate", files.validating),
            pools={**files.pools, **{name: pool for name, pool in self._pools.items() if name in asked}},
            configurations=files.configurations | {(one.phase, one.name) for one in added},
            warnings=(*files.warnings, *self._warnings),
        )

    def _is_in_files(self, kind: str, name: str) -> bool:
        if kind in PHASES:
            return (PHASES[kind], name) in self._files.configurations
        return name in self._files.pools

    def _missing_pools(self, read: Read) -> tuple[Problem, ...]:
        if isinstance(read.meaning, WorkerPool):
            return ()
        known = {**self._files.pools, **self._pools}
        return tuple(
            Problem(
                read.resource.where,
                path,
                f"there is no WorkerPool {shown(pool)} that could be used{did_you_mean(pool, known)}",
            )
            for path, pool in read.meaning.pools
            if pool not in known
        )

    def _add(self, meaning: Meaning) -> None:
        if isinstance(meaning, WorkerPool):
            self._pools[meaning.name] = meaning
        else:
            self._configurations.append(meaning)

    def _close(self, read: Read) -> str:
        """Put the closed doors of a resource in force that was never good; return that in words."""
        if read.closed is None or isinstance(read.meaning, WorkerPool):
            return "it does not count, and webhooks that ask it fail"
        self._configurations.append(read.closed)
        closed, every = len(read.closed.webhooks), len(read.meaning.webhooks)
        return f"{closed} of its webhooks fail by their failurePolicy, {every - closed} do not count"


def _since(good: Read) -> str:
    return f"what it said in generation {good.resource.generation} stays in force"
