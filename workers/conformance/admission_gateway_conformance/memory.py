"""The memory of a worker's processes."""

from __future__ import annotations

import os
from pathlib import Path

_PROC = Path("/proc")


def resident_bytes(pid: int) -> int | None:
    """Return the resident memory of the process *pid* and of those that it started; None if it is unknown.

    Source: proc(5), /proc/[pid]/stat: state and parent follow the name, which may contain any characters; the
    22nd field after the name is the number of resident pages.
    """
    parents: dict[int, int] = {}
    pages: dict[int, int] = {}
    for folder in _PROC.glob("[0-9]*"):
        try:
            fields = (folder / "stat").read_text().rpartition(")")[2].split()
            number = int(folder.name)
            parents[number], pages[number] = int(fields[1]), int(fields[21])
        except (OSError, IndexError, ValueError):
            continue  # it has ended
    if pid not in pages:
        return None
    return sum(pages[number] for number in pages if _descends(number, pid, parents)) * os.sysconf(
        "SC_PAGE_SIZE"
    )


def _descends(number: int, ancestor: int, parents: dict[int, int]) -> bool:
    seen = set()
    while number and number not in seen:
        if number == ancestor:
            return True
        seen.add(number)
        number = parents.get(number, 0)
    return False
