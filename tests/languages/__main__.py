"""``make test-workers``: builds and tests the SDK of each language with its own tools, then all together.
So it does with the worker programs of other engines, which take no part in the tests of all together.

    python -m tests.languages                   # all of them
    python -m tests.languages go rust           # these, and beside them Python's
    python -m tests.languages --build java      # only build, for other tests and benchmarks
    python -m tests.languages --landing         # Go, and those that the change touches
    python -m tests.languages gatekeeper        # a worker program of another engine

A language whose tools are missing is skipped and reported. The exit status is 0 if nothing failed, 1 if
something did.
"""

from __future__ import annotations

import argparse
import os
import signal
import subprocess
import sys
import time
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from tests.change import changed_paths
from tests.languages.toolchains import BUILT, PROGRAMS, PYTHON, ROOT, Language, missing

if TYPE_CHECKING:
    from collections.abc import Sequence

STEP_WITHIN_S: Final = 1800.0
"""The timeout of one command, for a download that hangs."""
END_WITHIN_S: Final = 20.0
"""The timeout of the end after SIGINT."""
CHOSEN: Final = "WORKER_LANGUAGES"
"""The environment variable with the languages that are built."""
TOGETHER: Final = "together"

Verdict = Literal["passed", "failed", "skipped"]


@dataclass(frozen=True, slots=True)
class Result:
    """The result of one language, or of all together."""

    name: str
    verdict: Verdict
    why: str = ""

    def __str__(self) -> str:
        return f"{self.name}: {self.verdict}{f' ({self.why})' if self.why else ''}"


def run(title: str, command: str | Sequence[str], **environment: str) -> str:
    """Run *command*, a shell line or a program with its arguments; return the error, or an empty string.

    Its output goes where this program's does. What it has started ends with it if it takes too long.
    """
    text = command if isinstance(command, str) else " ".join(command)
    say(f"== {title}: {text}")
    line = ["sh", "-c", command] if isinstance(command, str) else command
    began = time.monotonic()
    with subprocess.Popen(
        line,
        cwd=ROOT,
        env={**os.environ, **environment},
        stdin=subprocess.DEVNULL,
        process_group=0,
    ) as child:
        try:
            status = child.wait(STEP_WITHIN_S)
        except BaseException as error:
            end(child)
            if not isinstance(error, subprocess.TimeoutExpired):
                raise
            return f"{title} took longer than {STEP_WITHIN_S:.0f} s"
    say(f"== {title}: {'done' if status == 0 else f'status {status}'} after {time.monotonic() - began:.0f} s")
    return "" if status == 0 else f"{title} failed"


def end(child: subprocess.Popen[bytes]) -> None:
    """Interrupt *child*, then kill it and its descendants."""
    for number in (signal.SIGINT, signal.SIGKILL):
        with suppress(ProcessLookupError, subprocess.TimeoutExpired):
            os.killpg(child.pid, number)
            child.wait(END_WITHIN_S)


def make(language: Language, *, only_build: bool = False) -> tuple[Result, bool]:
    """Build and test *language*; return the result, and whether its samples can be started."""
    lacks = missing(language)
    if lacks:
        return Result(language.name, "skipped", lacks), False
    wrong = run(f"{language.name} build", language.build)
    if not wrong and not (ROOT / language.product).is_file():
        wrong = f"{language.name} build left no {language.product}"
    is_built = not wrong
    if is_built and not only_build:
        wrong = run(f"{language.name} test", language.test)
    return Result(language.name, "failed" if wrong else "passed", wrong), is_built


def test_together(names: Sequence[str]) -> Result:
    """Run the tests of this folder with the languages *names*."""
    # Two at a time: one test waits for minutes. Those that publish an SDK are one after another.
    command = [sys.executable, "-m", "pytest", "-n", "2", "--dist", "loadgroup", "tests/languages"]
    wrong = run(TOGETHER, command, **{CHOSEN: " ".join(names)})
    return Result(TOGETHER, "failed" if wrong else "passed", wrong)


def of_landing(changed: Sequence[str]) -> list[str]:
    """Return the languages that stand for all, and what *changed*, paths of the repository, concern."""
    languages = [
        language.name
        for language in BUILT
        if language.name == "go"
        or any(path.startswith((f"{language.folder}/", "protos/")) for path in changed)
    ]
    # A program takes minutes to build for the first time.
    programs = [
        program.name
        for program in PROGRAMS
        if program.lands
        and any(path.startswith((f"{program.folder}/", "workers/engines/")) for path in changed)
    ]
    return languages + programs


def closing(results: Sequence[Result]) -> str:
    """Return the summary: a line for each of *results*, and counts."""
    verdicts = [result.verdict for result in results]
    counts = [f"{verdicts.count(verdict)} {verdict}" for verdict in ("passed", "failed", "skipped")]
    return "\n".join([*map(str, results), ", ".join(counts)])


def say(line: str) -> None:
    """Print *line* before the output of the next command."""
    print(line, flush=True)


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line and return the exit status."""
    names = [language.name for language in (*BUILT, *PROGRAMS)]
    parser = argparse.ArgumentParser(
        "tests.languages", description="Builds and tests the worker SDKs and programs."
    )
    parser.add_argument(
        "languages", nargs="*", metavar="LANGUAGE", help=f"of {', '.join(names)}; default all"
    )
    parser.add_argument("--build", action="store_true", help="build the samples, and test nothing")
    parser.add_argument("--landing", action="store_true", help="Go, and those that the change touches")
    options = parser.parse_args(argv)
    if options.landing:
        options.languages += of_landing(changed_paths())
    for unknown in set(options.languages) - set(names):
        parser.error(f"{unknown} is none of {', '.join(names)}")
    # SIGTERM ends the child processes, too, as SIGINT does.
    signal.signal(signal.SIGTERM, signal.default_int_handler)
    results, ready = [], [PYTHON.name]
    for language in (*BUILT, *PROGRAMS):
        if not options.languages or language.name in options.languages:
            result, is_built = make(language, only_build=options.build)
            results.append(result)
            ready += [language.name] * (is_built and language in BUILT)
    programs = {program.name for program in PROGRAMS}
    if not options.build and not (options.languages and programs.issuperset(options.languages)):
        results.append(test_together(ready))
    say(f"\n{closing(results)}")
    return 1 if any(result.verdict == "failed" for result in results) else 0


if __name__ == "__main__":
    try:
        sys.exit(main())
    except KeyboardInterrupt:
        sys.exit("tests.languages: interrupted")
