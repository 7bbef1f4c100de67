"""Workers as processes, which can be killed and stopped."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit import WorkerProcess

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack


@pytest.fixture
def start_worker(
    processes: ExitStack, tmp_path_factory: pytest.TempPathFactory
) -> Callable[..., WorkerProcess]:
    """Start a scripted worker as a process: ``start_worker(listen=None, *flags)``."""

    def start(listen: str | None = None, *flags: str) -> WorkerProcess:
        worker = WorkerProcess(listen or f"unix:{tmp_path_factory.mktemp('w')}/s", *flags)
        processes.callback(worker.stop)
        return worker

    return start
