"""What a worker with Gatekeeper's own code evaluates, as entries of a phase.

These are constraints of templates in Rego, each as an entry, and all mutators as one entry, because
Gatekeeper applies them until none of them changes the object. A mutator with a rollout is an entry of its
own. An entry is for all requests that it may be for, and the worker compares them again.

Source: github.com/open-policy-agent/gatekeeper pkg/webhook/{policy,mutation}.go (the kubebuilder:webhook
markers), apis/mutations/v1, apis/expansion/v1beta1, apis/externaldata.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.base.text import one_of, shown
from gateway.config.kinds.metadata import read_metadata
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.config.kinds.policy_rollout import MODE, ROLLOUT, path_of, read_policy_rollout
from gateway.config.loaders.cluster_worker import DENY
from gateway.config.loaders.part import MadeEntries, Part
from gateway.config.yaml.fields import child
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.webhook import PolicyRollout, Rollout, Webhook, WorkerRef
from gateway.pure.gatekeeper.matching import Kinds
from gateway.pure.gatekeeper.registration import OPERATIONS, rules_for

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.config.kinds.engine_settings import EngineEntry
    from gateway.config.loaders.gatekeeper_constraint import ReadConstraint
    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields
    from gateway.pure.core.webhook import FailurePolicy, Phase, Rule

MUTATIONS: Final = "mutations.gatekeeper.sh"
_EXPANSIONS: Final = "expansion.gatekeeper.sh"
_PROVIDERS: Final = "externaldata.gatekeeper.sh"
_SYNC_SETS: Final = "syncset.gatekeeper.sh"
MUTATION: Final = "mutation"
"""The policy of the worker that applies all mutators."""
_MUTATION_NAME: Final = "mutation.gatekeeper.sh"
"""The name of Gatekeeper's own webhook."""
_FAILURE_POLICY: Final[FailurePolicy] = "Ignore"
_TIMEOUT_S: Final = 3
"""As Gatekeeper registers its webhooks."""
ENGINE: Final = "policies.engines.gatekeeper of the GatewayConfiguration"
NEEDS_ENGINE: Final = f"a worker evaluates it: name its pool in {ENGINE}"


class _Group(NamedTuple):
    """The kinds of one API group."""

    kinds: tuple[str, ...]
    versions: tuple[str, ...]
    without: str
    """What is wrong without a worker."""
    is_problem: bool = True


GROUPS: Final = {
    MUTATIONS: _Group(
        ("Assign", "AssignMetadata", "ModifySet", "AssignImage"),
        ("v1", "v1beta1", "v1alpha1"),
        f"mutates objects, and {NEEDS_ENGINE}; or write it as a MutatingAdmissionPolicy",
    ),
    _EXPANSIONS: _Group(
        ("ExpansionTemplate",),
        ("v1beta1", "v1alpha1"),
        f"makes Pods of workloads to review them, and {NEEDS_ENGINE}; or add the kinds of the workloads to "
        "the constraint's match, and let the template's expressions find their Pod template",
    ),
    _PROVIDERS: _Group(
        ("Provider",),
        ("v1beta1", "v1alpha1"),
        f"is for Rego and mutators, and {NEEDS_ENGINE}; or use a policy of a worker, which can call other "
        "servers",
    ),
    _SYNC_SETS: _Group(
        ("SyncSet",),
        ("v1alpha1",),
        f"has no effect: objects are replicated for Rego, and only a worker evaluates that, see {ENGINE}",
        is_problem=False,
    ),
}
"""What is for the worker alone, by API group."""


@dataclass(frozen=True, slots=True, eq=False)
class ForWorker(Part):
    """A document that counts for the worker. The gateway reads which objects it is for, and no more."""

    document: Document
    group: str
    kind: str
    id: str
    kinds: tuple[Kinds, ...]
    """Those that a mutator changes, or of which an ExpansionTemplate generates others. Empty: all."""
    generated: tuple[str, str] = ("", "")
    """Group and kind of what an ExpansionTemplate generates."""
    has_action: bool = False
    """Whether an ExpansionTemplate replaces the actions of constraints for what it generates."""
    rollout: PolicyRollout | None = None
    """That of the annotation of a mutator, which makes it an entry of its own. None without it."""
    made: MadeEntries = field(default_factory=MadeEntries)

    def check(self, engine: EngineEntry | None) -> None:
        """Report that there is no *engine*, if there is none."""
        about, problems = GROUPS[self.group], self.document.problems
        if engine is not None:
            return
        if about.is_problem:
            message = f"found {shown(self.kind)} of {self.group}, which {about.without}"
            problems.add_for_gateway(child(self.document.path, "kind"), message)
        else:
            problems.warn(self.document.path, about.without)


def read_for_worker(document: Document, fields: Fields, group: str, kind: str) -> ForWorker | None:
    """Return the document of *kind* of *group*, one of ``GROUPS``; None after a problem with either."""
    about, version = GROUPS[group], str(fields.content.get("apiVersion")).rpartition("/")[2]
    if kind not in about.kinds:
        fields.problem("kind", f"found the unknown kind {shown(kind)}, expected {one_of(about.kinds)}")
        return None
    if version not in about.versions:
        expected = one_of(f"{group}/{each}" for each in about.versions)
        fields.problem("apiVersion", f"found {shown(f'{group}/{version}')}, expected {expected}")
        return None
    metadata = read_metadata(fields, dns_1123_subdomain)
    rollout = None
    if group == MUTATIONS and ROLLOUT in metadata.annotations:
        rollout = read_policy_rollout(fields, metadata)
    else:
        for key in metadata.annotations.keys() & {MODE, ROLLOUT}:
            message = f"has no effect: only constraints have a mode, found {shown(kind)}"
            fields.problems.warn(path_of(fields, key), message)
    fields.accept("status")
    spec = fields.required_group("spec")
    fields.finish()
    kinds = _kinds(spec, kind)
    generated, has_action = ("", ""), False
    if group == _EXPANSIONS:
        source = spec.required_group("generatedGVK")
        generated = (source.string("group", ""), source.required_string("kind"))
        has_action = bool(spec.optional_string("enforcementAction"))
    return ForWorker(document, group, kind, metadata.name, kinds, generated, has_action, rollout)


def _kinds(spec: Fields, kind: str) -> tuple[Kinds, ...]:
    """Return the kinds in ``applyTo``, or in the ``match`` of a kind without it."""
    if kind not in ("AssignMetadata", "Provider", "SyncSet"):
        found = spec.mappings("applyTo")
        if not found:
            spec.problem("applyTo", "found no kinds, expected the kinds of the objects that it is for")
        return tuple(Kinds(each.strings("groups"), each.strings("kinds")) for each in found)
    match = spec.mapping("match")
    found = [] if match is None else match.mappings("kinds")
    return tuple(Kinds(each.strings("apiGroups"), each.strings("kinds")) for each in found)


def constraint_entry(
    read: ReadConstraint, operations: tuple[str, ...], expansions: Sequence[ForWorker], engine: EngineEntry
) -> Webhook:
    """Return the entry for the constraint *read*, whose template is for *operations*.

    With *expansions* it is also for the kinds of which they generate what the constraint matches.
    """
    rollout, parameters = read.rollout, DENY
    kinds = () if read.match is None else read.match.kinds
    if rollout is None:
        # What is generated may be denied all the same.
        is_replaced = is_generated(kinds, (each for each in expansions if each.has_action))
        is_audit = read.actions == {"dryrun"} and not is_replaced
        rollout = PolicyRollout(Rollout("Audit" if is_audit else "Enforce"))
        parameters = DENY if is_audit else b""
    kinds = with_generators(kinds, expansions)
    entry = _entry(
        engine,
        "validate",
        read.id,
        WorkerRef(engine.pool, f"{read.kind}/{read.id}", parameters, kind=read.kind, has_own_words=True),
        rules_for(kinds, operations),
    )
    return rollout.applied_to(entry)


def mutation_entry(mutators: Sequence[ForWorker], engine: EngineEntry) -> Webhook:
    """Return the entry for all *mutators* that have no rollout, at least one, or for one that has."""
    first, *_ = mutators
    found = [each.kinds for each in mutators]
    kinds = tuple(kind for each in found for kind in each) if all(found) else ()
    rules = rules_for(kinds, OPERATIONS, with_subresources=False)
    if first.rollout is None:
        client = WorkerRef(engine.pool, MUTATION, kind="Mutators", has_own_words=True)
        return _entry(engine, "mutate", _MUTATION_NAME, client, rules)
    policy = f"{MUTATION}/{first.kind}/{first.id}"
    client = WorkerRef(engine.pool, policy, kind=first.kind, has_own_words=True)
    return first.rollout.applied_to(_entry(engine, "mutate", first.id, client, rules))


def _entry(
    engine: EngineEntry,
    phase: Phase,
    name: str,
    client: WorkerRef,
    rules: tuple[Rule, ...],
) -> Webhook:
    return Webhook(
        phase=phase,
        configuration=name,
        name=name,
        client=client,
        rules=rules,
        namespace_selector=EVERYTHING,
        object_selector=EVERYTHING,
        failure_policy=engine.failure_policy or _FAILURE_POLICY,
        match_policy="Exact",
        timeout_s=engine.timeout_seconds or _TIMEOUT_S,
        document=f"{client.kind}/{name}",
    )


def with_generators(kinds: tuple[Kinds, ...], expansions: Sequence[ForWorker]) -> tuple[Kinds, ...]:
    """Return *kinds* and those of which *expansions* generate objects of them, perhaps in several steps."""
    found, new, left = list(kinds), kinds, list(expansions)
    while new:
        # Those that are left generate nothing of the kinds before these.
        is_used = [_matches(new, each.generated) for each in left]
        new = tuple(kind for each, used in zip(left, is_used, strict=True) if used for kind in each.kinds)
        left = [each for each, used in zip(left, is_used, strict=True) if not used]
        found += new
    return tuple(found)


def _matches(kinds: Iterable[Kinds], generated: tuple[str, str]) -> bool:
    return any(each.match(*generated) for each in kinds)


def is_generated(kinds: tuple[Kinds, ...], expansions: Iterable[ForWorker]) -> bool:
    """Whether *expansions* generate objects of *kinds*, which are all if there are none."""
    return any(not kinds or _matches(kinds, each.generated) for each in expansions)
