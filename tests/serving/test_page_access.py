"""Which requests get the pages of the admin port."""

from __future__ import annotations

import base64
from typing import TYPE_CHECKING

import pytest

from gateway.config.model import Authentication, PageSettings
from gateway.serving.admin import ADMIN_BOUNDS, AdminRoutes
from gateway.serving.message import HttpRequest, Response
from gateway.serving.page_access import PageAccess, is_loopback_address
from tests.serving.kit import TOO_LARGE, Wire, refused

if TYPE_CHECKING:
    from pathlib import Path

LOOPBACK, EVERYWHERE = "127.0.0.1:9090", "0.0.0.0:9090"


def status(access: PageAccess, method: bytes = b"GET", **headers: bytes) -> int:
    """Return the status of the refusal; 200 for none."""
    fields = {name.replace("_", "-").encode(): value for name, value in headers.items()}
    refusal = access.refusal(HttpRequest(0.0, method, b"/", {b"host": b"localhost:9090", **fields}))
    return 200 if refusal is None else refusal.status


@pytest.mark.parametrize(
    ("address", "is_loopback"),
    [
        ("127.0.0.1:9090", True),
        ("127.3.2.1:9090", True),
        ("[::1]:9090", True),
        ("localhost:9090", True),
        ("unix:/run/a.sock", True),
        ("0.0.0.0:9090", False),
        ("[::]:9090", False),
        ("10.0.0.1:9090", False),
        ("gateway.example:9090", False),
        ("127.0.0.1.example:9090", False),
    ],
)
def test_without_credentials_pages_are_on_where_only_this_machine_can_connect(
    address: str, is_loopback: bool
) -> None:
    assert is_loopback_address(address) is is_loopback
    access = PageAccess(PageSettings(), address)
    assert status(access) == (200 if is_loopback else 404)
    assert bool(access.why_off) is not is_loopback


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
    access = PageAccess(PageSettings(authentication=Authentication(tokens, users)), address)
    assert access.is_current
    assert status(access) == 401
    assert status(access, authorization=b"Bearer other-token") == 401
    assert status(access, authorization=b"Bearer secret-token", host=b"gateway.example") == 200
    assert status(access, authorization=b"Basic " + base64.b64encode(b"ann:pass")) == 200
    assert status(access, authorization=b"Basic " + base64.b64encode(b"ann:other")) == 401


def test_the_supervisor_reads_the_pages_of_its_processes_without_credentials(tmp_path: Path) -> None:
    (tmp_path / "tokens").write_text("secret-token\n")
    settings = PageSettings(authentication=Authentication(tmp_path / "tokens"))
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
    def screen(self, request: HttpRequest) -> Response | None:
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
