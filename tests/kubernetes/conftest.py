from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kubernetes.server import ApiServer
from tests.waiting import in_thread
from tests.worker.server import scripted_worker

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.in_process import Stage


@pytest.fixture
def server(request: pytest.FixtureRequest) -> Iterator[ApiServer]:
    """An API server: on the stage of the test, if it has one."""
    if "stage" in request.fixturenames:
        stage: Stage = request.getfixturevalue("stage")
        yield stage.enter(ApiServer())
    else:
        with ApiServer() as server:
            yield server


@pytest.fixture
def threaded_target() -> Iterator[str]:
    """The address of a scripted worker for a command, which has a loop of its own."""
    with in_thread(scripted_worker("127.0.0.1:0")) as worker:
        yield worker.target
