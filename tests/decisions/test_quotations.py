"""A value of the object is in no text that quotes it, whatever program quoted it."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.observe.decisions.quotations import (
    MAX_VALUES,
    MIN_CHARS,
    Quotations,
    _places,
    _plain,
    _unescaped,
    reduced,
)
from gateway.observe.decisions.redaction import MAX_MESSAGE_CHARS, NOT_SEARCHED, Redactor, mark
from tests.decisions.quoting import QUOTINGS, encoded

if TYPE_CHECKING:
    from collections.abc import Callable

_MARK = re.compile(r"\(redacted [0-9a-f]{8}\)")
AWKWARD = [
    'p"a\\ss\nwörd',
    'it\'s a "secret"',
    "C:\\new\\temp\\u0041",
    "100%41&lt;x&amp;",
    "пароль-секрет",
    "pässwörd\U0001f600x",
    "a\u0301e\u0301i\u0301o\u0301u\u0301y\u0301",
    "tab\tand\x00nul\x7f",
    "$(x) `y` ${z} !#*~",
    "%5Cn%2525abcdefgh",
    "+/+/abcd+/==",
    "line one\nline two\r\n  line three\n",
    "\\\\\\\\server\\share",
    "'''\"\"\"abcdef",
    "x" * 300,
    "".join(map(chr, range(32, 127))) * 3,
    "hunter2",
]
_CHARS = st.sampled_from("abcn0u x41\"'\\%&;#<>=+/-_,.:\n\t\réöñ中я\U0001f600\u0301")
VALUES = (
    st.sampled_from(AWKWARD) | st.text(_CHARS, min_size=6, max_size=40) | st.text(min_size=6, max_size=40)
)
BESIDE = st.sampled_from(["", "the value ", " is bad", "x=", "(", "] ", "é", "…", "\n", "7", "'", '"'])


def secret(value: str) -> dict[str, object]:
    return {"kind": "Secret", "metadata": {"name": "db"}, "data": {"a": encoded(value)}}


def redactor_of(document: object) -> Redactor:
    redactor = Redactor(secret_names=True)
    redactor.learn(document)
    return redactor


def is_text(value: str) -> bool:
    return not any("\ud800" <= char <= "\udfff" for char in value)


def left_of(value: str, found: str) -> str:
    """Return a part of *value* that *found* has; empty for none."""
    rest = reduced(_MARK.sub("\uffff", found))
    whole = reduced(value)
    parts = (whole[at : at + MIN_CHARS] for at in range(len(whole) - MIN_CHARS + 1))
    return next((part for part in parts if part in rest), "")


@pytest.mark.parametrize("quoting", QUOTINGS.values(), ids=QUOTINGS)
@pytest.mark.parametrize("value", AWKWARD)
def test_a_quoted_value_is_replaced(value: str, quoting: Callable[[str], str]) -> None:
    message = f"the value {quoting(value)} is bad"
    found = redactor_of(secret(value)).message(message)
    assert not left_of(value, found), (message, found)
    assert _MARK.search(found)
    assert quoting(value) not in found


@given(VALUES.filter(is_text), st.sampled_from(sorted(QUOTINGS)), BESIDE, BESIDE)
def test_no_value_is_left_in_any_form(value: str, name: str, before: str, after: str) -> None:
    assume(len(reduced(value)) >= MIN_CHARS)
    # Escaped like bytes, these cannot be told from one character in UTF-8.
    assume(not re.search("[\xc2-\xf4].*[\x80-\xbf]", value, re.DOTALL))
    message = f"{before}{QUOTINGS[name](value)}{after}"
    found = redactor_of(secret(value)).message(message)
    assert not left_of(value, found), (message, found)
    assert _MARK.search(found)


@given(st.text(_CHARS, max_size=60) | st.text(max_size=60))
def test_an_unescaped_text_is_the_same_with_places(text: str) -> None:
    for level, unescaped in enumerate(_unescaped(text)):
        seen, starts, ends = _places(text, level)
        assert seen == _plain(unescaped)
        assert len(seen) == len(starts) == len(ends)
        assert all(start < end for start, end in zip(starts, ends, strict=True))
        assert starts == sorted(starts)


@given(st.text(_CHARS, max_size=40), st.text(_CHARS, max_size=40), st.text(max_size=20))
def test_a_text_without_the_value_stays(text: str, more: str, value: str) -> None:
    quotations = Quotations()
    quotations.add(value)
    found = quotations.replaced(text + more, mark, is_message=False)
    assert (
        found == text + more or reduced(value) in reduced(text + more) or _plain(value) in _plain(text + more)
    )


# -- Short values, beginnings, and bounds ---------------------------------------------------------------


@pytest.mark.parametrize("value", ["ab1", "hunt", 'pa"s', "x\ny1", "né1", "1234"])
@pytest.mark.parametrize(
    "name", ["JSON", "JSON in JSON", "repr", "%q", "JSON by Go", "list", "map of Go", "CSV"]
)
def test_a_short_value_is_replaced_where_it_stands_apart(value: str, name: str) -> None:
    quoted = QUOTINGS[name](value)
    found = redactor_of(secret(value)).message(f"the value is {quoted}, which is bad")
    # The digest of a mark is another in each run, and may happen to contain the value.
    rest, marks = _MARK.subn("", found)
    assert marks == 1, found
    assert "redacted" not in rest
    assert value not in rest
    assert quoted not in rest


@pytest.mark.parametrize(
    "message",
    [
        "a Secret must have a label",
        "all or nothing: banana",
        "hunting season: shunt",
        "is true or false",
        "port 1 of 12345",
    ],
)
def test_short_values_do_not_destroy_messages(message: str) -> None:
    values = {"a": "a", "b": "or", "c": "hunt", "d": "true", "e": "1", "f": "1234", "g": "no"}
    document = {**secret("x"), "data": {name: encoded(value) for name, value in values.items()}}
    assert redactor_of(document).message(message) == message


def test_a_short_value_as_a_word() -> None:
    found = redactor_of(secret("hunt")).message("it is hunt, not shunt")
    assert found == f"it is {mark('hunt')}, not shunt"


@pytest.mark.parametrize("end", ["", "…", "...", '…"', " …)", "\\", "\\u00"])
@pytest.mark.parametrize("quoting", ["as it is", "JSON", "JSON in JSON", "URL", "Base64"])
def test_the_beginning_of_a_value_is_replaced_where_a_message_was_cut(quoting: str, end: str) -> None:
    value = 'correct "horse" battery\nstaple'
    quoted = QUOTINGS[quoting](value)
    for length in range(12, len(quoted)):
        found = redactor_of(secret(value)).message(f"bad value: {quoted[:length]}{end}")
        assert not left_of(value, found), found
        assert "correct" not in found


def test_a_value_at_the_cut_of_a_record_is_replaced() -> None:
    value = "correct horse battery staple"
    for padding in range(MAX_MESSAGE_CHARS - 30, MAX_MESSAGE_CHARS):
        found = redactor_of(secret(value))._record_message("." * padding + value)
        assert len(found) <= MAX_MESSAGE_CHARS
        assert "corr" not in found


def test_a_long_part_of_a_value_and_its_lines_are_replaced() -> None:
    lines = [f"line {number} of a long secret text, {number * 7919}" for number in range(40)]
    redactor = redactor_of(secret("\n".join(lines)))
    for message in ("\n".join(lines[:9]) + " and more", f"bad line: {lines[17]}!", json.dumps(lines[30:33])):
        assert "secret text" not in redactor.message(message)


def test_with_more_values_than_are_searched_messages_are_left_out() -> None:
    data = {f"key-{number}": encoded(f"value number {number}") for number in range(MAX_VALUES + 1)}
    assert redactor_of({"kind": "Secret", "data": data}).message("no value") == NOT_SEARCHED


def test_the_comparisons_with_values_are_bounded() -> None:
    data = {f"key-{number}": encoded("aaaa" * 10 + f"{number}") for number in range(200)}
    redactor = redactor_of({"kind": "Secret", "data": data})
    assert redactor.message(("aaaa" * 9 + "b ") * 200) == NOT_SEARCHED
    assert redactor.message("later") == NOT_SEARCHED
