"""Policies whose CEL changes its answer with the version: ``preview --kubernetes``."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.gatekeeper.documents import constraint, template
from tests.kit import pool_document, webhook_document
from tests.kyverno import documents as kyverno
from tests.policies.documents import binding, mutating, policy
from tests.preview.kit import pods, preview

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worker.server import StartWorker

Json = dict[str, Any]
POD: Json = {
    "apiVersion": "v1",
    "kind": "Pod",
    "metadata": {"name": "p", "labels": {"a": "b"}},
    "spec": {"containers": [{"name": "c", "image": "i"}]},
}
SAME = "object.metadata.labels == ''"
"""An error where a map has a Go type, and false where it has none."""
ANY = kyverno.condition("true")
LABEL = f"[JSONPatch{{op: 'add', path: '/metadata/annotations', value: {{'same': string({SAME})}}}}]"
CEL_RULE: Json = {
    "name": "r",
    "match": {"any": [{"resources": {"kinds": ["Pod"]}}]},
    "validate": {"failureAction": "Enforce", "cel": {"expressions": [{"expression": SAME}]}},
}
CLUSTER_POLICY: Json = {
    "apiVersion": "kyverno.io/v1",
    "kind": "ClusterPolicy",
    "metadata": {"name": "p"},
    "spec": {"rules": [CEL_RULE]},
}


def report_of(folder: Path, documents: list[Any], *more: str, status: int = 1) -> Json:
    """The report about a Pod, for 1.36, by *documents* that are in force in 1.37."""
    config = folder / "config.yaml"
    config.write_text("\n---\n".join([*map(json.dumps, documents), *more]))
    manifest = folder / "pod.json"
    manifest.write_text(json.dumps(POD))
    return preview(manifest, "--config", config, "--kubernetes", "1.36", status=status)


def answers(report: Json) -> list[str]:
    """What *report* says of other answers."""
    found = report["forecast"]["findings"]
    return [one["message"] for one in found if one["rule"] == "forecast-answer"]


@pytest.mark.parametrize(
    "documents",
    [
        [policy(validations=[f"!({SAME})"]), binding()],
        [policy(validations=["true"], matchConditions=kyverno.condition(f"!({SAME})")), binding()],
        mutating("p", LABEL, matchConditions=ANY),
    ],
    ids=["validation", "condition", "mutation"],
)
def test_policies_of_kubernetes_answer_otherwise(tmp_path: Path, documents: list[Json]) -> None:
    (message,) = answers(report_of(tmp_path, documents))
    assert message.startswith("it is denied, and allowed in 1.36")


def test_match_conditions_of_webhooks_answer_otherwise(tmp_path: Path, start_worker: StartWorker) -> None:
    conditions = kyverno.condition(f"!({SAME})")
    hook = webhook_document("validate", "v", "pool", pods({}, matchConditions=conditions))
    report = report_of(tmp_path, [], pool_document("pool", start_worker().target), hook, status=3)
    assert answers(report) == ["it is undecided, and allowed in 1.36"]


@pytest.mark.parametrize(
    "documents",
    [
        [kyverno.validating(SAME)],
        [kyverno.validating("false", matchConditions=kyverno.condition(f"!({SAME})"))],
        [CLUSTER_POLICY],
        [template("Same", SAME), constraint("Same")],
    ],
    ids=["validation", "condition", "rule", "constraint"],
)
def test_policies_of_other_engines_answer_alike(tmp_path: Path, documents: list[Json]) -> None:
    """Their engines have a CEL of their own, and get objects as plain maps."""
    assert answers(report_of(tmp_path, documents)) == []


def test_mutations_of_kyverno_answer_alike(tmp_path: Path) -> None:
    report = report_of(tmp_path, [kyverno.mutating(LABEL)], status=0)
    assert report["objects"][0]["changes"]
    assert answers(report) == []
