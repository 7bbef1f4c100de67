"""Where keys of documents are in their texts: for any document and path, the region holds that key."""

from __future__ import annotations

import json
from typing import Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.yaml.parsing import parse_json, parse_yaml
from gateway.config.yaml.positions import positions, region_of
from gateway.tools.preview.positions import common_path, value_at

KEYS = st.text("abcXYZ09-_./ éß😀'\"#:\t", min_size=1, max_size=8)
SCALARS = st.none() | st.booleans() | st.integers(-9, 9) | st.text("ab \n'\":#-é😀\t\u2028", max_size=12)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(KEYS, inner, max_size=3),
    max_leaves=12,
)
DOCUMENTS = st.dictionaries(KEYS, VALUES, min_size=1, max_size=4)


def paths(found: object, path: tuple[str | int, ...] = ()) -> Any:
    """Yield the path of each key and item in *found*."""
    members = (
        found.items() if isinstance(found, dict) else enumerate(found) if isinstance(found, list) else ()
    )
    for key, value in members:
        yield (*path, key)
        yield from paths(value, (*path, key))


def text_at(text: str, line: int, column: int, end_column: int) -> str:
    return text.split("\n")[line - 1][column - 1 : end_column - 1]


def end_of_line(text: str, line: int) -> int:
    return len(text.split("\n")[line - 1]) + 1


@given(
    DOCUMENTS,
    st.booleans() | st.none(),
    st.integers(1, 4),
    st.booleans(),
    st.integers(0, 3),
    st.sampled_from(["", "---\n", "# é😀\n---\n"]),
)
def test_the_region_of_a_key_in_yaml_holds_that_key(
    document: dict[str, Any], flow: bool | None, indent: int, is_unicode: bool, before: int, head: str
) -> None:
    text = head + yaml.safe_dump(
        document, default_flow_style=flow, indent=indent, allow_unicode=is_unicode, width=30
    )
    (parsed,) = parse_yaml(text)
    assert parsed.root == document
    (root,) = positions(text, before)
    assert root is not None
    for path in paths(document):
        region, found = region_of(root, path)
        assert found == len(path)
        if isinstance(path[-1], str):
            if end_of_line(text, region.line - before) == region.end_column:
                continue  # A long key goes on in the next line.
            shown = text_at(text, region.line - before, region.column, region.end_column)
            assert yaml.safe_load(shown) == path[-1]


@given(DOCUMENTS, st.sampled_from([None, 1, "\t"]), st.booleans())
def test_the_region_of_a_key_in_json_holds_that_key(
    document: dict[str, Any], indent: int | str | None, is_ascii: bool
) -> None:
    text = json.dumps(document, indent=indent, ensure_ascii=is_ascii)
    (parsed,) = parse_json(text)
    assert parsed.root == document
    (root,) = positions(text, is_json=True)
    assert root is not None
    for path in paths(document):
        region, _ = region_of(root, path)
        if isinstance(path[-1], str) and "\\u" not in json.dumps(path[-1]):
            assert text_at(text, *region) == json.dumps(path[-1], ensure_ascii=is_ascii)


@given(DOCUMENTS, st.lists(KEYS | st.integers(0, 3), max_size=4))
def test_a_missing_key_has_the_region_of_its_nearest_parent(
    document: dict[str, Any], path: list[str | int]
) -> None:
    (root,) = positions(yaml.safe_dump(document))
    assert root is not None
    region, found = region_of(root, tuple(path))
    assert region == region_of(root, tuple(path[:found]))[0]
    if found < len(path):
        there = value_at(document, path[:found])
        assert not isinstance(there, dict) or path[found] not in there


ALIASES = """\
a: &x
  b: {c: 1}
d: *x
e:
  <<: *x
  f: 2
g:
  <<: [{h: 3}, *x]
  b: 4
"""


@pytest.mark.parametrize(
    ("path", "line"),
    [
        (("a", "b", "c"), 2),
        (("d",), 3),
        (("d", "b", "c"), 2),
        (("e", "b"), 2),
        (("e", "f"), 6),
        (("g", "h"), 8),
        (("g", "b"), 9),
        (("e", "x"), 4),
    ],
)
def test_aliases_and_merged_keys_are_where_they_are_written(path: tuple[str, ...], line: int) -> None:
    (root,) = positions(ALIASES)
    assert root is not None
    assert region_of(root, path)[0].line == line


@pytest.mark.parametrize(
    "text",
    [
        "[" * 100_000,
        "a: &a [*a]\n",
        "a: &a\n  <<: *a\n",
        "a: {<<: {<<: {<<: 1}}}\n",
        "a: *b\n",
        "\x00",
        "a: '",
    ],
)
def test_hostile_texts_have_no_positions_or_some_and_no_error(text: str) -> None:
    for root in positions(text):
        assert root is not None
        region_of(root, ("a", 0, 0, "b", "<<"))


def test_a_chain_of_aliases_is_not_written_out() -> None:
    text = "a0: &a0 [x]\n" + "".join(f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 9)}]\n" for n in range(1, 90))
    (root,) = positions(text)
    assert root is not None
    assert region_of(root, ("a89", *[8] * 89, 0))[0].line == 1


def test_items_with_names_are_found_where_lists_differ() -> None:
    source = {"spec": {"containers": [{"name": "main", "image": "a"}], "args": ["x"]}}
    seen = {
        "spec": {
            "containers": [{"name": "sidecar"}, {"name": "main", "image": "a", "ports": []}],
            "args": ["x", "y"],
        }
    }
    assert common_path(("spec", "containers", 1, "image"), seen, source) == ("spec", "containers", 0, "image")
    assert common_path(("spec", "containers", 1, "ports", 0), seen, source) == ("spec", "containers", 0)
    assert common_path(("spec", "containers", 0, "image"), seen, source) == ("spec", "containers")
    assert common_path(("spec", "args", 0), seen, source) == ("spec", "args", 0)
    assert common_path(("spec", "args", 1), seen, source) == ("spec", "args")
    assert common_path(("spec", "containers", 7), seen, source) == ("spec", "containers")
    assert common_path(("spec", "containers", "name=main", "image"), seen, source) == (
        *("spec", "containers", 0, "image"),
    )
    assert common_path(("spec", "containers", "name=x"), seen, source) == ("spec", "containers")
    assert common_path(("data", 1), {"data": {"1": "a"}}, {"data": {"1": "a"}}) == ("data", "1")
