"""A worker that accepts calls and never answers."""

from __future__ import annotations

import json
import resource
from typing import TYPE_CHECKING

import pytest

from tests.faults.kit import (
    CALLS,
    REVIEW,
    SOME_PORT,
    StartWorker,
    all_well,
    configure,
    resources,
    wait_past,
    wait_until_ready,
)
from tests.kit import StartGateway, pool_document, webhook_document
from tests.load import Load
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.process

MANY = 1000
"""Reviews in flight: half of a webhook with failurePolicy Fail, half with Ignore."""
SENT = 3 * MANY
TIMEOUT_S = 8
"""Of the webhook with Fail. The timeout of the other one is longer than that of the review."""
BUDGET_S = 12.0
"""The timeout that the API server announces."""
RESERVE_S = 0.8
"""The part of it that is reserved for queues on the way in and out: the maximum."""
RATE = 700.0
"""Reviews per second, so that their deadlines are spread as well."""
SETTINGS = json.dumps(
    {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "deadlineReserve": f"{RESERVE_S:g}s",
    }
)
IN_FLIGHT = "admission_gateway_reviews_in_flight"
MIB = 1024 * 1024


@pytest.fixture(autouse=True)
def _many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    wanted = 4 * MANY
    assert hard == resource.RLIM_INFINITY or hard >= wanted, f"expected {wanted} descriptors, found {hard}"
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, wanted), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_a_thousand_reviews_time_out_and_leave_no_resources(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Each connection is used three times. Reviews of another pool are answered meanwhile."""
    silent, other = start_worker(SOME_PORT), start_worker(SOME_PORT)
    hang = {"hang": True}
    configuration = (
        SETTINGS
        + "\n---\n"
        + pool_document("silent", silent.target)
        + pool_document("other", other.target)
        + webhook_document("validate", "fail", "silent", hang, failurePolicy="Fail", timeoutSeconds=TIMEOUT_S)
        + webhook_document("validate", "ignore", "silent", hang, failurePolicy="Ignore", timeoutSeconds=30)
        + webhook_document("validate", "report", "silent", {"report": True})
        + webhook_document("validate", "elsewhere", "other", {"delay_ms": 20}, timeoutSeconds=10)
    )
    gateway = start_gateway(configure(tmp_path, configuration))
    for pool in ("silent", "other"):
        wait_until_ready(gateway, 1, pool)
    process = gateway.child.pid
    paths = [f"/validate/{name}?timeout={BUDGET_S:g}s" for name in ("fail", "ignore")]
    before = resources(process)
    with Load(gateway, "/validate/elsewhere?timeout=10s", REVIEW, connections=4, rate=50) as elsewhere:
        elsewhere.wait_for(20)
        with Load(gateway, paths, REVIEW, connections=MANY, count=SENT, rate=RATE) as load:
            eventually(lambda: gateway.metric(IN_FLIGHT) >= 0.95 * MANY, "a thousand are in flight")
            load.wait_until(lambda tally: tally.answered >= MANY)
            first = resources(process)
            load.finish()
        wait_past(elsewhere, 20)
    second, tally = resources(process), load.tally
    assert all_well(elsewhere.tally), elsewhere.tally
    assert tally.sent == tally.answered == SENT, tally
    assert tally.failed == tally.failed_open == SENT / 2, tally
    cause = f"DEADLINE_EXCEEDED: no answer within {TIMEOUT_S}s"
    assert tally.texts == (f'failed calling webhook "h0.fail.test": {cause}',)

    eventually(lambda: gateway.metric(IN_FLIGHT) == 0, "no review is left")
    eventually(lambda: resources(process).descriptors <= before.descriptors, "no descriptor is left")
    assert first.resident_bytes - before.resident_bytes < 64 * MIB
    # Two thousand reviews that stay would be 25 MiB; the heap of a busy gateway varies by 8.
    assert second.resident_bytes - first.resident_bytes < 16 * MIB
    assert gateway.metric(CALLS, pool="silent") == SENT
    assert gateway.metric(CALLS, pool="silent", code="DEADLINE_EXCEEDED") == SENT
    report = gateway.review("/validate/report?timeout=10s", REVIEW)["status"]["message"]
    seen = json.loads(report.partition(": ")[2])
    assert (seen["calls"], seen["cancelled"], seen["streams"]) == (SENT + 1, SENT, 1)
