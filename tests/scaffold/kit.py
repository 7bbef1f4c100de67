"""The gateway in the folder of a new project, as its README starts it."""

from __future__ import annotations

import json
import ssl
import sys
from pathlib import Path
from typing import Final

from tests.kit import REVIEWS, GatewayProcess, Process, call_command
from tests.waiting import eventually

PROGRAM: Final = str(Path(sys.executable).parent / "admission-gateway")
POD: Final = (REVIEWS / "pod-create-validate.json").read_bytes()
"""A review of a Pod without a team."""


class ProjectGateway(GatewayProcess):
    """``admission-gateway serve --dev`` in the folder of a project."""

    def __init__(self, folder: Path) -> None:
        Process.__init__(
            self,
            *(PROGRAM, "serve", "--dev", "--config", "gateway.yaml"),
            *("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"),
            cwd=folder,
        )
        found = self.expect(r"serving on https://127\.0\.0\.1:(\d+), admin on http://[\d.]+:(\d+)")
        self.port, self.admin_port = int(found[1]), int(found[2])
        self.client_context = ssl.create_default_context(cafile=folder / ".admission-gateway" / "tls.crt")

    def decides(self) -> None:
        """Check that a Pod without a team is denied, and one with a team is allowed."""
        # After ten seconds it serves without its worker.
        eventually(lambda: self.metric("admission_gateway_worker_endpoints", state="ready") == 1)
        denied = self.review("/validate?timeout=30s", POD)
        assert denied["allowed"] is False
        assert denied["status"]["code"] == 403
        assert denied["status"]["message"].endswith("every workload names its team: add the label")
        document = json.loads(POD)
        document["request"]["object"]["metadata"].setdefault("labels", {})["team"] = "shop"
        assert self.review("/validate?timeout=30s", json.dumps(document).encode())["allowed"] is True


def run_suites(folder: Path) -> str:
    """Run ``admission-gateway test tests`` in a project, which has to pass; return its output."""
    done = call_command("test", "tests", folder=folder)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout
