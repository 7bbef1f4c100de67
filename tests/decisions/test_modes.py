"""Records and metrics of webhooks that are not enforced."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.observe.decisions import line
from gateway.observe.decisions.allowed_lines import AllowedLines
from gateway.observe.decisions.record import is_noteworthy, record_of
from gateway.observe.decisions.redaction import Redactors
from gateway.observe.telemetry.metrics import Metrics
from gateway.pure.core.verdict import ALLOWED, Denied, Failed, FailureReason, Verdict
from gateway.server.reports.finding import denials, denials_not_enforced, failures
from tests.core.build import add, patch
from tests.decisions.kit import answer

if TYPE_CHECKING:
    from gateway.pure.core.answer import Answer
    from gateway.pure.core.webhook import Mode

NO = Denied(403, message="no team")
BROKEN = Failed(FailureReason.STATUS, "UNAVAILABLE: gone")
NAME = "a.policies.test"


def answered(verdict: Verdict, mode: Mode = "Warn") -> Answer:
    return answer({NAME: verdict}, modes={0: mode})


def test_a_rejection_that_is_not_enforced_is_noteworthy_and_decides_nothing() -> None:
    found = answered(NO)
    assert is_noteworthy(found)
    record = record_of(found, 0.1, 0.0, "d" * 64)
    assert (record.allowed, record.outcome, record.deciding) == (True, "Allowed", None)
    (of_webhook,) = record.webhooks
    assert (of_webhook.outcome, of_webhook.code, of_webhook.mode) == ("Denied", 403, "Warn")
    (member,) = line.decision(record, secret_names=False)["webhooks"]
    assert (member["outcome"], member["mode"], member["message"]) == ("Denied", "Warn", "no team")


def test_the_record_of_a_failure_says_what_it_would_have_done() -> None:
    (record,) = record_of(answered(BROKEN, "Audit"), 0.1, 0.0, "").webhooks
    assert (record.outcome, record.mode) == ("FailedClosed", "Audit")


def test_a_line_of_an_allowed_decision_has_the_mode() -> None:
    assert AllowedLines(secret_names=False).line(answered(ALLOWED), 0.1, 0.0, "") is None
    (member,) = line.decision(record_of(answered(ALLOWED), 0.1, 0.0, ""), secret_names=False)["webhooks"]
    assert member["mode"] == "Warn"


@pytest.mark.parametrize(
    ("verdict", "result"),
    [(NO, "denied"), (BROKEN, "failed"), (patch(add("/x", 1)), "changed"), (ALLOWED, None)],
)
def test_results_without_effect_are_counted_by_webhook_and_mode(verdict: Verdict, result: str | None) -> None:
    metrics = Metrics()
    metrics.review_answered(answered(verdict, "Audit"), 0.1)
    labels = {"name": NAME, "type": "admit", "mode": "Audit"}
    for one in ("denied", "failed", "changed"):
        found = metrics.registry.get_sample_value(
            "admission_gateway_webhook_not_enforced_total", {**labels, "result": one}
        )
        assert found == (1 if one == result else None)
    assert not any(
        sample.value
        for family in metrics.registry.collect()
        if family.name in ("admission_gateway_webhook_rejections", "admission_gateway_webhook_fail_open")
        for sample in family.samples
        if sample.name.endswith("_total")
    )


@pytest.mark.parametrize(("mode", "result"), [("Warn", "warn"), ("Audit", "fail")])
def test_a_denial_that_is_not_enforced_is_a_finding_of_reports_and_no_event(mode: Mode, result: str) -> None:
    found = answered(NO, mode)
    (finding,) = denials_not_enforced(found, 0.1, 0.0, Redactors())
    assert (finding.result, finding.webhook, finding.message) == (result, NAME, "no team; the request passed")
    assert not list(denials(found, 0.1, 0.0, Redactors()))
    assert not list(failures(found, 0.1, 0.0, Redactors()))


def test_a_failure_that_is_not_enforced_let_the_request_pass() -> None:
    (finding,) = failures(answered(BROKEN), 0.1, 0.0, Redactors())
    assert (finding.result, finding.message) == ("error", "UNAVAILABLE: gone; the request passed")
