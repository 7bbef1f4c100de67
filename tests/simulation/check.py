"""Runs the world of one seed and checks it; a failure prints the command that repeats it."""

from __future__ import annotations

from tests.simulation.causes import Causes
from tests.simulation.counts import judge_counts, judge_haste
from tests.simulation.laws import judge_reviews
from tests.simulation.run import Simulation
from tests.simulation.world import world


def check(seed: int, *, is_quiet: bool = False) -> Simulation:
    """Run the world of *seed*; *is_quiet*: one in which nothing goes wrong.

    Raises:
        AssertionError: something does not hold; its notes name the seed and show the last events.
    """
    simulation = Simulation(world(seed, is_quiet=is_quiet))
    try:
        simulation.run()
        assert not simulation.complaints, "\n".join(dict.fromkeys(simulation.complaints))
        judge_reviews(simulation)
        Causes(simulation).judge()
        judge_counts(simulation)
        if is_quiet:
            judge_haste(simulation)
    except Exception as error:
        command = f"python -m tests.simulation {seed}{' --quiet' if is_quiet else ''}"
        if not getattr(error, "__notes__", None):
            error.add_note(simulation.journal.tail())
        error.add_note(f"with seed {seed}; to see all of it: {command}")
        raise
    return simulation
