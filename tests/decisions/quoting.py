"""The ways in which programs write a value into a text."""

from __future__ import annotations

import base64
import html
import json
import re
import shlex
import textwrap
import unicodedata
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, quote_plus

import yaml

if TYPE_CHECKING:
    from collections.abc import Callable


def go_json(value: str) -> str:
    """Return *value* as Go's encoding/json writes it."""
    written = json.dumps(value, ensure_ascii=False)
    return re.sub("[<>&\u2028\u2029]", lambda found: f"\\u{ord(found[0]):04x}", written)


def go_quoted(value: str) -> str:
    """Return *value* as Go's ``%q`` writes it."""
    named = {7: "a", 8: "b", 9: "t", 10: "n", 11: "v", 12: "f", 13: "r", 34: '"', 92: "\\"}

    def written(char: str) -> str:
        code = ord(char)
        if code in named:
            return f"\\{named[code]}"
        if char.isprintable():
            return char
        return f"\\x{code:02x}" if code < 0x80 else f"\\u{code:04x}" if code < 0x10000 else f"\\U{code:08x}"

    return f'"{"".join(map(written, value))}"'


def upper_hex(value: str) -> str:
    return re.sub(r"\\u[0-9a-f]{4}", lambda found: f"\\u{found[0][2:].upper()}", json.dumps(value))


def all_escaped(value: str) -> str:
    units = value.encode("utf-16-be")
    pairs = zip(units[::2], units[1::2], strict=True)
    return '"' + "".join(f"\\u{high:02x}{low:02x}" for high, low in pairs) + '"'


def octal(value: str) -> str:
    return '"' + "".join(f"\\{byte:03o}" for byte in value.encode()) + '"'


def ansi_c(value: str) -> str:
    return f"$'{value.encode('unicode_escape').decode().replace(chr(39), chr(92) + chr(39))}'"


def shell_escaped(value: str) -> str:
    return re.sub(r"([^\w\n])", r"\\\1", value)


def wrapped(text: str, indent: str = "    ") -> str:
    return f"\n{indent}".join(text[at : at + 20] for at in range(0, len(text), 20))


def encoded(value: str) -> str:
    return base64.b64encode(value.encode()).decode()


QUOTINGS: Final[dict[str, Callable[[str], str]]] = {
    "as it is": str,
    "JSON": json.dumps,
    "JSON, not only ASCII": lambda value: json.dumps(value, ensure_ascii=False),
    "JSON, capitals": upper_hex,
    "JSON, everything escaped": all_escaped,
    "JSON by Go": go_json,
    "JSON in JSON": lambda value: json.dumps(json.dumps({"password": value})),
    "JSON in JSON in JSON": lambda value: json.dumps(json.dumps(json.dumps([value]))),
    "%q": go_quoted,
    "%q of JSON": lambda value: go_quoted(go_json(value)),
    "repr": repr,
    "repr of repr": lambda value: repr(repr(value)),
    "repr of bytes": lambda value: repr(value.encode()),
    "repr of JSON": lambda value: repr(json.dumps({"a": [value]})),
    "JSON of repr": lambda value: json.dumps(repr({"a": value})),
    "ascii": ascii,
    "list": lambda value: repr(["a", value, "b"]),
    "list in JSON": lambda value: json.dumps(["a", value, "b"], indent=1),
    "map of Go": lambda value: f"map[a:b password:{value}]",
    "YAML, double quotes": lambda value: yaml.safe_dump(value, default_style='"', width=30),
    "YAML, double quotes, not only ASCII": lambda value: yaml.safe_dump(
        {"a": {"b": value}}, default_style='"', allow_unicode=True, width=30
    ),
    "YAML, single quotes": lambda value: yaml.safe_dump({"a": value}, default_style="'", width=30),
    "YAML, plain": lambda value: yaml.safe_dump({"a": value}, allow_unicode=True),
    "YAML, literal": lambda value: yaml.safe_dump({"a": value}, default_style="|"),
    "YAML, folded": lambda value: yaml.safe_dump({"a": value}, default_style=">", width=30),
    "URL": lambda value: quote(value, safe=""),
    "URL, path": quote,
    "URL, query": quote_plus,
    "URL, small hexadecimal digits": lambda value: re.sub(
        "%..", lambda found: found[0].lower(), quote(value)
    ),
    "URL twice": lambda value: quote(quote(value)),
    "shell": shlex.quote,
    "shell, backslashes": shell_escaped,
    "shell, $'…'": ansi_c,
    "shell in JSON": lambda value: json.dumps(f"--password={shlex.quote(value)}"),
    "HTML": html.escape,
    "HTML twice": lambda value: html.escape(html.escape(value)),
    "HTML, decimal": lambda value: "".join(f"&#{ord(char)};" for char in value),
    "HTML, hexadecimal": lambda value: "".join(f"&#x{ord(char):X};" for char in value),
    "HTML of JSON": lambda value: html.escape(json.dumps(value)),
    "JSON of HTML": lambda value: go_json(html.escape(value)),
    "octal": octal,
    "CSV": lambda value: '"{}"'.format(value.replace('"', '""')),
    "Base64": encoded,
    "Base64 for URLs": lambda value: base64.urlsafe_b64encode(value.encode()).decode().rstrip("="),
    "Base64 in lines": lambda value: wrapped(encoded(value)),
    "Base64 in JSON": lambda value: json.dumps({"data": {"a": encoded(value)}}),
    "Base64 of more": lambda value: encoded(f"é a longer text with {value}, of some length"),
    "Base64 of more, shifted": lambda value: encoded(f"a longer text with {value}, of some length"),
    "Base64 of more, shifted again": lambda value: encoded(f"  longer text with {value}, of some length"),
    "hexadecimal": lambda value: value.encode().hex(),
    "hexadecimal capitals": lambda value: value.encode().hex().upper(),
    "bytes of Go": lambda value: str(list(value.encode())).replace(",", ""),
    "bytes in JSON": lambda value: json.dumps(list(value.encode())),
    "lines": wrapped,
    "lines with backslashes": lambda value: wrapped(value, "\\\n  "),
    "lines of a comment": lambda value: textwrap.indent(wrapped(value, ""), "  "),
    "lines in JSON": lambda value: json.dumps(wrapped(value)),
    "joined texts": lambda value: "'\n '".join(["'" + value[:3], value[3:] + "'"]),
    "UTF-8 as Latin-1": lambda value: value.encode().decode("latin-1"),
    "UTF-8 as Latin-1 in JSON": lambda value: json.dumps(value.encode().decode("latin-1")),
    "NFC": lambda value: unicodedata.normalize("NFC", value),
    "NFD": lambda value: unicodedata.normalize("NFD", value),
    "NFD in JSON": lambda value: json.dumps(unicodedata.normalize("NFD", value)),
}
