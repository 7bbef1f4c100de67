"""One custom resource, validated by itself."""

from __future__ import annotations

import logging
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import orjson

from gateway.base.text import shown
from gateway.config.kinds.policy_exception import CLUSTER_WIDE, NAMESPACED, read_policy_exception
from gateway.config.kinds.webhook_configuration import WebhookConfiguration, read_webhook_configuration
from gateway.config.kinds.webhook_entry import V1
from gateway.config.kinds.worker_pool import WorkerPool, read_worker_pool
from gateway.config.merge.policy_documents import read_policy
from gateway.config.yaml.documents import (
    CUSTOM_KINDS,
    GATEWAY_VERSION,
    PHASES,
    POLICY_KINDS,
    Document,
    plural_of,
)
from gateway.config.yaml.fields import Fields, Problems
from gateway.config.yaml.parsing import MAX_NESTING
from gateway.pure.admission_policies.model import MutatingPolicy, ValidatingPolicy
from gateway.pure.core.webhook import HttpsClient, PolicyRef, Webhook, WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.base.errors import Problem
    from gateway.config.loaders.part import Part
    from gateway.config.merge.policy_documents import Binding, Policy
    from gateway.pure.cel.object_reads import Resource
    from gateway.pure.cel.spec_reads import Read
    from gateway.pure.core.exemptions import PolicyException

    Key = tuple[str, str]
    """Kind and id; of another engine ``KIND.GROUP``, since several groups have a PolicyException."""
    Content = WorkerPool | WebhookConfiguration | PolicyException | Policy | Binding | Part | None

log = logging.getLogger(__name__)

PLURALS = {kind: plural_of(kind) for kind in CUSTOM_KINDS}

_PREFIXES = (GATEWAY_VERSION.partition("/")[0], "pod-policies.kyverno.io")
"""Of the annotations of other engines' objects that are read."""
_IDENTIFYING_FIELDS = ("name", "rules", "namespaceSelector", "objectSelector", "matchPolicy", "failurePolicy")


@dataclass(frozen=True, slots=True, eq=False)
class CustomResource:
    """One version of an object of the API server."""

    kind: str
    name: str
    document: Mapping[str, object]
    namespace: str = ""
    group: str = ""
    """The API group of another engine. Empty for the gateway's own."""
    is_too_deep: bool = False
    """Whether it nests deeper than JSON can be written, so that only the metadata is there."""

    @property
    def id(self) -> str:
        """``NAMESPACE/NAME``, or ``NAME`` without a namespace: unique among the objects of the kind."""
        return f"{self.namespace}/{self.name}" if self.namespace else self.name

    @property
    def key(self) -> Key:
        """Unique among all objects."""
        return self.shown_kind, self.id

    @property
    def shown_kind(self) -> str:
        """The kind, with the group if that is another engine's."""
        return f"{self.kind}.{self.group}" if self.group else self.kind

    @property
    def where(self) -> str:
        """The name of the object in messages."""
        return f"cluster: {self.shown_kind} {shown(self.id)}"

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
        if self is other:
            return True
        # The versions of another engine's kinds have other defaults.
        versions = {one.document.get("apiVersion") for one in (self, other) if self.group}
        is_same = self.uid == other.uid and self.is_too_deep == other.is_too_deep and len(versions) < 2
        return is_same and _content(self.document) == _content(other.document)


def loaded_resource(api_version: str, kind: str, document: Mapping[str, object]) -> CustomResource:
    """Return the object *document* of another engine, as its API server has it, without what is not used.

    The items of lists have neither apiVersion nor kind, and the status may be most of an object.
    """
    metadata = _metadata(document)
    kept = {key: metadata[key] for key in ("name", "uid", "generation", "namespace") if key in metadata}
    annotations = metadata.get("annotations")
    if isinstance(annotations, dict) and (
        used := {key: text for key, text in annotations.items() if key.partition("/")[0] in _PREFIXES}
    ):
        kept["annotations"] = used
    head = {"apiVersion": api_version, "kind": kind, "metadata": kept}
    content = {name: value for name, value in document.items() if name != "status"}
    is_too_deep = False
    try:
        # Quickly, because it is done for each event. Comparisons and the history need it, too.
        orjson.dumps(content)
    except TypeError:
        content, is_too_deep = {}, True
    namespace = metadata.get("namespace")
    return CustomResource(
        kind,
        str(metadata.get("name")),
        {**content, **head},
        namespace if isinstance(namespace, str) else "",
        api_version.rpartition("/")[0],
        is_too_deep,
    )


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
    """Has placeholders if there are ``problems``. None if nothing of a document of another engine is used."""
    failing: WebhookConfiguration | None
    """The webhooks that fail by their failurePolicy if there is no valid version."""
    problems: tuple[Problem, ...]
    warnings: tuple[Problem, ...]
    reads: frozenset[Read] = frozenset()
    """What the check of its author finds that a document of another engine reads."""


def read_resource(resource: CustomResource) -> ReadResource:
    """Return *resource*, validated. Never raises, whatever it contains."""
    problems = Problems(resource.where)
    # The other fields of metadata are the API server's, and newer versions may add some.
    metadata: dict[str, object] = {"name": resource.name}
    if resource.namespace:
        metadata["namespace"] = resource.namespace
    if annotations := _metadata(resource.document).get("annotations"):
        metadata["annotations"] = annotations
    # The items of a list may have no kind.
    fields = Fields({**resource.document, "kind": resource.kind, "metadata": metadata}, "", problems)
    fields.accept("apiVersion", "kind", "status")
    content: Content = None if resource.group else WorkerPool(resource.name)
    reads: frozenset[Read] = frozenset()
    try:
        if resource.group:
            content, reads = _read_loaded(fields, resource)
        else:
            content = _read_content(fields, resource)
    except Exception:
        # An internal error with one object must not affect the others.
        log.exception("custom resource cannot be read, and is refused: internal error: %s", resource.where)
        problems.add("", "cannot be read: internal error: the gateway's log has the details")
    failing = None
    if isinstance(content, WebhookConfiguration):
        content = replace(content, webhooks=tuple(map(_as_custom, content.webhooks)))
        failing = _failing(resource, content, problems)
    found, warnings = tuple(problems.errors()), tuple(problems.warnings())
    return ReadResource(resource, content, failing, found, warnings, reads)


def _read_loaded(fields: Fields, resource: CustomResource) -> tuple[Part | None, frozenset[Read]]:
    """Return the document of another engine, as from a file, and what the check of its author finds."""
    from gateway.config.loaders.documents import read_part
    from gateway.pure.cel.spec_reads import EVERYTHING, reads_of, uses_cluster

    if resource.is_too_deep or not _is_flat(fields.content):
        fields.problems.add("", f"nested deeper than {MAX_NESTING} levels")
        return None, frozenset()
    document = Document(Path(), fields.problems, dict(fields.content))
    part = read_part(document, fields, resource.group, resource.kind)
    if fields.problems.found:
        return part, frozenset()
    # Once for each version: it takes as long as to parse all expressions.
    spec = fields.content.get("spec")
    if part is not None and part.is_exception:
        # Whatever it calls, its policy would be refused with it.
        return part, EVERYTHING if uses_cluster(spec) else frozenset()
    return part, reads_of(spec)


def _is_flat(content: Mapping[str, object]) -> bool:
    """Whether *content* has at most ``MAX_NESTING`` levels, as in files."""
    level: list[object] = [content]
    for _ in range(MAX_NESTING):
        level = [
            item
            for value in level
            for item in (
                value.values() if isinstance(value, dict) else value if isinstance(value, list) else ()
            )
            if isinstance(item, dict | list)
        ]
        if not level:
            return True
    return False


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
