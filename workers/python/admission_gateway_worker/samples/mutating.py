"""Sample policies that change the object.

Each policy is idempotent, because the API server may reinvoke it after changes by others.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.pods import Container, PodSpec, containers, pod_spec

if TYPE_CHECKING:
    from admission_gateway_worker import Review

DEFAULT_REQUESTS: Final = {"cpu": "100m", "memory": "128Mi"}

SIDECAR_NAME: Final = "log-shipper"
SIDECAR_IMAGE: Final = "registry.example/log-shipper:1.4.2"


async def always_pull_images(review: Review) -> None:
    """Images are pulled at every start, so that a cached private image is not free for all on its node."""
    pod = pod_spec(review)
    if pod is None:
        return
    for container in _new_containers(review, pod):
        container.container["imagePullPolicy"] = "Always"


def inject_sidecar(review: Review) -> None:
    """Pods get a container that ships their logs."""
    pod = pod_spec(review)
    # A running Pod accepts no further containers, and the API server rejects a Pod without containers.
    if pod is None or (pod.is_pod and review.operation != "CREATE") or not pod.spec.get("containers"):
        return
    if any(found.container.get("name") == SIDECAR_NAME for found in containers(pod)):
        return
    pod.spec["containers"].append(
        {
            "name": SIDECAR_NAME,
            "image": SIDECAR_IMAGE,
            "resources": {"requests": {"cpu": "10m", "memory": "32Mi"}, "limits": {"memory": "64Mi"}},
        }
    )
    review.annotate("sidecar", SIDECAR_NAME)


def default_resources(review: Review) -> None:
    """Containers that ask for no CPU or memory get a small request."""
    pod = pod_spec(review)
    if pod is None or (pod.is_pod and review.operation != "CREATE"):
        return
    for _, container in containers(pod, "containers", "initContainers"):
        resources = container.get("resources") or {}
        requests, limits = resources.get("requests") or {}, resources.get("limits") or {}
        # For a limit without a request the API server sets the request to the limit.
        missing = {
            name: value for name, value in DEFAULT_REQUESTS.items() if name not in {**requests, **limits}
        }
        if missing:
            container["resources"] = {**resources, "requests": {**requests, **missing}}


def team_from_namespace(review: Review) -> None:
    """Objects without a team label get that of their Namespace."""
    found = review.object
    if review.operation != "CREATE" or review.sub_resource or not isinstance(found, dict):
        return
    namespace = review.namespace_object or {}
    team = ((namespace.get("metadata") or {}).get("labels") or {}).get("team")
    metadata = found.get("metadata")
    if not team or not isinstance(metadata, dict):
        return
    labels = metadata.get("labels")
    # An explicit patch as an example; setting the label in review.object has the same effect.
    if labels is None:
        review.patch = [{"op": "add", "path": "/metadata/labels", "value": {"team": team}}]
    elif not labels.get("team"):
        review.patch = [{"op": "add", "path": "/metadata/labels/team", "value": team}]


def _new_containers(review: Review, pod: PodSpec) -> list[Container]:
    """Return the containers whose pull policy may change: all except existing containers of a Pod."""
    found = list(containers(pod))
    if not pod.is_pod or review.operation != "UPDATE":
        return found
    old: dict[str, Any] = (review.old_object or {}).get("spec") or {}
    known = {
        container.get("name")
        for field in ("containers", "initContainers", "ephemeralContainers")
        for container in old.get(field) or ()
    }
    return [new for new in found if new.container.get("name") not in known]
