"""The definitions of OpenReports, from their Go module."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Final

from tests.e2e.golang import go
from tests.kit import ROOT

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster

MODULE: Final = "github.com/openreports/reports-api"
GROUP: Final = "/apis/openreports.io/v1alpha1"


def define_reports(cluster: Cluster) -> None:
    """Define the kinds in *cluster*, and wait until it serves them."""
    source = json.loads(go("mod", "download", "-json", MODULE, cwd=ROOT / "tests" / "e2e" / "openreports"))
    applied = cluster.kubectl("apply", "--server-side", f"--filename={source['Dir']}/config/crd")
    assert applied.returncode == 0, applied.stderr
    cluster.wait_until_served("reports.openreports.io", "clusterreports.openreports.io")
