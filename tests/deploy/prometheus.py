"""The alerting rules as docs/metrics.md has them written for a Prometheus without the operator."""

from __future__ import annotations

import re
import subprocess
from typing import TYPE_CHECKING

from tests.docs.pages import DOCS, ROOT

if TYPE_CHECKING:
    from pathlib import Path


def plain_rules(folder: Path) -> Path:
    """Write the rule file to *folder* with the command of the page; return the file."""
    (command,) = re.findall(r"^(sed .*) > \S+rules\.yaml$", (DOCS / "metrics.md").read_text(), re.MULTILINE)
    file = folder / "rules.yaml"
    with file.open("w") as written:
        subprocess.run(["sh", "-c", command], cwd=ROOT, stdout=written, check=True)
    return file
