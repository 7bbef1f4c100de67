"""Drawn documents and requests are answered as by Gatekeeper's own code.

``answers.jsonl`` has questions for ``tests/gatekeeper/oracle`` and its answers, those of Gatekeeper 3.23.1.
The expressions, the fields of ``match``, the actions and the parameters were drawn. All templates are for all
operations, because the oracle has no registration.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import decode
from tests.core.build import body
from tests.policies.documents import decided

if TYPE_CHECKING:
    from gateway.pure.core.decision import Decision

Json = dict[str, Any]

ROWS = [json.loads(line) for line in Path(__file__).with_name("answers.jsonl").read_text().splitlines()]


def decision(folder: Path, question: Json) -> Decision:
    config = [question["config"]] if "config" in question else []
    space = None
    for each in question["namespaces"]:
        metadata = each["metadata"]
        space = Namespace(metadata["name"], metadata["labels"], orjson.dumps(each))
    documents = [*question["templates"], *question["constraints"], *config]
    return decided(folder, documents, decode(body(question["request"])), space=space).decision


@pytest.mark.parametrize("row", ROWS, ids=[str(number) for number in range(len(ROWS))])
def test_answers_are_gatekeepers(row: Json, tmp_path: Path) -> None:
    found, expected = decision(tmp_path, row["question"]), row["answer"]
    assert (found.status is None) == expected["allowed"]
    if found.status is not None:
        status = (found.status.code, found.status.reason)
        assert status == (expected["code"], expected["reason"]) == (403, "Forbidden")
        # Gatekeeper sorts the lines of all constraints by their text.
        assert sorted(found.status.message.split("\n")) == sorted(expected["message"].split("\n"))
    # The API server shows a warning once.
    assert sorted(found.warnings) == sorted(set(expected.get("warnings", [])))


def test_the_answers_are_of_all_kinds() -> None:
    kinds = {(each["answer"]["allowed"], "warnings" in each["answer"]) for each in ROWS}
    assert kinds == {(True, True), (True, False), (False, True), (False, False)}
