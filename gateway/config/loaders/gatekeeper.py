"""Gatekeeper's templates with their constraints, its Config, and its mutators, as entries of a phase.

The gateway evaluates templates in CEL. A worker evaluates the rest, see ``gatekeeper_worker``.

Source: github.com/open-policy-agent/frameworks constraint/pkg/client/client.go; github.com/open-policy-agent/
gatekeeper pkg/webhook/policy.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from hashlib import sha256
from typing import TYPE_CHECKING, Final

import orjson

from gateway.base.text import did_you_mean, one_of, shown
from gateway.config.loaders.gatekeeper_constraint import VERSIONS as CONSTRAINT_VERSIONS
from gateway.config.loaders.gatekeeper_constraint import ReadConstraint, read_config, read_constraint
from gateway.config.loaders.gatekeeper_template import ENGINE as CEL
from gateway.config.loaders.gatekeeper_template import KIND as TEMPLATE
from gateway.config.loaders.gatekeeper_template import VERSIONS, Template, read_template
from gateway.config.loaders.gatekeeper_worker import (
    ENGINE,
    MUTATIONS,
    NEEDS_ENGINE,
    ForWorker,
    constraint_entry,
    is_generated,
    mutation_entry,
    read_for_worker,
)
from gateway.config.loaders.gatekeeper_worker import GROUPS as FOR_WORKER
from gateway.config.loaders.part import Loader, MadeEntries, Part
from gateway.config.yaml.fields import child
from gateway.pure.admission_policies.model import MatchResources, NamedRule, ValidatingPolicy
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.gatekeeper.constraint import Constraint, ConstraintInForce
from gateway.pure.gatekeeper.matching import NO_NAMES
from gateway.pure.gatekeeper.registration import rules_for
from gateway.pure.gatekeeper.schema import Work

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from gateway.config.yaml.documents import Document
    from gateway.config.yaml.fields import Fields
    from gateway.pure.admission_policies.params import FixedParams
    from gateway.pure.core.webhook import Webhook
    from gateway.pure.gatekeeper.constraint import Action
    from gateway.pure.gatekeeper.matching import Wildcards

TEMPLATES: Final = "templates.gatekeeper.sh"
CONSTRAINTS: Final = "constraints.gatekeeper.sh"
CONFIGS: Final = "config.gatekeeper.sh"
_KINDS: Final = {TEMPLATES: (TEMPLATE, VERSIONS), CONFIGS: ("Config", ("v1alpha1",))}
_INSTEAD: Final = {
    "connection.gatekeeper.sh": (
        "exports violations of Gatekeeper's audit, which the gateway does not have; use the decision log, or "
        "PolicyReports"
    ),
    "status.gatekeeper.sh": "is written by Gatekeeper's Pods for themselves; leave it out",
}
"""What the kinds of a group do that cannot be run, and what to use instead."""
_NO_SYNC: Final = (
    f"has no effect: objects are replicated for Rego, and only a worker evaluates that, see {ENGINE}"
)
_MAX_HINTS: Final = 20
_MAX_COMPARED: Final = 500
_DENY: Final[frozenset[Action]] = frozenset(("deny",))
GROUPS: Final = (TEMPLATES, CONSTRAINTS, CONFIGS, *FOR_WORKER, *_INSTEAD)


@dataclass(frozen=True, slots=True, eq=False)
class _ReadConfig(Part):
    """The Config. Its id is the same in every namespace."""

    document: Document
    kind: str
    id: str
    excluded: Wildcards
    """Namespaces."""
    sync: str
    """The path of ``sync``. Empty without it."""
    made: MadeEntries = field(default_factory=MadeEntries)


_Part = Template | ReadConstraint | _ReadConfig | ForWorker


class GatekeeperDocuments(Loader[_Part]):
    """The documents of Gatekeeper in one configuration."""

    def __init__(self, *, is_custom: bool = False) -> None:
        super().__init__(is_custom=is_custom)
        self._templates: dict[str, Template] = {}
        """By the kind of their constraints."""
        self._excluded = NO_NAMES
        self._mutators: list[ForWorker] = []
        self._sorted_mutators: tuple[ForWorker, ...] = ()
        """Those that were added before one of them made its entries."""
        self._expansions: list[ForWorker] = []
        self._work = Work()
        self._hints = _MAX_HINTS

    @staticmethod
    def read(document: Document, fields: Fields, kind: str) -> _Part | None:
        """See ``Loader``."""
        group, _, version = str(fields.content.get("apiVersion")).rpartition("/")
        fields.problems.null_is_empty = True
        if group in _INSTEAD:
            fields.problem("kind", f"found {shown(kind)} of {group}, which {_INSTEAD[group]}")
        elif group in FOR_WORKER:
            return read_for_worker(document, fields, group, kind)
        elif group == CONSTRAINTS:
            if version in CONSTRAINT_VERSIONS:
                return read_constraint(document, fields, kind)
            _wrong_version(fields, CONSTRAINTS, version, CONSTRAINT_VERSIONS)
        else:
            known, versions = _KINDS[group]
            if kind != known:
                fields.problem("kind", f"found the unknown kind {shown(kind)}, expected {known}")
            elif version not in versions:
                _wrong_version(fields, group, version, versions)
            elif group == TEMPLATES:
                return read_template(document, fields, version)
            else:
                return _ReadConfig(document, kind, "config", *read_config(fields))
        return None

    def add(self, part: _Part) -> None:
        """See ``Loader``."""
        super().add(part)
        if isinstance(part, Template) and part.constraint_kind:
            self._templates.setdefault(part.constraint_kind, part)
        elif isinstance(part, _ReadConfig):
            self._excluded = part.excluded
        elif isinstance(part, ForWorker) and part.group == MUTATIONS:
            if part.rollout is None:
                self._mutators.append(part)
        elif isinstance(part, ForWorker) and part.generated != ("", ""):
            self._expansions.append(part)

    def in_order(self) -> Iterable[_Part]:
        """See ``Loader``."""
        return sorted(self.parts, key=lambda one: (one.id, one.kind))

    def entries(self, part: _Part, params: FixedParams) -> Sequence[Webhook]:
        """See ``Loader``."""
        if isinstance(part, ReadConstraint):
            return self._of_constraint(part)
        engine = self.engines.gatekeeper
        is_mutator = isinstance(part, ForWorker) and part.group == MUTATIONS
        mutators = self._mutators_of(part) if is_mutator else ()

        def make() -> Iterator[Webhook]:
            if isinstance(part, ForWorker):
                part.check(engine)
            elif engine is None and isinstance(part, Template) and part.is_rego:
                message = f"the template {shown(part.id)} has Rego only: {NEEDS_ENGINE}"
                part.document.problems.add_for_gateway(
                    part.code_path, f"{message}, or add code of the engine {CEL}"
                )
            elif engine is None and isinstance(part, _ReadConfig) and part.sync:
                part.document.problems.warn(part.sync, _NO_SYNC)
            if engine is not None and mutators:
                yield mutation_entry(mutators, engine)

        return part.made.of(part.document, (engine, *mutators), make)

    def _mutators_of(self, part: _Part) -> tuple[ForWorker, ...]:
        """Return all mutators for the first of them, which has the entry of all, and none for the others.

        One with a rollout is not among them: for it, it alone is returned.
        """
        if isinstance(part, ForWorker) and part.rollout is not None:
            return (part,)
        if len(self._sorted_mutators) != len(self._mutators):
            self._sorted_mutators = tuple(sorted(self._mutators, key=lambda one: (one.kind, one.id)))
        return self._sorted_mutators if self._sorted_mutators[0] is part else ()

    def _of_constraint(self, part: ReadConstraint) -> Sequence[Webhook]:
        template = self._templates.get(part.kind)
        if template is None:
            if not part.document.problems.is_full:
                # The search for similar names takes most of the time.
                is_compared = self._hints > 0 and len(self._templates) <= _MAX_COMPARED
                hint = did_you_mean(part.kind, sorted(self._templates)) if is_compared else ""
                self._hints -= 1
                message = f"there is no ConstraintTemplate with the kind {shown(part.kind)}{hint}"
                part.document.problems.add(
                    child(part.document.path, "kind"), message, lacks=part.kind.lower()
                )
            return ()
        excluded, engine, expansions = self._excluded, self.engines.gatekeeper, tuple(self._expansions)

        def make() -> Iterator[Webhook]:
            # Of many authors, none may use up what the others need.
            parameters = part.parameters(template.schema, Work() if self.is_custom else self._work)
            has_problems = template.document.problems.found or part.document.problems.found
            kinds = () if part.match is None else part.match.kinds
            is_in_worker = template.is_rego or (engine is not None and is_generated(kinds, expansions))
            if engine is None or not is_in_worker:
                part.warn_of_source()
            if engine is None and is_in_worker and self.is_custom:
                # In files its template alone is refused.
                message = f"its ConstraintTemplate has Rego only: {NEEDS_ENGINE}"
                part.document.problems.add(child(part.document.path, "kind"), message)
            if not part.actions or has_problems:
                return
            if not is_in_worker:
                yield _entry(part, template, parameters, excluded)
            elif engine is not None:
                yield constraint_entry(part, template.operations, expansions, engine)

        return part.made.of(part.document, (template, excluded, engine, *expansions), make)


def _wrong_version(fields: Fields, group: str, version: str, versions: tuple[str, ...]) -> None:
    expected = one_of(f"{group}/{each}" for each in versions)
    fields.problem("apiVersion", f"found {shown(f'{group}/{version}')}, expected {expected}")


def _entry(read: ReadConstraint, template: Template, parameters: object, excluded: Wildcards) -> Webhook:
    spec = {key: one for key, one in read.spec.content.items() if key != "parameters"}
    if parameters is not None:
        spec["parameters"] = parameters
    content = {"metadata": {"name": read.id}, "spec": spec}
    # An annotation asks for its mode whatever the constraint does by itself.
    actions = read.actions if read.rollout is None else read.actions | _DENY
    constraint = Constraint(read.kind, read.id, read.match, actions, content)
    kinds = () if read.match is None else read.match.kinds
    rules = rules_for(kinds, template.operations)
    named = tuple(NamedRule((each,), (), "Exact") for each in rules)
    match = MatchResources(named, (), "Exact", EVERYTHING, EVERYTHING)
    # All constraints have them, and there may be thousands of both.
    digest = sha256(_json(excluded.patterns)).hexdigest().encode()
    document = b"\n".join((template.source, _json(content), digest))
    policy = ValidatingPolicy(read.id, match, None, template.conditions, document, template.rules)
    return ConstraintInForce(policy, constraint, excluded).webhook(read.rollout)


def _json(content: object) -> bytes:
    try:
        return orjson.dumps(content, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return repr(content).encode()
