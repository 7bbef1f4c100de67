"""Windows and rounds as tests want them."""

from __future__ import annotations

from typing import Any

from loadtest.windows import Round, Window


def a_window(case: str, front_us: float = 50.0, **figures: Any) -> Window:
    """Return a window of *case* with *front_us* of CPU; what else is given counts, the rest is made up."""
    made_up = {"reviews_per_s": 1000.0, "worker_us": 7.0, "busy": 0.5, "p50_ms": 1.25, "p99_ms": 9.875}
    return Window(case, front_us=front_us, **{**made_up, **figures})


def a_round(**costs: float | list[float]) -> Round:
    """Return a round with windows of the cases in *costs* (``_`` for ``-``), by their CPU in microseconds."""
    return tuple(
        a_window(name.replace("_", "-"), cost)
        for name, found in costs.items()
        for cost in (found if isinstance(found, list) else [found])
    )
