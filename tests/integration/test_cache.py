"""``cache`` of a webhook."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import REVIEWS, webhook_document
from tests.world import simulated

if TYPE_CHECKING:
    from tests.world import SimulatedWorld

REVIEW = json.loads((REVIEWS / "pod-create-mutate.json").read_bytes())
IMAGES = "object.spec.containers.map(c, c.image)"
NO = {"deny": {"code": 403, "message": "no"}, "warnings": ["seen"]}
LOOKUPS = "admission_gateway_webhook_cache_lookups_total"
CALLS = "admission_gateway_worker_calls_total"


def cached(**cache: Any) -> dict[str, Any]:
    return {"webhook": {"cache": {"ttlSeconds": 86400, "key": IMAGES, **cache}}}


def pod(*images: str, **members: Any) -> bytes:
    """Return a review of a Pod with *images* and other *members* of the request."""
    document = json.loads(json.dumps(REVIEW))
    spec = document["request"]["object"]["spec"]
    first = spec["containers"][0]
    spec["containers"] = [{**first, "name": f"c{n}", "image": image} for n, image in enumerate(images)]
    document["request"].update(members)
    return json.dumps(document).encode()


def served(phase: str, *scripts: dict[str, Any]) -> str:
    return webhook_document(phase, "v", "pool", *scripts)


@simulated
async def test_requests_with_an_equal_key_share_a_verdict(world: SimulatedWorld) -> None:
    await world.serve(served("validate", {**NO, **cached()}))
    answers = [
        await world.review("/validate", pod("a", "b", uid=uid, name=uid)) for uid in ("one", "two", "three")
    ]
    assert [answer["uid"] for answer in answers] == ["one", "two", "three"]
    assert [answer["status"]["message"] for answer in answers] == [answers[0]["status"]["message"]] * 3
    assert [answer["warnings"] for answer in answers] == [["seen"]] * 3
    assert world.metric(LOOKUPS, name="h0.v.test", type="validating", result="hit") == 2
    assert world.metric(CALLS) == 1
    await world.review("/validate", pod("b", "a"))
    assert world.metric(LOOKUPS, result="miss") == 2
    assert world.metric(CALLS) == 2


@simulated
async def test_operations_and_subresources_do_not_share_verdicts(world: SimulatedWorld) -> None:
    await world.serve(served("validate", cached()))
    update = {"operation": "UPDATE", "oldObject": REVIEW["request"]["object"]}
    for members in ({}, update, {**update, "subResource": "resize"}):
        await world.review("/validate", pod("a", **members))
    assert world.metric(LOOKUPS, result="miss") == 3
    assert world.metric(CALLS) == 3


@simulated
async def test_a_request_without_a_key_is_always_a_call(world: SimulatedWorld) -> None:
    await world.serve(served("validate", cached(key="object.metadata.annotations.absent")))
    for _ in range(3):
        await world.review("/validate", pod("a"))
    assert world.metric(CALLS) == 3
    assert world.metric(LOOKUPS, result="miss") == 3


@pytest.mark.parametrize(
    "script", [{"status": "INTERNAL"}, {"patch": [{"op": "add", "path": "/metadata/labels", "value": {}}]}]
)
@simulated
async def test_failures_and_patches_are_not_kept(world: SimulatedWorld, script: dict[str, Any]) -> None:
    await world.serve(served("mutate", {**script, **cached()}))
    answers = [await world.review("/mutate", pod("a")) for _ in range(2)]
    assert answers[0] == answers[1]
    assert world.metric(LOOKUPS, result="miss") == 2


@simulated
async def test_the_least_recently_used_verdict_goes(world: SimulatedWorld) -> None:
    await world.serve(served("validate", cached(maxEntries=2)))
    for image in ("a", "b", "a", "c", "a", "b"):
        await world.review("/validate", pod(image))
    assert world.metric(LOOKUPS, result="hit") == 2
    assert world.metric(CALLS) == 4


@simulated
async def test_webhooks_do_not_share_verdicts(world: SimulatedWorld) -> None:
    await world.serve(served("validate", cached(), {**NO, **cached()}, {}))
    for _ in range(2):
        response = await world.review("/validate", pod("a"))
        assert response["status"]["message"] == "h1.v.test: no"
    assert world.metric(LOOKUPS, name="h0.v.test", result="hit") == 1
    assert world.metric(CALLS) == 4


@simulated
async def test_a_verdict_holds_for_its_time_to_live(world: SimulatedWorld) -> None:
    await world.serve(served("validate", cached(ttlSeconds=60)))
    for wait_s in (0, 59, 2):
        await asyncio.sleep(wait_s)
        await world.review("/validate", pod("a"))
    assert world.metric(CALLS) == 2
