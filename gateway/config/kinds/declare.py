"""Fields of a kind or a group of settings, each declared once.

A declaration has the type, the default and the meaning of a field. Its reader, its schema and its row in
docs/configuration.md are made of that::

    @dataclass(frozen=True, slots=True)
    class ReportSettings(Declared):
        max_results: int = declare(Integer(1, 1000), "Results of one report", default=100)

The name in a document is the attribute's in camel case, unless ``name`` has another one. A name with a dot is
that of a field in a mapping of its own: ``limits.maxRequestBytes``. What has to hold between fields is in
``RULES``, see ``gateway.config.kinds.validation``.
"""

from __future__ import annotations

import re
from dataclasses import MISSING, dataclass, field, fields
from typing import TYPE_CHECKING, Any, Final, Generic, NamedTuple, TypeVar, cast

from gateway.base.text import one_of
from gateway.config.kinds.validation import Rule
from gateway.pure.core.durations import format_duration

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from gateway.config.yaml.fields import Check, Fields

Schema = dict[str, Any]
T = TypeVar("T")
D = TypeVar("D", bound="Declared")
S = TypeVar("S", bound=str)

_KEY: Final = "declared"
_PATH_CHARS: Final = 4096
"""PATH_MAX of Linux."""
_LINK: Final = re.compile(r"\[([^\]]+)\]\([^)]+\)")


class Type(Generic[T]):
    """What a field may contain."""

    words: str
    """How the documentation names the type."""
    reads_absent = False
    """Whether an absent field is read. It has its default otherwise, which takes no time."""

    def read(self, source: Fields, name: str, default: T) -> T:
        """Return the value of the field *name*, or *default*, after reporting its problems."""
        raise NotImplementedError

    def read_required(self, source: Fields, name: str) -> T:
        """Return the value of the field *name*, which has no default, after reporting its problems."""
        return self.read(source, name, cast("T", None))

    def schema(self) -> Schema:
        """Return the schema of the field, structural as that of a custom resource definition."""
        raise NotImplementedError

    def custom_schema(self) -> Schema:
        """Return the schema of the field in a custom resource, where that allows less."""
        return self.schema()

    def written(self, value: T) -> str:
        """Return *value* as a document writes it; empty if it is not shown."""
        return str(value)

    def value(self, value: T) -> object:
        """Return *value* as JSON has it."""
        return value

    def rows(self, path: str) -> Iterator[Row]:
        """Yield the rows of what is in the field at *path*."""
        yield from ()


class Boolean(Type[bool]):
    """True or false."""

    words = "boolean"

    def read(self, source: Fields, name: str, default: bool) -> bool:
        """As in :class:`Type`."""
        return source.boolean(name) if source.has(name) else default

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

    def read_required(self, source: Fields, name: str) -> int:
        """As in :class:`Type`."""
        low, high = self.bounds
        if not source.has(name):
            source.problem(name, f"is required, expected a whole number from {low} to {high}")
        return self.read(source, name, low)

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return {"type": "integer", "minimum": self.bounds[0], "maximum": self.bounds[1]}


class Number(Type[float]):
    """A number from *low* to *high*; *more* belongs to its schema."""

    def __init__(self, low: float, high: float, unit: str, **more: object) -> None:
        self.bounds = low, high
        self.words = f"number, {unit}"
        self._more = more

    def read(self, source: Fields, name: str, default: float) -> float:
        """As in :class:`Type`."""
        return source.number(name, default, *self.bounds)

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return {"type": "number", "minimum": self.bounds[0], "maximum": self.bounds[1], **self._more}

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
        return {"type": "string", "maxLength": 64}

    def written(self, value: float) -> str:
        """As in :class:`Type`."""
        return format_duration(value)

    def value(self, value: float) -> object:
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
    """A list of texts without the problem that *check* returns; *more* belongs to the schema of one.

    With *bounds* a list that is there has at least, and at most, so many texts.
    """

    def __init__(
        self,
        words: str = "list of strings",
        check: Check | None = None,
        bounds: tuple[int, int] | None = None,
        **more: object,
    ) -> None:
        self.words = words
        self.check = check
        self._bounds = bounds
        self._more = more

    def read(self, source: Fields, name: str, default: tuple[str, ...] | None) -> tuple[str, ...]:
        """As in :class:`Type`. Texts of a list with too many are not read."""
        found = source.content.get(name)
        if self._bounds is not None and isinstance(found, list):
            low, high = self._bounds
            if not low <= len(found) <= high:
                source.problem(name, f"found {len(found)} entries, expected {low} to {high}")
                source.accept(name)
                return ()
        return source.strings(name, self.check) or default or ()

    def read_required(self, source: Fields, name: str) -> tuple[str, ...]:
        """As in :class:`Type`."""
        if not source.has(name):
            source.problem(name, f"is required, expected a {self.words}")
        return self.read(source, name, None)

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        of_list = {"minItems": self._bounds[0], "maxItems": self._bounds[1]} if self._bounds else {}
        return {"type": "array", **of_list, "items": {"type": "string", **self._more}}


class Read(Type[T]):
    """What a function reads from a field, such as a path that is checked.

    *kind* is the type in JSON, of which lists and mappings have texts. *written* is as in :class:`Type`.
    *more* belongs to the schema.
    """

    reads_absent = True

    def __init__(
        self,
        words: str,
        read: Callable[[Fields, str], T],
        kind: str = "string",
        written: Callable[[T], str] = str,
        **more: object,
    ) -> None:
        self.words = words
        self._read = read
        self._kind = kind
        self._written = written
        self._more = more

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
        return {"type": self._kind, **of_texts, **self._more}


class File(Read["Path | None"]):
    """The path of a file, which *read* checks, or the class reads together with others."""

    def __init__(
        self, read: Callable[[Fields, str], Path | None] = lambda _, __: None, words: str = "path"
    ) -> None:
        super().__init__(words, read, maxLength=_PATH_CHARS)


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

    def read_required(self, source: Fields, name: str) -> D:
        """As in :class:`Type`."""
        return self.cls.read(source.required_group(name))

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return self.cls.schema()

    def custom_schema(self) -> Schema:
        """As in :class:`Type`."""
        return self.cls.schema(is_custom=True)

    def written(self, value: D) -> str:
        """As in :class:`Type`."""
        return ""

    def rows(self, path: str) -> Iterator[Row]:
        """As in :class:`Type`."""
        return self.cls.rows(f"{path}.")


class Groups(Type[tuple[D, ...]]):
    """A list of mappings with the fields of *cls*, at most *most*, which their field *key* identifies."""

    def __init__(self, cls: type[D], most: int | None = None, *, key: str = "", **more: object) -> None:
        self.cls = cls
        self.most = most
        self.words = "list" if most is None else f"list, at most {most}"
        of_map = {"x-kubernetes-list-type": "map", "x-kubernetes-list-map-keys": [key]} if key else {}
        self._more = {**({} if most is None else {"maxItems": most}), **of_map, **more}

    def read(self, source: Fields, name: str, default: object) -> tuple[D, ...]:
        """As in :class:`Type`. The class checks that keys are unique, which only the schema says here."""
        found = source.mappings(name)
        if self.most is not None and len(found) > self.most:
            source.problem(name, f"found {len(found)}, expected at most {self.most}")
        return tuple(map(self.cls.read, found[: self.most]))

    def read_required(self, source: Fields, name: str) -> tuple[D, ...]:
        """As in :class:`Type`."""
        found = self.read(source, name, ())
        if not found:
            source.problem(name, "is required with at least one entry")
        return found

    def schema(self) -> Schema:
        """As in :class:`Type`."""
        return {"type": "array", **self._more, "items": self.cls.schema()}

    def custom_schema(self) -> Schema:
        """As in :class:`Type`."""
        return {**self.schema(), "items": self.cls.schema(is_custom=True)}

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
class Declaration:
    """What is declared of a field."""

    type: Type[Any]
    meaning: str
    """Markdown for the documentation."""
    name: str = ""
    is_required: bool = False
    instead: str = ""
    """What a custom resource has instead of the field, which it may not have. Empty: it may."""
    written: str = ""
    """The default as a document writes it, if that is another than the attribute's."""
    is_in_files_only: bool = False
    """Whether a custom resource does not know the field."""
    is_default_in_schema: bool = True
    """Whether the API server writes the default into objects, in which the field then is never absent."""


def declare(
    type: Type[T],  # noqa: A002 - the field's
    meaning: str,
    *,
    default: T,
    name: str = "",
    instead: str = "",
    written: str = "",
    is_default_in_schema: bool = True,
    is_compared: bool = True,
) -> T:
    """Declare a field with a *default*. The others are as in :class:`Declaration`.

    Unless *is_compared*, objects that differ in the attribute alone are equal.
    """
    declaration = Declaration(
        type,
        meaning,
        name,
        instead=instead,
        written=written,
        is_default_in_schema=is_default_in_schema,
    )
    made = {_KEY: declaration}
    if isinstance(default, Declared | dict):
        return cast("T", field(default_factory=lambda: default, metadata=made))
    return field(default=default, metadata=made, compare=is_compared, repr=is_compared)


def optional(
    type: Type[T],  # noqa: A002 - the field's
    meaning: str,
    *,
    name: str = "",
    instead: str = "",
    written: str = "",
    is_in_files_only: bool = False,
    is_default_in_schema: bool = True,
) -> T | None:
    """Declare a field that may be absent, and is None then. The others are as in :class:`Declaration`."""
    made = Declaration(
        type,
        meaning,
        name,
        instead=instead,
        written=written,
        is_in_files_only=is_in_files_only,
        is_default_in_schema=is_default_in_schema,
    )
    return field(default=None, metadata={_KEY: made})


def required(type: Type[T], meaning: str, *, name: str = "") -> T:  # noqa: A002 - as above
    """Declare a field without a default."""
    made: T = field(metadata={_KEY: Declaration(type, meaning, name, is_required=True)})
    return made


class _Field(NamedTuple):
    """A declared field of a class."""

    attribute: str
    """Empty if there is none."""
    declaration: Declaration
    within: str
    """The name of the mapping that has it; empty for the class's own."""
    name: str
    """The name in this mapping."""
    default: Any
    """That of the attribute; None if there is none."""

    @property
    def path(self) -> str:
        """The name, behind that of the mapping."""
        return f"{self.within}.{self.name}" if self.within else self.name

    def schema(self, *, is_custom: bool) -> Schema:
        """Return the schema, with description and default."""
        one = self.declaration
        meaning = f"Not in a custom resource, expected {one.instead}." if one.instead else plain(one.meaning)
        default = one.written or one.type.value(self.default)
        # Without a default in the schema, the API server writes nothing into the objects.
        is_told = default and isinstance(default, str | int | float) and one.is_default_in_schema
        return {
            **({"description": meaning if is_custom else plain(one.meaning)} if meaning else {}),
            **(one.type.custom_schema() if is_custom else one.type.schema()),
            **({"default": default} if is_told else {}),
        }

    def row(self, prefix: str) -> Row:
        """Return the row of the documentation, with *prefix* before the path."""
        one = self.declaration
        has_default = self.default not in (None, "", b"", (), {})
        written = one.written or (one.type.written(self.default) if has_default else "")
        shown = f"`{written}`" if written else "required" if one.is_required else "none"
        is_for_files = one.instead or one.is_in_files_only
        meaning = f"{one.meaning}. Not in a custom resource" if is_for_files else one.meaning
        return Row(f"{prefix}{self.path}", one.type.words, shown, meaning)


class Declared:
    """A dataclass with declared fields, and perhaps others."""

    __slots__ = ()
    MAPPINGS: Mapping[str, str] = {}
    """The meaning of each mapping in the names of fields: ``limits`` of ``limits.maxRequestBytes``."""
    WITHOUT_ATTRIBUTE: Mapping[str, Declaration] = {}
    """Further fields, by name, which :meth:`read_together` reads. They come first."""
    RULES: Sequence[Rule] = ()
    """What has to hold between the fields."""

    @classmethod
    def read(cls: type[D], source: Fields, **others: object) -> D:
        """Return what is behind *source*, with the *others* attributes, after reporting its problems."""
        declared = _made(cls)
        is_custom = source.problems.folder is None
        values = cls.read_together(source)
        values.update(others)
        mappings = {"": source}
        names = declared.custom_names if is_custom else declared.names
        source.accept(*names[""])
        # Most of the loading time of a large configuration is spent here.
        for attribute, mapping, name, default, read, read_required, reads_absent in (
            declared.custom_readings if is_custom else declared.readings
        ):
            within = source
            if mapping:
                if mapping not in mappings:
                    mappings[mapping] = source.group(mapping)
                    mappings[mapping].accept(*names[mapping])
                within = mappings[mapping]
            if attribute in values:
                continue
            if read_required is not None:
                values[attribute] = read_required(within, name)
            elif reads_absent or within.content.get(name) is not None:
                values[attribute] = read(within, name, default)
            else:
                values[attribute] = default
        made = cls(**values)
        for rule in declared.custom_rules if is_custom else declared.rules:
            rule.check(source)
        made.check(source)
        for each in reversed(mappings.values()):
            each.finish()
        return made

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        """Return the attributes that cannot be read one by one, such as a certificate and its key."""
        return {}

    def check(self, source: Fields) -> None:
        """Report the problems between the fields of this object that no rule can find.

        It was read from *source*.
        """

    @classmethod
    def schema(cls, *, is_custom: bool = False) -> Schema:
        """Return the structural schema; if *is_custom*, that of custom resources, which may allow less."""
        made: Schema = {"type": "object", "properties": {}}
        declared = _made(cls)
        for each in declared.fields:
            if is_custom and each.declaration.is_in_files_only:
                continue
            inside = made
            if each.within:
                empty = {"description": plain(cls.MAPPINGS[each.within]), "type": "object", "properties": {}}
                inside = made["properties"].setdefault(each.within, empty)
            inside["properties"][each.name] = each.schema(is_custom=is_custom)
            if each.declaration.is_required:
                inside.setdefault("required", []).append(each.name)
        if rules := declared.custom_rules if is_custom else declared.rules:
            made["x-kubernetes-validations"] = [rule.schema() for rule in rules]
        return made

    @classmethod
    def rows(cls, prefix: str = "") -> Iterator[Row]:
        """Yield the rows of the documentation, with *prefix* before each path."""
        begun = {""}
        for each in _made(cls).fields:
            if each.within not in begun:
                begun.add(each.within)
                yield Row(f"{prefix}{each.within}", "mapping", "none", cls.MAPPINGS[each.within])
            yield (row := each.row(prefix))
            yield from each.declaration.type.rows(row.path)


def declared_fields(cls: type[Declared]) -> Mapping[str, tuple[str, Type[Any]]]:
    """Return, by attribute, the path of each declared field of *cls* in a document, and its type."""
    return {each.attribute: (each.path, each.declaration.type) for each in _made(cls).fields}


def defaults(cls: type[Declared]) -> dict[str, object]:
    """Return the defaults of *cls* that JSON has, by the names of the fields."""
    values = {
        each.path: each.declaration.type.value(each.default) for each in _made(cls).fields if each.default
    }
    return {path: value for path, value in values.items() if isinstance(value, str | int | float | list)}


def plain(markdown: str) -> str:
    """Return *markdown* without links."""
    return _LINK.sub(r"\1", markdown)


class _Reading(NamedTuple):
    """How an attribute is read."""

    attribute: str
    within: str
    name: str
    default: Any
    """These are as in the field."""
    read: Callable[[Fields, str, Any], Any]
    read_required: Callable[[Fields, str], Any] | None
    """None if it has a default."""
    reads_absent: bool


class _Made(NamedTuple):
    """What follows from the declarations of a class."""

    fields: tuple[_Field, ...]
    names: Mapping[str, tuple[str, ...]]
    """Those of the fields in each mapping."""
    custom_names: Mapping[str, tuple[str, ...]]
    """Those that custom resources know, or refuse with a reason."""
    readings: tuple[_Reading, ...]
    custom_readings: tuple[_Reading, ...]
    """Those of the attributes that a custom resource may have."""
    rules: tuple[Rule, ...]
    custom_rules: tuple[Rule, ...]
    """Those of custom resources, with those about the fields that these may not have."""


_MADE: Final[dict[type[Declared], _Made]] = {}


def _made(cls: type[Declared]) -> _Made:
    """Return what follows from the declarations of *cls*, which do not change."""
    if cls not in _MADE:
        made = tuple(_fields(cls))
        known = tuple(each for each in made if not each.declaration.is_in_files_only)
        refused = {each.name: each.declaration.instead for each in made if each.declaration.instead}
        message = "is not allowed in a custom resource, expected"
        refusals = (
            Rule(f"!has(self.{name})", f"{message} {instead}", (name,), at=name)
            for name, instead in refused.items()
        )
        unknown = {each.name for each in made} - {each.name for each in known}
        others = (
            rule.without(refused.keys() | unknown)
            for rule in cls.RULES
            if rule.is_of_number or unknown.isdisjoint(rule.about)
        )
        _MADE[cls] = _Made(
            made,
            _names(made),
            _names(known),
            tuple(map(_reading, (each for each in made if each.attribute))),
            tuple(map(_reading, (each for each in known if each.attribute and each.name not in refused))),
            tuple(cls.RULES),
            (*refusals, *others),
        )
    return _MADE[cls]


def _reading(one: _Field) -> _Reading:
    """Return how the attribute of *one* is read."""
    attribute, declared, within, name, default = one
    read_required = declared.type.read_required if declared.is_required else None
    type_ = declared.type
    return _Reading(attribute, within, name, default, type_.read, read_required, type_.reads_absent)


def _names(made: Iterable[_Field]) -> Mapping[str, tuple[str, ...]]:
    """Return the names of the fields in each mapping."""
    names: dict[str, tuple[str, ...]] = {"": ()}
    for each in made:
        names[each.within] = (*names.get(each.within, ()), each.name)
    return names


def _fields(cls: type[Declared]) -> Iterator[_Field]:
    """Yield the declared fields of *cls*."""
    for name, one in cls.WITHOUT_ATTRIBUTE.items():
        yield _Field("", one, "", name, None)
    for each in fields(cast("Any", cls)):
        if (declared := each.metadata.get(_KEY)) is not None:
            first, *others = each.name.split("_")
            name = declared.name or first + "".join(map(str.capitalize, others))
            within, _, last = name.rpartition(".")
            default = each.default if each.default_factory is MISSING else each.default_factory()
            yield _Field(each.name, declared, within, last, None if default is MISSING else default)
