"""A new TLS connection for each review, against a real server."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from loadtest.churn import measure_fresh
from loadtest.exchange import Target
from loadtest.measurement import Plan
from tests.loadtest.review_server import REVIEW, RIGHT, ReviewServer

if TYPE_CHECKING:
    from pathlib import Path


def test_there_are_as_many_connections_as_reviews(certificate: tuple[Path, Path]) -> None:
    with ReviewServer(certificate) as server:
        found = measure_fresh(Target(server.url, REVIEW), Plan(connections=4, warmup_s=0.0, count=30))
    assert found.errors == {}
    assert (found.reviews, found.handshakes, found.resumed) == (30, 30, 0)
    assert (server.reviews, server.connections, server.resumed) == (30, 30, 0)
    assert found.latencies_ms["p50"] <= found.latencies_ms["p999"] <= found.latencies_ms["max"]


def test_every_connection_of_a_slot_but_its_first_resumes(certificate: tuple[Path, Path]) -> None:
    with ReviewServer(certificate) as server:
        plan = Plan(connections=1, warmup_s=0.0, count=10)
        found = measure_fresh(Target(server.url, REVIEW), plan, resume=True)
    assert (found.handshakes, found.resumed) == (10, 9)
    assert (server.connections, server.resumed) == (10, 9)


def test_nothing_resumes_where_the_server_gives_no_tickets(certificate: tuple[Path, Path]) -> None:
    with ReviewServer(certificate, tickets=0) as server:
        plan = Plan(connections=1, warmup_s=0.0, count=5)
        found = measure_fresh(Target(server.url, REVIEW), plan, resume=True)
    assert found.errors == {}
    assert (found.handshakes, found.resumed) == (5, 0)


@pytest.mark.slow
def test_a_warm_up_is_not_counted(certificate: tuple[Path, Path]) -> None:
    with ReviewServer(certificate) as server:
        found = measure_fresh(Target(server.url, REVIEW), Plan(connections=2, warmup_s=0.1, count=20))
    assert found.errors == {}
    assert found.reviews == found.handshakes == 20
    assert server.connections == server.reviews > 20


@pytest.mark.slow
def test_without_a_count_the_window_ends_it(certificate: tuple[Path, Path]) -> None:
    with ReviewServer(certificate) as server:
        found = measure_fresh(Target(server.url, REVIEW), Plan(connections=2, warmup_s=0.0, window_s=0.2))
    assert found.errors == {}
    assert 0 < found.reviews <= server.reviews


def test_wrong_answers_are_errors(certificate: tuple[Path, Path]) -> None:
    with ReviewServer(certificate, lambda number: RIGHT if number < 3 else b"{}") as server:
        found = measure_fresh(Target(server.url, REVIEW), Plan(connections=1, warmup_s=0.0, count=5))
    assert found.reviews == 3
    assert found.errors == {"the body differs from that of the first answer": 2}


def test_a_connection_that_is_lost_ends_its_slot(certificate: tuple[Path, Path]) -> None:
    with ReviewServer(certificate, lambda number: RIGHT if number < 3 else None) as server:
        found = measure_fresh(Target(server.url, REVIEW), Plan(connections=2, warmup_s=0.0, count=9))
    assert found.reviews == 3
    assert sum(found.errors.values()) == 2
    assert all(text.startswith("connection lost: ") for text in found.errors)


def test_a_server_that_is_not_there_is_an_error() -> None:
    target = Target("https://127.0.0.1:1/validate", REVIEW)
    with pytest.raises(ConnectionRefusedError):
        measure_fresh(target, Plan(connections=2, warmup_s=0.0, count=5))
