from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kubernetes.server import ApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server
