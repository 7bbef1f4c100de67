"""``python -m admission_gateway_worker.policies``."""

from __future__ import annotations

import sys
from typing import TYPE_CHECKING

import pytest

from admission_gateway_worker.policies import definitions
from tests.kit import Process

if TYPE_CHECKING:
    from pathlib import Path

    from tests.library.api_server import ApiServer

PROGRAM = (sys.executable, "-m", "admission_gateway_worker.policies")


@pytest.mark.process
def test_all_policies_are_served_with_access_to_the_api_server(api_server: ApiServer, tmp_path: Path) -> None:
    process = Process(*PROGRAM, "--listen", f"unix:{tmp_path / 'worker.sock'}")
    process.expect(f"serving {len(definitions())} policies")
    process.stop()
    assert "no access" not in process.log
    assert api_server.requests == []


@pytest.mark.process
def test_the_others_are_served_without_access(tmp_path: Path) -> None:
    needing = [each.name for each in definitions() if each.needs_cluster]
    without = ("env", "--unset=KUBECONFIG", "--unset=KUBERNETES_SERVICE_HOST")
    process = Process(*without, *PROGRAM, "--listen", f"unix:{tmp_path / 'worker.sock'}")
    process.expect(f"serving {len(definitions()) - len(needing)} policies")
    process.stop()
    (line,) = (each for each in process.log.splitlines() if "no access to the API server" in each)
    assert "WARNING" in line
    assert f"these policies are not served: {', '.join(needing)}; KUBECONFIG is not set" in line
