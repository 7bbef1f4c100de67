"""The documents of another engine: which of them the gateway can run, and what differs.

Every statement is one of the loaders of the configuration: a problem of a document means that it cannot run,
a warning that it runs with a difference.
"""

from __future__ import annotations

from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Final, Literal

from gateway.base.errors import ConfigError, Problem
from gateway.base.text import shown
from gateway.config.loaders.gatekeeper_worker import GROUPS as FOR_WORKER
from gateway.config.merge.read import read
from gateway.config.yaml.documents import LOADED_GROUPS, Document
from gateway.config.yaml.fields import Problems
from gateway.pure.admission_policies.in_force import PolicyInForce
from gateway.pure.cel.object_reads import ANY
from gateway.pure.core.webhook import PolicyRef, WorkerRef
from gateway.tools.importing.needs import DEFINITION, ReadableKinds, cluster_only, settings_for, with_workers
from gateway.tools.importing.objects import LAST_APPLIED, file_stem, name_of, texts
from gateway.tools.importing.sources import documents_of
from gateway.tools.registration.yaml_output import to_yaml

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping, Sequence

    from gateway.pure.admission_policies.objects import ObjectReads
    from gateway.pure.core.webhook import Webhook
    from gateway.tools.importing.needs import Resource

    Json = dict[str, Any]
    Result = Literal["runs", "differs", "worker", "refused"]

GROUPS: Final = {
    "kyverno": tuple(sorted(group for group in LOADED_GROUPS if group.endswith("kyverno.io"))),
    "gatekeeper": tuple(sorted(group for group in LOADED_GROUPS if group.endswith(".gatekeeper.sh"))),
    "kubewarden": ("policies.kubewarden.io",),
}
"""The API groups of each engine."""
NOT_LISTED: Final = ("updaterequests", "status.gatekeeper.sh")
"""Resources and groups that an engine writes for itself, and that are not read from a cluster."""
NO_KINDS: Final[Mapping[Resource, str]] = MappingProxyType({})
_LATER: Final = (
    "reads objects of kinds that its expressions name in a review: add them to policies.resources of the "
    "GatewayConfiguration"
)
_CONSTRAINTS: Final = "constraints.gatekeeper.sh"
_TEMPLATE: Final = "ConstraintTemplate"
_OF_CLUSTER: Final = (
    "creationTimestamp",
    "generation",
    "managedFields",
    "resourceVersion",
    "selfLink",
    "uid",
)


@dataclass(slots=True)
class Imported:
    """One object in the form that is written, with what the loaders say about it."""

    kind: str
    name: str
    """``NAMESPACE/NAME``, or ``NAME`` without a namespace."""
    place: str
    """File, document, kind and name, or the cluster's kind and name."""
    file: str
    text: str
    content: Json
    problems: list[tuple[str, str]] = field(default_factory=list)
    """Field and message of everything for which it cannot run."""
    reads: tuple[Resource, ...] = ()
    """The objects that its expressions read."""
    differences: list[tuple[str, str]] = field(default_factory=list)
    in_worker: tuple[str, ...] = ()
    """The policies of a worker that evaluate it, or parts of it."""
    is_for_worker: bool = False
    """Whether nothing but a worker uses it."""

    @property
    def result(self) -> Result:
        """Whether it runs as it is, and whether a worker has to evaluate any of it."""
        if self.problems:
            return "refused"
        if self.in_worker or self.is_for_worker:
            return "worker"
        return "differs" if self.differences else "runs"

    def document(self) -> Document:
        """Return it as a document that no loader has read."""
        return Document(Path(self.file), Problems(self.place), self.content)


@dataclass(slots=True)
class Found:
    """What a cluster or files contain."""

    objects: list[Imported] = field(default_factory=list)
    passed_over: Counter[str] = field(default_factory=Counter)
    """How many documents of each other kind, and those without apiVersion and kind."""
    unreadable: list[Problem] = field(default_factory=list)
    definitions: list[Json] = field(default_factory=list)
    """The CustomResourceDefinitions."""


@dataclass(frozen=True, slots=True)
class Needs:
    """What policies need of the GatewayConfiguration."""

    read: Mapping[Resource, str] = field(default_factory=dict)
    """The kinds that they read, by apiVersion and plural name."""
    unknown: frozenset[Resource] = frozenset()
    """What they read and no kind is known for."""
    has_cluster: bool = False
    """Whether they need a cluster."""

    def settings(self) -> Json | None:
        """Return the GatewayConfiguration, or None if they need none."""
        return settings_for(self.read) if self.read or self.has_cluster else None


def of_engine(engine: str, documents: Iterable[Document]) -> Found:
    """Return the objects of *engine* in *documents*, and what else is there."""
    found = Found()
    for one in documents:
        content = one.content
        if not one.is_object:
            found.passed_over["no object"] += 1
            continue
        if content is None:
            found.unreadable += one.problems.errors()
            continue
        version, kind = content.get("apiVersion"), content.get("kind")
        if not isinstance(version, str) or not isinstance(kind, str):
            found.passed_over["no object"] += 1
        elif version.rpartition("/")[0] not in GROUPS[engine]:
            found.passed_over[kind] += 1
            if kind == DEFINITION:
                found.definitions.append(content)
        elif one.problems.found:
            found.unreadable += one.problems.errors()
        else:
            found.objects.append(_imported(content, kind, one.place))
    return found


def judge(
    objects: Sequence[Imported], custom: Mapping[Resource, str] = NO_KINDS, *, has_workers: bool = False
) -> Needs:
    """Have the loaders read *objects*, each with what belongs to it, and note what they say.

    Returns what they need. *custom* are the kinds of custom resources that they may read. With *has_workers*,
    workers evaluate what the gateway does not.

    Raises:
        ConfigError: the configuration has a problem that is of none of them.
    """
    settings = with_workers if has_workers else cluster_only
    unknown: set[Resource] = set()
    first_of: dict[tuple[str, str, str], Imported] = {}
    templates: dict[str, Imported] = {}
    for each in sorted(objects, key=_is_constraint):
        if each.problems:
            continue
        group = str(each.content["apiVersion"]).rpartition("/")[0]
        document = each.document()
        first = first_of.setdefault((group, each.kind, each.name), each)
        template = templates.get(each.kind.lower()) if group == _CONSTRAINTS else None
        if first is not each:
            document.repeats(each.name, first.document())
        elif template is not None and template.problems:
            document.problems.add("kind", f"its {_TEMPLATE} {shown(template.name)} cannot run")
        else:
            readable = ReadableKinds(custom)
            with suppress(ConfigError):
                made = read([*settings(), *([template.document()] if template else ()), document], readable)
                if any(map(_names_kinds_later, made.webhooks)):
                    each.differences.append(("spec", _LATER))
                clients = [hook.client for hook in made.webhooks]
                each.in_worker = tuple(one.policy for one in clients if isinstance(one, WorkerRef))
                each.is_for_worker = has_workers and _is_for_worker(group, each)
            each.reads = tuple(sorted(readable.read))
            unknown |= readable.unknown
            if each.kind == _TEMPLATE:
                templates[each.name] = each
        each.problems += document.problems.found
    return _judge_together([each for each in objects if not each.problems], custom, unknown, settings)


def _is_for_worker(group: str, one: Imported) -> bool:
    """Whether only a worker uses *one* of *group*, which has no problem if there is one."""
    if one.kind != _TEMPLATE:
        return group in FOR_WORKER
    try:
        read([*cluster_only(), one.document()])
    except ConfigError:
        return True
    return False


def _judge_together(
    good: list[Imported],
    custom: Mapping[Resource, str],
    unknown: Collection[Resource],
    settings: Callable[[], list[Document]],
) -> Needs:
    """Leave out of *good* what cannot be in one configuration with the others; note the warnings of the rest.

    Returns what these need.

    Raises:
        ConfigError: the configuration has a problem that is of none of them.
    """
    while good:
        documents = [each.document() for each in good]
        readable = ReadableKinds(custom)
        try:
            config = read([*settings(), *documents], readable)
        except ConfigError:
            for each, document in zip(good, documents, strict=True):
                each.problems += document.problems.found
            left = [each for each in good if not each.problems]
            if len(left) == len(good):
                raise
            good = left
            continue
        for each, document in zip(good, documents, strict=True):
            each.differences += document.problems.questionable
        return Needs(readable.read, frozenset(unknown), any(map(_needs_cluster, config.webhooks)))
    return Needs(unknown=frozenset(unknown))


def _needs_cluster(policy: Webhook) -> bool:
    """Whether *policy* reads from the cluster, or asks its authorizer."""
    if not isinstance(policy.client, PolicyRef):
        return False
    return bool(policy.client.reads) or bool(_objects_of(policy))


def _names_kinds_later(policy: Webhook) -> bool:
    """Whether expressions of *policy* find out only in a review of which kind the objects are."""
    return policy.policy is not None and ANY in _objects_of(policy).resources


def _objects_of(policy: Webhook) -> ObjectReads:
    in_force = policy.policy
    assert isinstance(in_force, PolicyInForce)
    return in_force.objects


def _is_constraint(one: Imported) -> bool:
    return str(one.content["apiVersion"]).startswith(f"{_CONSTRAINTS}/")


def _imported(content: Json, kind: str, place: str) -> Imported:
    metadata = content.get("metadata")
    namespace = metadata.get("namespace") if isinstance(metadata, dict) else None
    name = name_of(content)
    name = f"{namespace}/{name}" if isinstance(namespace, str) and namespace else name
    file = f"{file_stem(kind.lower())}-{file_stem(name.replace('/', '_'))}"
    # Each part is short enough; both together may not be.
    made = Imported(kind, name, place, f"{file_stem(file) if len(file) > 240 else file}.yaml", "", content)
    try:
        made.text = to_yaml(_cleaned(content))
        read_again = list(documents_of(Path(made.file), made.text.encode()))
    except (UnicodeEncodeError, RecursionError):
        made.problems.append(("", "cannot be written as YAML"))
        return made
    for one in read_again:
        made.problems += one.problems.found
        made.content = one.content or content
    return made


def _cleaned(content: Json) -> Json:
    """Return *content* without what the cluster and kubectl added."""
    kept = {key: value for key, value in content.items() if key != "status"}
    if isinstance(content.get("metadata"), dict):
        metadata = {key: value for key, value in content["metadata"].items() if key not in _OF_CLUSTER}
        if LAST_APPLIED in texts(content, "annotations"):
            metadata["annotations"] = {
                key: value for key, value in metadata["annotations"].items() if key != LAST_APPLIED
            }
            if not metadata["annotations"]:
                del metadata["annotations"]
        kept["metadata"] = metadata
    return kept
