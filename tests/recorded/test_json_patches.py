"""JSON Patches have the results that the API server had when it was recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.recorded.json_patches import FILE, RECORDED, cases, difference
from tests.recorded.recording import changed

if TYPE_CHECKING:
    from pathlib import Path


def test_patched_objects_are_those_of_the_api_server(tmp_path: Path) -> None:
    answers = json.loads(FILE.read_text())["answers"]
    different: list[str] = []
    for (live, expression), answer in zip(cases(0, RECORDED), answers, strict=True):
        expected = {"merged": changed(live, answer["change"])} if "change" in answer else answer
        different += filter(None, [difference(tmp_path, live, expression, expected)])
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:3])
    assert RECORDED / 5 < sum("change" in each for each in answers) < RECORDED * 4 / 5
