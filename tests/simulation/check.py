"""Runs the scenario of one seed and checks it; a failure prints the command that repeats it."""

from __future__ import annotations

from tests.simulation.causes import Causes
from tests.simulation.counts import check_counts, check_latency
from tests.simulation.laws import check_reviews
from tests.simulation.run import Simulation
from tests.simulation.scenario import scenario_of


def check(seed: int, *, is_quiet: bool = False) -> Simulation:
    """Run the scenario of *seed*; *is_quiet*: a scenario without faults.

    Raises:
        AssertionError: a law does not hold; the notes name the seed and show the last events.
    """
    simulation = Simulation(scenario_of(seed, is_quiet=is_quiet))
    try:
        simulation.run()
        assert not simulation.errors, "\n".join(dict.fromkeys(simulation.errors))
        check_reviews(simulation)
        Causes(simulation).check()
        check_counts(simulation)
        if is_quiet:
            check_latency(simulation)
    except Exception as error:
        command = f"python -m tests.simulation {seed}{' --quiet' if is_quiet else ''}"
        if not getattr(error, "__notes__", None):
            error.add_note(simulation.journal.tail())
        error.add_note(f"with seed {seed}; print the whole journal with: {command}")
        raise
    return simulation
