"""Webhooks in the modes Warn and Audit in warnings, audit annotations and explanations."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from gateway.pure.core.annotations import MAX_NOT_ENFORCED_CHARS, AuditLevel
from gateway.pure.core.decision import MAX_WARNING_CHARS, MAX_WARNINGS_CHARS, Decision, decide
from gateway.pure.core.explain import explain
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.matching import Selection
from gateway.pure.core.speculation import ChangeRates
from gateway.pure.core.verdict import ALLOWED, Allowed, Denied, Failed, FailureReason, Verdict
from gateway.pure.core.webhook import Enforcement, Rollout
from tests.core.build import POD, add, patch, request, settle, webhook

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.pure.core.evaluation import Evaluation
    from gateway.pure.core.webhook import Mode, Webhook

A, B, C = "a.policies.test", "b.policies.test", "c.policies.test"
NO = Denied(403, message="no team")
BROKEN = Failed(FailureReason.STATUS, "UNAVAILABLE: gone")
WARN: Mapping[int, Mode] = {0: "Warn"}
AUDIT: Mapping[int, Mode] = {0: "Audit"}
AT_S = 1_796_256_000.0
"""2026-12-03."""


def hooks(*verdicts: Verdict, **members: Any) -> list[Webhook]:
    return [webhook(name, **{"phase": "validate", **members}) for name in (A, B, C)[: len(verdicts)]]


def evaluated(*verdicts: Verdict, modes: Mapping[int, Mode], **members: Any) -> Evaluation:
    answers = dict(zip((A, B, C), verdicts, strict=False))
    return settle(hooks(*verdicts, **members), request(), answers, modes=modes)


def decided(
    *verdicts: Verdict, modes: Mapping[int, Mode], level: AuditLevel = "Metadata", **members: Any
) -> Decision:
    return decide(evaluated(*verdicts, modes=modes, **members), level)


def test_a_denial_becomes_a_warning_and_an_annotation() -> None:
    decision = decided(NO, modes=WARN)
    assert decision.allowed
    assert decision.warnings == (f"would be refused: {A}: no team",)
    about = {"configuration": "policies", "webhook": A, "mode": "Warn", "code": 403, "message": "no team"}
    found = {key: json.loads(value) for key, value in decision.audit_annotations.items()}
    assert found == {"not-enforced.round_0_index_0": about}


@pytest.mark.parametrize(
    ("rollout", "stage", "when"),
    [
        (Rollout("Warn"), None, " later, date not set"),
        (Rollout("Warn", Enforcement(EVERYTHING, after_s=AT_S + 1)), None, " from 2026-12-03 on"),
        # It is enforced already where its other conditions match, and not here.
        (Rollout("Warn", Enforcement(EVERYTHING, after_s=AT_S)), None, " later, date not set"),
        (Rollout("Shadow"), Rollout("Warn", enforced_from_s=AT_S), " from 2026-12-03 on"),
        (Rollout("Shadow"), Rollout("Warn"), " later, date not set"),
        (Rollout("Warn", enforced_from_s=1e300), None, " later, date not set"),
    ],
)
def test_a_warning_says_from_when_on_it_is_refused(
    rollout: Rollout, stage: Rollout | None, when: str
) -> None:
    (hook,) = hooks(NO, rollout=rollout)
    evaluation = settle([hook], request(), {A: NO}, modes=WARN, now=AT_S)
    decision = decide(evaluation, "Metadata", {} if stage is None else {hook.plan_id: stage})
    assert decision.warnings == (f"would be refused{when}: {A}: no team",)


def test_in_the_mode_audit_the_client_sees_no_warning() -> None:
    denial = Denied(403, message="no team", warnings=("careful",), audit_annotations=(("k", "v"),))
    decision = decided(denial, modes=AUDIT)
    assert decision.allowed
    assert decision.warnings == ()
    assert sorted(decision.audit_annotations) == [f"{A}.k", "not-enforced.round_0_index_0"]
    assert decided(Allowed(warnings=("careful",)), modes=AUDIT).warnings == ()
    assert decided(Allowed(warnings=("careful",)), modes=WARN).warnings == ("careful",)


def test_a_failure_under_fail_becomes_a_warning_and_one_under_ignore_stays_a_failure() -> None:
    decision = decided(BROKEN, modes=WARN)
    assert decision.warnings == (f'would be refused: failed calling webhook "{A}": UNAVAILABLE: gone',)
    assert json.loads(decision.audit_annotations["not-enforced.round_0_index_0"])["code"] == 500
    ignored = decided(BROKEN, modes=WARN, failure_policy="Ignore")
    assert (ignored.warnings, ignored.audit_annotations) == ((), {"failed-open.round_0_index_0": A})


def test_a_dry_run_that_would_be_refused_is_a_warning() -> None:
    evaluation = settle(hooks(ALLOWED, side_effects="Some"), request(dryRun=True), modes=WARN)
    decision = decide(evaluation, "Metadata")
    assert decision.warnings == (f'would be refused: admission webhook "{A}" does not support dry run',)


def test_an_audit_level_of_none_leaves_the_annotation_out() -> None:
    decision = decided(NO, modes=WARN, level="None")
    assert len(decision.warnings) == 1
    assert decision.audit_annotations == {}


def test_the_mutating_walk_goes_on_behind_a_webhook_that_is_not_enforced() -> None:
    evaluation = evaluated(NO, patch(add("/x", 1)), ALLOWED, modes=WARN, phase="mutate")
    decision = decide(evaluation, "Metadata")
    assert [outcome.invocation.webhook.name for outcome in evaluation.outcomes] == [A, B, C]
    assert json.loads(decision.patch) == [add("/x", 1)]
    mutated = [
        json.loads(decision.audit_annotations[f"mutation.round_0_index_{at}"])["mutated"] for at in (0, 1, 2)
    ]
    assert mutated == [False, True, False]


@pytest.mark.parametrize("mode", ["Warn", "Audit"])
def test_a_patch_is_judged_and_not_applied(mode: Mode) -> None:
    evaluation = evaluated(patch(add("/x", 1)), ALLOWED, modes={0: mode}, phase="mutate")
    assert evaluation.final_object == POD
    assert not evaluation.has_changed
    first, second = evaluation.outcomes
    assert first.would_change
    assert second.call is not None
    assert second.call.payload.object == POD
    assert decide(evaluation, "Request").patch == b""
    conflicting = patch({"op": "remove", "path": "/none"})
    refused = evaluated(conflicting, ALLOWED, modes={0: mode}, phase="mutate").outcomes[0]
    assert isinstance(refused.verdict, Failed)
    assert refused.would_reject
    assert not refused.rejects


def test_nothing_is_chained_behind_a_webhook_that_is_not_enforced() -> None:
    memory, given = ChangeRates(), request()
    chain = [webhook(name) for name in (A, B)]
    for _ in range(9):
        memory.note(chain[0], given, changed=True)
    changing = {A: patch(add("/x", 1))}
    evaluation = settle(chain, given, changing, memory=memory, modes=WARN)
    assert evaluation.kept_ahead == 1
    assert [outcome.call.is_followed for outcome in evaluation.outcomes if outcome.call] == [False, False]
    assert memory.usually_changes(chain[0], given)


def test_texts_of_enforced_webhooks_come_first_and_are_not_displaced() -> None:
    long = tuple(f"{number:03}" + "w" * (MAX_WARNING_CHARS - 3) for number in range(20))
    loud = Denied(403, message="no team", warnings=long, audit_annotations=(("k", "mine"),))
    quiet = Allowed(warnings=("careful",), audit_annotations=(("k", "theirs"),))
    named_alike = [webhook(A, phase="validate", configuration=name) for name in ("one", "two")]
    answers = iter((loud, quiet))
    decision = decide(settle(named_alike, request(), lambda _: next(answers), modes=WARN), "Metadata")
    assert decision.warnings[0] == "careful"
    assert sum(map(len, decision.warnings)) <= MAX_WARNINGS_CHARS
    assert decision.audit_annotations[f"{A}.k"] == "theirs"


def test_a_message_cannot_forge_a_warning_or_fill_the_audit_log() -> None:
    hostile = Denied(403, message="no\r\nX-Forged: 1\x1b[2J\x00" + "x" * 10_000)
    decision = decided(hostile, modes=WARN)
    (warning,) = decision.warnings
    assert warning.startswith(f"would be refused: {A}: no  X-Forged: 1 [2J xxx")
    assert len(warning) == MAX_WARNING_CHARS
    (annotation,) = decision.audit_annotations.values()
    assert annotation.isprintable()
    assert len(json.loads(annotation)["message"]) == MAX_NOT_ENFORCED_CHARS


def test_a_webhook_in_the_mode_shadow_has_no_part_in_the_evaluation() -> None:
    evaluation = evaluated(NO, patch(add("/x", 1)), modes={0: "Shadow"}, phase="mutate")
    assert [outcome.invocation.webhook.name for outcome in evaluation.outcomes] == [B]
    assert list(decide(evaluation, "Metadata").audit_annotations) == ["mutation.round_0_index_0"]


@pytest.mark.parametrize(
    ("verdict", "line"),
    [
        (NO, "matched, denied in N ms with 403: no team; the mode Warn lets the request pass"),
        (BROKEN, "matched, failed in N ms: UNAVAILABLE: gone; the mode Warn lets the request pass"),
        (ALLOWED, "matched, allowed in N ms"),
        (
            patch(add("/x", 1)),
            (
                "matched, allowed in N ms, the mode Warn does not apply its patch: "
                '[{"op":"add","path":"/x","value":1}]'
            ),
        ),
    ],
)
def test_the_explanation_names_the_mode(verdict: Verdict, line: str) -> None:
    hook = webhook(A)
    evaluation = settle([hook], request(), {A: verdict}, modes=WARN)
    (found,) = explain(evaluation, Selection("mutate", [hook]))
    assert re.sub(r"[0-9.]+ ms", "N ms", found) == f"mutate policies/{A}: {line}"


def test_the_explanation_of_a_shadow_is_that_it_is_called_later() -> None:
    hook = webhook(A)
    evaluation = settle([hook], request(), modes={0: "Shadow"})
    (found,) = explain(evaluation, Selection("mutate", [hook]))
    assert found == f"mutate policies/{A}: called after the answer, by its mode Shadow"
