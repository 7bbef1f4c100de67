"""Reading of JSON that API servers send and orjson refuses.

A custom resource may have 10,000 levels, and orjson reads 1,024. Strings that are not Unicode are the
matter of ``admission_gateway_worker.json_patch.repair``. API servers send no numbers beyond a double.

Source: Go encoding/json (scanner.go, maxNestingDepth); tests/e2e/test_raw_json.py.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import orjson

from admission_gateway_worker.json_patch.steps import finish
from gateway.pure.core.large import NotJsonError, check_json

if TYPE_CHECKING:
    from collections.abc import Generator

MAX_LEVELS: Final = 10_400
"""Nested objects and arrays, checked at the beginning of a band. Go reads 10,000 of an object, and the review
adds its own."""

_BAND: Final = 400
"""Levels of a band; containers at its beginning may be read separately. orjson and msgspec read two bands."""

_SCANNED_AT_ONCE_BYTES: Final = 128 * 1024
_SCANNED_AT_ONCE_BRACKETS: Final = 8192
"""Each of these takes about five milliseconds at most."""

_REST_OF_TEXT: Final = re.compile(rb"(?:[^\"\\]++|\\.)*+", re.DOTALL)
_PLAIN: Final = rb'(?:[^"\[\]{}]++|"[^"\\]*+(?:\\.[^"\\]*+)*+")*+'
_BRACKET: Final = re.compile(
    # Skips containers without containers inside. No byte is tried more than twice, so the time is linear for
    # any text. The last alternative but one is a string that does not end within the searched range.
    rb"%b(?:(?:\[%b\]|\{%b\})%b)*+(?:([\[{])|([\]}])|(\")|\Z)" % (_PLAIN, _PLAIN, _PLAIN, _PLAIN),
    re.DOTALL,
)


def read_deep(text: bytes) -> object:
    """Return the value of the JSON *text*, with containers emptied that nest too deeply.

    At least the first 400 levels are complete. The removed parts are checked too. The time is linear.

    Raises:
        orjson.JSONDecodeError: not JSON, or more than ``MAX_LEVELS`` levels.
    """
    try:
        return orjson.loads(finish(pruned_in_steps(text)))
    except NotJsonError as error:
        raise orjson.JSONDecodeError(str(error), "", 0) from None


class _Container:
    """An object or array at the beginning of a band."""

    __slots__ = ("has_band", "offset")

    def __init__(self, offset: int) -> None:
        self.offset = offset
        """Where the container begins in the pruned text."""
        self.has_band = False
        """Whether another band begins inside the container."""


def pruned_in_steps(text: bytes) -> Generator[None, None, bytes]:
    """Return *text* with the containers emptied that begin a band and contain the beginning of the next.

    If *text* is not JSON or has more than ``MAX_LEVELS`` levels, the result is not JSON, or nests deeper than
    orjson reads. Yields between steps.

    Raises:
        NotJsonError: the content of an emptied container is not JSON.
    """
    pruned = bytearray()
    open_bands: list[_Container] = []
    level = done = 0
    for match in _brackets(text):
        if match is None:
            yield
        elif match[1]:
            level += 1
            if level % _BAND == 0:
                if level > MAX_LEVELS:
                    return text
                if open_bands:
                    open_bands[-1].has_band = True
                open_bands.append(_Container(len(pruned) - done + match.end() - 1))
        else:
            if level % _BAND == 0 and open_bands:
                container = open_bands.pop()
                if container.has_band:
                    pruned += text[done : match.end()]
                    done = match.end()
                    content = bytes(memoryview(pruned)[container.offset :])
                    yield from check_json(content)
                    pruned[container.offset :] = content[:1] + content[-1:]
            level -= 1
            if level < 0:
                return text
    return bytes(pruned + text[done:])


def _brackets(text: bytes) -> Generator[re.Match[bytes] | None, None, None]:
    """Yield the brackets of *text* that are not skipped, and None between steps."""
    offset = number = 0
    is_in_string = False
    while offset < len(text):
        begin, end = offset, offset + _SCANNED_AT_ONCE_BYTES
        if is_in_string:
            rest = _REST_OF_TEXT.match(text, begin, end)
            offset = rest.end() if rest else begin
            is_in_string = text[offset : offset + 1] != b'"'
            if is_in_string and end >= len(text):
                return
            offset += not is_in_string
        else:
            offset = end
            for match in _BRACKET.finditer(text, begin, end):
                if match[3]:
                    is_in_string, offset = True, match.end()
                    break
                if match.lastindex is None:
                    break
                yield match
                number += 1
                if number % _SCANNED_AT_ONCE_BRACKETS == 0:
                    yield None
        yield None
