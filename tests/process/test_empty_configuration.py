"""A configuration without webhooks is refused, and files that are not read are named."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.kit import pool_document, run_command, webhook_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kit import GatewayProcess, WorkerProcess

pytestmark = pytest.mark.process

DENIES = {"deny": {"message": "refused"}}
RELOADED = "admission_gateway_config_last_reload_successful"


@pytest.mark.smoke
@pytest.mark.parametrize("processes", ["1", "2"])
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
    assert run_command("check", "--config", tmp_path).stderr == done.stderr
    allowed = run_command("check", "--config", tmp_path, "--allow-empty")
    assert allowed.returncode == 0
    assert f"warning: {unread}" in allowed.stderr


@pytest.mark.parametrize("flags", [(), ("--processes", "2")])
def test_an_emptied_folder_is_refused_until_it_has_webhooks_again(
    tmp_path: Path,
    start_worker: Callable[..., WorkerProcess],
    start_gateway: Callable[..., GatewayProcess],
    flags: tuple[str, ...],
) -> None:
    file = tmp_path / "c.yaml"
    good = pool_document("pool", start_worker().target) + webhook_document("validate", "v", "pool", DENIES)
    file.write_text(good)
    gateway = start_gateway(tmp_path, *flags)
    file.unlink()
    gateway.expect("configuration refused, the one in force stays: found no webhooks in .*--allow-empty")
    assert gateway.review("/validate", "pod-create-validate")["allowed"] is False
    eventually(lambda: gateway.metric(RELOADED) == 0)
    file.write_text(good)
    eventually(lambda: gateway.metric(RELOADED) == 1)


def test_with_allow_empty_a_folder_can_be_emptied(
    tmp_path: Path, start_worker: Callable[..., WorkerProcess], start_gateway: Callable[..., GatewayProcess]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        pool_document("pool", start_worker().target) + webhook_document("validate", "v", "pool", DENIES)
    )
    gateway = start_gateway(tmp_path, "--allow-empty")
    file.unlink()
    eventually(lambda: gateway.review("/validate", "pod-create-validate")["allowed"])


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
    done = run_command("check", "--config", folder)
    assert (done.returncode, done.stderr) == (0, "")
    (folder / "unused").touch()
    assert 'not read: "unused"; ' in run_command("check", "--config", folder).stderr
