"""The API server refuses policies and bindings at the fields that are recorded."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

from tests.e2e.policy_documents import FILE
from tests.e2e.record import refused_fields

if TYPE_CHECKING:
    from tests.e2e.client import Api


def test_the_api_server_answers_as_recorded(api: Api) -> None:
    recorded = json.loads(FILE.read_text())["fields"]
    assert refused_fields(api) == recorded, f"to write it: python -m tests.e2e.record {FILE}"
