"""The objects of the cluster that the expressions of a policy read, and the parts of them.

An expression has the same value for objects with these parts only. An object, a part of it or a list of
objects is followed through variables, macros and conditions to where it is used. Where anything else is done
with it, all of it counts as read.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.pure.cel.dialect_macros import ALL
from gateway.pure.cel.environment import VARIABLES
from gateway.pure.cel.libraries.cluster_objects import GVRS, HTTP_GET, LISTS, POSTS, READS, RESOURCE
from gateway.pure.cel.libraries.global_context import GLOBAL_CONTEXT
from gateway.pure.cel.libraries.optional_values import OR_VALUE
from gateway.pure.cel.parse import parse
from gateway.pure.cel.paths import WHOLE, joined
from gateway.pure.cel.reads import MAX_KEYS
from gateway.pure.cel.syntax import (
    Call,
    Comprehension,
    Ident,
    Let,
    ListLiteral,
    Literal,
    Node,
    OptionalMap,
    Select,
    children,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    from gateway.pure.cel.paths import Paths

Resource = tuple[str, str]
"""apiVersion and plural name of a kind, or the kind itself if ``toGVR`` finds its plural name.

Both are empty if a constant does not say which one is read.
"""
ANY: Final[Resource] = ("", "")
ENTRY: Final = GLOBAL_CONTEXT
"""In place of an apiVersion: the objects of the GlobalContextEntry whose name is in place of the kind.

The name is empty if a constant does not say which one is read.
"""

_LIST: Final = ("(list)",)
_ITEMS: Final = ("(items)",)
"""In place of a path: of a list of objects, and of its items."""
_LISTS: Final = frozenset({_LIST, _ITEMS})
_LABELS: Final = ("metadata", "labels")
MENTIONS: Final = re.compile(rf"\b(?:{RESOURCE}|{GLOBAL_CONTEXT})\b")
_IN_JSON: Final = re.compile(rb"(?:resource|globalContext|http)(?!\w)")
"""An escape, which ends with a letter, may be before the name."""
_MADE: Final = POSTS | GVRS | {HTTP_GET}
"""Functions of ``resource`` that read no objects."""
_COMPARISONS: Final = frozenset({"_==_", "_!=_"})
_INDEX: Final = frozenset({"_[_]", "_[?_]"})
_SAME: Final = frozenset({"value", "dyn", "or", "orValue", OR_VALUE})
"""Functions whose value is one of their arguments, or an optional with it."""
_ARGUMENTS: Final = 2
"""Those that name a kind."""


class _Origin(NamedTuple):
    """Where a value is from: an object, a part of it, or a list."""

    resource: Resource
    path: tuple[str, ...]


_Origins = frozenset[_Origin]
_NOWHERE: Final[_Origins] = frozenset()


def may_read_objects(document: bytes) -> bool:
    """Whether an expression in *document*, which is JSON, may read objects."""
    return _IN_JSON.search(document) is not None


def object_reads(texts: Iterable[str], variables: Mapping[str, str]) -> dict[Resource, Paths]:
    """Return the objects that the expressions *texts* read, with the parts that they read.

    *variables* are the expressions of the policy's variables. All have been compiled.
    """
    texts = [*texts]
    if not any(MENTIONS.search(text) for text in (*texts, *variables.values())):
        return {}
    try:
        found = _Reads({name: parse(text, ALL) for name, text in variables.items()})
        for text in texts:
            found.consume(parse(text, ALL), {})
    except RecursionError:
        return {ANY: WHOLE}
    return {resource: joined([paths]) for resource, paths in found.read.items()}


class _Reads:
    def __init__(self, variables: Mapping[str, Node]) -> None:
        self.read: dict[Resource, set[tuple[str, ...]]] = {}
        self._variables = variables
        self._of_variables: dict[str, _Origins] = {}

    def consume(self, node: Node, names: Mapping[str, _Origins]) -> None:
        """Note that the whole value of *node* is used. *names* are the variables of macros around it."""
        self._note(self._origins(node, names))

    def _note(self, origins: _Origins) -> None:
        for resource, path in origins:
            self.read[resource].add(() if path in _LISTS else path[:MAX_KEYS])

    def _origins(self, node: Node, names: Mapping[str, _Origins]) -> _Origins:
        """Return where the value of *node* is from, and note what is read to find it."""
        match node:
            case Ident(name=name):
                # It is called by another name, or at run time: nothing says what it reads.
                match _global(name, names):
                    case "resource":
                        self.read[ANY] = {()}
                    case "globalContext":
                        self.read[ENTRY, ""] = {()}
                return names.get(name, _NOWHERE)
            case Select():
                return self._selected(node, names)
            case Call():
                return self._called(node, names)
            case ListLiteral(elements=elements):
                return self._listed(self._either(elements, names))
            case Comprehension():
                return self._comprehension(node, names)
            case (
                OptionalMap(target=target, variable=variable, body=body)
                | Let(target=target, variable=variable, body=body)
            ):
                of_target = self._origins(target, names)
                self._note_presence(of_target)
                return self._origins(body, {**names, variable: of_target})
        return self._used(node, names)

    def _called(self, node: Call, names: Mapping[str, _Origins]) -> _Origins:
        match node.function, children(node):
            case function, [Ident(name=target), _, *_] if function in READS and (
                variable := _global(target, names)
            ):
                return self._read(node, names) if variable == RESOURCE else self._read_entry(node, names)
            case function, [Ident(name=target), *given] if (function in _MADE) and _is_resource(
                target, names
            ):
                # The value is made of what it gets, and of no other object.
                for each in given:
                    self.consume(each, names)
                return _NOWHERE
            case "_?_:_", [condition, one, other]:
                self.consume(condition, names)
                return self._either((one, other), names)
            case function, [one, other] if function in _COMPARISONS and (_is_null(one) or _is_null(other)):
                # An object differs from null, whatever is in it.
                origins = self._either((one, other), names)
                self._note(frozenset(each for each in origins if each.path and each.path not in _LISTS))
                return _NOWHERE
            case "@in", [Literal(value=str(key)), container]:
                origins = self._origins(container, names)
                self._note(frozenset(each for each in origins if each.path in _LISTS))
                self._note_presence(_below(origins, key))
                return _NOWHERE
            case function, [operand, index] if function in _INDEX:
                return self._indexed(operand, index, names)
            case "_+_", [one, other]:
                return self._kept_items(self._either((one, other), names))
            case "size", [operand]:
                lists = self._origins(operand, names)
                self._note(frozenset(each for each in lists if each.path not in _LISTS))
                return _NOWHERE
            case "hasValue", [operand]:
                self._note_presence(self._origins(operand, names))
                return _NOWHERE
            case function, parts if function in _SAME:
                return self._either(parts, names)
        return self._used(node, names)

    def _used(self, node: Node, names: Mapping[str, _Origins]) -> _Origins:
        for each in children(node):
            self.consume(each, names)
        return _NOWHERE

    def _either(self, several: Iterable[Node], names: Mapping[str, _Origins]) -> _Origins:
        return frozenset(origin for each in several for origin in self._origins(each, names))

    def _read(self, node: Call, names: Mapping[str, _Origins]) -> _Origins:
        for each in node.arguments:
            self.consume(each, names)
        resource = self._resource_of(node, names)
        read = self.read.setdefault(resource, set())
        if node.function not in LISTS:
            return frozenset({_Origin(resource, ())})
        # The last argument can be labels, behind those that name the kind.
        of_kind = _ARGUMENTS if resource_of(node) != ANY else 1
        if len(node.arguments) > of_kind and not isinstance(node.arguments[-1], Literal):
            read.add(_LABELS)
        return frozenset({_Origin(resource, _LIST)})

    def _read_entry(self, node: Call, names: Mapping[str, _Origins]) -> _Origins:
        for each in node.arguments:
            self.consume(each, names)
        name = ""
        if isinstance(node.arguments[0], Literal) and isinstance(node.arguments[0].value, str):
            name = node.arguments[0].value
        resource = ENTRY, name
        self.read.setdefault(resource, set())
        # A projection is not made of parts.
        return frozenset({_Origin(resource, _ITEMS)})

    def _resource_of(self, node: Call, names: Mapping[str, _Origins]) -> Resource:
        """Return what the call *node* reads, also if a constant ``toGVR`` or a variable with one says it."""
        match node.arguments[0]:
            case Call(function=function, target=Ident(name=target)) as gvr if (
                function in GVRS and _is_resource(target, names)
            ):
                return resource_of(gvr)
            case Select(operand=Ident(name=of), field=key) if (
                key in self._variables and of.removeprefix(".") == VARIABLES and VARIABLES not in names
            ):
                match self._variables[key]:
                    case Call(function=function, target=Ident(name=target)) as gvr if (
                        function in GVRS and _is_resource(target, {})
                    ):
                        return resource_of(gvr)
        return resource_of(node)

    def _selected(self, node: Select, names: Mapping[str, _Origins]) -> _Origins:
        operand, key = node.operand, node.field
        is_variable = isinstance(operand, Ident) and (
            operand.name == f".{VARIABLES}" or (operand.name == VARIABLES and VARIABLES not in names)
        )
        if is_variable and key in self._variables:
            if key not in self._of_variables:
                self._of_variables[key] = self._origins(self._variables[key], {})
            return self._of_variables[key]
        origins = _below(self._origins(operand, names), key)
        if node.is_test:
            self._note_presence(origins)
            return _NOWHERE
        return origins

    def _indexed(self, operand: Node, index: Node, names: Mapping[str, _Origins]) -> _Origins:
        origins = self._origins(operand, names)
        if isinstance(index, Literal) and isinstance(index.value, str):
            return _below(origins, index.value)
        self.consume(index, names)
        return self._elements(origins)

    def _comprehension(self, node: Comprehension, names: Mapping[str, _Origins]) -> _Origins:
        over = self._origins(node.range, names)
        elements = self._elements(over)
        inner = {**names, node.variable: elements}
        if node.variable2 is not None:
            inner |= {node.variable: _NOWHERE, node.variable2: elements}
        if node.condition is not None:
            self.consume(node.condition, inner)
        if node.macro == "map":
            return self._listed(self._origins(node.body, inner))
        self.consume(node.body, inner)
        return over if node.macro == "filter" else _NOWHERE

    def _elements(self, origins: _Origins) -> _Origins:
        """Return the origins of the elements of a list or map, and note all but the objects of lists."""
        of_lists = frozenset(each for each in origins if each.path == _ITEMS)
        self._note(origins - of_lists)
        return frozenset(_Origin(each.resource, ()) for each in of_lists)

    def _listed(self, origins: _Origins) -> _Origins:
        """Return the origins of a list with elements from *origins*: only whole objects are followed."""
        objects = frozenset(each for each in origins if not each.path)
        self._note(origins - objects)
        return frozenset(_Origin(each.resource, _ITEMS) for each in objects)

    def _kept_items(self, origins: _Origins) -> _Origins:
        """Return those of *origins* that are lists of objects, and note the others."""
        items = frozenset(each for each in origins if each.path == _ITEMS)
        self._note(origins - items)
        return items

    def _note_presence(self, origins: _Origins) -> None:
        """Note that something depends on whether a value is there."""
        for resource, path in origins:
            if path and path not in _LISTS:
                self.read[resource].add((*path[:MAX_KEYS], ""))


def _below(origins: _Origins, key: str) -> _Origins:
    found = set()
    for resource, path in origins:
        if path == _LIST:
            # What else a list has does not depend on its objects.
            if key == "items":
                found.add(_Origin(resource, _ITEMS))
        else:
            found.add(_Origin(resource, path if path == _ITEMS else (*path, key)))
    return frozenset(found)


def _is_resource(name: str, names: Mapping[str, _Origins]) -> bool:
    return _global(name, names) == RESOURCE


def _global(name: str, names: Mapping[str, _Origins]) -> str:
    """Return which variable that reads *name* is, where macros have the variables *names*; empty if none."""
    found = "" if name in names else name.removeprefix(".")
    return found if found in (RESOURCE, GLOBAL_CONTEXT) else ""


def resource_of(call: Call) -> Resource:
    """Return what the constants of a *call* of one of ``READS`` or ``GVRS`` name."""
    match call.arguments:
        case [Literal(value=str(version)), Literal(value=str(plural)), *_]:
            return version, plural
    return ANY


def _is_null(node: Node) -> bool:
    return isinstance(node, Literal) and node.value is None
