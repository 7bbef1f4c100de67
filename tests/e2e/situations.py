"""What is wrong when somebody reads a runbook, in the release of ``test_documentation.py``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.helm_release import OFTEN, webhook
from tests.e2e.load import Load
from tests.e2e.setups import rule
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.docs.reader import Reader
    from tests.e2e.helm_release import Release

NAME: Final = "admission-gateway"
GATEWAY: Final = f"deployment/{NAME}"
WORKERS: Final = f"{GATEWAY}-samples"
IN_SHOP: Final = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "shop"}}}
PODS: Final = "/api/v1/namespaces/shop/pods?dryRun=All"
LIMIT: Final = 2
"""Reviews in each gateway, and calls to each endpoint of its pool, while workers are slow."""


def lost_workers(release: Release, _: Reader) -> None:
    """No worker runs. The Pods of a Deployment were refused, and a Service was let pass."""
    on_services = {"rules": [rule("services", "CREATE")], "failurePolicy": "Ignore"}
    add(
        release,
        webhook("privileged.example.com", "deny-privileged", **IN_SHOP),
        webhook("labels.example.com", "require-labels", **IN_SHOP) | on_services,
    )
    kubectl(release, "--namespace shop create deployment web --image=nginx:1.29")
    kubectl(release, f"--namespace {NAME} scale {WORKERS} --replicas=0")
    eventually(lambda: "has no ready endpoint" in status(release))
    kubectl(release, "--namespace shop delete pods --all --wait=false")
    kubectl(release, "--namespace shop create service clusterip web --tcp=80")
    eventually(lambda: "admission webhook" in kubectl(release, "--namespace shop get events"))


def slow_workers(release: Release, reader: Reader) -> None:
    """Workers answer too late, calls fill their pool, and reviews the gateways."""
    add(
        release,
        webhook("slow.example.com", "sleeps", failurePolicy="Ignore", timeoutSeconds=5, **IN_SHOP),
        workers={"samples": {"readinessProbe": OFTEN, "pool": {"maxInFlight": LIMIT}}},
        configuration={"limits": {"maxConcurrentReviews": LIMIT}},
    )
    reader.stack.enter_context(Load(release.api, PODS, clients=16, pause_s=0.2))
    eventually(lambda: "    slow.example.com: " in status(release))
    eventually(lambda: '_refused_total{code="503"}' in metrics(release))


def refused(release: Release, reader: Reader) -> None:
    """Somebody has put a configuration into the ConfigMap that the gateway refuses."""
    found = json.loads(kubectl(release, f"--namespace {NAME} get configmap {NAME} --output json"))
    text: str = found["data"]["webhooks.yaml"]
    changed = text.replace("timeoutSeconds: 3\n", "timeoutSeconds: 300\n")
    assert changed != text
    patch = json.dumps({"data": {"webhooks.yaml": changed}})
    kubectl(release, f"--namespace {NAME} patch configmap {NAME} --patch '{patch}'")
    eventually(
        lambda: status(release).count("was refused, the one in force stays") == len(release.gateways())
    )
    # What kubectl has changed, Helm takes back only so.
    reader.replaced["REVISION"] += " --force-conflicts"


def down(release: Release, reader: Reader) -> None:
    """All replicas have started with such a configuration."""
    refused(release, reader)
    kubectl(release, f"--namespace {NAME} delete pods --selector app.kubernetes.io/name={NAME}")
    eventually(lambda: "CrashLoopBackOff" in kubectl(release, f"--namespace {NAME} get pods"))
    (reader.replaced["POD"], *_) = (
        one["metadata"]["name"]
        for one in release.objects("pods")
        if one["metadata"]["labels"]["app.kubernetes.io/name"] == NAME
    )


def relaxed(release: Release, _: Reader) -> None:
    """A person has relaxed the registration."""
    done = release.shell(f"{NAME} watchdog --relax --name {NAME} --exempt-namespace kube-system")
    assert done.returncode == 0, done


def unwatched(release: Release, reader: Reader) -> None:
    """The registration is relaxed, and no watchdog runs."""
    watchdog = "--selector app.kubernetes.io/name=admission-gateway-watchdog"
    kubectl(release, f"--namespace {NAME} scale {GATEWAY}-watchdog --replicas=0")
    kubectl(release, f"--namespace {NAME} wait pods {watchdog} --for=delete")
    relaxed(release, reader)


SITUATIONS: Final[dict[Callable[[Release, Reader], None], tuple[str, ...]]] = {
    relaxed: ("registration-relaxed",),
    lost_workers: ("no-worker", "fail-open", "fail-closed"),
    slow_workers: ("webhook-slow", "near-limit", "overloaded", "pool-full"),
    refused: ("reload-refused",),
    down: ("replica-down", "down"),
    unwatched: ("watchdog-silent",),
}
"""The runbooks that are read in each, in this order: the last one may repair it."""


def add(release: Release, *webhooks: dict[str, Any], **values: Any) -> None:
    """Upgrade to *values* with further validating *webhooks*."""
    hooks = {"validatingWebhookConfigurations": {"shop": list(webhooks)}}
    done = release.upgrade(values | hooks, "--reset-then-reuse-values", "--force-conflicts")
    assert done.returncode == 0, (done, release.describe())


def kubectl(release: Release, arguments: str) -> str:
    """Run kubectl, and return what it prints."""
    done = release.shell(f"kubectl {arguments}")
    assert done.returncode == 0, done
    return done.stdout


def status(release: Release) -> str:
    """Return what is wrong, as an operator sees it."""
    return release.shell(f"{NAME} status --cluster").stdout


def metrics(release: Release) -> str:
    """Return the metrics of all replicas."""
    pods = (one["metadata"]["name"] for one in release.gateways())
    path = f"/api/v1/namespaces/{NAME}/pods/{{}}:9090/proxy/metrics"
    return "".join(kubectl(release, f"get --raw {path.format(pod)}") for pod in pods)
