"""Header fields: checks of those of a request, a response or trailers, and an encoder for a server.

Source: RFC 9113, sections 8.2.1 (names and values), 8.2.2 (connection-specific fields) and 8.3
(pseudo-header fields); RFC 9110, section 5.5 (control characters in values); RFC 7541, section 6.2.2.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.http2.frames import PROTOCOL_ERROR, Violation

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

    Pseudo = Mapping[bytes, tuple[re.Pattern[bytes], str]]
    """Pseudo-header fields: their valid values, and the term for these."""

_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""The control characters other than HTAB."""
_CONNECTION_SPECIFIC: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
_SINGLE: Final = frozenset({b"content-type", b"grpc-status", b"grpc-message"})
"""Fields that must not be repeated."""

RESPONSE: Final[Pseudo] = {b":status": (re.compile(rb"[1-5][0-9][0-9]"), "a status code of three digits")}
REQUEST: Final[Pseudo] = {
    b":method": (re.compile(rb"[A-Za-z]{1,32}"), "a method"),
    b":scheme": (re.compile(rb"[A-Za-z][A-Za-z0-9+.-]{0,31}"), "a scheme"),
    b":path": (re.compile(rb"[!-~]+"), "a path"),
    b":authority": (re.compile(rb"[!-~]*"), "an authority"),
}
TRAILERS: Final[Pseudo] = {}
_OPTIONAL: Final = frozenset({b":authority"})


def read_fields(block: Iterable[tuple[bytes, bytes]], pseudo: Pseudo) -> dict[str, str]:
    """Return the fields of a *block* by name; *pseudo* has the pseudo-header fields of its kind.

    Raises:
        Violation: a field is malformed. The text names the rule and the field, and contains no value.
    """
    fields: dict[bytes, bytes] = {}
    has_regular = False
    for name, value in block:
        if name in pseudo:
            if has_regular or name in fields:
                raise _malformed(f"{name.decode()} after another field")
            valid, what = pseudo[name]
            if valid.fullmatch(value) is None:
                raise _malformed(f"{name.decode()} is not {what}")
        else:
            has_regular = True
            _check_regular(name, value, fields)
        fields[name] = value
    for name in pseudo:
        if name not in fields and name not in _OPTIONAL:
            raise _malformed(f"no {name.decode()}")
    return {name.decode(): value.decode("latin-1") for name, value in fields.items()}


def _check_regular(name: bytes, value: bytes, fields: Mapping[bytes, bytes]) -> None:
    if _NAME.fullmatch(name) is None:
        kind = "pseudo-header field" if name.startswith(b":") else "name of a field"
        raise _malformed(f"a {kind} that is not allowed")
    if name in _CONNECTION_SPECIFIC or (name == b"te" and value != b"trailers"):
        raise _malformed(f"the connection-specific field {name.decode()}")
    if name in _SINGLE and name in fields:
        raise _malformed(f"more than one {name.decode()}")
    if _CONTROL.search(value) is not None:
        raise _malformed(f"a control character in the value of {name[:50].decode()}")


def _malformed(reason: str) -> Violation:
    return Violation(PROTOCOL_ERROR, f"malformed headers: {reason}")


def encode(*fields: tuple[bytes, bytes]) -> bytes:
    """Return a header block of literal fields, which needs no state of the connection."""
    return b"".join(b"\x00" + _text(name) + _text(value) for name, value in fields)


def _text(text: bytes) -> bytes:
    """Return a string literal with its length (RFC 7541, 5.1 and 5.2)."""
    length = len(text)
    if length < 0x7F:
        return bytes((length,)) + text
    encoded, length = bytearray((0x7F,)), length - 0x7F
    while length >= 0x80:
        encoded.append(length & 0x7F | 0x80)
        length >>= 7
    return bytes((*encoded, length)) + text
