"""From windows to figures.

Ratios are formed within one round, in which everything was measured within seconds, and their median over the
rounds counts: a machine that gets slower or busier meanwhile moves both sides of a ratio.
"""

from __future__ import annotations

from operator import attrgetter
from statistics import fmean, median
from typing import TYPE_CHECKING, Literal

if TYPE_CHECKING:
    from collections.abc import Sequence

    from loadtest.windows import Round, Window

Figure = Literal["reviews_per_s", "front_us", "worker_us", "total_us", "busy", "p50_ms", "p99_ms", "tail"]
"""A figure of a window."""


def ratio(
    case: str, to: str, rounds: Sequence[Round], figure: Figure = "front_us", to_figure: Figure | None = None
) -> float:
    """Return the median, over the rounds that have both, of a figure of *case* divided by one of *to*.

    Args:
        case: The name of a case.
        to: The name of another; where a round has several windows of one their mean counts.
        rounds: What was measured.
        figure: Of *case*.
        to_figure: Of *to*; by default the same.

    Raises:
        ValueError: no round has both.
    """
    above, below = attrgetter(figure), attrgetter(to_figure or figure)
    ratios = [
        fmean(map(above, windows_of(case, round_))) / fmean(map(below, windows_of(to, round_)))
        for round_ in rounds
        if windows_of(case, round_) and windows_of(to, round_)
    ]
    if not ratios:
        raise ValueError(f"{case} and {to} were never measured in one round")
    return median(ratios)


def middle(case: str, rounds: Sequence[Round], figure: Figure) -> float:
    """Return the median of *figure* over all windows of *case*.

    Raises:
        ValueError: there are none.
    """
    found: list[float] = [
        attrgetter(figure)(window) for round_ in rounds for window in windows_of(case, round_)
    ]
    if not found:
        raise ValueError(f"{case} was never measured")
    return median(found)


def windows_of(case: str, round_: Round) -> list[Window]:
    """Return the windows of *case* in *round_*, as measured."""
    return [window for window in round_ if window.case == case]
