"""Which roles users have, by RoleBindings and ClusterRoleBindings.

Source: github.com/kyverno/kyverno pkg/userinfo/roleRef.go (GetRoleRef).
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    Json = dict[str, Any]
    KindKey = tuple[str, str]
    """apiVersion and kind."""
    Grant = tuple[str | None, str]
    """A ClusterRole by the namespace in which it is bound, empty for all, and its name; or None and a Role as
    ``NAMESPACE:NAME``."""
    Entry = tuple[bool, str, Grant]
    """Whether the subject is a group, its name, and what it has. A service account is a user."""

VERSION: Final = "rbac.authorization.k8s.io/v1"
ROLE_BINDING: Final[KindKey] = (VERSION, "RoleBinding")
CLUSTER_ROLE_BINDING: Final[KindKey] = (VERSION, "ClusterRoleBinding")
BINDINGS: Final = (ROLE_BINDING, CLUSTER_ROLE_BINDING)
ROLE_PATHS: Final = frozenset({("(roles)",)})
"""Stands for what the index needs of bindings, among the parts of objects that policies read."""
_DEFAULT_NAMESPACE: Final = "default"


def entries_of(kind: KindKey, binding: Json) -> tuple[Entry, ...]:
    """Return what *binding*, which is of *kind*, gives to its subjects; nothing if it is of another kind.

    A RoleBinding without a namespace, which only files have, is one of the namespace ``default``.
    """
    grant = _grant(kind, binding) if kind in BINDINGS else None
    if grant is None:
        return ()
    subjects = binding.get("subjects")
    namespace = grant[0] if grant[0] is not None else grant[1].partition(":")[0]
    named = (_subject(each, namespace) for each in (subjects if isinstance(subjects, list) else ()))
    return tuple((*each, grant) for each in named if each is not None)


def _grant(kind: KindKey, binding: Json) -> Grant | None:
    ref, metadata = binding.get("roleRef"), binding.get("metadata")
    name = ref.get("name") if isinstance(ref, dict) else None
    if not isinstance(ref, dict) or not isinstance(name, str):
        return None
    namespace = ""
    if kind == ROLE_BINDING:
        found = metadata.get("namespace") if isinstance(metadata, dict) else None
        namespace = found if isinstance(found, str) and found else _DEFAULT_NAMESPACE
    match ref.get("kind"):
        case "ClusterRole":
            return _shared(namespace, name)
        case "Role" if namespace:
            return _shared(None, f"{namespace}:{name}")
    return None


@lru_cache(maxsize=4096)
def _shared(namespace: str | None, name: str) -> Grant:
    """Return one object for equal grants, which many bindings have."""
    return namespace, name


def _subject(subject: object, namespace: str) -> tuple[bool, str] | None:
    """Return whether *subject* is a group, and its name. *namespace* is that of the binding."""
    match subject:
        case {"kind": "User" | "Group" as kind, "name": str(name)}:
            return kind == "Group", name
        case {"kind": "ServiceAccount", "name": str(name), **more}:
            namespace = str(more.get("namespace") or namespace)
            return (False, f"system:serviceaccount:{namespace}:{name}") if namespace else None
    return None


class RoleIndex:
    """What bindings give, by subject. They may change while a thread reads."""

    def __init__(self) -> None:
        self._of_users: dict[str, dict[Grant, int]] = {}
        self._of_groups: dict[str, dict[Grant, int]] = {}
        """By how many subjects of bindings the group has each."""

    def change(self, before: Iterable[Entry], after: Iterable[Entry]) -> None:
        """Replace the entries *before*, which are there, by those *after*."""
        for is_group, subject, grant in after:
            found = (self._of_groups if is_group else self._of_users).setdefault(subject, {})
            found[grant] = found.get(grant, 0) + 1
        for is_group, subject, grant in before:
            by_subject = self._of_groups if is_group else self._of_users
            found = by_subject[subject]
            if found[grant] > 1:
                found[grant] -= 1
            else:
                del found[grant]
                if not found:
                    del by_subject[subject]

    def of(self, user: str, groups: Iterable[object]) -> Iterator[Mapping[Grant, int]]:
        """Yield what *user* and *groups* have. The keys are the roles."""
        if (found := self._of_users.get(user)) is not None:
            yield found
        for each in groups:
            if isinstance(each, str) and (found := self._of_groups.get(each)) is not None:
                yield found
