"""Kyverno's functions for JSON and gzip, within bounds that Kyverno does not have.

Source: github.com/kyverno/sdk extensions/cel/libs (json, gzip); Go encoding/json, compress/gzip.
"""

from __future__ import annotations

import json
import math
import re
import zlib
from base64 import b64encode
from typing import TYPE_CHECKING, Final

from gateway.pure.cel.errors import CostExceeded, EvaluationError
from gateway.pure.cel.functions import Function, function
from gateway.pure.cel.meter import EXCEEDED, MAX_TEXT, count_steps, count_text
from gateway.pure.cel.sizes import json_bytes
from gateway.pure.cel.times import format_timestamp
from gateway.pure.cel.values import Duration, Optional, Timestamp, TypeName, plain_double, show, type_name

if TYPE_CHECKING:
    from collections.abc import Callable

_LONGEST: Final = 1_000_000
"""Characters of a text that is parsed at once, and bytes that are decompressed."""
_PARSING: Final = 60
"""Steps for a character, which can be half a value."""
_LONGEST_NUMBER: Final = 10_000
_COMPRESSION: Final = 10
"""Steps for a byte."""
_PIECE: Final = 1 << 16
_MEMBER: Final = 1000
"""Steps of a member of a gzip file, beside its bytes."""
_HEADER: Final = 10
_GZIP: Final = 31
"""The window and the format of zlib."""
_ESCAPES: Final = re.compile(
    r"\\(?:u[dD][89abAB][0-9a-fA-F]{2}\\u[dD][c-fC-F][0-9a-fA-F]{2}|(u[dD][89a-fA-F][0-9a-fA-F]{2})|.)",
    re.DOTALL,
)
"""An escape in JSON. The group is half a surrogate pair."""
_IN_GO: Final = {
    float: "type conversion error from Double to 'string'",
    bytes: "type conversion error from Bytes to 'string'",
}
_HTML: Final = str.maketrans(
    {"<": "\\u003c", ">": "\\u003e", "&": "\\u0026", "\u2028": "\\u2028", "\u2029": "\\u2029"}
)


def _as_text(value: object) -> str:
    if not isinstance(value, str):
        usual = f"unsupported type conversion from '{type_name(value)}' to string"
        raise EvaluationError(_IN_GO.get(type(value), usual))
    return value


def _number(text: str) -> float:
    number = float(text) if len(text) <= _LONGEST_NUMBER else math.inf
    if math.isinf(number):
        what = f"number {text[:_LONGEST_NUMBER]}"
        raise EvaluationError(f"json: cannot unmarshal {what} into Go value of type float64")
    return number


def _no_number(text: str) -> object:
    raise EvaluationError(f"invalid character '{text[0]}' looking for beginning of value")


class _Decoder(json.JSONDecoder):
    def __init__(self) -> None:
        super().__init__(parse_int=_number, parse_float=_number, parse_constant=_no_number)


def _without_halves(text: str) -> str:
    if "\\" not in text:
        return text
    return _ESCAPES.sub(lambda found: "\\ufffd" if found[1] else found[0], text)


def first_value(body: bytes) -> object:
    """Return the JSON value with which *body* begins, as Go's decoder of a stream; None if there is none."""
    count_steps(len(body) * _PARSING)
    text = _without_halves(body.decode(errors="replace")).lstrip(" \t\r\n")
    try:
        return _Decoder().raw_decode(text)[0]
    except (json.JSONDecodeError, EvaluationError, RecursionError):
        return None


def _unmarshal(given: object) -> object:
    """Return the value of a JSON text, whose numbers are doubles."""
    text = _as_text(given)
    if len(text) > _LONGEST:
        problem = f"found {len(text)} characters of JSON, expected at most {_LONGEST}"
        raise EvaluationError(problem)
    count_steps(len(text) * _PARSING)
    try:
        return json.loads(_without_halves(text), cls=_Decoder)
    except json.JSONDecodeError as error:
        raise EvaluationError(_problem(text, error)) from None
    except RecursionError:
        raise EvaluationError("exceeded max depth") from None


def _problem(text: str, error: json.JSONDecodeError) -> str:
    if error.pos >= len(text.rstrip()) or error.msg.startswith("Unterminated"):
        return "unexpected end of JSON input"
    character = f"invalid character '{text[error.pos]}'"
    if error.msg == "Extra data":
        return f"{character} after top-level value"
    return f"{character} looking for beginning of value" if error.msg == "Expecting value" else character


def marshal(value: object) -> str:
    """Return *value* as JSON, as Go writes it: sorted keys, and escapes of what HTML has a meaning for."""
    size = json_bytes(value, MAX_TEXT)
    if size > MAX_TEXT:
        raise CostExceeded(EXCEEDED)
    count_steps(size * _PARSING)
    parts: list[str] = []
    _write(value, parts.append)
    text = "".join(parts)
    count_text(len(text), text)
    return text


def _write(value: object, write: Callable[[str], object]) -> None:
    if isinstance(value, Optional):
        value = value.value
    if isinstance(value, dict):
        separator = "{"
        if not all(isinstance(key, str) for key in value):
            kind = next(type_name(key) for key in value if not isinstance(key, str))
            problem = f"unsupported type conversion from '{kind}' to string"
            raise EvaluationError(f"json: failed to convert CEL map to native map: {problem}")
        for key in sorted(value, key=lambda key: key.encode()):
            write(f"{separator}{_quoted(key)}:")
            _write(value[key], write)
            separator = ","
        write("{}" if separator == "{" else "}")
    elif isinstance(value, list):
        separator = "["
        for each in value:
            write(separator)
            _write(each, write)
            separator = ","
        write("[]" if separator == "[" else "]")
    else:
        write(_scalar(value))


def _scalar(value: object) -> str:
    match value:
        case None | bool():
            return show(value)
        case int():
            return str(int(value))
        case float():
            return _double(value)
        case str():
            return _quoted(value)
        case bytes():
            return f'"{b64encode(value).decode()}"'
        case Timestamp():
            return _quoted(format_timestamp(value))
        case Duration(ns=ns):
            return str(ns)
        case TypeName(name=name):
            return _quoted(name)
    raise EvaluationError(f"json: unsupported type: {type_name(value)}")


def _double(value: float) -> str:
    if not math.isfinite(value):
        shown = "NaN" if math.isnan(value) else "+Inf" if value > 0 else "-Inf"
        raise EvaluationError(f"json: unsupported value: {shown}")
    if value and not 1e-6 <= abs(value) < 1e21:
        return repr(value).replace("e-0", "e-")
    return plain_double(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False).translate(_HTML)


def _compress(given: object) -> bytes:
    """Return the text *given*, compressed. The bytes are others than those of Go for the same text."""
    raw = _as_text(given).encode()
    count_steps(len(raw) * _COMPRESSION)
    compressor = zlib.compressobj(wbits=_GZIP)
    found = compressor.compress(raw) + compressor.flush()
    count_text(len(found))
    return found


def _decompress(raw: bytes) -> str:
    """Return the text of the gzip file *raw*, which can have several members."""
    count_steps(len(raw) * _COMPRESSION)
    if not raw:
        raise EvaluationError("EOF")
    pieces: list[bytes] = []
    size, rest = 0, raw
    while rest:
        if len(rest) < _HEADER:
            raise EvaluationError("unexpected EOF")
        count_steps(_MEMBER)
        member = zlib.decompressobj(wbits=_GZIP)
        while not member.eof:
            piece = _piece(member, rest)
            rest = member.unconsumed_tail
            size += len(piece)
            if size > _LONGEST:
                raise EvaluationError(f"found more than {_LONGEST} decompressed bytes")
            count_text(4 * len(piece))
            pieces.append(piece)
            if not piece and not rest and not member.eof:
                raise EvaluationError("unexpected EOF")
        rest = member.unused_data
    return b"".join(pieces).decode(errors="replace")


def _piece(member: zlib._Decompress, raw: bytes) -> bytes:
    try:
        return member.decompress(raw, _PIECE)
    except zlib.error as error:
        text = str(error)
        if "header" in text:
            raise EvaluationError("gzip: invalid header") from None
        is_sum = "data check" in text or "length check" in text
        raise EvaluationError("gzip: invalid checksum" if is_sum else "flate: corrupt input") from None


FUNCTIONS: Final[tuple[Function, ...]] = (
    # The variable before the dot costs one unit, too.
    function("unmarshal_string_dyn", "json.unmarshal(dyn) -> dyn", _unmarshal, 2),
    function("marshal_dyn_string", "json.marshal(dyn) -> string", marshal, 2),
    function("compress_any_bytes", "gzip.compress(dyn) -> bytes", _compress, 1),
    function("decompress_bytes_string", "gzip.decompress(bytes) -> string", _decompress, 1),
)
