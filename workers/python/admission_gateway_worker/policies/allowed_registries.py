"""``allowed-registries``: images come from named registries or repositories only."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.images import parse
from admission_gateway_worker.pods import images
from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.workloads import PODS_AND_TEMPLATES, deny_new_in_pods
from admission_gateway_worker.review import Cause

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from admission_gateway_worker import Review
    from admission_gateway_worker.pods import PodSpec

_LABEL: Final = "[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?"
_PATTERN: Final = (
    rf"^((localhost|{_LABEL}(\.{_LABEL})+)(:[0-9]{{1,5}})?|{_LABEL}:[0-9]{{1,5}}"
    r"|\[[0-9a-f:.]{2,45}\](:[0-9]{1,5})?)(/[a-z0-9]([-a-z0-9._]{0,126}[a-z0-9])?)*/?$"
)
"""An entry that some name of an image is from: a host without a dot and a port is a path of docker.io."""


def _prepare(parameters: Mapping[str, Any]) -> tuple[str, ...]:
    places = (each.rstrip("/") for each in parameters["registries"])
    return tuple(re.sub(r"^index\.docker\.io(?=/|$)", "docker.io", each) for each in places)


def allowed_registries(review: Review) -> None:
    """Deny images from other places. ``review.parameters`` are the allowed ones, without a last slash."""
    places: tuple[str, ...] = review.parameters
    deny_new_in_pods(review, lambda pod: _problems(pod, places))


def _problems(pod: PodSpec, places: tuple[str, ...]) -> Iterator[Cause]:
    for path, name in images(pod):
        if not _is_from(parse(name).repository, places):
            yield Cause(f'image "{name}" is not from an allowed registry: {", ".join(places)}', path)


def _is_from(repository: str, places: tuple[str, ...]) -> bool:
    return any(repository == place or repository.startswith(f"{place}/") for place in places)


DEFINITIONS = (
    Definition(
        name="allowed-registries",
        summary="Images come from the listed registries or repositories only.",
        function=allowed_registries,
        rules=PODS_AND_TEMPLATES,
        users_see='spec.containers[0].image: image "nginx:1.29" is not from an allowed registry: '
        "registry.example.com",
        topic="images",
        replaces=(
            Replaced(
                "Kyverno",
                "restrict-image-registries",
                "an entry is a registry or repository, without wildcards",
            ),
            Replaced(
                "Gatekeeper",
                "K8sAllowedRepos",
                "an entry matches whole parts of a path, not every name that begins with it",
            ),
            Replaced("Gatekeeper", "K8sAllowedReposv2", "an entry includes all below it, without `*`"),
        ),
        parameters={
            "type": "object",
            "additionalProperties": False,
            "required": ["registries"],
            "properties": {
                "registries": {
                    "type": "array",
                    "minItems": 1,
                    "items": {"type": "string", "pattern": _PATTERN},
                    "description": "Registries (`HOST` or `HOST:PORT`) or repositories (`HOST/PATH`), which "
                    "include all below them, in lower case and without a scheme, a tag or wildcards. A "
                    "name without a registry is from `docker.io`, and one without a path from "
                    "`docker.io/library`.",
                }
            },
        },
        prepare=_prepare,
        example={"registries": ["registry.example.com", "ghcr.io/example"]},
    ),
)
