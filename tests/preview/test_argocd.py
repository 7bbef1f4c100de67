"""``ignoreDifferences`` names what Argo CD's own comparison sees, and nothing else.

``tests/e2e/test_argocd.py`` asks Argo CD's code again, and for more seeds.
"""

from __future__ import annotations

import copy
import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gateway.tools.preview.argocd import ignore_differences
from tests.kit import call_command
from tests.preview.argocd_cases import FILE, RECORDED, manifests, question, with_ignored
from tests.preview.kit import CONFIG_MAP, WEB, configure, deny, of

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.kit import StartWorker

ANSWERS = [json.loads(line) for line in FILE.read_text().splitlines()]


def test_the_recorded_answers_are_of_all_seeds_and_of_both_sorts() -> None:
    assert [answer["seed"] for answer in ANSWERS] == list(RECORDED)
    assert {answer["modified"] for answer in ANSWERS} == {True, False}


@pytest.mark.parametrize("answer", ANSWERS, ids=lambda answer: f"seed-{answer['seed']}")
def test_argo_cd_sees_no_difference_with_the_entry_and_one_without(answer: dict[str, Any]) -> None:
    found = with_ignored(question(answer["seed"]))["ignoreDifferences"]
    assert found == answer["ignoreDifferences"]
    assert bool(found) == answer["modified"]
    assert not answer["modifiedThen"]


@pytest.mark.parametrize("manifest", manifests(), ids=lambda manifest: manifest["kind"])
def test_an_object_without_changes_needs_no_entry(manifest: dict[str, Any]) -> None:
    stored = copy.deepcopy(manifest)
    stored["metadata"] |= {"uid": "u", "managedFields": [{"manager": "argocd"}]}
    stored["status"] = {"phase": "Pending"}
    assert ignore_differences(manifest, stored) is None


def test_a_sidecar_needs_no_entry_and_a_changed_image_one_by_its_name() -> None:
    manifest = next(each for each in manifests() if each["kind"] == "Deployment")
    stored = copy.deepcopy(manifest)
    containers = stored["spec"]["template"]["spec"]["containers"]
    containers.insert(0, {"name": "proxy", "image": "mesh/proxy:1"})
    assert ignore_differences(manifest, stored) is None
    containers[1]["image"] = "mirror/shop/app:1"
    assert ignore_differences(manifest, stored) == {
        "group": "apps",
        "kind": "Deployment",
        "name": "web",
        "namespace": "shop",
        "jqPathExpressions": ['.spec.template.spec.containers[]? | select(.name == "app") | .image'],
    }


def test_names_are_quoted_in_expressions_and_pointers() -> None:
    manifest = next(each for each in manifests() if each["kind"] == "Pod")
    manifest["metadata"]["labels"] = {"a/b~c": "1"}
    manifest["spec"]["containers"][0] |= {"name": 'x") | del(.spec', "image": "a"}
    stored = copy.deepcopy(manifest)
    stored["metadata"]["labels"]["a/b~c"] = "2"
    stored["spec"]["containers"][0]["image"] = "b"
    found = ignore_differences(manifest, stored)
    assert found is not None
    assert found["jsonPointers"] == ["/metadata/labels/a~1b~0c"]
    assert found["jqPathExpressions"] == [
        '.spec.containers[]? | select(.name == "x\\") | del(.spec") | .image'
    ]


@pytest.mark.process
def test_the_command_prints_the_part_of_an_application(tmp_path: Path, start_worker: StartWorker) -> None:
    replaced = {"patch": [{"op": "replace", "path": "/spec/replicas", "value": 3}]}
    config = configure(
        tmp_path / "c.yaml",
        start_worker().target,
        mutate=[of(replaced, "apps", "deployments")],
        validate=[of(deny(), "", "configmaps")],
    )
    broken = "apiVersion: v1\nkind: [\n"
    arguments = ("preview", "-", "--config", config, "--argocd-ignore")
    done = call_command(*arguments, stdin=f"{WEB}---\n{CONFIG_MAP}".encode())
    assert done.returncode == 1, done.stderr
    assert done.stdout.startswith("# Without an entry, because admission does not allow it: 1 object\n")
    entry = {"group": "apps", "kind": "Deployment", "name": "web", "jsonPointers": ["/spec/replicas"]}
    assert yaml.safe_load(done.stdout) == {
        "ignoreDifferences": [entry],
        "syncPolicy": {"syncOptions": ["RespectIgnoreDifferences=true"]},
    }
    done = call_command(*arguments, stdin=broken.encode())
    assert done.returncode == 2
    assert yaml.safe_load(done.stdout) == {"ignoreDifferences": []}
    assert done.stderr.startswith("stdin:3:1: ")
