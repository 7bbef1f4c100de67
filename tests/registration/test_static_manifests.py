"""Registrations as files: written by ``manifests --static``, and read by ``check --static``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gateway.base.errors import GatewayError
from gateway.tools.cli import main
from gateway.tools.registration.static_manifests import read

if TYPE_CHECKING:
    from pathlib import Path

URL = ("--url", "https://127.0.0.1:8443")
ADMISSION = "admissionregistration.k8s.io/v1"


def run(capsys: pytest.CaptureFixture[str], *arguments: object) -> tuple[int, str, str]:
    with pytest.raises(SystemExit) as end:
        main(list(map(str, arguments)))
    out, err = capsys.readouterr()
    return int(end.value.code or 0), out, err


def written(capsys: pytest.CaptureFixture[str], config: Path, folder: Path, *flags: str) -> str:
    status, out, err = run(capsys, "manifests", "--config", config, *URL, "--static", folder, *flags)
    assert status == 0, err
    return out


def findings(capsys: pytest.CaptureFixture[str], config: Path, folder: Path, *flags: str) -> list[Any]:
    expected = ("--exclude-namespace", "kube-system", "--json")
    status, out, _ = run(capsys, "check", "--config", config, "--static", folder, *expected, *flags)
    found = json.loads(out)
    assert status == any(one["severity"] == "error" for one in found)
    return [one for one in found if one["severity"] == "error"]


def test_the_files_have_the_names_and_the_layout_that_the_api_server_requires(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "static"
    admission = yaml.safe_load(written(capsys, config, folder, "--name", "policies"))
    plugins = {one["name"]: one["configuration"]["staticManifestsDir"] for one in admission["plugins"]}
    assert plugins == {
        "MutatingAdmissionWebhook": str(folder / "mutating"),
        "ValidatingAdmissionWebhook": str(folder / "validating"),
    }
    assert sorted(path.name for path in folder.rglob("*") if path.is_file()) == ["policies.yaml"] * 2
    document = yaml.safe_load((folder / "mutating" / "policies.yaml").read_text())
    assert document["metadata"]["name"] == "policies.static.k8s.io"
    assert document["webhooks"][0]["clientConfig"]["url"] == "https://127.0.0.1:8443/mutate"
    assert findings(capsys, config, folder) == []
    assert findings(capsys, config, folder, "--name", "policies") == []


def test_a_missing_entry_is_found(config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "static"
    written(capsys, config, folder)
    (folder / "validating" / "admission-gateway.yaml").unlink()
    (found,) = findings(capsys, config, folder)
    assert found["place"].startswith("validate checks/")
    assert "no registered entry leads to it" in found["message"]


@pytest.mark.parametrize(
    ("change", "text"),
    [
        (
            {"apiVersion": "admissionregistration.k8s.io/v1beta1"},
            f"expected a MutatingWebhookConfiguration of {ADMISSION}",
        ),
        (
            {"kind": "ValidatingWebhookConfiguration"},
            f"expected a MutatingWebhookConfiguration of {ADMISSION}",
        ),
        ({"metadata": {"name": "plain"}}, "metadata.name: expected a name that ends in .static.k8s.io"),
        ({"metadata": None}, "metadata.name: expected a name that ends in .static.k8s.io"),
        (
            {"webhooks": [{"name": "a", "clientConfig": {"service": {"name": "a"}}}]},
            "webhooks[0].clientConfig",
        ),
        ({"webhooks": [{"name": "a"}]}, "webhooks[0].clientConfig: expected url"),
    ],
)
def test_a_file_that_the_api_server_refuses_is_an_error(
    config: Path,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    change: dict[str, Any],
    text: str,
) -> None:
    folder = tmp_path / "static"
    written(capsys, config, folder)
    document = {
        "apiVersion": ADMISSION,
        "kind": "MutatingWebhookConfiguration",
        "metadata": {"name": "other.static.k8s.io"},
    }
    (folder / "mutating" / "other.json").write_text(json.dumps({**document, **change}))
    (found,) = findings(capsys, config, folder)
    assert text in found["message"]
    assert "other.json" in found["place"]


def test_files_that_are_not_read_and_equal_names_are_errors(
    config: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    folder = tmp_path / "static"
    written(capsys, config, folder)
    mutating = folder / "mutating"
    (mutating / "copy.yaml").write_text((mutating / "admission-gateway.yaml").read_text())
    (mutating / "more").mkdir()
    (mutating / "notes.txt").write_text("")
    (mutating / "broken.yaml").write_text("a: [")
    messages = "\n".join(f"{one['place']}: {one['message']}" for one in findings(capsys, config, folder))
    assert "is also the name of" in messages
    for name in ("more", "notes.txt", "broken.yaml"):
        assert f"{name}" in messages


def test_a_folder_of_another_layout_is_refused(tmp_path: Path) -> None:
    with pytest.raises(GatewayError, match="has no folder mutating or validating"):
        read(tmp_path)


@pytest.mark.parametrize("flags", [("--service", "a/b", "--static", "x"), (*URL, "--static", "x", "--apply")])
def test_contradicting_options_are_refused(
    config: Path, capsys: pytest.CaptureFixture[str], flags: tuple[str, ...]
) -> None:
    status, _, err = run(capsys, "manifests", "--config", config, *flags)
    assert status == 2
    assert "--static needs --url, and excludes --apply" in err
