"""``make test-pythons``: installs with each other Python from 3.11 on, and runs the tests marked ``smoke``.

    python -m tests.pythons

A Python counts as installed if ``python3.N`` on the search path runs, or if pyenv has it. The exit
status is 1 if something failed.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Final

from tests.kit import ROOT

if TYPE_CHECKING:
    from collections.abc import Iterator

MINORS: Final = range(11, 20)
WITHIN_S: Final = 3000.0
"""The timeout of one command, for a download that hangs."""


def candidates(minor: int) -> Iterator[str]:
    """Yield programs that may be Python 3.*minor*."""
    found = shutil.which(f"python3.{minor}")
    if found is not None:
        yield found
    versions = Path(os.environ.get("PYENV_ROOT") or Path.home() / ".pyenv") / "versions"
    yield from sorted(str(path) for path in versions.glob(f"3.{minor}.*/bin/python3"))


def is_python(program: str, minor: int) -> bool:
    """Return whether *program* runs as Python 3.*minor*; a shim of pyenv may not."""
    ask = (program, "-c", f"import sys; sys.exit(sys.version_info[:2] != (3, {minor}))")
    return subprocess.run(ask, capture_output=True, timeout=WITHIN_S, check=False).returncode == 0


def main() -> int:
    """Run everything and return the exit status."""
    failed = []
    for minor in MINORS:
        if minor == sys.version_info.minor:
            continue
        program = next((one for one in candidates(minor) if is_python(one, minor)), None)
        if program is None:
            print(f"Python 3.{minor} is not installed, and not tested", flush=True)
            continue
        environment = ROOT / "build" / "pythons" / f"3.{minor}"
        steps = (
            ("make", "install", f"PYTHON={program}", f"VENV={environment}"),
            (f"{environment}/bin/pytest", "-q", "-m", "smoke"),
        )
        print(f"== Python 3.{minor}: {program}", flush=True)
        if any(subprocess.run(step, cwd=ROOT, timeout=WITHIN_S, check=False).returncode for step in steps):
            failed.append(f"3.{minor}")
    if failed:
        print(f"failed with Python {', '.join(failed)}")
    return bool(failed)


if __name__ == "__main__":
    sys.exit(main())
