"""A configuration without webhooks is refused, and files that are not read are named."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING

import pytest

from tests.kit import call_command, pool_document, run_command, webhook_document
from tests.worker.server import scripted_worker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.in_process import Stage

DENIES = {"deny": {"message": "refused"}}
RELOADED = "admission_gateway_config_last_reload_successful"


@pytest.mark.process
@pytest.mark.parametrize("processes", [pytest.param("1", marks=pytest.mark.smoke), "2"])
def test_a_start_without_webhooks_is_refused(
    tmp_path: Path, certificate: tuple[Path, Path], processes: str
) -> None:
    (tmp_path / "webhooks.yaml.txt").write_text(webhook_document("validate", "v", "pool", DENIES))
    (tmp_path / "more").mkdir()
    (tmp_path / "..data").mkdir()
    command = "serve", "--config", tmp_path, "--processes", processes, "--listen", "127.0.0.1:0"
    done = run_command(*command, "--tls-cert", certificate[0], "--tls-key", certificate[1])
    assert done.returncode == 1
    empty, unread = done.stderr.splitlines()
    assert empty.startswith(f"found no webhooks in {tmp_path}: ")
    assert empty.endswith(
        "add a webhook configuration, or start serve with --allow-empty if that is intended"
    )
    assert unread.startswith(f'{tmp_path}: not read: "more/", "webhooks.yaml.txt"; ')
    assert call_command("check", "--config", tmp_path).stderr == done.stderr
    allowed = call_command("check", "--config", tmp_path, "--allow-empty")
    assert allowed.returncode == 0
    assert f"warning: {unread}" in allowed.stderr


@pytest.fixture
def webhooks(stage: Stage) -> str:
    """A configuration with a webhook that denies."""
    worker = stage.enter(scripted_worker("127.0.0.1:0"))
    return pool_document("pool", worker.target) + webhook_document("validate", "v", "pool", DENIES)


def test_an_emptied_folder_is_refused_until_it_has_webhooks_again(
    tmp_path: Path, webhooks: str, stage: Stage
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(webhooks)
    gateway = stage.start_gateway(tmp_path)
    file.unlink()
    gateway.expect("configuration refused, the one in force stays: found no webhooks in .*--allow-empty")
    assert gateway.review("/validate", "pod-create-validate")["allowed"] is False
    assert gateway.metric(RELOADED) == 0
    file.write_text(webhooks)
    stage.eventually(lambda: gateway.metric(RELOADED) == 1)


def test_with_allow_empty_a_folder_can_be_emptied(tmp_path: Path, webhooks: str, stage: Stage) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(webhooks)
    gateway = stage.start_gateway(tmp_path, allow_empty=True)
    file.unlink()
    stage.eventually(lambda: gateway.review("/validate", "pod-create-validate")["allowed"])


def left_to_the_api_server(*documents: str) -> str:
    """Return *documents*, and a policy with its binding, of which the API server evaluates the kind."""
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "p"}}
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["CREATE"], "resources": ["pods"]}
    constraints = {"matchConstraints": {"resourceRules": [rule]}, "validations": [{"expression": "true"}]}
    bound = {"policyName": "p", "validationActions": ["Deny"]}
    gateway = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
    policies = (
        {**head, "kind": "ValidatingAdmissionPolicy", "spec": constraints},
        {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
        {**gateway, "policies": {"leftToAPIServer": ["ValidatingAdmissionPolicy"]}},
    )
    return "".join((*documents, *(f"---\n{json.dumps(each)}\n" for each in policies)))


LEFT = "policies.leftToAPIServer: all policies (1) are left to the API server, and there are no webhooks"


def test_policies_that_are_all_left_to_the_api_server_are_no_empty_configuration(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    whole = left_to_the_api_server()
    file.write_text(whole)
    done = call_command("check", "--config", tmp_path)
    assert (done.returncode, LEFT in done.stderr) == (0, True), done.stderr
    file.write_text(whole[whole.rindex("---") :])
    assert call_command("check", "--config", tmp_path).returncode == 1


def test_a_gateway_starts_with_policies_that_are_all_left_to_the_api_server(
    tmp_path: Path, webhooks: str, stage: Stage
) -> None:
    file = tmp_path / "c.yaml"
    whole = left_to_the_api_server()
    file.write_text(whole)
    gateway = stage.start_gateway(tmp_path)
    assert LEFT in gateway.log
    # Without the policies it is empty.
    file.write_text(whole[whole.rindex("---") :])
    refused = "configuration refused, the one in force stays: found no webhooks in .*--allow-empty"
    gateway.expect(refused)
    file.write_text(left_to_the_api_server(webhooks))
    stage.eventually(lambda: gateway.metric(RELOADED) == 1)
    assert gateway.review("/validate", "pod-create-validate")["allowed"] is False
    # The policies that are left do not replace webhooks that vanish.
    seen = len(gateway.log)
    file.write_text(left_to_the_api_server())
    gateway.expect(refused, after=seen)
    assert gateway.metric(RELOADED) == 0
    assert gateway.review("/validate", "pod-create-validate")["allowed"] is False


def test_policies_may_be_left_to_the_api_server_by_a_reload(tmp_path: Path, stage: Stage) -> None:
    file = tmp_path / "c.yaml"
    whole = left_to_the_api_server()
    file.write_text(whole[: whole.rindex("---")])
    gateway = stage.start_gateway(tmp_path)
    assert LEFT not in gateway.log
    file.write_text(whole)
    gateway.expect(re.escape(LEFT))
    assert gateway.metric(RELOADED) == 1


def test_files_that_the_configuration_names_are_no_warning(
    tmp_path: Path, certificate: tuple[Path, Path]
) -> None:
    folder = tmp_path / "config"
    (folder / "certificates").mkdir(parents=True)
    for file in certificate:
        (folder / "certificates" / file.name).write_bytes(file.read_bytes())
    (folder / "tokens").write_text("a-token-of-some-length\n")
    (folder / "c.yaml").write_text(
        pool_document("pool", "127.0.0.1:1")
        + webhook_document("validate", "v", "pool", DENIES)
        + """
apiVersion: admission-gateway.io/v1alpha1
kind: GatewayConfiguration
tls: {certFile: certificates/tls.crt, keyFile: certificates/tls.key}
authentication: {tokenFile: tokens}
"""
    )
    done = call_command("check", "--config", folder)
    assert (done.returncode, done.stderr) == (0, "")
    (folder / "unused").touch()
    assert 'not read: "unused"; ' in call_command("check", "--config", folder).stderr
