"""What a declaration makes of a field: its reader, its schema and its row in the documentation."""

from __future__ import annotations

import subprocess
import sys
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from gateway.config.kinds.declare import (
    Boolean,
    Choice,
    Declaration,
    Declared,
    Duration,
    Group,
    Groups,
    Integer,
    Number,
    Read,
    Text,
    Texts,
    declare,
    defaults,
    optional,
    required,
)
from gateway.config.kinds.validation import Rule, exactly_one, excluded
from gateway.config.yaml.fields import Fields, Problems

if TYPE_CHECKING:
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
    # Of a list with too many entries, those above the bound are not read.
    _, found = read({"limits": {"most": 10}, "inner": {}, "others": [{"name": 1}, {"name": 1}], "x": 1})
    assert [path for path, _ in found] == ["limits.most", "inner.name", "others", "others[0].name", "x"]


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


def test_texts_are_checked() -> None:
    problems = Problems("")
    names = Texts(check=lambda text: None if text else "is empty")
    assert names.read(Fields({"a": ["x", ""]}, "", problems), "a", ()) == ("x", "")
    assert problems.found == [("a[1]", "is empty")]
    assert Choice(("a", "b", "c")).words == "`a`, `b` or `c`"
    assert Number(0, 1, "percent").written(0.5) == "0.5"


@dataclass(frozen=True, slots=True)
class Ways(Declared):
    """A group with rules, and with a field that a custom resource may not have."""

    WITHOUT_ATTRIBUTE = MappingProxyType({"url": Declaration(Text(maxLength=9), "One address")})
    RULES = (
        exactly_one("url", "urls", "file"),
        Rule(
            "!has(self.low) || !has(self.high) || self.low < self.high",
            "is below low",
            about=("low", "high"),
            at="high",
            holds_with=(0, 1),
        ),
    )
    urls: tuple[str, ...] = declare(Texts(bounds=(1, 2), maxLength=9), "", default=())
    file: str | None = optional(Text(maxLength=9), "A path", instead="url or urls")
    low: int = declare(Integer(0, 9), "", default=0)
    high: float | None = optional(Number(0, 9, "percent"), "")
    after_s: float = declare(Duration(0, 9), "", default=0.5, name="after")

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        url = source.optional_string("url")
        return {"urls": (url, *source.strings("urls"))} if url else {}


def ways(content: dict[str, object], folder: Path | None = None) -> tuple[Ways, list[tuple[str, str]]]:
    problems = Problems("", folder=folder)
    return Ways.read(Fields(content, "spec", problems)), problems.found


def test_a_rule_is_run_by_the_reader_and_is_in_the_schema(tmp_path: Path) -> None:
    assert ways({"url": "a", "low": 1, "high": 2}, tmp_path) == (Ways(("a",), low=1, high=2.0), [])
    assert ways({"urls": ["a", "b"], "low": 9}) == (Ways(("a", "b"), low=9), [])
    assert ways({"url": "a", "low": 1, "high": 1})[1] == [("spec.high", "is below low")]
    assert not ways({"url": "a", "low": 1, "high": None})[1]
    _, found = ways({"url": "a", "urls": ["b"], "file": None}, tmp_path)
    assert found == [("spec", "found url and urls, expected exactly one of url, urls or file")]
    # The error of an expression is that of a field, which was reported.
    assert [path for path, _ in ways({"url": "a", "low": 1, "high": "x"})[1]] == ["spec.high"]
    assert Ways.schema()["x-kubernetes-validations"][1] == {
        "rule": Ways.RULES[1].expression,
        "message": "is below low",
        "fieldPath": ".high",
    }


def test_a_custom_resource_may_have_fewer_fields(tmp_path: Path) -> None:
    assert ways({"file": "a"}, tmp_path) == (Ways(file="a"), [])
    refused = "is not allowed in a custom resource, expected url or urls"
    assert ways({"file": "a", "url": "b"}) == (Ways(("b",)), [("spec.file", refused)])
    assert ways({})[1] == [("spec", "found none of them, expected exactly one of url or urls")]
    schema = Ways.schema(is_custom=True)
    assert [each["message"] for each in schema["x-kubernetes-validations"]] == [
        refused,
        "expected exactly one of url or urls",
        "is below low",
    ]
    assert "file" not in schema["x-kubernetes-validations"][1]["rule"]
    assert Ways.schema()["properties"]["file"]["description"] == "A path"


def test_a_schema_has_the_default_as_a_document_has_it() -> None:
    properties = Ways.schema()["properties"]
    assert list(properties) == ["url", "urls", "file", "low", "high", "after"]
    assert [name for name, one in properties.items() if "default" in one] == ["after"]
    assert properties["after"]["default"] == "500ms"
    assert properties["urls"]["maxItems"] == 2


def test_a_list_outside_its_bounds_is_not_read() -> None:
    _, found = ways({"urls": [1, 2, 3]})
    assert found == [("spec.urls", "found 3 entries, expected 1 to 2")]


def test_a_document_that_needs_no_rule_does_not_import_the_expressions() -> None:
    """The import takes 60 ms and 6 MB. The second document has one of two fields of a rule."""
    program = (
        "import sys; from tests.config.test_declare import ways, read; read({});"
        "ways({'url': 'a', 'low': 2});"
        "print([name for name in sys.modules if name.startswith('gateway.pure.cel.')])"
    )
    printed = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert printed.stdout == "[]\n"


@dataclass(frozen=True, slots=True)
class Bounds(Declared):
    most: int = declare(Integer(0, 9), "", default=0)


@dataclass(frozen=True, slots=True)
class Placed(Declared):
    """A group with a field that a custom resource does not know, and with rules that need no CEL."""

    RULES = (
        exactly_one("url", "file"),
        excluded("roots", "file", "is not allowed with file"),
        excluded("roots", "plain", "is not allowed with plain"),
        Rule(
            "!has(self.limit) || self.mode == 'Open'",
            "is for the mode Open",
            about=("limit",),
            at="limit.most",
            holds_surely=lambda content: content.get("mode") == "Open",
            found="mode",
        ),
    )
    url: str = declare(Text(maxLength=9), "", default="")
    file: str | None = optional(Text(), "A path", is_in_files_only=True)
    roots: bytes = declare(Read("text", lambda *_: b""), "", default=b"")
    plain: bool | None = optional(Boolean(), "")
    mode: str = declare(Choice(("Open", "Shut")), "", default="Open", is_default_in_schema=False)
    limit: Bounds | None = optional(Group(Bounds), "")


def placed(content: dict[str, object], folder: Path | None) -> tuple[Placed, list[tuple[str, str]]]:
    problems = Problems("", folder=folder)
    return Placed.read(Fields(content, "", problems)), problems.found


def test_a_custom_resource_does_not_know_a_field_for_files_only(tmp_path: Path) -> None:
    assert placed({"file": "a"}, tmp_path) == (Placed(file="a"), [])
    assert placed({"file": "a", "roots": "b"}, tmp_path)[1] == [("roots", "is not allowed with file")]
    assert [path for path, _ in placed({"file": "a"}, None)[1]] == ["", "file"]
    assert Placed.schema()["properties"].keys() - Placed.schema(is_custom=True)["properties"] == {"file"}
    expressions = [rule["rule"] for rule in Placed.schema(is_custom=True)["x-kubernetes-validations"]]
    assert len(expressions) == 3
    assert not any("file" in each for each in expressions)
    assert "default" not in Placed.schema()["properties"]["mode"]
    rows = {row.path: row for row in Placed.rows()}
    assert (rows["mode"].default, rows["file"].meaning) == ("`Open`", "A path. Not in a custom resource")


def test_an_absent_truth_value_is_not_a_false_one(tmp_path: Path) -> None:
    assert placed({"url": "a", "plain": False}, tmp_path)[0].plain is False
    assert placed({"url": "a"}, tmp_path)[0].plain is None


def test_a_rule_says_what_was_found_at_the_path_of_its_field() -> None:
    limit: dict[str, object] = {"url": "a", "limit": {"most": 1}}
    assert placed(limit | {"mode": "Open"}, None)[1] == []
    assert placed(limit | {"mode": "Shut"}, None)[1] == [
        ("limit.most", "found mode Shut, is for the mode Open")
    ]


def test_required_numbers_and_lists_are_reported() -> None:
    problems = Problems("")
    source = Fields({"list": []}, "", problems)
    assert Integer(2, 9).read_required(source, "number") == 2
    assert Groups(Inner).read_required(source, "list") == ()
    assert problems.found == [
        ("number", "is required, expected a whole number from 2 to 9"),
        ("list", "is required with at least one entry"),
    ]


def test_defaults_are_those_that_json_has() -> None:
    assert defaults(Placed) == {"mode": "Open"}
    assert defaults(Outer) == {"limits.most": 4}
