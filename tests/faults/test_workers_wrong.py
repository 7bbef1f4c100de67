"""Workers that send wrong verdicts: other webhooks are not affected.

One webhook's policy is faulty. Another webhook uses the same worker and stream; a third one uses another
pool, whose stream has the same ids of calls.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import pytest

from tests.faults.kit import (
    REVIEW,
    SOME_PORT,
    StartGateway,
    StartWorker,
    all_well,
    configure,
    wait_past,
    wait_until_ready,
)
from tests.kit import pool_document, webhook_document
from tests.load import Load
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import GatewayProcess

pytestmark = pytest.mark.process

LATE = "DEADLINE_EXCEEDED: no answer within 1s"


@dataclass(frozen=True)
class Fault:
    """The script of a policy, and the result of its own webhook."""

    script: dict[str, Any]
    cause: str = ""
    """Pattern of the message; empty if the request is allowed."""
    ends_stream: bool = True
    """Whether the gateway replaces the stream."""
    timeout_s: int = 10
    """Timeout of its own webhook: short if the answer never comes."""


FAULTS = {
    # A verdict may cross its cancellation, which is no fault. These come after all calls have timed out.
    "late": Fault({"stubborn": True}, LATE, ends_stream=False, timeout_s=1),
    "twice": Fault({"twice": True}),
    "unknown id": Fault({"wrong_id": True}, LATE, timeout_s=1),
    "another's id": Fault({"others_id": True}, f"(?:{LATE})?", timeout_s=1),
    "garbage": Fault({"garbage": True}, "malformed answer: no ReviewResponse"),
    "no outcome": Fault({"empty": True}, "malformed answer: a verdict without an outcome", ends_stream=False),
    "the end": Fault({"end": True}, "UNAVAILABLE: the worker ended the stream|"),
    "flood": Fault({"flood": True}),
    "9 MiB": Fault({"big": 9 << 20}, "RESOURCE_EXHAUSTED: .*larger than max.*"),
}


def streams(gateway: GatewayProcess) -> int:
    """Return how many streams the faulty worker has seen."""
    report: dict[str, int] = json.loads(
        gateway.review("/validate/report?timeout=10s", REVIEW)["status"]["message"].partition(": ")[2]
    )
    return report["streams"]


@pytest.mark.parametrize("name", FAULTS)
def test_a_wrong_answer_affects_only_its_own_webhook(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, name: str
) -> None:
    fault = FAULTS[name]
    wrong, other = start_worker(SOME_PORT), start_worker(SOME_PORT)
    gate = tmp_path / "gate"
    script = fault.script | ({"until": str(gate)} if name == "late" else {})
    configuration = (
        pool_document("wrong", wrong.target)
        + pool_document("other", other.target)
        + webhook_document("validate", "fault", "wrong", script, timeoutSeconds=fault.timeout_s)
        + webhook_document("validate", "honest", "wrong", {"delay_ms": 20})
        + webhook_document("validate", "report", "wrong", {"report": True})
        + webhook_document("validate", "elsewhere", "other", {"delay_ms": 20})
    )
    gateway = start_gateway(configure(tmp_path, configuration))
    for pool in ("wrong", "other"):
        wait_until_ready(gateway, 1, pool)
    before = streams(gateway)
    with (
        Load(gateway, "/validate/honest?timeout=10s", REVIEW, connections=8, rate=100) as honest,
        Load(gateway, "/validate/elsewhere?timeout=10s", REVIEW, connections=8, rate=100) as elsewhere,
    ):
        honest.wait_for(10)
        with Load(gateway, "/validate/fault?timeout=10s", REVIEW, connections=4, count=8) as faulty:
            faulty.finish()
        gate.touch()
        for load in (honest, elsewhere):
            wait_past(load, 20)
        wait_until_ready(gateway, 1, "wrong")
    assert all_well(elsewhere.tally), elsewhere.tally
    assert all_well(honest.tally), honest.tally
    tally = faulty.tally
    assert tally.answered == tally.allowed + tally.failed == 8, tally
    assert bool(tally.failed) <= bool(fault.cause), tally
    if not re.fullmatch(fault.cause, ""):
        assert tally.failed == 8, tally
    for text in tally.texts:
        assert re.fullmatch(rf'failed calling webhook "h0\.fault\.test": (?:{fault.cause})', text), text
    # Not one for each wrong verdict: the gateway does not reconnect all the time.
    replaced = streams(gateway) - before
    assert 1 <= replaced <= 10 if fault.ends_stream else replaced == 0
    assert gateway.metric("admission_gateway_reviews_in_flight") == 0
    assert "Traceback" not in gateway.log


def test_a_verdict_with_the_id_of_another_call_affects_only_that_worker(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """Ids belong to one stream. On the streams of other workers the same ids are other calls."""
    wrong, other = start_worker(SOME_PORT), start_worker(SOME_PORT)
    deny = {"delay_ms": 20, "deny": {"message": "no", "code": 403}}
    fault = {"others_id": True}
    configuration = (
        pool_document("wrong", wrong.target)
        + pool_document("other", other.target)
        + webhook_document("validate", "fault", "wrong", fault, fault, timeoutSeconds=1)
        + webhook_document("validate", "elsewhere", "other", deny)
    )
    gateway = start_gateway(configure(tmp_path, configuration))
    for pool in ("wrong", "other"):
        wait_until_ready(gateway, 1, pool)
    with Load(gateway, "/validate/elsewhere?timeout=10s", REVIEW, connections=16, rate=200) as elsewhere:
        with Load(gateway, "/validate/fault?timeout=10s", REVIEW, connections=8, count=32) as faulty:
            faulty.finish()
        wait_past(elsewhere, 20)
    assert faulty.tally.answered == 32, faulty.tally
    assert elsewhere.tally.denied == elsewhere.tally.sent, elsewhere.tally


def test_a_worker_that_floods_does_not_affect_other_pools(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    """The gateway ends each flooded stream, and reconnects with back-off."""
    wrong, other = start_worker(SOME_PORT), start_worker(SOME_PORT)
    configuration = (
        pool_document("wrong", wrong.target)
        + pool_document("other", other.target)
        + webhook_document("validate", "fault", "wrong", {"flood": True})
        + webhook_document("validate", "report", "wrong", {"report": True})
        + webhook_document("validate", "elsewhere", "other", {"delay_ms": 20})
    )
    gateway = start_gateway(configure(tmp_path, configuration))
    for pool in ("wrong", "other"):
        wait_until_ready(gateway, 1, pool)
    with Load(gateway, "/validate/elsewhere?timeout=10s", REVIEW, connections=8, rate=100) as elsewhere:
        with Load(gateway, "/validate/fault?timeout=10s", REVIEW, connections=4, count=50) as faulty:
            faulty.finish()
        wait_past(elsewhere, 20)
    assert all_well(elsewhere.tally), elsewhere.tally
    assert faulty.tally.answered == 50, faulty.tally

    def flooded() -> int:
        """Return how many unsolicited verdicts the worker could send."""
        answer = gateway.review("/validate/report?timeout=10s", REVIEW)
        report: dict[str, int] = json.loads(answer["status"]["message"].partition(": ")[2])
        return report.get("flooded", 0)

    seen = [flooded()]

    def is_over() -> bool:
        seen.append(flooded())
        return seen[-1] == seen[-2]

    eventually(is_over, "the flood is over")
