"""Mutation testing of the pure packages and of dispatch: which small changes do their tests find?

``python -m tests.mutation sample LIST`` draws mutants. ``run LIST REPORT`` runs the tests of its package
against each, or goes on with a report that is there. ``table REPORT …`` counts those found by module, and
names what the first of several reports found and the last did not.
"""

from __future__ import annotations

import argparse
import gc
import importlib
import json
import os
import random
import resource
import select
import signal
import sys
import time
from collections import Counter, defaultdict
from contextlib import suppress
from dataclasses import dataclass
from functools import cached_property
from importlib.machinery import SourceFileLoader
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import coverage
import pytest

from tests.mutation.mutants import Mutant, mutants_of, mutated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import CodeType

TESTS_OF: Final[Mapping[str, tuple[str, ...]]] = {
    "gateway/pure/core": ("tests/core", "tests/properties"),
    "gateway/pure/cel": ("tests/cel",),
    "gateway/pure/conditions": ("tests/conditions", "tests/policies", "tests/recorded"),
    "gateway/pure/admission_policies": ("tests/policies", "tests/recorded"),
    "gateway/pure/openapi": ("tests/openapi", "tests/policies", "tests/recorded", "tests/config"),
    "gateway/engine/dispatch": ("tests/dispatch", "tests/simulation"),
}
"""The folders of the product, and of the tests that are to find their mutants."""

PATIENCE_S: Final = 60.0
"""Bounds the waits of a test of a mutant, which may never answer, instead of the bound of tests.kit."""
LONGEST_S: Final = 1800.0
"""Bounds the run of all tests of a mutant."""

SLOW_S: Final = 1.0
"""A test that takes as long may depend on time: it has to find a mutant twice."""

_MEMORY_BYTES: Final = 8 << 30


@dataclass(frozen=True)
class Recording:
    """One run of the tests of a folder: *seconds* by test, and which of these tests ran each line.

    -1 stands for the import of the module.
    """

    seconds: Mapping[str, float]
    tests_of_line: Mapping[str, Mapping[str, list[int]]]
    libraries: list[str]
    failed: list[str]

    def tests_of(self, mutant: Mutant) -> list[str]:
        """Return the tests that run the line of *mutant*, the fastest first.

        A line that also runs when its module is imported concerns all tests of the module, or of the folder.
        """
        lines = self.tests_of_line.get(mutant.path, {})
        numbers: set[int] = set()
        # A constant in a statement of several lines may have no code of its own.
        for line in range(mutant.line, mutant.first_line - 1, -1):
            numbers = numbers or set(lines.get(str(line), ()))
        if -1 in numbers:
            numbers = {number for found in lines.values() for number in found} - {-1}
            numbers = numbers or set(range(len(self.seconds)))
        names = [*self.seconds]
        tests = {names[number] for number in numbers}
        # Many tests run on both event loops. Once is enough.
        once = {
            test for test in tests if "uvloop" not in test or test.replace("uvloop", "asyncio") not in tests
        }
        return sorted(once, key=self.rank)

    def rank(self, test: str) -> tuple[int, int, str]:
        """Fast tests come first, of these those that run few lines: these lines are what they test."""
        return len(f"{self.seconds[test] * 10:.0f}"), self._lines_of_test[test], test

    @cached_property
    def _lines_of_test(self) -> Counter[str]:
        names = [*self.seconds, ""]
        return Counter(
            names[number]
            for lines in self.tests_of_line.values()
            for numbers in lines.values()
            for number in numbers
        )


class Recorder:
    """The plugin of the run that is recorded."""

    def __init__(self, folder: str) -> None:
        self._coverage = coverage.Coverage(data_file=None, source=[folder], branch=False, config_file=False)
        self._seconds: dict[str, float] = defaultdict(float)
        self._libraries: list[str] = []
        self._failed: set[str] = set()
        self._coverage.start()  # before a conftest.py imports the product

    def pytest_collection_finish(self) -> None:
        ours = {"gateway", "tests", "admission_gateway_conformance", "conftest", "__main__"}
        self._libraries = [name for name in sys.modules if name.partition(".")[0] not in ours]

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self._coverage.switch_context(item.nodeid)
        yield
        self._coverage.switch_context("")

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        self._seconds[report.nodeid] += report.duration
        if report.failed:
            self._failed.add(report.nodeid)

    def recording(self) -> dict[str, Any]:
        self._coverage.stop()
        data, here = self._coverage.get_data(), Path.cwd()
        seconds = {test: taken for test, taken in self._seconds.items() if test not in self._failed}
        numbers = {test: number for number, test in enumerate(["", *seconds], start=-1)}
        lines = {
            str(Path(file).relative_to(here)): {
                line: [numbers[test] for test in tests if test in numbers]
                for line, tests in data.contexts_by_lineno(file).items()
            }
            for file in data.measured_files()
        }
        failed = sorted(self._failed)
        return {"seconds": seconds, "tests_of_line": lines, "libraries": self._libraries, "failed": failed}


class Selection:
    """The plugin of the run of a mutant: these tests in this order, each with a limit of CPU."""

    def __init__(self, tests: list[str], seconds: Mapping[str, float]) -> None:
        self._tests = {test: number for number, test in enumerate(tests)}
        self._seconds = seconds
        self.killed_by = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        found = [item for item in items if item.nodeid in self._tests]
        items[:] = sorted(found, key=lambda item: self._tests[item.nodeid])

    def pytest_runtest_setup(self, item: pytest.Item) -> None:
        limit_s = time.process_time() + 10 + 4 * self._seconds[item.nodeid]
        resource.setrlimit(resource.RLIMIT_CPU, (int(limit_s), resource.RLIM_INFINITY))

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.killed_by = self.killed_by or report.nodeid

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.killed_by = self.killed_by or report.nodeid


def apart(function: Callable[[], dict[str, Any]], log: Path | None = None) -> dict[str, Any] | int:
    """Return the result of *function* in a forked process, or the status of a process that had none.

    A process that has no result within ``LONGEST_S`` is killed: a mutant may hang where a test ends.
    """
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        os.setsid()
        output = os.open(log or os.devnull, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        os.dup2(output, 1)
        os.dup2(output, 2)
        with suppress(BaseException), os.fdopen(writing, "w") as pipe:
            json.dump(function(), pipe)
        os._exit(0)
    os.close(writing)
    with os.fdopen(reading) as pipe:
        if not select.select((pipe,), (), (), LONGEST_S)[0]:
            os.killpg(child, signal.SIGKILL)
        text = pipe.read()
    _, status = os.waitpid(child, 0)
    with suppress(ProcessLookupError):  # workers that it left
        os.killpg(child, signal.SIGKILL)
    return json.loads(text) if text else status


def run_tests(plugin: object, *arguments: str) -> int:
    own = ["-q", "-p", "no:cacheprovider", "-W", "ignore::pytest.PytestAssertRewriteWarning"]
    own += ["-m", "smoke or not (process or slow)", "--tb", "short"]
    return int(pytest.main([*own, *arguments], plugins=[plugin]))


def record(folder: str, cache: Path) -> Recording:
    """Return the recording of the tests of *folder*, which *cache* may have, without those that fail.

    Raises:
        SystemExit: the run was broken.
    """

    def run() -> dict[str, Any]:
        recorder = Recorder(folder)
        status = run_tests(recorder, *(tests for tests in TESTS_OF[folder] if Path(tests).is_dir()))
        return recorder.recording() if status in (0, 1) else {}

    if not cache.exists():
        found = apart(run, cache.with_suffix(".log"))
        if not isinstance(found, dict) or not found:
            sys.exit(f"the tests of {folder} cannot run: {cache.with_suffix('.log')}")
        cache.write_text(json.dumps(found))
    recording = Recording(**json.loads(cache.read_text()))
    for test in recording.failed:
        print(f"not used, because it fails without a mutant: {test}", file=sys.stderr)
    return recording


def run_mutant(mutant: Mutant | None, tests: list[str], recording: Recording) -> dict[str, Any]:
    """Return how *tests* end with *mutant*; None is the control, in which nothing is changed."""
    found = {"state": "not run", "by": ""}
    while tests:
        found = _run_once(mutant, tests, recording)
        by = found["by"]
        if recording.seconds.get(by, 0) < SLOW_S or _run_once(mutant, [by], recording)["state"] == "killed":
            break
        tests = tests[tests.index(by) + 1 :]
        found = {"state": "survived", "by": ""}
    return found


def _run_once(mutant: Mutant | None, tests: list[str], recording: Recording) -> dict[str, Any]:
    def run() -> dict[str, Any]:
        if mutant is not None:
            _install(mutant)
        resource.setrlimit(resource.RLIMIT_AS, (_MEMORY_BYTES, _MEMORY_BYTES))
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
        selection = Selection(tests, recording.seconds)
        files = sorted({test.partition("::")[0] for test in tests})
        try:
            importlib.import_module("tests.kit").__dict__["PATIENCE_S"] = PATIENCE_S
            status = run_tests(selection, "-x", "--timeout", str(2 * PATIENCE_S), *files)
        except BaseException as error:
            return {"state": "killed", "by": f"import: {error!r}"}
        # Status 5: parameters of a test are made from the mutant, which no longer has those of the recording.
        return {"state": "survived" if status in (0, 5) else "killed", "by": selection.killed_by}

    found = apart(run)
    if isinstance(found, dict):
        return found
    return {"state": "killed", "by": f"status {found}: endless, or it broke the process"}


def _install(mutant: Mutant) -> None:
    """Let the module of *mutant* be imported with its change."""
    module = mutant.path.removesuffix(".py").removesuffix("/__init__").replace("/", ".")
    tree = mutated(mutant, Path(mutant.path).read_text())
    original = SourceFileLoader.get_code

    def get_code(self: SourceFileLoader, fullname: str) -> CodeType | None:
        return compile(tree, mutant.path, "exec") if fullname == module else original(self, fullname)

    setattr(SourceFileLoader, "get_code", get_code)  # noqa: B010 - mypy refuses an assignment


def sample(count: int, seed: int) -> list[Mutant]:
    """Return *count* mutants or somewhat more: of each module its share, and at least one."""
    of_module = {
        path: mutants_of(str(path), path.read_text())
        for folder in TESTS_OF
        for path in sorted(Path(folder).rglob("*.py"))
    }
    total = sum(map(len, of_module.values()))
    draw = random.Random(seed)
    drawn = [draw.sample(found, -(-count * len(found) // total)) for found in of_module.values()]
    return [mutant for found in drawn for mutant in sorted(found, key=lambda mutant: mutant.line)]


def read_list(path: Path) -> list[Mutant]:
    """Return the mutants of the list at *path* which the present source still has, with their lines."""
    found: list[Mutant] = []
    known: dict[str, dict[str, Mutant]] = {}
    for line in path.read_text().splitlines():
        module = line.partition("\t")[0]
        if module not in known:
            known[module] = {str(mutant): mutant for mutant in mutants_of(module, Path(module).read_text())}
        if line not in known[module]:
            print(f"the source has changed, left out: {line}", file=sys.stderr)
            continue
        found.append(known[module][line])
    return found


def run(listed: Path, report: Path, folders: list[str], seconds: float) -> None:
    """Run the mutants of *listed* that *report* does not have yet, and append them to it."""
    build = Path("build/mutation")
    build.mkdir(parents=True, exist_ok=True)
    done = {found["mutant"] for found in _read(report)}
    for folder in folders:
        mutants = [mutant for mutant in read_list(listed) if mutant.path.startswith(f"{folder}/")]
        mutants = [mutant for mutant in mutants if str(mutant) not in done]
        if not mutants:
            continue
        recording = record(folder, build / f"{folder.replace('/', '-')}.json")
        for library in recording.libraries:
            with suppress(Exception):
                importlib.import_module(library)
        gc.freeze()
        all_tests = sorted(recording.seconds, key=recording.rank)
        control = run_mutant(None, _within(all_tests, recording, seconds), recording)
        if control["state"] != "survived":
            sys.exit(f"{control['by']} fails without a mutant, in another order or with less time")
        for number, mutant in enumerate(mutants):
            began = time.monotonic()
            tests = recording.tests_of(mutant)
            chosen = _within(tests, recording, seconds)
            found = run_mutant(mutant, chosen, recording)
            found |= {"mutant": str(mutant), "line": mutant.line, "left": len(tests) - len(chosen)}
            found["seconds"] = round(time.monotonic() - began, 1)
            with report.open("a") as lines:
                print(json.dumps(found), file=lines)
            print(f"{number + 1}/{len(mutants)} {mutant.path}:{mutant.line} {found['state']}", flush=True)


def _within(tests: list[str], recording: Recording, seconds: float) -> list[str]:
    """Return the first of *tests*, which together take so many *seconds*."""
    left_s = seconds
    for number, test in enumerate(tests):
        left_s -= recording.seconds[test]
        if left_s < 0:
            return tests[:number]
    return tests


def _read(report: Path) -> list[dict[str, Any]]:
    return [json.loads(line) for line in report.read_text().splitlines()] if report.exists() else []


def table(reports: list[Path]) -> str:
    """Return a table of the killed mutants by module, and how the last report differs from the first."""
    found = [{result["mutant"]: result for result in _read(report)} for report in reports]
    common = set(found[0]).intersection(*found)
    killed = [Counter(m.partition("\t")[0] for m in common if r[m]["state"] == "killed") for r in found]
    total = Counter(mutant.partition("\t")[0] for mutant in common)
    lines = [f"| module | mutants |{''.join(f' {report.stem} |' for report in reports)}"]
    lines.append("|---|---:|" + "---:|" * len(reports))
    for name in [*TESTS_OF, *sorted(total)]:
        under = [module for module in total if module == name or module.startswith(f"{name}/")]
        counts = "".join(f" {sum(count[module] for module in under)} |" for count in killed)
        if under:
            lines.append(f"| {name} | {sum(total[module] for module in under)} |{counts}")
    lines.append(f"| all | {total.total()} |{''.join(f' {count.total()} |' for count in killed)}")
    for mutant in sorted(common):
        states = [result[mutant]["state"] for result in found]
        if states[0] == "killed" != states[-1]:
            lines.append(f"no longer killed: {mutant} (by {found[0][mutant]['by']})")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m tests.mutation", description=__doc__)
    commands = parser.add_subparsers(dest="command", required=True)
    drawing = commands.add_parser("sample")
    drawing.add_argument("list", type=Path)
    drawing.add_argument("--count", type=int, default=600)
    drawing.add_argument("--seed", type=int, default=1)
    running = commands.add_parser("run")
    running.add_argument("list", type=Path)
    running.add_argument("report", type=Path)
    running.add_argument("--folders", nargs="+", choices=TESTS_OF, default=list(TESTS_OF))
    running.add_argument("--seconds", type=float, default=60, help="of tests for each mutant")
    counting = commands.add_parser("table")
    counting.add_argument("reports", type=Path, nargs="+")
    options = parser.parse_args()
    os.environ["GRPC_ENABLE_FORK_SUPPORT"] = "0"
    os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
    sys.dont_write_bytecode = False  # every mutant would compile everything
    match options.command:
        case "sample":
            options.list.parent.mkdir(parents=True, exist_ok=True)
            options.list.write_text("".join(f"{mutant}\n" for mutant in sample(options.count, options.seed)))
        case "run":
            run(options.list, options.report, options.folders, options.seconds)
        case "table":
            print(table(options.reports))


if __name__ == "__main__":
    main()
