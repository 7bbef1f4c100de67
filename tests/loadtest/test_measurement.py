"""Percentiles, the CPU clock, and what a full generator says."""

from __future__ import annotations

from dataclasses import asdict

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.measurement import Measurement, Stopwatch, percentiles_ms


@given(st.lists(st.floats(0, 100), min_size=1))
def test_each_percentile_is_a_latency_that_its_share_does_not_exceed(latencies_s: list[float]) -> None:
    found = percentiles_ms(latencies_s)
    for name, share in {"p50": 0.5, "p90": 0.9, "p99": 0.99, "p999": 0.999, "max": 1.0}.items():
        assert found[name] in {latency * 1000 for latency in latencies_s}
        assert sum(latency * 1000 <= found[name] for latency in latencies_s) >= share * len(latencies_s)


def test_nothing_has_no_percentiles() -> None:
    assert percentiles_ms([]) == {}


def test_what_older_runs_found_can_be_read() -> None:
    """The fields that every run has are enough, and what is printed can be read again."""
    found = Measurement(reviews=1, seconds=1.0, latencies_ms={}, cpu_s={}, errors={})
    assert Measurement(**orjson.loads(orjson.dumps(asdict(found)))) == found


@pytest.mark.parametrize(("cpu_s", "doubts"), [(0.94, 0), (0.96, 1), (1.5, 1)])
def test_a_full_generator_is_doubted(cpu_s: float, doubts: int) -> None:
    stopwatch = Stopwatch([])
    stopwatch.seconds, stopwatch.cpu_s = 1.0, {"load": cpu_s}
    assert len(stopwatch.doubts()) == doubts
