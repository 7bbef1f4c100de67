"""What policies that read from the API server are tested with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.library.api_server import TOKEN, ApiServer

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture
def api_server(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[ApiServer]:
    """An API server that ``KUBECONFIG`` names."""
    with ApiServer() as server:
        monkeypatch.setenv("KUBECONFIG", str(server.kubeconfig(tmp_path, token=TOKEN)))
        yield server
