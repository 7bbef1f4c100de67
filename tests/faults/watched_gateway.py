"""``python -m gateway`` that prints the longest time for which a worker's bytes held the event loop."""

from __future__ import annotations

import atexit
import sys
import time
from typing import TYPE_CHECKING, Any

from gateway.engine.dispatch.stream_connection import StreamConnection
from gateway.tools.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable

_holds_s = [0.0]


def _watched(handle: Callable[..., Any]) -> Callable[..., Any]:
    def watched(*arguments: Any) -> Any:
        begun = time.thread_time()
        try:
            return handle(*arguments)
        finally:
            _holds_s[0] = max(_holds_s[0], time.thread_time() - begun)

    return watched


if __name__ == "__main__":
    for name in ("data_received", "read_slice", "connection_lost", "resume_writing"):
        setattr(StreamConnection, name, _watched(getattr(StreamConnection, name)))
    atexit.register(lambda: print(f"longest hold: {_holds_s[0]:.6f} s", file=sys.stderr))  # noqa: T201
    main()
