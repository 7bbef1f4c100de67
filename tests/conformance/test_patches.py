"""JSON Patch as a table in plain JSON, for this implementation and any other.

Rows without a ``deviation`` are RFC 6902, which plain jsonpatch has to confirm; those with one are what
kube-apiserver's library does instead, and plain jsonpatch has to disagree, else the mark is wrong.
"""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import jsonpatch
import jsonpointer
import orjson
import pytest

from admission_gateway_worker.json_patch.diff import same
from admission_gateway_worker.json_patch.patch import PatchConflict, apply_patch, parse_patch

ROWS: list[dict[str, Any]] = json.loads((Path(__file__).parent / "patches.json").read_text())
REFUSED = object()


def strictly(row: dict[str, Any]) -> object:
    """What plain jsonpatch makes of a row."""
    try:
        return jsonpatch.apply_patch(copy.deepcopy(row["document"]), copy.deepcopy(row["patch"]))
    except (jsonpatch.JsonPatchException, jsonpointer.JsonPointerException):
        return REFUSED


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["title"])
def test_row(row: dict[str, Any]) -> None:
    operations = parse_patch(orjson.dumps(row["patch"]))
    if row.get("error"):
        with pytest.raises(PatchConflict, match=r"^operation \d+: "):
            apply_patch(copy.deepcopy(row["document"]), operations)
    else:
        assert same(apply_patch(copy.deepcopy(row["document"]), operations), row["expected"])


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row["title"])
def test_a_row_is_marked_exactly_where_the_api_server_differs_from_the_rfc(row: dict[str, Any]) -> None:
    expected = REFUSED if row.get("error") else row["expected"]
    assert (strictly(row) != expected) is ("deviation" in row)
