"""Text → tokens of CEL.

Source: cel-go parser/gen/CEL.g4, parser/unescape.go.
"""

from __future__ import annotations

import re
from typing import Final, NamedTuple

from gateway.pure.cel.errors import InvalidExpression

_ESCAPE: Final = r"\\(?:[abfnrtv\"'\\?`]|[0-3][0-7]{2}|[xX][0-9a-fA-F]{2}|u[0-9a-fA-F]{4}|U[0-9a-fA-F]{8})"
_QUOTED: Final = "|".join(
    (
        r'[rR]"""(?s:.*?)"""',
        r"[rR]'''(?s:.*?)'''",
        r'[rR]"[^"\n\r]*"',
        r"[rR]'[^'\n\r]*'",
        rf'"""(?:{_ESCAPE}|[^\\])*?"""',
        rf"'''(?:{_ESCAPE}|[^\\])*?'''",
        rf'"(?:{_ESCAPE}|[^\\"\n\r])*"',
        rf"'(?:{_ESCAPE}|[^\\'\n\r])*'",
    )
)
# No part can match in two ways, so that matching takes linear time.
_TOKEN: Final = re.compile(
    rf"""(?P<space>(?:[\t \r\n\f]+|//[^\n]*)+)
    |(?P<bytes>[bB](?:{_QUOTED}))
    |(?P<string>{_QUOTED})
    |(?P<float>\d+\.\d+(?:[eE][+-]?\d+)?|\d+[eE][+-]?\d+|\.\d+(?:[eE][+-]?\d+)?)
    |(?P<uint>(?:0x[0-9a-fA-F]+|\d+)[uU])
    |(?P<int>0x[0-9a-fA-F]+|\d+)
    |(?P<name>[A-Za-z_][A-Za-z0-9_]*)
    |(?P<escaped>`[A-Za-z0-9_.\-/ ]+`)
    |(?P<symbol>==|!=|<=|>=|&&|\|\||[<>\[\]{{}}().,\-!?:+*/%])""",
    re.VERBOSE | re.ASCII,
)
_ESCAPES: Final = {"a": 7, "b": 8, "f": 12, "n": 10, "r": 13, "t": 9, "v": 11}


class Token(NamedTuple):
    """A token of the language."""

    kind: str
    """string, bytes, int, uint, float, name, escaped, symbol, or end."""
    text: str
    at: int


def tokens(text: str) -> list[Token]:
    """Return the tokens of *text*, the last of them of the kind end.

    Raises:
        CompileError: a character does not begin a token.
    """
    found = []
    at = 0
    while at < len(text):
        match = _TOKEN.match(text, at)
        if match is None:
            raise CompileError(f"syntax error: unexpected {text[at]!r}", at)
        if match.lastgroup != "space":
            found.append(Token(match.lastgroup or "", match[0], at))
        at = match.end()
    found.append(Token("end", "", at))
    return found


class CompileError(InvalidExpression):
    """An error at one position of an expression. The text does not have the position."""

    def __init__(self, problem: str, at: int) -> None:
        super().__init__(problem)
        self.at = at
        """In characters from the beginning."""


def unquote(text: str, *, is_bytes: bool) -> str:
    """Return the value of a literal. In that of a bytes literal each byte is a character below 256.

    *text* is the token, without the ``b`` of a bytes literal.

    Raises:
        ValueError: an escape is not a character.
    """
    text = text.replace("\r\n", "\n").replace("\r", "\n")
    is_raw = text[0] in "rR"
    if is_raw:
        text = text[1:]
    width = 3 if len(text) >= 6 and text[:3] in ('"""', "'''") else 1
    text = text[width:-width]

    def plain(part: str) -> str:
        return part.encode().decode("latin-1") if is_bytes else part

    if is_raw or "\\" not in text:
        return plain(text)
    parts = []
    at = 0
    for match in re.finditer(_ESCAPE, text):
        parts.append(plain(text[at : match.start()]))
        at = match.end()
        escape = match[0][1:]
        if escape[0] in "xX":
            parts.append(chr(int(escape[1:], 16)))
        elif escape[0] in "uU":
            code = int(escape[1:], 16)
            if is_bytes or code > 0x10FFFF or 0xD800 <= code <= 0xDFFF:
                raise ValueError(f"unable to unescape string: invalid unicode code point \\{escape}")
            parts.append(chr(code))
        elif escape[0].isdigit():
            parts.append(chr(int(escape, 8)))
        else:
            parts.append(chr(_ESCAPES[escape]) if escape in _ESCAPES else escape)
    parts.append(plain(text[at:]))
    return "".join(parts)
