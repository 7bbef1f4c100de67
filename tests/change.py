"""The change that lands: `make landing` runs more of what it touches.

It is everything since the commit in ``$LANDING_BASE``; without it, since the newest commit that is
``CHANGE_H`` hours older than the last one.
"""

from __future__ import annotations

import os
import subprocess
from typing import Final

from tests.kit import ROOT

CHANGE_H: Final = 4


def changed_paths() -> list[str]:
    """Return the paths of the repository that the change touches."""
    return _git("diff", "--name-only", os.environ.get("LANDING_BASE") or _base(), "HEAD").splitlines()


def _base() -> str:
    last = int(_git("log", "-1", "--format=%ct"))
    older = _git("rev-list", "-1", f"--before={last - CHANGE_H * 3600}", "HEAD").strip()
    return older or _git("rev-list", "--max-parents=0", "HEAD").split()[-1]


def _git(*arguments: str) -> str:
    return subprocess.run(("git", *arguments), cwd=ROOT, capture_output=True, text=True, check=True).stdout
