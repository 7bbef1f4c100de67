"""``deny-latest-tag``: images are named by a digest, or by a tag other than latest."""

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


def deny_latest_tag(review: Review) -> None:
    """Deny images with the tag latest, or with neither a tag nor a digest."""
    deny_new_in_pods(review, _problems)


def _problems(pod: PodSpec) -> Iterator[Cause]:
    for path, name in images(pod):
        if (image := parse(name)).tag == "latest" and not image.digest:
            yield Cause(
                f'image "{name}" has the tag latest, or no tag, which means latest: name a version', path
            )


DEFINITIONS = (
    Definition(
        name="deny-latest-tag",
        summary="Images are named by a digest, or by a tag other than latest.",
        function=deny_latest_tag,
        rules=PODS_AND_TEMPLATES,
        users_see='spec.containers[0].image: image "nginx" has the tag latest, or no tag, which means '
        "latest: name a version",
        topic="images",
        replaces=(
            Replaced("Kyverno", "disallow-latest-tag", "also for init and ephemeral containers"),
            Replaced("Gatekeeper", "K8sDisallowedTags", "the tag `latest` only, and no exempt images"),
        ),
    ),
)
