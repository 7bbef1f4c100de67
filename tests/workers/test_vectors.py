"""The vectors for the workers of all languages equal the answers of this SDK."""

from __future__ import annotations

from typing import Any

import jsonpatch
import orjson
import pytest

from admission_gateway_worker.samples import server
from tests.workers import vectors

DIFFS: list[dict[str, Any]] = orjson.loads((vectors.FOLDER / "diff.json").read_bytes())
SAMPLES: list[dict[str, Any]] = orjson.loads((vectors.FOLDER / "samples.json").read_bytes())


def test_the_vector_files_are_up_to_date() -> None:
    for file, found in (("samples.json", vectors.samples()), ("diff.json", vectors.diffs())):
        assert (vectors.FOLDER / file).read_bytes() == vectors.text(found), (
            "run python -m tests.workers.vectors"
        )


def test_vector_names_are_unique() -> None:
    for found in (DIFFS, SAMPLES):
        assert len({vector["name"] for vector in found}) == len(found)


def test_every_sample_that_answers_has_vectors_of_each_kind_that_it_can_give() -> None:
    kinds: dict[str, set[str]] = {}
    for vector in SAMPLES:
        response = vector["outcome"].get("response", {})
        kind = "error" if not response else "denied" if not response["allowed"] else "allowed"
        changes = response.keys() & {"patch", "warnings"}
        kinds.setdefault(vector["policy"], set()).update(changes or {kind})
    assert kinds == {
        "require-labels": {"allowed", "denied"},
        "deny-latest-tag": {"allowed", "denied"},
        "deny-privileged": {"allowed", "denied"},
        "always-pull-images": {"allowed", "patch"},
        "inject-sidecar": {"allowed", "patch"},
        "default-resources": {"allowed", "patch"},
        "warn-no-memory-limit": {"allowed", "warnings"},
        "protect-busy": {"allowed", "denied"},
        "limit-replicas": {"allowed", "denied", "error"},
        "team-from-namespace": {"allowed", "patch"},
        "fails": {"error"},
    }
    assert kinds.keys() == server.policies.keys() - {"sleeps"}


@pytest.mark.parametrize("vector", DIFFS, ids=lambda vector: vector["name"])
def test_a_patch_turns_the_one_document_into_the_other(vector: dict[str, Any]) -> None:
    patched = jsonpatch.apply_patch(vector["before"], vector["patch"])
    assert orjson.dumps(patched, option=orjson.OPT_SORT_KEYS) == orjson.dumps(
        vector["after"], option=orjson.OPT_SORT_KEYS
    )


@pytest.mark.parametrize(
    "vector",
    [vector for vector in SAMPLES if "patch" in vector["outcome"].get("response", {})],
    ids=lambda vector: vector["name"],
)
def test_a_patched_object_is_one_that_the_policy_leaves_alone(vector: dict[str, Any]) -> None:
    request = vector["request"]
    patched = jsonpatch.apply_patch(request["object"], vector["outcome"]["response"]["patch"])
    again = {**request, "object": patched}
    assert "patch" not in vectors.outcome(vector["policy"], again, vector.get("namespaceObject"))["response"]
