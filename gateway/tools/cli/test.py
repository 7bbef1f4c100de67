"""``admission-gateway test``: runs the cases of PolicyTest files, and tests of Kyverno and Gatekeeper.

Exit status: 0 all that the gateway supports passed or were updated, 1 a case failed or none is supported, 2
wrong usage, configuration or suite.
"""

from __future__ import annotations

import asyncio
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final

import orjson

from gateway.base import logs
from gateway.base.errors import ConfigError
from gateway.tools.cli.arguments import add_configurations, default_config
from gateway.tools.cli.parser import Help

if TYPE_CHECKING:
    import argparse

WRONG: Final = 2
_LOOKS_EVERY_S: Final = 0.5

HELP: Final = Help(
    "Run test cases of policies: PolicyTest files, tests of Kyverno, suites of Gatekeeper. The exit "
    "status is 1 if a case fails.",
    (
        ("run all cases in a folder", "test tests"),
        (
            "run some of them, and write the results for a CI system",
            "test tests --filter 'labels*' --junit results.xml",
        ),
    ),
    "docs/test-policies.md",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    add(
        "paths",
        metavar="DIR_OR_FILE",
        nargs="+",
        type=Path,
        help=(
            "files with PolicyTests, tests of Kyverno or suites of Gatekeeper, or folders with such files in "
            "them or in subfolders"
        ),
    )
    add_configurations(
        parser, "--config", "configuration files, or folders of them, instead of those that PolicyTests name"
    )
    add(
        "--filter",
        metavar="GLOB",
        action="append",
        default=[],
        help="run only cases whose name, or SUITE/CASE, matches; may be repeated",
    )
    add("--json", action="store_true", help="print the results as JSON")
    add("--junit", metavar="FILE", type=Path, help="also write the results as JUnit XML")
    add(
        "--update",
        action="store_true",
        help="write the decisions of failed cases into expect, in PolicyTests",
    )
    add(
        "--watch",
        action="store_true",
        help="run again whenever a file of the suites or configuration changes",
    )
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, _: list[str]) -> int:
    """Run the cases, and return the exit status."""
    status, watched = _run_once(parsed)
    while parsed.watch:
        before = _state(watched)
        while _state(watched) == before:
            time.sleep(_LOOKS_EVERY_S)
        status, watched = _run_once(parsed)
    return status


def _run_once(parsed: argparse.Namespace) -> tuple[int, set[Path]]:
    """Return the exit status, and the files and folders whose change can change the results."""
    from gateway.tools.policy_tests.discovery import read_tests
    from gateway.tools.policy_tests.report import as_json, as_junit, as_text
    from gateway.tools.policy_tests.run import run_tests
    from gateway.tools.policy_tests.update import is_updated, update

    watched = {*parsed.paths, *parsed.config}
    try:
        tests = read_tests(parsed.paths, parsed.config, default_config()[0])
        watched.update(tests.named_files())
        logs.print_error(*(f"warning: {one}" for one in tests.warnings))
        results = asyncio.run(run_tests(tests, parsed.filter, parsed.config))
        if not results:
            logs.print_error(f"admission-gateway: no case matches --filter {' '.join(parsed.filter)}")
            return WRONG, watched
        changed = update(results) if parsed.update else []
        if parsed.junit is not None:
            parsed.junit.write_bytes(as_junit(results))
    except ConfigError as error:
        logs.print_error(*error.problems)
        return WRONG, watched
    if parsed.json:
        logs.print_output(orjson.dumps(as_json(results)).decode())
    else:
        logs.print_output(*as_text(results))
    for file in changed:
        logs.print_error(f"updated: {file}")
    left = [one for one in results if one.status == "failed" and not (parsed.update and is_updated(one))]
    is_none_supported = all(one.status == "not supported" for one in results)
    return int(bool(left) or is_none_supported), watched


def _state(watched: set[Path]) -> list[tuple[str, int, int]]:
    """Return names, times and sizes of all files in *watched*."""
    found = []
    for path in watched:
        for file in path.rglob("*") if path.is_dir() else [path]:
            try:
                status = file.stat()
            except OSError:
                continue
            found.append((str(file), status.st_mtime_ns, status.st_size))
    return sorted(found)
