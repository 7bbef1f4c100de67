"""What Kyverno takes in the heads of its documents, and the API server does not in its own."""

from __future__ import annotations

import json
from pathlib import Path

from gateway.config.merge.read import read
from gateway.config.yaml.documents import read_documents
from tests.kyverno.documents import Json, condition, exception, validating


def warnings(*documents: Json) -> list[str]:
    """Read *documents*, and return the warnings."""
    texts = (read_documents(Path("f.json"), json.dumps(each)) for each in documents)
    return [str(each) for each in read(one for documents in texts for one in documents).warnings]


def test_conditions_may_have_any_name() -> None:
    named = [{**condition("true")[0], "name": "Is it a Pod?"}]
    assert warnings(validating("true", matchConditions=named), exception(matchConditions=named)) == []


def test_the_namespace_of_a_policy_of_the_cluster_is_removed() -> None:
    policy = validating("true")
    policy["metadata"]["namespace"] = "x"
    (warning,) = warnings(policy)
    assert "metadata.namespace: has no effect: a ValidatingPolicy is cluster-scoped" in warning
    # It is the policy of that name without a namespace.
    assert warnings(policy, exception(of="p")) == [warning]
