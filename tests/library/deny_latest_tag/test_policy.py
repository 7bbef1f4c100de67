"""The policy ``deny-latest-tag``."""

from __future__ import annotations

import pytest

from admission_gateway_worker.policies.deny_latest_tag import DEFINITIONS
from tests.library.requests import denial, of_pod

(POLICY,) = DEFINITIONS


@pytest.mark.parametrize(
    ("image", "is_allowed"),
    [
        ("nginx", False),
        ("nginx:latest", False),
        ("host:5000/nginx", False),
        ("nginx:1.29", True),
        ("nginx:latest@sha256:0", True),
        ("nginx@sha256:0", True),
    ],
)
def test_a_tag_names_a_version(image: str, *, is_allowed: bool) -> None:
    found = denial(POLICY, of_pod({"containers": [{"name": "a", "image": image}]}))
    assert list(found) == ([] if is_allowed else ["spec.containers[0].image"])
