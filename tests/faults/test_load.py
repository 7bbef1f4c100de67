"""The outcomes of reviews under load, as the load of other tests counts them."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit import pool_document, webhook_document
from tests.load import Load, Tally

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kit import GatewayProcess, WorkerProcess

pytestmark = pytest.mark.process


def test_every_outcome_under_load_is_counted(
    tmp_path: Path,
    start_worker: Callable[..., WorkerProcess],
    start_gateway: Callable[..., GatewayProcess],
) -> None:
    worker = start_worker()
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target)
        + webhook_document("validate", "allow", "pool", {})
        + webhook_document("validate", "deny", "pool", {"deny": {"message": "no", "code": 403}})
        + webhook_document("validate", "fail", "pool", {"status": "INTERNAL", "details": "broken"})
        + webhook_document("validate", "open", "pool", {"status": "INTERNAL"}, failurePolicy="Ignore")
    )
    gateway = start_gateway(tmp_path)

    def load(name: str) -> Tally:
        with Load(gateway, f"/validate/{name}", "deployment-create", connections=4, count=100) as load:
            load.wait_for(50)
            load.finish()
        assert load.tally.sent == load.tally.answered == 100
        return load.tally

    assert load("allow").allowed == 100
    assert load("deny").denied == 100
    failed = load("fail")
    assert failed.failed == 100
    assert failed.texts == ('failed calling webhook "h0.fail.test": INTERNAL: broken',)
    opened = load("open")
    assert opened.failed_open == opened.allowed == 100
