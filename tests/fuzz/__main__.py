"""``python -m tests.fuzz TARGET`` makes inputs; ``python -m tests.fuzz TARGET FILE...`` runs those in files.

The exit status is 1 if a law does not hold; the last line is the command that repeats the failure.
"""

from __future__ import annotations

import argparse
import re
import sys
import tempfile
from pathlib import Path

import coverage

from tests.fuzz.engines import (
    ROOT,
    TARGETS,
    Order,
    Report,
    by_atheris,
    by_changes,
    failure,
    files_in,
    has_atheris,
    target_of,
)


def main() -> int:
    arguments = _arguments()
    if arguments.files:
        return _replay(arguments.target, arguments.files)
    # Before the gateway is imported, so that lines of its imports count.
    measured = coverage.Coverage(
        data_file=None, branch=True, source=[str(ROOT / "gateway"), str(ROOT / "workers" / "python")]
    )
    measured.start()
    with tempfile.TemporaryDirectory() as folder:
        target = target_of(arguments.target)
        order = Order(
            arguments.target,
            arguments.runs,
            arguments.seed,
            arguments.max_len or target.MAX_BYTES,
            (arguments.corpus or Path(folder) / "corpus").absolute(),
            (arguments.found / arguments.target).absolute(),
            arguments.max_seconds,
        )
        return _fuzz(order, arguments.engine, measured)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.fuzz", description=__doc__)
    parser.add_argument("target", choices=TARGETS)
    parser.add_argument(
        "files", nargs="*", type=Path, metavar="FILE", help="inputs to run, instead of making any"
    )
    parser.add_argument("--runs", type=int, default=100_000, help="how many inputs (default %(default)s)")
    parser.add_argument(
        "--seed", type=int, default=1, help="equal seeds make equal inputs (default %(default)s)"
    )
    parser.add_argument(
        "--corpus", type=Path, help="folder of initial inputs; inputs that reach new code are added"
    )
    parser.add_argument(
        "--max-len", type=int, help="bytes of an input, at most; each target has its own default"
    )
    parser.add_argument("--max-seconds", type=int, default=0, help="end earlier (atheris only)")
    parser.add_argument(
        "--found", type=Path, default=ROOT / "build" / "fuzz" / "found", help="folder for inputs that fail"
    )
    parser.add_argument(
        "--engine",
        choices=("atheris", "changes"),
        default="atheris" if has_atheris() else "changes",
        help="default %(default)s",
    )
    return parser.parse_args()


def _fuzz(order: Order, engine: str, measured: coverage.Coverage) -> int:
    # The engine "changes" keeps no inputs, so coverage is measured during its run, which is slower.
    report = by_atheris(order) if engine == "atheris" else by_changes(order)
    rate = report.executions / max(report.seconds, 0.001)
    print(f"{order.target}: {report.executions} inputs by {engine}, seed {order.seed}, {rate:.0f}/s")
    if report.failing is not None:
        print(_excerpt(report))
        print(f"repeat with: {Path(sys.executable)} -m tests.fuzz {order.target} {report.failing}")
        return 1
    target = target_of(order.target)
    for data in (*target.seeds(), *(file.read_bytes() for file in files_in(order.corpus))):
        target.run(data)
    measured.stop()
    _print_coverage(measured, order.target)
    return 0


def _excerpt(report: Report) -> str:
    lines = [line for line in report.log.splitlines() if not re.search("stat::|INFO: Instrumenting", line)]
    return "\n".join(lines[-90:])


def _print_coverage(measured: coverage.Coverage, target: str) -> None:
    for module in target_of(target).MODULES:
        _, lines, _, missing, _ = measured.analysis2(str(ROOT / module))
        print(f"  {module}: {len(lines) - len(missing)} of {len(lines)} lines, not {missing}")


def _replay(target: str, files: list[Path]) -> int:
    status = 0
    for file in files:
        log = failure(target_of(target).run, file.read_bytes())
        print(f"{file}: {log or 'holds'}")
        status = 1 if log else status
    return status


if __name__ == "__main__":
    sys.exit(main())
