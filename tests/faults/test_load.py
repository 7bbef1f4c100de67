"""The load itself: that it counts rightly what became of a review."""

from __future__ import annotations

import json
import re
import socket
import ssl
import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import PATIENCE_S, pool_document, webhook_document
from tests.load import Load, Tally

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import trustme

    from tests.kit import GatewayProcess, WorkerProcess

pytestmark = pytest.mark.process

CLOSE = b"Connection: close\r\n"


@dataclass
class Scripted:
    """A TLS server that treats one request after the other as its script says."""

    port: int
    client_context: ssl.SSLContext
    script: list[str]
    accepted: int = 0


def read_request(connection: ssl.SSLSocket) -> bytes | None:
    """Return the body of the next request, None at the end of the connection."""
    received = b""
    while not (head := re.match(rb"(?s)POST /validate .*Content-Length: (\d+)\r\n\r\n", received)):
        more = connection.recv(65536)
        if not more:
            return None
        received += more
    while len(received) < head.end() + int(head[1]):
        received += connection.recv(65536)
    return received[head.end() :]


def answer(status: bytes, document: object, extra: bytes = b"") -> bytes:
    body = json.dumps(document).encode()
    return b"HTTP/1.1 %b\r\n%bContent-Length: %d\r\n\r\n%b" % (status, extra, len(body), body)


def play(connection: ssl.SSLSocket, action: str, body: bytes) -> bool:
    """Treat a request so, and return whether the connection stays."""
    uid = json.loads(body)["request"]["uid"]
    response: dict[str, Any] = {"uid": uid, "allowed": action not in ("deny", "fail")}
    if action in ("deny", "fail"):
        response["status"] = {"code": 500 if action == "fail" else 403, "message": f"the text of {action}"}
    if action == "open":
        response["auditAnnotations"] = {"failed-open.round_0_index_0": "h.test"}
    if action == "mix up":
        response["uid"] = "another"
    review = answer(b"200 OK", {"kind": "AdmissionReview", "response": response})
    match action:
        case "hang up":
            return False
        case "half":
            connection.sendall(review[:-5])
            return False
        case "garbage":
            connection.sendall(b"SSH-2.0-x\r\n\r\n")
        case "error":
            connection.sendall(answer(b"500 Internal Server Error", {"error": "broken"}))
        case "refuse":
            connection.sendall(
                answer(b"503 Service Unavailable", {"error": "full"}, CLOSE + b"Retry-After: 0\r\n")
            )
            return False
        case "last":
            connection.sendall(review.replace(b"\r\n", b"\r\n" + CLOSE, 1))
            return False
        case "twice":
            connection.sendall(review + review)
        case _:
            connection.sendall(review)
            return action != "drop"
    return True


@pytest.fixture
def start_scripted(
    authority: trustme.CA, certificate: tuple[Path, Path]
) -> Iterator[Callable[..., Scripted]]:
    threads: list[threading.Thread] = []
    listeners: list[socket.socket] = []

    def start(*script: str) -> Scripted:
        server_context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        server_context.load_cert_chain(*certificate)
        client_context = ssl.create_default_context()
        authority.configure_trust(client_context)
        listener = socket.create_server(("127.0.0.1", 0))
        listener.settimeout(PATIENCE_S)
        server = Scripted(listener.getsockname()[1], client_context, list(script))

        def run() -> None:
            while True:
                try:
                    plain, _ = listener.accept()
                except OSError:
                    return
                server.accepted += 1
                plain.settimeout(PATIENCE_S)
                with server_context.wrap_socket(plain, server_side=True) as connection:
                    while body := read_request(connection):
                        if not play(connection, server.script.pop(0), body):
                            break

        thread = threading.Thread(target=run)
        thread.start()
        threads.append(thread)
        listeners.append(listener)
        return server

    yield start
    for listener in listeners:
        listener.shutdown(socket.SHUT_RDWR)
        listener.close()
    for thread in threads:
        thread.join(PATIENCE_S)
        assert not thread.is_alive()


ALLOWED = Tally(sent=1, answered=1, allowed=1)
OUTCOMES = [
    ("allow", ALLOWED),
    ("last", ALLOWED),
    ("open", replace(ALLOWED, failed_open=1)),
    ("deny", Tally(sent=1, answered=1, denied=1)),
    ("fail", Tally(sent=1, answered=1, failed=1, texts=("the text of fail",))),
    ("refuse", Tally(sent=1, refused=1, texts=('503: {"error": "full"}',))),
    ("error", Tally(sent=1, lost=1)),
    ("mix up", Tally(sent=1, lost=1)),
    ("hang up", Tally(sent=1, lost=1, texts=("NoAnswer: the connection was closed",))),
    ("half", Tally(sent=1, lost=1, texts=("NoAnswer: the connection was closed",))),
    ("garbage", Tally(sent=1, lost=1)),
    ("twice", Tally(sent=1, lost=1, texts=("NoAnswer: more than one answer",))),
]


@pytest.mark.parametrize(("action", "expected"), OUTCOMES, ids=[action for action, _ in OUTCOMES])
def test_each_outcome_is_counted_as_what_it_is(
    start_scripted: Callable[..., Scripted], action: str, expected: Tally
) -> None:
    """Before and after it there is an ordinary answer, which it does not touch."""
    server = start_scripted("allow", action, "allow")
    with Load(server, "/validate", "pod-create-validate", connections=1, count=3) as load:
        load.finish()
    tally = load.tally
    assert bool(tally.texts) == (not expected.answered or bool(expected.failed))
    assert replace(tally, texts=expected.texts) == replace(
        expected, sent=3, answered=expected.answered + 2, allowed=expected.allowed + 2
    )
    if expected.texts:
        assert tally.texts == expected.texts
    assert not server.script


def test_a_connection_is_kept_until_an_answer_says_that_it_is_the_last(
    start_scripted: Callable[..., Scripted],
) -> None:
    server = start_scripted("allow", "allow", "last", "allow", "allow")
    with Load(server, "/validate", "pod-create-validate", connections=1, count=5) as load:
        load.finish()
    assert load.tally.allowed == 5
    assert server.accepted == 2


def test_a_connection_that_the_server_closed_while_it_was_idle_costs_nothing(
    start_scripted: Callable[..., Scripted],
) -> None:
    server = start_scripted("drop", "allow")
    with Load(server, "/validate", "pod-create-validate", connections=1, count=2, rate=5) as load:
        load.finish()
    assert (load.tally.allowed, load.tally.lost) == (2, 0)
    assert server.accepted == 2


def test_what_is_refused_is_asked_again_and_counted_once(start_scripted: Callable[..., Scripted]) -> None:
    server = start_scripted("refuse", "refuse", "allow", "allow")
    with Load(server, "/validate", "configmap-create", connections=1, count=2, retry_refused=True) as load:
        load.finish()
    assert load.tally == Tally(sent=2, answered=2, allowed=2, retried=2)


def test_what_is_refused_for_ever_is_refused(start_scripted: Callable[..., Scripted]) -> None:
    server = start_scripted(*["refuse"] * 11, "allow")
    with Load(server, "/validate", "configmap-create", connections=1, count=2, retry_refused=True) as load:
        load.finish()
    assert (load.tally.refused, load.tally.retried, load.tally.allowed) == (1, 10, 1)


def test_answers_that_do_not_come_are_an_error_of_the_test(start_scripted: Callable[..., Scripted]) -> None:
    server = start_scripted("allow", "allow")
    with Load(server, "/validate", "pod-create-validate", connections=1, count=2) as load:
        load.finish()
        with pytest.raises(AssertionError, match=r"not 3 answers: Tally\(sent=2, answered=2"):
            load.wait_for(1)
        with pytest.raises(AssertionError, match="Tally"):
            load.wait_until(lambda tally: tally.lost > 0)
        load.wait_until(lambda tally: tally.allowed == 2)


def test_who_cannot_connect_says_so() -> None:
    context = ssl.create_default_context()
    with socket.create_server(("127.0.0.1", 0)) as listener:
        port = listener.getsockname()[1]
    with (
        pytest.raises(AssertionError, match="could not connect"),
        Load(Scripted(port, context, []), "/validate", "pod-create-validate"),
    ):
        pass


def test_a_gateway_and_a_worker_under_load(
    tmp_path: Path,
    start_worker: Callable[..., WorkerProcess],
    start_gateway: Callable[..., GatewayProcess],
) -> None:
    worker = start_worker()
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target)
        + webhook_document("validate", "allow", "pool", {})
        + webhook_document("validate", "deny", "pool", {"deny": {"message": "no", "code": 403}})
        + webhook_document("validate", "fail", "pool", {"status": "INTERNAL", "details": "broken"})
        + webhook_document("validate", "open", "pool", {"status": "INTERNAL"}, failurePolicy="Ignore")
    )
    gateway = start_gateway(tmp_path)

    def load(name: str) -> Tally:
        with Load(gateway, f"/validate/{name}", "deployment-create", connections=4, count=100) as load:
            load.wait_for(50)
            load.finish()
        assert load.tally.sent == load.tally.answered == 100
        return load.tally

    assert load("allow").allowed == 100
    assert load("deny").denied == 100
    failed = load("fail")
    assert failed.failed == 100
    assert failed.texts == ('failed calling webhook "h0.fail.test": INTERNAL: broken',)
    opened = load("open")
    assert opened.failed_open == opened.allowed == 100
