"""Requests of the kit: Pods of several sizes for which the answers of the sample policies are known."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import orjson

if TYPE_CHECKING:
    from collections.abc import Sequence

MIB: Final = 1024 * 1024
MAX_MESSAGE_BYTES: Final = 8 * MIB

SAMPLES: Final = (
    "require-labels",
    "deny-latest-tag",
    "deny-privileged",
    "always-pull-images",
    "inject-sidecar",
    "default-resources",
    "warn-no-memory-limit",
    "protect-busy",
    "team-from-namespace",
    "limit-replicas",
    "sleeps",
    "fails",
)
"""The policies of the sample worker of every SDK."""

UID: Final = "5f0a7c1e-1d5c-4a0b-9a37-000000000001"
INVALID_JSON: Final = b'{"uid": '
NON_OBJECTS: Final = (b"[]", b"null", b'"text"', b"1")


def pod(images: Sequence[str] = ("registry.example/app:1.0",), *, uid: str = UID, padding: int = 0) -> bytes:
    """Return the JSON of an AdmissionRequest that creates a Pod with a container for each image.

    *padding* is the length of an annotation that no policy reads.
    """
    return _created([{"name": f"c{i}", "image": image} for i, image in enumerate(images)], uid, padding)


def replicas(count: int) -> bytes:
    """Return the JSON of an AdmissionRequest for an object with *count* replicas."""
    request = orjson.loads(pod())
    request["object"]["spec"]["replicas"] = count
    return orjson.dumps(request)


def many_containers(count: int) -> bytes:
    """Return the JSON of an AdmissionRequest that creates a Pod with *count* containers, 66 bytes each."""
    image = "registry.example/app:1"
    return _created([{"name": f"c{i:07}", "image": image, "tty": True} for i in range(count)], UID, 0)


def numbered_pod(number: int) -> bytes:
    """Return a request that deny-latest-tag denies with a message that contains *number*."""
    return pod([numbered_image(number)])


def numbered_image(number: int) -> str:
    """Return the image of ``numbered_pod(number)``."""
    return f"registry.example/app-{number}:latest"


def _created(containers: list[dict[str, Any]], uid: str, padding: int) -> bytes:
    metadata: dict[str, Any] = {"name": "web", "namespace": "shop", "labels": {"app": "web"}}
    if padding:
        metadata["annotations"] = {"example.com/padding": "x" * padding}
    return orjson.dumps(
        {
            "uid": uid,
            "kind": {"group": "", "version": "v1", "kind": "Pod"},
            "resource": {"group": "", "version": "v1", "resource": "pods"},
            "name": "web",
            "namespace": "shop",
            "operation": "CREATE",
            "userInfo": {"username": "someone", "groups": ["system:authenticated"]},
            "object": {
                "apiVersion": "v1",
                "kind": "Pod",
                "metadata": metadata,
                "spec": {"containers": containers},
            },
            "oldObject": None,
            "dryRun": False,
        }
    )


TRACEPARENT: Final = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01"

TRACEPARENTS: Final = (
    TRACEPARENT,
    TRACEPARENT[:-1] + "0",
    "",
    "garbage",
    TRACEPARENT.upper(),
    TRACEPARENT + "-more",
    "ff" + TRACEPARENT[2:],
    "00-" + 32 * "0" + TRACEPARENT[35:],
    "00" + 5000 * "-",
)
"""Valid and invalid values of ``traceparent``, which metadata can have."""

UNPRINTABLE_TRACEPARENTS: Final = (
    "\0",
    TRACEPARENT.replace("-", "\n"),
    TRACEPARENT[:-1] + "\u0661",
    "\u2028\x1b[31m",
)
"""Invalid values that only a message can have."""
