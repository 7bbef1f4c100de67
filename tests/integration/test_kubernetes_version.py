"""``kubernetesVersion`` decides how the maps and lists of Kubernetes' own kinds compare."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from tests.kit import run_command
from tests.policies.documents import CLUSTER, binding, mutating, policy

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.process

SETTINGS = {key: value for key, value in CLUSTER.items() if key != "kubernetes"}
POD = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "namespace": "default", "labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
SPACE = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}}
ANY = [{"name": "any", "expression": "true"}]
ERROR = [{"name": "labels", "expression": "object.metadata.labels == '' || true == false"}]
COPY = '[JSONPatch{op: "add", path: "/metadata/annotations", value: object.metadata.labels}]'


@pytest.mark.parametrize("version", ["1.36", "1.37"])
@pytest.mark.parametrize(
    "documents",
    [
        [policy(validations=["object.metadata.labels != 1 && [object.spec] != ['']"]), binding()],
        [policy(validations=["!(object.metadata.labels == '')"], matchConditions=ANY), binding()],
        [policy(validations=["true"], matchConditions=ERROR), binding()],
        mutating("p", COPY, matchConditions=ANY),
    ],
    ids=["quick", "validation", "condition", "mutation"],
)
def test_a_review_follows_the_version(
    tmp_path: Path,
    documents: list[object],
    version: str,
) -> None:
    every = [{**SETTINGS, "kubernetesVersion": version}, SPACE, *documents]
    (tmp_path / "c.yaml").write_text("\n---\n".join(map(json.dumps, every)))
    command = ("review", "-", "--config", str(tmp_path))
    done = run_command(*command, stdin=json.dumps(POD).encode())
    assert done.returncode == (0 if version == "1.36" else 1), done
