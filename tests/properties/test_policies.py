"""The laws of the evaluation with mutating policies before the webhooks."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.pure.core.verdict import Failed
from tests.properties.driving import drive
from tests.properties.examples import Examples
from tests.properties.strategies import Case, cases_with_policies, chains, orders
from tests.properties.test_laws import RUNS, check_equal_to_serial, levels

if TYPE_CHECKING:
    from gateway.pure.core.annotations import AuditLevel


EXAMPLES = Examples(400, case=cases_with_policies(), **RUNS)


@EXAMPLES.law
def test_1_order_of_arrival_is_irrelevant(
    case: Case, order: list[int], other: list[int], level: AuditLevel, remembering: bool
) -> None:
    answers = [drive(case, each, remembering=remembering).answer(level) for each in (order, other)]
    assert answers[0] == answers[1]


@EXAMPLES.law
def test_2_equal_to_a_serial_run(
    case: Case, order: list[int], remembering: bool, has_chains: list[bool], level: AuditLevel
) -> None:
    check_equal_to_serial(case, drive(case, order, remembering=remembering, chains=has_chains), level)


@pytest.mark.slow
@given(case=cases_with_policies(), order=orders, remembering=st.booleans(), has_chains=chains, level=levels)
@settings(max_examples=8 * settings().max_examples)
def test_2_equal_to_a_serial_run_in_many_cases(
    case: Case, order: list[int], remembering: bool, has_chains: list[bool], level: AuditLevel
) -> None:
    check_equal_to_serial(case, drive(case, order, remembering=remembering, chains=has_chains), level)


@EXAMPLES.law
def test_4_a_failure_under_ignore_leaves_an_annotation_and_rejects_nothing(
    case: Case, order: list[int]
) -> None:
    trace = drive(case, order)
    annotations = orjson.loads(trace.answer())["response"].get("auditAnnotations", {})
    for outcome in trace.evaluation.outcomes:
        hook = outcome.invocation.webhook
        if type(outcome.verdict) is Failed and hook.failure_policy == "Ignore":
            assert not outcome.rejects
            assert hook.name in [value for key, value in annotations.items() if key.startswith("failed-open")]


@EXAMPLES.law
def test_9_policies_that_are_not_enforced_change_nothing_but_annotations(
    case: Case, order: list[int]
) -> None:
    one, other = drive(case, order), drive(case.without("Warn", "Audit", "Shadow"), order)
    answers = [orjson.loads(each.answer("None"))["response"] for each in (one, other)]
    for answer in answers:
        answer.pop("warnings", None)
        answer.pop("auditAnnotations", None)
    assert answers[0] == answers[1]
