"""The outline of a large review: the members that the gateway uses, without parsing the objects.

Parsing megabytes of JSON takes tenths of a second, nearly all of it for Python objects that are never used.
This module reads the JSON without making them, and accepts what orjson accepts. msgspec checks the syntax of
skipped parts, including escapes, but neither UTF-8 nor whether a number exceeds a double; these are checked
separately. Nesting is bounded a little below orjson's 1,024 levels: by the interpreter's recursion limit, or,
as newer interpreters do not apply it to C code, by a check of its own. ``gateway.pure.core.reading`` handles
deeper nesting, and strings that are not Unicode.

A review of 6 KB would gain nothing. With cold caches parsing it takes 25 us, and so does its outline: 7 us
for msgspec, the rest for the check of numbers.

Each function that reads the whole body is a generator, and yields after each reading, which takes tens of
milliseconds at most for 7 MiB.

Source: RFC 8259; orjson, whose errors define what is JSON.
"""

from __future__ import annotations

import codecs
import math
from functools import cache, cached_property
from itertools import accumulate
from typing import TYPE_CHECKING, Any, Final, TypeVar, cast

import msgspec
import orjson

from admission_gateway_worker.json_patch.patch import without_strings

if TYPE_CHECKING:
    from collections.abc import Generator

    Json = dict[str, Any]

LARGE_BYTES: Final = 64 * 1024
"""A longer body is large. Parsing a body of this length takes a millisecond or two."""

_NULL: Final = msgspec.Raw(b"null")
_PIECE_BYTES: Final = 1024 * 1024


_MAX_LEVELS: Final = 1000
_PIECE_BRACKETS: Final = 64 * 1024
"""These take five milliseconds."""

_OTHERS: Final = bytes(set(range(256)) - set(b"[]{}"))
_CHANGES: Final = {ord("["): 1, ord("{"): 1, ord("]"): -1, ord("}"): -1}

_Value = TypeVar("_Value")


class _Review(msgspec.Struct):
    kind: msgspec.Raw = _NULL
    apiVersion: msgspec.Raw = _NULL  # noqa: N815 - the field's name
    request: msgspec.Raw = _NULL


class _Request(msgspec.Struct, rename="camel"):
    uid: msgspec.Raw = _NULL
    kind: msgspec.Raw = _NULL
    resource: msgspec.Raw = _NULL
    sub_resource: msgspec.Raw = _NULL
    request_kind: msgspec.Raw = _NULL
    request_resource: msgspec.Raw = _NULL
    request_sub_resource: msgspec.Raw = _NULL
    name: msgspec.Raw = _NULL
    namespace: msgspec.Raw = _NULL
    user_info: msgspec.Raw = _NULL
    operation: msgspec.Raw = _NULL
    dry_run: msgspec.Raw = _NULL
    object: msgspec.Raw = _NULL
    old_object: msgspec.Raw = _NULL


class _Named(msgspec.Struct):
    group: msgspec.Raw = _NULL
    version: msgspec.Raw = _NULL
    kind: msgspec.Raw = _NULL
    resource: msgspec.Raw = _NULL
    username: msgspec.Raw = _NULL


class _Object(msgspec.Struct):
    metadata: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET


class _Metadata(msgspec.Struct, rename="camel"):
    labels: msgspec.Raw = _NULL
    name: msgspec.Raw = _NULL
    generate_name: msgspec.Raw = _NULL


_ANY: Final = msgspec.json.Decoder(msgspec.Raw)
_REVIEW: Final = msgspec.json.Decoder(_Review)
_REQUEST: Final = msgspec.json.Decoder(_Request)
_NAMED: Final = msgspec.json.Decoder(_Named)
_OBJECT: Final = msgspec.json.Decoder(_Object)
_METADATA: Final = msgspec.json.Decoder(_Metadata)

_EXTREME: Final = (
    rb'(?s)\A(?:[^"]|"(?:[^"\\]|\\.)*")*?[\[:,\s]-?'
    rb"(?:[0-9]{200,}(?:\.[0-9]+)?(?:[eE][-+]?[0-9]+)?|[0-9]+(?:\.[0-9]+)?[eE]\+?[0-9]{3,})"
)
"""The text up to the end of the first number, outside of strings, that may exceed a double."""


class NotJsonError(ValueError):
    """The bytes are not the JSON of an object, or nest too deeply to be read here; the text is the reason."""

    def __init__(self, reason: str, *, is_deep: bool = False) -> None:
        super().__init__(reason)
        self.is_deep = is_deep


class Outline:
    """The members of a large request that the gateway uses, without parsed objects."""

    def __init__(self, request: _Request) -> None:
        names = zip(_Request.__struct_fields__, _Request.__struct_encode_fields__, strict=True)
        self.head: Json = {
            name: (_scalar if field.endswith("object") else _outlined)(getattr(request, field))
            for field, name in names
        }
        """The members of the request; objects and arrays are empty, except for kinds, resources and the
        name of the user."""
        self._object = request.object
        self._old_object = request.old_object
        self._user_info = request.user_info

    @cached_property
    def object(self) -> Json | None:
        """The object with only its labels and names; without ``metadata`` if it has none."""
        return _labelled(self._object)

    @cached_property
    def old_object(self) -> Json | None:
        """The old object with only its labels and names."""
        return _labelled(self._old_object)

    @cached_property
    def user_info(self) -> Any:  # noqa: ANN401 - any JSON
        """The user and the groups of the request, parsed."""
        return orjson.loads(memoryview(self._user_info))

    def fresh_object(self) -> Json | None:
        """Return the whole object, parsed."""
        return cast("Json | None", orjson.loads(memoryview(self._object)))


def open_review(body: bytes) -> Generator[None, None, tuple[Json, bytes]]:
    """Return the AdmissionReview in *body*, with an empty request, and the request's JSON.

    Raises:
        NotJsonError: it is not JSON, or no object, or nests too deeply.
    """
    review = _decode(_REVIEW, body)
    yield from _check(body)
    head: Json = {"kind": _scalar(review.kind), "apiVersion": _scalar(review.apiVersion)}
    return {**head, "request": _scalar(review.request)}, bytes(memoryview(review.request))


def outline_request(json: bytes) -> Generator[None, None, Outline]:
    """Return the outline of the request *json*, after checking all of it.

    Raises:
        NotJsonError: it is not JSON, or no object, or nests too deeply.
    """
    request = _decode(_REQUEST, json)
    yield from _check(json)
    return Outline(request)


def check_json(json: bytes) -> Generator[None, None, None]:
    """Check that *json* is one JSON value of any type.

    Raises:
        NotJsonError: it is not, or nests too deeply.
    """
    _decode(_ANY, json)
    yield from _check(json)


def _decode(decoder: msgspec.json.Decoder[_Value], json: bytes) -> _Value:
    try:
        return decoder.decode(json)
    except msgspec.DecodeError as error:
        raise NotJsonError(str(error)) from None
    except RecursionError:
        raise NotJsonError("it nests too deeply", is_deep=True) from None


def _check(json: bytes) -> Generator[None, None, None]:
    """Check what msgspec does not check."""
    yield
    if not _IS_BOUNDED:
        yield from _check_levels(json)
    if not json.isascii():
        _check_utf8(json)
        yield
    yield from _check_numbers(json)


def _is_bounded() -> bool:
    """Whether msgspec refuses deep nesting."""
    try:
        _ANY.decode(b"[" * _MAX_LEVELS + b"]" * _MAX_LEVELS)
    except RecursionError:
        return True
    return False


_IS_BOUNDED: Final = _is_bounded()


def _check_levels(json: bytes) -> Generator[None, None, None]:
    brackets = without_strings(json).translate(None, _OTHERS)
    level = 0
    for begin in range(0, len(brackets), _PIECE_BRACKETS):
        yield
        changes = map(_CHANGES.__getitem__, brackets[begin : begin + _PIECE_BRACKETS])
        levels = list(accumulate(changes, initial=level))
        if max(levels) > _MAX_LEVELS:
            raise NotJsonError("it nests too deeply", is_deep=True)
        level = levels[-1]
    yield


def _check_utf8(json: bytes) -> None:
    decoder = codecs.getincrementaldecoder("utf-8")()
    try:
        for begin in range(0, len(json), _PIECE_BYTES):
            decoder.decode(json[begin : begin + _PIECE_BYTES])
        decoder.decode(b"", final=True)
    except UnicodeDecodeError as error:
        raise NotJsonError(f"it is not UTF-8: {error.reason}") from None


@cache
def _extreme() -> Any:  # noqa: ANN401 - re2 has no types
    # Imported late: re2 takes 2 MiB, and small reviews do not need it.
    import re2

    options = re2.Options()
    options.encoding = re2.Options.Encoding.LATIN1
    return re2.compile(_EXTREME, options)


def _check_numbers(json: bytes) -> Generator[None, None, None]:
    """Raise NotJsonError if a number is too large; yield after each that may be."""
    rest, extreme = memoryview(json), _extreme()
    while (found := extreme.match(rest)) is not None:
        number = _last_number(rest[: found.end()])
        if math.isinf(float(number)):
            raise NotJsonError(f"number out of range: {number[:40].decode()}")
        rest = rest[found.end() :]
        yield
    yield


def _last_number(text: memoryview) -> bytes:
    """Return the number at the end of *text*."""
    size = 64
    while True:
        tail = bytes(text[-size:])
        before = tail.rstrip(b"-+.0123456789eE")
        if before or size >= len(text):
            return tail[len(before) :]
        size *= 8


def _outlined(raw: msgspec.Raw) -> object:
    """Return the value of *raw*; of an object only the members of ``_Named``, an array as empty."""
    if not _is_object(raw):
        return _scalar(raw)
    named = _NAMED.decode(raw)
    members = {name: _scalar(getattr(named, name)) for name in _Named.__struct_fields__}
    return {name: value for name, value in members.items() if value is not None}


def _is_object(raw: msgspec.Raw) -> bool:
    return bytes(memoryview(raw)[:1]) == b"{"


def _scalar(raw: msgspec.Raw) -> object:
    match bytes(memoryview(raw)[:1]):
        case b"{":
            return {}
        case b"[":
            return []
        case _:
            try:
                return orjson.loads(memoryview(raw))
            except orjson.JSONDecodeError as error:
                raise NotJsonError(str(error)) from None


def _labelled(raw: msgspec.Raw) -> Json | None:
    if not _is_object(raw):
        return None
    metadata = _OBJECT.decode(raw).metadata
    if isinstance(metadata, msgspec.UnsetType):
        return {}
    if not _is_object(metadata):
        return {"metadata": None}
    found = _METADATA.decode(metadata)
    names = {"name": _scalar(found.name), "generateName": _scalar(found.generate_name)}
    return {"metadata": {"labels": orjson.loads(memoryview(found.labels)), **names}}
