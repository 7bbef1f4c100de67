"""The plain gateway asks each policy of its list, and a refusal counts."""

from __future__ import annotations

import os
import signal
from typing import TYPE_CHECKING

import orjson
import pytest

from loadtest.configuration import COUNTS
from loadtest.reviews import POD
from loadtest.serial import Client
from loadtest.servers import fleet
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path


@pytest.mark.slow
def test_it_allows_what_all_workers_allow_and_nothing_without_one_of_them(tmp_path: Path) -> None:
    review = POD.read_bytes()
    with fleet(POD, ["baseline"], tmp_path) as running, Client(running.fronts["baseline"].address) as client:
        for count in COUNTS:
            response = orjson.loads(client.post(f"/validate/policies-{count}", review))["response"]
            assert response == {"uid": orjson.loads(review)["request"]["uid"], "allowed": True}
        os.kill(running.workers[-1].pid, signal.SIGTERM)
        eventually(
            lambda: not orjson.loads(client.post("/validate/policies-16", review))["response"]["allowed"]
        )
        assert orjson.loads(client.post("/validate/policies-4", review))["response"]["allowed"]
