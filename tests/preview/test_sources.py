"""Findings about the output of Helm and kustomize are in the files of charts and kustomizations."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
import yaml

from gateway.tools.preview.sources import SourceRoots, source_name
from tests.kit import call_command
from tests.preview.kit import CONFIG_MAP, WEB, configure, deny, findings

if TYPE_CHECKING:
    from collections.abc import Mapping
    from pathlib import Path

    from tests.faults.kit import StartWorker

pytestmark = pytest.mark.process

TEMPLATE = (
    "{{ if .Values.web }}\n" + WEB.replace("name: web", "name: {{ .Release.Name }}-web") + "{{ end }}\n"
)
SERVICE = "apiVersion: v1\nkind: Service\nmetadata: {name: web}\nspec: {selector: {app: web}}\n"


class Done(NamedTuple):
    """One run with all outputs that name files."""

    report: dict[str, Any]
    uris: list[str]
    notifications: list[str]
    code_quality: list[dict[str, Any]]
    stderr: str


@pytest.fixture
def repository(tmp_path: Path, start_worker: StartWorker) -> Path:
    """A folder with a configuration that denies everything, and nothing else."""
    configure(tmp_path / "config.yaml", start_worker().target, validate=[deny("no", "spec.replicas")])
    return tmp_path


def write(folder: Path, files: Mapping[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def previewed(folder: Path, stdin: str, *arguments: object, path: str = "-") -> Done:
    options = ("--expand", "false", "--sarif", "s.json", "--code-quality", "q.json")
    done = call_command(
        *("preview", path, "--config", "config.yaml", "--json", *options, *arguments),
        stdin=stdin.encode(),
        folder=folder,
    )
    assert done.returncode == 1, done.stdout + done.stderr
    (run,) = json.loads((folder / "s.json").read_bytes())["runs"]
    uris = [one["locations"][0]["physicalLocation"]["artifactLocation"]["uri"] for one in run["results"]]
    said = run["invocations"][0].get("toolExecutionNotifications", [])
    texts = [one["message"]["text"] for one in said]
    code_quality = json.loads((folder / "q.json").read_bytes())
    return Done(json.loads(done.stdout), uris, texts, code_quality, done.stderr)


def kustomized(document: str, origin: dict[str, Any], name: str = "") -> str:
    found = yaml.safe_load(document)
    found["metadata"]["annotations"] = {
        "config.kubernetes.io/origin": yaml.safe_dump(origin),
        "alpha.config.kubernetes.io/transformations": "- configuredIn: kustomization.yaml\n",
    }
    found["metadata"]["name"] = name or found["metadata"]["name"]
    return f"---\n{yaml.safe_dump(found)}"


CHART = {
    "charts/a-shop/Chart.yaml": "name: shop\n",
    "charts/a-shop/templates/web.yaml": TEMPLATE,
    "charts/a-shop/charts/sub/Chart.yaml": "name: sub\n",
    "charts/a-shop/charts/sub/templates/c.yaml": "{{ .x }}\n",
    "charts/a-shop/crds/service.yaml": f"# A template without a variable\n---\n{SERVICE}",
}
HELM = f"""\
---
# Source: shop/templates/web.yaml
{WEB.replace("name: web", "name: r-web")}---
# Source: shop/charts/sub/templates/c.yaml
{CONFIG_MAP}---
# Source: shop/charts/packed/templates/c.yaml
{CONFIG_MAP}---
# Source: shop/crds/service.yaml
{SERVICE}"""


@pytest.mark.parametrize("root", ["charts/a-shop", "."])
def test_templates_are_those_of_the_chart_that_was_rendered(repository: Path, root: str) -> None:
    write(repository, CHART if root != "." else {"shop" + name[13:]: text for name, text in CHART.items()})
    folder = root if root != "." else "shop"
    done = previewed(repository, HELM, *([] if root == "." else ["--source-root", root]))
    places = [(one["file"], one["line"]) for one in findings(done.report)]
    assert places == [
        (f"{folder}/templates/web.yaml", 1),
        (f"{folder}/charts/sub/templates/c.yaml", 1),
        # The chart in an archive has no files. The one that names it has.
        (f"{folder}/Chart.yaml", 1),
        # Without variables, a template has the object as it is.
        (f"{folder}/crds/service.yaml", 6),
    ]
    assert done.uris == [file for file, _ in places]
    assert [one["location"]["path"] for one in done.code_quality] == done.uris
    assert not done.notifications
    assert "--source-root" not in done.stderr


def test_a_chart_with_another_name_is_another_one(repository: Path) -> None:
    write(repository, {"Chart.yaml": "name: other\n", "templates/web.yaml": TEMPLATE})
    done = previewed(repository, HELM)
    assert done.uris == []
    assert done.code_quality == []
    assert done.notifications[0].startswith("shop/templates/web.yaml:1:1: v/h0.v.test: no\n")
    assert len(done.notifications) == 4
    assert "4 findings are in no file below the working directory" in done.stderr
    assert findings(done.report)[0]["file"] == "shop/templates/web.yaml"
    write(repository, {"Chart.yaml": "name: shop\n"})
    assert previewed(repository, HELM).uris == ["templates/web.yaml", *["Chart.yaml"] * 3]


def test_fields_of_kustomized_objects_are_in_the_resource_that_they_come_from(repository: Path) -> None:
    write(
        repository,
        {
            "overlays/prod/kustomization.yaml": "resources: [../../base]\n",
            "base/kustomization.yaml": "resources: [web.yaml]\n",
            "base/web.yaml": f"{SERVICE}---\n{WEB}---\n{WEB.replace('name: web', 'name: web-api')}",
        },
    )
    base = {"path": "../../base/web.yaml"}
    text = (
        kustomized(WEB, base, "prod-web-1")
        + kustomized(WEB, base, "prod-web-api")
        + kustomized(WEB, base, "renamed")
        + kustomized(
            CONFIG_MAP, {"configuredIn": "../../base/kustomization.yaml", "configuredBy": {"kind": "x"}}
        )
        + kustomized(SERVICE, {"path": "web.yaml", "repo": "https://git.example/x", "ref": "v1"})
    )
    done = previewed(repository, text, "--source-root", "overlays/prod")
    lines = (repository / "base/web.yaml").read_text().split("\n")
    replicas = [number for number, line in enumerate(lines, 1) if line == "  replicas: 2"]
    assert [(one["file"], one["line"]) for one in findings(done.report)] == [
        ("base/web.yaml", replicas[0]),
        ("base/web.yaml", replicas[1]),
        ("base/web.yaml", 1),
        ("base/kustomization.yaml", 1),
        # What is in another repository is changed by the kustomization that names it.
        ("overlays/prod/kustomization.yaml", 1),
    ]
    assert done.uris == [one["file"] for one in findings(done.report)]
    # Files that were rendered have their own lines, unless it is said what from.
    write(repository, {"rendered/out.yaml": text})
    assert set(previewed(repository, "", path="rendered").uris) == {"rendered/out.yaml"}
    again = previewed(repository, "", "--source-root", "overlays/prod", path="rendered")
    assert again.uris == done.uris


def test_annotations_of_kustomize_are_not_sent(repository: Path, start_worker: StartWorker) -> None:
    configure(repository / "config.yaml", start_worker().target, validate=[{"report": True}])
    found = yaml.safe_load(kustomized(CONFIG_MAP, {"path": "c.yaml"}))
    found["metadata"]["annotations"]["kept"] = "yes"
    (one,) = findings(previewed(repository, yaml.safe_dump(found)).report)
    assert json.loads(one["message"])["request"]["object"]["metadata"]["annotations"] == {"kept": "yes"}


def test_files_that_are_to_be_rendered_are_told(repository: Path) -> None:
    files = {**CHART, "charts/a-shop/values.yaml": "a: b\n", "base/kustomization.yaml": "resources: []\n"}
    write(repository, files)
    done = call_command("preview", "charts", "base", "--config", "config.yaml", "--json", folder=repository)
    assert done.returncode == 2
    messages = {one["file"]: one["message"] for one in json.loads(done.stdout)["unreadable"]}
    assert messages.pop("base/kustomization.yaml").endswith(
        "; this is a kustomization: preview what kustomize build prints"
    )
    assert len(messages) == 5
    for message in messages.values():
        assert message.endswith(
            "; this seems to be a part of a Helm chart: preview what helm template prints"
        )


def test_a_folder_that_is_not_there_is_wrong_usage(repository: Path) -> None:
    done = call_command("preview", "-", "--config", "config.yaml", "--source-root", "none", folder=repository)
    assert (done.returncode, done.stderr) == (
        2,
        "admission-gateway: --source-root none: found no such folder\n",
    )


@pytest.mark.parametrize(
    "origin",
    [
        "path: ../outside.yaml",
        "path: /etc/passwd",
        'path: "a\\0b"',
        'path: "\\uD800"',
        f"path: {'a' * 999}",
        "path: [a]",
        "path: folder",
        "path: link.yaml",
        "- path",
        "path: {",
        "",
    ],
)
def test_no_file_outside_of_the_working_directory_is_named(
    origin: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "outside.yaml").touch()
    (tmp_path / "here/folder").mkdir(parents=True)
    (tmp_path / "here/link.yaml").symlink_to("../outside.yaml")
    monkeypatch.chdir(tmp_path / "here")
    named = source_name("", {"metadata": {"annotations": {"config.kubernetes.io/origin": origin}}})
    assert named is None or SourceRoots(["."]).file(named) is None


def test_a_source_that_cannot_be_read_has_its_first_line(repository: Path) -> None:
    for text in (
        "- [\n",
        "\x00",
        f"# {'x' * (1 << 20)}\n{WEB}",
        f"{WEB}---\n{WEB}",
        WEB.replace("apps", "app"),
    ):
        write(repository, {"web.yaml": text})
        (one,) = findings(previewed(repository, kustomized(WEB, {"path": "web.yaml"})).report)
        assert (one["file"], one["line"]) == ("web.yaml", 1), text[:10]
