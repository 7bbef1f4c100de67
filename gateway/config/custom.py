"""Combines the custom resources of a cluster with the configuration in files.

Files are accepted or refused as a whole. Custom resources have many authors, so each is accepted or refused
by itself; after an invalid change its last valid version stays in force. The rules:

1. Files take precedence. A custom resource cannot take a name that a file has, and a webhook in a file can
   only use WorkerPools in files. So authors of custom resources cannot change the configuration in files.
2. A deleted resource is removed, whether it was valid or not. Webhooks fail by their failurePolicy if their
   WorkerPool is deleted.
3. If a webhook configuration was never valid, those of its webhooks that can be identified (name, rules,
   selectors, matchPolicy and failurePolicy are valid) fail by their failurePolicy. So a webhook with ``Fail``
   fails closed from its creation on, even if its object has an error elsewhere.
4. A WorkerPool that no webhook uses is validated, but not connected to.
5. An exception that is invalid does not apply, whether an earlier version was valid or not: the webhooks are
   called.

Pure: the result depends on the objects and the last valid versions, and not on the order of their arrival.
"""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from functools import cached_property
from typing import TYPE_CHECKING

from gateway.config.documents import CUSTOM_KINDS, PHASES
from gateway.config.exceptions import CLUSTER_WIDE, NAMESPACED, read_policy_exception, unknown_webhooks
from gateway.config.fields import Fields, Report
from gateway.config.model import WorkerPool
from gateway.config.resources import read_worker_pool
from gateway.config.webhooks import V1, WebhookConfiguration, read_webhook_configuration
from gateway.core.exceptions import PolicyException
from gateway.core.webhook import HttpsClient, Phase, PolicyRef, Webhook, WorkerRef
from gateway.errors import Problem
from gateway.text import did_you_mean, shown

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.config.model import Config, Pinned

    Key = tuple[str, str]
    """Kind and id."""
    Content = WorkerPool | WebhookConfiguration | PolicyException

log = logging.getLogger(__name__)

PLURALS = {kind: f"{kind.lower()}s" for kind in CUSTOM_KINDS}

ACCEPTED = "Accepted"
"""The reason of a resource that is in force."""
_IDENTIFYING_FIELDS = ("name", "rules", "namespaceSelector", "objectSelector", "matchPolicy", "failurePolicy")


@dataclass(frozen=True, slots=True, eq=False)
class CustomResource:
    """One version of an object of the API server."""

    kind: str
    name: str
    document: Mapping[str, object]
    namespace: str = ""

    @property
    def id(self) -> str:
        """``NAMESPACE/NAME``, or ``NAME`` without a namespace: unique among the objects of the kind."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def key(self) -> Key:
        """Unique among all objects."""
        return self.kind, self.id

    @property
    def where(self) -> str:
        """The name of the object in messages."""
        return f"cluster: {self.kind} {shown(self.id)}"

    @property
    def uid(self) -> object:
        """The UID, which differs if an object is deleted and created again."""
        return _metadata(self.document).get("uid")

    @property
    def generation(self) -> int:
        """The number of changes of the spec, counted by the API server."""
        found = _metadata(self.document).get("generation")
        return found if isinstance(found, int) else 0

    def has_content_of(self, other: CustomResource) -> bool:
        """Whether *other* is the same object with the same content, without metadata and status."""
        return self.uid == other.uid and _content(self.document) == _content(other.document)


def _metadata(document: Mapping[str, object]) -> Mapping[str, object]:
    found = document.get("metadata")
    return found if isinstance(found, dict) else {}


def _content(document: Mapping[str, object]) -> dict[str, object]:
    # The items of a list may have neither apiVersion nor kind.
    beside = ("apiVersion", "kind", "metadata", "status")
    return {name: value for name, value in document.items() if name not in beside}


@dataclass(frozen=True, slots=True, eq=False)
class ReadResource:
    """A custom resource, validated by itself."""

    resource: CustomResource
    content: Content
    """Has placeholders if there are ``problems``."""
    failing: WebhookConfiguration | None
    """The webhooks that fail by their failurePolicy if there is no valid version."""
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """Whether one custom resource is in force."""

    resource: CustomResource
    reason: str
    """Of the status condition: Accepted, Invalid, NameInFiles, NoWorkerPool, Expired, UnknownWebhook or
    Pinned."""
    problems: tuple[Problem, ...] = ()
    """Why it is refused."""
    effect: str = ""
    """The effect of the problems, for messages: what is in force instead."""
    note: str = "in force"
    """The message of the status condition if there are no problems."""


@dataclass(frozen=True, slots=True)
class Combined:
    """Files and custom resources as one configuration."""

    config: Config
    statuses: tuple[ResourceStatus, ...] = ()
    """By kind and name."""
    read: Mapping[Key, ReadResource] = field(default_factory=dict)
    """The present version of every resource, which need not be validated again."""
    valid: Mapping[Key, ReadResource] = field(default_factory=dict)
    """The last valid version of each, if it is known."""


def read_resource(resource: CustomResource) -> ReadResource:
    """Return *resource*, validated. Never raises, whatever it contains."""
    report = Report(resource.where)
    # The other fields of metadata are the API server's, and newer versions may add some.
    metadata = {"name": resource.name, **({"namespace": resource.namespace} if resource.namespace else {})}
    fields = Fields({**resource.document, "metadata": metadata}, "", report)
    fields.accept("apiVersion", "kind", "status")
    content: Content = WorkerPool(resource.name)
    try:
        content = _read_content(fields, resource)
    except Exception:
        # An internal error with one object must not affect the others.
        log.exception("custom resource cannot be read, and is refused: internal error: %s", resource.where)
        report.add("", "cannot be read: internal error: the gateway's log has the details")
    failing = None
    if isinstance(content, WebhookConfiguration):
        content = replace(content, webhooks=tuple(map(_as_custom, content.webhooks)))
        failing = _failing(resource, content, report)
    return ReadResource(resource, content, failing, tuple(report.problems()), tuple(report.warnings()))


def _read_content(fields: Fields, resource: CustomResource) -> Content:
    kind = resource.kind
    if kind in PHASES:
        return read_webhook_configuration(fields, PHASES[kind], V1)
    if kind == "WorkerPool":
        return read_worker_pool(fields, None)
    if kind == NAMESPACED and not resource.namespace:
        fields.report.add("metadata.namespace", f"is required in a cluster: {CLUSTER_WIDE} has none")
    return read_policy_exception(fields, kind)


def _as_custom(hook: Webhook) -> Webhook:
    rollout = hook.rollout
    if rollout is not None and rollout.candidate is not None:
        candidate = replace(rollout.candidate, client=_of_custom(rollout.candidate.client))
        rollout = replace(rollout, candidate=candidate)
    client = hook.client if isinstance(hook.client, PolicyRef) else _of_custom(hook.client)
    return replace(hook, client=client, rollout=rollout)


def _of_custom(client: WorkerRef | HttpsClient) -> WorkerRef | HttpsClient:
    return replace(client, is_custom=True) if isinstance(client, HttpsClient) else client


def _failing(
    resource: CustomResource, configuration: WebhookConfiguration, report: Report
) -> WebhookConfiguration:
    hooks = tuple(
        replace(
            hook,
            client=WorkerRef(f"for the refused {resource.kind}", ""),
            match_conditions=None,
            rollout=None if hook.rollout is None else replace(hook.rollout, candidate=None),
        )
        for index, hook in enumerate(configuration.webhooks)
        if not any(_is_about(path, index) for path, _ in report.found)
    )
    return replace(configuration, name=resource.name, webhooks=hooks, pools=())


def _is_about(path: str, index: int) -> bool:
    """Whether the field at *path* is one by which the webhook at *index* is identified."""
    entry = f"webhooks[{index}]"
    return path in ("webhooks", entry) or any(
        path == f"{entry}.{name}" or path.startswith((f"{entry}.{name}.", f"{entry}.{name}["))
        for name in _IDENTIFYING_FIELDS
    )


def combine(
    files: Config, resources: Iterable[CustomResource], before: Combined | None, now: float = 0.0
) -> Combined:
    """Return *files* and *resources* as one configuration; *before* is the previous result, if any.

    *now* is the time in seconds since 1970. It decides only which exceptions have expired, for their status.
    """
    known: Mapping[Key, ReadResource] = {} if before is None else before.read
    read: dict[Key, ReadResource] = {}
    for resource in sorted(resources, key=lambda one: one.key):
        earlier = known.get(resource.key)
        is_known = earlier is not None and earlier.resource.has_content_of(resource)
        # The same content is not validated again, but the status belongs to the newest object.
        read[resource.key] = (
            replace(earlier, resource=resource)
            if earlier is not None and is_known
            else read_resource(resource)
        )
    valid = {
        key: earlier
        for key, earlier in ({} if before is None else before.valid).items()
        if key in read and read[key].resource.uid == earlier.resource.uid
    }
    combination = _Combination(files, read, valid, now)
    # Pools come before the configurations that refer to them, and webhooks before their exceptions.
    statuses = [combination.add(kind, name) for kind in CUSTOM_KINDS for of, name in read if of == kind]
    return Combined(
        combination.config(), tuple(sorted(statuses, key=lambda one: one.resource.key)), read, valid
    )


def resources_in_force(combined: Combined) -> list[CustomResource]:
    """Return the versions of the custom resources from which *combined* was made."""
    return [
        combined.valid.get(status.resource.key, combined.read[status.resource.key]).resource
        for status in combined.statuses
        if status.reason != "NameInFiles"
    ]


def combine_pinned(
    files: Config, pinned: Pinned, resources: Iterable[CustomResource], before: Combined | None, now: float
) -> Combined:
    """Return the *pinned* configuration. The statuses are those of *resources*, which are in the cluster."""
    combined = combine(files, pinned.resources, before, now)
    kept = {status.resource.key: status for status in combined.statuses}
    note = f"waits: the gateway is pinned to the configuration {pinned.digest[:12]} since {pinned.since}"

    def status_of(resource: CustomResource) -> ResourceStatus:
        status = kept.get(resource.key)
        if status is not None and resource.has_content_of(status.resource):
            return replace(status, resource=resource)
        return ResourceStatus(resource, "Pinned", note=note)

    return replace(
        combined, statuses=tuple(map(status_of, sorted(resources, key=lambda resource: resource.key)))
    )


class _Combination:
    """Files, and the custom resources that are in force."""

    def __init__(
        self,
        files: Config,
        read: Mapping[Key, ReadResource],
        valid: dict[Key, ReadResource],
        now: float,
    ) -> None:
        self._files = files
        self._now = now
        self._read = read
        self._valid = valid
        """Updated by ``add``."""
        self._pools: dict[str, WorkerPool] = {}
        self._configurations: list[WebhookConfiguration] = []
        self._exceptions: list[PolicyException] = []
        self._warnings: list[Problem] = []

    def add(self, kind: str, name: str) -> ResourceStatus:
        """Put the resource in force, or its last valid version, or failing webhooks; return the status."""
        read = self._read[kind, name]
        resource = read.resource
        if self._is_in_files(kind, name):
            message = f"found {shown(name)}, which a file of the gateway has; files take precedence"
            self._valid.pop((kind, name), None)
            problem = Problem(resource.where, "metadata.name", message)
            return ResourceStatus(resource, "NameInFiles", (problem,), "the resource is ignored")
        if kind in (NAMESPACED, CLUSTER_WIDE):
            return self._add_exception(read)
        problems, reason = read.problems, "Invalid"
        if not problems:
            problems, reason = self._missing_pools(read), "NoWorkerPool"
        if not problems:
            self._valid[kind, name] = read
            self._warnings += read.warnings
            self._add(read.content)
            return ResourceStatus(resource, ACCEPTED)
        valid = self._valid.get((kind, name))
        if valid is not None:
            self._add(valid.content)
            effect = f"generation {valid.resource.generation} stays in force"
            return ResourceStatus(resource, reason, problems, effect)
        return ResourceStatus(resource, reason, problems, self._add_failing(read))

    def _add_exception(self, read: ReadResource) -> ResourceStatus:
        resource, exception = read.resource, read.content
        if read.problems or not isinstance(exception, PolicyException):
            return ResourceStatus(resource, "Invalid", read.problems, "the exception does not apply")
        self._exceptions.append(exception)
        self._warnings += read.warnings
        if exception.has_expired(self._now):
            return ResourceStatus(resource, "Expired", note=f"expired at {exception.expires}")
        unknown = list(unknown_webhooks(exception, self._webhook_names))
        if len(unknown) == len(exception.webhooks):
            return ResourceStatus(resource, "UnknownWebhook", note="; ".join(unknown))
        return ResourceStatus(resource, ACCEPTED, note="; ".join(["in force", *unknown]))

    @cached_property
    def _file_exceptions(self) -> frozenset[str]:
        return frozenset(one.id for one in self._files.exceptions)

    @cached_property
    def _webhook_names(self) -> frozenset[str]:
        of_files = (*self._files.mutating, *self._files.validating)
        of_cluster = (hook for one in self._configurations for hook in one.webhooks)
        return frozenset(hook.name for hook in (*of_files, *of_cluster))

    def _unknown_to_files(self) -> list[Problem]:
        """Return a warning for each exception of a file that names an unknown webhook."""
        return [
            Problem(f"{NAMESPACED} {shown(exception.id)}", "spec.webhooks", message)
            for exception in self._files.exceptions
            for message in unknown_webhooks(exception, self._webhook_names)
        ]

    def config(self) -> Config:
        """Return the configuration: files, and the custom resources that were added."""
        files, added = self._files, self._configurations
        used = {
            client.pool
            for one in added
            for hook in one.webhooks
            for client in hook.clients
            if isinstance(client, WorkerRef)
        }

        def webhooks(phase: Phase, of_files: tuple[Webhook, ...]) -> tuple[Webhook, ...]:
            of_cluster = [hook for one in added if one.phase == phase for hook in one.webhooks]
            # Stable: within a configuration the order is as written.
            return tuple(sorted((*of_files, *of_cluster), key=lambda hook: hook.order))

        return replace(
            files,
            mutating=webhooks("mutate", files.mutating),
            validating=webhooks("validate", files.validating),
            pools={**files.pools, **{name: pool for name, pool in self._pools.items() if name in used}},
            exceptions=tuple(sorted((*files.exceptions, *self._exceptions), key=lambda one: one.id)),
            configurations=files.configurations | {(one.phase, one.name) for one in added},
            warnings=(*files.warnings, *self._warnings, *self._unknown_to_files()),
        )

    def _is_in_files(self, kind: str, name: str) -> bool:
        if kind in (NAMESPACED, CLUSTER_WIDE):
            return name in self._file_exceptions
        if kind in PHASES:
            return (PHASES[kind], name) in self._files.configurations
        return name in self._files.pools

    def _missing_pools(self, read: ReadResource) -> tuple[Problem, ...]:
        if not isinstance(read.content, WebhookConfiguration):
            return ()
        known = {**self._files.pools, **self._pools}
        return tuple(
            Problem(
                read.resource.where,
                path,
                f"there is no WorkerPool {shown(pool)} in force{did_you_mean(pool, known)}",
            )
            for path, pool in read.content.pools
            if pool not in known
        )

    def _add(self, content: Content) -> None:
        if isinstance(content, WorkerPool):
            self._pools[content.name] = content
        elif isinstance(content, WebhookConfiguration):
            self._configurations.append(content)

    def _add_failing(self, read: ReadResource) -> str:
        """Put the failing webhooks of a resource in force that was never valid; return the effect."""
        if read.failing is None or not isinstance(read.content, WebhookConfiguration):
            return "the pool is inactive, and webhooks that use it fail by their failurePolicy"
        self._configurations.append(read.failing)
        failing, every = len(read.failing.webhooks), len(read.content.webhooks)
        return f"{failing} of its webhooks fail by their failurePolicy, {every - failing} are inactive"
