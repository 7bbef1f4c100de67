"""``require-image-digests``: images are named by digest, so that a name always means the same image."""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission_gateway_worker.images import parse
from admission_gateway_worker.pods import images
from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.workloads import PODS_AND_TEMPLATES, deny_new_in_pods
from admission_gateway_worker.review import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission_gateway_worker import Review
    from admission_gateway_worker.pods import PodSpec


def require_image_digests(review: Review) -> None:
    """Deny images without a digest."""
    deny_new_in_pods(review, _problems)


def _problems(pod: PodSpec) -> Iterator[Cause]:
    for path, name in images(pod):
        if not parse(name).digest:
            yield Cause(f'image "{name}" has no digest: add @sha256:…', path)


DEFINITIONS = (
    Definition(
        name="require-image-digests",
        summary="Images are named by digest.",
        function=require_image_digests,
        rules=PODS_AND_TEMPLATES,
        users_see='spec.containers[0].image: image "nginx:1.29" has no digest: add @sha256:…',
        topic="images",
        replaces=(
            Replaced("Kyverno", "require-image-checksum"),
            Replaced("Gatekeeper", "K8sImageDigests", "no exempt images"),
        ),
    ),
)
