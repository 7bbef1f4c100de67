"""A constraint of Gatekeeper, read with the schema of its template, and its Config.

Source: github.com/open-policy-agent/frameworks constraint/pkg/client/crds/schema.go;
github.com/open-policy-agent/gatekeeper pkg/target/{match_schema,target}.go, pkg/util/enforcement_action.go,
apis/config/v1alpha1.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final, Literal, get_args

from gateway.base.text import did_you_mean, one_of, shown
from gateway.config.kinds.metadata import read_metadata, read_selector
from gateway.config.kinds.names import LABEL_LENGTH, dns_1123_subdomain
from gateway.config.kinds.policy_rollout import read_policy_rollout, require_denial
from gateway.config.loaders.gatekeeper_template import warn_of_unknown
from gateway.config.loaders.part import MadeEntries, Part
from gateway.config.yaml.fields import Fields, child
from gateway.pure.gatekeeper.constraint import Action
from gateway.pure.gatekeeper.matching import ANY, Kinds, Match, Wildcards
from gateway.pure.gatekeeper.schema import SchemaError

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.config.yaml.documents import Document
    from gateway.pure.core.webhook import PolicyRollout
    from gateway.pure.gatekeeper.schema import Schema, Work

VERSIONS: Final = ("v1beta1", "v1alpha1")
_ACTIONS: Final[tuple[Action, ...]] = get_args(Action)
_SCOPED: Final = "scoped"
_WEBHOOK: Final = "validation.gatekeeper.sh"
_POINTS: Final = (_WEBHOOK, "audit.gatekeeper.sh", "gator.gatekeeper.sh", "vap.k8s.io", ANY)
_SCOPES: Final = (ANY, "Cluster", "Namespaced")
_SOURCES: Final[tuple[Literal["All", "Original", "Generated"], ...]] = ("All", "Original", "Generated")
_PROCESSES: Final = ("audit", "webhook", "mutation-webhook", "sync", ANY)
_PATTERN: Final = re.compile(r"\*?[-:a-z0-9]*\*?")


@dataclass(frozen=True, slots=True, eq=False)
class ReadConstraint(Part):
    """One constraint, without its parameters, which its template has to read."""

    document: Document
    kind: str
    id: str
    rollout: PolicyRollout | None
    """That of its annotations."""
    match: Match | None
    actions: frozenset[Action]
    """Those for requests. Empty if nothing happens."""
    spec: Fields
    made: MadeEntries = field(default_factory=MadeEntries)

    @property
    def needs(self) -> str:
        """See ``Part``."""
        return self.kind

    def warn_of_source(self) -> None:
        """Warn if it is only for what is generated of other objects, which only a worker does."""
        if self.match is not None and self.match.source == "Generated":
            effect = "the gateway does not expand workloads, so that the constraint matches nothing"
            path = child(child(self.spec.path, "match"), "source")
            self.document.problems.warn(path, f"found Generated: {effect}")

    def parameters(self, schema: Schema | None, work: Work) -> object:
        """Return ``spec.parameters`` with the defaults of *schema*, after reporting its problems.

        None if there are none. The schema takes its work from *work*.
        """
        found, path = self.spec.content.get("parameters"), self.spec.at("parameters")
        problems = self.document.problems
        if schema is None:
            if found is not None:
                problems.warn(path, "is dropped: the template has no schema, and so no parameters")
            return None
        try:
            value, dropped = schema.applied("parameters", found, work)
            wrong = [] if value is None else schema.problems(value, work)
        except SchemaError as error:
            problems.add(path, str(error))
            return None
        for below, message in dropped:
            problems.warn(f"{path}{below}", message)
        for below, message in wrong:
            problems.add(f"{path}{below}", message)
        return value


def read_constraint(document: Document, fields: Fields, kind: str) -> ReadConstraint:
    """Return the constraint of *kind* behind *fields*; apiVersion and kind are read already."""
    metadata = read_metadata(fields, _constraint_name)
    rollout = read_policy_rollout(fields, metadata)
    fields.accept("status")
    spec = fields.group("spec")
    fields.finish()
    source = spec.mapping("match")
    match = None if source is None else _read_match(source)
    actions = _read_actions(spec)
    if "deny" not in actions:
        found = f"found {one_of(sorted(actions)) if actions else 'no action for requests'}, expected deny"
        require_denial(rollout, spec, "enforcementAction", found)
    spec.accept("parameters")
    _warn_of_unknown(spec, ("match", "enforcementAction", "scopedEnforcementActions", "parameters"))
    return ReadConstraint(document, kind, metadata.name, rollout, match, actions, spec)


def _constraint_name(text: str) -> str | None:
    if len(text) > LABEL_LENGTH:
        return f"found {len(text)} characters, expected at most {LABEL_LENGTH}"
    return dns_1123_subdomain(text)


def _pattern(text: str) -> str | None:
    if _PATTERN.fullmatch(text):
        return None
    return f"found {shown(text)}, expected a name, perhaps with {ANY} at its beginning or its end"


def _read_match(source: Fields) -> Match:
    kinds = []
    for entry in source.mappings("kinds"):
        kinds.append(Kinds(entry.strings("apiGroups"), entry.strings("kinds")))
        _warn_of_unknown(entry, ("apiGroups", "kinds"))
    scope = source.string("scope", ANY)
    if scope not in _SCOPES:
        hint = did_you_mean(scope, _SCOPES[1:])
        source.problems.warn(source.at("scope"), f"found {shown(scope)}, which is both for Gatekeeper{hint}")
    name = source.optional_string("name", _pattern)
    of_source = source.choice("source", _SOURCES, "All")
    selectors = [source.mapping(each) for each in ("labelSelector", "namespaceSelector")]
    of_labels, of_namespace = (None if each is None else read_selector(each) for each in selectors)
    namespaces = Wildcards(source.strings("namespaces", _pattern))
    excluded = Wildcards(source.strings("excludedNamespaces", _pattern))
    known = ("kinds", "scope", "name", "source", "labelSelector", "namespaceSelector", "namespaces")
    _warn_of_unknown(source, (*known, "excludedNamespaces"))
    return Match(
        tuple(kinds),
        scope,
        namespaces,
        excluded,
        of_labels,
        of_namespace,
        Wildcards((name,) if name else ()),
        of_source,
    )


def _read_actions(spec: Fields) -> frozenset[Action]:
    action = spec.string("enforcementAction", "deny")
    scoped = spec.mappings("scopedEnforcementActions")
    if action == _SCOPED:
        is_absent = spec.content.get("scopedEnforcementActions") is None
        if is_absent:
            spec.problem("scopedEnforcementActions", f"is required with enforcementAction {_SCOPED}")
        found = _scoped_actions(scoped)
        if not found and not is_absent:
            message = f"none of them is for {_WEBHOOK}: the constraint has no effect on requests"
            spec.problems.warn(spec.at("scopedEnforcementActions"), message)
        return frozenset(found)
    if scoped:
        message = f"has no effect: enforcementAction is {shown(action)}, not {_SCOPED}"
        spec.problems.warn(spec.at("scopedEnforcementActions"), message)
    known = next((each for each in _ACTIONS if each == action), None)
    if known is None:
        expected = f"expected {one_of((*_ACTIONS, _SCOPED))}; the constraint has no effect"
        spec.problems.warn(spec.at("enforcementAction"), f"found {shown(action)}, {expected}")
        return frozenset()
    return frozenset((known,))


def _scoped_actions(entries: Iterable[Fields]) -> set[Action]:
    """Return the actions of *entries* at Gatekeeper's webhook."""
    found: set[Action] = set()
    for entry in entries:
        action = entry.optional_string("action")
        names = [each.optional_string("name") for each in entry.mappings("enforcementPoints")]
        for name in names:
            if name not in _POINTS:
                message = f"found {shown(name)}, expected {one_of(_POINTS)}; it has no effect"
                entry.problems.warn(entry.at("enforcementPoints"), message)
        known = next((each for each in _ACTIONS if each == action), None)
        if known is None:
            message = f"found {shown(action)}, expected {one_of(_ACTIONS)}; it has no effect"
            entry.problems.warn(entry.at("action"), message)
        elif _WEBHOOK in names or ANY in names:
            found.add(known)
        _warn_of_unknown(entry, ("action", "enforcementPoints"))
    return found


def read_config(fields: Fields) -> tuple[Wildcards, str]:
    """Return the namespaces that the Config behind *fields* excludes, and the path of its ``sync``, or ""."""
    metadata = read_metadata(fields, dns_1123_subdomain, is_namespaced=True)
    fields.accept("status")
    spec = fields.group("spec")
    fields.finish()
    if metadata.name and metadata.name != "config":
        path = child(fields.at("metadata"), "name")
        fields.problems.add(path, f"found {shown(metadata.name)}, expected config: Gatekeeper has one Config")
    excluded: list[str] = []
    for entry in spec.mappings("match"):
        names, processes = entry.strings("excludedNamespaces", _pattern), entry.strings("processes")
        for name in processes:
            if name not in _PROCESSES:
                message = f"found {shown(name)}, expected {one_of(_PROCESSES)}; it has no effect"
                entry.problems.warn(entry.at("processes"), message)
        if "webhook" in processes or ANY in processes:
            excluded += names
        _warn_of_unknown(entry, ("excludedNamespaces", "processes"))
    for name, reason in (
        ("validation", "use `admission-gateway explain` to trace a request"),
        ("readiness", "the gateway's readiness does not depend on it"),
    ):
        if spec.has(name):
            spec.problems.warn(spec.at(name), f"has no effect: {reason}")
    _warn_of_unknown(spec, ("match", "sync", "validation", "readiness"))
    spec.accept("sync")
    return Wildcards(tuple(dict.fromkeys(excluded))), spec.at("sync") if spec.has("sync") else ""


def _warn_of_unknown(source: Fields, known: tuple[str, ...]) -> None:
    warn_of_unknown(source, known, "the API server drops")
