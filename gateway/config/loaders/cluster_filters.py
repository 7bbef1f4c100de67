"""``match`` and ``exclude`` of Kyverno's ClusterPolicies, and ``match`` of their exceptions.

Source: github.com/kyverno/kyverno api/kyverno/v1/{match_resources,resource_description,user_info}_types.go.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from gateway.base.text import one_of, shown
from gateway.config.kinds.declare import (
    Choice,
    Declared,
    Group,
    Groups,
    Read,
    Text,
    Texts,
    Type,
    declare,
    optional,
    required,
)
from gateway.config.kinds.metadata import read_selector
from gateway.config.yaml.fields import Fields
from gateway.pure.core.review import OPERATIONS
from gateway.pure.kyverno.resource_match import (
    Filter,
    Filters,
    KindParts,
    KindPattern,
    Subject,
    WildcardSelector,
    parse_kind,
)
from gateway.pure.kyverno.wildcards import Wildcard, has_wildcards

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.kinds.declare import Schema

MAX_CHARS: Final = 1024
"""Characters of a text with wildcards."""
_MAX_ENTRIES: Final = 1000
_MAX_BLOCKS: Final = 100
_SERVICE_ACCOUNT: Final = "ServiceAccount"


def _pattern(text: str) -> str | None:
    return f"found {len(text)} characters, expected at most {MAX_CHARS}" if len(text) > MAX_CHARS else None


def _kind(text: str) -> str | None:
    if (message := _pattern(text)) is not None:
        return message
    if text and parse_kind(text) is not None:
        return None
    return (
        f"found {shown(text)}, expected Kind, VERSION/Kind or GROUP/VERSION/Kind, perhaps with /SUBRESOURCE"
    )


def _operation(text: str) -> str | None:
    return None if text in OPERATIONS else f"found {shown(text)}, expected {one_of(OPERATIONS)}"


def _patterns(words: str) -> Texts:
    return Texts(words, _pattern, (0, _MAX_ENTRIES))


def _annotations(source: Fields, name: str) -> dict[str, str]:
    found = source.string_map(name)
    if len(found) > _MAX_ENTRIES:
        source.problem(name, f"found {len(found)} entries, expected at most {_MAX_ENTRIES}")
        return {}
    for text in (*found, *found.values()):
        if (message := _pattern(text)) is not None:
            source.problem(name, message)
    return found


class Selectors(Type["WildcardSelector | None"]):
    """A label selector whose ``matchLabels`` may have wildcards."""

    words = "LabelSelector, with wildcards in `matchLabels`"

    def read(self, source: Fields, name: str, default: WildcardSelector | None) -> WildcardSelector | None:
        """As in :class:`Type`."""
        found = source.mapping(name)
        if found is None:
            return default
        content = dict(found.content)
        patterns = []
        labels = content.get("matchLabels")
        if isinstance(labels, dict) and len(labels) <= _MAX_ENTRIES:
            plain = {}
            for key, value in labels.items():
                if isinstance(value, str) and (has_wildcards(key) or has_wildcards(value)):
                    for text in (key, value):
                        if (message := _pattern(text)) is not None:
                            found.problem("matchLabels", message)
                    patterns.append((Wildcard(key[:MAX_CHARS]), Wildcard(value[:MAX_CHARS])))
                else:
                    plain[key] = value
            content["matchLabels"] = plain
        return WildcardSelector(read_selector(Fields(content, found.path, found.problems)), tuple(patterns))

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return {"type": "object"}


class Unsupported(Type[None]):
    """A field that the gateway does not evaluate; *instead* says why, and what to use."""

    words = "not evaluated"

    def __init__(self, instead: str) -> None:
        self.instead = instead

    def read(self, source: Fields, name: str, default: None) -> None:
        """As in :class:`Type`."""
        if source.has(name):
            source.problem(name, self.instead)

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return {}


def _role(text: str) -> str | None:
    if text.count(":") == 1:
        return _pattern(text)
    return f"found {shown(text)}, expected NAMESPACE:NAME of a Role"


@dataclass(frozen=True, slots=True, kw_only=True)
class _Subject(Declared):
    kind: str = required(Choice(("User", "Group", _SERVICE_ACCOUNT)), "Kind")
    name: str = required(Text(check=_pattern), "Name, with wildcards")
    namespace: str = declare(Text(check=_pattern), "That of a ServiceAccount", default="")
    api_group: str = declare(Text(), "Not used", default="")

    def check(self, source: Fields) -> None:
        """Report a service account without a namespace."""
        if self.kind == _SERVICE_ACCOUNT and not self.namespace:
            source.problem("namespace", f"is required with the kind {_SERVICE_ACCOUNT}")

    @property
    def subject(self) -> Subject:
        """What it is compared with."""
        is_account = self.kind == _SERVICE_ACCOUNT
        name = f"system:serviceaccount:{self.namespace}:{self.name}" if is_account else self.name
        return Subject(self.kind == "Group", Wildcard(name))


@dataclass(frozen=True, slots=True, kw_only=True)
class _Resources(Declared):
    kinds: tuple[str, ...] = declare(
        Texts("list of kinds", _kind, (0, _MAX_ENTRIES)), "Kinds, with wildcards", default=()
    )
    name: str = declare(Text(check=_pattern), "Name, with wildcards", default="")
    names: tuple[str, ...] = declare(_patterns("list of names"), "Names, with wildcards", default=())
    namespaces: tuple[str, ...] = declare(
        _patterns("list of namespaces"), "Namespaces, with wildcards", default=()
    )
    annotations: dict[str, str] = declare(
        Read("mapping of annotations", _annotations, "object"), "Annotations, with wildcards", default={}
    )
    selector: WildcardSelector | None = optional(Selectors(), "Labels of the object")
    namespace_selector: WildcardSelector | None = optional(Selectors(), "Labels of its namespace")
    operations: tuple[str, ...] = declare(
        Texts("list of operations", _operation, (0, len(OPERATIONS))), "Operations. Absent: all", default=()
    )

    def check(self, source: Fields) -> None:
        """Report two fields for names."""
        if self.name and self.names:
            source.problem("names", "found name and names, expected one of them")


@dataclass(frozen=True, slots=True, kw_only=True)
class BlockEntry(Declared):
    """One block of ``any`` or ``all``."""

    resources: _Resources = declare(Group(_Resources), "Resources", default=_Resources())
    subjects: tuple[_Subject, ...] = declare(Groups(_Subject, _MAX_ENTRIES), "Users", default=())
    roles: tuple[str, ...] = declare(
        Texts("list of roles", _role, (0, _MAX_ENTRIES)), "Roles, without wildcards", default=()
    )
    cluster_roles: tuple[str, ...] = declare(
        _patterns("list of names"), "ClusterRoles, without wildcards", default=()
    )

    def check(self, source: Fields) -> None:
        """Warn of names that no role has."""
        for name, names in (("roles", self.roles), ("clusterRoles", self.cluster_roles)):
            if found := [each for each in names if has_wildcards(each)]:
                what = f"found {shown(found[0])}, which is compared as it is: Kyverno knows no wildcards here"
                source.problems.warn(source.at(name), what)

    @property
    def filter(self) -> Filter:
        """What it matches."""
        found = self.resources
        names = (*found.names, found.name) if found.name else found.names
        return Filter(
            tuple(_kind_pattern(each) for each in found.kinds),
            tuple(map(Wildcard, names)),
            tuple(map(Wildcard, found.namespaces)),
            tuple((Wildcard(key), Wildcard(value)) for key, value in found.annotations.items()),
            found.selector,
            found.namespace_selector,
            frozenset(found.operations),
            tuple(each.subject for each in self.subjects),
            self.roles,
            self.cluster_roles,
        )

    @property
    def kinds(self) -> Iterator[tuple[KindParts, frozenset[str]]]:
        """The kinds that it names, with the operations."""
        operations = frozenset(self.resources.operations or OPERATIONS)
        for each in self.resources.kinds:
            if (parts := parse_kind(each)) is not None:
                yield parts, operations

    @property
    def size(self) -> int:
        """How many texts are compared."""
        found = self.resources
        lists = (found.kinds, found.names, found.namespaces, found.annotations)
        return 1 + sum(map(len, (*lists, self.subjects, self.roles, self.cluster_roles)))


@dataclass(frozen=True, slots=True, kw_only=True)
class AnyOrAllEntry(Declared):
    """``match`` of an exception."""

    any_of: tuple[BlockEntry, ...] = declare(
        Groups(BlockEntry, _MAX_BLOCKS), "One has to match", name="any", default=()
    )
    all_of: tuple[BlockEntry, ...] = declare(
        Groups(BlockEntry, _MAX_BLOCKS), "All have to match", name="all", default=()
    )

    def check(self, source: Fields) -> None:
        """Report two lists."""
        if self.any_of and self.all_of:
            source.problem("all", "found any and all, expected one of them")

    @property
    def filters(self) -> Filters:
        """What it matches."""
        by: Literal["any", "all"] = "any" if self.any_of else "all"
        return Filters(by, tuple(each.filter for each in self.any_of or self.all_of))


@dataclass(frozen=True, slots=True, kw_only=True)
class MatchEntry(BlockEntry):
    """``match`` or ``exclude`` of a rule: ``any``, ``all`` or a plain block."""

    any_of: tuple[BlockEntry, ...] = declare(
        Groups(BlockEntry, _MAX_BLOCKS), "One has to match", name="any", default=()
    )
    all_of: tuple[BlockEntry, ...] = declare(
        Groups(BlockEntry, _MAX_BLOCKS), "All have to match", name="all", default=()
    )

    def check(self, source: Fields) -> None:
        """Report two lists."""
        BlockEntry.check(self, source)
        if self.any_of and self.all_of:
            source.problem("all", "found any and all, expected one of them")

    @property
    def filters(self) -> Filters:
        """What it matches."""
        if self.any_of:
            return Filters("any", tuple(each.filter for each in self.any_of))
        if self.all_of:
            return Filters("all", tuple(each.filter for each in self.all_of))
        return Filters("all", (self.filter,))

    @property
    def blocks(self) -> tuple[BlockEntry, ...]:
        """All blocks, those that do not count too: Kyverno takes the kinds of all."""
        return (self, *self.all_of, *self.any_of)


def _kind_pattern(text: str) -> KindPattern:
    parts = parse_kind(text) or KindParts("", "", "", "")
    return KindPattern(*map(Wildcard, parts))
