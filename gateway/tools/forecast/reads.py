"""Which fields of the object the expressions of a policy read, found in their trees.

The object is followed to where a value is used. What is read of an old object counts as well.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.admission_policies.in_force import PolicyInForce
from gateway.pure.admission_policies.templates import TemplatePolicy
from gateway.pure.cel.dialect_macros import ALL
from gateway.pure.cel.errors import InvalidExpression
from gateway.pure.cel.followed_values import FollowedValues
from gateway.pure.cel.parse import parse
from gateway.pure.cel.reads import MAX_KEYS
from gateway.pure.core.webhook import PolicyRef
from gateway.pure.kyverno.cluster_policy import KyvernoClusterPolicy

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.pure.cel.compile import Expression
    from gateway.pure.cel.syntax import Node
    from gateway.pure.core.webhook import Webhook

Path = tuple[str, ...]
ITEM: Final = "[]"
"""In place of a key that no constant says: any item of a list, any value of a map."""
_MAX_PATHS: Final = 10_000
"""Of one policy. With more, everything counts as read."""
_EVERYTHING: Final[frozenset[Path]] = frozenset({()})
_GLOBALS: Final[dict[str, frozenset[Path]]] = {
    "object": _EVERYTHING,
    "oldObject": _EVERYTHING,
    # Kyverno's: the images of all containers.
    "images": frozenset(
        ("spec", name, ITEM, "image") for name in ("containers", "initContainers", "ephemeralContainers")
    ),
}
_PREFIXES: Final[tuple[Path, ...]] = (
    ("spec", "jobTemplate", "spec", "template"),
    ("spec", "template"),
)


def reads_of(webhook: Webhook) -> frozenset[Path] | None:
    """Return the paths that *webhook* reads, as in a Pod; None if no expressions say it.

    A path that ends at a map or list stands for all of it. The paths of workloads' templates are those of
    the Pods.
    """
    policy = webhook.policy
    if isinstance(policy, TemplatePolicy):
        policy = policy.bound
    if not isinstance(webhook.client, PolicyRef) or not isinstance(policy, PolicyInForce):
        return None
    variables = [policy.policy.variables]
    if isinstance(policy, KyvernoClusterPolicy):
        variables += [each.rules.variables for each in policy.cluster_policy.all_rules]
    conditions = webhook.match_conditions.expressions if webhook.match_conditions is not None else ()
    # A variable is read where it is used.
    used = {id(each) for several in variables for each in several.values()}
    of_policy = [each.text for each in policy.policy.expressions if id(each) not in used]
    texts = [*of_policy, *(text for _, text in conditions)]
    return paths_read(texts, variables)


def paths_read(texts: Iterable[str], variables: Iterable[Mapping[str, Expression]]) -> frozenset[Path]:
    """Return the paths of the object that the expressions *texts* with *variables* read."""
    try:
        named: dict[str, list[Node]] = {}
        for several in variables:
            for name, each in several.items():
                named.setdefault(name, []).append(parse(each.text, ALL))
        found = _Reads(named)
        for text in texts:
            found.consume(parse(text, ALL), {})
    except (InvalidExpression, RecursionError):
        return _EVERYTHING
    if len(found.read) > _MAX_PATHS:
        return _EVERYTHING
    return frozenset(map(_of_pod, found.read))


def is_read(path: Path, reads: frozenset[Path]) -> bool:
    """Whether one of *reads* is *path*, something in it, or all of something that it is in."""
    return any(
        all(one == other or ITEM in (one, other) for one, other in zip(path, read, strict=False))
        and not (read[-1:] == ("",) and len(path) >= len(read))
        for read in reads
    )


def _of_pod(path: Path) -> Path:
    for prefix in _PREFIXES:
        if path[: len(prefix)] == prefix:
            # All of a template has all of a Pod.
            return path[len(prefix) :]
    return path


_Origins = frozenset[Path]


class _Reads(FollowedValues[Path]):
    def __init__(self, variables: Mapping[str, list[Node]]) -> None:
        super().__init__(variables)
        self.read: set[Path] = set()

    def used(self, origins: _Origins) -> None:
        self.read |= origins

    def looked_for(self, origins: _Origins) -> None:
        self.read |= {(*path, "") for path in origins if path}

    def counted(self, origins: _Origins) -> None:
        self.looked_for(self.elements(origins))

    def of_global(self, name: str) -> _Origins:
        return _GLOBALS.get(name, frozenset())

    def member(self, origins: _Origins, key: str) -> _Origins:
        return frozenset((*path, key)[:MAX_KEYS] for path in origins)

    def elements(self, origins: _Origins) -> _Origins:
        return self.member(origins, ITEM)

    def listed(self, origins: _Origins) -> _Origins:
        # An item of the new list is one of these, which the next macro takes.
        return frozenset(path[:-1] if path[-1:] == (ITEM,) else path for path in origins)
