"""Known values that a text quotes, in any of the ways in which programs write a value into a text.

A value is compared with a text after both are reduced: escapes of JSON, Go, Python, YAML, C, shells, URLs and
HTML are decoded, also several times over, and white space, quotation marks, backslashes, commas and plus
signs are left out. So it does not matter how often and by which program the value was quoted, which of its
characters were escaped, and where it was broken into lines. A value is also searched for in Base64, alone and
as a part of a longer text, in hexadecimal digits, as a list of bytes, and in the normal forms of Unicode.

A beginning of a value is found where the text ends, as a cut message does, and if it is long. A value with
fewer than ``MIN_CHARS`` reduced characters may be a word of ordinary text: it is found as a word of its own,
and with fewer than ``MIN_WORD`` characters only in quotation marks, after ``=`` or ``:``, or in a list.

Not found are a value that the program changed (in capitals, reversed, hashed, compressed, a later part of
it), the escapes of other languages, and more than ``_PASSES`` mixed levels of escapes.

The cost has bounds: ``MAX_VALUES``, the first ``_HEAD_CHARS`` of each value, and ``_MAX_COMPARISONS``.
"""

from __future__ import annotations

import base64
import html
import json
import re
import unicodedata
from bisect import bisect_left
from functools import cached_property, partial
from itertools import islice
from typing import TYPE_CHECKING, Final
from urllib.parse import quote

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    Form = Callable[[str], str]
    View = Callable[[str], str]
    Place = tuple[int, int]

MIN_CHARS: Final = 6
"""Reduced characters of a value that is found within words."""
MIN_WORD: Final = 4
"""Characters of a value that is found as a word."""
MAX_VALUES: Final = 256
_MAX_SHORT: Final = 64
_HEAD_CHARS: Final = 96
"""By so many characters a longer value is found; what follows is compared there."""
_LONG_PART: Final = 48
"""Reduced characters of the beginning of a value that is found anywhere."""
_MAX_COMPARISONS: Final = 20_000
"""With values at places of texts, each of some microseconds."""
_MAX_PARTS: Final = 512
"""Lines and other parts of all values, that are searched for by themselves."""
_LINE_CHARS: Final = 12
_LINE: Final = re.compile(
    r"(?P<line>[^\s#](?:[\w.\"'-]{0,99}[ \t]{0,9}[:=][ \t]{0,9}[\"']?(?P<assigned>[^\n]*[^\s,\"']))?[^\n]*)"
)
_FEW_HEADS: Final = 24
_PASSES: Final = 6
_COMMON: Final = frozenset({"true", "false", "null", "none", "yes", "no", "on", "off"})
"""Values that are not secrets, and are in many texts."""

_ESCAPE: Final = re.compile(
    r"""
    (?<!\\)\\+(?:
        U(?P<long>[0-9a-fA-F]{8}) | u\{(?P<braces>[0-9a-fA-F]{1,6})\}
        | (?P<units>u[0-9a-fA-F]{4}(?:\\+u[0-9a-fA-F]{4})*)
        | (?P<bytes>x[0-9a-fA-F]{2}(?:\\+x[0-9a-fA-F]{2})*)
        | (?P<octal>[0-3][0-7]{2}(?:\\+[0-3][0-7]{2})*)
        | (?P<control>[0abefnrtvNLP_])
    )
    | (?P<percent>(?:%(?:25)*[0-9a-fA-F]{2})+)
    | &(?:amp;)*(?P<entity>\#[0-9]{1,7}|\#[xX][0-9a-fA-F]{1,6}|[a-zA-Z][a-zA-Z0-9]{1,30});
    """,
    re.VERBOSE,
)
"""However many backslashes stand before it: each level of quoting doubles them."""
_CUT: Final = re.compile(
    r"(?:\\+(?:u[0-9a-fA-F]{0,3}|x[0-9a-fA-F]?)?|%[0-9a-fA-F]?|&#?\w{0,8}){0,2}[\s….)\]}>'\"]*\Z"
)
"""An incomplete escape, and what may stand after a cut."""
_AFTER_ESCAPE: Final = re.compile(r"(?:\\[0abefnrtv]|\\u[0-9a-fA-F]{4}|\\x[0-9a-fA-F]{2}|%[0-9a-fA-F]{2})\Z")
_LEFT_OUT: Final = "'\"`\\+,"
_DROP: Final = dict.fromkeys(
    [*map(ord, _LEFT_OUT), *range(0x20), *range(0x7F, 0xA0)]
    + [code for code in range(0x20, 0x3100) if chr(code).isspace()]
)
_DROPPED: Final = frozenset(map(chr, _DROP))
_OPENING: Final = frozenset("\"'`=:([{,>")
_CLOSING: Final = frozenset("\"'`)]},;.<&")


class TooManyComparisonsError(Exception):
    """A text resembles the values at too many places."""


def _decoded(found: re.Match[str]) -> str:
    kind = found.lastgroup
    text = found[0] if kind is None else found[kind]
    match kind:
        case "long" | "braces":
            code = int(text, 16)
            return chr(code) if code < 0x110000 else ""
        case "units":
            units = bytes.fromhex("".join(re.findall(r"u(....)", text)))
            return units.decode("utf-16-be", "surrogatepass")
        case "bytes":
            return _of_bytes(bytes.fromhex("".join(re.findall(r"x(..)", text))))
        case "octal":
            return _of_bytes(bytes(int(digits, 8) for digits in re.findall(r"\d{3}", text)))
        case "percent":
            return _of_bytes(bytes.fromhex("".join(re.findall(r"%(?:25)*([0-9a-fA-F]{2})", text))))
        case "entity" if text.startswith("#"):
            digits = text[1:].lower()
            code = int(digits[1:], 16) if digits.startswith("x") else int(digits)
            return chr(code) if code < 0x110000 else ""
        case "entity":
            return html.unescape(f"&{text};")
    return ""


def _of_bytes(found: bytes) -> str:
    """Return the text in UTF-8, and other bytes as characters."""
    text = found.decode(errors="surrogateescape")
    return text if text.isascii() else re.sub("[\udc80-\udcff]", lambda one: chr(ord(one[0]) - 0xDC00), text)


def _plain(text: str) -> str:
    return text.translate(_DROP)


def _unescaped(text: str) -> Iterator[str]:
    """Yield *text*, and what each level of escapes leaves of it."""
    yield text
    for _ in range(_PASSES):
        if "\\" not in text and "%" not in text and "&" not in text:
            return
        before, text = text, _ESCAPE.sub(_decoded, text)
        if before == text:
            return
        yield text


def reduced(text: str) -> str:
    """Return *text* without escapes, quotation marks and white space."""
    *_, last = _unescaped(text)
    return _plain(last)


def _places(text: str, levels: int) -> tuple[str, list[int], list[int]]:
    """Return *text* without *levels* of escapes, and where in *text* each character left begins and ends."""
    starts, ends = list(range(len(text))), list(range(1, len(text) + 1))
    for _ in range(levels):
        pieces: list[str] = []
        new_starts: list[int] = []
        new_ends: list[int] = []
        done = 0
        for found in _ESCAPE.finditer(text):
            begin, end = found.span()
            decoded = _decoded(found)
            pieces += text[done:begin], decoded
            new_starts += [*starts[done:begin], *[starts[begin]] * len(decoded)]
            new_ends += [*ends[done:begin], *[ends[end - 1]] * len(decoded)]
            done = end
        text = "".join((*pieces, text[done:]))
        starts, ends = [*new_starts, *starts[done:]], [*new_ends, *ends[done:]]
    kept = [index for index, char in enumerate(text) if char not in _DROPPED]
    return _plain(text), [starts[index] for index in kept], [ends[index] for index in kept]


# -- Forms of a value -----------------------------------------------------------------------------------


def _bytes_of(text: str) -> bytes:
    try:
        return text.encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return text.encode(errors="surrogatepass")


def _as_it_is(text: str) -> str:
    return text


def _base64(text: str) -> str:
    return base64.b64encode(_bytes_of(text)).decode().rstrip("=")


def _in_base64(text: str, offset: int) -> str:
    """Return what is the same in the Base64 of all texts with *text* after *offset* bytes, modulo 3."""
    data = _bytes_of(text)
    encoded = base64.b64encode(bytes(offset) + data).decode().rstrip("=")
    return encoded[offset + 1 if offset else 0 : -1 if (offset + len(data)) % 3 else None]


def _url_safe(form: Form, text: str) -> str:
    return form(text).replace("+", "-").replace("/", "_")


def _hexadecimal(text: str) -> str:
    return _bytes_of(text).hex()


def _in_capitals(text: str) -> str:
    return _hexadecimal(text).upper()


def _list_of_bytes(text: str) -> str:
    return ",".join(map(str, _bytes_of(text)))


_BASE64: Final[tuple[Form, ...]] = (_base64, *(partial(_in_base64, offset=offset) for offset in range(3)))
_ENCODINGS: Final[tuple[Form, ...]] = (
    *_BASE64,
    *(partial(_url_safe, form) for form in _BASE64),
    _hexadecimal,
    _in_capitals,
    _list_of_bytes,
)


def _as_utf_8(text: str) -> str:
    """Return *text* as it is read again if its characters below U+0100 were escaped like bytes."""
    return re.sub("[\x80-\xff]+", lambda found: _of_bytes(found[0].encode("latin-1")), text)


def _misread(text: str) -> str:
    """Return *text* as a program shows it that takes its UTF-8 for Latin-1."""
    return _bytes_of(text).decode("latin-1")


_SPELLINGS: Final[tuple[Form, ...]] = (
    _as_utf_8,
    _misread,
    *(partial(unicodedata.normalize, form) for form in ("NFC", "NFD", "NFKC", "NFKD")),
)


class _Needle:
    """A form of a value, as one view has it."""

    def __init__(self, value: str, form: Form, view: View) -> None:
        self.value = value
        self._form = form
        self._view = view
        self.head = view(form(value[:_HEAD_CHARS]))[:_HEAD_CHARS]
        if len(value) > _HEAD_CHARS and form is not _as_it_is:
            # The last characters depend on what follows.
            self.head = self.head[:-4]

    @cached_property
    def whole(self) -> str:
        """The whole value."""
        return self.head if len(self.value) <= _HEAD_CHARS else self._view(self._form(self.value))

    @cached_property
    def beginning(self) -> str:
        """What a text has where the value is found, unless the text ends there."""
        return self.whole[:_LONG_PART]

    def common(self, text: str, place: int) -> int:
        """Return how many characters of the value *text* has at *place*."""
        whole = self.whole
        if text.startswith(whole, place):
            return len(whole)
        most = min(len(whole), len(text) - place)
        return bisect_left(range(1, most + 1), 1, key=lambda end: text[place : place + end] != whole[:end])


def _short_forms(value: str) -> Iterator[str]:
    in_json = json.dumps(value)[1:-1]
    yield from (value, in_json, json.dumps(value, ensure_ascii=False)[1:-1], repr(value)[1:-1])
    yield from (value.replace("'", "''"), value.replace('"', '""'), html.escape(value))
    if not any("\ud800" <= char <= "\udfff" for char in value):
        yield quote(value, safe="")
    if not value.isalnum() or not value.isascii():
        yield re.sub(r"[<>&]", lambda found: f"\\u{ord(found[0]):04x}", in_json)
        yield re.sub(r"\\u[0-9a-f]{4}", lambda found: f"\\u{found[0][2:].upper()}", in_json)
        yield "".join(char if char.isprintable() else f"\\x{ord(char):02x}" for char in value)


class Quotations:
    """Values that are searched for in texts."""

    def __init__(self) -> None:
        self._values: set[str] = set()
        self._needles: dict[str, list[_Needle]] = {}
        """By their first ``MIN_CHARS`` characters."""
        self._known: set[tuple[str, str]] = set()
        self._short: dict[str, str] = {}
        """Forms of short values, with the value."""
        self._short_values = 0
        self._parts = 0
        self._comparisons = 0
        self.is_full = False
        """Whether there were more values than are searched for."""

    @property
    def is_empty(self) -> bool:
        """Whether there is nothing to search for."""
        return not self._needles and not self._short

    def add(self, value: str) -> None:
        """Search for *value* from now on."""
        if value in self._values or not value or value.lower() in _COMMON:
            return
        if len(self._values) >= MAX_VALUES:
            self.is_full = True
            return
        self._values.add(value)
        for form in (_as_it_is, *(() if value.isascii() else _SPELLINGS)):
            for view in (_plain, reduced):
                self._add(_Needle(value, form, view))
        for form in _ENCODINGS:
            self._add(_Needle(value, form, _plain))
        if len(reduced(value)) < MIN_CHARS:
            self._add_short(value)
        else:
            self._add_parts(value)

    def _add_parts(self, value: str) -> None:
        """Search for the longer lines of *value*, and for what a line has after ``NAME:`` or ``NAME=``."""
        for found in islice(_LINE.finditer(value), max(0, _MAX_PARTS - self._parts)):
            if len(found["line"]) >= _LINE_CHARS:
                self.add_part(found["line"])
            if found["assigned"]:
                self.add_part(found["assigned"])

    def add_part(self, text: str) -> None:
        """Search for *text*, which is a part of a value, but not in Base64 and the like."""
        if self._parts < _MAX_PARTS:
            self._parts += 1
            self._add(_Needle(text, _as_it_is, _plain))

    def _add(self, needle: _Needle) -> None:
        head = needle.head
        key = head, needle.value if len(needle.value) > _HEAD_CHARS else ""
        if len(head) >= MIN_CHARS and key not in self._known:
            self._known.add(key)
            self._needles.setdefault(head[:MIN_CHARS], []).append(needle)

    def _add_short(self, value: str) -> None:
        self._short_values += 1
        if self._short_values > _MAX_SHORT:
            self.is_full = True
            return
        for form in _short_forms(value):
            if form.strip():
                self._short.setdefault(form, value)

    def replaced(self, text: str, mark: Callable[[str], str], *, is_message: bool) -> str:
        """Return *text* with the mark of each value in its place.

        *is_message* is whether it is for people. In other texts short values and beginnings are not searched
        for: names and labels may be equal to them.

        Raises:
            TooManyComparisonsError: it would take too long.
        """
        if self.is_empty:
            return text
        spans: list[tuple[int, int, str]] = []
        for level, seen in enumerate(_unescaped(text)):
            if self._has_any(_plain(seen)):
                spans += self._spans(text, level, is_message=is_message)
        if is_message:
            spans += self._short_spans(text)
        if not spans:
            return text
        parts: list[str] = []
        done = 0
        for begin, end, value in sorted(spans):
            if begin >= done:
                parts += text[done:begin], mark(value)
            done = max(done, end)
        return "".join((*parts, text[done:]))

    def _has_any(self, seen: str) -> bool:
        needles = self._needles
        if len(needles) <= _FEW_HEADS:
            return any(head in seen for head in needles)
        return any(seen[place : place + MIN_CHARS] in needles for place in range(len(seen) - MIN_CHARS + 1))

    def _spans(self, text: str, level: int, *, is_message: bool) -> Iterator[tuple[int, int, str]]:
        """Yield begin and end of each value in *text*, and the value, below *level* levels of escapes."""
        seen, starts, ends = _places(text, level)
        is_cut_after = _length(text[: _cut_at(text)], level) if is_message else len(seen) + 1
        place = 0
        while place <= len(seen) - MIN_CHARS:
            length, value = 0, ""
            for needle in self._needles.get(seen[place : place + MIN_CHARS], ()):
                self._comparisons += 1
                if self._comparisons > _MAX_COMPARISONS:
                    raise TooManyComparisonsError
                # The usual case, in a tenth of the time.
                if place + _LONG_PART < is_cut_after and not seen.startswith(needle.beginning, place):
                    continue
                common = needle.common(seen, place)
                is_found = (
                    common == len(needle.whole) or common >= _LONG_PART or place + common >= is_cut_after
                )
                if is_found and common > length:
                    length, value = common, needle.value
            if length:
                yield starts[place], ends[place + length - 1], value
            place += max(1, length)

    def _short_spans(self, text: str) -> Iterator[tuple[int, int, str]]:
        for form, value in self._short.items():
            place = text.find(form)
            while place >= 0:
                end = place + len(form)
                if _is_apart(text, place, end, len(value)):
                    yield place, end, value
                place = text.find(form, end)


def _cut_at(text: str) -> int:
    """Return where *text* ends if what a cut may have left at its end is left out."""
    found = _CUT.search(text, max(0, len(text) - 64))
    return len(text) if found is None else found.start()


def _length(text: str, level: int) -> int:
    """Return the characters of *text* below *level* levels of escapes."""
    *_, last = islice(_unescaped(text), level + 1)
    return len(_plain(last))


def _is_apart(text: str, begin: int, end: int, length: int) -> bool:
    """Whether a value of *length* characters at *begin* stands apart from the words beside it."""
    before, after = text[begin - 1 : begin], text[end : end + 1]
    if length >= MIN_WORD:
        is_begin = not _is_in_word(before) or _AFTER_ESCAPE.search(text, max(0, begin - 6), begin) is not None
        return is_begin and not _is_in_word(after)
    opening = text[max(0, begin - 8) : begin].rstrip("\\")
    opening = (opening.removesuffix(" "))[-1:]
    closing = text[end : end + 8].lstrip("\\")[:1]
    if opening in ('"', "'", "`"):
        return closing == opening
    return opening in _OPENING and bool(opening) and (not closing.strip() or closing in _CLOSING)


def _is_in_word(char: str) -> bool:
    return char.isalnum() or char == "_"
