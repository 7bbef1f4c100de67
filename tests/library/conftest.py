"""What policies that read from the API server are tested with."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from admission_gateway_worker.policies.pod_security import existing_pods
from tests.kit import PATIENCE_S
from tests.library.api_server import ApiServer, serving

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path


@pytest.fixture(scope="session")
def one_api_server() -> Iterator[ApiServer]:
    with serving() as server:
        yield server


@pytest.fixture
def api_server(one_api_server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ApiServer:
    """An API server that ``KUBECONFIG`` names."""
    one_api_server.reset()
    monkeypatch.setenv("KUBECONFIG", str(one_api_server.kubeconfig(tmp_path / "kubeconfig")))
    monkeypatch.setattr(existing_pods, "TIMEOUT_S", PATIENCE_S)
    return one_api_server
