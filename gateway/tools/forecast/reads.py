"""Which fields of the object the expressions of a policy read, found in their trees.

The object is followed through variables, macros and conditions to where a value is used. What is read of an
old object counts as well. Where a value is given to a function, all of it is read.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.admission_policies.in_force import PolicyInForce
from gateway.pure.admission_policies.templates import TemplatePolicy
from gateway.pure.cel.dialect_macros import ALL
from gateway.pure.cel.environment import VARIABLES
from gateway.pure.cel.errors import InvalidExpression
from gateway.pure.cel.parse import parse
from gateway.pure.cel.syntax import (
    Call,
    Comprehension,
    Ident,
    Let,
    ListLiteral,
    Literal,
    OptionalMap,
    Select,
    children,
)
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
_INDEX: Final = frozenset({"_[_]", "_[?_]"})
_SAME: Final = frozenset({"value", "dyn", "or", "orValue", "_?_:_", "optional.of", "optional.ofNonZeroValue"})
"""Functions whose value is one of their arguments."""
_COMPARISONS: Final = frozenset({"_==_", "_!=_"})
_MAX_KEYS: Final = 32
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
_NOWHERE: Final[_Origins] = frozenset()


class _Reads:
    def __init__(self, variables: Mapping[str, list[Node]]) -> None:
        self.read: set[Path] = set()
        self._variables = variables
        self._of_variables: dict[str, _Origins] = {}

    def consume(self, node: Node, names: Mapping[str, _Origins]) -> None:
        """Note that the whole value of *node* is used. *names* are the variables of macros around it."""
        self.read |= self._origins(node, names)

    def _origins(self, node: Node, names: Mapping[str, _Origins]) -> _Origins:
        """Return where the value of *node* is from, and note what is read to find it."""
        match node:
            case Ident(name=name):
                if name in names:
                    return names[name]
                return _GLOBALS.get(name.removeprefix("."), _NOWHERE)
            case Select(operand=operand, field=key):
                if (variable := self._variable(operand, key, names)) is not None:
                    return variable
                found = _below(self._origins(operand, names), key)
                return self._seen(found) if node.is_test else found
            case Call(function=function, arguments=[operand, index]) if function in _INDEX:
                found = self._origins(operand, names)
                if isinstance(index, Literal) and isinstance(index.value, str):
                    return self._variable(operand, index.value, names) or _below(found, index.value)
                self.consume(index, names)
                return _below(found, ITEM)
            case Call(function=function):
                return self._called(function, children(node), names)
            case ListLiteral(elements=elements):
                return self._either(elements, names)
            case Comprehension():
                return self._comprehension(node, names)
            case (
                OptionalMap(target=target, variable=name, body=body)
                | Let(target=target, variable=name, body=body)
            ):
                of_target = self._origins(target, names)
                self._seen(of_target)
                return self._origins(body, {**names, name: of_target})
        for each in children(node):
            self.consume(each, names)
        return _NOWHERE

    def _called(self, function: str, parts: list[Node], names: Mapping[str, _Origins]) -> _Origins:
        if function == "_+_" or function in _SAME:
            if function == "_?_:_":
                self.consume(parts[0], names)
                parts = parts[1:]
            return self._either(parts, names)
        is_of_null = any(isinstance(each, Literal) and each.value is None for each in parts)
        match function, parts:
            case "@in", [Literal(value=str(key)), container]:
                self._seen(_below(self._origins(container, names), key))
            case "size", [counted]:
                self._counted(counted, names)
            case _ if function == "hasValue" or (is_of_null and function in _COMPARISONS):
                self._seen(self._either(parts, names))
            case _:
                for each in parts:
                    self.consume(each, names)
        return _NOWHERE

    def _variable(self, operand: Node, key: str, names: Mapping[str, _Origins]) -> _Origins | None:
        """Return where the variable *key* of the policy is from; None if *operand* has no variables."""
        if not isinstance(operand, Ident) or operand.name.removeprefix(".") != VARIABLES:
            return None
        if operand.name in names or key not in self._variables:
            return None
        if key not in self._of_variables:
            self._of_variables[key] = _NOWHERE  # a variable in a circle has no value
            self._of_variables[key] = self._either(self._variables[key], {})
        return self._of_variables[key]

    def _comprehension(self, node: Comprehension, names: Mapping[str, _Origins]) -> _Origins:
        over = self._counted(node.range, names)
        elements = _below(over, ITEM)
        inner = {**names, node.variable: elements}
        if node.variable2 is not None:
            inner |= {node.variable: _NOWHERE, node.variable2: elements}
        if node.condition is not None:
            self.consume(node.condition, inner)
        if node.macro == "filter":
            self.consume(node.body, inner)
            return over
        made = self._origins(node.body, inner)
        if node.macro.startswith(("map", "transform")):
            # An item of the new list is one of these, which the next macro takes.
            return frozenset(path[:-1] if path[-1:] == (ITEM,) else path for path in made)
        self.read |= made
        return _NOWHERE

    def _either(self, several: Iterable[Node], names: Mapping[str, _Origins]) -> _Origins:
        return frozenset(path for each in several for path in self._origins(each, names))

    def _counted(self, node: Node, names: Mapping[str, _Origins]) -> _Origins:
        """Return where *node* is from, after noting that something depends on how many parts it has."""
        origins = self._origins(node, names)
        self._seen(_below(origins, ITEM))
        return origins

    def _seen(self, origins: _Origins) -> _Origins:
        """Note that something depends on whether a value is there."""
        self.read |= {(*path, "") for path in origins if path}
        return _NOWHERE


def _below(origins: _Origins, key: str) -> _Origins:
    return frozenset((*path, key)[:_MAX_KEYS] for path in origins)
