"""AlwaysPullImages: every image is pulled at each start, so that only who may pull an image can run it.

Source: kubernetes plugin/pkg/admission/alwayspullimages; pkg/api/pod util.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.builtin import PODS, aggregated, failed, forbidden, is_for, quoted
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from collections.abc import Iterator

    from admission_gateway_worker import Review

_RULES: Final = (PODS,)
_LISTS: Final = ("initContainers", "containers", "ephemeralContainers")
_ALWAYS: Final = "Always"


def always_pull_images(review: Review) -> None:
    """Set the pull policy of all containers and image volumes to Always."""
    if _is_for(review):
        for _, holder, key in _pull_policies(review.object.get("spec") or {}):
            holder[key] = _ALWAYS


def check_pull_policies(review: Review) -> None:
    """Deny other pull policies."""
    if not _is_for(review):
        return
    problems = [
        forbidden(
            review,
            f'{path}: Unsupported value: {quoted(holder.get(key) or "")}: supported values: "{_ALWAYS}"',
        ).message
        for path, holder, key in _pull_policies(review.object.get("spec") or {})
        if holder.get(key) != _ALWAYS
    ]
    if problems:
        raise failed(aggregated(problems))


def _is_for(review: Review) -> bool:
    """Whether the request is for a pod with an image that it did not have before."""
    if not is_for(review, _RULES):
        return False
    if review.operation != "UPDATE":
        return True
    return not _images(review.object) <= _images(review.old_object or {})


def _images(pod: dict[str, Any]) -> set[str]:
    spec = pod.get("spec") or {}
    return {container.get("image", "") for name in _LISTS for container in spec.get(name) or ()}


def _pull_policies(spec: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any], str]]:
    """Yield path, object and key of each pull policy."""
    for name in _LISTS:
        for index, container in enumerate(spec.get(name) or ()):
            yield f"spec.{name}[{index}].imagePullPolicy", container, "imagePullPolicy"
    for index, volume in enumerate(spec.get("volumes") or ()):
        if isinstance(volume.get("image"), dict):
            yield f"spec.volumes[{index}].image.pullPolicy", volume["image"], "pullPolicy"


DEFINITIONS = (
    Definition(
        "always-pull-images",
        "Sets the pull policy of all containers and image volumes to Always (AlwaysPullImages).",
        always_pull_images,
        rules=_RULES,
        users_see="the pod with imagePullPolicy: Always",
        topic="images",
        replaces=(
            Replaced("Kubernetes", "AlwaysPullImages"),
            Replaced(
                "Kyverno", "always-pull-images", "also for init and ephemeral containers and image volumes"
            ),
        ),
        mutating=True,
    ),
    Definition(
        "always-pull-images-validate",
        "Denies pods with another pull policy than Always, for example after a later change by a webhook.",
        check_pull_policies,
        rules=_RULES,
        users_see='pods "web" is forbidden: spec.containers[0].imagePullPolicy: Unsupported value: '
        '"IfNotPresent": supported values: "Always"',
        topic="images",
        replaces=(Replaced("Kubernetes", "AlwaysPullImages"),),
    ),
)
