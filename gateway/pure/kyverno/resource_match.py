"""``match`` and ``exclude`` of Kyverno's ClusterPolicies, and ``match`` of their exceptions.

Source: github.com/kyverno/kyverno pkg/engine/utils/{match,exceptions}.go, pkg/utils/match,
pkg/utils/kube/kind.go (ParseKindSelector), pkg/engine/wildcards.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple

from gateway.pure.cel.meter import count_steps
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import labels_of, metadata_of
from gateway.pure.kyverno.user_roles import UserRoles
from gateway.pure.kyverno.wildcards import has_wildcards
from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.core.labels import Selector
    from gateway.pure.core.policy import Params, PolicyInput
    from gateway.pure.core.review import Resource
    from gateway.pure.kyverno.wildcards import Wildcard

    Json = dict[str, Any]

_VERSION: Final = re.compile(r"v\d((alpha|beta)\d)?|\*", re.ASCII)
"""What stands before a kind or a group. With two digits it is taken for another thing, as in Kyverno."""


_STEPS_OF_PAIR: Final = 20
"""What an annotation or a label counts that is compared with a pattern."""


class KindParts(NamedTuple):
    """A text of ``kinds``. Every part may have wildcards."""

    group: str
    version: str
    kind: str
    sub_resource: str


def parse_kind(text: str) -> KindParts | None:
    """Return the parts of ``Kind``, ``version/Kind``, ``group/version/Kind``, each perhaps with ``/Sub``.

    A subresource may also follow a dot. None if there are too many parts.
    """
    *first, last = text.split("/")
    parts = [*first, *last.split(".")]
    match parts:
        case [kind]:
            return KindParts("*", "*", kind, "")
        case ["*", "*"]:
            return KindParts("*", "*", "*", "*")
        case ["*", sub] if sub.lower() == sub:
            return KindParts("*", "*", "*", sub)
        case [version, kind] if _VERSION.fullmatch(version):
            return KindParts("*", version, kind, "")
        case [kind, sub]:
            return KindParts("*", "*", kind, sub)
        case [version, kind, sub] if _VERSION.fullmatch(version):
            return KindParts("*", version, kind, sub)
        case [group, version, kind]:
            return KindParts(group, version, kind, "")
        case [group, version, kind, sub]:
            return KindParts(group, version, kind, sub)
    return None


class MatchInput:
    """What filters compare of one request."""

    __slots__ = (
        "annotations",
        "groups",
        "has_user",
        "kind",
        "labels",
        "name",
        "named",
        "namespace",
        "namespace_labels",
        "object_kind",
        "operation",
        "roles",
        "sub_resource",
        "user",
    )

    def __init__(
        self, policy_input: PolicyInput, current: Json | None, role_source: Params | None = None
    ) -> None:
        """*current* is the object, or the old one of a request that deletes. *role_source* has bindings."""
        request = policy_input.request
        self.operation = request.operation
        self.kind: Resource = top_level_kind(request.resource, request.sub_resource, request.kind)
        """Group, version and kind of the resource, whose subresources have kinds of their own."""
        self.sub_resource = request.sub_resource
        self.object_kind = request.kind[2]
        metadata = metadata_of(current)
        self.name = _text(metadata.get("name"))
        self.named = self.name or _text(metadata.get("generateName"))
        """What names are compared with."""
        namespace = request.namespace or _text(metadata.get("namespace"))
        self.namespace = "" if self.object_kind == "Namespace" else namespace
        """Empty for a Namespace itself."""
        self.labels: Mapping[str, str] = labels_of(current)
        annotations = metadata.get("annotations")
        self.annotations: Mapping[str, object] = annotations if isinstance(annotations, dict) else {}
        found = policy_input.namespace
        is_known = self.namespace and isinstance(found, Namespace)
        self.namespace_labels: Mapping[str, str] = found.labels if is_known else {}  # type: ignore[union-attr]
        user = request.document.get("userInfo")
        self.user = request.user
        groups = user.get("groups") if isinstance(user, dict) else None
        self.groups = frozenset(
            one for one in (groups if isinstance(groups, list) else ()) if isinstance(one, str)
        )
        self.has_user = bool(user)
        self.roles = UserRoles(policy_input, role_source, self.user, self.groups)


def top_level_kind(resource: Resource, sub_resource: str, kind: Resource) -> Resource:
    """Return the kind of *resource*, where *kind* is that of the object in a request for *sub_resource*.

    It is not known for resources that are not built in: then it is *kind*.
    """
    if sub_resource:
        built_in = RESOURCES.get(resource[0], {}).get(resource[2])
        if built_in is not None:
            return (resource[0], resource[1], built_in.kind)
    return kind


class KindPattern(NamedTuple):
    """A parsed text of ``kinds``."""

    group: Wildcard
    version: Wildcard
    kind: Wildcard
    sub_resource: Wildcard

    def matches(self, found: MatchInput, *, with_ephemeral: bool = True) -> bool:
        """Whether the kind matches. A pattern for Pods also matches their ephemeral containers."""
        group, version, kind = found.kind
        if not (self.kind.matches(kind) and self.group.matches(group) and self.version.matches(version)):
            return False
        return self.sub_resource.matches(found.sub_resource) or (
            with_ephemeral and found.kind == ("", "v1", "Pod") and found.sub_resource == "ephemeralcontainers"
        )


@dataclass(frozen=True, slots=True, eq=False)
class WildcardSelector:
    """A label selector whose ``matchLabels`` may have wildcards."""

    plain: Selector
    """What has no wildcards."""
    patterns: tuple[tuple[Wildcard, Wildcard], ...]

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether *labels* have a label for each pattern, and match the rest."""
        return self.plain.matches(labels) and all(_has_pair(labels, *pair) for pair in self.patterns)


def _has_pair(found: Mapping[str, object], key: Wildcard, value: Wildcard) -> bool:
    if not has_wildcards(key.text):
        one = found.get(key.text)
        return isinstance(one, str) and value.matches(one)
    count_steps(len(found) * _STEPS_OF_PAIR)
    return any(
        isinstance(one, str) and key.matches(name) and value.matches(one) for name, one in found.items()
    )


class Subject(NamedTuple):
    """One of ``subjects``: a User, a Group or a ServiceAccount."""

    is_group: bool
    name: Wildcard
    """That of a service account is the user name."""


@dataclass(frozen=True, slots=True, eq=False)
class Filter:
    """One block: all its fields have to match, of each list one entry."""

    kinds: tuple[KindPattern, ...] = ()
    names: tuple[Wildcard, ...] = ()
    namespaces: tuple[Wildcard, ...] = ()
    annotations: tuple[tuple[Wildcard, Wildcard], ...] = ()
    selector: WildcardSelector | None = None
    namespace_selector: WildcardSelector | None = None
    operations: frozenset[str] = frozenset()
    subjects: tuple[Subject, ...] = ()
    roles: tuple[str, ...] = ()
    """Roles, each ``NAMESPACE:NAME``."""
    cluster_roles: tuple[str, ...] = ()

    @property
    def needs_roles(self) -> bool:
        """Whether the roles of the user count."""
        return bool(self.roles or self.cluster_roles)

    @property
    def is_empty(self) -> bool:
        """Whether nothing counts."""
        return not (self.has_resources or self.subjects or self.needs_roles)

    @property
    def has_resources(self) -> bool:
        """Whether anything but the user counts."""
        return bool(
            self.kinds
            or self.names
            or self.namespaces
            or self.annotations
            or self.selector
            or self.namespace_selector
            or self.operations
        )

    def includes(self, found: MatchInput) -> bool:
        """Whether it matches as a block of ``match``. The user counts only in requests of one."""
        if not found.has_user:
            return self.has_resources and self._matches_resources(found)
        return self.excludes(found)

    def excludes(self, found: MatchInput) -> bool:
        """Whether it matches as a block of ``exclude``: an empty one never does."""
        return not self.is_empty and self._matches_resources(found) and self._matches_user(found)

    def excepts(self, found: MatchInput) -> bool:
        """Whether it matches as a block of an exception, of which operations do not count."""
        if self.is_empty:
            return False
        is_namespace = found.object_kind == "Namespace"
        return (
            self._matches_object(found)
            and (
                self.namespace_selector is None
                or is_namespace
                or self.namespace_selector.matches(found.namespace_labels)
            )
            and self._matches_user(found)
        )

    def _matches_resources(self, found: MatchInput) -> bool:
        if self.operations and found.operation not in self.operations:
            return False
        if self.namespace_selector is not None and (
            found.object_kind == "Namespace" or not self.namespace_selector.matches(found.namespace_labels)
        ):
            return False
        return self._matches_object(found)

    def _matches_object(self, found: MatchInput) -> bool:
        if self.kinds and not any(each.matches(found) for each in self.kinds):
            return False
        if self.names and not any(each.matches(found.named) for each in self.names):
            return False
        if self.namespaces:
            # A Namespace counts as its own.
            namespace = found.name if found.object_kind == "Namespace" else found.namespace
            if not any(each.matches(namespace) for each in self.namespaces):
                return False
        if not all(_has_pair(found.annotations, *pair) for pair in self.annotations):
            return False
        return self.selector is None or self.selector.matches(found.labels)

    def _matches_user(self, found: MatchInput) -> bool:
        is_subject = not self.subjects or any(
            each.name.matches_any(found.groups) if each.is_group else each.name.matches(found.user)
            for each in self.subjects
        )
        return (
            is_subject
            and (not self.roles or found.roles.has_role(self.roles))
            and (not self.cluster_roles or found.roles.has_cluster_role(self.cluster_roles))
        )


@dataclass(frozen=True, slots=True, eq=False)
class Filters:
    """The blocks of ``match`` or ``exclude``."""

    by: Literal["any", "all"]
    """Whether one has to match, or all. A plain block is the only one of all."""
    blocks: tuple[Filter, ...]

    @property
    def needs_roles(self) -> bool:
        """Whether the roles of the user count."""
        return any(each.needs_roles for each in self.blocks)

    def include(self, found: MatchInput) -> bool:
        """Whether they match as those of ``match``."""
        results = (each.includes(found) for each in self.blocks)
        return any(results) if self.by == "any" else all(results)

    def exclude(self, found: MatchInput) -> bool:
        """Whether they match as those of ``exclude``."""
        results = (each.excludes(found) for each in self.blocks)
        return any(results) if self.by == "any" else all(results)

    def make_exception(self, found: MatchInput) -> bool:
        """Whether they match as those of an exception; without blocks they do not."""
        results = (each.excepts(found) for each in self.blocks)
        return any(results) if self.by == "any" else bool(self.blocks) and all(results)


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""
