"""All outputs of one preview with the sample policies, byte for byte.

``UPDATE_GOLDEN=1`` writes the files of this test anew.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from gateway import __version__
from tests.kit import ROOT, call_command
from tests.preview.kit import CONFIG_MAP, WEB

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.process

GOLDEN = Path(__file__).parent / "golden"
OUTPUTS = {"--sarif": "preview.sarif", "--junit": "preview.xml", "--markdown": "preview.md"}


def made(folder: Path) -> Iterator[tuple[str, str]]:
    """Yield the name and the content of each output."""
    (folder / "shop/templates").mkdir(parents=True, exist_ok=True)
    for name in ("web", "c"):
        (folder / f"shop/templates/{name}.yaml").write_text("{{ include }}\n")
    manifests = f"# Source: shop/templates/web.yaml\n{WEB}---\n# Source: shop/templates/c.yaml\n{CONFIG_MAP}"
    # On a busy machine, a worker may need longer than a review of an API server waits.
    patient = "    timeoutSeconds: 30\n    sideEffects: None\n"
    config = (ROOT / "gateway/dev.yaml").read_text().replace("    sideEffects: None\n", patient)
    (folder / "gateway.yaml").write_text(config)
    files = [each for option, name in OUTPUTS.items() for each in (option, folder / name)]
    for form, name in (((), "preview.txt"), (("--json",), "preview.json")):
        arguments = ("-", "--config", "gateway.yaml", *files, *form)
        done = call_command("preview", *arguments, stdin=manifests.encode(), folder=folder)
        assert done.returncode == 1
        text = re.sub(r'("digest": )"\w+"', r'\1"DIGEST"', done.stdout)
        yield name, text
    for name in OUTPUTS.values():
        yield name, (folder / name).read_text().replace(f'"{__version__}"', '"VERSION"')


def test_outputs_are_those_that_are_kept(tmp_path: Path) -> None:
    for name, text in made(tmp_path):
        if os.environ.get("UPDATE_GOLDEN"):
            GOLDEN.mkdir(exist_ok=True)
            (GOLDEN / name).write_text(text)
        assert text == (GOLDEN / name).read_text(), name
