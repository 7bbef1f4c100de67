"""The schema of a template's parameters, applied as the API server would do with the CRD of the template.

Gatekeeper makes a CRD of each template. With it the API server defaults, prunes and validates constraints.
A schema is an author's document: it is bounded, and so is the work for a value. Rules in CEL
(``x-kubernetes-validations``) and formats are not checked.

Source: k8s.io/apiextensions-apiserver pkg/apiserver/schema/{pruning,defaulting}, pkg/apiserver/validation;
github.com/open-policy-agent/frameworks constraint/pkg/schema/transform.go (legacySchema).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any, Final

import orjson

from gateway.base.text import described, did_you_mean, one_of, shown
from gateway.pure.cel import meter
from gateway.pure.cel.errors import CostExceeded, EvaluationError
from gateway.pure.cel.meter import EXPRESSION_LIMIT
from gateway.pure.cel.regex import compile_regex

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from gateway.pure.cel.regex import Regex

MAX_SCHEMAS: Final = 5_000
"""Schemas in one document, with those inside them."""
MAX_DEPTH: Final = 60
MAX_CHECKS: Final = 200_000
"""Values times the schemas that each is compared with. They take some tenths of a second."""
MAX_WORK: Final = 2_000_000
"""Comparisons, and values that defaults add, for all constraints of a configuration. They take seconds."""
_MAX_DROPPED: Final = 1_000
"""Dropped members that are listed, of which so many, among so many, get similar names as hints:"""
_MAX_HINTS: Final = 20
_MAX_COMPARED: Final = 500
_PRESERVE: Final = "x-kubernetes-preserve-unknown-fields"
_INT_OR_STRING: Final = "x-kubernetes-int-or-string"
_TYPES: Final[dict[str, type | tuple[type, ...]]] = {
    "array": list,
    "boolean": bool,
    "integer": int,
    "number": (int, float),
    "object": dict,
    "string": str,
}
_FORBIDDEN: Final = ("$ref", "additionalItems", "definitions", "dependencies", "id", "patternProperties")
"""What JSON Schema has, and CRDs may not."""
_LOWER: Final = (("minLength", str), ("minItems", list), ("minProperties", dict))
_UPPER: Final = (("maxLength", str), ("maxItems", list), ("maxProperties", dict))
_WORDS: Final[dict[type, str]] = {str: "characters", list: "entries", dict: "members"}


class SchemaError(Exception):
    """The schema cannot be used. The text says why."""

    def __init__(self, path: str, message: str) -> None:
        super().__init__(message)
        self.path = path
        """Below the schema; empty for all of it."""


class Work:
    """What the schemas of a configuration may still do for its constraints."""

    def __init__(self) -> None:
        self.left = MAX_WORK

    def take(self, count: int) -> None:
        """Note *count* more values.

        Raises:
            SchemaError: that is too much.
        """
        self.left -= count
        if self.left < 0:
            raise SchemaError("", f"needs more than {MAX_WORK} comparisons and defaults with those before it")


class Schema:
    """The schema of one template, or of a part of it."""

    def __init__(self, content: Mapping[str, object], *, is_legacy: bool = False) -> None:
        """With *is_legacy*, the ``legacySchema`` of the template, unknown members are kept everywhere.

        Raises:
            SchemaError: it is not a schema that the API server accepts in a CRD, or too large.
        """
        self._is_legacy = is_legacy
        self._count = 0
        self._root = self._read(content, "", 0)

    def applied(
        self, name: str, value: object, work: Work | None = None
    ) -> tuple[object, list[tuple[str, str]]]:
        """Return the *value* of the member *name* as the API server stores it, and the unknown members.

        A value that is absent is None before and after. *value* is not changed. Each unknown member has its
        path below the value, and a sentence.

        Raises:
            SchemaError: the defaults exceed *work*.
        """
        content = {} if value is None else {name: _copied(value)}
        root = _Node({"type": "object"}, {name: self._root})
        dropped: list[tuple[str, str]] = []
        for node, path, member in _pruned(root, content, ""):
            if len(dropped) < _MAX_DROPPED:
                # The search for similar names takes most of the time.
                is_early = len(dropped) < _MAX_HINTS and len(node.properties) < _MAX_COMPARED
                hint = did_you_mean(member, node.properties) if is_early else ""
                text = f"is not in the template's schema, and is dropped{hint}"
                dropped.append((f"{path.removeprefix(f'.{name}')}.{member}", text))
        _set_defaults(root, content, work or Work())
        return content.get(name), dropped

    def problems(self, value: object, work: Work | None = None) -> list[tuple[str, str]]:
        """Return what is wrong with *value*: path below it and message of each. At most ten.

        Raises:
            SchemaError: the comparisons exceed *work*.
        """
        meter.start(EXPRESSION_LIMIT)
        check, work = _Check(), work or Work()
        try:
            found = list(islice(check.errors(self._root, value, ""), 10))
        except (CostExceeded, _TooMuchError):
            found = [("", f"is too large for its schema: found more than {MAX_CHECKS} comparisons")]
        work.take(check.count)
        return found

    def _read(self, content: object, path: str, depth: int, *, is_structural: bool = True) -> _Node:
        self._count += 1
        if self._count > MAX_SCHEMAS:
            raise SchemaError("", f"has more than {MAX_SCHEMAS} schemas")
        if depth > MAX_DEPTH:
            raise SchemaError(path[:200], f"nests deeper than {MAX_DEPTH} schemas")
        if not isinstance(content, dict):
            raise SchemaError(path, f"found {described(content)}, expected a schema, which is a mapping")
        for name in _FORBIDDEN:
            if name in content:
                raise SchemaError(f"{path}.{name}", "is not allowed in the schema of a CRD")
        node = _Node(content)
        kind = content.get("type")
        if kind is not None and not (isinstance(kind, str) and kind in _TYPES):
            raise SchemaError(f"{path}.type", f"found {shown(kind)}, expected {one_of(_TYPES)}")
        required = content.get("required")
        if required is not None:
            if not isinstance(required, list) or not all(isinstance(one, str) for one in required):
                raise SchemaError(f"{path}.required", "is not a list of strings")
            node.required = required
        if is_structural:
            self._read_structure(node, path)
        self._read_parts(node, path, depth, is_structural=is_structural)
        if isinstance(pattern := content.get("pattern"), str):
            meter.start(EXPRESSION_LIMIT)
            try:
                node.pattern = compile_regex(pattern)
            except (EvaluationError, CostExceeded) as error:
                raise SchemaError(f"{path}.pattern", str(error)) from None
        return node

    def _read_structure(self, node: _Node, path: str) -> None:
        content = node.content
        node.keeps_unknown = content.get(_PRESERVE) is True
        is_open = node.keeps_unknown or content.get(_INT_OR_STRING) is True
        kind = content.get("type")
        if self._is_legacy and kind in (None, "object"):
            node.keeps_unknown = True
        elif kind is None and not is_open:
            raise SchemaError(f"{path}.type", f"is required, expected {one_of(_TYPES)}")
        if kind == "array" and not self._is_legacy and not isinstance(content.get("items"), dict):
            raise SchemaError(f"{path}.items", "is required for an array")

    def _read_parts(self, node: _Node, path: str, depth: int, *, is_structural: bool) -> None:
        content = node.content

        def read(part: object, below: str, *, is_logical: bool = False) -> _Node:
            structural = is_structural and not is_logical
            return self._read(part, f"{path}{below}", depth + 1, is_structural=structural)

        properties = content.get("properties")
        if properties is not None and not isinstance(properties, dict):
            raise SchemaError(f"{path}.properties", f"found {described(properties)}, expected a mapping")
        for name, part in (properties or {}).items():
            node.properties[name] = read(part, f".properties[{shown(name)}]")
        if isinstance(others := content.get("additionalProperties"), dict):
            node.others = read(others, ".additionalProperties")
        if (items := content.get("items")) is not None:
            node.items = read(items, ".items")
        for keyword in ("allOf", "anyOf", "oneOf"):
            parts = content.get(keyword)
            if parts is None:
                continue
            if not isinstance(parts, list):
                raise SchemaError(f"{path}.{keyword}", f"found {described(parts)}, expected a list")
            found = [read(part, f".{keyword}[{index}]", is_logical=True) for index, part in enumerate(parts)]
            node.logical[keyword] = found
        if (excluded := content.get("not")) is not None:
            node.logical["not"] = [read(excluded, ".not", is_logical=True)]


class _Node:
    __slots__ = (
        "allowed",
        "content",
        "default_size",
        "items",
        "keeps_unknown",
        "logical",
        "others",
        "pattern",
        "properties",
        "required",
    )

    def __init__(self, content: Mapping[str, Any], properties: dict[str, _Node] | None = None) -> None:
        self.content = content
        self.properties = properties or {}
        allowed, default = content.get("enum"), content.get("default")
        self.allowed = frozenset(map(_written, allowed)) if isinstance(allowed, list) else None
        self.default_size = 0 if default is None else _size(default)
        self.others: _Node | None = None
        self.items: _Node | None = None
        self.logical: dict[str, list[_Node]] = {}
        self.keeps_unknown = False
        self.pattern: Regex | None = None
        self.required: list[str] = []


def _pruned(node: _Node, value: object, path: str) -> Iterator[tuple[_Node, str, str]]:
    """Remove from *value* what its schema does not have; yield schema, path and name of each."""
    if isinstance(value, dict):
        has_others = node.others is not None or node.content.get("additionalProperties") is True
        for name in list(value):
            part = node.properties.get(name)
            at = f"{path}.{name}"
            if part is None and not has_others and not node.keeps_unknown:
                del value[name]
                yield node, path, str(name)
            elif part is None:
                if node.others is not None:
                    yield from _pruned(node.others, value[name], at)
            elif value[name] is None and part.content.get("nullable") is not True:
                # As an absent one; a default is set later.
                del value[name]
            else:
                yield from _pruned(part, value[name], at)
    elif isinstance(value, list) and node.items is not None:
        for index, each in enumerate(value):
            yield from _pruned(node.items, each, f"{path}[{index}]")


def _set_defaults(node: _Node, value: object, work: Work) -> None:
    if isinstance(value, dict):
        for name, part in node.properties.items():
            if part.default_size and name not in value:
                work.take(part.default_size)
                value[name] = _copied(part.content["default"])
        for name, each in value.items():
            of_member = node.properties.get(name, node.others)
            if of_member is not None:
                _set_defaults(of_member, each, work)
    elif isinstance(value, list) and node.items is not None:
        for each in value:
            _set_defaults(node.items, each, work)


def _copied(value: object) -> object:
    """Return a copy of *value* in which nothing is shared: an alias of YAML is one value in many places."""
    if isinstance(value, dict):
        return {name: _copied(each) for name, each in value.items()}
    return [_copied(each) for each in value] if isinstance(value, list) else value


def _size(value: object) -> int:
    """Return the number of values in *value*; a long text counts once per 64 characters."""
    if isinstance(value, dict):
        return 1 + sum(_size(name) + _size(each) for name, each in value.items())
    if isinstance(value, list):
        return 1 + sum(map(_size, value))
    return 1 + len(value) // 64 if isinstance(value, str) else 1


class _TooMuchError(Exception):
    pass


class _Check:
    """The comparison of one value with its schema."""

    def __init__(self) -> None:
        self.count = 0

    def _take(self, count: int) -> None:
        self.count += count
        if self.count > MAX_CHECKS:
            raise _TooMuchError

    def _compared(self, value: object) -> bytes:
        """Return the JSON of *value*, which takes as long as the value is large."""
        written = _written(value)
        self._take(1 + len(written) // 64)
        return written

    def errors(self, node: _Node, value: object, path: str) -> Iterator[tuple[str, str]]:
        """Yield path and message of what is wrong with *value*."""
        self._take(1)
        content = node.content
        if value is None and content.get("nullable") is True:
            return
        if not _has_type(content, value):
            expected = "a whole number or a string" if content.get(_INT_OR_STRING) else _type(content)
            yield path, f"found {described(value)}, expected {expected}"
            return
        yield from self._own_errors(node, value, path)
        if isinstance(value, dict):
            for name in node.required:
                if name not in value:
                    yield f"{path}.{name}", "is required"
            for name, each in value.items():
                part = node.properties.get(name, node.others)
                if part is not None:
                    yield from self.errors(part, each, f"{path}.{name}")
                elif content.get("additionalProperties") is False:
                    yield f"{path}.{name}", "is not in the template's schema"
        elif isinstance(value, list) and node.items is not None:
            for index, each in enumerate(value):
                yield from self.errors(node.items, each, f"{path}[{index}]")
        yield from self._logical_errors(node, value, path)

    def _own_errors(self, node: _Node, value: object, path: str) -> Iterator[tuple[str, str]]:
        content = node.content
        if node.allowed is not None and self._compared(value) not in node.allowed:
            yield path, f"found {shown(value)}, expected {one_of(map(shown, content['enum'][:20]))}"
        if node.pattern is not None and isinstance(value, str) and not node.pattern.search(value):
            yield path, f"found {shown(value)}, expected a text that matches {shown(content['pattern'])}"
        if isinstance(value, int | float) and not isinstance(value, bool):
            yield from _number_errors(content, value, path)
        for bounds, sign in ((_LOWER, 1), (_UPPER, -1)):
            for name, kind in bounds:
                limit = content.get(name)
                if type(limit) is int and isinstance(value, kind) and (len(value) - limit) * sign < 0:
                    most = "least" if sign > 0 else "most"
                    yield path, f"found {len(value)} {_WORDS[kind]}, expected at {most} {limit}"
        if (
            isinstance(value, list)
            and content.get("uniqueItems") is True
            and len({self._compared(each) for each in value}) < len(value)
        ):
            yield path, "found an entry twice, expected each once"

    def _logical_errors(self, node: _Node, value: object, path: str) -> Iterator[tuple[str, str]]:
        for each in node.logical.get("allOf", ()):
            yield from self.errors(each, value, path)
        for each in node.logical.get("not", ()):
            if self._is_valid(each, value):
                yield path, "found what the schema excludes by not"
        if (some := node.logical.get("anyOf")) and not any(self._is_valid(each, value) for each in some):
            yield path, "found a value that fits none of anyOf"
        if one := node.logical.get("oneOf"):
            count = sum(self._is_valid(each, value) for each in one)
            if count != 1:
                yield path, f"found a value that fits {count} of oneOf, expected 1"

    def _is_valid(self, node: _Node, value: object) -> bool:
        return next(self.errors(node, value, ""), None) is None


def _has_type(content: Mapping[str, Any], value: object) -> bool:
    if content.get(_INT_OR_STRING) is True:
        return isinstance(value, int | str) and not isinstance(value, bool)
    kind = content.get("type")
    if kind is None:
        return value is not None or content.get(_PRESERVE) is True
    if kind == "integer" and isinstance(value, float):
        return value.is_integer()
    if isinstance(value, bool):
        return bool(kind == "boolean")
    return isinstance(value, _TYPES[kind])


def _type(content: Mapping[str, Any]) -> str:
    kind = content.get("type")
    return "a value" if kind is None else f"a value of type {kind}"


def _number_errors(content: Mapping[str, Any], value: float, path: str) -> Iterator[tuple[str, str]]:
    low, high, step = (content.get(name) for name in ("minimum", "maximum", "multipleOf"))
    if isinstance(low, int | float):
        is_exclusive = content.get("exclusiveMinimum") is True
        if value < low or (is_exclusive and value == low):
            yield path, f"found {value}, expected {'more than' if is_exclusive else 'at least'} {low}"
    if isinstance(high, int | float):
        is_exclusive = content.get("exclusiveMaximum") is True
        if value > high or (is_exclusive and value == high):
            yield path, f"found {value}, expected {'less than' if is_exclusive else 'at most'} {high}"
    if isinstance(step, int | float) and step > 0 and not _is_multiple(value, step):
        yield path, f"found {value}, expected a multiple of {step}"


def _is_multiple(value: float, step: float) -> bool:
    try:
        return value % step == 0
    except OverflowError:
        # A number that no float can be.
        return False


def _written(value: object) -> bytes:
    try:
        return orjson.dumps(value, option=orjson.OPT_SORT_KEYS)
    except TypeError:
        return repr(value).encode()
