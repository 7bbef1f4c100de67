"""The fields of the object that a mutating policy reads and writes, as far as its expressions tell.

A field is a path of names. A path stands for everything below it too, so what is not known exactly is a
shorter path, and the empty one is the whole object.

Source: k8s.io/apiserver pkg/admission/plugin/policy/mutating/patch; RFC 6901 (JSON Pointer).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.pure.cel.parse import parse
from gateway.pure.cel.syntax import (
    Call,
    Comprehension,
    Ident,
    ListLiteral,
    Literal,
    MapLiteral,
    Node,
    Select,
    StructLiteral,
    children,
    nodes,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gateway.pure.admission_policies.model import MutatingPolicy
    from gateway.pure.admission_policies.mutations import Mutation

    Path = tuple[str, ...]

EVERYTHING: Final[Path] = ()
LABELS: Final[Path] = ("metadata", "labels")
_OF_ANY_NAME: Final = (LABELS, ("metadata", "annotations"))
"""Maps whose members have names of the author's choice, and texts as values."""
_OBJECT: Final = ("object", ".object")
_VARIABLES: Final = ("variables", ".variables")
_INDEX: Final = ("_[_]", "_[?_]")


class Effects(NamedTuple):
    """The fields that are read, and those that are written."""

    reads: frozenset[Path]
    writes: frozenset[Path]

    def depend(self, other: Effects) -> Path | None:
        """Return a field because of which the order of *self* and *other* may matter, or None."""
        for ours, theirs in (
            (self.writes, other.writes),
            (self.writes, other.reads),
            (self.reads, other.writes),
        ):
            for one in sorted(ours):
                for two in sorted(theirs):
                    if overlap(one, two):
                        return max(one, two, key=len)
        return None


def overlap(one: Path, other: Path) -> bool:
    """Whether one of two fields is the other, or has it below it."""
    length = min(len(one), len(other))
    return one[:length] == other[:length]


class PolicyEffects:
    """The effects of one policy."""

    def __init__(self, policy: MutatingPolicy) -> None:
        self._variables = {name: parse(each.text) for name, each in policy.rules.variables.items()}
        conditions = (parse(each.expression) for each in policy.conditions)
        self._of_conditions = frozenset(path for tree in conditions for path in self._reads(tree))
        self.of_mutations = tuple(map(self._of, policy.rules.mutations))
        """Of each mutation, without the conditions."""
        self.all = Effects(
            self._of_conditions.union(*(each.reads for each in self.of_mutations)),
            frozenset(path for each in self.of_mutations for path in each.writes),
        )
        """Of the whole policy."""

    def _of(self, mutation: Mutation) -> Effects:
        tree = parse(mutation.expression.text)
        reads = frozenset(self._reads(tree))
        if mutation.patch_type == "ApplyConfiguration":
            return Effects(reads, frozenset(self._merged(tree, EVERYTHING)))
        found: set[Path] = set()
        for operation in self._operations(tree):
            path = None if operation is None else operation.path
            if path is None:
                found.add(EVERYTHING)
                continue
            # The field above it has to exist, or the patch fails.
            reads |= {path if operation is not None and operation.op == "test" else path[:-1]}
            found.add(path)
        return Effects(reads, frozenset(found))

    # -- reading ------------------------------------------------------------------------------------

    def _reads(self, tree: Node) -> Iterator[Path]:
        waiting = [tree]
        while waiting:
            node = waiting.pop()
            path, others = _path(node)
            if path is not None:
                yield path
                waiting += others
                continue
            if isinstance(node, Select) and isinstance(node.operand, Ident):
                variable = self._variables.get(node.field) if node.operand.name in _VARIABLES else None
                if variable is not None:
                    # A variable can use those before it only, so this ends.
                    yield from self._reads(variable)
                    continue
            waiting += children(node)

    # -- writing ------------------------------------------------------------------------------------

    def _merged(self, node: Node, path: Path) -> Iterator[Path]:
        """Yield the fields that the apply configuration *node* sets at *path*."""
        match node:
            case StructLiteral(fields=fields) if fields:
                for field, value, _ in fields:
                    yield from self._merged(value, (*path, field))
            case MapLiteral(entries=entries) if entries:
                for key, value, _ in entries:
                    member = _text(key)
                    yield from (path,) if member is None else self._merged(value, (*path, member))
            case Call(function="_?_:_", arguments=[_, one, other]):
                yield from self._merged(one, path)
                yield from self._merged(other, path)
            case Call(function="of", target=Ident(name="optional"), arguments=[value]):
                yield from self._merged(value, path)
            case Call(function="none", target=Ident(name="optional")):
                return
            case Select(operand=Ident(name=name), field=field) if (
                name in _VARIABLES and field in self._variables
            ):
                yield from self._merged(self._variables[field], path)
            case _:
                yield path

    def _operations(self, node: Node) -> Iterator[Operation | None]:
        """Yield the operations of the JSON Patch *node*, and None for those that are not known."""
        match node:
            case ListLiteral(elements=elements):
                for element in elements:
                    yield _operation(element)
            case (
                Call(function="_?_:_", arguments=[_, one, other])
                | Call(function="_+_", arguments=[one, other])
            ):
                yield from self._operations(one)
                yield from self._operations(other)
            case _:
                yield None

    def operations(self, mutation: Mutation) -> Iterator[Operation | None]:
        """Yield the operations of *mutation*, a JSON Patch, and None for those that are not known."""
        return self._operations(parse(mutation.expression.text))


class Operation(NamedTuple):
    """An operation of a JSON Patch, which adds, replaces, removes or tests."""

    op: str
    path: Path
    """Up to the first list."""
    is_plain: bool
    """Whether it sets one label or annotation to a text, removes it, or compares a constant."""


def _operation(node: Node) -> Operation | None:
    if not isinstance(node, StructLiteral):
        return None
    fields = {name: value for name, value, _ in node.fields}
    op, pointer = _text(fields.get("op")), _text(fields.get("path"))
    if op not in ("add", "replace", "remove", "test") or pointer is None or not pointer.startswith("/"):
        return None
    parts = tuple(part.replace("~1", "/").replace("~0", "~") for part in pointer[1:].split("/"))
    is_member = len(parts) == len(LABELS) + 1 and parts[:-1] in _OF_ANY_NAME
    value = fields.get("value")
    if op == "test":
        is_plain = isinstance(value, Literal) and value.value is not None
    else:
        is_plain = is_member and (op == "remove" or _is_text(value))
    if parts[:-1] in _OF_ANY_NAME:
        return Operation(op, parts, is_plain)
    in_list = (index for index, part in enumerate(parts) if part == "-" or part.isdecimal())
    return Operation(op, parts[: next(in_list, len(parts))], is_plain)


def _path(node: Node) -> tuple[Path | None, list[Node]]:
    """Return the field that *node* reads, and the expressions in it; None if it is not a field."""
    match node:
        case Ident(name=name) if name in _OBJECT:
            return EVERYTHING, []
        case Select(operand=operand, field=field):
            path, others = _path(operand)
            return path if path is None or others else (*path, field), others
        case Call(function=function, arguments=[operand, key]) if function in _INDEX:
            path, others = _path(operand)
            if path is None:
                return None, []
            member = _text(key)
            return (path, [*others, key]) if member is None or others else ((*path, member), others)
    return None, []


def _text(node: Node | None) -> str | None:
    """Return the value of *node* if it is a text that is known; None otherwise."""
    match node:
        case Literal(value=str(value)):
            return value
        case Call(function="_+_", arguments=[one, other]):
            first, second = _text(one), _text(other)
            return None if first is None or second is None else first + second
        case Call(function="escapeKey", target=Ident(name="jsonpatch"), arguments=[key]):
            text = _text(key)
            return None if text is None else text.replace("~", "~0").replace("/", "~1")
    return None


def _is_text(node: Node | None) -> bool:
    """Whether the value of *node* is certainly a text."""
    match node:
        case Literal(value=str()) | Call(function="string", target=None):
            return True
        case Call(function="_+_", arguments=[one, other]):
            return _is_text(one) and _is_text(other)
        case Call(function="_?_:_", arguments=[_, one, other]):
            return _is_text(one) and _is_text(other)
    return False


def has_map_in_list(texts: Iterable[str]) -> bool:
    """Whether any of *texts*, expressions, makes a list that has a map literal in it."""
    trees = map(parse, texts)
    lists = (node for tree in trees for node in nodes(tree) if isinstance(node, ListLiteral | Comprehension))
    return any(isinstance(part, MapLiteral) for each in lists for part in nodes(each))
