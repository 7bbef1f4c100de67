"""What is read from an admin port at an address, and what is sent to it."""

from __future__ import annotations

import asyncio
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

import pytest

from gateway.base.errors import GatewayError
from gateway.tools.status import admin_ports
from gateway.tools.status.admin_ports import AddressedPort
from tests.kit import PATIENCE_S, ThreadingServer, serving

if TYPE_CHECKING:
    from collections.abc import Iterator


class _Admin(ThreadingServer):
    """Answers with ``answer``, all bytes of it, and keeps path and Authorization of each request."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.answer = b""
        self.asked: list[tuple[str, str | None]] = []


class _Handler(BaseHTTPRequestHandler):
    server: _Admin

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        self.wfile.write(self.server.answer)

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def admin(monkeypatch: pytest.MonkeyPatch) -> Iterator[_Admin]:
    monkeypatch.setattr(admin_ports, "TIMEOUT_S", PATIENCE_S)
    server = _Admin()
    with serving(server):
        yield server


def read(admin: _Admin, prefix: str = "", authorization: str = "") -> tuple[int, bytes]:
    url = f"http://ann:secret@127.0.0.1:{admin.server_port}{prefix}"
    return asyncio.run(AddressedPort("here", url, authorization).get("/decisions?count=2"))


@pytest.mark.parametrize(("prefix", "path"), [("", ""), ("/", ""), ("/behind/", "/behind")])
def test_only_the_given_credential_is_sent(prefix: str, path: str, admin: _Admin) -> None:
    admin.answer = b"HTTP/1.1 200 OK\r\nContent-Length: 4\r\n\r\npage"
    assert read(admin, prefix) == (200, b"page")
    assert read(admin, prefix, "Bearer t") == (200, b"page")
    assert admin.asked == [(f"{path}/decisions?count=2", None), (f"{path}/decisions?count=2", "Bearer t")]


def test_a_redirect_is_an_answer_and_not_followed(admin: _Admin) -> None:
    admin.answer = b"HTTP/1.1 302 Found\r\nLocation: /other\r\nContent-Length: 0\r\n\r\n"
    assert read(admin) == (302, b"")
    assert len(admin.asked) == 1


@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        (b"", "without sending a response"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npage", "without sending complete message body"),
        (b"SSH-2.0-x\r\n\r\n", "illegal status line"),
        (b"HTTP/1.1 200 OK\r\n\r\n" + bytes(3 * 2**20), "here: an answer of more than 2 MiB"),
    ],
    ids=("none", "cut", "not HTTP", "too long"),
)
def test_another_answer_is_an_error_of_one_line(
    answer: bytes, reason: str, admin: _Admin, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(admin_ports, "MAX_ANSWER_BYTES", 2 * 2**20)
    admin.answer = answer
    with pytest.raises(GatewayError, match=reason) as caught:
        read(admin)
    assert str(caught.value).startswith("here: ")
    assert str(caught.value).isprintable()
