"""All suites of Gatekeeper's library hold for the gateway with Gatekeeper's worker.

The library is read as by ``test_public_policies``. The worker is ``workers/gatekeeper/target/gatekeeper``, or
what the environment variable ``GATEKEEPER_WORKER`` names. Without either these tests are skipped.
"""

from __future__ import annotations

import asyncio
import os
from collections import Counter
from pathlib import Path
from typing import Final

import pytest
import yaml

from gateway.tools.policy_tests.discovery import read_tests
from gateway.tools.policy_tests.run import run_tests
from tests.gatekeeper.test_worker import POOL, engine
from tests.kit import ROOT

FOLDER: Final = os.environ.get("POLICY_CORPORA", "")
WORKER: Final = Path(
    os.environ.get("GATEKEEPER_WORKER", ROOT / "workers" / "gatekeeper" / "target" / "gatekeeper")
)

pytestmark = pytest.mark.skipif(
    not FOLDER or not WORKER.is_file(), reason="POLICY_CORPORA names no libraries, or the worker is not built"
)


def test_all_suites_hold(tmp_path: Path) -> None:
    config = tmp_path / "gateway.yaml"
    pool = {**POOL, "spec": {"command": [str(WORKER), "--cluster"]}}
    config.write_text(yaml.safe_dump_all([engine(), pool]))
    tests = read_tests([Path(FOLDER) / "gatekeeper-library"], [])
    found = asyncio.run(run_tests(tests, [], [config]))
    wrong = {f"{one.suite}/{one.name}": one.not_supported or one.problems for one in found if one.problems}
    assert wrong == {}
    counts = Counter(one.status for one in found)
    assert counts == {"passed": len(found)}
    assert len(found) >= 100
