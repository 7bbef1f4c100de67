"""Run seeds: ``python -m tests.simulation SEED`` prints one journal; ``--count N`` runs N seeds."""

from __future__ import annotations

import argparse
import sys
import time

from tests.simulation.check import check

MAX_FAILURES = 20
"""Failed seeds at which the run ends."""


def main() -> int:
    """Run the seeds of the command line; return 1 if a seed failed."""
    parser = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    parser.add_argument("seed", type=int, help="the seed, or the first of several")
    parser.add_argument("--count", type=int, default=1, help="how many seeds to run (default: 1)")
    parser.add_argument("--quiet", action="store_true", help="scenarios without faults")
    options = parser.parse_args()
    if options.count == 1:
        simulation = check(options.seed, is_quiet=options.quiet)
        sys.stdout.writelines(f"{line}\n" for line in simulation.journal.lines())
        return 0
    failed: list[int] = []
    started = time.monotonic()
    seeds = range(options.seed, options.seed + options.count)
    for seed in seeds:
        if len(failed) == MAX_FAILURES:
            break
        try:
            check(seed, is_quiet=options.quiet)
        except Exception as error:
            failed.append(seed)
            sys.stdout.write(f"seed {seed}: {type(error).__name__}: {str(error)[:300]}\n")
            sys.stdout.flush()
    taken_s = time.monotonic() - started
    found = " ".join(map(str, failed)) or "none failed"
    sys.stdout.write(f"seeds {seeds.start} to {seed} in {taken_s:.0f} s: {found}\n")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
