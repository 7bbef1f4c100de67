"""Run a command that the kernel ends as soon as its parent process has ended.

``python -m gateway.server.process.parent_death PARENT[:PIPE] COMMAND…``, where PARENT is the process id of
the parent. If the command cannot be executed, the number of the error is written to PIPE, or else printed. A
gateway that is killed cannot stop its workers, so the kernel does. Linux only: elsewhere the command runs
without this protection.

Source: prctl(2), PR_SET_PDEATHSIG.
"""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

_PR_SET_PDEATHSIG: Final = 1


def end_with_parent(parent: int) -> None:
    """Have the kernel send SIGTERM to this process when its parent ends; exit if *parent* is not the parent.

    The setting survives exec, so it also applies to the command.
    """
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGTERM)
        if os.getppid() != parent:
            # The parent ended before prctl() was called.
            sys.exit(1)


def main() -> None:
    """Replace this process by the command in its arguments; exit status 1 if it cannot be executed."""
    parent, *command = sys.argv[1:]
    parent, _, pipe = parent.partition(":")
    end_with_parent(int(parent))
    if pipe:
        os.set_inheritable(int(pipe), False)  # noqa: FBT003 - the standard library's only way
    try:
        os.execvp(command[0], command)  # noqa: S606 - the operator's own command, without a shell
    except OSError as error:
        if pipe:
            os.write(int(pipe), str(error.errno).encode())
            sys.exit(1)
        sys.exit(f"{command[0]}: {error.strerror}")


if __name__ == "__main__":
    main()
