"""The policy ``require-labels``."""

from __future__ import annotations

from typing import Any

import orjson
import pytest

from admission_gateway_worker.policies.require_labels import DEFINITIONS
from gateway.engine.dispatch.parameter_schema import ParameterSchema
from tests.library.requests import denial, request

(POLICY,) = DEFINITIONS
PARAMETERS = {"labels": {"team": "[a-z]+", "name": ""}, "annotations": {"owner": ""}}


def deployment(metadata: object, template: object) -> dict[str, object]:
    found = {"metadata": metadata, "spec": {"template": {"metadata": template, "spec": {"containers": []}}}}
    return request("apps", "v1", "Deployment", found)


GOOD = {"labels": {"team": "red", "name": "web"}, "annotations": {"owner": "x"}}


def test_what_is_missing_is_named() -> None:
    assert denial(POLICY, deployment(GOOD, GOOD), PARAMETERS) == {}
    assert denial(POLICY, deployment({"labels": {"team": "Red", "name": ""}}, GOOD), PARAMETERS) == {
        "metadata.labels[team]": '"Red" does not match [a-z]+',
        "metadata.labels[name]": "the label is missing: add it",
        "metadata.annotations[owner]": "the annotation is missing: add it",
    }


def test_templates_need_them_too_unless_they_are_left_out() -> None:
    bad = deployment(GOOD, None)
    assert list(denial(POLICY, bad, PARAMETERS)) == [
        "spec.template.metadata.labels[team]",
        "spec.template.metadata.labels[name]",
        "spec.template.metadata.annotations[owner]",
    ]
    assert denial(POLICY, bad, {**PARAMETERS, "templates": False}) == {}


def test_the_template_of_jobs_needs_them_too() -> None:
    of_jobs: dict[str, Any] = {"metadata": {}, "spec": {"template": {"metadata": GOOD, "spec": {}}}}
    spec = {"jobTemplate": of_jobs}
    cron_job = request("batch", "v1", "CronJob", {"metadata": GOOD, "spec": spec})
    assert list(denial(POLICY, cron_job, PARAMETERS)) == [
        "spec.jobTemplate.metadata.labels[team]",
        "spec.jobTemplate.metadata.labels[name]",
        "spec.jobTemplate.metadata.annotations[owner]",
    ]
    of_jobs["metadata"] = GOOD
    assert denial(POLICY, cron_job, PARAMETERS) == {}


def test_without_templates_objects_of_controllers_need_none() -> None:
    parameters = {"labels": {"team": ""}, "templates": False}
    for owner, is_denied in (({"controller": True}, False), ({"controller": False}, True), ({}, True)):
        found = {"metadata": {"ownerReferences": [{"kind": "Deployment", **owner}]}, "spec": {}}
        asked = request("apps", "v1", "ReplicaSet", found)
        assert bool(denial(POLICY, asked, parameters)) is is_denied
        assert denial(POLICY, asked, {**parameters, "templates": True})


def test_other_kinds_have_labels_too() -> None:
    found = denial(POLICY, request("", "v1", "Namespace", {"metadata": {}}), {"labels": {"team": ""}})
    assert list(found) == ["metadata.labels[team]"]


def test_objects_that_are_deleted_lose_their_finalizers() -> None:
    dying = {"metadata": {"deletionTimestamp": "2026-01-01T00:00:00Z"}}
    assert denial(POLICY, request("", "v1", "Pod", dying, dying), {"labels": {"team": ""}}) == {}


def test_a_pattern_that_is_no_expression_is_named() -> None:
    with pytest.raises(
        ValueError, match=r"^labels\[team\]: '\(' is not a regular expression: missing \): \($"
    ):
        POLICY.prepare({"labels": {"team": "("}})


@pytest.mark.parametrize("parameters", [{}, {"labels": {}}])
def test_something_has_to_be_required(parameters: dict[str, Any]) -> None:
    schema = ParameterSchema(orjson.dumps(POLICY.parameters).decode())
    (problem,) = schema.problems(orjson.dumps(parameters))
    assert problem.endswith(": {} has less than 1 property")
    with pytest.raises(ValueError, match=r"^labels and annotations are missing, expected one of them$"):
        POLICY.prepare({**parameters, "templates": True})
