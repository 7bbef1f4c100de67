"""Merges the custom resources of a cluster with the configuration in files.

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
5. Policies and bindings in custom resources belong to each other only. A policy that was never valid fails by
   its failurePolicy, if the requests that it matches are known, and so does one whose paramKind is not listed
   in ``GatewayConfiguration.policies``.
6. A webhook configuration or a WorkerPool that workers reject counts as invalid: rules 1 to 3 hold.
7. An exception that is invalid does not apply, whether an earlier version was valid or not: the webhooks are
   called.
8. ``gateway.config.merge.loaded_resources`` has the rules for those of other engines.

Pure: the result depends on the objects and the last valid versions, and not on the order of their arrival.
"""

from __future__ import annotations

from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING

from gateway.base.errors import Problem
from gateway.base.text import did_you_mean, one_of, shown
from gateway.config.kinds.policy_exception import CLUSTER_WIDE, NAMESPACED, unknown_webhooks
from gateway.config.kinds.policy_settings import PLACEMENT
from gateway.config.kinds.webhook_configuration import WebhookConfiguration
from gateway.config.kinds.worker_pool import WorkerPool
from gateway.config.merge.custom_policies import REFUSED, CustomPolicies, is_identified
from gateway.config.merge.custom_resource import CustomResource, ReadResource, read_resource
from gateway.config.merge.loaded_resources import load_resources
from gateway.config.merge.policy_authors import AUTHORS
from gateway.config.merge.resource_status import ACCEPTED, ResourceStatus
from gateway.config.yaml.documents import CUSTOM_KINDS, PHASES, POLICY_KINDS
from gateway.pure.admission_policies.model import (
    MutatingBinding,
    MutatingPolicy,
    ValidatingBinding,
    ValidatingPolicy,
)
from gateway.pure.core import call_order
from gateway.pure.core.exemptions import PolicyException
from gateway.pure.core.webhook import Phase, Webhook, WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    from gateway.config.merge.custom_policies import BoundEntry
    from gateway.config.merge.custom_resource import Content, Key
    from gateway.config.merge.loaded_resources import Entries, LoadedResources
    from gateway.config.merge.model import Config, Pinned

    Rejections = Mapping[Key, tuple[Problem, ...]]
    """By custom resource, why workers reject its present version."""

REJECTED = "RejectedByWorkers"
"""The reason of a resource whose policy or parameters all reachable workers of the pool reject."""
NONE_REJECTED: Rejections = MappingProxyType({})
_LEFT = "left to the API server: policies.leftToAPIServer of the GatewayConfiguration has its kind"
_NOT_LISTED = "which policies.resources of the GatewayConfiguration does not list"
_POLICY_OF = {binding: policy for policy, binding in POLICY_KINDS.items()}
_POLICY_TYPES = (ValidatingPolicy, MutatingPolicy)
_BINDING_TYPES = (ValidatingBinding, MutatingBinding)


@dataclass(frozen=True, slots=True)
class Merged:
    """Files and custom resources as one configuration."""

    config: Config
    statuses: tuple[ResourceStatus, ...] = ()
    """By kind and name."""
    read: Mapping[Key, ReadResource] = field(default_factory=dict)
    """The present version of every resource, which need not be validated again."""
    valid: Mapping[Key, ReadResource] = field(default_factory=dict)
    """The last valid version of each, if it is known."""
    bound: Mapping[tuple[str, str], BoundEntry] = field(default_factory=dict)
    """The policies with bindings, by kind and name."""
    loaded: Entries = field(default_factory=dict)
    """The entries of the custom resources of other engines."""


def merge(
    files: Config,
    resources: Iterable[CustomResource],
    before: Merged | None,
    now: float = 0.0,
    rejected: Rejections = NONE_REJECTED,
) -> Merged:
    """Return *files* and *resources* as one configuration; *before* is the previous result, if any.

    *now* is the time in seconds since 1970. It decides only which exceptions have expired, for their status.
    *rejected* has the resources whose present versions workers reject.
    """
    known: Mapping[Key, ReadResource] = {} if before is None else before.read
    read: dict[Key, ReadResource] = {}
    for resource in sorted(resources, key=lambda one: one.key):
        earlier = known.get(resource.key)
        is_known = earlier is not None and earlier.resource.has_content_of(resource)
        # The same content is not validated again, but the status belongs to the newest object.
        if earlier is None or not is_known:
            earlier = read_resource(resource)
        read[resource.key] = earlier if earlier.resource is resource else replace(earlier, resource=resource)
    valid = {
        key: earlier
        for key, earlier in ({} if before is None else before.valid).items()
        if key in read and read[key].resource.uid == earlier.resource.uid
    }
    loaded = load_resources(files, read, valid, {} if before is None else before.loaded)
    merging = _Merge(files, read, valid, now, {} if before is None else before.bound, rejected, loaded)
    # Pools come before the configurations that refer to them, and webhooks before their exceptions.
    statuses = [merging.add(kind, name) for kind in CUSTOM_KINDS for of, name in read if of == kind]
    statuses += loaded.statuses
    statuses.sort(key=lambda one: one.resource.key)
    return Merged(merging.config(), tuple(statuses), read, valid, merging.bound, loaded.entries)


def resources_in_force(merged: Merged) -> list[CustomResource]:
    """Return the versions of the custom resources from which *merged* was made."""
    valid, keys = merged.valid, [(one.resource.key, one) for one in merged.statuses]
    return [
        valid.get(key, merged.read[key]).resource
        for key, status in keys
        # Of another engine's that was never valid nothing is in force.
        if status.reason != "NameInFiles" and (key in valid or not status.resource.group)
    ]


def merge_pinned(
    files: Config,
    pinned: Pinned,
    resources: Iterable[CustomResource],
    before: Merged | None,
    now: float,
    rejected: Rejections = NONE_REJECTED,
) -> Merged:
    """Return the *pinned* configuration. The statuses are those of *resources*, which are in the cluster."""
    merged = merge(files, pinned.resources, before, now, rejected)
    kept = {status.resource.key: status for status in merged.statuses}
    note = f"waits: the gateway is pinned to the configuration {pinned.digest[:12]} since {pinned.since}"

    def status_of(resource: CustomResource) -> ResourceStatus:
        status = kept.get(resource.key)
        if status is not None and resource.has_content_of(status.resource):
            return replace(status, resource=resource)
        return ResourceStatus(resource, "Pinned", note=note)

    return replace(
        merged, statuses=tuple(map(status_of, sorted(resources, key=lambda resource: resource.key)))
    )


class _Merge:
    """Files, and the custom resources that are in force."""

    bound: Mapping[tuple[str, str], BoundEntry]
    """The policies with bindings, once :meth:`config` was called."""

    def __init__(
        self,
        files: Config,
        read: Mapping[Key, ReadResource],
        valid: dict[Key, ReadResource],
        now: float,
        bound: Mapping[tuple[str, str], BoundEntry],
        rejected: Rejections,
        loaded: LoadedResources,
    ) -> None:
        self._files = files
        self._loaded = [hook for entries in loaded.entries.values() for hook in entries]
        """The policies of other engines."""
        self._rejected = rejected
        self._now = now
        self._read = read
        self._valid = valid
        """Updated by ``add``."""
        self._pools: dict[str, WorkerPool] = {}
        self._configurations: list[WebhookConfiguration] = []
        self._exceptions: list[PolicyException] = []
        self._policies = CustomPolicies(bound, files.gateway.policies.readable)
        self._warnings = loaded.warnings

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
        if kind in POLICY_KINDS:
            return self._add_policy(read)
        if kind in POLICY_KINDS.values():
            return self._add_binding(read)
        problems, reason = read.problems, "Invalid"
        if not problems:
            problems, reason = self._missing_pools(read), "NoWorkerPool"
        if not problems:
            problems, reason = self._circles.get(resource.key, ()), "OrderCircle"
        if not problems:
            problems, reason = self._rejected.get(resource.key, ()), REJECTED
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

    def _add_policy(self, read: ReadResource) -> ResourceStatus:
        resource, kind = read.resource, read.resource.kind
        problems, reason = read.problems, "Invalid"
        if not problems:
            problems, reason = self._unlisted_params(read), "ParamKindNotListed"
        if not problems:
            problems, reason = tuple(self._unlisted_reads(read)), "ResourceNotListed"
        if not problems:
            self._valid[resource.key] = read
            self._warnings += (*read.warnings, *self._missing_owner(read))
        valid = self._valid.get(resource.key)
        if valid is not None and not self._unlisted(valid):
            assert isinstance(valid.content, _POLICY_TYPES)
            self._policies.add(kind, valid.content)
            if problems:
                effect = f"generation {valid.resource.generation} stays in force"
                return ResourceStatus(resource, reason, problems, effect)
            if kind in self._files.gateway.policies.left_to_api_server:
                return ResourceStatus(resource, "LeftToAPIServer", note=_LEFT)
            unbound = (
                "" if (kind, resource.name) in self._named_policies else f"; no {POLICY_KINDS[kind]} names it"
            )
            return ResourceStatus(resource, ACCEPTED, note=f"in force{unbound}")
        if isinstance(read.content, _POLICY_TYPES) and is_identified(read.problems):
            self._policies.add(kind, read.content, REFUSED)
            effect = "requests that it matches fail by its failurePolicy"
        else:
            effect = "the policy is inactive"
        return ResourceStatus(resource, reason, problems, effect)

    def _add_binding(self, read: ReadResource) -> ResourceStatus:
        resource, content = read.resource, read.content
        kind = _POLICY_OF[resource.kind]
        problems, reason = read.problems, "Invalid"
        if not problems and isinstance(content, _BINDING_TYPES) and self._is_in_files(kind, content.policy):
            found = f"found {shown(content.policy)}, which is a policy in a file of the gateway"
            message = f"{found}; bindings in the cluster are for policies in the cluster"
            problems = (Problem(resource.where, "spec.policyName", message),)
            reason = "PolicyInFiles"
        if not problems:
            self._valid[resource.key] = read
            self._warnings += read.warnings
        valid = self._valid.get(resource.key)
        if valid is not None:
            assert isinstance(valid.content, _BINDING_TYPES)
            self._policies.add_binding(kind, valid.content)
            if not problems:
                return self._status_of_binding(resource, kind, valid.content.policy)
        kept = "the binding is inactive"
        if valid is not None:
            kept = f"generation {valid.resource.generation} stays in force"
        return ResourceStatus(resource, reason, problems, kept)

    def _status_of_binding(self, resource: CustomResource, kind: str, policy: str) -> ResourceStatus:
        if not self._policies.has(kind, policy):
            return ResourceStatus(
                resource, "NoPolicy", note=f"without effect: there is no {kind} {shown(policy)}"
            )
        if kind in self._files.gateway.policies.left_to_api_server:
            return ResourceStatus(resource, "LeftToAPIServer", note=_LEFT)
        return ResourceStatus(resource, ACCEPTED)

    @cached_property
    def _named_policies(self) -> frozenset[tuple[str, str]]:
        """Kind and name of the policies that bindings name."""
        bindings = ((one.resource.kind, one.content) for one in self._read.values())
        return frozenset(
            (_POLICY_OF[kind], content.policy)
            for kind, content in bindings
            if isinstance(content, _BINDING_TYPES)
        )

    def _unlisted(self, read: ReadResource) -> tuple[Problem, ...]:
        """Return problems if what a policy reads is not listed in the GatewayConfiguration."""
        return (*self._unlisted_params(read), *self._unlisted_reads(read))

    def _unlisted_reads(self, read: ReadResource) -> Iterator[Problem]:
        if isinstance(read.content, _POLICY_TYPES):
            readable = self._files.gateway.policies.readable
            for version, plural in read.content.object_reads():
                if plural and (version, plural) not in readable:
                    message = f"reads {plural} of {version}, {_NOT_LISTED}"
                    yield Problem(read.resource.where, "spec", message)

    def _unlisted_params(self, read: ReadResource) -> tuple[Problem, ...]:
        kind = read.content.param_kind if isinstance(read.content, _POLICY_TYPES) else None
        settings = self._files.gateway.policies
        listed = [(each.api_version, each.kind) for each in settings.param_kinds]
        if kind is None or (kind.api_version, kind.kind) in listed:
            return ()
        expected = (
            f", expected {one_of([f'{name} of {version}' for version, name in listed])}" if listed else ""
        )
        message = (
            f"found {shown(kind.kind)} of {shown(kind.api_version)}, which policies.paramKinds of the "
            f"GatewayConfiguration does not list{expected}"
        )
        return (Problem(read.resource.where, "spec.paramKind", message),)

    def _missing_owner(self, read: ReadResource) -> Iterator[Problem]:
        """Yield a warning if the annotation of a policy asks to move it, and nothing names the owner."""
        assert isinstance(read.content, _POLICY_TYPES)
        if message := self._files.gateway.policies.owner_problem(read.content.placement):
            yield Problem(read.resource.where, f"metadata.annotations[{shown(PLACEMENT)}]", message)

    def _add_exception(self, read: ReadResource) -> ResourceStatus:
        resource, exception = read.resource, read.content
        if read.problems or not isinstance(exception, PolicyException):
            return ResourceStatus(resource, "Invalid", read.problems, "the exception does not apply")
        self._exceptions.append(exception)
        self._warnings += read.warnings
        if exception.has_expired(self._now):
            return ResourceStatus(resource, "Expired", note=f"expired at {exception.expires}")
        unknown = list(unknown_webhooks(exception.webhooks, self._webhook_names))
        if len(unknown) == len(exception.webhooks):
            return ResourceStatus(resource, "UnknownWebhook", note="; ".join(unknown))
        return ResourceStatus(resource, ACCEPTED, note="; ".join(["in force", *unknown]))

    @cached_property
    def _file_exceptions(self) -> frozenset[str]:
        return frozenset(one.id for one in self._files.exceptions)

    @cached_property
    def _webhook_names(self) -> frozenset[str]:
        of_cluster = (hook for one in self._configurations for hook in one.webhooks)
        names = frozenset(hook.name for hook in (*self._files.webhooks, *of_cluster, *self._loaded))
        # No exception applies to the policy for the authors of policies.
        return (names | self._policies.names) - {AUTHORS}

    def _unknown_to_files(self) -> list[Problem]:
        """Return a warning for each unknown webhook that an exception of a file or imageReview names."""
        named = [
            (f"{NAMESPACED} {shown(exception.id)}", "spec.webhooks", exception.webhooks)
            for exception in self._files.exceptions
        ]
        named.append(
            ("GatewayConfiguration", "imageReview.webhooks", self._files.gateway.image_review_webhooks)
        )
        return [
            Problem(where, path, message)
            for where, path, names in named
            for message in unknown_webhooks(names, self._webhook_names)
        ]

    def config(self) -> Config:
        """Return the configuration: files, and the custom resources that were added."""
        files, added = self._files, self._configurations
        left = files.gateway.policies.left_to_api_server
        bound = self.bound = {
            key: entry for key, entry in self._policies.entries().items() if key[0] not in left
        }
        used = {
            client.pool
            for one in added
            for hook in one.webhooks
            for client in hook.clients
            if isinstance(client, WorkerRef)
        }

        def webhooks(phase: Phase, of_files: tuple[Webhook, ...]) -> tuple[Webhook, ...]:
            of_cluster = [hook for one in added if one.phase == phase for hook in one.webhooks]
            of_policies = [hook for entry in bound.values() for hook in entry.webhooks]
            of_cluster += [hook for hook in (*of_policies, *self._loaded) if hook.phase == phase]
            # Stable: within a configuration the order is as written.
            return call_order.in_call_order(sorted((*of_files, *of_cluster), key=lambda hook: hook.order))

        mutating = webhooks("mutate", files.mutating)
        return replace(
            files,
            mutating=mutating,
            validating=webhooks("validate", files.validating),
            pools={**files.pools, **{name: pool for name, pool in self._pools.items() if name in used}},
            exceptions=tuple(sorted((*files.exceptions, *self._exceptions), key=lambda one: one.id)),
            configurations=files.configurations | {(one.phase, one.name) for one in added},
            warnings=(
                *files.warnings,
                *self._warnings,
                *self._unknown_to_files(),
                *_unknown_in_order(mutating),
            ),
        )

    @cached_property
    def _circles(self) -> Mapping[Key, tuple[Problem, ...]]:
        """The circles of ``after`` in which webhooks of custom resources are, by resource."""
        owners = {
            hook: (read.resource, path)
            for read in self._read.values()
            if isinstance(read.content, WebhookConfiguration) and not read.problems
            for path, hook in read.content.afters
            if not self._is_in_files(*read.resource.key)
        }
        found: dict[Key, tuple[Problem, ...]] = {}
        for circle in call_order.circles([*self._files.mutating, *owners]):
            for resource, path in (owners[hook] for hook in circle if hook in owners):
                message = f"found a circle, expected an order: {call_order.circle_text(circle)}"
                of_resource = found.setdefault(resource.key, ())
                found[resource.key] = (*of_resource, Problem(resource.where, path, message))
        return found

    def _is_in_files(self, kind: str, name: str) -> bool:
        if kind in (NAMESPACED, CLUSTER_WIDE):
            return name in self._file_exceptions
        if kind in PHASES:
            return (PHASES[kind], name) in self._files.configurations
        if kind in POLICY_KINDS or kind in _POLICY_OF:
            return (kind, name) in self._files.policies
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


def _unknown_in_order(mutating: Sequence[Webhook]) -> Iterator[Problem]:
    """Yield a warning for each name in ``after`` that no webhook has."""
    known = {hook.name for hook in mutating}
    for hook in mutating:
        for message in call_order.unknown_in_after(hook, known):
            yield Problem(
                f"MutatingWebhookConfiguration {shown(hook.configuration)}", f"{hook.name}: after", message
            )
