"""The policy ``require-image-digests``."""

from __future__ import annotations

from admission_gateway_worker.policies.require_image_digests import DEFINITIONS
from tests.library.requests import denial, of_pod

(POLICY,) = DEFINITIONS


def test_an_image_needs_a_digest() -> None:
    spec = {
        "containers": [
            {"name": "a", "image": "a.test/a@sha256:0"},
            {"name": "b", "image": "a.test:5000/b:1"},
        ],
        "ephemeralContainers": [{"name": "c", "image": "c"}],
    }
    assert denial(POLICY, of_pod(spec)) == {
        "spec.containers[1].image": 'image "a.test:5000/b:1" has no digest: add @sha256:…',
        "spec.ephemeralContainers[0].image": 'image "c" has no digest: add @sha256:…',
    }
