"""Header fields of a response or of trailers; malformed ones are a violation.

Source: RFC 9113, sections 8.2.1 (names and values), 8.2.2 (connection-specific fields) and 8.3
(pseudo-header fields); RFC 9110, section 5.5 (control characters in values).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

from gateway.http2.frames import PROTOCOL_ERROR, Violation

if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME: Final = re.compile(rb"[!#$%&'*+.^_`|~0-9a-z-]+")
_STATUS: Final = re.compile(rb"[1-5][0-9][0-9]")
_CONTROL: Final = re.compile(rb"[\x00-\x08\x0a-\x1f\x7f]")
"""The control characters other than HTAB."""
_CONNECTION_SPECIFIC: Final = frozenset(
    {b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"}
)
_SINGLE: Final = frozenset({b"content-type", b"grpc-status", b"grpc-message"})
"""Fields that must not be repeated."""


def read_fields(block: Iterable[tuple[bytes, bytes]], *, is_response: bool) -> dict[str, str]:
    """Return the fields of a *block* by name.

    Raises:
        Violation: a field is malformed. The text names the rule and the field, and contains no value.
    """
    fields: dict[bytes, bytes] = {}
    for name, value in block:
        if name == b":status":
            if not is_response:
                raise _malformed(":status in trailers")
            if fields:
                raise _malformed(":status after another field")
            if _STATUS.fullmatch(value) is None:
                raise _malformed(":status is not a status code of three digits")
        elif _NAME.fullmatch(name) is None:
            kind = "pseudo-header field" if name.startswith(b":") else "name of a field"
            raise _malformed(f"a {kind} that is not allowed")
        elif name in _CONNECTION_SPECIFIC:
            raise _malformed(f"the connection-specific field {name.decode()}")
        elif name in _SINGLE and name in fields:
            raise _malformed(f"more than one {name.decode()}")
        elif _CONTROL.search(value) is not None:
            raise _malformed(f"a control character in the value of {name[:50].decode()}")
        fields[name] = value
    if is_response and b":status" not in fields:
        raise _malformed("no :status")
    return {name.decode(): value.decode("latin-1") for name, value in fields.items()}


def _malformed(reason: str) -> Violation:
    return Violation(PROTOCOL_ERROR, f"malformed headers: {reason}")
