"""The reviews of the benchmark: a Pod of 6 KB, with more labels, one of 1 MiB, and an update of 6 MiB."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

import orjson

from loadtest.policies import labelled
from tests.kit import ROOT

if TYPE_CHECKING:
    from pathlib import Path

POD: Final = ROOT / "loadtest" / "corpus" / "pod-create-6kb.json"
LARGE_BYTES: Final = 2**20
UPDATE_BYTES: Final = 6 * 2**20
"""Of both objects of an update together; kube-apiserver takes writes of 3 MiB."""


def enlarged(review: bytes, size_bytes: int = LARGE_BYTES) -> bytes:
    """Return *review* of a Pod with additional containers, so that its object has at least *size_bytes*.

    The containers are copies of the first with other names. An object of many small fields costs a
    parser more than an object of few long texts.
    """
    document: dict[str, Any] = orjson.loads(review)
    pod = document["request"]["object"]
    containers = pod["spec"]["containers"]
    first = containers[0]
    lacking = size_bytes - len(orjson.dumps(pod))
    step = len(orjson.dumps(first)) + 1
    for number in range(max(0, -(-lacking // step))):
        containers.append(copy.copy(first) | {"name": f"{first['name']}-{number}"})
    return orjson.dumps(document)


def update(review: bytes, size_bytes: int = UPDATE_BYTES) -> bytes:
    """Return an UPDATE of an enlarged Pod; object and oldObject have *size_bytes* together."""
    document: dict[str, Any] = orjson.loads(enlarged(review, size_bytes // 2))
    request = document["request"]
    return orjson.dumps(
        {**document, "request": {**request, "operation": "UPDATE", "oldObject": request["object"]}}
    )


def write_reviews(folder: Path) -> dict[str, Path]:
    """Return the files of the reviews by the names in ``Load.review``; they are written to *folder*."""
    pod = POD.read_bytes()
    reviews = {"pod": pod, "labelled": labelled(pod), "large": enlarged(pod), "update": update(pod)}
    for name, review in reviews.items():
        (folder / f"review-{name}.json").write_bytes(review)
    return {name: folder / f"review-{name}.json" for name in reviews}
