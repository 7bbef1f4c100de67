"""The load generator, run as a process of its own through its command line."""

from __future__ import annotations

import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import orjson

from loadtest.servers import ROOT, BenchError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

SPARE_S: Final = 60.0
"""What a run may take beyond its window, to connect and to count."""


class Generator:
    """A run of the load generator: begins with this object, ends with the ``with`` block if not before."""

    def __init__(self, case: str, arguments: Sequence[str]) -> None:
        self._case = case
        self._child = subprocess.Popen(
            [sys.executable, "-m", "loadtest.load", *arguments],
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )

    def __enter__(self) -> Generator:
        return self

    def __exit__(self, *_: object) -> None:
        if self._child.poll() is None:
            self._child.kill()
        self._child.communicate()

    def result(self, window_s: float) -> Mapping[str, Any]:
        """Return what it printed, a run without errors and with reviews.

        Raises:
            BenchError: it is none, or took much longer than *window_s*.
        """
        try:
            printed, said = self._child.communicate(timeout=window_s + SPARE_S)
        except subprocess.TimeoutExpired:
            raise BenchError(f"{self._case}: the load generator does not come to an end") from None
        if self._child.returncode != 0:
            raise BenchError(f"{self._case}: the load generator failed: {said.strip()[-1000:]}")
        found: dict[str, Any] = orjson.loads(printed)
        return checked(self._case, found)


def checked(case: str, found: Mapping[str, Any]) -> Mapping[str, Any]:
    """Return *found* if it is a run without errors and with reviews.

    Raises:
        BenchError: it is not.
    """
    if found["errors"] or not found["reviews"]:
        wrong = "; ".join(f"{count} times {what}" for what, count in found["errors"].items())
        raise BenchError(f"{case}: {wrong or 'no review was answered'}")
    return found
