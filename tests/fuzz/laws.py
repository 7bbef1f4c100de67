"""The interface of targets, lower bounds for tests, and the check for internal errors."""

from __future__ import annotations

import logging
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, Protocol

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


class Target(Protocol):
    """A module of this folder that can be fuzzed."""

    MODULES: Sequence[str]
    """Modules whose coverage is reported."""
    MAX_BYTES: int
    """The maximum length of an input."""
    WORDS: Sequence[bytes]
    """Pieces that an engine may put into inputs."""

    def seeds(self) -> Iterable[bytes]:
        """Return the initial inputs."""

    def run(self, data: bytes) -> None:
        """Run the input *data*, and raise if a law does not hold."""


@contextmanager
def bounded(bounds: Sequence[tuple[Any, Mapping[str, int]]]) -> Iterator[None]:
    """Lower constants of modules inside the block, so that short inputs reach the bounds."""
    kept = [(module, {name: vars(module)[name] for name in low}) for module, low in bounds]
    for module, low in bounds:
        vars(module).update(low)
    try:
        yield
    finally:
        for module, high in kept:
            vars(module).update(high)


class Faults(logging.Handler):
    """A block in which the gateway must not log an exception as an internal error."""

    def __init__(self) -> None:
        super().__init__(logging.ERROR)
        self._found: list[logging.LogRecord] = []

    def emit(self, record: logging.LogRecord) -> None:
        if record.exc_info is not None and record.exc_info[1] is not None:
            self._found.append(record)

    def __enter__(self) -> None:
        logging.getLogger("gateway").addHandler(self)

    def __exit__(self, raised: type[BaseException] | None, *_: object) -> None:
        logging.getLogger("gateway").removeHandler(self)
        found, self._found = self._found, []
        if found and raised is None:
            assert found[0].exc_info is not None
            raise AssertionError(f"logged: {found[0].getMessage()}") from found[0].exc_info[1]
