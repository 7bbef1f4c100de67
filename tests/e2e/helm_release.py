"""Releases of the chart: helm as a user runs it, against a cluster whose Pods run."""

from __future__ import annotations

import base64
import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import yaml

from deploy.chart_values import CHART
from tests.e2e.binaries import chart_tool
from tests.e2e.load import Load
from tests.e2e.objects import pod
from tests.e2e.setups import REGISTRATIONS, rule

if TYPE_CHECKING:
    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

DRY_PODS: Final = "/api/v1/namespaces/default/pods?dryRun=All"
CLIENTS: Final = 3
PAUSE_S: Final = 0.05
"""Fewer creates than in other tests: this cluster has ten times as many processes."""
WITHIN_S: Final = 300.0
"""A bound for helm, which is its own."""
OFTEN: Final = {"periodSeconds": 1}
"""Probes that find a started Pod sooner than the chart's defaults."""


def webhook(name: str, policy: str, **fields: Any) -> dict[str, Any]:
    """Return a webhook for created Pods in the form of the chart's values."""
    return {
        "name": name,
        "clientConfig": {"worker": {"pool": "samples", "policy": policy}},
        "rules": [rule("pods", "CREATE")],
        "sideEffects": "None",
        "admissionReviewVersions": ["v1"],
        **fields,
    }


PRIVILEGED: Final = webhook("privileged.samples.test", "deny-privileged")
LATEST: Final = "nginx:latest"
"""An image that the policies of ``values()`` refuse."""


def values(tag: str = "1", *validating: dict[str, Any]) -> dict[str, Any]:
    """Return values with a worker Deployment, a policy that adds resources, and *validating* policies.

    By default one that refuses the tag ``latest``. *tag*: of both images.
    """
    own = validating or (webhook("latest.samples.test", "deny-latest-tag"),)
    worker = {"image": {"repository": "sample-policies", "tag": tag}, "readinessProbe": OFTEN}
    return {
        "image": {"tag": tag},
        "startupProbe": OFTEN,
        "workers": {"samples": worker},
        "mutatingWebhookConfigurations": {
            "samples": [webhook("resources.samples.test", "default-resources")]
        },
        "validatingWebhookConfigurations": {"samples": list(own)},
    }


class Release:
    """A release of the chart, and what the cluster has of it."""

    def __init__(self, cluster: Cluster, folder: Path, name: str, namespace: str) -> None:
        self.cluster, self.api = cluster, cluster.api
        self.name, self.namespace = name, namespace
        self.fullname = name if "admission-gateway" in name else f"{name}-admission-gateway"
        self._folder = folder

    def helm(self, *arguments: str, values: dict[str, Any] | None = None) -> subprocess.CompletedProcess[str]:
        """Run helm in the release's namespace, and return its result, whatever its exit status."""
        command = [str(chart_tool("helm")), *arguments, "--namespace", self.namespace]
        if values is not None:
            file = self._folder / f"{self.name}-values.yaml"
            file.write_text(yaml.safe_dump(values))
            command += ["--values", str(file)]
        home = {
            name: str(self._folder / name)
            for name in ("HELM_CACHE_HOME", "HELM_CONFIG_HOME", "HELM_DATA_HOME")
        }
        return subprocess.run(
            command,
            env={**os.environ, **home, "KUBECONFIG": str(self.cluster.kubeconfig())},
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    def environment(self) -> dict[str, str]:
        """Return the variables with which the commands of the documentation run as they stand."""
        programs = [Path(sys.executable).parent, self.cluster.binaries.kubectl.parent]
        return {
            **os.environ,
            "PATH": os.pathsep.join([*map(str, programs), os.environ["PATH"]]),
            "KUBECONFIG": str(self.cluster.kubeconfig()),
            "HOME": str(self._folder),
        }

    def shell(self, script: str) -> subprocess.CompletedProcess[str]:
        """Run commands of the documentation, and return the result, whatever the exit status."""
        return subprocess.run(
            ["bash", "-c", script],
            cwd=self._folder,
            env=self.environment(),
            capture_output=True,
            text=True,
            timeout=WITHIN_S,
            check=False,
        )

    def install(self, values: dict[str, Any], *, wait: bool = True) -> None:
        """Install the chart. *wait*: for everything to be ready; without it, only for the hooks."""
        restricted = {"pod-security.kubernetes.io/enforce": "restricted"}
        document = {"metadata": {"name": self.namespace, "labels": restricted}}
        assert self.api.create("/api/v1/namespaces", document).status in (201, 409)
        flags = ["--wait"] if wait else []
        self._succeed(self.helm("install", self.name, str(CHART), *flags, values=values))

    def upgrade(self, values: dict[str, Any], *flags: str) -> subprocess.CompletedProcess[str]:
        """Upgrade to *values* and wait; return the result, whatever the exit status."""
        return self.helm("upgrade", self.name, str(CHART), "--wait", *flags, values=values)

    def rollback(self, revision: int) -> None:
        """Return to *revision* and wait."""
        self._succeed(self.helm("rollback", self.name, str(revision), "--wait"))

    def uninstall(self) -> None:
        """Remove the release and wait."""
        self._succeed(self.helm("uninstall", self.name, "--wait"))

    def _succeed(self, done: subprocess.CompletedProcess[str]) -> None:
        assert done.returncode == 0, f"{done.stderr}\n{self.describe()}"

    def describe(self) -> str:
        """Return the release's objects and logs, for the message of a failure."""
        command = ("get", "pods,jobs", "--namespace", self.namespace, "--output", "wide")
        return f"{self.cluster.kubectl(*command).stdout}\n{self.logs()[-8000:]}"

    def logs(self) -> str:
        """Return what the containers of the release's namespace have logged so far."""
        logs = sorted((self._folder / "pods").glob(f"{self.namespace}_*/*.log"))
        return "\n".join(f"{log.parent.name}: {log.read_text()}" for log in logs)

    # -- what the cluster has ---------------------------------------------------------------------

    def objects(self, resource: str, group_version: str = "v1") -> list[dict[str, Any]]:
        """Return the objects of the release's namespace that carry its label."""
        root = "/api/v1" if group_version == "v1" else f"/apis/{group_version}"
        label = f"app.kubernetes.io/instance%3D{self.name}"
        path = f"{root}/namespaces/{self.namespace}/{resource}?labelSelector={label}"
        found: list[dict[str, Any]] = self.api.get(path).document["items"]
        return found

    def gateways(self) -> list[dict[str, Any]]:
        """Return the gateway's Pods that are ready and not being deleted."""
        return [
            one
            for one in self.objects("pods")
            if one["metadata"]["labels"]["app.kubernetes.io/name"] == "admission-gateway"
            and ready_since(one)
            and "deletionTimestamp" not in one["metadata"]
        ]

    def images(self) -> set[str]:
        """Return the images of those Pods."""
        return {pod["spec"]["containers"][0]["image"] for pod in self.gateways()}

    def registrations(self) -> list[dict[str, Any]]:
        """Return the configurations that make the API server call the gateway."""
        kinds = ("mutatingwebhookconfigurations", "validatingwebhookconfigurations")
        found = [self.api.get(f"{REGISTRATIONS}/{kind}/{self.fullname}") for kind in kinds]
        return [answer.document for answer in found if answer.status == 200]

    def ca_bundles(self) -> set[bytes]:
        """Return every ``caBundle`` of the registration."""
        hooks = [hook for document in self.registrations() for hook in document["webhooks"]]
        return {base64.b64decode(hook["clientConfig"].get("caBundle", "")) for hook in hooks}

    def authority(self) -> bytes:
        """Return the CA that the gateway has issued itself."""
        path = f"/api/v1/namespaces/{self.namespace}/secrets/{self.fullname}-tls"
        return base64.b64decode(self.api.get(path).document.get("data", {}).get("ca.crt", ""))


def ready_since(one: dict[str, Any]) -> str:
    """Return the time at which the Pod became ready; empty if it is not."""
    for condition in one["status"].get("conditions", []):
        if condition["type"] == "Ready" and condition["status"] == "True":
            return str(condition["lastTransitionTime"])
    return ""


def try_image(cluster: Cluster, image: str, namespace: str = "default") -> Answer:
    """Create a Pod with *image* in *namespace*, without storing it."""
    document = pod("try", containers=[{"name": "main", "image": image}])
    return cluster.api.create(f"/api/v1/namespaces/{namespace}/pods?dryRun=All", document)


def without_resources(answer: Answer) -> str:
    """Return the fault of a Pod that the mutating policy has not changed."""
    (container,) = answer.document["spec"]["containers"]
    return "" if container.get("resources") else "no webhook was called"


def creates(cluster: Cluster, *, mutated: bool = True) -> Load:
    """Return a load of creates, each of which has to succeed. *mutated*: the policies have to review each."""
    check = without_resources if mutated else lambda _: ""
    return Load(cluster.api, DRY_PODS, clients=CLIENTS, pause_s=PAUSE_S, check=check)
