"""How kubectl shows help, and the command that a refusal names, with ``decisionReference``."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.e2e.objects import config_map
from tests.e2e.setups import BehindGateway, Hook, rule

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster

UID = "[0-9a-f-]{36}"
LINE = f"to see why the request was refused, run: admission-gateway decisions {UID} --cluster\n"
ERROR = (
    r'Error from server \(Forbidden\): error when creating "STDIN": admission webhook "\S+" denied the '
    r"request: team\.reference\.test: every workload names its team\nadd the label team\n"
)
SHOWN = {"Warning": f"Warning: {LINE}{ERROR}", "Message": f"{ERROR}{LINE}"}


@pytest.mark.parametrize("reference", SHOWN)
def test_kubectl_shows_the_command_once_on_a_line_of_its_own(
    cluster: Cluster, namespace: str, tmp_path: Path, reference: str
) -> None:
    denied = {"objectSelector": {"matchLabels": {"denied": "yes"}}, "help": "add the label team"}
    script = {"deny": {"code": 403, "message": "every workload names its team"}}
    hook = Hook("validate", "team.reference.test", script, (rule("configmaps", "CREATE"),), fields=denied)
    gateway = {"kubernetes": {"kubeconfig": str(cluster.kubeconfig())}, "decisionReference": reference}
    with BehindGateway(cluster, tmp_path, [hook], gateway=gateway):
        document = json.dumps(config_map("x", {"denied": "yes"}))
        done = cluster.kubectl("-n", namespace, "create", "-f", "-", stdin=document)
    assert done.returncode == 1
    assert re.fullmatch(SHOWN[reference], done.stderr), done.stderr
