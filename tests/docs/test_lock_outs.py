"""The page about lock-outs: its commands print what it says."""

from __future__ import annotations

import itertools
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.deadlocks.kit import entry, namespace, pod, registration, rule, service, without
from tests.docs.pages import DOCS
from tests.kit import call_command, pool_document, webhook_document
from tests.kubernetes.server import ApiServer

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

BLOCKS = re.findall(r"^```(\w+)\n(.*?)^```$", (DOCS / "lock-outs.md").read_text(), re.MULTILINE | re.DOTALL)


def test_the_check_prints_what_the_page_shows(tmp_path: Path) -> None:
    (output,) = (
        text
        for (_, command), (kind, text) in itertools.pairwise(BLOCKS)
        if kind == "text" and "check" in command
    )
    (tmp_path / "config").mkdir()
    (tmp_path / "config/all.yaml").write_text(
        pool_document("pool", "localhost:1") + webhook_document("validate", "checks", "pool", {"webhook": {}})
    )
    fail = entry(
        rule("pods", group="", operations=("CREATE",)),
        name="mandatory.validate.admission-gateway.io",
        clientConfig={"service": {"namespace": "admission-gateway", "name": "admission-gateway"}},
        namespaceSelector=without("kube-system", "admission-gateway"),
    )
    objects: dict[str, Any] = {
        "/apis/admissionregistration.k8s.io/v1/mutatingwebhookconfigurations": [],
        "/apis/admissionregistration.k8s.io/v1/validatingwebhookconfigurations": [
            registration(fail, name="admission-gateway")
        ],
        "/api/v1/namespaces": [namespace(name) for name in ("calico-system", "shop")],
        "/api/v1/pods": [
            *(
                pod(
                    "DaemonSet/calico-node",
                    "calico-system",
                    number=number,
                    hostNetwork=True,
                    tolerations=[{"operator": "Exists"}],
                )
                for number in range(2)
            ),
            pod("Deployment/web", "shop"),
            pod("Deployment/admission-gateway", "admission-gateway"),
        ],
        "/api/v1/services": [
            service("admission-gateway", "admission-gateway", app="admission-gateway"),
        ],
    }
    with ApiServer() as server:
        for path, items in objects.items():
            server.objects[path] = {"items": items}
        done = call_command(
            *("check", "--config", tmp_path / "config", "--cluster"),
            *("--kubeconfig", server.kubeconfig(tmp_path)),
        )
    shown = [line for line in done.stdout.splitlines(keepends=True) if "cannot start" in line]
    assert (done.returncode, "".join(shown)) == (1, output)
