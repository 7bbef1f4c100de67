"""The encoders of cel-go.

Source: cel-go ext/encoders.go; Go encoding/base64.
"""

from __future__ import annotations

import math
import re
from base64 import b64decode, b64encode
from typing import Final

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import Function, function
from gateway.pure.cel.meter import charge, count_reading, count_text

_DIGIT: Final = "[A-Za-z0-9+/]"
_PADDED: Final = re.compile(rf"(?:{_DIGIT}{{4}})*(?:{_DIGIT}{{3}}=|{_DIGIT}{{2}}==)?", re.ASCII)
_FOREIGN: Final = re.compile(r"[^A-Za-z0-9+/\r\n]", re.ASCII)


def _charge(value: str | bytes) -> None:
    charge(math.ceil(len(value) * 0.1))
    count_reading(value, 4)


def _decode(text: str) -> bytes:
    """Return the bytes of *text*, with or without padding; line breaks do not count."""
    _charge(text)
    count_text(len(text))
    digits = text.replace("\r", "").replace("\n", "")
    if _PADDED.fullmatch(digits):
        return b64decode(digits)
    foreign = _FOREIGN.search(text)
    if foreign is not None or len(digits) % 4 == 1:
        at = len(text) - 1 if foreign is None else len(text[: foreign.start()].encode())
        raise EvaluationError(f"illegal base64 data at input byte {at}")
    return b64decode(digits + "=" * (-len(digits) % 4))


def _encode(value: bytes) -> str:
    _charge(value)
    count_text(math.ceil(len(value) / 3) * 4)
    return b64encode(value).decode()


FUNCTIONS: Final[tuple[Function, ...]] = (
    function("base64_decode_string", "base64.decode(string) -> bytes", _decode, 1),
    function("base64_encode_bytes", "base64.encode(bytes) -> string", _encode, 1),
)
