"""What ``check``, ``review --explain``, the log and the pages say about the placement of policies."""

from __future__ import annotations

import json
import logging
from dataclasses import replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import yaml

from gateway.config.merge.change_log import log_change
from gateway.config.merge.load import load
from gateway.server.pages.configuration import document, placements_of
from tests.kit import REVIEWS, call_command
from tests.kubernetes.server import ApiServer

if TYPE_CHECKING:
    from pathlib import Path

    import pytest

GROUP = "admissionregistration.k8s.io/v1"
KIND = "ValidatingAdmissionPolicy"
REGISTERED = f"/apis/{GROUP}/validatingwebhookconfigurations"
MOVES = f'info: {KIND} "moves": placement Auto: the API server evaluates it'
REASON = (
    "spec.validations[0].expression uses isIP(), which API servers accept in new policies from 1.31 on; "
    "write it without, or upgrade the cluster"
)
STAYS = f'{KIND} "stays": placement {{}}: the gateway evaluates it: {REASON}'


def policy(name: str, expression: str, placement: str) -> list[dict[str, Any]]:
    excluded = {"key": "kubernetes.io/metadata.name", "operator": "NotIn", "values": ["kube-system"]}
    rule = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    match = {"resourceRules": [rule], "namespaceSelector": {"matchExpressions": [excluded]}}
    spec = {"matchConstraints": match, "validations": [{"expression": expression}]}
    metadata = {"name": name, "annotations": {"admission-gateway.io/placement": placement}}
    bound = {"policyName": name, "validationActions": ["Deny"]}
    return [
        {"apiVersion": GROUP, "kind": KIND, "metadata": metadata, "spec": spec},
        {"apiVersion": GROUP, "kind": f"{KIND}Binding", "metadata": {"name": name}, "spec": bound},
    ]


def written(folder: Path, placement: str, version: str = "1.30", kubeconfig: Path | None = None) -> Path:
    """Write a configuration in which one policy moves, one stays, and one asks for nothing."""
    if kubeconfig is None:
        kubeconfig = folder / "kubeconfig"
        clusters = [{"name": "c", "cluster": {"server": "https://127.0.0.1:1"}}]
        contexts = [{"name": "c", "context": {"cluster": "c", "user": ""}}]
        content = {"clusters": clusters, "contexts": contexts, "current-context": "c"}
        kubeconfig.write_text(json.dumps(content))
    config = folder / "config"
    config.mkdir(exist_ok=True)
    gateway = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "kubernetes": {"kubeconfig": str(kubeconfig)},
        "kubernetesVersion": version,
        "policies": {"installation": "kube-system/gateway"},
    }
    documents = [
        gateway,
        *policy("moves", "true", "Auto"),
        *policy("stays", "isIP('::1')", placement),
        *policy("other", "isIP('::1')", "Gateway"),
    ]
    (config / "all.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": documents}))
    return config


def test_check_names_where_policies_are_evaluated(tmp_path: Path) -> None:
    done = call_command("check", "--config", written(tmp_path, "Auto"))
    assert done.returncode == 0
    assert done.stdout.splitlines()[1:] == [MOVES, f"info: {STAYS.format('Auto')}"]
    assert "stays" not in done.stderr


def test_check_warns_of_a_policy_that_cannot_move_as_asked(tmp_path: Path) -> None:
    done = call_command("check", "--config", written(tmp_path, "APIServer"))
    assert (done.returncode, done.stdout.splitlines()[1:]) == (0, [MOVES])
    assert f"warning: {STAYS.format('APIServer')}" in done.stderr.splitlines()


def test_check_names_the_missing_owner(tmp_path: Path) -> None:
    config = written(tmp_path, "Gateway")
    file = config / "all.json"
    file.write_text(file.read_text().replace('"installation": "kube-system/gateway"', ""))
    done = call_command("check", "--config", config)
    absent = "policies.installation of the GatewayConfiguration is absent; set it to NAMESPACE/NAME"
    (line,) = done.stdout.splitlines()[1:]
    assert line.startswith(f'info: {KIND} "moves": placement Auto: the gateway evaluates it: {absent}')
    (warning,) = (one for one in done.stderr.splitlines() if "installation" in one)
    assert f"{file}:1:" in warning
    assert "found Auto, without policies.installation in the GatewayConfiguration, expected" in warning


def test_check_says_nothing_if_no_policy_asks(tmp_path: Path) -> None:
    config = written(tmp_path, "Gateway")
    file = config / "all.json"
    file.write_text(file.read_text().replace('"Auto"', '"Gateway"'))
    done = call_command("check", "--config", config)
    assert "placement" not in done.stdout + done.stderr


def test_check_of_a_cluster_judges_by_its_version_and_its_registration(tmp_path: Path) -> None:
    with ApiServer() as server:
        for phase in ("mutating", "validating"):
            server.objects[f"/apis/{GROUP}/{phase}webhookconfigurations"] = {"items": []}
        server.objects["/openapi/v3"] = {"paths": {}}
        server.objects["/version"] = {"major": "1", "minor": "31"}
        config = written(tmp_path, "APIServer", "1.31", server.kubeconfig(tmp_path))
        done = call_command("check", "--config", config, "--cluster", "--json")
        found = [one for one in json.loads(done.stdout) if "placement" in one["message"]]
        assert [(one["severity"], one["place"], one["advice"]) for one in found] == [
            ("info", f'{KIND} "moves"', ""),
            ("info", f'{KIND} "stays"', ""),
        ]
        made = call_command("manifests", "--config", config, "--service", "policies/gateway")
        (registration,) = (one for one in yaml.safe_load_all(made.stdout) if one["kind"].startswith("Valid"))
        server.objects[REGISTERED] = {"items": [registration]}
        done = call_command("check", "--config", config, "--cluster", "--json")
        found = [one for one in json.loads(done.stdout) if "placement" in one["message"]]
        # The registration also excludes the namespace of the gateway.
        assert {"matches the namespace policies" in one["message"] for one in found} == {True}
        assert [one["severity"] for one in found] == ["info", "warning"]


def test_review_explains_it(tmp_path: Path) -> None:
    config = written(tmp_path, "Auto")
    file = config / "all.json"
    file.write_text(file.read_text().replace('"kubernetes": ', '"metadata": {"name": "g"}, "kubernetes": '))
    done = call_command(
        "review", REVIEWS / "pod-create-mutate.json", "--config", config, "--explain", "--phase", "mutate"
    )
    assert f"{STAYS.format('Auto')}" in done.stderr.splitlines()


def test_log_names_each_reason_once(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    config = load([written(tmp_path, "APIServer")])
    changed = replace(config, exceptions=())
    log_change(None, config, has_new_files=True)
    log_change(config, changed, has_new_files=False)
    assert [one.getMessage() for one in caplog.records] == [
        f'policy stays in the gateway: {KIND} "stays": {REASON}'
    ]
    caplog.clear()
    log_change(None, load([written(tmp_path, "Auto")]), has_new_files=True)
    assert caplog.records == []


def test_pages_show_it(tmp_path: Path) -> None:
    config = load([written(tmp_path, "Auto")])
    moves, stays = placements_of(config)
    assert moves == {
        "kind": KIND,
        "name": "moves",
        "placement": "Auto",
        "evaluatedBy": "APIServer",
        "reasons": [],
    }
    assert (stays["evaluatedBy"], stays["reasons"]) == ("Gateway", [REASON])
    state: Any = SimpleNamespace(config=config, snapshot=SimpleNamespace(digest="d"), loaded_at=0.0)
    by_name = {one["name"]: one for one in document(state)["validating"]}
    assert (by_name["stays"]["placement"], by_name["stays"]["reasons"]) == ("Auto", [REASON])
    assert "placement" not in by_name["other"]
