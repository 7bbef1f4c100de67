"""Where a benchmark ran: the machine without its name, and the versions that matter."""

from __future__ import annotations

import os
import platform
import re
import ssl
from importlib.metadata import version
from pathlib import Path


def machine() -> str:
    """Return CPU model, usable cores and memory in one line."""
    cpu = _first(r"^model name\s*:\s*(.+)$", Path("/proc/cpuinfo")) or platform.machine()
    kib = _first(r"^MemTotal:\s*(\d+) kB$", Path("/proc/meminfo"))
    memory = f"{int(kib) / 2**20:.0f} GiB" if kib else "unknown memory"
    return f"{cpu}, {cores()} cores, {memory}"


def cores() -> int:
    """Return how many cores this process may use."""
    return len(os.sched_getaffinity(0))


def versions() -> str:
    """Return the versions of what a review passes through, in one line."""
    names = ("grpcio", "protobuf", "orjson", "httptools", "uvloop")
    packages = ", ".join(f"{name} {version(name)}" for name in names)
    return f"Python {platform.python_version()}, {packages}, {ssl.OPENSSL_VERSION}"


def _first(pattern: str, path: Path) -> str:
    try:
        found = re.search(pattern, path.read_text(), re.MULTILINE)
    except OSError:
        return ""
    return found[1].strip() if found else ""
