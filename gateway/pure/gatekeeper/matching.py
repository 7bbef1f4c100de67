"""What a constraint matches, and the namespaces that a Config excludes.

Kinds, names and labels are those of the object, or of the old object: a constraint matches if either does.

Source: github.com/open-policy-agent/gatekeeper pkg/mutation/match/match.go, pkg/target/matcher.go,
pkg/wildcard/wildcard.go, pkg/controller/config/process/excluder.go.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal

from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import metadata_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.pure.core.labels import Selector
    from gateway.pure.core.policy import PolicyInput
    from gateway.pure.core.review import AdmissionRequest

    Json = dict[str, Any]

ANY: Final = "*"
_NAME_LABEL: Final = "kubernetes.io/metadata.name"
"""Set by the API server on every namespace, and by the gateway on those in files; immutable."""
_UNMATCHED: Final = "unable to match constraints: "


class MatchError(Exception):
    """It cannot be found out whether a constraint matches. The text is Gatekeeper's."""


@dataclass(frozen=True, slots=True)
class Wildcards:
    """Patterns of names: exact, or with ``*`` at the beginning, at the end, or both."""

    patterns: tuple[str, ...]
    _exact: frozenset[str] = field(init=False, repr=False, compare=False)
    _prefixes: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _suffixes: tuple[str, ...] = field(init=False, repr=False, compare=False)
    _parts: tuple[str, ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        exact, prefixes, suffixes, parts = [], [], [], []
        for each in self.patterns:
            begins, ends = each.startswith(ANY), each.endswith(ANY)
            if begins and ends:
                parts.append(each[1:].removesuffix(ANY))
            elif begins:
                suffixes.append(each[1:])
            elif ends:
                prefixes.append(each[:-1])
            else:
                exact.append(each)
        object.__setattr__(self, "_exact", frozenset(exact))
        object.__setattr__(self, "_prefixes", tuple(prefixes))
        object.__setattr__(self, "_suffixes", tuple(suffixes))
        object.__setattr__(self, "_parts", tuple(parts))

    def match(self, name: str) -> bool:
        """Whether any of the patterns matches *name*."""
        return (
            name in self._exact
            or name.startswith(self._prefixes)
            or name.endswith(self._suffixes)
            or any(part in name for part in self._parts)
        )

    def match_generated(self, prefix: str) -> bool:
        """Whether any of the patterns that end with ``*`` matches names that begin with *prefix*."""
        return prefix.startswith(self._prefixes) or any(part in prefix for part in self._parts)


NO_NAMES: Final = Wildcards(())


@dataclass(frozen=True, slots=True)
class Kinds:
    """API groups and kinds. An empty list is any, and so is one with ``*``."""

    groups: tuple[str, ...]
    kinds: tuple[str, ...]

    def match(self, group: str, kind: str) -> bool:
        """Whether they contain *kind* of *group*."""
        return _contains(self.kinds, kind) and _contains(self.groups, group)


def _contains(names: tuple[str, ...], name: str) -> bool:
    return not names or ANY in names or name in names


@dataclass(frozen=True, slots=True)
class Match:
    """``spec.match`` of a constraint."""

    kinds: tuple[Kinds, ...] = ()
    scope: str = ANY
    """``Cluster`` or ``Namespaced``; everything else is both."""
    namespaces: Wildcards = NO_NAMES
    excluded_namespaces: Wildcards = NO_NAMES
    label_selector: Selector | None = None
    namespace_selector: Selector | None = None
    name: Wildcards = NO_NAMES
    source: Literal["All", "Original", "Generated"] = "All"


def _has_namespaces(match: Match) -> bool:
    return bool(match.namespaces.patterns or match.excluded_namespaces.patterns)


def includes(match: Match, name: str) -> bool:
    """Whether *match* includes the namespace *name*, if this alone decides."""
    if match.excluded_namespaces.match(name):
        return False
    return not match.namespaces.patterns or match.namespaces.match(name)


class Reviewed:
    """One object as a constraint matches it."""

    __slots__ = ("content", "group", "is_namespace", "kind", "metadata")

    def __init__(self, content: Json) -> None:
        self.content = content
        self.metadata = metadata_of(content)
        kind, version = content.get("kind"), content.get("apiVersion")
        self.kind = kind if isinstance(kind, str) else ""
        group, slash, rest = version.partition("/") if isinstance(version, str) else ("", "", "")
        self.group = group if slash else ""
        if "/" in rest:
            # Not a group and a version: for Gatekeeper it has no kind at all.
            self.group = self.kind = ""
        self.is_namespace = self.kind == "Namespace" and self.group == ""

    def text(self, name: str) -> str:
        """Return a text of its metadata; empty if there is none."""
        found = self.metadata.get(name)
        return found if isinstance(found, str) else ""

    @property
    def labels(self) -> Mapping[str, str]:
        """Its labels; none if any of them is not a text."""
        found = self.metadata.get("labels")
        if isinstance(found, dict) and all(isinstance(one, str) for one in found.values()):
            return found
        return {}


def is_for_namespace(request: AdmissionRequest) -> bool:
    """Whether *request* is for a Namespace, which has no namespace for Gatekeeper."""
    group, _, kind = request.kind
    return group == "" and kind == "Namespace"


@dataclass(frozen=True, slots=True)
class Included:
    """The requests that a constraint is evaluated for."""

    match: Match | None
    """That of the constraint, if it has one."""
    excluded: Wildcards
    """The namespaces in which no constraint is evaluated."""

    @property
    def has_namespaces(self) -> bool:
        """Whether the names of namespaces decide."""
        return bool(self.excluded.patterns) or (self.match is not None and _has_namespaces(self.match))

    def may_include(self, labels: Mapping[str, str]) -> bool:
        """Whether requests in the namespace with *labels*, of which one has its name, may be included."""
        name = labels.get(_NAME_LABEL)
        return name is None or not (
            self.excluded.match(name) or (self.match is not None and not includes(self.match, name))
        )

    def matches(self, policy_input: PolicyInput) -> bool:
        """Whether the request of *policy_input* is included.

        Raises:
            MatchError: as :func:`matches`.
        """
        seen, request = policy_input.conditions, policy_input.request
        current = None if request.operation == "DELETE" else seen.object
        objects = [Reviewed(each) for each in (current, seen.old_object) if each is not None]
        if is_excluded(self.excluded, objects[0] if objects else None, request.namespace):
            return False
        namespace = "" if is_for_namespace(request) else request.namespace
        found = policy_input.namespace
        labels = found.labels if namespace and isinstance(found, Namespace) else None
        return matches(self.match, objects, namespace, labels)


def matches(
    match: Match | None,
    objects: Iterable[Reviewed],
    namespace: str,
    labels: Mapping[str, str] | None,
) -> bool:
    """Whether *match*, that of a constraint or None if it has none, matches any of *objects*.

    *objects* are the object and the old object, as far as there are any. *namespace* is that of the request,
    empty for a Namespace; *labels* are its labels, None if they are not known.

    Raises:
        MatchError: it depends on labels that are not known, or there is no object.
    """
    if match is None:
        return True
    has_object = False
    for each in objects:
        has_object = True
        if _matches(match, each, namespace, labels):
            return True
    if not has_object:
        raise MatchError(f"{_UNMATCHED}invalid request object: neither object nor old object are defined")
    return False


def _matches(match: Match, one: Reviewed, namespace: str, labels: Mapping[str, str] | None) -> bool:
    if match.kinds and not any(each.match(one.group, one.kind) for each in match.kinds):
        return False
    own_namespace = one.text("namespace")
    in_namespace = own_namespace != "" or namespace != ""
    if match.scope == "Cluster" and in_namespace and not one.is_namespace:
        return False
    if match.scope == "Namespaced" and (one.is_namespace or not in_namespace):
        return False
    if _has_namespaces(match):
        name = one.text("name") if one.is_namespace else namespace or own_namespace
        # An object without a namespace that is not a Namespace matches all of them.
        if (name or one.is_namespace) and not includes(match, name):
            return False
    if match.label_selector is not None and not match.label_selector.matches(one.labels):
        return False
    if match.namespace_selector is not None and not _selects(
        match.namespace_selector, one, in_namespace=in_namespace, labels=labels
    ):
        return False
    if match.name.patterns and not (
        match.name.match(one.text("name")) or match.name.match_generated(one.text("generateName"))
    ):
        return False
    return match.source != "Generated"


def _selects(
    selector: Selector, one: Reviewed, *, in_namespace: bool, labels: Mapping[str, str] | None
) -> bool:
    if one.is_namespace:
        return selector.matches(one.labels)
    if not in_namespace:
        return True
    if labels is None:
        name = one.text("name")
        raise MatchError(
            f"{_UNMATCHED}error matching the requested object: {name} :failed to run Match criteria: "
            "namespace selector for namespace-scoped object but missing Namespace"
        )
    return selector.matches(labels)


def is_excluded(excluded: Wildcards, one: Reviewed | None, namespace: str) -> bool:
    """Whether a Config excludes the request for the object *one*, or the old one on DELETE.

    *namespace* is that of the request. Another object than a Namespace counts by it, also if it is empty.
    """
    if not excluded.patterns or one is None:
        return False
    return excluded.match(one.text("name") if one.is_namespace else namespace)
