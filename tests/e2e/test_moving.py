"""Webhooks of a cluster moved behind the gateway, in the steps of docs/migrate.md, without a lost review."""

from __future__ import annotations

import json
import shlex
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.cluster import NAMESPACE, STRANGER
from tests.e2e.objects import config_map
from tests.e2e.policy_comparison import FOLLOWER
from tests.e2e.setups import REGISTRATIONS, Directly, Hook, rule
from tests.kit import GatewayProcess, free_port, run_command
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster

MAPS = "/api/v1/namespaces/default/configmaps"
NAME = "moved"
SECRETS = "/api/v1/namespaces/kube-system/secrets"
CONFIG_MAPS = rule("configmaps", "CREATE")
NO_CANARY = {"objectSelector": {"matchExpressions": [{"key": "canary", "operator": "DoesNotExist"}]}}
HOOKS = [
    Hook("mutate", "stamp.moving.test", {"warnings": ["stamped"]}, (CONFIG_MAPS,), "stamps", NO_CANARY),
    Hook("validate", "look.moving.test", {"warnings": ["looked at"]}, (CONFIG_MAPS,), "looks", NO_CANARY),
    Hook(
        "validate",
        "refuse.moving.test",
        {"deny": {"code": 403, "message": "not this one"}},
        (CONFIG_MAPS,),
        "looks",
        fields={"objectSelector": {"matchLabels": {"refuse": "yes"}}},
    ),
    Hook(
        "validate",
        "guard.moving.test",
        {"deny": {"code": 403, "message": "not this Secret"}},
        (rule("secrets", "CREATE"),),
        "looks",
        fields={"objectSelector": {"matchLabels": {"refuse": "yes"}}},
    ),
]


class ByUrl(Directly):
    """Webhooks that a gateway on this machine reaches as the API server does."""

    def __init__(self, cluster: Cluster, folder: Path, hooks: list[Hook]) -> None:
        super().__init__(cluster, folder, hooks, "by-url")
        self.certificate = cluster.issue(folder, "localhost", "127.0.0.1")

    def client_config(self, index: int, hook: Hook) -> dict[str, Any]:
        """Return where the webhook *hook*, the one at *index*, is served."""
        return {"url": f"https://localhost:{self.port}/{index}", "caBundle": self.cluster.ca_bundle}


@pytest.fixture
def clean(cluster: Cluster) -> Iterator[None]:
    """Remove the registrations of a test."""
    yield
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        cluster.api.delete(f"{REGISTRATIONS}/{plural}/{NAME}")


@pytest.mark.usefixtures("clean")
def test_webhooks_move_behind_the_gateway_one_step_after_another(cluster: Cluster, tmp_path: Path) -> None:
    kubeconfig = cluster.kubeconfig()
    config, port = tmp_path / "config", free_port()
    certificate = cluster.issue(tmp_path / "gateway", f"{NAME}.{NAMESPACE}.svc", "localhost", "127.0.0.1")
    with ByUrl(cluster, tmp_path / "direct", HOOKS):
        # Policies of other tests may be in the cluster, too.
        read = ("import", "--kubeconfig", kubeconfig, "--exclude", FOLLOWER)
        imported = run_command(*read, "--output", config)
        assert imported.returncode == 0, imported.stderr
        assert len(list(config.iterdir())) == 4, "with those of the canaries"
        assert "unchanged" in run_command(*read, "--output", config).stdout

        tls = {"certFile": str(certificate[0]), "keyFile": str(certificate[1])}
        head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
        (config / "gateway.yaml").write_text(json.dumps({**head, "tls": tls}))
        checked = run_command("check", "--config", config)
        assert checked.returncode == 0, checked.stderr

        gateway = GatewayProcess(config, certificate, cluster.authority, "--listen", f"127.0.0.1:{port}")
        try:
            cluster.add_service(NAME)
            inspect = ("check", "--cluster", "--config", config, "--kubeconfig", kubeconfig)
            unregistered = run_command(*inspect)
            assert unregistered.returncode == 1
            assert "no registration of a gateway was found" in unregistered.stdout
            manifests = (
                *("manifests", "--config", config, "--service", f"{NAMESPACE}/{NAME}:{port}", "--name", NAME),
                *("--ca-file", cluster.ca_file, "--apply", "--kubeconfig", kubeconfig),
            )
            applied = run_command(*manifests)
            assert applied.returncode == 0, applied.stderr
            open_namespace = run_command(*inspect)
            assert open_namespace.returncode == 1
            for output in (applied.stderr, open_namespace.stdout):
                (line,) = [line for line in output.splitlines() if "kube-system" in line]
                assert all(hook.name in line for hook in HOOKS), line
            accepted = (*inspect, "--exclude-namespace", "kube-system")
            both = run_command(*accepted)
            assert both.returncode == 0, both.stdout
            assert refusals(cluster) == ["not this Secret"]
            assert "is called twice, directly and by the gateway: stamp.moving.test" in both.stdout

            for line in imported.stderr.splitlines():
                if line.startswith("kubectl "):
                    done = cluster.kubectl(*shlex.split(line)[1:])
                    assert done.returncode == 0, done.stderr
            alone = run_command(*accepted)
            assert alone.returncode == 0, alone.stdout
            # The Service of a test stands for one outside, and has no ports.
            assert "0 errors, 1 warnings" in alone.stdout, alone.stdout
            eventually(lambda: refusals(cluster) == [])
            included = run_command(*manifests, "--include", "kube-system")
            assert included.returncode == 0, included.stderr
            assert "error: " not in run_command(*inspect).stdout
            eventually(lambda: refusals(cluster) == ["not this Secret"])
            left_out = run_command(*manifests)
            assert left_out.returncode == 0, left_out.stderr
            check_with_least_rights(cluster, config)
            check_notices_a_rule_that_is_gone(cluster, inspect)
            eventually(lambda: warnings(cluster) == ["stamped"])
            restored = run_command(*manifests, "--force-conflicts")
            assert restored.returncode == 0, restored.stderr
            eventually(lambda: warnings(cluster) == ["stamped", "looked at"])
            refused = cluster.api.create(f"{MAPS}?dryRun=All", labelled("yes"))
            assert (refused.status, refused.document["reason"]) == (403, "Forbidden")
            assert "not this one" in refused.document["message"]
            again = run_command(*read)
            assert (again.returncode, again.stdout) == (0, "")
            assert f"note: MutatingWebhookConfiguration/{NAME}: not imported" in again.stderr
        finally:
            for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
                cluster.api.delete(f"{REGISTRATIONS}/{plural}/{NAME}")
            eventually(lambda: not warnings(cluster))
            gateway.stop()


def check_with_least_rights(cluster: Cluster, config: Path) -> None:
    """Run ``check`` as a user whose only right is to list registrations."""
    rbac = "/apis/rbac.authorization.k8s.io/v1"
    kinds = ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"]
    rule = {"apiGroups": ["admissionregistration.k8s.io"], "resources": kinds, "verbs": ["list"]}
    group = {"apiGroup": "rbac.authorization.k8s.io", "kind": "Group", "name": "strangers"}
    role = {"apiGroup": "rbac.authorization.k8s.io", "kind": "ClusterRole", "name": "inspect"}
    metadata = {"name": "inspect"}
    made = cluster.api.create(f"{rbac}/clusterroles", {"metadata": metadata, "rules": [rule]})
    assert made.status == 201, made
    binding = {"metadata": metadata, "roleRef": role, "subjects": [group]}
    bound = cluster.api.create(f"{rbac}/clusterrolebindings", binding)
    assert bound.status == 201, bound
    arguments = (
        *("check", "--cluster", "--config", config, "--kubeconfig", cluster.kubeconfig(STRANGER)),
        *("--exclude-namespace", "kube-system"),
    )
    try:
        # A binding takes a moment to count.
        done = eventually(lambda: done if (done := run_command(*arguments)).returncode == 0 else None)
        assert done is not None
        assert "right to get namespaces is missing" in done.stdout
        assert f"right to get services in namespace {NAMESPACE} is missing" in done.stdout
        assert "the right to list pods, namespaces, nodes, services, priorityclasses of all" in done.stdout
        assert "0 errors, 5 warnings" in done.stdout
    finally:
        for plural in ("clusterrolebindings", "clusterroles"):
            cluster.api.delete(f"{rbac}/{plural}/inspect")


def check_notices_a_rule_that_is_gone(cluster: Cluster, inspect: tuple[object, ...]) -> None:
    path = '[{"op": "remove", "path": "/webhooks/0/rules"}]'
    patch = ("patch", "validatingwebhookconfiguration", NAME, "--type=json", "-p", path)
    done = cluster.kubectl(*patch)
    assert done.returncode == 0, done.stderr
    found = run_command(*inspect)
    assert found.returncode == 1
    assert "look.moving.test: rules[0]: never sent to the gateway: CREATE of" in found.stdout


def warnings(cluster: Cluster) -> list[str]:
    answer = cluster.api.create(f"{MAPS}?dryRun=All", labelled("no"))
    return list(answer.warnings) if answer.status == 201 else ["failed"]


def refusals(cluster: Cluster) -> list[str]:
    """Why a Secret in kube-system is refused: a message each, or none."""
    metadata = {"name": "moving", "labels": {"refuse": "yes"}}
    answer = cluster.api.create(f"{SECRETS}?dryRun=All", {"metadata": metadata})
    assert answer.status in (201, 403), answer
    return [] if answer.status == 201 else [answer.document["message"].rpartition(": ")[2]]


def labelled(refuse: str) -> dict[str, Any]:
    document: dict[str, Any] = config_map("moving")
    document["metadata"]["labels"] = {"refuse": refuse}
    return document


def test_a_missing_right_is_named(cluster: Cluster) -> None:
    done = run_command("import", "--kubeconfig", cluster.kubeconfig(STRANGER))
    assert (done.returncode, done.stdout) == (1, "")
    right = "the right to list mutatingwebhookconfigurations of admissionregistration.k8s.io is missing"
    assert right in done.stderr
    assert len(done.stderr.splitlines()) == 1
