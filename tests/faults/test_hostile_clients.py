"""Clients that violate protocols, at a gateway that also reviews for honest clients.

Each hostile client gets its error or its answer. The bytes after a refused request are never read as another
request, the log has no traceback, and no honest review is lost, refused or failed.
"""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.faults.hostile import REVIEW, HostileClient, client_hello, head, post
from tests.faults.kit import (
    SOME_PORT,
    all_well,
    configure,
    resources,
    wait_until_ready,
)
from tests.kit import GatewayProcess, WorkerProcess, pool_document, webhook_document
from tests.load import Load
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    import trustme

pytestmark = pytest.mark.process

LIMIT_BYTES = 7 * 1024 * 1024
TIMEOUT_S = 20.0
HONEST = f"/validate/honest?timeout={TIMEOUT_S:g}s"
SMUGGLED = "/validate/smuggled"
"""Its webhook is never called: every request for it follows a request that ends the connection."""
LABELLED = f"/validate/labelled?timeout={TIMEOUT_S:g}s"
"""Denies objects with the label ``wanted``."""
SLOW = "/validate/slow?timeout=10s"


@pytest.fixture(scope="module")
def calls(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log with a line for each call of the worker, with the uid, in the order of arrival."""
    return tmp_path_factory.mktemp("calls") / "log"


@pytest.fixture(scope="module")
def gateway(
    certificate: tuple[Path, Path],
    authority: trustme.CA,
    tmp_path_factory: pytest.TempPathFactory,
    calls: Path,
) -> Iterator[GatewayProcess]:
    with ExitStack() as processes:
        worker = WorkerProcess(SOME_PORT, "--log", str(calls))
        processes.callback(worker.stop)
        selector = {"objectSelector": {"matchLabels": {"wanted": "yes"}}}
        folder = configure(
            tmp_path_factory.mktemp("besieged"),
            pool_document("pool", worker.target),
            webhook_document("validate", "honest", "pool", {"delay_ms": 5}),
            webhook_document("validate", "smuggled", "pool", {}),
            webhook_document(
                "validate", "labelled", "pool", {"deny": {"message": "seen", "code": 403}}, **selector
            ),
            webhook_document("validate", "slow", "pool", {"delay_ms": 500}),
        )
        gateway = GatewayProcess(folder, certificate, authority)
        processes.callback(gateway.stop)
        wait_until_ready(gateway, 1)
        yield gateway
        assert gateway.child.poll() is None


@pytest.fixture(autouse=True)
def besieged(gateway: GatewayProcess) -> Iterator[Load]:
    """Honest reviews before, during and after the test; none is lost."""
    logged = len(gateway.log)
    with Load(gateway, HONEST, "pod-create-validate", connections=4, rate=200) as load:
        load.wait_for(10)
        yield load
        load.wait_for(10)
    assert all_well(load.tally), load.tally
    assert "Traceback" not in gateway.log[logged:]
    assert "internal error" not in gateway.log[logged:]
    assert gateway.metric("admission_gateway_webhook_requests_total", name="h0.smuggled.test") == 0
    for gauge in ("admission_gateway_reviews_in_flight", "admission_gateway_request_bytes_in_flight"):
        eventually(lambda name=gauge: gateway.metric(name) == 0, f"{gauge} is 0")  # type: ignore[misc]


def only_answer(received: bytes) -> tuple[int, str]:
    """Return status and error of the only answer in *received*, which ends the connection."""
    first, _, body = received.partition(b"\r\n\r\n")
    assert b"\r\nConnection: close" in first
    length = int(first.partition(b"Content-Length: ")[2].partition(b"\r\n")[0])
    assert len(body) == length, "something follows the answer"
    return int(first.split(b" ", 2)[1]), json.loads(body)["error"]


# -- requests with an ambiguous end ---------------------------------------------------------------

CHUNKS = b"2\r\n{}\r\n0\r\n\r\n"
CODED = b"Transfer-Encoding: chunked"


def shaped(*fields: bytes, body: bytes = CHUNKS) -> bytes:
    return head("/validate/honest", *fields) + body


SHAPES: dict[str, tuple[bytes, int]] = {
    "length hides a request in a chunked body": (
        shaped(b"Content-Length: 4", CODED, body=b"5c\r\n" + post(SMUGGLED, b"{}") + b"\r\n0\r\n\r\n"),
        400,
    ),
    "coding hides a request behind the last chunk": (
        shaped(CODED, b"Content-Length: 200", body=b"0\r\n\r\n" + post(SMUGGLED)),
        400,
    ),
    "two lengths": (shaped(b"Content-Length: 0", b"Content-Length: 300", body=post(SMUGGLED)), 400),
    "identity, chunked": (shaped(b"Transfer-Encoding: identity, chunked"), 501),
    "chunked behind a vertical tab": (shaped(b"Transfer-Encoding: \x0bchunked"), 400),
    "a chunk longer than its size": (shaped(CODED, body=CHUNKS.replace(b"{}", b"{ }")), 400),
    "an extension without an end": (shaped(CODED, body=b"2;" + b"a" * 300_000), 431),
    "HTTP/0.9": (b"POST /validate\r\n\r\n", 505),
}


@pytest.mark.parametrize(("stream", "status"), SHAPES.values(), ids=SHAPES.keys())
def test_an_ambiguous_request_is_refused_and_ends_the_connection(
    gateway: GatewayProcess, stream: bytes, status: int
) -> None:
    """``tests/serving/test_bytes.py`` has all such requests."""
    for pieces in ((stream + post(SMUGGLED),), (stream[:-1], stream[-1:], post(SMUGGLED))):
        with HostileClient(gateway) as client:
            client.send(*pieces)
            found, error = only_answer(client.rest())
        assert (found, bool(error)) == (status, True)


# -- slow clients and clients that disconnect -----------------------------------------------------


def test_slow_senders_get_408_when_the_time_of_their_review_is_over(gateway: GatewayProcess) -> None:
    """Each has its own deadline, whatever it has announced or sends from time to time."""
    with ExitStack() as stack:
        clients = [stack.enter_context(HostileClient(gateway)) for _ in range(30)]
        for number, client in enumerate(clients):
            framing = CODED if number % 3 == 0 else b"Content-Length: %d" % LIMIT_BYTES
            begun = b"fffff\r\n{" if number % 3 == 0 else b"{"
            client.send(head("/validate/honest?timeout=1s", framing), begun)
        for client in clients:
            client.send(b" ")
            assert only_answer(client.rest()) == (
                408,
                "request not complete 0.9 seconds after its first byte",
            )


def test_half_open_connections_do_not_block_other_clients(gateway: GatewayProcess, besieged: Load) -> None:
    """There are more of them than the gateway keeps; it closes the oldest."""
    count, places = 4500, 4096
    hello = client_hello(gateway.client_context)
    before = resources(gateway.child.pid).descriptors
    with ExitStack() as stack:
        clients = []
        for number in range(count):
            client = stack.enter_context(HostileClient(gateway, tls=False))
            client.send((b"", hello[:50], hello)[number % 3])
            clients.append(client)
        for client in clients[: count - places]:
            client.rest()
        assert resources(gateway.child.pid).descriptors <= before + places + 10
        besieged.wait_for(50)
        with HostileClient(gateway) as honest:
            honest.send(post(HONEST))
            assert honest.answer()[0] == 200
    eventually(lambda: resources(gateway.child.pid).descriptors <= before, "all files are closed")


def reset_when(stage: str, gateway: GatewayProcess) -> None:
    """Connect, proceed to *stage*, and reset the connection."""
    hello = client_hello(gateway.client_context)
    client = HostileClient(gateway, tls=stage not in ("connected", "greeting", "greeted"))
    if stage == "greeting":
        client.send(hello[:60])
    if stage == "greeted":
        client.send(hello)
    request = post(SLOW if stage == "reviewed" else HONEST)
    parts = {
        "in the head": request[:50],
        "in the body": request[:-100],
        "in a large body": head(HONEST, b"Content-Length: %d" % LIMIT_BYTES) + b" " * 100_000,
        "in a chunk": head(HONEST, CODED) + b"ffff\r\n" + b" " * 100,
        "reviewed": request,
        "pipelining": post(SLOW) + request * 3,
        "refused": shaped(b"Content-Length: x"),
        "answered": request,
    }
    client.send(parts.get(stage, b""))
    if stage == "answered":
        client.answer()
    client.reset()


STAGES = [
    *("connected", "greeting", "greeted", "shaken", "in the head", "in the body", "in a large body"),
    *("in a chunk", "reviewed", "pipelining", "refused", "answered"),
]


@pytest.mark.parametrize("stage", STAGES)
def test_a_connection_that_is_reset_leaves_nothing(gateway: GatewayProcess, stage: str) -> None:
    before = resources(gateway.child.pid).descriptors
    for _ in range(20):
        reset_when(stage, gateway)
    eventually(lambda: resources(gateway.child.pid).descriptors <= before, "all files are closed")


SMALL = json.dumps(
    {**json.loads(REVIEW), "request": {**json.loads(REVIEW)["request"], "object": {}}}
).encode()
"""A review that matches no webhook with a selector."""


def test_clients_that_do_not_read_do_not_affect_others(gateway: GatewayProcess, besieged: Load) -> None:
    with ExitStack() as stack:
        for _ in range(10):
            client = stack.enter_context(HostileClient(gateway))
            client.send_meanwhile(post(LABELLED, SMALL) * 1_000)
        besieged.wait_for(100)


# -- bodies ---------------------------------------------------------------------------------------


def with_object(written: bytes) -> bytes:
    """Return a review whose object is *written*."""
    before, _, rest = REVIEW.partition(b'"object":')
    return before + b'"object":' + written + rest[rest.index(b',"oldObject"') :]


def with_spec(written: bytes) -> bytes:
    return with_object(b'{"metadata":{"labels":{"wanted":"yes"}},"spec":%b}' % written)


def with_labels(labels: bytes) -> bytes:
    return with_object(b'{"metadata":{"labels":{%b}}}' % labels)


ALLOWED, DENIED, FAILED, BAD = 200, 403, 500, 400
"""Expected: HTTP 200 that allows, HTTP 200 with that code, or HTTP 400. FAILED: by the worker.

``test_hostile_objects.py`` has the objects that are odd in themselves.
"""

BODIES: dict[str, tuple[Callable[[], bytes], int]] = {
    "nothing": (lambda: b"", BAD),
    "spaces": (lambda: b" " * 100_000, BAD),
    "no JSON": (lambda: b"\x16\x03\x01" * 1000, BAD),
    "null": (lambda: b"null", BAD),
    "a list": (lambda: b"[%b]" % REVIEW, BAD),
    "two reviews": (lambda: REVIEW * 2, BAD),
    "half a review": (lambda: REVIEW[: len(REVIEW) // 2], BAD),
    "a byte order mark": (lambda: b"\xef\xbb\xbf" + REVIEW, BAD),
    "UTF-16": (lambda: REVIEW.decode().encode("utf-16"), BAD),
    "nested ten thousandfold": (lambda: with_spec(b"[" * 10_000 + b"]" * 10_000), FAILED),
    "the same label twice": (lambda: with_labels(b'"wanted":"no","wanted":"yes"'), DENIED),
    "the same label twice, the other way": (lambda: with_labels(b'"wanted":"yes","wanted":"no"'), ALLOWED),
    "metadata twice": (
        lambda: with_object(b'{"metadata":{"labels":{"wanted":"yes"}},"metadata":{"name":"a"}}'),
        ALLOWED,
    ),
    "the request twice": (lambda: REVIEW[:-1] + b',"request":{}}', BAD),
    "invalid UTF-8": (lambda: with_labels(b'"wanted":"yes","a":"\xff\xfe"'), DENIED),
    "UTF-8 of a surrogate": (lambda: with_labels(b'"wanted":"yes","a":"\xed\xa0\x80"'), DENIED),
    "a number of a million digits": (lambda: with_spec(b"0." + b"9" * 1_000_000), DENIED),
    "a label that is a number": (lambda: with_labels(b'"wanted":1'), ALLOWED),
    "an object that is a text": (lambda: with_object(b'"yes"'), BAD),
    "uid of a megabyte": (lambda: REVIEW.replace(b'"uid":"', b'"uid":"' + b"x" * 1_000_000, 1), ALLOWED),
    "an object of seven megabytes": (lambda: with_spec(b'"%b"' % (b"x" * (LIMIT_BYTES - 10_000))), DENIED),
}


@pytest.mark.parametrize(("body", "wanted"), BODIES.values(), ids=BODIES.keys())
def test_every_body_gets_its_answer(gateway: GatewayProcess, body: Callable[[], bytes], wanted: int) -> None:
    with HostileClient(gateway) as client:
        client.send(post(LABELLED, body()))
        status, answer = client.answer()
        document = json.loads(answer)
        if wanted == BAD:
            assert (status, list(document)) == (400, ["error"])
        else:
            response = document["response"]
            found = response["status"]["code"] if not response["allowed"] else ALLOWED
            assert (status, found) == (200, wanted)
        # The connection stays usable.
        client.send(post(HONEST))
        assert client.answer()[0] == 200


def test_a_small_review_overtakes_earlier_large_ones(gateway: GatewayProcess, calls: Path) -> None:
    """While the gateway is stopped, the ends of eight large bodies arrive, and then a small review.

    The gateway finds them all when it continues, and decodes the large ones in turns.
    """
    large = [with_uid(f"large-{number}", BODIES["an object of seven megabytes"][0]()) for number in range(8)]
    with ExitStack() as stack:
        clients = [stack.enter_context(HostileClient(gateway)) for _ in range(9)]
        for client, body in zip(clients, large, strict=False):
            client.send(post(HONEST, body)[:-1000])
        arrived = 8 * (len(large[0]) - 100_000)
        eventually(
            lambda: gateway.metric("admission_gateway_request_bytes_in_flight") > arrived,
            "the bodies have come",
        )
        gateway.signal(signal.SIGSTOP)
        try:
            for client, body in zip(clients, large, strict=False):
                client.send(body[-1000:])
            clients[8].send(post(HONEST, with_uid("small", REVIEW)))
        finally:
            gateway.signal(signal.SIGCONT)
        assert [client.answer()[0] for client in clients] == [200] * 9
    order = [line.partition(" ")[0] for line in calls.read_text().splitlines()]
    assert order.index("small") < max(order.index(f"large-{number}") for number in range(8))


def with_uid(uid: str, body: bytes) -> bytes:
    own = json.loads(REVIEW)["request"]["uid"].encode()
    return body.replace(b'"uid":"%b"' % own, b'"uid":"%b"' % uid.encode(), 1)
