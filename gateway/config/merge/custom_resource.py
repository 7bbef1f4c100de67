"""One custom resource, validated by itself."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from gateway.base.text import shown
from gateway.config.kinds.policy_exception import CLUSTER_WIDE, NAMESPACED, read_policy_exception
from gateway.config.kinds.webhook_configuration import WebhookConfiguration, read_webhook_configuration
from gateway.config.kinds.webhook_entry import V1
from gateway.config.kinds.worker_pool import WorkerPool, read_worker_pool
from gateway.config.merge.policy_documents import read_policy
from gateway.config.yaml.documents import CUSTOM_KINDS, PHASES, POLICY_KINDS, plural_of
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.admission_policies.model import MutatingPolicy, ValidatingPolicy
from gateway.pure.core.webhook import HttpsClient, PolicyRef, Webhook, WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.base.errors import Problem
    from gateway.config.merge.policy_documents import Binding, Policy
    from gateway.pure.cel.object_reads import Resource
    from gateway.pure.core.exemptions import PolicyException

    Key = tuple[str, str]
    """Kind and id."""
    Content = WorkerPool | WebhookConfiguration | PolicyException | Policy | Binding

log = logging.getLogger(__name__)

PLURALS = {kind: plural_of(kind) for kind in CUSTOM_KINDS}

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
    content = {name: value for name, value in document.items() if name not in beside}
    return {**content, "": _metadata(document).get("annotations")}


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


def read_resource(resource: CustomResource) -> ReadResource:
    """Return *resource*, validated. Never raises, whatever it contains."""
    problems = Problems(resource.where)
    # The other fields of metadata are the API server's, and newer versions may add some.
    metadata: dict[str, object] = {"name": resource.name}
    if resource.namespace:
        metadata["namespace"] = resource.namespace
    if annotations := _metadata(resource.document).get("annotations"):
        metadata["annotations"] = annotations
    fields = Fields({**resource.document, "metadata": metadata}, "", problems)
    fields.accept("apiVersion", "kind", "status")
    content: Content = WorkerPool(resource.name)
    try:
        content = _read_content(fields, resource)
    except Exception:
        # An internal error with one object must not affect the others.
        log.exception("custom resource cannot be read, and is refused: internal error: %s", resource.where)
        problems.add("", "cannot be read: internal error: the gateway's log has the details")
    failing = None
    if isinstance(content, WebhookConfiguration):
        content = replace(content, webhooks=tuple(map(_as_custom, content.webhooks)))
        failing = _failing(resource, content, problems)
    return ReadResource(resource, content, failing, tuple(problems.errors()), tuple(problems.warnings()))


def _read_content(fields: Fields, resource: CustomResource) -> Content:
    kind = resource.kind
    if kind in PHASES:
        return read_webhook_configuration(fields, PHASES[kind], V1)
    if kind == "WorkerPool":
        return read_worker_pool(fields)
    if kind in POLICY_KINDS or kind in POLICY_KINDS.values():
        content = read_policy(kind, fields)
        if isinstance(content, ValidatingPolicy | MutatingPolicy):
            _check_reads(fields, content.object_reads())
        return content
    if kind == NAMESPACED and not resource.namespace:
        fields.problems.add("metadata.namespace", f"is required in a cluster: {CLUSTER_WIDE} has none")
    return read_policy_exception(fields, kind)


def _check_reads(fields: Fields, reads: Iterable[Resource]) -> None:
    """Report *reads* of a policy that the check of its author does not find in the document.

    There should be none.
    """
    if not (wanted := [*reads]):
        return
    from gateway.pure.cel.spec_reads import is_seen, reads_of

    seen = reads_of(fields.content.get("spec"))
    if not all(is_seen(each, seen) for each in wanted):
        fields.problems.add(
            "spec.variables", "reads objects in a way that the check of its author does not see"
        )


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
    resource: CustomResource, configuration: WebhookConfiguration, problems: Problems
) -> WebhookConfiguration:
    hooks = tuple(
        replace(
            hook,
            client=WorkerRef(f"for the refused {resource.kind}", ""),
            match_conditions=None,
            rollout=None if hook.rollout is None else replace(hook.rollout, candidate=None),
        )
        for index, hook in enumerate(configuration.webhooks)
        if not any(_is_about(path, index) for path, _ in problems.found)
    )
    return replace(configuration, name=resource.name, webhooks=hooks, pools=())


def _is_about(path: str, index: int) -> bool:
    """Whether the field at *path* is one by which the webhook at *index* is identified."""
    entry = f"webhooks[{index}]"
    return path in ("webhooks", entry) or any(
        path == f"{entry}.{name}" or path.startswith((f"{entry}.{name}.", f"{entry}.{name}["))
        for name in _IDENTIFYING_FIELDS
    )
