"""The custom resources of other engines: which are in force, and the entries of a phase that they make.

The rules of ``gateway.config.merge.merged`` hold: each is accepted or refused by itself, after an invalid
change its last valid version stays in force, and an invalid exception does not apply. Beside them:

1. They belong to each other only. An exception in the cluster leaves no policy of a file out, and a
   constraint in the cluster needs a template in the cluster. So authors of custom resources cannot change
   what files say.
2. One that was never valid is not in force, as in its own engine.
3. A constraint whose parameters do not fit its template any more stays as it was. Without a template it has
   no effect.
4. A policy may not have parameters: nothing checks the rights of its author to read them. Only policies of
   the kinds whose authors are checked may read other objects, and no exceptions.
5. Exceptions apply only in the namespaces of ``policies.exceptionNamespaces``. Who may write them in one
   namespace could otherwise leave out the policies of the whole cluster.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import lru_cache
from typing import TYPE_CHECKING, Final, cast

from gateway.base.errors import Problem
from gateway.base.text import shown
from gateway.config.kinds.policy_settings import PolicySettings
from gateway.config.merge.policy_authors import READING_KINDS
from gateway.config.merge.resource_status import ACCEPTED, ResourceStatus
from gateway.pure.core.webhook import PolicyRef

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from gateway.config.kinds.policy_settings import ListedKind
    from gateway.config.loaders.documents import LoadedDocuments
    from gateway.config.loaders.part import Part
    from gateway.config.merge.custom_resource import CustomResource, Key, ReadResource
    from gateway.config.merge.model import Config
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.core.webhook import Webhook

    Entries = Mapping[Key, tuple[Webhook, ...]]
    """The entries of each custom resource that has some."""

GATEKEEPER_NAMESPACE: Final = "gatekeeper-system"
"""Where Gatekeeper reads its Config."""
_MUTATIONS: Final = "mutations.gatekeeper.sh"
MAX_WARNINGS: Final = 20
"""Of one resource."""
MAX_NAMED: Final = 10
_INACTIVE: Final = "it is not in force"
_UNCHECKED: Final = (
    "and nothing checks that the author of a policy of another engine may read them; put it into a file"
)


@dataclass(slots=True)
class LoadedResources:
    """What custom resources of other engines make."""

    statuses: list[ResourceStatus] = field(default_factory=list)
    entries: dict[Key, tuple[Webhook, ...]] = field(default_factory=dict)
    warnings: list[Problem] = field(default_factory=list)


def load_resources(
    files: Config, read: Mapping[Key, ReadResource], valid: dict[Key, ReadResource], before: Entries
) -> LoadedResources:
    """Return what the resources of other engines among *read* make, beside the configuration of *files*.

    *valid* has the last valid versions, and is updated. *before* are the entries of the configuration before,
    which stay the same objects without a change.
    """
    keys = sorted(key for key, one in read.items() if one.resource.group)
    if not keys:
        return LoadedResources()
    loading = _Loading(files, read, valid, before)
    for key in keys:
        loading.choose(key)
    for key in keys:
        loading.make(key)
    loading.build_new()
    return loading.made


class _Loading:
    def __init__(
        self, files: Config, read: Mapping[Key, ReadResource], valid: dict[Key, ReadResource], before: Entries
    ) -> None:
        # Imported late: expressions take time and memory that a configuration without policies does not need.
        from gateway.config.loaders.documents import LoadedDocuments

        self._files = files
        self._read = read
        self._valid = valid
        self._before = before
        self._documents: LoadedDocuments = LoadedDocuments(files.gateway.policies.engines, is_custom=True)
        self._chosen: dict[Key, ReadResource] = {}
        """The version of each resource that is in force, as far as others do not refuse it."""
        self._provided: set[str] = set()
        self._problems: dict[Key, tuple[Problem, ...]] = {}
        """Of the present versions."""
        self.made = LoadedResources()

    def choose(self, key: Key) -> None:
        """Add the present version of a resource, or the last valid one, or its status if there is neither."""
        read = self._read[key]
        resource = read.resource
        if key in self._files.loaded:
            self._valid.pop(key, None)
            message = f"found {shown(resource.id)}, which a file of the gateway has; files take precedence"
            problem = Problem(resource.where, "metadata.name", message)
            self._add_status(ResourceStatus(resource, "NameInFiles", (problem,), "the resource is ignored"))
            return
        if unused := self._why_unused(resource):
            self._valid.pop(key, None)
            self._add_status(ResourceStatus(resource, "NotUsed", note=f"without effect: {unused}"))
            return
        problems = read.problems or tuple(_of_parameters(read)) or tuple(_of_exceptions(read))
        self._problems[key] = problems
        if problems and _is_exception(resource):
            self._valid.pop(key, None)
            effect = "the exception does not apply"
            self._add_status(ResourceStatus(resource, "Invalid", problems, effect))
            return
        chosen = self._valid.get(key) if problems else read
        if chosen is None or chosen.content is None:
            reason = "Invalid" if problems else "NotUsed"
            self._add_status(ResourceStatus(resource, reason, problems, _INACTIVE, note="without effect"))
            return
        self._chosen[key] = chosen
        part = _part(chosen)
        _forget_others(chosen)
        self._documents.add(resource.group, part)
        if part.provides:
            self._provided.add(part.provides)

    def make(self, key: Key) -> None:
        """Make the entries of a resource, together with the others, and its status."""
        chosen = self._chosen.get(key)
        if chosen is None:
            return
        resource, problems = self._read[key].resource, self._problems[key]
        part = _part(chosen)
        if part.needs and part.needs not in self._provided:
            note = f"without effect: no ConstraintTemplate in force has the kind {shown(part.needs)}"
            self._add_status(ResourceStatus(resource, "NoTemplate", problems, _INACTIVE, note))
            return
        entries, found = self._entries(chosen)
        valid = self._valid.get(key)
        if found:
            problems = problems or found
            entries = ()
            if valid is not None:
                entries, found = ((), found) if valid is chosen else self._entries(valid)
            if found and valid is not None:
                # If its template has changed, what it made with the one before stays.
                entries = self._before.get(key, ()) if part.needs else ()
                valid = valid if entries else None
        elif not problems:
            self._valid[key] = chosen
            self.made.warnings += _part(chosen).document.problems.warnings()[:MAX_WARNINGS]
        if entries:
            self.made.entries[key] = entries
        if not problems:
            self._add_status(ResourceStatus(resource, ACCEPTED))
            return
        kept = _INACTIVE if valid is None else f"generation {valid.resource.generation} stays in force"
        self._add_status(ResourceStatus(resource, "Invalid", problems, kept))

    def build_new(self) -> None:
        """Build the programs of the first new policies, as those of files."""
        from gateway.config.loaders.documents import build

        made = self.made.entries.items()
        build([hook for key, entries in made if self._before.get(key) is not entries for hook in entries])

    def _entries(self, read: ReadResource) -> tuple[tuple[Webhook, ...], tuple[Problem, ...]]:
        """Return the entries of *read*, and the problems that it has with the others."""
        part, resource = _part(read), read.resource
        _forget_others(read)
        is_checked = resource.kind in READING_KINDS.get(resource.group, ())
        params = _readable(self._files.gateway.policies.resources if is_checked else ())
        entries = self._documents.entries(resource.group, part, params)
        problems = tuple(part.document.problems.errors())
        if not is_checked and (reads := _reads(entries)):
            problems = (Problem(resource.where, "spec", f"reads {reads}, {_UNCHECKED}"),)
        if is_checked and not problems and not _are_seen(entries, read):
            message = "reads objects in a way that the check of its author does not see"
            problems = (Problem(resource.where, "spec", message),)
        return tuple(entries), problems

    def _add_status(self, status: ResourceStatus) -> None:
        self.made.statuses.append(status)

    def _why_unused(self, resource: CustomResource) -> str:
        """Return why *resource* has no effect, whatever it contains; empty if it may have one."""
        settings = self._files.gateway.policies
        if _is_exception(resource) and not settings.applies_exceptions_of(resource.namespace):
            return (
                "policies.exceptionNamespaces of the GatewayConfiguration does not have the namespace "
                f"{shown(resource.namespace)}"
            )
        if resource.kind == "Config" and resource.namespace != GATEKEEPER_NAMESPACE:
            return f"Gatekeeper has one Config, in the namespace {GATEKEEPER_NAMESPACE}"
        of_files = (kind for kind, _ in self._files.loaded)
        if resource.group == _MUTATIONS and any(kind.endswith(f".{_MUTATIONS}") for kind in of_files):
            return "files of the gateway have mutators, and all mutators are one policy"
        return ""


def _part(read: ReadResource) -> Part:
    """Return the document, which was read without problems."""
    return cast("Part", read.content)


def _is_exception(resource: CustomResource) -> bool:
    return resource.kind == "PolicyException"


def _forget_others(read: ReadResource) -> None:
    """Drop the problems that the document had together with others."""
    problems = _part(read).document.problems
    problems.found.clear()
    del problems.questionable[len(read.warnings) :]


def _of_parameters(read: ReadResource) -> Sequence[Problem]:
    """Return a problem if a policy has parameters."""
    if read.content is None:
        return ()
    kinds = sorted(kind.kind for kind in _part(read).param_kinds)
    if not kinds:
        return ()
    message = f"found parameters of the kind {shown(kinds[0])}, {_UNCHECKED}"
    return [Problem(read.resource.where, "spec.rules", message)]


def _of_exceptions(read: ReadResource) -> Sequence[Problem]:
    """Return a problem if an exception reads objects."""
    if not _is_exception(read.resource) or not read.reads:
        return ()
    return [Problem(read.resource.where, "spec", f"reads objects, {_UNCHECKED}")]


@lru_cache(maxsize=4)
def _readable(resources: tuple[ListedKind, ...]) -> FixedParams:
    """Return the kinds *resources*, of which no objects are in files: the same for equal ones."""
    from gateway.pure.admission_policies.params import FixedParams

    return FixedParams((), PolicySettings(resources=resources).readable)


def _are_seen(entries: Iterable[Webhook], read: ReadResource) -> bool:
    """Whether the check of the author finds all that *entries*, made of *read*, read. They should."""
    from gateway.pure.admission_policies.in_force import PolicyInForce
    from gateway.pure.cel.spec_reads import is_seen

    policies = [hook.policy for hook in entries]
    wanted = {each for one in policies if isinstance(one, PolicyInForce) for each in one.objects.resources}
    return all(is_seen(each, read.reads) for each in wanted)


def _reads(entries: Iterable[Webhook]) -> str:
    """Return the objects of other kinds that *entries* read; empty if there are none."""
    clients = (hook.client for hook in entries)
    reads = {read for client in clients if isinstance(client, PolicyRef) for read in client.unlisted_reads}
    return ", ".join(f"{plural} of {version}" for version, plural in sorted(reads)[:MAX_NAMED])
