"""``helm install``, ``upgrade``, ``rollback`` and ``uninstall`` of the chart, with the Pods that it asks for.

Clients create Pods all the time. The policies' failurePolicy is Fail: a create fails at every moment in which
the API server calls a gateway that does not answer.
"""

from __future__ import annotations

import socket
import ssl
from typing import TYPE_CHECKING, Any

import pytest

from deploy.chart_values import CHART
from tests.e2e.helm_release import (
    LATEST,
    PRIVILEGED,
    Release,
    creates,
    ready_since,
    try_image,
    values,
    webhook,
)
from tests.e2e.kubelet.network import missing
from tests.kit import ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.cluster import Cluster

pytestmark = pytest.mark.skipif(bool(missing()), reason=f"no private network: {missing()}")


@pytest.fixture(scope="module")
def release(whole: Cluster, folder: Path) -> Release:
    """A release that each test leaves with the values of ``values()``."""
    release = Release(whole, folder, "gw", "gateway")
    with creates(whole, mutated=False) as load:
        release.install(values())
        load.flows()
        assert not load.failures
    return release


def trusts(context: ssl.SSLContext, ip: str, host: str) -> bool:
    """Return whether the certificate that the Pod at *ip* shows for *host* is trusted."""
    try:
        with socket.create_connection((ip, 8443)) as plain, context.wrap_socket(plain, server_hostname=host):
            return True
    except ssl.SSLCertVerificationError:
        return False


def test_an_installed_release_is_registered_trusted_spread_and_enforced(release: Release) -> None:
    whole = release.cluster
    registered = {one["metadata"]["creationTimestamp"] for one in release.registrations()}
    assert len(release.registrations()) == 2
    assert min(registered) >= min(map(ready_since, release.gateways()))
    assert release.ca_bundles() == {release.authority()}
    refused = try_image(whole, LATEST)
    assert (refused.status, "latest.samples.test" in refused.message) == (403, True), refused
    assert try_image(whole, "nginx:1").status == 201
    assert try_image(whole, LATEST, "kube-system").status == 201
    assert len({pod["spec"]["nodeName"] for pod in release.gateways()}) == 3
    # Its rights are sufficient, and its Jobs have gone.
    assert "forbidden" not in release.logs()
    assert not release.objects("jobs", "batch/v1")


def test_an_upgrade_of_image_and_configuration_loses_no_create(release: Release) -> None:
    before = {pod["metadata"]["name"] for pod in release.gateways()}
    with creates(release.cluster) as load:
        done = release.upgrade(values("2", PRIVILEGED))
        assert done.returncode == 0, done.stderr
        load.flows()
        assert not load.failures
    gateways = release.gateways()
    assert not before & {pod["metadata"]["name"] for pod in gateways}
    assert release.images() == {"admission-gateway:2"}
    assert len({pod["spec"]["nodeName"] for pod in gateways}) == 3
    assert try_image(release.cluster, LATEST).status == 201
    with creates(release.cluster) as load:
        release.rollback(1)
        load.flows()
        assert not load.failures
    assert try_image(release.cluster, LATEST).status == 403


TYPING_ERROR = {"name": "typo", "expression": "object.metadata.nam =="}
STOPPED = [
    (
        values("2", webhook("wrong.samples.test", "deny-privileged", matchConditions=[TYPING_ERROR])),
        "matchConditions",
    ),
    (values("broken"), "this version is broken"),
    ({**values(), "replicas": 0}, "replicas is 0"),
]


@pytest.mark.parametrize(("wrong", "reason"), STOPPED, ids=("invalid", "broken", "no replicas"))
def test_an_upgrade_that_would_do_harm_stops_before_it_changes_anything(
    release: Release, wrong: dict[str, Any], reason: str
) -> None:
    config_maps = release.objects("configmaps")
    done = release.upgrade(wrong)
    assert done.returncode != 0
    assert reason in done.stdout + done.stderr, done
    assert release.objects("configmaps") == config_maps
    assert release.images() == {"admission-gateway:1"}
    assert try_image(release.cluster, LATEST).status == 403


def test_a_version_that_does_not_start_leaves_the_replicas_of_the_old_one(release: Release) -> None:
    with creates(release.cluster) as load:
        done = release.upgrade({**values("broken"), "hooks": {"check": False}}, "--timeout=5s")
        assert done.returncode != 0
        assert len(release.gateways()) == 3
        load.flows()
        release.rollback(1)
        load.flows()
        assert not load.failures
    assert release.images() == {"admission-gateway:1"}


def test_a_node_is_drained_without_a_failed_create(release: Release) -> None:
    node = release.gateways()[0]["spec"]["nodeName"]
    with creates(release.cluster) as load:
        done = release.cluster.kubectl("drain", node, "--delete-emptydir-data")
        assert done.returncode == 0, done.stderr
        load.until(lambda: len(release.gateways()) == 3)
        assert not load.failures
    assert release.cluster.kubectl("uncordon", node).returncode == 0


def test_a_new_certificate_authority_reaches_every_replica_and_the_api_server(release: Release) -> None:
    old = release.authority()
    path = f"/api/v1/namespaces/{release.namespace}/secrets/{release.fullname}-tls"
    assert release.api.patch(path, {"data": None}).status == 200
    eventually(lambda: release.authority() not in (b"", old))
    eventually(lambda: release.ca_bundles() == {release.authority()})
    eventually(lambda: try_image(release.cluster, LATEST).status == 403)
    context = ssl.create_default_context(cadata=release.authority().decode())
    host = f"{release.fullname}.{release.namespace}.svc"
    eventually(lambda: all(trusts(context, pod["status"]["podIP"], host) for pod in release.gateways()))


def test_a_second_release_stands_beside_the_first_and_leaves_it_alone(release: Release, folder: Path) -> None:
    second = Release(release.cluster, folder, "other", "elsewhere")
    apart = {"crds": {"enabled": False}, "replicas": 1}
    second.install({**values("1", PRIVILEGED), **apart})
    privileged = {"name": "a", "image": "nginx:1", "securityContext": {"privileged": True}}
    document = {"metadata": {"name": "try"}, "spec": {"containers": [privileged]}}
    path = "/api/v1/namespaces/default/pods?dryRun=All"
    # The gateway may become ready before its worker, and learns the worker's address after that.
    eventually(lambda: "privileged.samples.test" in release.api.create(path, document).message)
    with creates(release.cluster) as load:
        second.uninstall()
        load.flows()
        assert not load.failures
    assert release.api.create(path, document).status == 201
    assert try_image(release.cluster, LATEST).status == 403
    assert not second.registrations()


def test_an_uninstalled_release_leaves_nothing_in_the_way_and_can_be_installed_again(
    release: Release,
) -> None:
    with creates(release.cluster, mutated=False) as load:
        release.uninstall()
        assert not release.registrations()
        load.flows()
        assert try_image(release.cluster, LATEST).status == 201
        for resource in ("secrets", "configmaps", "services", "serviceaccounts"):
            assert release.objects(resource) == []
        assert not load.failures
        release.install(values(), wait=False)
        # Without --wait the gateway may be registered before its worker is ready: it fails closed until then.
        eventually(lambda: try_image(release.cluster, LATEST).status == 403)
        load.flows()
        assert all("worker pool samples" in each.message for each in load.failures)
    release.uninstall()


def test_rendered_templates_become_a_working_gateway_without_hooks(whole: Cluster, folder: Path) -> None:
    release = Release(whole, folder, "rendered", "rendered")
    assert whole.kubectl("create", "namespace", release.namespace).returncode == 0
    done = release.helm(
        "template", release.name, str(CHART), values={**values(), "hooks": {"enabled": False}}
    )
    assert done.returncode == 0, done.stderr
    # As Flux and Argo CD do. Definitions of a release that was uninstalled may have stayed.
    apply = ("apply", "--server-side", "--force-conflicts", "--filename=-")
    with creates(whole, mutated=False) as load:
        # Tools apply the same again and again.
        for _ in range(2):
            applied = whole.kubectl(*apply, stdin=done.stdout)
            assert applied.returncode == 0, applied.stderr
        load.until(lambda: try_image(whole, LATEST).status == 403)
        # Nothing orders the registration after the workers: it fails closed until the first one is ready.
        assert all("worker pool samples" in each.message for each in load.failures)
    for one in release.registrations():
        assert whole.kubectl("delete", one["kind"], release.fullname).returncode == 0


def test_the_manifests_of_the_installation_guide_work_without_helm(whole: Cluster, folder: Path) -> None:
    name = "admission-gateway"
    tls = zip(("--cert", "--key"), whole.issue(folder / "tls", f"{name}.{name}.svc"), strict=True)
    secret = ("create", "secret", "tls", f"{name}-tls", *(f"{flag}={file}" for flag, file in tls))
    registration = (ROOT / "deploy" / "registration.yaml").read_text().replace("CA_BUNDLE", whole.ca_bundle)
    steps: list[tuple[tuple[str, ...], str | None]] = [
        (secret, None),
        (("apply", f"--filename={ROOT / 'deploy' / 'manifest.yaml'}"), None),
        (("rollout", "status", "deployment/sample-policies"), None),
        (("rollout", "status", f"deployment/{name}"), None),
        (("apply", "--server-side", f"--field-manager={name}", "--filename=-"), registration),
    ]
    for step, document in steps:
        done = whole.kubectl("--namespace", name, *step, stdin=document)
        assert done.returncode == 0, done
    eventually(lambda: "deny-latest-tag.samples.example" in try_image(whole, LATEST).message)
    assert whole.kubectl("delete", "--filename=-", stdin=registration).returncode == 0
