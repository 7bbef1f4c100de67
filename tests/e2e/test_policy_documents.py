"""The configuration refuses the policies that the API server refuses, at the same fields."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from tests.e2e.policy_comparison import PATHS
from tests.e2e.policy_documents import BINDINGS, POLICIES
from tests.e2e.setups import REGISTRATIONS

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.client import Api

CLUSTER: Final = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "GatewayConfiguration",
    "kubernetes": {},
}
NAMED_OTHERWISE: Final = {
    "spec.auditAnnotations": "spec.validations",
    "spec.matchConstraints.resourceRules[0].resourceNames[1]": (
        "spec.matchConstraints.resourceRules[0].resourceNames"
    ),
    "spec.paramRef.name": "spec.paramRef",
    "spec.paramRef.selector": "spec.paramRef",
}
"""Fields of the API server that have another name here, by test: one problem names what belongs together."""


def natively(api: Api, document: dict[str, Any]) -> set[str]:
    """Return the fields at which the API server refuses *document*."""
    path = f"{REGISTRATIONS}/{PATHS[document['kind']]}?dryRun=All&fieldValidation=Strict"
    answer = api.create(path, document)
    if answer.status == 201:
        return set()
    if answer.status == 400:
        return set(re.findall(r'unknown field "([^"]+)"', answer.message))
    assert answer.status == 422, answer
    return {cause["field"] for cause in answer.document["details"]["causes"]}


def in_the_gateway(folder: Path, document: dict[str, Any]) -> set[str]:
    """Return the fields at which the configuration refuses *document*."""
    file = folder / "policies.yaml"
    file.write_text(f"{json.dumps(document)}\n---\n{json.dumps(CLUSTER)}\n")
    try:
        load([file])
    except ConfigError as error:
        # The problem of a label names the label too.
        return {re.sub(r"(matchLabels)[.\[].*", r"\1", problem.field) for problem in error.problems}
    return set()


@pytest.mark.parametrize("name", POLICIES)
def test_a_policy_is_refused_as_by_the_api_server(api: Api, tmp_path: Path, name: str) -> None:
    document = POLICIES[name]
    expected = natively(api, document)
    if name in ("no-validations", "empty-validations", "resource-name-twice"):
        expected = {NAMED_OTHERWISE.get(field, field) for field in expected}
    assert in_the_gateway(tmp_path, document) == expected, document


@pytest.mark.parametrize("name", BINDINGS)
def test_a_binding_is_refused_as_by_the_api_server(api: Api, tmp_path: Path, name: str) -> None:
    document = BINDINGS[name]
    expected = natively(api, document)
    if name == "param-name-and-selector":
        expected = {NAMED_OTHERWISE.get(field, field) for field in expected}
    assert in_the_gateway(tmp_path, document) == expected, document
