"""The policies in Python: ``python -m loadtest.policies.worker --listen …``."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from admission_gateway_worker import Denied, PolicyServer
from loadtest.policies import LABELS, REQUESTS, TOLERATION

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission_gateway_worker import Review


def _containers(review: Review) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = review.object["spec"].get("containers") or []
    return found


def _requires(label: str) -> Callable[[Review], None]:
    def require(review: Review) -> None:
        if not (review.object["metadata"].get("labels") or {}).get(label):
            raise Denied(f"label {label} is required", field="metadata.labels")

    return require


def deny_privileged(review: Review) -> None:
    """Deny privileged containers."""
    for container in _containers(review):
        if (container.get("securityContext") or {}).get("privileged"):
            raise Denied(f"container {container['name']} is privileged")


def deny_latest(review: Review) -> None:
    """Deny images with the tag latest."""
    for container in _containers(review):
        if (container.get("image") or "").endswith(":latest"):
            raise Denied(f"container {container['name']} has the tag latest")


def require_limits(review: Review) -> None:
    """Deny containers without limits for CPU and memory."""
    for container in _containers(review):
        limits = (container.get("resources") or {}).get("limits") or {}
        if not limits.get("cpu") or not limits.get("memory"):
            raise Denied(f"container {container['name']} has no limits")


def always_pull(review: Review) -> None:
    """Set imagePullPolicy of all containers."""
    for container in _containers(review):
        container["imagePullPolicy"] = "Always"


def add_label(review: Review) -> None:
    """Set the label managed."""
    metadata = review.object["metadata"]
    metadata["labels"] = {**(metadata.get("labels") or {}), "managed": "true"}


def add_toleration(review: Review) -> None:
    """Append ``TOLERATION``, unless the Pod has it."""
    tolerations = review.object["spec"].setdefault("tolerations", [])
    if TOLERATION not in tolerations:
        tolerations.append(TOLERATION)


def default_requests(review: Review) -> None:
    """Set ``REQUESTS`` in containers without requests."""
    for container in _containers(review):
        resources = container.setdefault("resources", {})
        if not resources.get("requests"):
            resources["requests"] = dict(REQUESTS)


def make_server() -> PolicyServer:
    """Return a server with all policies."""
    server = PolicyServer()
    for label in LABELS:
        server.policy(f"require-{label}")(_requires(label))
    server.policy("deny-privileged")(deny_privileged)
    server.policy("deny-latest")(deny_latest)
    server.policy("require-limits")(require_limits)
    server.policy("always-pull", mutating=True)(always_pull)
    server.policy("add-label", mutating=True)(add_label)
    server.policy("add-toleration", mutating=True)(add_toleration)
    server.policy("default-requests", mutating=True)(default_requests)
    return server


if __name__ == "__main__":
    make_server().main()
