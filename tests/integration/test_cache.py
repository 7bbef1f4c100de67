"""``cache`` of a webhook in a gateway process with worker processes."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import REVIEWS, pool_document, webhook_document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from tests.kit import GatewayProcess, WorkerProcess

    StartWorker = Callable[..., WorkerProcess]
    StartGateway = Callable[..., GatewayProcess]

pytestmark = pytest.mark.process

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


@pytest.fixture
def serve(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> Callable[..., GatewayProcess]:
    def serve(phase: str, *scripts: dict[str, Any]) -> GatewayProcess:
        (tmp_path / "c.yaml").write_text(
            pool_document("pool", start_worker().target) + webhook_document(phase, "v", "pool", *scripts)
        )
        return start_gateway(tmp_path)

    return serve


def test_requests_with_an_equal_key_share_a_verdict(serve: Callable[..., GatewayProcess]) -> None:
    gateway = serve("validate", {**NO, **cached()})
    answers = [
        gateway.review("/validate", pod("a", "b", uid=uid, name=uid)) for uid in ("one", "two", "three")
    ]
    assert [answer["uid"] for answer in answers] == ["one", "two", "three"]
    assert [answer["status"]["message"] for answer in answers] == [answers[0]["status"]["message"]] * 3
    assert [answer["warnings"] for answer in answers] == [["seen"]] * 3
    assert gateway.metric(LOOKUPS, name="h0.v.test", type="validating", result="hit") == 2
    assert gateway.metric(CALLS) == 1
    gateway.review("/validate", pod("b", "a"))
    assert gateway.metric(LOOKUPS, result="miss") == 2
    assert gateway.metric(CALLS) == 2


def test_operations_and_subresources_do_not_share_verdicts(serve: Callable[..., GatewayProcess]) -> None:
    gateway = serve("validate", cached())
    update = {"operation": "UPDATE", "oldObject": REVIEW["request"]["object"]}
    for members in ({}, update, {**update, "subResource": "resize"}):
        gateway.review("/validate", pod("a", **members))
    assert gateway.metric(LOOKUPS, result="miss") == 3
    assert gateway.metric(CALLS) == 3


def test_a_request_without_a_key_is_always_a_call(serve: Callable[..., GatewayProcess]) -> None:
    gateway = serve("validate", cached(key="object.metadata.annotations.absent"))
    assert all(gateway.review("/validate", pod("a"))["allowed"] for _ in range(3))
    assert gateway.metric(CALLS) == 3
    assert gateway.metric(LOOKUPS, result="miss") == 3


@pytest.mark.parametrize(
    "script", [{"status": "INTERNAL"}, {"patch": [{"op": "add", "path": "/metadata/labels", "value": {}}]}]
)
def test_failures_and_patches_are_not_kept(
    serve: Callable[..., GatewayProcess], script: dict[str, Any]
) -> None:
    gateway = serve("mutate", {**script, **cached()})
    answers = [gateway.review("/mutate", pod("a")) for _ in range(2)]
    assert answers[0] == answers[1]
    assert gateway.metric(LOOKUPS, result="miss") == 2


def test_the_least_recently_used_verdict_goes(serve: Callable[..., GatewayProcess]) -> None:
    gateway = serve("validate", cached(maxEntries=2))
    for image in ("a", "b", "a", "c", "a", "b"):
        gateway.review("/validate", pod(image))
    assert gateway.metric(LOOKUPS, result="hit") == 2
    assert gateway.metric(CALLS) == 4


def test_webhooks_do_not_share_verdicts(serve: Callable[..., GatewayProcess]) -> None:
    gateway = serve("validate", cached(), {**NO, **cached()}, {})
    for _ in range(2):
        assert gateway.review("/validate", pod("a"))["status"]["message"] == "h1.v.test: no"
    assert gateway.metric(LOOKUPS, name="h0.v.test", result="hit") == 1
    assert gateway.metric(CALLS) == 4
