"""Policies of Kyverno and Gatekeeper as custom resources of a real API server, with their own definitions."""

from __future__ import annotations

import json
import tempfile
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

import pytest
import yaml

from deploy.monitoring import CHART_FILES
from gateway.config.merge.custom_resource import PLURALS
from loadtest.peers.programs import PROGRAMS
from tests.e2e.cluster import NAMESPACE
from tests.e2e.golang import go
from tests.e2e.setups import PODS, BehindGateway, Hook, deployed_account
from tests.e2e.test_custom_policies import granted
from tests.e2e.test_custom_resources import apply, make_pod
from tests.gatekeeper.documents import constraint, template
from tests.kit import run_command
from tests.kyverno.documents import exception, validating
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.cluster import Cluster

    Json = dict[str, Any]

KYVERNO: Final = [
    f"config/crds/policies.kyverno.io/policies.kyverno.io_{plural}.yaml"
    for plural in ("validatingpolicies", "policyexceptions")
]
GATEKEEPER: Final = [
    f"charts/gatekeeper/crds/{kind}-customresourcedefinition.yaml"
    for kind in ("constrainttemplate", "config")
]
SERVED: Final = (
    "validatingpolicies.policies.kyverno.io",
    "policyexceptions.policies.kyverno.io",
    "constrainttemplates.templates.gatekeeper.sh",
)
SETTINGS: Final = {
    "customResourcesOf": ["Kyverno", "Gatekeeper"],
    "exceptionNamespaces": ["exceptions"],
    "resources": [{"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps"}],
}
WRITER: Final = {
    "apiVersion": "rbac.authorization.k8s.io/v1",
    "kind": "ClusterRole",
    "metadata": {"name": "engine-policy-writer"},
    "rules": [{"apiGroups": ["policies.kyverno.io"], "resources": ["validatingpolicies"], "verbs": ["*"]}],
}


def source_of(program: str) -> Path:
    """Return the folder of the program's module in the module cache."""
    pinned = PROGRAMS[program]
    with tempfile.TemporaryDirectory() as empty:
        found = go("mod", "download", "-json", f"{pinned.module}@{pinned.version}", cwd=Path(empty))
    return Path(json.loads(found)["Dir"])


def definition(kind: str) -> Json:
    """Return the definition of constraints that Gatekeeper makes of a template with *kind*."""
    group, name = "constraints.gatekeeper.sh", kind.lower()
    schema = {"type": "object", "x-kubernetes-preserve-unknown-fields": True}
    version = {"name": "v1beta1", "served": True, "storage": True, "schema": {"openAPIV3Schema": schema}}
    return {
        "apiVersion": "apiextensions.k8s.io/v1",
        "kind": "CustomResourceDefinition",
        "metadata": {"name": f"{name}.{group}"},
        "spec": {
            "group": group,
            "names": {"kind": kind, "listKind": f"{kind}List", "plural": name, "singular": name},
            "scope": "Cluster",
            "versions": [{**version, "subresources": {"status": {}}}],
        },
    }


@pytest.fixture(scope="module")
def defined(cluster: Cluster) -> Iterator[Cluster]:
    """The cluster with the definitions of the gateway and of both engines."""
    files = [CHART_FILES / "crds.yaml"]
    for program, names in (("kyverno", KYVERNO), ("gatekeeper", GATEKEEPER)):
        files += [source_of(program) / name for name in names]
    flags = [f"--filename={file}" for file in files]
    applied = cluster.kubectl("apply", "--server-side", *flags)
    assert applied.returncode == 0, applied.stderr
    cluster.wait_until_served(*(f"{plural}.admission-gateway.io" for plural in PLURALS.values()), *SERVED)
    apply(cluster, {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "exceptions"}})
    yield cluster
    cluster.kubectl("delete", *flags[1:])


@contextmanager
def allowed(cluster: Cluster, folder: Path) -> Iterator[Path]:
    """Yield a kubeconfig of the account of deploy/ with what ``--roles-for`` adds for the engines."""
    config = folder / "roles.yaml"
    document = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "kubernetes": {"customResources": True},
        "policies": SETTINGS,
    }
    config.write_text(yaml.safe_dump(document))
    account = f"{NAMESPACE}/admission-gateway"
    made = run_command(
        "manifests", "--config", config, "--roles-for", account, "--kubeconfig", cluster.kubeconfig()
    )
    assert made.returncode == 0, made.stderr
    with deployed_account(cluster, folder, "custom-resources.yaml") as kubeconfig:
        done = cluster.kubectl("apply", "--filename=-", stdin=made.stdout)
        assert done.returncode == 0, done.stderr
        yield kubeconfig
        cluster.kubectl("delete", "--filename=-", stdin=made.stdout)


@pytest.fixture
def served(defined: Cluster, tmp_path: Path) -> Iterator[BehindGateway]:
    """A gateway with these rights, which is called for Pods."""
    with allowed(defined, tmp_path) as kubeconfig:
        settings = {
            "kubernetes": {"kubeconfig": str(kubeconfig), "customResources": True},
            "policies": SETTINGS,
        }
        hooks = [Hook("validate", "pods.e2e.test", {})]
        with BehindGateway(defined, tmp_path / "gateway", hooks, "engines", gateway=settings) as setup:
            yield setup


def remove(cluster: Cluster, document: Json) -> None:
    deleted = cluster.kubectl("delete", "--filename=-", stdin=json.dumps(document))
    assert deleted.returncode == 0, deleted.stderr


def refusal(cluster: Cluster) -> str:
    """Return why a Pod is refused; empty if it is not."""
    answer = make_pod(cluster)
    return "" if answer.status == 201 else answer.message.partition("denied the request: ")[2]


def test_policies_in_the_cluster_decide_change_and_go(defined: Cluster, served: BehindGateway) -> None:
    match = {"resourceRules": [PODS]}
    policy = validating({"expression": "false", "message": "first"}, name="vp", matchConstraints=match)
    apply(defined, policy)
    eventually(lambda: refusal(defined) == "Policy vp failed: first")
    changed = validating({"expression": "false", "message": "second"}, name="vp", matchConstraints=match)
    apply(defined, changed)
    eventually(lambda: refusal(defined) == "Policy vp failed: second")
    # Only the gateway can check the expression: Kyverno's own webhook is not there.
    apply(defined, validating("no such", name="vp", matchConstraints=match))
    served.gateway.expect("generation 2 stays in force")
    assert refusal(defined) == "Policy vp failed: second"
    apply(defined, changed)
    excepted = exception(of="vp")
    apply(defined, excepted)
    eventually(lambda: refusal(defined) == "")
    remove(defined, excepted)
    eventually(lambda: refusal(defined) == "Policy vp failed: second")
    stored = defined.api.get("/apis/policies.kyverno.io/v1/validatingpolicies/vp").document
    assert "status" not in stored
    remove(defined, policy)
    eventually(lambda: refusal(defined) == "")
    assert "forbidden" not in served.gateway.log
    assert "Traceback" not in served.gateway.log


def test_authors_read_by_a_policy_of_kyverno_only_what_they_may_read(
    defined: Cluster, served: BehindGateway
) -> None:
    token = 'resource.Get("v1", "configmaps", "exceptions", "token")'
    shows = {"expression": "false", "messageExpression": f"string({token}.data.token)"}
    match = {"resourceRules": [PODS]}
    harmless = validating("true", name="shows", matchConstraints=match)
    showing = validating(shows, name="shows", matchConstraints=match)
    grant = granted("engine-policy-writer", "engine-policy-writer", {"kind": "User", "name": "eve"})
    metadata = {"name": "token", "namespace": "exceptions"}
    config_map = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"token": "first"}}
    for document in (WRITER, grant, config_map):
        apply(defined, document)

    def by_eve(document: Json) -> str:
        done = defined.kubectl("apply", "--as=eve", "--filename=-", stdin=json.dumps(document))
        return "" if done.returncode == 0 else done.stderr

    eventually(lambda: by_eve(harmless) == "")
    assert "the author has no right to get all configmaps" in by_eve(showing)
    apply(defined, showing)
    eventually(lambda: refusal(defined) == "Policy shows failed: first")
    assert by_eve({**showing, "metadata": {"name": "shows", "labels": {"a": "b"}}}) == ""
    apply(defined, {**config_map, "data": {"token": "second"}})
    eventually(lambda: refusal(defined) == "Policy shows failed: second")
    for document in (showing, config_map, grant, WRITER):
        remove(defined, document)
    eventually(lambda: refusal(defined) == "")
    assert "forbidden" not in served.gateway.log
    assert "Traceback" not in served.gateway.log


def test_constraints_and_their_kinds_come_and_go(defined: Cluster, served: BehindGateway) -> None:
    never = template("Never", {"expression": "false", "message": "never"})
    match = {"kinds": [{"apiGroups": [""], "kinds": ["Pod"]}]}
    needing = constraint("Never", "c", match=match)
    for _ in range(2):
        apply(defined, never)
        apply(defined, definition("Never"))
        defined.wait_until_served("never.constraints.gatekeeper.sh")
        apply(defined, needing)
        eventually(lambda: refusal(defined) == "[c] never")
        # As Gatekeeper does when a template is deleted.
        remove(defined, definition("Never"))
        eventually(lambda: refusal(defined) == "")
    apply(defined, definition("Never"))
    defined.wait_until_served("never.constraints.gatekeeper.sh")
    apply(defined, needing)
    eventually(lambda: refusal(defined) == "[c] never")
    apply(defined, template("Never", {"expression": "false", "message": "changed"}))
    eventually(lambda: refusal(defined) == "[c] changed")
    remove(defined, never)
    eventually(lambda: refusal(defined) == "")
    remove(defined, definition("Never"))
    assert "forbidden" not in served.gateway.log
    assert "Traceback" not in served.gateway.log
