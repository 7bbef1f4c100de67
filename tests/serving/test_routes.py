"""The answer to each kind of request."""

from __future__ import annotations

import logging
import math

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gateway.base.errors import Draining, GatewayError, MalformedReview, Overloaded, UnsupportedReview
from gateway.server.serving.routes import Router, RouterSettings
from tests.serving.kit import CLOSE, PATHS, Application, Wire, ok, post, refused

RETRY = b"Retry-After: 1\r\n"


@pytest.mark.parametrize(
    ("request_bytes", "answer"),
    [
        (post(b"", b"/"), refused(b"404 Not Found", 'nothing is configured at "/"')),
        (post(b"", b"/mutate/"), refused(b"404 Not Found", 'nothing is configured at "/mutate/"')),
        (
            post(b"", b"/mutate/two?timeout=1s"),
            refused(b"404 Not Found", 'nothing is configured at "/mutate/two"'),
        ),
        (
            post(b"").replace(b"POST", b"DELETE"),
            refused(
                b"405 Method Not Allowed", "DELETE is not possible here, expected POST", b"Allow: POST\r\n"
            ),
        ),
        (
            post(b"").replace(b"Content-Type: application/json\r\n", b""),
            refused(b"415 Unsupported Media Type", "expected Content-Type application/json, found none"),
        ),
        (
            post(b"").replace(b"application/json\r\nAccept-E", b"application/jsonp\r\nAccept-E"),
            refused(
                b"415 Unsupported Media Type",
                "expected Content-Type application/json, found application/jsonp",
            ),
        ),
        (
            post(b"", extra=b"Content-Encoding: gzip\r\n"),
            refused(b"415 Unsupported Media Type", "Content-Encoding is not supported, send plain JSON"),
        ),
        (
            post(b"", b"/mutate?timeout=5"),
            refused(b"400 Bad Request", 'timeout: "5" is not a duration such as 100ms, 2s or 1m30s'),
        ),
        (
            post(b"", b"/mutate?timeout="),
            refused(b"400 Bad Request", 'timeout: "" is not a duration such as 100ms, 2s or 1m30s'),
        ),
        (
            post(b"", b"/mutate?timeout=0s"),
            refused(b"400 Bad Request", 'timeout: "0s" is not a positive duration'),
        ),
        (
            post(b"", b"/mutate?timeout=-1s"),
            refused(b"400 Bad Request", 'timeout: "-1s" is not a positive duration'),
        ),
        # Where several refusals apply: path, method, media type, timeout.
        (
            b"PUT /no?timeout=x HTTP/1.1\r\nHost: a\r\n\r\n",
            refused(b"404 Not Found", 'nothing is configured at "/no"'),
        ),
        (
            b"PUT /mutate?timeout=x HTTP/1.1\r\nHost: a\r\n\r\n",
            refused(b"405 Method Not Allowed", "PUT is not possible here, expected POST", b"Allow: POST\r\n"),
        ),
        (
            b"POST /mutate?timeout=x HTTP/1.1\r\nHost: a\r\n\r\n",
            refused(b"415 Unsupported Media Type", "expected Content-Type application/json, found none"),
        ),
    ],
)
def test_refusal_keeps_the_connection(request_bytes: bytes, answer: bytes) -> None:
    wire = Wire()
    assert wire.feed(request_bytes + post(b"next")) == answer + ok(b"m:next")


@pytest.mark.parametrize(
    "value",
    [b"application/json", b"Application/JSON", b"application/json; charset=utf-8", b"application/json ;a=b"],
)
def test_json_with_any_parameters_is_accepted(value: bytes) -> None:
    stream = post(b"x").replace(b"Content-Type: application/json", b"Content-Type: " + value)
    assert Wire().feed(stream) == ok(b"m:x")


@pytest.mark.parametrize(
    ("query", "budget_s"),
    [
        (b"", 29.9),
        (b"?timeout=10s", 9.9),
        (b"?timeout=30s", 29.9),
        (b"?timeout=1h", 29.9),
        (b"?timeout=1s", 0.9),
        (b"?timeout=500ms", 0.4),
        (b"?timeout=200ms", 0.16),
        (b"?timeout=1.5s", 1.4),
        (b"?timeout=%310s", 9.9),
        (b"?other=1&timeout=2s&timeout=5s", 1.9),
        (b"?nothing", 29.9),
    ],
)
def test_budget_is_the_timeout_less_a_reserve(query: bytes, budget_s: float) -> None:
    wire = Wire()
    for _ in range(2):  # once parsed, once remembered
        wire.feed(post(b"", b"/mutate" + query))
    assert [exchange.route.budget_s for exchange in wire.app.seen] == pytest.approx([budget_s] * 2)


@given(st.integers(1, 100_000), st.integers(0, 10_000))
def test_reserve_takes_at_most_a_fifth(timeout_ms: int, reserve_ms: int) -> None:
    app = Application()
    wire = Wire(app, service=Router(app, PATHS, RouterSettings(deadline_reserve_s=reserve_ms / 1000)))
    wire.feed(post(b"", b"/mutate?timeout=%dms" % timeout_ms))
    whole_s = min(timeout_ms / 1000, 30)
    assert whole_s * 0.8 - 1e-9 <= app.seen[0].route.budget_s <= whole_s


def budgets(wire: Wire, *targets: bytes) -> list[float]:
    for target in targets:
        wire.feed(post(b"", target))
    return [exchange.route.budget_s for exchange in wire.app.seen[-len(targets) :]]


def test_a_shorter_timeout_of_the_api_server_may_be_rounded_up_by_a_second() -> None:
    """It announces the rest of a request, rounded up; only the whole timeoutSeconds is exact."""
    usual, less, last = b"/mutate?timeout=10s", b"/mutate?timeout=5s", b"/mutate?timeout=1s"
    app = Application()
    router = Router(app, PATHS)
    wire = Wire(app, service=router)
    assert budgets(wire, usual, less, usual, last) == pytest.approx([9.9, 3.9, 9.9, 0.4])
    other_path = b"/validate?timeout=5s"
    assert budgets(wire, other_path) == pytest.approx([4.9])
    router.replace(app, PATHS, RouterSettings())
    assert budgets(wire, less) == pytest.approx([4.9])


def test_timeouts_of_other_clients_are_exact() -> None:
    wire = Wire()
    assert budgets(wire, b"/mutate?timeout=10s") == pytest.approx([9.9])
    curl = post(b"", b"/mutate?timeout=5s").replace(b"kube-apiserver-admission", b"curl/8")
    wire.feed(curl)
    assert wire.app.seen[-1].route.budget_s == pytest.approx(4.9)


@given(st.integers(2, 30), st.floats(1.0, 30.0, exclude_min=True), st.floats(0.0, 0.5))
def test_the_answer_leaves_before_the_api_servers_timeout(
    whole_s: int, left_s: float, reserve_s: float
) -> None:
    """For a registration of *whole_s* seconds, when *left_s* of the request are left.

    A remaining time within the last second rounds up to *whole_s*. A registration has a second to spare for
    that. Less than one second is lost in any case.
    """
    assume(left_s >= whole_s or left_s <= whole_s - 1)
    announced_s = min(math.ceil(left_s), whole_s)
    app = Application()
    wire = Wire(app, service=Router(app, PATHS, RouterSettings(deadline_reserve_s=reserve_s)))
    budget_s = budgets(wire, b"/mutate?timeout=%ds" % whole_s, b"/mutate?timeout=%ds" % announced_s)[-1]
    assert 0 < budget_s <= min(left_s, whole_s)


def test_the_cache_of_targets_is_bounded() -> None:
    app = Application()
    router = Router(app, PATHS)
    wire = Wire(app, service=router)
    for number in range(1100):
        wire.feed(post(b"", b"/mutate?x=%d" % number))
    assert len(app.seen) == 1100
    assert len(router._targets) < 1100


def test_new_paths_are_in_force_with_the_next_request() -> None:
    app = Application()
    router = Router(app, PATHS)
    wire = Wire(app, service=router)
    wire.feed(post(b"1"), post(b"2", b"/new"))
    router.replace(app, {"/mutate": "other", "/new": "new"}, RouterSettings())
    wire.transport.written = b""
    assert wire.feed(post(b"1"), post(b"2", b"/new"), post(b"3", b"/mutate/one")).startswith(
        ok(b"other:1") + ok(b"new:2") + b"HTTP/1.1 404 "
    )


@pytest.mark.parametrize(
    ("error", "answer"),
    [
        (MalformedReview("no request"), refused(b"400 Bad Request", "no request")),
        (UnsupportedReview("v2"), refused(b"400 Bad Request", "v2")),
        (Overloaded("full"), refused(b"503 Service Unavailable", "full", RETRY + CLOSE)),
        (Draining("going"), refused(b"503 Service Unavailable", "going", RETRY + CLOSE)),
    ],
)
def test_error_of_the_application_has_its_status(error: Exception, answer: bytes) -> None:
    raising = Wire(Application(raises=error))
    assert raising.feed(post()) == answer
    later = Wire(Application(holds=True))
    later.feed(post())
    assert isinstance(later.service, Router)
    later.service.fail(later.app.seen[0], error)
    assert later.transport.written == answer
    for wire in (raising, later):
        assert isinstance(wire.service, Router)
        assert wire.service.in_flight == 0
        assert wire.is_closed() == (b"503" in answer)


@pytest.mark.parametrize("error", [KeyError("secret"), GatewayError("odd")])
def test_any_other_error_is_500_and_logged_once(error: Exception, caplog: pytest.LogCaptureFixture) -> None:
    wire = Wire(Application(raises=error))
    with caplog.at_level(logging.DEBUG):
        answer = wire.feed(post(b"1"), post(b"2", b"/other"))
    internal = refused(b"500 Internal Server Error", "internal error: the gateway's log has the details")
    assert answer == internal + refused(b"404 Not Found", 'nothing is configured at "/other"')
    assert [record.exc_info[1] for record in caplog.records if record.exc_info] == [error]
    assert wire.connections.refused == {500: 1, 404: 1}


def test_more_reviews_than_allowed_are_refused_at_once() -> None:
    app = Application(holds=True)
    router = Router(app, PATHS, RouterSettings(max_concurrent_reviews=2))
    wires = [Wire(app, service=router) for _ in range(3)]
    for wire in wires:
        wire.feed(post())
    assert router.in_flight == 2
    text = "2 reviews are in flight, as many as limits.maxConcurrentReviews allows"
    assert wires[2].transport.written == refused(b"503 Service Unavailable", text, RETRY + CLOSE)
    assert wires[2].transport.closed
    app.seen[0].respond(200, b"")
    wires[1].lose()
    assert router.in_flight == 0
    assert wires[0].feed(post()) == ok(b"")
    assert router.in_flight == 1


def test_the_last_eighth_is_reserved_from_paths_that_fail_open() -> None:
    app = Application(holds=True)
    settings = RouterSettings(max_concurrent_reviews=16)
    router = Router(app, PATHS, settings, fails_open=lambda selection: selection == "v")
    ignored, other = b"/validate", b"/mutate"
    wires = [Wire(app, service=router) for _ in range(18)]
    for wire in wires[:14]:
        wire.feed(post(b"", ignored))
    text = (
        "14 reviews are in flight, as many as limits.maxConcurrentReviews allows for reviews that only "
        "webhooks with failurePolicy Ignore decide"
    )
    assert wires[14].feed(post(b"", ignored)) == refused(b"503 Service Unavailable", text, RETRY + CLOSE)
    for wire in wires[15:17]:
        wire.feed(post(b"", other))
    assert router.in_flight == len(app.seen) == 16
    text = "16 reviews are in flight, as many as limits.maxConcurrentReviews allows"
    assert wires[17].feed(post(b"", other)) == refused(b"503 Service Unavailable", text, RETRY + CLOSE)


def test_a_small_limit_has_no_reserve() -> None:
    app = Application(holds=True)
    settings = RouterSettings(max_concurrent_reviews=7)
    router = Router(app, PATHS, settings, fails_open=lambda selection: True)
    for _ in range(7):
        Wire(app, service=router).feed(post())
    assert router.in_flight == 7
    text = "7 reviews are in flight, as many as limits.maxConcurrentReviews allows"
    answer = Wire(app, service=router).feed(post())
    assert answer == refused(b"503 Service Unavailable", text, RETRY + CLOSE)


def test_refusals_do_not_count_as_in_flight() -> None:
    app = Application()
    router = Router(app, PATHS, RouterSettings(max_concurrent_reviews=0))
    assert Wire(app, service=router).feed(post(b"", b"/other")).startswith(b"HTTP/1.1 404")


def test_while_draining_reviews_are_refused_so_that_the_api_server_tries_again() -> None:
    wire = Wire()
    wire.service.draining = True
    text = "this replica is about to stop, try again"
    assert wire.feed(post()) == refused(b"503 Service Unavailable", text, RETRY + CLOSE)
    assert wire.app.seen == []


def test_repr_is_a_status_line() -> None:
    router = Router(Application(), PATHS)
    router.draining = True
    assert repr(router) == "<Router 4 paths, 0 in flight, draining>"
