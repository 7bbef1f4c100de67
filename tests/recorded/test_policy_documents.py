"""The configuration refuses the policies and bindings that the API server refused, at the same fields."""

from __future__ import annotations

import json
import re
from functools import cache
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from tests.e2e.policy_documents import DOCUMENTS, FILE

if TYPE_CHECKING:
    from pathlib import Path

CLUSTER: Final = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "GatewayConfiguration",
    "kubernetes": {},
}
NAMED_OTHERWISE: Final = {
    "policy-no-validations": {"spec.auditAnnotations": "spec.validations"},
    "policy-empty-validations": {"spec.auditAnnotations": "spec.validations"},
    "policy-resource-name-twice": {
        "spec.matchConstraints.resourceRules[0].resourceNames[1]": (
            "spec.matchConstraints.resourceRules[0].resourceNames"
        )
    },
    "binding-param-name-and-selector": {
        "spec.paramRef.name": "spec.paramRef",
        "spec.paramRef.selector": "spec.paramRef",
    },
}
"""Fields of the API server that have another name here: one problem names what belongs together."""


@cache
def recorded() -> dict[str, list[str]]:
    found: dict[str, list[str]] = json.loads(FILE.read_text())["fields"]
    return found


@pytest.mark.parametrize("name", DOCUMENTS)
def test_a_document_is_refused_as_by_the_api_server(tmp_path: Path, name: str) -> None:
    document = DOCUMENTS[name]
    other = NAMED_OTHERWISE.get(name, {})
    expected = {other.get(field, field) for field in recorded()[name]}
    assert refused(tmp_path, document) == expected, document


def refused(folder: Path, document: dict[str, Any]) -> set[str]:
    """Return the fields at which the configuration refuses *document*."""
    file = folder / "policies.yaml"
    file.write_text(f"{json.dumps(document)}\n---\n{json.dumps(CLUSTER)}\n")
    try:
        load([file])
    except ConfigError as error:
        # The problem of a label names the label too.
        return {re.sub(r"(matchLabels)[.\[].*", r"\1", problem.field) for problem in error.problems}
    return set()


def test_most_documents_are_refused() -> None:
    assert len(recorded()) == len(DOCUMENTS)
    assert len(recorded()) / 2 < sum(map(bool, recorded().values())) < len(recorded())
