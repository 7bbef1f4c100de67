"""Files with credentials: tokens, passwords, headers and keys, one a line or the whole file.

Messages contain nothing of their content.

Source: RFC 7617 for the colon of basic authentication.
"""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

from gateway.base.files import UnusableFileError

if TYPE_CHECKING:
    from collections.abc import Callable

_HEADER = re.compile(rb"([A-Za-z0-9!#$%&'*+.^_`|~-]+):[ \t]*[\x21-\x7e](?:[\x20-\x7e\t]*[\x21-\x7e])?")
"""RFC 9110 section 5, in ASCII."""
_OWN_HEADERS = (
    b"host",
    b"content-length",
    b"content-type",
    b"content-encoding",
    b"transfer-encoding",
    b"connection",
)
_LEAST_KEY_BYTES = 16


class NoCredentialError(UnusableFileError):
    """A file can be read and contains no credential."""


def bearer_tokens(content: bytes) -> list[bytes]:
    """Return the tokens in *content*, one per line; blank lines and lines with a leading # are skipped.

    Raises:
        UnusableFileError: there is none, or a line has several words.
    """
    return _credentials(content, lambda line: len(line.split()) == 1, "one token")


def basic_credentials(content: bytes) -> list[bytes]:
    """Return the ``user:password`` pairs in *content*, one per line, as :func:`bearer_tokens` does.

    Raises:
        UnusableFileError: there is none, or a line has no user.
    """
    return _credentials(content, lambda line: line.find(b":") > 0, "USER:PASSWORD")


def request_headers(content: bytes) -> dict[str, str]:
    """Return the headers in *content*, one ``NAME: VALUE`` per line, as :func:`bearer_tokens` does.

    Raises:
        UnusableFileError: there is none, or a line is not a header that a request may have besides its own.
    """

    def is_right(line: bytes) -> bool:
        found = _HEADER.fullmatch(line)
        return found is not None and found[1].lower() not in _OWN_HEADERS

    lines = _credentials(content, is_right, "NAME: VALUE of a header that may be set")
    pairs = (line.decode("ascii").split(":", 1) for line in lines)
    return {name: value.strip() for name, value in pairs}


def recording_key(content: bytes) -> bytes:
    """Return the key of the hashes in recordings: *content* without white space around it.

    Raises:
        UnusableFileError: it is too short to be a secret.
    """
    key = content.strip()
    if len(key) < _LEAST_KEY_BYTES:
        raise UnusableFileError(f"holds {len(key)} bytes, expected at least {_LEAST_KEY_BYTES} random ones")
    return key


def check_json_web_keys(content: bytes) -> None:
    """Check that *content* has a list of keys; those that cannot verify tokens are found where they are used.

    Raises:
        UnusableFileError: it has none.
    """
    try:
        match json.loads(content):
            case {"keys": [_, *_]}:
                return
    except (ValueError, RecursionError):
        pass
    raise UnusableFileError("holds no JSON Web Key Set")


def _credentials(content: bytes, is_right: Callable[[bytes], bool], expected: str) -> list[bytes]:
    found = []
    for number, line in enumerate(map(bytes.strip, content.splitlines()), 1):
        if line and not line.startswith(b"#"):
            if not is_right(line):
                raise UnusableFileError(f"line {number} is not {expected}")
            found.append(line)
    if not found:
        raise NoCredentialError("holds no credential")
    return found
