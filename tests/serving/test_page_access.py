"""Which requests get the pages of the admin port."""

from __future__ import annotations

import base64
import socket
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.kinds.serving_settings import PageSettings
from gateway.server.serving.admin import ADMIN_BOUNDS, AdminRoutes
from gateway.server.serving.message import HttpRequest, Response
from gateway.server.serving.page_access import PageAccess, is_local
from tests.serving.kit import TOO_LARGE, Wire, refused

if TYPE_CHECKING:
    from pathlib import Path

LOOPBACK, EVERYWHERE = "127.0.0.1:9090", "0.0.0.0:9090"


def status(access: PageAccess, method: bytes = b"GET", /, **headers: bytes) -> int:
    """Return the status of the refusal of a local client; 200 for none."""
    return _status(access, method, headers, is_local=True)


def status_elsewhere(access: PageAccess, method: bytes = b"GET", /, **headers: bytes) -> int:
    """Return the status of the refusal of another client; 200 for none."""
    return _status(access, method, headers, is_local=False)


def _status(access: PageAccess, method: bytes, headers: dict[str, bytes], *, is_local: bool) -> int:
    fields = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    request = HttpRequest(0.0, method, b"/", {b"host": b"localhost:9090", **fields})
    refusal = access.refusal(request, is_local=is_local)
    return 200 if refusal is None else refusal.status


class Ends:
    """The transport of a connection between two addresses."""

    def __init__(self, peer: object, own: object, family: int = socket.AF_INET) -> None:
        self._found = {"peername": peer, "sockname": own, "socket": SimpleNamespace(family=family)}

    def get_extra_info(self, name: str) -> Any:
        return self._found.get(name)


@pytest.mark.parametrize(
    ("peer", "own", "expected"),
    [
        ("127.0.0.1", "127.0.0.1", True),
        ("127.3.2.1", "127.0.0.1", True),
        ("::1", "::1", True),
        ("::ffff:127.0.0.1", "::ffff:127.0.0.1", True),
        ("10.0.0.1", "10.0.0.1", False),
        ("10.0.0.1", "127.0.0.1", False),
        ("127.0.0.1", "10.0.0.2", False),
        ("::ffff:10.0.0.1", "::ffff:10.0.0.1", False),
        ("2001:db8::1", "::1", False),
    ],
)
def test_a_client_is_local_if_both_ends_are_on_loopback(peer: str, own: str, expected: bool) -> None:
    assert is_local(Ends((peer, 4711), (own, 9090))) is expected  # type: ignore[arg-type]


def test_a_client_at_a_unix_socket_is_local_and_one_that_has_gone_is_not() -> None:
    assert is_local(Ends("", "/run/a.sock", socket.AF_UNIX))  # type: ignore[arg-type]
    assert not is_local(Ends(None, ("127.0.0.1", 9090)))  # type: ignore[arg-type]


@pytest.mark.parametrize("address", [LOOPBACK, EVERYWHERE])
def test_without_credentials_pages_are_for_local_clients_wherever_the_port_listens(address: str) -> None:
    access = PageAccess(PageSettings(), address)
    assert status(access) == 200
    assert status_elsewhere(access) == 403
    assert status_elsewhere(access, b"POST") == 403


@pytest.mark.parametrize(
    ("host", "expected"),
    [
        (b"localhost", 200),
        (b"LOCALHOST.:1", 200),
        (b"a.localhost:9090", 200),
        (b"127.0.0.1:9090", 200),
        (b"[::1]:9090", 200),
        (b"", 403),
        (b"evil.example", 403),
        (b"localhost.evil.example:9090", 403),
        (b"127.0.0.1.evil.example", 403),
        (b"[::1", 200),
        (b"[::2]", 403),
    ],
)
def test_on_loopback_the_host_is_checked(host: bytes, expected: int) -> None:
    assert status(PageAccess(PageSettings(), LOOPBACK), host=host) == expected


def test_pages_can_be_turned_off() -> None:
    assert status(PageAccess(PageSettings(is_enabled=False), LOOPBACK)) == 404


@pytest.mark.parametrize("address", [LOOPBACK, EVERYWHERE])
def test_configured_credentials_are_needed_for_every_host(tmp_path: Path, address: str) -> None:
    tokens, users = tmp_path / "tokens", tmp_path / "users"
    tokens.write_text("secret-token\n")
    users.write_text("ann:pass\n")
    access = PageAccess(PageSettings(token_file=tokens, basic_auth_file=users), address)
    assert access.is_current
    assert status(access) == 401
    assert status(access, authorization=b"Bearer other-token") == 401
    assert status(access, authorization=b"Bearer secret-token", host=b"gateway.example") == 200
    assert status_elsewhere(access, authorization=b"Bearer secret-token") == 200
    assert status_elsewhere(access) == 401
    assert status(access, authorization=b"Basic " + base64.b64encode(b"ann:pass")) == 200
    assert status(access, authorization=b"Basic " + base64.b64encode(b"ann:other")) == 401


def test_the_supervisor_reads_the_pages_of_its_processes_without_credentials(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("secret-token\n")
    settings = PageSettings(token_file=tmp_path / "tokens")
    assert status(PageAccess(settings, f"unix:{tmp_path}/a.sock")) == 200


@pytest.mark.parametrize(
    ("headers", "expected"),
    [
        ({}, 200),
        ({"sec_fetch_site": b"same-origin"}, 200),
        ({"sec_fetch_site": b"none"}, 200),
        ({"sec_fetch_site": b"same-site"}, 403),
        ({"sec_fetch_site": b"cross-site"}, 403),
        ({"sec_fetch_site": b"cross-site", "origin": b"http://localhost:9090"}, 403),
        ({"origin": b"http://localhost:9090"}, 200),
        ({"origin": b"http://localhost:9091"}, 403),
        ({"origin": b"http://evil.example"}, 403),
        ({"origin": b"null"}, 403),
    ],
)
def test_another_site_may_not_post(headers: dict[str, bytes], expected: int) -> None:
    access = PageAccess(PageSettings(), LOOPBACK)
    assert status(access, b"POST", **headers) == expected
    assert status(access, b"GET", **headers) == 200


# -- the admin port with pages --------------------------------------------------------------------


class _Pages:
    def screen(self, request: HttpRequest, *, is_local: bool) -> Response | None:
        return Response(403, b"no") if request.target == b"/no" else None

    def allows_body(self, request: HttpRequest) -> bool:
        return request.method == b"POST"

    async def answer(self, request: HttpRequest) -> Response:
        raise NotImplementedError


def test_only_a_review_to_explain_may_have_a_large_body() -> None:
    def answer(head: bytes, body: bytes = b"") -> bytes:
        routes = AdminRoutes(lambda: None, lambda _: (b"", ""), _Pages())
        wire = Wire(service=routes, bounds=ADMIN_BOUNDS)
        return wire.feed(head + b"\r\nHost: a\r\n" + body)

    large = b"Content-Length: 17000\r\n\r\n" + b"x" * 17000
    chunks = b"Transfer-Encoding: chunked\r\n\r\n0\r\n\r\n"
    too_large = refused(TOO_LARGE, "body over 16384 bytes")
    for head in (b"GET /metrics HTTP/1.1", b"GET / HTTP/1.1"):
        assert answer(head, large) == too_large
        assert answer(head, chunks) == too_large
    over = b"Content-Length: 4194305\r\n\r\n"
    assert b" 413 " in answer(b"POST /explain HTTP/1.1", over)
    assert answer(b"GET /no HTTP/1.1", b"\r\n").startswith(b"HTTP/1.1 403")
