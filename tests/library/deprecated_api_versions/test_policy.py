"""The policy ``deprecated-api-versions``."""

from __future__ import annotations

import pytest

from admission_gateway_worker.policies.deprecated_api_versions import DEFINITIONS, REMOVALS
from tests.library.requests import denial, request, run

(POLICY,) = DEFINITIONS
MESSAGE = "resource.k8s.io/v1beta1 ResourceClaim is removed in Kubernetes 1.38; use resource.k8s.io/v1"


def test_a_removed_version_is_denied_and_a_later_one_is_warned_of() -> None:
    claim = request("resource.k8s.io", "v1beta1", "ResourceClaim", {"metadata": {}})
    assert denial(POLICY, claim, {"kubernetes": "1.38"}) == {"apiVersion": MESSAGE}
    assert run(POLICY, claim, {"kubernetes": "1.37"}).warnings == [MESSAGE]
    stable = request("resource.k8s.io", "v1", "ResourceClaim", {"metadata": {}})
    assert run(POLICY, stable, {"kubernetes": "1.99"}).warnings == []


def test_the_version_of_the_request_counts_and_not_that_of_the_rule() -> None:
    of_user = {"group": "resource.k8s.io", "version": "v1", "kind": "ResourceClaim"}
    converted = request("resource.k8s.io", "v1beta1", "ResourceClaim", {"metadata": {}}, requestKind=of_user)
    assert run(POLICY, converted, {"kubernetes": "1.38"}).warnings == []


@pytest.mark.parametrize("removal", REMOVALS, ids=lambda each: f"{each.group}/{each.version}-{each.minor}")
def test_the_rules_match_all_of_the_table(removal: tuple[str, str]) -> None:
    (rule,) = POLICY.rules
    assert removal[0] in rule["apiGroups"]
    assert removal[1] in rule["apiVersions"]
