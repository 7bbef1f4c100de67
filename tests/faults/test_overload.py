"""Reviews above the limits of a gateway: they are refused, and none is lost."""

from __future__ import annotations

import json
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.hostile import REVIEW, HostileClient, head, post
from tests.faults.kit import (
    SOME_PORT,
    all_well,
    configure,
    wait_until_ready,
)
from tests.kit import pool_document, webhook_document
from tests.load import Load
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.kit import StartWorker
    from tests.kit import GatewayProcess, StartGateway

pytestmark = pytest.mark.process

REVIEWS_IN_FLIGHT = "admission_gateway_reviews_in_flight"
BYTES_IN_FLIGHT = "admission_gateway_request_bytes_in_flight"
HONEST = "/validate/honest?timeout=20s"
HANGING = "/validate/hanging?timeout=25s"
IGNORED = "/validate.ignore/hanging?timeout=25s"
"""Selects only webhooks with failurePolicy Ignore, which hang, too."""
MIB = 1024 * 1024


def overloaded(
    folder: Path, start_worker: StartWorker, start_gateway: StartGateway, **limits: int
) -> GatewayProcess:
    """Start a gateway with *limits*, and a worker with policies that answer and policies that hang."""
    worker = start_worker(SOME_PORT)
    hangs: dict[str, Any] = {"hang": True}
    hooks = [{**hangs, "webhook": {"failurePolicy": policy}} for policy in ("Fail", "Ignore")]
    configure(
        folder,
        pool_document("pool", worker.target),
        webhook_document("validate", "honest", "pool", {"delay_ms": 5}),
        webhook_document("validate", "hanging", "pool", *hooks, timeoutSeconds=30),
        limited(**limits),
    )
    gateway = start_gateway(folder)
    wait_until_ready(gateway, 1)
    return gateway


def limited(**limits: int) -> str:
    document = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "limits": limits,
    }
    return json.dumps(document) + "\n---\n"


def review_of(length: int) -> bytes:
    """Return a review of *length* bytes."""
    before, _, rest = REVIEW.partition(b'"object":{')
    padded = before + b'"object":{"padding":"%b",' + rest
    return padded % (b"x" * (length - len(padded) + 2))


class Filler(ExitStack):
    """Clients whose reviews stay in flight until they disconnect."""

    def __init__(self, gateway: GatewayProcess) -> None:
        super().__init__()
        self._gateway = gateway
        self._count = 0

    def add(self, *requests: bytes) -> None:
        """Send each of *requests* on its own connection, and wait until they are in flight."""
        for request in requests:
            self.enter_context(HostileClient(self._gateway)).send(request)
        self._count += len(requests)
        self.expect(REVIEWS_IN_FLIGHT, self._count)

    def expect(self, gauge: str, wanted: float) -> None:
        eventually(lambda: self._gateway.metric(gauge) == wanted, f"{gauge} is {wanted:g}")


def refusal(gateway: GatewayProcess, request: bytes) -> str:
    """Send *request* and return the error of its 503, which ends the connection."""
    with HostileClient(gateway) as client:
        client.send(request)
        received = client.rest()
    first, _, body = received.partition(b"\r\n\r\n")
    lines = first.split(b"\r\n")
    assert lines[0] == b"HTTP/1.1 503 Service Unavailable"
    assert {b"Retry-After: 1", b"Connection: close"} <= set(lines)
    error: str = json.loads(body)["error"]
    return error


def test_reviews_above_the_limit_are_refused_at_once(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The refusal does not wait for the reviews in flight, which hang."""
    gateway = overloaded(tmp_path, start_worker, start_gateway, maxConcurrentReviews=16)
    with Filler(gateway) as filler:
        filler.add(*[post(IGNORED)] * 14)
        text = "14 reviews are in flight, as many as limits.maxConcurrentReviews allows"
        fewer = " for reviews that only webhooks with failurePolicy Ignore decide"
        assert refusal(gateway, post(IGNORED)) == text + fewer
        filler.add(*[post(HANGING)] * 2)
        text = "16 reviews are in flight, as many as limits.maxConcurrentReviews allows"
        assert refusal(gateway, post(HANGING)) == refusal(gateway, post(HONEST)) == text
        assert gateway.metric(REVIEWS_IN_FLIGHT) == 16
    filler.expect(REVIEWS_IN_FLIGHT, 0)
    with Load(gateway, HONEST, "pod-create-validate", connections=8) as load:
        load.wait_for(50)
    assert all_well(load.tally), load.tally
    assert gateway.metric("admission_gateway_requests_refused_total", code="503") == 3


def test_refused_reviews_succeed_on_retry_after_the_worker_recovers(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Three clients for each place; all places are taken while the worker is stopped."""
    worker = start_worker(SOME_PORT)
    configure(
        tmp_path,
        pool_document("pool", worker.target),
        webhook_document("validate", "honest", "pool", {"delay_ms": 5}, timeoutSeconds=30),
        limited(maxConcurrentReviews=8),
    )
    gateway = start_gateway(tmp_path)
    wait_until_ready(gateway, 1)
    with Load(gateway, HONEST, "pod-create-validate", connections=24, retry_refused=True, rate=200) as load:
        load.wait_for(20)
        worker.signal(signal.SIGSTOP)
        load.wait_until(lambda tally: tally.retried >= 16)
        worker.signal(signal.SIGCONT)
        load.wait_for(100)
    assert all_well(load.tally), load.tally
    assert load.tally.retried >= 16


def test_bodies_above_the_limit_are_refused_before_they_are_sent(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    limits = {"maxRequestBytes": MIB, "maxBytesInFlight": 2 * MIB}
    gateway = overloaded(tmp_path, start_worker, start_gateway, **limits)
    text = f"too many bytes of requests are in flight, limits.maxBytesInFlight allows {2 * MIB}"
    large = review_of(900_000)
    announced = head(HANGING, b"Content-Length: %d" % len(large))
    with Load(gateway, HONEST, "pod-create-validate", connections=4, rate=200) as load:
        load.wait_for(20)
        with Filler(gateway) as filler:
            for _ in range(2):
                filler.enter_context(HostileClient(gateway)).send(post(HANGING, large))
            eventually(lambda: gateway.metric(BYTES_IN_FLIGHT) >= 1_800_000, "two are reviewed")
            # Only the head of the third is sent.
            assert refusal(gateway, announced) == text
            # 100,000 bytes would fit, but are reserved for reviews with a webhook with failurePolicy Fail.
            assert refusal(gateway, head(IGNORED, b"Content-Length: 100000")) == text
            load.wait_for(50)
        eventually(lambda: gateway.metric(BYTES_IN_FLIGHT) < 100_000, "all of them have gone")
        load.wait_for(20)
    assert all_well(load.tally), load.tally
    eventually(lambda: gateway.metric(BYTES_IN_FLIGHT) == 0, "nothing is in flight")


def test_bodies_that_arrive_slowly_make_room_for_others(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """No honest review is refused, however many clients send all but the last byte."""
    limits = {"maxRequestBytes": MIB, "maxBytesInFlight": 2 * MIB}
    gateway = overloaded(tmp_path, start_worker, start_gateway, **limits)
    text = f"too many bytes of requests are in flight, limits.maxBytesInFlight allows {2 * MIB}"
    with Load(gateway, HONEST, "pod-create-validate", connections=4, rate=200) as load, ExitStack() as stack:
        load.wait_for(20)
        slow = [stack.enter_context(HostileClient(gateway)) for _ in range(8)]
        for client in slow:
            client.send(head(HANGING, b"Content-Length: %d" % MIB), b" " * 900_000)
        for client in slow[:6]:
            status, body = client.answer()
            assert (status, json.loads(body)) == (503, {"error": text})
        load.wait_for(50)
        whole = stack.enter_context(HostileClient(gateway))
        whole.send(post(HONEST, review_of(1_000_000)))
        assert whole.answer()[0] == 200
        load.wait_for(20)
    assert all_well(load.tally), load.tally
    eventually(lambda: gateway.metric(BYTES_IN_FLIGHT) == 0, "nothing is in flight")


def test_limits_are_changed_by_a_reload(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    gateway = overloaded(tmp_path, start_worker, start_gateway, maxConcurrentReviews=1)
    config = tmp_path / "c.yaml"
    with Filler(gateway) as filler:
        filler.add(post(HANGING))
        assert refusal(gateway, post(HANGING)).startswith("1 reviews are in flight")
        old, new = limited(maxConcurrentReviews=1), limited(maxRequestBytes=10_000, maxBytesInFlight=10_000)
        config.write_text(config.read_text().replace(old, new))
        gateway.signal(signal.SIGHUP)
        gateway.expect("configuration reloaded")
        filler.add(post(HANGING))
        length = head(HANGING, b"Content-Length: 10000")
        assert refusal(gateway, length).endswith("limits.maxBytesInFlight allows 10000")
