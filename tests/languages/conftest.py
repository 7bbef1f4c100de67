"""A worker of the sample policies in each language; languages without toolchain are skipped."""

from __future__ import annotations

import os
import signal
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest

from tests.languages.__main__ import CHOSEN, make
from tests.languages.kit import SOME_PORT, Sample
from tests.languages.projects import forget_go_module, publish
from tests.languages.toolchains import LANGUAGES, NAMES, missing, unready

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.languages.projects import Published
    from tests.languages.toolchains import Language


def pytest_configure() -> None:
    """Let SIGTERM end the child processes, too, as SIGINT does."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)


@pytest.fixture(scope="session")
def absent() -> dict[str, str]:
    """The languages that are skipped, with the reason.

    ``make test-workers`` passes the languages that it has built. Otherwise the available ones are built here.
    """
    chosen = os.environ.get(CHOSEN)
    if chosen is not None:
        left_out = {name: "not among those that were built" for name in NAMES if name not in chosen.split()}
        return {language.name: left_out[language.name] for language in LANGUAGES if language.name in left_out}
    found = {}
    for language in LANGUAGES:
        lacks = missing(language)
        if not lacks and language.build:
            result, _ = make(language, only_build=True)
            assert result.verdict == "passed", f"{result}"
        if lacks or unready(language):
            found[language.name] = lacks or unready(language)
    return found


@pytest.fixture(params=LANGUAGES, ids=NAMES)
def language(request: pytest.FixtureRequest, absent: dict[str, str]) -> Language:
    """Each language that is available."""
    chosen: Language = request.param
    if chosen.name in absent:
        pytest.skip(f"{chosen.name}: {absent[chosen.name]}")
    return chosen


@pytest.fixture
def published(tmp_path: Path, language: Language) -> Iterator[Published]:
    """The artifact of the language, for projects in the folder of the test."""
    yield publish(language, tmp_path)
    if language.name == "go":
        forget_go_module()


@pytest.fixture(scope="session")
def present(absent: dict[str, str]) -> list[Language]:
    """All available languages: at least two, for mixed pools."""
    found = [language for language in LANGUAGES if language.name not in absent]
    if len(found) < 2:
        pytest.skip("; ".join(f"{name}: {why}" for name, why in absent.items()))
    return found


@pytest.fixture(scope="session")
def samples(present: list[Language]) -> Iterator[dict[str, Sample]]:
    """A worker of each language on its own port, by the name of the language."""
    with ExitStack() as stack:
        started = {}
        for language in present:
            started[language.name] = sample = Sample(language)
            stack.callback(sample.stop)
        yield started


@pytest.fixture
def start_sample(processes: ExitStack) -> Callable[..., Sample]:
    """Start a worker for this test: ``start_sample(language, listen=SOME_PORT, *options)``."""

    def start(language: Language, listen: str = SOME_PORT, *options: str) -> Sample:
        sample = Sample(language, listen, *options)
        processes.callback(sample.stop)
        return sample

    return start
