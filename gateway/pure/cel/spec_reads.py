"""What the expressions in the spec of a policy read from the cluster, found without compiling them.

For the check of the policy's author, so that nothing is left out: every text of the spec is an expression if
it can be parsed as one. A variable that is only another name of ``resource`` counts as everything.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.pure.cel.dialect_macros import ALL
from gateway.pure.cel.environment import Dialect
from gateway.pure.cel.functions import function
from gateway.pure.cel.lexer import CompileError
from gateway.pure.cel.libraries.cluster_objects import HTTP_GET, LISTS, POSTS, READS, RESOURCE
from gateway.pure.cel.libraries.global_context import GLOBAL_CONTEXT
from gateway.pure.cel.meter import count_reading, count_steps, count_values
from gateway.pure.cel.object_reads import ANY, MENTIONS, resource_of
from gateway.pure.cel.parse import parse
from gateway.pure.cel.syntax import Call, Comprehension, Ident, Let, OptionalMap, children

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gateway.pure.cel.object_reads import Resource
    from gateway.pure.cel.syntax import Node


class Read(NamedTuple):
    """A right that reading needs, for all objects."""

    verb: str
    group: str
    resource: str
    """The plural name."""


EVERYTHING: Final = frozenset({Read("get", "*", "*"), Read("list", "*", "*")})
"""In place of a read of which no constant says what it reads."""
_NO_EXPRESSIONS: Final = frozenset({"name", "key", "message", "matchConstraints"})
"""Fields of specs without expressions, whose texts can be words that are expressions, too."""
_CALLS: Final = re.compile(rf"\b(?:{RESOURCE}|{GLOBAL_CONTEXT}|http)\b")
_PARSING: Final = 200
"""Steps for a character of an expression."""


def reads_of(spec: object) -> frozenset[Read]:
    """Return the rights that expressions in *spec*, a JSON value, need."""
    return _reads_in(_texts(spec))


def is_seen(resource: Resource, reads: frozenset[Read]) -> bool:
    """Whether the result *reads* of :func:`reads_of` has the rights to read *resource*."""
    found = () if resource == ANY else (_read(verb, resource) for verb in ("get", "list"))
    return reads >= EVERYTHING or not reads.isdisjoint(found)


def uses_cluster(spec: object) -> bool:
    """Whether an expression in *spec*, a JSON value, uses ``resource``, ``globalContext`` or ``http``."""
    return any(
        isinstance(node, Ident) and _named(node, hidden) in (RESOURCE, GLOBAL_CONTEXT)
        for tree in _trees(_texts(spec, _CALLS))
        for node, hidden in _scoped(tree)
    )


def _read(verb: str, resource: Resource) -> Read:
    version, plural = resource
    return Read(verb, version.rpartition("/")[0], plural)


def _counted_reads(spec: object) -> list[dict[str, str]]:
    texts = _texts(spec, is_counted=True)
    count_steps(sum(map(len, texts)) * _PARSING)
    return [each._asdict() for each in sorted(_reads_in(texts))]


def _texts(spec: object, mentions: re.Pattern[str] = MENTIONS, *, is_counted: bool = False) -> list[str]:
    """Return the texts in *spec* that have something of *mentions*."""
    found = []
    waiting = [spec]
    while waiting:
        match waiting.pop():
            case dict() as group:
                parts = [each for name, each in group.items() if name not in _NO_EXPRESSIONS]
            case list() as parts:
                pass
            case str() as text:
                if is_counted:
                    count_reading(text, 8)
                if mentions.search(text):
                    found.append(text)
                continue
            case _:
                continue
        if is_counted:
            count_values(len(parts))
        waiting += parts
    return found


def _reads_in(texts: Iterable[str]) -> frozenset[Read]:
    return frozenset(read for tree in _trees(texts) for read in _reads_of_expression(tree))


def _trees(texts: Iterable[str]) -> Iterator[Node]:
    """Yield the expressions among *texts*. The others cannot be compiled.

    In place of one that nests too deep here, it yields ``resource``, which counts as everything.
    """
    for text in texts:
        try:
            # Some expressions are compiled without the blanks around them.
            yield parse(text.strip(), ALL)
        except CompileError:
            continue
        except RecursionError:
            yield Ident(0, RESOURCE)


def _reads_of_expression(tree: Node) -> set[Read]:
    found: set[Read] = set()
    targets = set[int]()
    for node, hidden in _scoped(tree):
        match node:
            case Ident() if id(node) not in targets and _named(node, hidden) == RESOURCE:
                found |= EVERYTHING
            case Call(function=name, target=Ident() as target, arguments=arguments) if (
                _named(target, hidden) == RESOURCE
            ):
                if name in POSTS or name == HTTP_GET:
                    # It reads no objects.
                    targets.add(id(target))
                elif name in READS and len(arguments) > 1:
                    targets.add(id(target))
                    resource = resource_of(node)
                    verb = "list" if name in LISTS else "get"
                    found |= EVERYTHING if resource == ANY else {_read(verb, resource)}
    return found


def _named(ident: Ident, hidden: frozenset[str]) -> str:
    """Return the name of the variable *ident*; empty if it is one of the macros', which are *hidden*."""
    return "" if ident.name in hidden else ident.name.removeprefix(".")


def _scoped(tree: Node) -> Iterator[tuple[Node, frozenset[str]]]:
    """Yield each part of *tree*, with the variables of the macros around it. A part comes before its own."""
    waiting: list[tuple[Node, frozenset[str]]] = [(tree, frozenset())]
    while waiting:
        node, hidden = waiting.pop()
        yield node, hidden
        match node:
            case Comprehension(range=outside, variable=one, variable2=two):
                inside = hidden | {one, two or one}
            case OptionalMap(target=outside, variable=one) | Let(target=outside, variable=one):
                inside = hidden | {one}
            case _:
                waiting += [(each, hidden) for each in children(node)]
                continue
        waiting += [(each, hidden if each is outside else inside) for each in children(node)]


OF_AUTHORS: Final = Dialect(
    "Authors",
    functions=(function("reads_of", "readsOf(dyn) -> list(map(string, string))", _counted_reads, 1),),
)
"""The expressions of the gateway's own policy about the authors of policies."""
