"""What is read from an admin port at an address, and what is sent to it."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import ClusterError, GatewayError
from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.server.kubernetes import discovery
from gateway.tools.status import admin_ports
from gateway.tools.status.admin_ports import AddressedPort
from tests.kit import PATIENCE_S, ThreadingServer, serving

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator


class _Admin(ThreadingServer):
    """Answers with ``answer``, all bytes of it, and keeps path and Authorization of each request."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.answer = b""
        self.is_endless = False
        self.asked: list[tuple[str, str | None]] = []


class _Handler(BaseHTTPRequestHandler):
    server: _Admin

    def do_GET(self) -> None:
        self.server.asked.append((self.path, self.headers.get("Authorization")))
        self.wfile.write(self.server.answer)
        with suppress(OSError):
            while self.server.is_endless:
                self.wfile.write(b"x")

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


def test_an_answer_that_never_ends_is_an_error(admin: _Admin, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(admin_ports, "ANSWER_TIMEOUT_S", 0.2)
    monkeypatch.setattr(admin_ports, "MAX_ANSWER_BYTES", 2**60)
    admin.answer, admin.is_endless = b"HTTP/1.1 200 OK\r\n\r\n", True
    with pytest.raises(GatewayError, match="here: no answer in time"):
        read(admin)


class _Api:
    """An API server that answers each request with the same."""

    def __init__(self, answer: Callable[[str], Any]) -> None:
        self._answer = answer
        self.is_closed = False

    async def get(self, path: str, _: object) -> Any:
        return self._answer(path)

    get_as = get

    async def close(self) -> None:
        self.is_closed = True


def test_pods_that_were_looked_for_everywhere_get_no_credential(monkeypatch: pytest.MonkeyPatch) -> None:
    """Who may create a pod somewhere may give it the labels of a gateway."""
    pod = {"metadata": {"name": "a", "namespace": "evil"}, "status": {"phase": "Running"}}
    api = _Api(lambda path: {"items": [pod] if path == "/api/v1/pods" else []})
    monkeypatch.setattr(admin_ports, "connect", lambda _: api)

    def ports(credential: str) -> list[str]:
        asked = admin_ports.pod_ports(KubernetesSettings(), "own", "a=b", credential, or_elsewhere=True)
        return [port.namespace for port in asyncio.run(asked)[1]]

    assert ports("") == ["evil"]
    with pytest.raises(GatewayError, match="found such pods in evil: name it, so that they get the cred"):
        ports("Bearer t")
    assert api.is_closed


ODD: list[Any] = [5, "x", [5], {"x": 5}]


@pytest.mark.parametrize("odd", ODD)
@pytest.mark.parametrize(
    "path", ["", "metadata", "spec", "spec.containers", "spec.containers.ports", "status"]
)
def test_pods_that_are_none_are_an_error_or_left_out(
    path: str, odd: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = odd
    for key in reversed(path.split(".")):
        answer = {key: [answer] if key in ("containers", "ports") else answer} if key else {"items": odd}
    api = _Api(lambda _: answer if not path else {"items": [answer]})
    monkeypatch.setattr(admin_ports, "connect", lambda _: api)
    with suppress(GatewayError):
        asyncio.run(admin_ports.pod_ports(KubernetesSettings(), "own", "a=b"))


@pytest.mark.parametrize("versions", [*ODD, *([{"resources": odd}] for odd in ODD)])
def test_kinds_that_are_none_are_an_error(versions: Any) -> None:
    api: Any = _Api(lambda _: {"items": [{"versions": versions}]})
    with suppress(ClusterError):
        asyncio.run(discovery.resources(api))
