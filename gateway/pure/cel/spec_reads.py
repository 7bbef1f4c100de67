"""What the expressions in the spec of a policy read from the cluster, found without compiling them.

For the check of the policy's author, so that nothing is left out: every text of the spec is an expression if
it can be parsed as one. A variable that is only another name of ``resource`` counts as everything.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.pure.cel.dialect_macros import ALL
from gateway.pure.cel.environment import Dialect
from gateway.pure.cel.functions import function
from gateway.pure.cel.lexer import CompileError
from gateway.pure.cel.libraries.cluster_objects import LISTS, POSTS, READS, RESOURCE
from gateway.pure.cel.meter import count_reading, count_steps, count_values
from gateway.pure.cel.object_reads import ANY, MENTIONS, resource_of
from gateway.pure.cel.parse import parse
from gateway.pure.cel.syntax import Call, Comprehension, Ident, Let, OptionalMap, children

if TYPE_CHECKING:
    from collections.abc import Iterable

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
_PARSING: Final = 200
"""Steps for a character of an expression."""


def reads_of(spec: object) -> frozenset[Read]:
    """Return the rights that expressions in *spec*, a JSON value, need."""
    return _reads_in(_texts(spec))


def is_seen(resource: Resource, reads: frozenset[Read]) -> bool:
    """Whether the result *reads* of :func:`reads_of` has the rights to read *resource*."""
    found = () if resource == ANY else (_read(verb, resource) for verb in ("get", "list"))
    return reads >= EVERYTHING or not reads.isdisjoint(found)


def _read(verb: str, resource: Resource) -> Read:
    version, plural = resource
    return Read(verb, version.rpartition("/")[0], plural)


def _counted_reads(spec: object) -> list[dict[str, str]]:
    texts = _texts(spec, is_counted=True)
    count_steps(sum(map(len, texts)) * _PARSING)
    return [each._asdict() for each in sorted(_reads_in(texts))]


def _texts(spec: object, *, is_counted: bool = False) -> list[str]:
    """Return the texts in *spec* that mention ``resource``."""
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
                if MENTIONS.search(text):
                    found.append(text)
                continue
            case _:
                continue
        if is_counted:
            count_values(len(parts))
        waiting += parts
    return found


def _reads_in(texts: Iterable[str]) -> frozenset[Read]:
    found: set[Read] = set()
    for text in texts:
        try:
            # Some expressions are compiled without the blanks around them.
            found.update(_reads_of_expression(parse(text.strip(), ALL)))
        except CompileError:
            continue
        except RecursionError:
            found |= EVERYTHING
    return frozenset(found)


def _reads_of_expression(tree: Node) -> set[Read]:
    found: set[Read] = set()
    # Each part, with whether a macro around it has a variable of that name.
    waiting: list[tuple[Node, bool]] = [(tree, False)]
    while waiting:
        node, is_hidden = waiting.pop()
        match node:
            case Ident(name=name) if _is_resource(name, is_hidden=is_hidden):
                found |= EVERYTHING
            case Call(function=name, target=Ident(name=target), arguments=[_, _, *_] as arguments) if (
                name in READS and _is_resource(target, is_hidden=is_hidden)
            ):
                resource = resource_of(node)
                verb = "list" if name in LISTS else "get"
                found |= EVERYTHING if resource == ANY else {_read(verb, resource)}
                waiting += [(each, is_hidden) for each in arguments]
            case Call(function=name, target=Ident(name=target), arguments=arguments) if (
                name in POSTS and _is_resource(target, is_hidden=is_hidden)
            ):
                # It reads nothing: it only asks the authorizer.
                waiting += [(each, is_hidden) for each in arguments]
            case Comprehension(range=over, variable=one, variable2=two):
                inside = is_hidden or RESOURCE in (one, two)
                waiting += [(each, is_hidden if each is over else inside) for each in children(node)]
            case (
                OptionalMap(target=target, body=body, variable=one)
                | Let(target=target, body=body, variable=one)
            ):
                waiting += [(target, is_hidden), (body, is_hidden or one == RESOURCE)]
            case _:
                waiting += [(each, is_hidden) for each in children(node)]
    return found


def _is_resource(name: str, *, is_hidden: bool) -> bool:
    return name == f".{RESOURCE}" or (name == RESOURCE and not is_hidden)


OF_AUTHORS: Final = Dialect(
    "Authors",
    functions=(function("reads_of", "readsOf(dyn) -> list(map(string, string))", _counted_reads, 1),),
)
"""The expressions of the gateway's own policy about the authors of policies."""
