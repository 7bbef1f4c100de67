"""``python -m loadtest.policies``: builds the workers of ``loadtest.policies`` in all languages.

A language whose tools are missing is skipped and reported. Exit status 1 if a build failed.
"""

from __future__ import annotations

import subprocess
import sys

from loadtest.policies import POLICY_WORKERS
from tests.languages.toolchains import ROOT, missing


def main() -> int:
    """Build, and return the exit status."""
    status = 0
    for language in POLICY_WORKERS.values():
        why = missing(language)
        if not why and language.build:
            done = subprocess.run(["sh", "-c", language.build], cwd=ROOT, check=False)
            why = "the build failed" if done.returncode else ""
            status |= bool(why)
        print(f"{language.title}: {why or 'ready'}")
    return status


if __name__ == "__main__":
    sys.exit(main())
