"""The GitLab component: its job runs as a runner does, and writes what GitLab reads."""

from __future__ import annotations

import json
import subprocess
import sys
import xml.etree.ElementTree as ElementTree
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from tests.ci.runner import WITHIN_S, component, environment
from tests.preview.kit import CONFIG_MAP, WEB, configure, deny, pods

if TYPE_CHECKING:
    from tests.faults.kit import StartWorker

REMOVED = "apiVersion: resource.k8s.io/v1beta1\nkind: DeviceClass\nmetadata: {name: a}\n"


@pytest.mark.process
@pytest.mark.parametrize(
    ("paths", "kubernetes", "status", "failures"),
    [
        ("allowed", "", 0, 0),
        ("manifests allowed", "", 1, 1),
        ("removed", "1.38", 1, 1),
        ("removed", "", 0, 0),
    ],
)
def test_the_job_writes_the_reports_that_it_declares(
    tmp_path: Path, start_worker: StartWorker, paths: str, kubernetes: str, status: int, failures: int
) -> None:
    for folder, text in (("manifests", WEB), ("allowed", CONFIG_MAP), ("removed", REMOVED)):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "a.yaml").write_text(text)
    configure(tmp_path / "gateway.yaml", start_worker().target, validate=[pods(deny())])
    inputs = {"image": "registry.example/ci:1", "paths": paths, "config": "gateway.yaml"}
    name, job = component({**inputs, "kubernetes": kubernetes})
    assert (name, job["stage"]) == ("admission-preview", "test")
    assert job["image"] == {"name": "registry.example/ci:1", "entrypoint": [""]}
    (line,) = job["script"]
    done = subprocess.run(
        ["sh", "-c", line],
        cwd=tmp_path,
        env=environment(Path(sys.executable).parent),
        capture_output=True,
        text=True,
        timeout=WITHIN_S,
        check=False,
    )
    assert done.returncode == status, done.stdout + done.stderr
    report = ElementTree.parse(tmp_path / job["artifacts"]["reports"]["junit"])
    assert len(report.findall(".//failure")) == failures
    quality = json.loads((tmp_path / job["artifacts"]["reports"]["codequality"]).read_text())
    assert len(quality) == failures
    assert job["artifacts"]["when"] == "always"
    for file in job["artifacts"]["paths"]:
        assert (tmp_path / file).stat().st_size


def test_inputs_replace_name_and_stage() -> None:
    name, job = component({"image": "i", "job": "admission: prod", "stage": "lint", "arguments": "--json"})
    assert (name, job["stage"]) == ("admission: prod", "lint")
    assert "--json -- manifests" in job["script"][0]
