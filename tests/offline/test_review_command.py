"""``admission-gateway review`` with objects: the exit status, and the changes as text."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from admission_gateway_worker.policies import definitions
from gateway.tools.cli.policies import configuration
from tests.kit import REVIEWS, call_command, pool_document, webhook_document
from tests.kubernetes.server import ApiServer

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worker.server import StartWorker

pytestmark = pytest.mark.process

DEFINITIONS = {each.name: each for each in definitions()}

POD: dict[str, Any] = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {"x": "y"}}}


@pytest.fixture
def pod(tmp_path: Path) -> Path:
    file = tmp_path / "pod.json"
    file.write_text(json.dumps(POD))
    return file


def configured(tmp_path: Path, target: str, *documents: str) -> str:
    folder = tmp_path / "config"
    folder.mkdir(exist_ok=True)
    (folder / "c.yaml").write_text(pool_document("pool", target) + "".join(documents))
    return str(folder)


@pytest.mark.smoke
def test_an_object_is_allowed_with_its_changes_as_a_diff(
    tmp_path: Path, pod: Path, start_worker: StartWorker
) -> None:
    mutating = webhook_document("mutate", "m", "pool", {"label": "added"})
    config = configured(tmp_path, start_worker().target, mutating)
    done = call_command("review", str(pod), "--config", config)
    assert done.returncode == 0, done.stderr
    first, title, *lines = done.stdout.splitlines()
    assert (first, title) == ("allowed", "changes of the object:")
    added = [line for line in lines if line.startswith(("+", "-"))]
    assert len(added) == 1, lines
    assert added[0].startswith("+    ")
    as_json = call_command("review", str(pod), "--config", config, "--json")
    assert "patch" in json.loads(as_json.stdout)["response"]


@pytest.mark.parametrize(("failure_policy", "status"), [("Fail", 3), ("Ignore", 0)])
@pytest.mark.usefixtures("no_wait_for_workers")
def test_a_failed_webhook_leaves_the_request_undecided_under_fail(
    tmp_path: Path, pod: Path, failure_policy: str, status: int
) -> None:
    document = webhook_document("validate", "v", "pool", {"webhook": {"failurePolicy": failure_policy}})
    done = call_command("review", str(pod), "--config", configured(tmp_path, "127.0.0.1:1", document))
    assert done.returncode == status, done.stdout
    expected = "could not be decided (500 InternalError): " if status else "allowed\nfailed: h0.v.test: "
    assert done.stdout.startswith(expected)


@pytest.mark.parametrize(("failure_policy", "status"), [("Fail", 3), ("Ignore", 0)])
def test_parameters_that_the_worker_does_not_accept_are_a_failure(
    tmp_path: Path, failure_policy: str, status: int
) -> None:
    deployment = {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "a"}}
    (tmp_path / "deployment.json").write_text(json.dumps({**deployment, "spec": {"replicas": 9}}))
    (worker, policy) = configuration([DEFINITIONS["minimum-replicas"]])
    policy["webhooks"][0]["failurePolicy"] = failure_policy
    policy["webhooks"][0]["clientConfig"]["worker"]["parameters"] = {"minimun": 2}
    (tmp_path / "config.yaml").write_text(yaml.safe_dump_all([worker, policy]))
    done = call_command(
        "review", str(tmp_path / "deployment.json"), "--config", str(tmp_path / "config.yaml"), "--explain"
    )
    assert done.returncode == status, done.stdout
    assert 'parameters.minimun: unknown parameter; did you mean "minimum"?' in done.stdout
    assert f"failurePolicy {failure_policy} " in done.stderr


def test_a_denial_has_the_status_1_whether_of_an_object_or_a_review(
    tmp_path: Path, pod: Path, start_worker: StartWorker
) -> None:
    denials = webhook_document("validate", "v", "pool", {"deny": {"message": "no\x1b[2J"}})
    config = configured(tmp_path, start_worker().target, denials)
    done = call_command("review", str(pod), "--config", config)
    assert (done.returncode, done.stdout.splitlines()[0]) == (1, "denied (400 ): h0.v.test: no\\x1b[2J")
    review = call_command("review", str(REVIEWS / "pod-create-validate.json"), "--config", config)
    assert review.returncode == 1
    assert json.loads(review.stdout)["response"]["allowed"] is False


def test_a_webhook_with_side_effects_is_called_only_on_demand(
    tmp_path: Path, pod: Path, start_worker: StartWorker
) -> None:
    document = webhook_document("validate", "v", "pool", {"webhook": {"sideEffects": "Some"}})
    # Some is legal only in v1beta1.
    document = document.replace("admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1")
    config = configured(tmp_path, start_worker().target, document)
    assert call_command("review", str(pod), "--config", config).returncode == 3
    assert call_command("review", str(pod), "--config", config, "--no-dry-run").returncode == 0


@pytest.mark.usefixtures("no_wait_for_workers")
def test_wrong_usage_has_the_status_2(tmp_path: Path, pod: Path) -> None:
    config = configured(tmp_path, "127.0.0.1:1")
    review = str(REVIEWS / "pod-create-validate.json")
    for arguments, text in (
        ((str(pod), "--operation", "UPDATE"), "give it with --old FILE"),
        ((review, "--user", "alice"), "found --user, expected it with an object"),
        ((str(tmp_path / "none.yaml"),), "cannot be read"),
        ((str(pod), "--json", "--text"), "not allowed with"),
    ):
        done = call_command("review", *arguments, "--config", config)
        assert (done.returncode, done.stdout) == (2, "")
        assert text in done.stderr
    (tmp_path / "config/c.yaml").write_text("kind: Nothing\n")
    assert call_command("review", str(pod), "--config", config).returncode == 2


LIMITED = """\
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: p}
spec:
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [pods]}]
  validations:
    - expression: resource.get('v1', 'configmaps', 'default', 'names').data.allowed == object.metadata.name
      messageExpression: "'expected ' + resource.get('v1', 'configmaps', 'default', 'names').data.allowed"
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: p}
spec: {policyName: p, validationActions: [Deny]}
---
apiVersion: admission-gateway.io/v1alpha1
kind: GatewayConfiguration
policies: {resources: [{apiVersion: v1, kind: ConfigMap, resource: configmaps}]}
"""


def allowed_name(name: str) -> dict[str, Any]:
    metadata = {"name": "names", "namespace": "default"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"allowed": name}}


def test_policies_read_objects_of_the_files_or_of_the_cluster(tmp_path: Path, pod: Path) -> None:
    config = tmp_path / "config.yaml"
    with ApiServer() as server:
        verbs = ["get", "list", "watch"]
        found = {"name": "configmaps", "kind": "ConfigMap", "namespaced": True, "verbs": verbs}
        server.resources["/api/v1"] = [found]
        server.keep("/api/v1/namespaces/default/configmaps/names", data={"allowed": "of the cluster"})

        def reviewed(*objects: dict[str, Any], cluster: str = "") -> str:
            config.write_text(f"{LIMITED}{cluster}---\n{yaml.safe_dump_all(objects)}")
            return call_command("review", str(pod), "--config", str(config)).stdout

        assert reviewed(allowed_name("a")) == "allowed\n"
        assert "expected b\n" in reviewed(allowed_name("b"))
        assert "resulted in error: no such key: data\n" in reviewed()
        cluster = f"kubernetes: {{kubeconfig: {json.dumps(str(server.kubeconfig(tmp_path)))}}}\n"
        assert "expected of the cluster\n" in reviewed(cluster=cluster)
        # What files have is not taken from the cluster.
        assert reviewed(allowed_name("a"), cluster=cluster) == "allowed\n"
