"""The objects of the cluster that the expressions of a policy read, and the parts of them.

An expression has the same value for objects with these parts only. An object, a part of it or a list of
objects is followed to where it is used.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.pure.cel.dialect_macros import ALL
from gateway.pure.cel.followed_values import FollowedValues, are_variables
from gateway.pure.cel.libraries.cluster_objects import GVRS, HTTP_GET, LISTS, POSTS, READS, RESOURCE
from gateway.pure.cel.libraries.global_context import GLOBAL_CONTEXT
from gateway.pure.cel.parse import parse
from gateway.pure.cel.paths import WHOLE, joined
from gateway.pure.cel.reads import MAX_KEYS
from gateway.pure.cel.syntax import Call, Ident, Literal, Node, Select, children

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


class _Reads(FollowedValues[_Origin]):
    def __init__(self, variables: Mapping[str, Node]) -> None:
        super().__init__({name: [tree] for name, tree in variables.items()})
        self.read: dict[Resource, set[tuple[str, ...]]] = {}

    def used(self, origins: _Origins) -> None:
        for resource, path in origins:
            self.read[resource].add(() if path in _LISTS else path[:MAX_KEYS])

    def looked_for(self, origins: _Origins) -> None:
        for resource, path in origins:
            if path and path not in _LISTS:
                self.read[resource].add((*path[:MAX_KEYS], ""))

    def counted(self, origins: _Origins) -> None:
        self.used(frozenset(each for each in origins if each.path not in _LISTS))

    def compared_with_null(self, origins: _Origins) -> None:
        # An object differs from null, whatever is in it.
        self.used(frozenset(each for each in origins if each.path and each.path not in _LISTS))

    def key_sought(self, origins: _Origins, key: str) -> None:
        self.used(frozenset(each for each in origins if each.path in _LISTS))
        super().key_sought(origins, key)

    def of_global(self, name: str) -> _Origins:
        # It is called by another name, or at run time: nothing says what it reads.
        if name == RESOURCE:
            self.read[ANY] = {()}
        elif name == GLOBAL_CONTEXT:
            self.read[ENTRY, ""] = {()}
        return _NOWHERE

    def of_call(self, node: Call, names: Mapping[str, _Origins]) -> _Origins | None:
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
        return None

    def member(self, origins: _Origins, key: str) -> _Origins:
        found = set()
        for resource, path in origins:
            if path == _LIST:
                # What else a list has does not depend on its objects.
                if key == "items":
                    found.add(_Origin(resource, _ITEMS))
            else:
                found.add(_Origin(resource, path if path == _ITEMS else (*path, key)))
        return frozenset(found)

    def elements(self, origins: _Origins) -> _Origins:
        return frozenset(_Origin(each.resource, ()) for each in self.added(origins))

    def listed(self, origins: _Origins) -> _Origins:
        """See ``FollowedValues``; only whole objects are followed."""
        objects = frozenset(each for each in origins if not each.path)
        self.used(origins - objects)
        return frozenset(_Origin(each.resource, _ITEMS) for each in objects)

    def added(self, origins: _Origins) -> _Origins:
        """See ``FollowedValues``; only lists of objects are followed."""
        items = frozenset(each for each in origins if each.path == _ITEMS)
        self.used(origins - items)
        return items

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
            case Select(operand=operand, field=key) if are_variables(operand, names):
                match self.variables.get(key):
                    case [Call(function=function, target=Ident(name=target)) as gvr] if (
                        function in GVRS and _is_resource(target, {})
                    ):
                        return resource_of(gvr)
        return resource_of(node)


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
