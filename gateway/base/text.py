"""Text for logs, terminals and error messages.

Every text of foreign origin (a worker, a file, a cluster, a client) passes through this module before a
person reads it: no character of it can end a line, move the cursor or reorder the text beside it.
"""

from __future__ import annotations

import difflib
import json
import re
from datetime import UTC, datetime
from functools import lru_cache
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterable

_LEAST_BEGINNING: Final = 3
"""The least characters of a name that say which one is meant."""
_URL: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*://[^\s'\"<>]*")
_AUTHORITY: Final = re.compile(r"(?:\[[0-9A-Fa-f:.%]*\]|[^:\[\]]*)(?::[0-9]*)?")


def shown(value: object) -> str:
    """Return *value* for an error message: as JSON in one line, cut to 80 characters."""
    text = json.dumps(value, ensure_ascii=False, default=str)
    return printable(text[:160], 80)


def described(value: object) -> str:
    """Return *value* with its type, to follow "found"."""
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
    """Return *names* as an enumeration in prose: ``a, b or c``."""
    listed = list(names)
    return listed[0] if len(listed) == 1 else f"{', '.join(listed[:-1])} or {listed[-1]}"


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """Return ``; did you mean "…"?`` with the known name closest to *name*, or nothing."""
    return meaning(closest(name, known))


def meaning(name: str) -> str:
    """Return ``; did you mean "…"?`` with *name*, or nothing if it is empty."""
    return f'; did you mean "{name}"?' if name else ""


def closest(name: str, known: Iterable[str]) -> str:
    """Return the name in *known* that is closest to *name*, or begins with it; empty if there is none.

    Upper and lower case are alike.
    """
    by_lower = {candidate.lower(): candidate for candidate in known}
    wanted = name.lower()[:100]
    close = difflib.get_close_matches(wanted, by_lower, n=1)
    close += [one for one in by_lower if len(wanted) >= _LEAST_BEGINNING and one.startswith(wanted)]
    return by_lower[close[0]] if close else ""


def endpoint_text(address: str, name: str) -> str:
    """Return the *address* of a worker for people, with the *name* that its pool knows for it, if any."""
    scheme, _, rest = address.partition(":")
    if scheme in ("unix", "unix-abstract"):
        return name or f"unix:…/{rest.rpartition('/')[2]}"
    shown = rest if scheme in ("ipv4", "ipv6") else address
    return f"{name} at {shown.rpartition(':')[0]}" if name else shown


def printable_json(text: str) -> str:
    """Return the JSON *text* with unprintable characters escaped; its value is the same."""
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else json.dumps(c)[1:-1] for c in text)


def url_without_secrets(url: object) -> str:
    """Return *url* for a message: scheme, host, port and path, with a mark for omitted parts.

    User information, query and fragment can contain credentials, and are omitted. The text need not be a
    valid URL: if the host cannot be separated from user information, it is omitted, too.

    Source: RFC 3986, section 3 (which character ends which part).
    """
    text = str(url)
    scheme, separator, rest = text.partition("://")
    if not separator or re.search(r"[/?#@]", scheme):
        scheme, separator, rest = ("", "//", text[2:]) if text.startswith("//") else ("", "", text)
    before_query = re.split(r"[?#]", rest, maxsplit=1)[0]
    authority = re.split(r"[/\\]", before_query, maxsplit=1)[0]
    host, path = authority.rpartition("@")[2], before_query[len(authority) :]
    # A "/", "?" or "#" in a password ends the authority early; then the "@" is in the rest.
    if not _AUTHORITY.fullmatch(host) or "@" in rest[len(authority) :]:
        host, path = "…", ""
    user = "…@" if "@" in authority else ""
    return printable(
        f"{scheme}{separator}{user}{host}{path}{'?…' if len(before_query) < len(rest) else ''}", 500
    )


def without_url_secrets(text: str) -> str:
    """Return *text*, such as a library's error message, with ``url_without_secrets`` of each URL."""
    return _URL.sub(lambda found: url_without_secrets(found[0]), text)


def rfc3339(seconds: float, digits: int = 0) -> str:
    """Return the time *seconds* after 1970 in UTC: 2026-01-02T03:04:05Z, with *digits* decimal places."""
    second = int(seconds)
    fraction = f".{int((seconds - second) * 10**digits):0{digits}d}" if digits else ""
    return f"{_of_second(second)}{fraction}Z"


def seconds_of(text: str) -> float:
    """Return the time *text*, as :func:`rfc3339` writes it, in seconds since 1970.

    Raises:
        ValueError: *text* is not such a time.
    """
    try:
        found = datetime.fromisoformat(text)
        if found.tzinfo is None:
            raise ValueError(f"{text} has no time zone")
        return found.timestamp()
    except OverflowError as error:
        raise ValueError(str(error)) from error


@lru_cache(2)
def _of_second(second: int) -> str:
    return datetime.fromtimestamp(second, UTC).strftime("%Y-%m-%dT%H:%M:%S")
