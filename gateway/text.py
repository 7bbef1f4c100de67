"""Text from outside, made fit for a log, a terminal or an error message.

Every text that somebody else has written (a worker, a file, a cluster, a client) passes through this module
before a person reads it: no character of it may end a line, move the cursor or reorder what stands beside it.
"""

from __future__ import annotations

import difflib
import json
import re
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

_MORE: Final = "..."
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]*")
_AUTHORITY: Final = re.compile(r"(?:\[[0-9A-Fa-f:.%]*\]|[^:\[\]]*)(?::[0-9]*)?")


def printable(text: object, limit: int | None = 1000) -> str:
    """Return *text* in one line: what is not printable is escaped, and more than *limit* characters are cut.

    Escaped, as in a Python literal, are control characters (also C1 and DEL), line and paragraph separators,
    invisible characters, those that change the direction of writing, and lone surrogates: all that
    ``str.isprintable`` names. A *limit* of None cuts nothing.
    """
    found = str(text)
    if limit is not None:
        found = found[: limit + 1]
    if not found.isprintable():
        found = "".join(c if c.isprintable() else c.encode("unicode_escape").decode() for c in found)
    return found if limit is None or len(found) <= limit else found[: limit - len(_MORE)] + _MORE


def shown(value: object) -> str:
    """Return *value* for an error message: as JSON in one line, cut to 80 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return printable(text[:160], 80)


def described(value: object) -> str:
    """*value* with its type, for after "found"."""
    match value:
        case None | True | False:
            return shown(value)
        case int() | float():
            return f"the number {shown(value)}"
        case str():
            return f"the string {shown(value)}"
        case list():
            return "a list"
        case _:
            return "a mapping"


def one_of(names: Iterable[str]) -> str:
    """The *names* as an enumeration in prose."""
    listed = list(names)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} or {listed[-1]}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """``; did you mean "…"?`` with the known name closest to *name*, or nothing."""
    by_lower = {candidate.lower(): candidate for candidate in known}
    close = difflib.get_close_matches(name.lower()[:100], by_lower, n=1)
    return f'; did you mean "{by_lower[close[0]]}"?' if close else ""


def printable_json(text: str) -> str:
    """Return the JSON *text* with everything escaped that a terminal would not print; it means the same."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else json.dumps(c)[1:-1] for c in text)


def url_without_secrets(url: object) -> str:
    """Return *url* for a message: scheme, host, port and path, and a mark where something was left out.

    User information, query and fragment may hold a credential, and are not shown. The text need not be a
    valid URL: where the host cannot be told from user information, it is not shown either.

    Source: RFC 3986, section 3 (which character ends which part).
    """
    text = str(url)
    scheme, separator, rest = text.partition("://")
    if not separator or re.search(r"[/?#@]", scheme):
        scheme, separator, rest = ("", "//", text[2:]) if text.startswith("//") else ("", "", text)
    place = re.split(r"[?#]", rest, maxsplit=1)[0]
    authority = re.split(r"[/\\]", place, maxsplit=1)[0]
    host, path = authority.rpartition("@")[2], place[len(authority) :]
    # A "/", "?" or "#" in a password ends the authority early; the "@" behind the password comes later.
    if not _AUTHORITY.fullmatch(host) or "@" in rest[len(authority) :]:
        host, path = "…", ""
    user = "…@" if "@" in authority else ""
    return printable(f"{scheme}{separator}{user}{host}{path}{'?…' if len(place) < len(rest) else ''}", 500)


def without_url_secrets(text: str) -> str:
    """Return *text*, such as the message of a library's exception, with each URL in it as above."""
    return _URL.sub(lambda found: url_without_secrets(found[0]), text)
