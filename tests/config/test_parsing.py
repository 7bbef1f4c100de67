from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.config.yaml import parsing
from gateway.config.yaml.fields import MAX_PROBLEMS
from gateway.config.yaml.parsing import MAX_NESTING, MAX_VALUES, Parsed, parse_json, parse_yaml

Parse = Callable[[str], Iterator[Parsed]]


def read(text: str, parse: Parse = parse_yaml) -> Any:
    """The only document in *text*."""
    [parsed] = parse(text)
    assert parsed.found == []
    return parsed.root


def problems(text: str, parse: Parse = parse_yaml) -> list[tuple[str, str]]:
    return [found for parsed in parse(text) for found in parsed.found]


@pytest.mark.parametrize(
    ("word", "value"),
    [
        *(("", None), ("~", None), ("null", None), ("Null", None), ("NULL", None), ("nULL", "nULL")),
        *(("true", True), ("yes", True), ("On", True), ("False", False), ("off", False), ("NO", False)),
        *(("y", "y"), ("n", "n"), ("None", "None")),
        *(
            ("0", 0),
            ("-17", -17),
            ("+5", 5),
            ("0x1F", 31),
            ("0b101", 5),
            ("0o17", 15),
            ("017", 15),
            ("1_000", 1000),
        ),
        *(("1.5", 1.5), ("-.5", -0.5), ("1e3", 1000.0), ("6.02E+23", 6.02e23), ("1.", 1.0)),
        *(("9223372036854775807", 2**63 - 1), ("-9223372036854775808", -(2**63))),
        *(("2001-12-14", "2001-12-14"), ("2001-12-14T21:59:43Z", "2001-12-14T21:59:43Z"), ("1:30", "1:30")),
        *(
            ("0.0.0.0:8443", "0.0.0.0:8443"),
            ("1.2.3", "1.2.3"),
            ("v1", "v1"),
            ("100ms", "100ms"),
            ("-", ["x"]),
        ),
        *(
            ('"12"', "12"),
            ("'yes'", "yes"),
            ('""', ""),
            ("!!str 12", "12"),
            ("! 12", "12"),
            ('!!int "12"', 12),
        ),
        *((".info", ".info"), ("=", "="), ('"<<"', "<<"), ("<<", "<<"), ("[<<]", ["<<"])),
    ],
)
def test_the_values_of_plain_words(word: str, value: object) -> None:
    text = "a:\n- x" if word == "-" else f"a: {word}"
    read_value = read(text)["a"]
    assert (type(read_value), read_value) == (type(value), value)


@pytest.mark.parametrize(
    ("word", "fragment"),
    [
        (".nan", "finite"),
        ("-.inf", "finite"),
        ("1e999", "too large"),
        ("9223372036854775808", "too large"),
        ("9" * 5000, "too large"),
        ("1" * 500 + ".5", "too large"),
        ("!!timestamp 2001-12-14", "timestamp"),
        ("!!binary aGk=", "binary"),
        ("!!python/object/apply:os.system [x]", "python"),
        ("!mine x", "!mine"),
        ("!!set {x}", "set"),
        ('!!int "x y" ', None),
    ],
)
def test_values_that_json_does_not_have_are_refused_with_their_line(word: str, fragment: str | None) -> None:
    found = problems(f"a:\n  b: {word}")
    if fragment is None:
        assert found == []
    else:
        [(path, message)] = found
        assert path == "a.b"
        assert message.startswith("line 2, column 6: ")
        assert fragment in message


def test_documents_are_counted_with_the_empty_ones() -> None:
    parsed = list(parse_yaml("a: 1\n---\n# nothing\n---\nb: 2\n---\n"))
    assert [(each.number, each.root) for each in parsed] == [
        (1, {"a": 1}),
        (2, None),
        (3, {"b": 2}),
        (4, None),
    ]


@pytest.mark.parametrize("text", ["", "# only this\n", "\n\n"])
def test_a_text_without_content_has_no_document(text: str) -> None:
    assert list(parse_yaml(text)) == []


def test_a_duplicate_key_is_named_with_both_lines_and_the_first_one_holds() -> None:
    [parsed] = parse_yaml("spec:\n- {a: 1}\n- x: 1\n  y: 2\n  x: 3\n  z: {q: 1, q: 2}\n")
    assert parsed.found == [
        ("spec[1]", 'line 5, column 3: duplicate key "x", first in line 3'),
        ("spec[1].z", 'line 6, column 13: duplicate key "q", first in line 6'),
    ]
    assert parsed.root == {"spec": [{"a": 1}, {"x": 1, "y": 2, "z": {"q": 1}}]}


@pytest.mark.parametrize(
    ("key", "fragment"),
    [
        ("1", "the number 1"),
        ("on", "true"),
        ("~", "null"),
        ("? [a]\n", "a list"),
        ("? {a: b}\n", "a mapping"),
    ],
)
def test_keys_that_are_not_texts_are_refused(key: str, fragment: str) -> None:
    [(path, message)] = problems(f"a: 1\n{key}: 2")
    assert path == ""
    assert re.match(f"line 2, column [13]: found {fragment} as a key, expected a string", message)


def test_aliases_and_merge_keys_are_followed() -> None:
    text = "a: &a {x: 1, y: 2}\nb: *a\nc: {<<: *a, y: 3}\nd:\n  <<: [{y: 4, z: 5}, *a]\ne: [*a, &s word, *s]"
    a = {"x": 1, "y": 2}
    assert read(text) == {
        "a": a,
        "b": a,
        "c": {"x": 1, "y": 3},
        "d": {"x": 1, "y": 4, "z": 5},
        "e": [a, "word", "word"],
    }


@pytest.mark.parametrize("value", ["1", "[1]", "[[{}]]", "null"])
def test_merging_a_value_that_is_not_a_mapping_is_refused(value: str) -> None:
    [(path, message)] = problems(f"a:\n  <<: {value}")
    assert path == "a"
    assert "line 2" in message
    assert "to merge, expected a mapping" in message


@pytest.mark.parametrize(
    "text", ["a: *b", "a: &a [*a]", "a: &a {b: *a}", "a: &a 1\n---\nb: *a", "a: &a 1\nb: &a [*a]"]
)
def test_an_alias_without_a_complete_value_before_it_is_refused(text: str) -> None:
    *_, (_, message) = problems(text)
    assert "has no complete value before it" in message


def test_an_alias_bomb_is_refused() -> None:
    lines = ["a0: &a0 [x, x, x, x, x, x, x, x, x, x]"]
    lines += [f"a{n}: &a{n} [{', '.join([f'*a{n - 1}'] * 10)}]" for n in range(1, 40)]
    [(path, message)] = problems("\n".join(lines))
    assert path == ""
    assert message == f"line 6, column 45: the file has more than {MAX_VALUES:,} values, aliases written out"


def test_a_bomb_of_merges_and_one_of_long_texts_are_refused() -> None:
    merges = ["a0: &a0 {x: 1}"] + [
        f"a{n}: &a{n} {{k: *a{n - 1}, l: *a{n - 1}, <<: *a{n - 1}}}" for n in range(1, 60)
    ]
    texts = [f"a: &a {'x' * 640_000}", "b: [" + "*a, " * 200 + "]"]
    for lines in (merges, texts):
        assert "aliases written out" in problems("\n".join(lines))[-1][1]


def test_the_bound_counts_all_documents_of_a_file() -> None:
    document = "a: &a [x, x, x, x, x, x, x, x, x]\nb: &b [" + "*a, " * 100 + "]\nc: [" + "*b, " * 400 + "]\n"
    parsed = list(parse_yaml("---\n".join([document] * 4)))
    assert [each.root is None for each in parsed] == [False, False, True]


@pytest.mark.parametrize("opening", ["[", '{"a":', "- "])
def test_deep_nesting_is_a_problem(opening: str) -> None:
    [(_, message)] = problems(opening * 100_000)
    assert re.fullmatch(rf"line 1, column \d+: nested deeper than {MAX_NESTING} levels", message)


@pytest.mark.parametrize("levels", [MAX_NESTING + 1, 100_000])
@pytest.mark.parametrize(("opening", "closing"), ["[]", ('{"a":', "}")])
def test_deep_nesting_is_a_problem_in_json(opening: str, closing: str, levels: int) -> None:
    [parsed] = parse_json(opening * levels + ("1" if closing == "}" else "") + closing * levels)
    assert parsed.found == [("", f"nested deeper than {MAX_NESTING} levels")]
    assert parsed.root is None


def test_deep_nesting_by_aliases_is_a_problem() -> None:
    lines = ["a0: &a0 [x]"] + [f"a{n}: &a{n} [*a{n - 1}]" for n in range(1, 200)]
    [(_, message)] = problems("\n".join(lines))
    assert message == f"line {MAX_NESTING}, column 12: nested deeper than {MAX_NESTING} levels"


def test_the_deepest_nesting_that_is_allowed_is_read() -> None:
    assert read("[" * MAX_NESTING + "]" * MAX_NESTING)
    assert read("- " * MAX_NESTING + "x")
    assert read("[" * MAX_NESTING + "]" * MAX_NESTING, parse_json)


@pytest.mark.parametrize(
    ("text", "number", "start"),
    [
        ("a: [1\nb: c", 1, "line 2, column 2: "),
        ("a: 1\n---\nb: 'x", 2, "line 3, column 6: "),
        ("a: 1\n\tb: 2", 1, "line 2, column 1: "),
        ("a: b: c", 1, "line 1, column 5: "),
        ("a: ä\x07", 1, "line 1, column 5: the character U+0007 is not allowed"),
        ("a: 1\nä: \x7f", 1, "line 2, column 4: the character U+007F"),
        ("a: @x", 1, "line 1, column 4: "),
        ("%FOO\n", 1, "line "),
        ("a: !<\n", 1, "line 1, column "),
    ],
)
def test_a_syntax_error_has_its_place(text: str, number: int, start: str) -> None:
    *_, last = parse_yaml(text)
    assert last.root is None
    assert last.number == number
    assert last.found[-1][1].startswith(start)


def test_documents_before_a_syntax_error_are_read() -> None:
    first, second = parse_yaml("a: 1\na: 2\n---\nb: 1\nb: 2\nc: [")
    assert (first.root, len(first.found)) == ({"a": 1}, 1)
    assert (second.root, [message[:7] for _, message in second.found]) == (None, ["line 5,", "line 7,"])


@pytest.mark.parametrize(
    ("text", "place"),
    [
        *(
            (f'{{"a":\n{word}}}', "line 2, column 1")
            for word in ("nan", "True", "abc", "+1", ".5", "# x", "'x'")
        ),
        *((f'{{"a":\n{word}}}', "line 2, column 2") for word in ("01", "0x1")),
        ('{"a": }', "line 1, column 7"),
        ("[1] [2]", "line 1, column 5"),
        ('{}\n---\n\n{"a": "\t"}', "line 4, column 8"),
    ],
)
def test_broken_json_is_refused_with_its_place(text: str, place: str) -> None:
    *_, (path, message) = problems(text, parse_json)
    assert path == ""
    assert message.startswith(f"{place}: invalid JSON: ")


@pytest.mark.parametrize("word", ["NaN", "Infinity", "-Infinity", "1e999", str(2**63), "9" * 5000])
def test_numbers_that_are_not_finite_or_too_large_are_refused_in_json(word: str) -> None:
    text = f'{{"a": [{{"b": 1}}, {{"c d": {{"e": {word}}}}}]}}'
    assert problems(text, parse_json) == [('a[1]["c d"].e', "the number is too large, or not finite")]


def test_duplicate_keys_are_refused_in_json() -> None:
    text = '{"spec": [{}, {"x": 1, "y": {"a": 1, "a": 1, "a": 2}, "x": 3}], "spec": {"q": 1, "q": 1}}'
    assert problems(text, parse_json) == [("spec", "duplicate key"), ("spec.q", "duplicate key")]
    assert problems(text[: text.index("]")] + "]}", parse_json) == [
        ("spec[1].x", "duplicate key"),
        ("spec[1].y.a", "duplicate key"),
    ]


def test_json_documents_are_separated_as_in_yaml() -> None:
    text = '---\n{"a": "---"}\n---\r\n\n---\n[1,\n2]\n'
    assert [(each.number, each.root, each.found) for each in parse_json(text)] == [
        (1, {"a": "---"}, []),
        (2, [1, 2], []),
    ]


def test_the_number_of_problems_of_json_is_bounded() -> None:
    assert len(problems(f"[{'NaN,' * 2 * MAX_PROBLEMS} 1]", parse_json)) == MAX_PROBLEMS


LOADERS = [yaml.SafeLoader, yaml.CSafeLoader]
"""PyYAML without and with libyaml."""


@pytest.mark.parametrize("loader", LOADERS)
@given(text=st.text() | st.text(alphabet="ab:-[]{}&*<!?|>'\"#,% \n\t1", max_size=40))
@example(text='a: "\\UFFFFFFFF"')
@example(text='a: "\\ud800"')
@example(text="%YAML " + "9" * 5000 + ".1\n--- a")
@example(text="!<%ff> a")
@example(text="\ud800")
def test_no_text_makes_the_parser_raise(loader: type[yaml.SafeLoader], text: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(parsing, "_Loader", loader)
        for number, parsed in enumerate(parse_yaml(text), 1):
            assert parsed.number == number


@pytest.mark.parametrize("loader", LOADERS)
def test_both_parsers_read_the_same(loader: type[yaml.SafeLoader], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(parsing, "_Loader", loader)
    assert read("a: &a {x: 1, 'y': \"2\"}\nb: [*a, <<, ~, 1.5]\nc: {<<: *a}\nd: |\n  e\n  f\n") == {
        "a": {"x": 1, "y": "2"},
        "b": [{"x": 1, "y": "2"}, "<<", None, 1.5],
        "c": {"x": 1, "y": "2"},
        "d": "e\nf\n",
    }
    assert problems("a: 1\na: 2\n1: 2") == [
        ("", 'line 2, column 1: duplicate key "a", first in line 1'),
        ("", "line 3, column 1: found the number 1 as a key, expected a string; put it in quotes"),
    ]
    assert problems("[" * 1_000) == [
        ("", f"line 1, column {MAX_NESTING + 1}: nested deeper than {MAX_NESTING} levels")
    ]


def test_half_a_surrogate_pair_is_refused() -> None:
    for text, path in (('{"a": "\\ud83d"}', "a"), ('{"\\ud83d": 1}', '["\\ud83d"]')):
        assert problems(text, parse_json) == [(path, "half of a surrogate pair is not a character")]
