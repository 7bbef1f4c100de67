"""Progress of a command that takes long, in the last line of a terminal.

Nothing is shown before ``SHOWN_AFTER_S``, and nothing at all where standard error is no terminal. A thread
draws the line, so that it also moves while the command waits. Other output replaces it, see :func:`hidden`.
"""

from __future__ import annotations

import shutil
import sys
import threading
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Final, Self, TextIO

from admission_gateway_worker.text import printable

if TYPE_CHECKING:
    from collections.abc import Iterator

SHOWN_AFTER_S: Final = 2.0
_DRAWN_EVERY_S: Final = 0.2
_BAR_CHARS: Final = 20
_CLEAR: Final = "\r\x1b[2K"

_lock = threading.RLock()
_shown: TextIO | None = None
"""The terminal whose last line is a progress at present."""


@contextmanager
def hidden() -> Iterator[None]:
    """Clear the line while other output is written."""
    global _shown  # noqa: PLW0603 - there is one standard error
    with _lock:
        if _shown is not None:
            _shown.write(_CLEAR)
            _shown.flush()
            _shown = None
        yield


class Progress:
    """The progress of one piece of work; a context manager."""

    def __init__(
        self, label: str, total: int = 0, stream: TextIO | None = None, shown_after_s: float = SHOWN_AFTER_S
    ) -> None:
        """*label* says what is done. *total* is the number of steps, 0 if it is not known."""
        self._label = label
        self._total = total
        self._done = 0
        self._stream = sys.stderr if stream is None else stream
        self._shown_after_s = shown_after_s
        self._began = time.monotonic()
        self._over = threading.Event()
        self._thread: threading.Thread | None = None

    def __enter__(self) -> Self:
        if self._stream is not None and self._stream.isatty():
            self._thread = threading.Thread(target=self._draw, daemon=True)
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over.set()
        if self._thread is not None:
            self._thread.join()
        with hidden():
            pass

    def advance(self) -> None:
        """One more step is done."""
        self._done += 1

    def line(self) -> str:
        """Return the line as it is now, without codes of the terminal."""
        elapsed_s = time.monotonic() - self._began
        parts = [printable(self._label, 200)]
        if self._total:
            filled = _BAR_CHARS * min(self._done, self._total) // self._total
            parts += [f"[{'#' * filled}{' ' * (_BAR_CHARS - filled)}]", f"{self._done} of {self._total}"]
        return f"{' '.join(parts)}, {elapsed_s:.0f} s"

    def _draw(self) -> None:
        global _shown  # noqa: PLW0603 - there is one standard error
        waits_s = self._shown_after_s
        while not self._over.wait(waits_s):
            waits_s = _DRAWN_EVERY_S
            with _lock:
                width = max(shutil.get_terminal_size().columns - 1, 20)
                self._stream.write(_CLEAR + self.line()[:width])
                self._stream.flush()
                _shown = self._stream
