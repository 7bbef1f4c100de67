"""The reviews that are sent: one that is kept, and a large one that is made of it."""

from __future__ import annotations

import copy
from typing import TYPE_CHECKING, Any, Final

import orjson

from loadtest.launch import ROOT

if TYPE_CHECKING:
    from pathlib import Path

POD: Final = ROOT / "loadtest" / "corpus" / "pod-create-6kb.json"
LARGE_BYTES: Final = 2**20


def enlarged(review: bytes, size_bytes: int = LARGE_BYTES) -> bytes:
    """Return *review* of a Pod with as many more containers as give its object at least *size_bytes* of JSON.

    They are copies of its first, under names of their own: an object of many small fields, which costs any
    parser more than a few long texts of the same size.
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


def write_reviews(folder: Path) -> dict[str, Path]:
    """Return the files of the reviews by the names in ``Load.review``; the large one is made in *folder*."""
    large = folder / "pod-large.json"
    large.write_bytes(enlarged(POD.read_bytes()))
    return {"pod": POD, "large": large}
