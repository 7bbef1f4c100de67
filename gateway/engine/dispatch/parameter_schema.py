"""The JSON Schemas that workers declare for the parameters of their policies.

A schema comes from a worker, so it is bounded: nothing is fetched, patterns take linear time (no look-around,
no back-references), and schemas that refer to each other are counted as if they were written out, because the
time of a check grows with that. A schema that cannot be used checks nothing, and has the reason in ``fault``.

Source: JSON Schema draft 2020-12, and older drafts by ``$schema``.
"""

from __future__ import annotations

from functools import lru_cache, partial
from itertools import chain, islice
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from gateway.base.text import described, did_you_mean, one_of, shown
from gateway.engine.dispatch.verdicts import one_line

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

MAX_SCHEMA_BYTES: Final = 256 * 1024
MAX_SCHEMAS: Final = 2000
"""Subschemas with all references written out, and names and values in them that are checked one by one."""
MAX_PROBLEMS: Final = 5
"""Problems that are listed for one value."""
MAX_CHECKS: Final = 1_000_000
"""Values times subschemas: a check runs on the event loop, and this takes at most half a second."""
_MANY_ERRORS: Final = 20_000
_MANY_ERROR_BYTES: Final = 4 * 1024 * 1024
"""Above one of these the first problem alone is searched: the library finds all of them or one.

It copies the value into each error. There can be one for each value and subschema, and the copies for one
subschema are together at most as large as the parameters.
"""
_MAX_COMPARED: Final = 500
"""Names of parameters among which a similar one is searched: a hundred take a millisecond."""
_MAX_CHARS: Final = 200
MAX_PATTERNS: Final = 50
"""Patterns of one schema. A compiled one can take a MiB and 3 ms."""
_PATTERN_BYTES: Final = 256 * 1024
"""Limit of a compiled pattern."""
_DATA: Final = ("const", "default", "enum", "examples")
"""Keywords whose values are not schemas."""
_BRANCHES: Final = ("anyOf", "oneOf")
"""Keywords whose one error has the errors of all their branches."""
_DYNAMIC: Final = ("$dynamicRef", "$recursiveRef")
_UNEVALUATED: Final = ("unevaluatedItems", "unevaluatedProperties")
"""The time of a check doubles with each of these in another one's branch."""
_AT_ROOT: Final = ("$id", "$schema")
"""Elsewhere they change what references refer to."""


class UnusableSchema(Exception):
    """The text is the reason."""


class ParameterSchema:
    """The schema that a worker declares for one policy. It is empty if the policy takes no parameters."""

    def __init__(self, text: str) -> None:
        self.fault = ""
        """Why it cannot be used; empty if it can."""
        self.takes_none = not text
        self._validator: Any = None
        self._size = 0
        """Subschemas with all references written out."""
        self._has_branches = False
        self._names: tuple[str, ...] = ()
        """The names of the parameters, for hints."""
        if text:
            try:
                self._compile(text)
            except UnusableSchema as error:
                self.fault = one_line(str(error))[:_MAX_CHARS]

    def problems(self, json: bytes, *, is_partial: bool = False) -> list[str]:
        """Return the problems of the parameters *json*, empty for none: path, found and expected of each.

        *is_partial*: others will be added, so that nothing can be missing yet.
        """
        if self.takes_none:
            return [": found parameters, expected none: the policy takes none"] if json else []
        if self._validator is None:
            return []
        values = sum(map(json.count, (b",", b"[", b"{")))
        if values * self._size > MAX_CHECKS:
            most = MAX_CHECKS // self._size
            return [f": found about {values} values, expected at most {most}, which is what can be checked"]
        value = orjson.loads(json or b"{}")
        if self._validator.is_valid(value):
            return []
        is_large = values * self._size > _MANY_ERRORS or len(json) * self._size > _MANY_ERROR_BYTES
        if is_large and self._has_branches:
            text = ": found values that the schema does not allow, too many to search for the first one"
            return [] if is_partial else [text]
        errors = (
            error
            for error in self._errors(value, is_large=is_large)
            if not is_partial or error.instance_path or error.schema_path[-1] == "additionalProperties"
        )
        return list(islice(chain.from_iterable(self._messages(one, value) for one in errors), MAX_PROBLEMS))

    def _errors(self, value: object, *, is_large: bool) -> Iterable[Any]:
        """Return the errors of *value*: all, or the first if *is_large*."""
        if not is_large:
            return cast("Iterable[Any]", self._validator.iter_errors(value))
        import jsonschema_rs

        try:
            self._validator.validate(value)
        except jsonschema_rs.ValidationError as error:
            return (error,)
        return ()

    def _compile(self, text: str) -> None:
        if len(text) > MAX_SCHEMA_BYTES:
            raise UnusableSchema(f"it has {len(text)} characters, expected at most {MAX_SCHEMA_BYTES}")
        try:
            schema = orjson.loads(text)
        except (ValueError, UnicodeEncodeError) as error:
            raise UnusableSchema(f"it is not JSON: {error}") from None
        if not isinstance(schema, dict):
            raise UnusableSchema(f"found {described(schema)}, expected a mapping")
        size = _Size(schema)
        self._size, self._has_branches = size.checked(), size.has_branches
        try:
            patterns = _patterns(schema)
        except RecursionError:
            raise UnusableSchema("it nests too deeply") from None
        if patterns > MAX_PATTERNS:
            raise UnusableSchema(f"it has {patterns} patterns, expected at most {MAX_PATTERNS}")
        # Imported late: most gateways have no parameters.
        import jsonschema_rs

        try:
            self._validator = jsonschema_rs.validator_for(
                schema,
                offline=True,
                validate_formats=False,
                pattern_options=jsonschema_rs.RegexOptions(size_limit=_PATTERN_BYTES),
            )
        except ValueError as error:
            at = "".join(f"/{part}" for part in getattr(error, "instance_path", ()))
            text = getattr(error, "message", None) or str(error)
            raise UnusableSchema(f"at {at}: {text}" if at else text) from None
        properties = schema.get("properties")
        self._names = tuple(properties) if isinstance(properties, dict) else ()

    def _messages(self, error: Any, value: object) -> Iterator[str]:  # noqa: ANN401 - of an abi3 module
        """Yield the messages of one *error* of *value*."""
        path = _path(error.instance_path)
        found, kind = error.instance, error.kind.as_dict()
        match error.kind.name:
            case "additionalProperties" | "unevaluatedProperties":
                yield from map(partial(self._unknown, path), kind["unexpected"])
                return
            case "falseSchema":
                at = _at(value, error.instance_path)
                if error.schema_path[-1] == "additionalProperties" and at != found:
                    # There are no properties, and the error has a member without its name.
                    yield from map(partial(self._unknown, path), at)
                    return
                expected = "nothing here"
            case "required":
                yield f"{path}{_path([kind['property']])}: is required"
                return
            case "type":
                expected = f"a value of type {one_of(kind['types'])}"
            case "enum":
                expected = f"{one_of(map(shown, kind['options'][:20]))}"
            case "const":
                expected = shown(kind["expected_value"])
            case "minimum":
                expected = f"at least {kind['limit']}"
            case "maximum":
                expected = f"at most {kind['limit']}"
            case "pattern":
                expected = f"a text that matches {shown(kind['pattern'])}"
            case _:
                yield one_line(f"{path}: {error.message}")[:_MAX_CHARS]
                return
        yield one_line(f"{path}: found {described(found)}, expected {expected}")

    def _unknown(self, path: str, name: str) -> str:
        text = f"{path}{_path([name])}: unknown parameter"
        if path:
            return one_line(text)
        if not self._names:
            return one_line(f"{text}; the policy takes none of this name")
        is_short = len(name) < 100 and len(self._names) <= _MAX_COMPARED
        hint = did_you_mean(name, self._names) if is_short else ""
        known = ", ".join(self._names[:20])
        return one_line(f"{text}{hint or f'; known: {known}'}")


@lru_cache(maxsize=256)
def parameter_schema(text: str) -> ParameterSchema:
    """Return the schema with this *text*, JSON; equal texts share it."""
    return ParameterSchema(text)


def _path(parts: list[str | int]) -> str:
    return "".join(f"[{part}]" if isinstance(part, int) else f".{one_line(part)[:100]}" for part in parts)


def _at(value: Any, path: list[str | int]) -> Any:  # noqa: ANN401 - JSON
    """Return the part of *value* at *path*."""
    for part in path:
        value = value[part]
    return value


def _patterns(value: object) -> int:
    """Return the number of regular expressions in a schema, which does not nest too deeply."""
    if isinstance(value, list):
        return sum(map(_patterns, value))
    if not isinstance(value, dict):
        return 0
    by_pattern = value.get("patternProperties")
    own = isinstance(value.get("pattern"), str) + (len(by_pattern) if isinstance(by_pattern, dict) else 0)
    return own + sum(map(_patterns, value.values()))


class _Size:
    """Counts the subschemas of a schema with all references written out, and names and values in them."""

    def __init__(self, root: dict[str, Any]) -> None:
        self._root = root
        # The name of $id in draft 4; elsewhere it is not a keyword.
        self._at_root = (*_AT_ROOT, "id") if "draft-04" in str(root.get("$schema")) else _AT_ROOT
        self.has_branches = False
        """Whether one of ``_BRANCHES`` was found."""
        self._sizes: dict[str, int] = {}
        """By reference; 0 while it is being counted."""

    def checked(self) -> int:
        """Return the number; raise UnusableSchema if it is too large, or for references that may not be."""
        try:
            size = self._of(self._root)
        except RecursionError:
            raise UnusableSchema("it nests too deeply") from None
        if size > MAX_SCHEMAS:
            found = f"it has {size} schemas, names and values with references written out"
            raise UnusableSchema(f"{found}, expected at most {MAX_SCHEMAS}")
        return size

    def _of(self, value: object) -> int:
        if isinstance(value, list):
            # Names are those of required, of which each can be an error.
            return sum(1 if isinstance(one, str) else self._of(one) for one in value)
        if not isinstance(value, dict):
            return 0
        size = 1
        for name, item in value.items():
            if name in _DYNAMIC and isinstance(item, str):
                raise UnusableSchema(f"{name} is not supported")
            if isinstance(item, str) and value is not self._root and name in self._at_root:
                raise UnusableSchema(f"{name} is supported at the top only")
            if name in _UNEVALUATED and value is not self._root:
                raise UnusableSchema(f"{name} is supported at the top only")
            self.has_branches = self.has_branches or name in _BRANCHES
            if name == "enum" and isinstance(item, list):
                # Where one of them is not a plain value, they are compared one after the other.
                size += len(item) if any(isinstance(one, (dict, list)) for one in item) else 0
            if name == "$ref" and isinstance(item, str):
                size += self._of_reference(item)
            elif name not in _DATA or isinstance(item, dict):
                size += self._of(item)
        return size

    def _of_reference(self, reference: str) -> int:
        if reference != "#" and not reference.startswith("#/"):
            raise UnusableSchema(
                f"found the reference {shown(reference)}, expected #/…, in the schema itself"
            )
        if "%" in reference:
            raise UnusableSchema(f"the reference {shown(reference)} has %, which is not supported")
        if reference in self._sizes:
            if not self._sizes[reference]:
                raise UnusableSchema(f"the reference {shown(reference)} refers to itself")
            return self._sizes[reference]
        self._sizes[reference] = 0
        target: Any = self._root
        for part in reference.split("/")[1:]:
            name = part.replace("~1", "/").replace("~0", "~")
            if not isinstance(target, dict) or name not in target:
                raise UnusableSchema(f"the reference {shown(reference)} refers to nothing")
            target = target[name]
        self._sizes[reference] = found = max(1, self._of(target))
        return found
