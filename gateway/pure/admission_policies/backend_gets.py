"""Requests of expressions to the backends of policies, with ``http.get``.

The GatewayConfiguration names each backend, by its URL. Expressions choose path and query below that, and
nothing else: the host is never theirs. A URL is refused rather than changed if a server could take it for one
that is not below a backend's.

Source: github.com/kyverno/sdk extensions/cel/libs/http/http.go; RFC 3986.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final, NamedTuple
from urllib.parse import unquote, urlsplit

from gateway.base.text import shown
from gateway.pure.admission_policies.params import UnresolvedError
from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.meter import count_steps, count_text
from gateway.pure.core.conditions import BackendGet, Unresolved

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

    from gateway.pure.cel.constant_calls import Arguments
    from gateway.pure.core.conditions import BackendAnswer

    Json = dict[str, Any]

MAX_GETS: Final = 8
"""Different requests of one review."""
MAX_URL_CHARS: Final = 4_096
MAX_HEADER_CHARS: Final = 4_096
"""All fields together."""
_STEPS: Final = 20_000
_IN_URL: Final = re.compile(r"[!$&-;=?-Z_a-z~%\[\]]*")
"""The characters of RFC 3986 without a number sign, which would begin a fragment."""
_BAD_ESCAPE: Final = re.compile(r"%(?![0-9A-Fa-f]{2})")
_TOKEN: Final = re.compile(r"[!#$%&'*+.^_`|~0-9A-Za-z-]+")
_FIELD: Final = re.compile(r"[\x20-\x7e]*")
_OF_CONNECTION: Final = frozenset(
    {
        *("host", "connection", "content-length", "transfer-encoding", "te", "trailer", "upgrade", "expect"),
        *("keep-alive", "proxy-authorization", "proxy-connection", "accept-encoding", "range", "user-agent"),
    }
)
_FAILED: Final = "request failed: "
_NO_BACKEND: Final = "no backend in policies.backends of the GatewayConfiguration is at or above it"


class _Place(NamedTuple):
    """Where a server is, and a part of it."""

    host: str
    port: int
    path: str


def problems_of_gets(
    calls: Iterable[Arguments], backends: Mapping[str, str] | None, namespace: str
) -> Iterator[str]:
    """Yield why calls of ``http.get`` with these arguments cannot succeed.

    *backends* are URLs by name, None where there must be none. *namespace* is that of the policy, if any.
    """
    calls = sorted(calls, key=repr)
    if calls and namespace:
        yield "calls http.get, which is not allowed in policies of one namespace"
    elif calls and backends is None:
        yield "calls http.get, which only policies in files may; put it into a file"
    elif backends is not None:
        for url, *_ in filter(None, calls):
            if url is not None:
                try:
                    _resolved(url, backends)
                except EvaluationError as error:
                    yield f"calls http.get, whose {str(error).removeprefix(_FAILED)}"


def is_usable(url: str) -> bool:
    """Whether expressions may get data from *url* if it is a backend's."""
    return _place(url) is not None


class BackendGets:
    """The requests of one policy."""

    def __init__(self, backends: Mapping[str, str], answers: dict[BackendGet, BackendAnswer | None]) -> None:
        """*backends* are URLs by name. *answers* are those of the review so far, or None without one yet."""
        self._backends = backends
        self._answers = answers

    def get(self, url: str, headers: Mapping[str, str]) -> Json:
        """Return what the backend of *url* has there: a JSON object, or one with it, and the HTTP status.

        Raises:
            EvaluationError: there is no answer, or none that can be used.
            UnresolvedError: it has to be asked for first.
        """
        count_steps(_STEPS)
        count_text(len(url), url)
        backend, target = _resolved(url, self._backends)
        request = BackendGet(backend, target, _fields(headers))
        answer = self._answers.get(request)
        if answer is None:
            if request not in self._answers and len(self._answers) >= MAX_GETS:
                raise _failed(f"found more than {MAX_GETS} different requests in one review")
            self._answers[request] = None
            raise UnresolvedError(Unresolved(gets=(request,)))
        if answer.error:
            raise _failed(answer.error)
        # Imported late: it is for policies of another engine only.
        from gateway.pure.cel.libraries.kyverno_formats import first_value

        body = first_value(answer.body)
        if isinstance(body, dict):
            return {**body, "statusCode": answer.status}
        return {"body": body, "statusCode": answer.status}


def _resolved(url: str, backends: Mapping[str, str]) -> tuple[str, str]:
    """Return the name of the backend of *url*, and the path and query to send.

    Raises:
        EvaluationError: there is none.
    """
    place = _place(url)
    if place is not None:
        for name, prefix in backends.items():
            above = _place(prefix)
            if above is None:
                # Only in a configuration that is refused for it.
                continue
            path = above.path.rstrip("/")
            if place[:2] == above[:2] and (place.path == path or place.path.startswith(f"{path}/")):
                query = urlsplit(url).query
                return name, f"{place.path or '/'}?{query}" if query else place.path or "/"
    problem = (
        _NO_BACKEND if place is not None else "is not an https URL without user, fragment and dot segments"
    )
    raise _failed(f"URL {shown(url)} is not permitted: {problem}")


def _place(url: str) -> _Place | None:
    """Return where *url* leads; None if it is no URL that all servers understand alike."""
    if len(url) > MAX_URL_CHARS or not _IN_URL.fullmatch(url) or _BAD_ESCAPE.search(url):
        return None
    try:
        parts = urlsplit(url)
        host, port = parts.hostname, parts.port
    except ValueError:
        return None
    if parts.scheme != "https" or not host or "@" in parts.netloc or port == 0:
        return None
    # Some servers decode slashes, and some decode before they resolve dot segments.
    segments = re.split(r"[/\\]", unquote(parts.path))
    if (
        not {".", ".."}.isdisjoint(segments)
        or "//" in parts.path
        or len(segments) != parts.path.count("/") + 1
    ):
        return None
    return _Place(host.rstrip("."), 443 if port is None else port, parts.path)


def _fields(headers: Mapping[str, str]) -> tuple[tuple[str, str], ...]:
    """Return *headers* as they are sent.

    Raises:
        EvaluationError: they cannot be sent.
    """
    count_steps(sum(len(name) + len(value) for name, value in headers.items()))
    if sum(len(name) + len(value) + 4 for name, value in headers.items()) > MAX_HEADER_CHARS:
        raise _failed(f"found header fields of more than {MAX_HEADER_CHARS} characters")
    for name, value in headers.items():
        if not _TOKEN.fullmatch(name) or not _FIELD.fullmatch(value):
            raise _failed(f"the header field {shown(name)} cannot be sent")
        if name.lower() in _OF_CONNECTION:
            raise _failed(f"the header field {shown(name)} belongs to the connection")
    return tuple(sorted(headers.items()))


def _failed(reason: str) -> EvaluationError:
    return EvaluationError(f"{_FAILED}{reason}")
