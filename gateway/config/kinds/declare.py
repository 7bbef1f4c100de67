"""Fields of a kind or a group of settings, each declared once.

A declaration has the type, the default and the meaning of a field. Its reader, its schema and its row in
docs/configuration.md are made of that::

    @dataclass(frozen=True, slots=True)
    class ReportSettings(Declared):
        max_results: int = declare(Integer(1, 1000), "Results of one report", default=100)

The name in a document is the attribute's in camel case, unless ``name`` has another one. A name with a dot is
that of a field in a mapping of its own: ``limits.maxRequestBytes``.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, cast

from gateway.base.text import one_of
from gateway.pure.core.durations import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from gateway.config.yaml.fields import Check, Fields

Schema = dict[str, Any]
T = TypeVar("T")
D = TypeVar("D", bound="Declared")
S = TypeVar("S", bound=str)

_KEY: Final = "declared"
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class Type(Generic[T]):
    """What a field may contain."""

    words: str
    """How the documentation names the type."""

    def read(self, source: Fields, name: str, default: T) -> T:
        """Return the value of the field *name*, or *default*, after reporting its problems."""
        raise NotImplementedError

    def read_required(self, source: Fields, name: str) -> T:
        """Return the value of the field *name*, which has no default, after reporting its problems."""
        return self.read(source, name, cast("T", None))

    def schema(self) -> Schema:
        """Return the JSON schema of the field."""
        raise NotImplementedError

    def written(self, value: T) -> str:
        """Return *value* as a document writes it."""
        return str(value)

    def rows(self, path: str) -> Iterator[Row]:
        """Yield the rows of what is in the field at *path*."""
        yield from ()


class Boolean(Type[bool]):
    """True or false."""

    words = "boolean"

    def read(self, source: Fields, name: str, default: bool) -> bool:
        """As in :class:`Type`."""
        return source.boolean(name) or (default and not source.has(name))

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return {"type": "boolean"}

    def written(self, value: bool) -> str:
        """As in :class:`Type`."""
        return str(value).lower()


class Integer(Type[int]):
    """A whole number from *low* to *high*."""

    def __init__(self, low: int, high: int, unit: str = "") -> None:
        self.bounds = low, high
        self.words = f"integer, {unit}" if unit else "integer"

    def read(self, source: Fields, name: str, default: int) -> int:
        """As in :class:`Type`."""
        return source.integer(name, default, *self.bounds)

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return {"type": "integer", "minimum": self.bounds[0], "maximum": self.bounds[1]}


class Number(Type[float]):
    """A number from *low* to *high*."""

    def __init__(self, low: float, high: float, unit: str) -> None:
        self.bounds = low, high
        self.words = f"number, {unit}"

    def read(self, source: Fields, name: str, default: float) -> float:
        """As in :class:`Type`."""
        return source.number(name, default, *self.bounds)

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return {"type": "number", "minimum": self.bounds[0], "maximum": self.bounds[1]}

    def written(self, value: float) -> str:
        """As in :class:`Type`."""
        return f"{value:g}"


class Duration(Type[float]):
    """A duration as Go writes it, from *low* to *high* seconds; in seconds."""

    words = "duration"

    def __init__(self, low: float, high: float) -> None:
        self.bounds = low, high

    def read(self, source: Fields, name: str, default: float) -> float:
        """As in :class:`Type`."""
        return source.duration(name, default, *self.bounds)

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return {"type": "string"}

    def written(self, value: float) -> str:
        """As in :class:`Type`."""
        return format_duration(value)


class Choice(Type[S]):
    """One of several texts."""

    def __init__(self, allowed: tuple[S, ...]) -> None:
        self.allowed = allowed
        self.words = one_of([f"`{one}`" for one in allowed])

    def read(self, source: Fields, name: str, default: S | None) -> S:
        """As in :class:`Type`."""
        return source.choice(name, self.allowed, default)

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return {"type": "string", "enum": list(self.allowed)}


class Text(Type[str]):
    """A text without the problem that *check* returns; *more* belongs to its schema."""

    def __init__(self, words: str = "string", check: Check | None = None, **more: object) -> None:
        self.words = words
        self.check = check
        self._more = more

    def read(self, source: Fields, name: str, default: str | None) -> str:
        """As in :class:`Type`."""
        return cast("str", source.string(name, default, self.check))

    def read_required(self, source: Fields, name: str) -> str:
        """As in :class:`Type`."""
        return source.required_string(name, self.check)

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return {"type": "string", **self._more}


class Texts(Type[tuple[str, ...]]):
    """A list of texts without the problem that *check* returns."""

    def __init__(self, words: str = "list of strings", check: Check | None = None) -> None:
        self.words = words
        self.check = check

    def read(self, source: Fields, name: str, default: tuple[str, ...] | None) -> tuple[str, ...]:
        """As in :class:`Type`."""
        return source.strings(name, self.check) or default or ()

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return {"type": "array", "items": {"type": "string"}}


class Read(Type[T]):
    """What a function reads from a field, such as a path that is checked.

    *kind* is the type in JSON, of which lists and mappings have texts. *written* is as in :class:`Type`.
    """

    def __init__(
        self,
        words: str,
        read: Callable[[Fields, str], T],
        kind: str = "string",
        written: Callable[[T], str] = str,
    ) -> None:
        self.words = words
        self._read = read
        self._kind = kind
        self._written = written

    def read(self, source: Fields, name: str, default: T) -> T:
        """As in :class:`Type`, except that the function has the *default*."""
        return self._read(source, name)

    def written(self, value: T) -> str:
        """As in :class:`Type`."""
        return self._written(value)

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        members = {"array": "items", "object": "additionalProperties"}
        of_texts: Schema = {members[self._kind]: {"type": "string"}} if self._kind in members else {}
        return {"type": self._kind, **of_texts}


class File(Read["Path | None"]):
    """The path of a file, which *read* checks, or the class reads together with others."""

    def __init__(
        self, read: Callable[[Fields, str], Path | None] = lambda _, __: None, words: str = "path"
    ) -> None:
        super().__init__(words, read)


class Group(Type[D]):
    """A mapping with the fields of *cls*."""

    words = "mapping"

    def __init__(self, cls: type[D]) -> None:
        self.cls = cls

    def read(self, source: Fields, name: str, default: D | None) -> D:
        """As in :class:`Type`. An absent mapping is None if that is the *default*."""
        found = source.mapping(name)
        if found is None and default is None:
            return cast("D", None)
        return self.cls.read(source.group(name) if found is None else found)

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return self.cls.schema()

    def rows(self, path: str) -> Iterator[Row]:
        """As in :class:`Type`."""
        return self.cls.rows(f"{path}.")


class Groups(Type[tuple[D, ...]]):
    """A list of mappings with the fields of *cls*, at most *most*."""

    def __init__(self, cls: type[D], most: int | None = None) -> None:
        self.cls = cls
        self.most = most
        self.words = "list" if most is None else f"list, at most {most}"

    def read(self, source: Fields, name: str, default: object) -> tuple[D, ...]:
        """As in :class:`Type`."""
        found = source.mappings(name)
        if self.most is not None and len(found) > self.most:
            source.problem(name, f"found {len(found)}, expected at most {self.most}")
        return tuple(map(self.cls.read, found))

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        most = {} if self.most is None else {"maxItems": self.most}
        return {"type": "array", **most, "items": self.cls.schema()}

    def rows(self, path: str) -> Iterator[Row]:
        """As in :class:`Type`."""
        return self.cls.rows(f"{path}[].")


class Row(NamedTuple):
    """One row of the table in the documentation."""

    path: str
    words: str
    default: str
    """``required``, ``none`` or the default in code font."""
    meaning: str


@dataclass(frozen=True, slots=True)
class _Declaration:
    type: Type[Any]
    meaning: str
    """Markdown for the documentation."""
    name: str
    is_required: bool


def declare(type: Type[T], meaning: str, *, default: T, name: str = "") -> T:  # noqa: A002 - the field's
    """Declare a field with a *default*."""
    made = {_KEY: _Declaration(type, meaning, name, is_required=False)}
    if isinstance(default, Declared | dict):
        return cast("T", field(default_factory=lambda: default, metadata=made))
    return field(default=default, metadata=made)


def optional(type: Type[T], meaning: str, *, name: str = "") -> T | None:  # noqa: A002 - as above
    """Declare a field that may be absent, and is None then."""
    return field(default=None, metadata={_KEY: _Declaration(type, meaning, name, is_required=False)})


def required(type: Type[T], meaning: str, *, name: str = "") -> T:  # noqa: A002 - as above
    """Declare a field without a default."""
    made: T = field(metadata={_KEY: _Declaration(type, meaning, name, is_required=True)})
    return made


class Declared:
    """A dataclass with declared fields, and perhaps others."""

    __slots__ = ()
    MAPPINGS: Mapping[str, str] = {}
    """The meaning of each mapping in the names of fields: ``limits`` of ``limits.maxRequestBytes``."""

    @classmethod
    def read(cls: type[D], source: Fields) -> D:
        """Return what is behind *source*, after reporting its problems."""
        values = cls.read_together(source)
        mappings = {"": source}
        for attribute, one, name, default in _declarations(cls):
            within, _, last = name.rpartition(".")
            if within not in mappings:
                mappings[within] = source.group(within)
            if attribute not in values:
                values[attribute] = (
                    one.type.read_required(mappings[within], last)
                    if one.is_required
                    else one.type.read(mappings[within], last, default)
                )
        made = cls(**values)
        made.check(source)
        for mapping in reversed(mappings.values()):
            mapping.finish()
        return made

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Return the attributes that cannot be read one by one, such as a certificate and its key."""
        return {}

    def check(self, source: Fields) -> None:
        """Report the problems between the fields of this object, which was read from *source*."""

    @classmethod
    def schema(cls) -> Schema:
        """Return the JSON schema, in which other fields are refused."""
        made: Schema = {"type": "object", "properties": {}, "additionalProperties": False}
        for _, one, name, _ in _declarations(cls):
            within, _, last = name.rpartition(".")
            inside = made
            if within:
                empty = {"type": "object", "properties": {}, "additionalProperties": False}
                inside = made["properties"].setdefault(
                    within, {**empty, "description": plain(cls.MAPPINGS[within])}
                )
            inside["properties"][last] = {**one.type.schema(), "description": plain(one.meaning)}
            if one.is_required:
                inside.setdefault("required", []).append(last)
        return made

    @classmethod
    def rows(cls, prefix: str = "") -> Iterator[Row]:
        """Yield the rows of the documentation, with *prefix* before each path."""
        begun = set[str]()
        for _, one, name, default in _declarations(cls):
            within = name.rpartition(".")[0]
            if within and within not in begun:
                begun.add(within)
                yield Row(f"{prefix}{within}", "mapping", "none", cls.MAPPINGS[within])
            shown = "required" if one.is_required else "none"
            if default not in (MISSING, None, "", (), {}) and not isinstance(default, Declared):
                shown = f"`{one.type.written(default)}`"
            yield Row(f"{prefix}{name}", one.type.words, shown, one.meaning)
            yield from one.type.rows(f"{prefix}{name}")


def plain(markdown: str) -> str:
    """Return *markdown* without links."""
    return _LINK.sub(r"\1", markdown)


def _declarations(cls: type[Declared]) -> Iterator[tuple[str, _Declaration, str, Any]]:
    """Yield attribute, declaration, name and default of each declared field; a required one has MISSING."""
    for each in fields(cast("Any", cls)):
        if (one := each.metadata.get(_KEY)) is not None:
            first, *others = each.name.split("_")
            name = one.name or first + "".join(map(str.capitalize, others))
            default = each.default if each.default_factory is MISSING else each.default_factory()
            yield each.name, one, name, default
