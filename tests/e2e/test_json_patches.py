"""JSON Patches of mutating policies beside kube-apiserver's own: recorded ones, and more random ones."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Final

import pytest

from tests.e2e.openapi_oracle import ask
from tests.e2e.record import json_patches
from tests.recorded.json_patches import FILE, cases, difference

if TYPE_CHECKING:
    from pathlib import Path

FIRST: Final = int(os.environ.get("E2E_SEED", "1"))


def test_the_api_server_answers_as_recorded() -> None:
    assert FILE.read_text() == json_patches(), "to write it: python -m tests.e2e.record json-patches.json"


@pytest.mark.parametrize("seed", range(FIRST, FIRST + 2))
def test_patched_objects_are_those_of_the_api_server(seed: int, tmp_path: Path) -> None:
    """The same object, or the same error, unless the API server has an internal one."""
    drawn = cases(seed, 500)
    answers = ask({}, ({"live": live, "jsonPatch": expression} for live, expression in drawn))
    different: list[str] = []
    for (live, expression), expected in zip(drawn, answers, strict=True):
        different += filter(None, [difference(tmp_path, live, expression, expected)])
    assert not different, f"{len(different)} differ:\n" + "\n".join(different[:3])
