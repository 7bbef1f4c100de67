"""Runs a command that ends when the process that started it ends, however that came about.

``python -m gateway.process.leash PARENT COMMAND…``, with the process id of the one that starts it. A gateway
that is killed cannot stop its workers; the kernel does it instead. Linux only: elsewhere the command runs
without a leash.

Source: prctl(2), PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def hold(parent: int) -> None:
    """Have the kernel send SIGTERM to this process when its parent ends; end now if that is not *parent*.

    It holds for the program that this process turns into, too.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            # It ended before the kernel was told.
            sys.exit(1)


def main() -> None:
    """Replace this process by the command in its arguments; exit status 1 if it cannot be run."""
    parent, *command = sys.argv[1:]
    hold(int(parent))
    try:
        os.execvp(command[0], command)  # noqa: S606 - the operator's own command, without a shell
    except OSError as error:
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
