"""Histograms as the benchmarks read them."""

from __future__ import annotations

import pytest

from tests.e2e.histograms import Histogram

TEXT = """\
# TYPE calls_seconds histogram
calls_seconds_bucket{name="a",type="admit",le="0.1"} 10
calls_seconds_bucket{name="a",type="admit",le="0.5"} 20
calls_seconds_bucket{name="a",type="admit",le="+Inf"} 20
calls_seconds_sum{name="a",type="admit"} 4.5
calls_seconds_count{name="a",type="admit"} 20
calls_seconds_bucket{name="b",type="admit",le="0.1"} 0
calls_seconds_bucket{name="b",type="admit",le="0.5"} 0
calls_seconds_bucket{name="b",type="admit",le="+Inf"} 5
calls_seconds_sum{name="b",type="admit"} 10
calls_seconds_count{name="b",type="admit"} 5
calls_seconds_total{name="a"} 7
other_calls_seconds_sum{name="a"} 100
"""


def test_series_are_chosen_by_their_labels_and_added_up() -> None:
    assert Histogram.read(TEXT, "calls_seconds", name="a").count == 20
    assert Histogram.read(TEXT, "calls_seconds", name="a|b", type="admit").total_s == 14.5
    assert Histogram.read(TEXT, "calls_seconds", type="validate") == Histogram()


@pytest.mark.parametrize(
    ("name", "share", "milliseconds"), [("a", 0.25, 50), ("a", 0.5, 100), ("a", 0.75, 300), ("b", 0.5, 500)]
)
def test_quantiles_are_interpolated_within_a_bucket(name: str, share: float, milliseconds: float) -> None:
    found = Histogram.read(TEXT, "calls_seconds", name=name)
    assert found.quantile_ms(share) == pytest.approx(milliseconds)


def test_the_difference_is_what_was_observed_later() -> None:
    earlier = Histogram.read(TEXT, "calls_seconds", name="a")
    later = Histogram.read(TEXT, "calls_seconds")
    assert later.since(earlier) == Histogram.read(TEXT, "calls_seconds", name="b")
