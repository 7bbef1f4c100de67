"""The URL functions of Kubernetes: the part of Go's net/url that expressions use.

Go works on bytes. Here a URL is parsed as text in which every byte is one character (Latin-1); results are
UTF-8 again.

Source: k8s.io/apiserver pkg/cel/library/urls.go; Go net/url url.go.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass, field
from typing import ClassVar, Final
from urllib.parse import quote_from_bytes, unquote_to_bytes

from gateway.pure.cel.errors import CostExceeded, EvaluationError
from gateway.pure.cel.functions import function
from gateway.pure.cel.libraries.addresses import parse_address
from gateway.pure.cel.meter import EXCEEDED, charge, count_steps
from gateway.pure.cel.values import quoted

_UNRESERVED: Final = r"A-Za-z0-9_.~\-"
_IN_PATH: Final = "$&+,/:;=@"
_IN_FRAGMENT: Final = "$&+,/:;=?@!()*"
_ALSO_VALID: Final = rf"{_UNRESERVED}!$&'()*+,;=:@\[\]%"
_IN_HOST: Final = _UNRESERVED + r"!$&'()*+,;=:\[\]<>" + '"'

_BAD_ESCAPE: Final = re.compile("%(?![0-9A-Fa-f]{2})")
_BAD_HOST: Final = re.compile(f"%(?!25)[0-7]|[^%{_IN_HOST}\x80-\xff]")
_BAD_ZONE: Final = re.compile(f"[^%{_IN_HOST}\x80-\xff]")
_CONTROL: Final = re.compile("[\x00-\x1f\x7f]")
_SCHEME: Final = re.compile("([A-Za-z][A-Za-z0-9+.-]*):")
_USER: Final = re.compile(r"[A-Za-z0-9._:~!$&'()*+,;=%@-]*")
_PORT: Final = re.compile("(?::[0-9]*)?")
_PARSING: Final = 2500
_CHARACTER: Final = 50
"""Steps to parse a URL, and each of its characters."""
_LONGEST: Final = 1_000_000
"""Characters of a URL. The cost of a longer one exceeds the limit."""
_MAX_PARAMETERS: Final = 10_000
"""With more parameters net/url parses none (defaultMaxParams)."""


class _Invalid(Exception):
    """Not a URL; the text is the reason."""


@dataclass(frozen=True, slots=True)
class Url:
    """A parsed URL. Two are equal if their parts are, in the form in which they are put together again."""

    cel_type: ClassVar[str] = "kubernetes.URL"
    scheme: str
    opaque: str
    user: tuple[str, ...] | None
    host: str
    path: str
    """Escaped."""
    query: str | None
    """As written; None if there is no question mark."""
    fragment: str
    """Escaped."""
    parameters: dict[str, list[str]] = field(compare=False)

    @property
    def comparison_steps(self) -> int:
        """Steps to compare it with another URL."""
        parts = (*(self.user or ()), self.opaque, self.host, self.path, self.query or "", self.fragment)
        return sum(map(len, parts)) >> 5


def _parse(text: str, *, as_request: bool) -> Url:
    """Return the URL. With *as_request* it is checked as a request's target; path and query are empty."""
    _count(text)
    raw = text.encode().decode("latin-1")
    fragment = ""
    if not as_request:
        raw, _, fragment = raw.partition("#")
    if _CONTROL.search(raw):
        raise _Invalid("net/url: invalid control character in URL")
    if not raw and as_request:
        raise _Invalid("empty url")
    _check_escapes(fragment)
    fragment = _escaped(fragment, _IN_FRAGMENT)
    if raw == "*":
        return Url("", "", None, "", "*", None, fragment, {})
    if raw.startswith(":"):
        raise _Invalid("missing protocol scheme")
    found = _SCHEME.match(raw)
    scheme, rest = (found[1].lower(), raw[found.end() :]) if found else ("", raw)
    rest, mark, query = rest.partition("?")
    given = query if mark else None
    parameters = {} if as_request else _parameters(query)
    user: tuple[str, ...] | None = None
    host = ""
    if not rest.startswith("/"):
        if scheme:
            return Url(scheme, _text(rest), None, "", "", given, fragment, parameters)
        if as_request:
            raise _Invalid("invalid URI for request")
        if ":" in rest.partition("/")[0]:
            raise _Invalid("first path segment in URL cannot contain colon")
    if rest.startswith("//") and (scheme or (not as_request and not rest.startswith("///"))):
        authority, slash, rest = rest[2:].partition("/")
        rest = slash + rest
        user, host = _authority(scheme, authority)
    _check_escapes(rest)
    if as_request:
        return Url(scheme, "", user, host, "", None, "", {})
    return Url(scheme, "", user, _text(host), _text(_escaped(rest, _IN_PATH)), given, fragment, parameters)


def _count(text: str) -> None:
    count_steps(_PARSING + len(text) * _CHARACTER)
    if len(text) > _LONGEST:
        raise CostExceeded(EXCEEDED)


def _authority(scheme: str, authority: str) -> tuple[tuple[str, ...] | None, str]:
    user, mark, host = authority.rpartition("@")
    parsed = _host(scheme, host)
    if not mark:
        return None, parsed
    if not _USER.fullmatch(user):
        raise _Invalid("net/url: invalid userinfo")
    _check_escapes(user)
    return tuple(_unescaped(part) for part in user.split(":", 1)), parsed


def _host(scheme: str, host: str) -> str:
    bracket = host.rfind("[")
    if bracket > 0:
        raise _Invalid("invalid IP-literal")
    if bracket == 0:
        name, closed, port = host[1:].rpartition("]")
        if not closed:
            raise _Invalid("missing ']' in host")
        if not _PORT.fullmatch(port):
            raise _Invalid(f'invalid port "{port}" after host')
        before, mark, zone = name.partition("%25")
        plain = _unescaped_host(before, _BAD_HOST) + _unescaped_host(mark + zone, _BAD_ZONE)
        address = parse_address(plain)
        if address is None or len(address.packed) == 4:
            raise _Invalid("invalid IP-literal")
        return f"[{plain}]{port}"
    # Only http and https are strict about a second colon (go.dev/issue/75223, 78077).
    at = host.find(":") if scheme in ("http", "https") else host.rfind(":")
    if at >= 0 and not _PORT.fullmatch(host, at):
        raise _Invalid(f'invalid port "{host[at:]}" after host')
    return _unescaped_host(host, _BAD_HOST)


def _unescaped_host(host: str, bad: re.Pattern[str]) -> str:
    _check_escapes(host)
    found = bad.search(host)
    if found:
        if found[0].startswith("%"):
            raise _Invalid(f'invalid URL escape "{host[found.start() : found.start() + 3]}"')
        raise _Invalid(f"invalid character {quoted(_text(found[0]))} in host name")
    return _unescaped(host)


def _check_escapes(text: str) -> None:
    found = _BAD_ESCAPE.search(text)
    if found:
        raise _Invalid(f'invalid URL escape "{text[found.start() : found.start() + 3]}"')


def _unescaped(text: str) -> str:
    return unquote_to_bytes(text.encode("latin-1")).decode("latin-1") if "%" in text else text


def _escaped(text: str, kept: str) -> str:
    """Return *text* as Go escapes it: unchanged if it is valid, otherwise escaped again."""
    if re.fullmatch(f"[{kept}{_ALSO_VALID}]*", text):
        return text
    return quote_from_bytes(_unescaped(text).encode("latin-1"), safe=kept)


def _parameters(query: str) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {}
    if query.count("&") >= _MAX_PARAMETERS:
        return found
    for pair in query.split("&"):
        if not pair or ";" in pair or _BAD_ESCAPE.search(pair):
            continue
        key, _, value = (_text(_unescaped(part)) for part in pair.replace("+", " ").partition("="))
        found.setdefault(key, []).append(value)
    return found


def _text(raw: str) -> str:
    return raw.encode("latin-1").decode("utf-8", "replace")


def parse_request_uri(text: str) -> str | None:
    """Return why *text* is not an absolute URI or path; None if it is."""
    try:
        _parse(text, as_request=True)
    except _Invalid as problem:
        return f"parse {quoted(text)}: {problem}"
    return None


def _url(text: str) -> Url:
    charge(math.ceil(len(text) * 0.1))
    problem = parse_request_uri(text)
    if problem is None:
        try:
            return _parse(text, as_request=False)
        except _Invalid as other:
            problem = f"parse {quoted(text)}: {other}"
    raise EvaluationError(f"URL parse error during conversion from string: {problem}")


def _is_url(text: str) -> bool:
    charge(1)
    return parse_request_uri(text) is None


def _hostname(url: Url) -> str:
    charge(1)
    name = _split_port(url.host)[0]
    return name[1:-1] if name.startswith("[") and name.endswith("]") else name


def _split_port(host: str) -> tuple[str, str]:
    name, colon, port = host.rpartition(":")
    return (name, port) if colon and _PORT.fullmatch(f":{port}") else (host, "")


def _port(url: Url) -> str:
    charge(1)
    return _split_port(url.host)[1]


def _scheme(url: Url) -> str:
    charge(1)
    return url.scheme


def _whole_host(url: Url) -> str:
    charge(1)
    return url.host


def _path(url: Url) -> str:
    charge(1)
    return url.path


def _query(url: Url) -> dict[str, list[str]]:
    charge(1)
    return url.parameters


FUNCTIONS: Final = (
    function("string_to_url", "url(string) -> kubernetes.URL", _url),
    function("is_url_string", "isURL(string) -> bool", _is_url),
    function("url_get_scheme", "kubernetes.URL::getScheme() -> string", _scheme),
    function("url_get_host", "kubernetes.URL::getHost() -> string", _whole_host),
    function("url_get_hostname", "kubernetes.URL::getHostname() -> string", _hostname),
    function("url_get_port", "kubernetes.URL::getPort() -> string", _port),
    function("url_get_escaped_path", "kubernetes.URL::getEscapedPath() -> string", _path),
    function("url_get_query", "kubernetes.URL::getQuery() -> map(string, list(string))", _query),
)
