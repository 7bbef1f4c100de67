"""The registration as files beside the API server (Kubernetes 1.37), which no user of the API can change."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest
import yaml

from gateway.tools.registration.static_manifests import PLUGINS
from tests.e2e.cluster import Cluster
from tests.e2e.objects import pod
from tests.e2e.setups import REGISTRATIONS, BehindGateway, Hook, run_manifests
from tests.kit import run_command
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path


class BehindStaticGateway(BehindGateway):
    """A gateway that is registered by files."""

    def register(self) -> None:
        done = run_manifests(
            *("--config", self.config, "--url", f"https://127.0.0.1:{self.port}"),
            *("--ca-file", self.cluster.ca_file, "--static", self.folder / "static"),
        )
        assert done.returncode == 0, done.stderr
        self._wait_until_in_force()


def test_a_registration_in_files_is_enforced_and_cannot_be_changed_by_the_api(
    cluster: Cluster, tmp_path: Path, request: pytest.FixtureRequest
) -> None:
    if request.node.callspec.params["cluster"] == "1.33":
        pytest.skip("the API server refuses staticManifestsDir before 1.36, in which it was alpha")
    folders = {plugin: tmp_path / "static" / name for plugin, name in PLUGINS.values()}
    for folder in folders.values():
        folder.mkdir(parents=True)
    version = "apiserver.config.k8s.io/v1"
    plugins = [
        {
            "name": plugin,
            "configuration": {
                "apiVersion": version,
                "kind": "WebhookAdmissionConfiguration",
                "staticManifestsDir": str(folder),
            },
        }
        for plugin, folder in folders.items()
    ]
    file = tmp_path / "admission.yaml"
    file.write_text(
        yaml.safe_dump({"apiVersion": version, "kind": "AdmissionConfiguration", "plugins": plugins})
    )
    hooks = [Hook("validate", "static.e2e.test", {"deny": {"message": "by a file"}})]
    flag = f"--admission-control-config-file={file}"
    with (
        Cluster(cluster.binaries, tmp_path / "own", flag) as own,
        BehindStaticGateway(own, tmp_path, hooks, "static") as setup,
    ):
        pods = "/api/v1/namespaces/default/pods"
        assert own.api.create(pods, pod("a")).message.endswith("static.e2e.test: by a file")
        for kind in PLUGINS:
            listed = own.api.get(f"{REGISTRATIONS}/{kind.lower()}s").document["items"]
            assert listed == []
        checked = run_command(
            *("check", "--config", setup.config, "--static", tmp_path / "static"),
            *("--exclude-namespace", "kube-system"),
        )
        assert checked.returncode == 0, checked.stdout
        # Entries of files and of the API are called side by side, and files follow changes.
        for folder in folders.values():
            (folder / "admission-gateway.yaml").unlink()
        eventually(lambda: own.api.create(pods, pod("a")).status == 201)
