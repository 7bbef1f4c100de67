"""A small cluster for tests of audits."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.audit.kit import World
from tests.kubernetes.server import ApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def world(tmp_path: Path) -> Iterator[World]:
    with ApiServer() as server:
        yield World(server, tmp_path)
