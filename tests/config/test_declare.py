"""What a declaration makes of a field: its reader, its schema and its row in the documentation."""

from __future__ import annotations

from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import fastjsonschema
import pytest

from gateway.config.kinds.declare import (
    Boolean,
    Choice,
    Declared,
    Group,
    Groups,
    Integer,
    Number,
    Text,
    Texts,
    declare,
    optional,
    required,
)
from gateway.config.kinds.gateway_configuration import GatewaySettings, read_gateway_configuration
from gateway.config.yaml.fields import Fields, Problems

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@dataclass(frozen=True, slots=True)
class Inner(Declared):
    name: str = required(Text(), "Its [name](names.md)")
    is_open: bool = declare(Boolean(), "", default=True, name="open")


@dataclass(frozen=True, slots=True)
class Outer(Declared):
    MAPPINGS = MappingProxyType({"limits": "Bounds"})

    most: int = declare(Integer(1, 9, "calls"), "Calls", default=4, name="limits.most")
    inner: Inner | None = optional(Group(Inner), "Absent: none")
    others: tuple[Inner, ...] = declare(Groups(Inner, 1), "", default=())
    note: str | None = optional(Text(), "Absent: none")


def read(content: dict[str, object]) -> tuple[Outer, list[tuple[str, str]]]:
    problems = Problems("")
    return Outer.read(Fields(content, "", problems)), problems.found


def test_absent_fields_have_their_defaults() -> None:
    assert read({}) == (Outer(4, None, ()), [])


def test_fields_are_read_where_their_names_say() -> None:
    inner = {"name": "a", "open": False}
    expected = Outer(9, Inner("a", is_open=False), (Inner("a", is_open=False),), "b")
    assert read({"limits": {"most": 9}, "inner": inner, "others": [inner], "note": "b"}) == (expected, [])


def test_problems_have_their_paths() -> None:
    _, found = read({"limits": {"most": 10}, "inner": {}, "others": [{"name": "a"}, {"name": 1}], "x": 1})
    assert [path for path, _ in found] == ["limits.most", "inner.name", "others", "others[1].name", "x"]


def test_rows_and_schema_are_those_of_the_fields() -> None:
    assert [tuple(row) for row in Outer.rows("spec.")] == [
        ("spec.limits", "mapping", "none", "Bounds"),
        ("spec.limits.most", "integer, calls", "`4`", "Calls"),
        ("spec.inner", "mapping", "none", "Absent: none"),
        ("spec.inner.name", "string", "required", "Its [name](names.md)"),
        ("spec.inner.open", "boolean", "`true`", ""),
        ("spec.others", "list, at most 1", "none", ""),
        ("spec.others[].name", "string", "required", "Its [name](names.md)"),
        ("spec.others[].open", "boolean", "`true`", ""),
        ("spec.note", "string", "none", "Absent: none"),
    ]
    schema = Outer.schema()
    assert schema["properties"]["limits"]["properties"]["most"]["maximum"] == 9
    assert schema["properties"]["inner"]["required"] == ["name"]
    assert schema["properties"]["inner"]["properties"]["name"]["description"] == "Its name"


def drawn(schema: dict[str, Any], path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], object]]:
    """Yield the path of each simple setting in *schema*, and values at and beyond its bounds."""
    for name, one in schema["properties"].items():
        at = (*path, name)
        if "properties" in one:
            # A mapping that requires a field, such as a file that exists, is read as a whole elsewhere.
            if "required" not in one:
                yield from drawn(one, at)
        else:
            values: tuple[object, ...] = ()
            if "minimum" in one:
                low, high = one["minimum"], one["maximum"]
                values = (low - 1, low, high, high + 1, "1", True, [], {})
            elif "enum" in one:
                values = (*one["enum"], "", "x", 1, [])
            elif one["type"] == "boolean":
                values = (True, False, 0, "true")
            yield from ((at, value) for value in values)


VALUES = list(drawn(GatewaySettings.schema()))


@pytest.mark.parametrize(("path", "value"), VALUES, ids=str)
def test_reader_and_schema_accept_the_same(path: tuple[str, ...], value: object, tmp_path: Path) -> None:
    content: Any = value
    for name in reversed(path):
        content = {name: content}
    problems = Problems("", folder=tmp_path)
    read_gateway_configuration(Fields(content, "", problems))
    refused = [message for place, message in problems.found if place == ".".join(path) and "found" in message]
    try:
        fastjsonschema.validate(GatewaySettings.schema(), content)
    except fastjsonschema.JsonSchemaValueException:
        assert refused
    else:
        # The limits of one setting by another are no part of the schema.
        assert not refused or path == ("limits", "maxBytesInFlight")


def test_texts_are_checked() -> None:
    problems = Problems("")
    names = Texts(check=lambda text: None if text else "is empty")
    assert names.read(Fields({"a": ["x", ""]}, "", problems), "a", ()) == ("x", "")
    assert problems.found == [("a[1]", "is empty")]
    assert Choice(("a", "b", "c")).words == "`a`, `b` or `c`"
    assert Number(0, 1, "percent").written(0.5) == "0.5"
