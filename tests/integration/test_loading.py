"""The load of a configuration beside reviews: nothing that takes longer with more webhooks delays them."""

from __future__ import annotations

import threading
from functools import wraps
from typing import TYPE_CHECKING, Any

import pytest

from gateway.engine import engine
from gateway.observe.telemetry.metrics import Metrics
from gateway.server.app import Gateway
from gateway.server.options import Options
from tests.kit import pool_document, webhook_document

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process


async def test_the_long_parts_of_a_reload_run_in_threads(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    threads: dict[str, set[int]] = {}

    def watch(owner: object, name: str) -> None:
        watched: Any = getattr(owner, name)

        @wraps(watched)
        def noting(*arguments: Any, **options: Any) -> Any:
            threads.setdefault(name, set()).add(threading.get_ident())
            return watched(*arguments, **options)

        monkeypatch.setattr(owner, name, noting)

    def write(number: int) -> None:
        hooks = [webhook_document("validate", f"v{at}", "pool", {}) for at in range(number)]
        (tmp_path / "c.yaml").write_text("---\n".join([pool_document("pool", "127.0.0.1:1"), *hooks]))

    write(1)
    options = Options((tmp_path,), dev=True, state=tmp_path / "state", listen="127.0.0.1:0")
    gateway = Gateway(options, lambda pool: [])
    await gateway.start(options.load(), "127.0.0.1:0")
    watch(Options, "load")
    for name in ("to_judge", "Paths", "digest"):
        watch(engine, name)
    watch(Metrics, "begin_counters")
    write(3)
    try:
        assert await gateway.reload()
    finally:
        await gateway.stop(0.0)
    assert threads.keys() == {"load", "to_judge", "Paths", "digest", "begin_counters"}
    assert threading.get_ident() not in set().union(*threads.values())
