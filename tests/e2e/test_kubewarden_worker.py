"""The worker of Kubewarden's policies follows them in a real API server, and they read its objects.

The worker has a role with what it needs and no more. ``make test-workers`` builds it; without it, and without
Go for a module, this is skipped.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from deploy.monitoring import CHART_FILES
from gateway.config.merge.custom_resource import PLURALS
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import STRANGER, Cluster
from tests.e2e.objects import config_map
from tests.kit import Process, pool_document
from tests.kubewarden.guests import program
from tests.kubewarden.test_program import OWN, WORKER, policy, pytestmark, review
from tests.waiting import eventually

if TYPE_CHECKING:
    from contextlib import ExitStack
    from pathlib import Path

    from tests.kit import StartGateway

    Json = dict[str, Any]

__all__ = ["pytestmark"]

GROUP: Final = "policies.kubewarden.io"
RULES: Final = [
    {
        "apiGroups": [GROUP],
        "resources": ["clusteradmissionpolicies", "admissionpolicies"],
        "verbs": ["get", "list", "watch"],
    },
    {"apiGroups": [""], "resources": ["configmaps"], "verbs": ["get", "list"]},
]
MODULE: Final = "registry://example.test/policies/program:v1"


def definition(kind: str, plural: str, scope: str) -> Json:
    """The definition of one of Kubewarden's kinds, without its schema."""
    schema = {"openAPIV3Schema": {"type": "object", "x-kubernetes-preserve-unknown-fields": True}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{plural}.{GROUP}"},
        "spec": {
            "group": GROUP,
            "scope": scope,
            "names": {"kind": kind, "plural": plural, "singular": kind.lower()},
            "versions": [{"name": "v1", "served": True, "storage": True, "schema": schema}],
        },
    }


def apply(cluster: Cluster, *documents: Json) -> None:
    done = cluster.kubectl("apply", "--filename=-", stdin=yaml.safe_dump_all(documents))
    assert done.returncode == 0, done.stderr


def reading(kind: str) -> Json:
    """A policy that answers with a ConfigMap of the cluster as a warning, if it may read *kind*."""
    payload = {"api_version": "v1", "kind": "ConfigMap", "name": "settings", "namespace": "default"}
    settings = {"do": "kubernetes get_resource", "payload": payload}
    resources = [{"apiVersion": "v1", "kind": kind}]
    return policy("reads", module=MODULE, settings=settings, contextAwareResources=resources)


def test_policies_are_followed_and_read_what_the_role_and_their_document_grant(
    tmp_path: Path, start_gateway: StartGateway, processes: ExitStack
) -> None:
    built = program()
    if built is None:
        pytest.skip("there is no Go for a module")
    module = tmp_path / "store" / "registry" / "example.test" / "policies" / "program:v1"
    module.parent.mkdir(parents=True)
    module.write_bytes(built)
    with Cluster(obtain(VERSIONS[0]), tmp_path / "cluster") as cluster:
        done = cluster.kubectl("apply", "--server-side", f"--filename={CHART_FILES / 'crds.yaml'}")
        assert done.returncode == 0, done.stderr
        apply(
            cluster,
            definition("ClusterAdmissionPolicy", "clusteradmissionpolicies", "Cluster"),
            definition("AdmissionPolicy", "admissionpolicies", "Namespaced"),
        )
        own = (f"{plural}.admission-gateway.io" for plural in PLURALS.values())
        cluster.wait_until_served(f"clusteradmissionpolicies.{GROUP}", f"admissionpolicies.{GROUP}", *own)
        role = {"apiVersion": "rbac.authorization.k8s.io/v1", "kind": "ClusterRole"}
        apply(cluster, {**role, "metadata": {"name": "kubewarden-worker"}, "rules": RULES})
        done = cluster.kubectl(
            *("create", "clusterrolebinding", "kubewarden-worker"),
            *("--clusterrole=kubewarden-worker", f"--user={STRANGER}"),
        )
        assert done.returncode == 0, done.stderr
        settings = {**config_map("settings"), "data": {"found": "yes"}}
        settings["metadata"] = {"name": "settings", "namespace": "default"}
        apply(cluster, settings)
        worker = Process(
            *(str(WORKER), "--cluster", "--kubeconfig", str(cluster.kubeconfig(STRANGER))),
            *("--modules", str(tmp_path / "store"), "--listen", "127.0.0.1:0"),
        )
        processes.callback(worker.stop)
        target = worker.expect(r"worker: serving 0 policies on (\S+)")[1]
        config = tmp_path / "config"
        config.mkdir()
        engines = {"engines": {"kubewarden": {"pool": "kubewarden"}}, "customResourcesOf": ["Kubewarden"]}
        document = {
            "apiVersion": OWN,
            "kind": "GatewayConfiguration",
            "kubernetes": {"kubeconfig": str(cluster.kubeconfig()), "customResources": True},
            "policies": engines,
        }
        (config / "a.yaml").write_text(pool_document("kubewarden", target) + json.dumps(document))
        gateway = start_gateway(config, "--allow-empty")

        def answer() -> Json:
            return gateway.review("/validate?timeout=30s", review(namespace="default"))

        apply(cluster, reading("ConfigMap"))
        eventually(lambda: '"found":"yes"' in "".join(answer().get("warnings", ())), "the policy in force")
        # Its document does not grant what it reads.
        apply(cluster, reading("Secret"))
        refused = "Policy has not been granted access to Kubernetes v1/ConfigMap"
        eventually(lambda: refused in answer().get("status", {}).get("message", ""), "the change in force")
        # Without its module it is left out, so that its calls fail.
        missing = reading("ConfigMap")
        missing["spec"]["module"] = "registry://example.test/policies/absent:v1"
        apply(cluster, missing)
        worker.expect("left out, so that its calls fail: ClusterAdmissionPolicy reads: spec.module: ")
        eventually(lambda: answer().get("status", {}).get("code") == 500, "the failure")
        assert cluster.kubectl("delete", f"clusteradmissionpolicies.{GROUP}", "reads").returncode == 0
        eventually(lambda: answer()["allowed"], "the deletion")
        apply(cluster, policy("own", "reject", namespace="default", module=MODULE))
        eventually(lambda: answer().get("status", {}).get("code") == 422, "the AdmissionPolicy in force")
