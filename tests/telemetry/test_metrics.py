"""The metrics of reviews, compared with a separate count of each series."""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.observe.telemetry import metrics as module
from gateway.observe.telemetry.aggregation import ProcessMetrics
from gateway.observe.telemetry.exposition import OPENMETRICS, expose
from gateway.observe.telemetry.metrics import Metrics
from gateway.pure.core.call import Call, Payload
from gateway.pure.core.conditions import Excluded
from gateway.pure.core.matching import Invocation, PolicyInvocation, Selection
from gateway.pure.core.outcome import Outcome
from gateway.pure.core.verdict import (
    ALLOWED,
    DRY_RUN_REFUSED,
    Allowed,
    Denied,
    DryRunRefused,
    Failed,
    FailureReason,
)
from tests.core.build import request, webhook

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.verdict import Verdict

UNREACHED = Failed(FailureReason.NAMESPACE, "not found", 404)
VERDICTS: list[Verdict | DryRunRefused] = [
    ALLOWED,
    Allowed(warnings=("w",)),
    Denied(403),
    Denied(599),
    Failed(FailureReason.STATUS, "UNAVAILABLE", 503),
    UNREACHED,
    DRY_RUN_REFUSED,
]
SELECTIONS = [
    Selection(
        "validate", [webhook(f"{policy}{n}", phase="validate", failure_policy=policy) for n in range(2)]
    )
    for policy in ("Fail", "Ignore")
]
ASKED = {operation: request(operation=operation) for operation in ("CREATE", "UPDATE")}


def settled(invocation: Invocation, verdict: Verdict | DryRunRefused, operation: str) -> Outcome:
    if verdict is UNREACHED or isinstance(verdict, DryRunRefused):
        return Outcome(invocation, 0, verdict, None, None)
    assert not isinstance(invocation, PolicyInvocation)
    call = Call(0, invocation, Payload(ASKED[operation]), is_ahead=False)
    call.elapsed_s = 0.25
    return Outcome(invocation, 0, verdict, None if isinstance(verdict, Failed) else verdict, call)


def samples(metrics: Metrics, name: str) -> dict[tuple[str, ...], float]:
    """The values of one series by those of its labels, in the order in which they are declared."""
    return {
        tuple(sample.labels.values()): sample.value
        for family in metrics.registry.collect()
        for sample in family.samples
        if sample.name == f"admission_gateway_{name}"
    }


outcomes = st.tuples(
    st.sampled_from(SELECTIONS),
    st.integers(0, 1),
    st.sampled_from(VERDICTS),
    st.sampled_from(["CREATE", "UPDATE"]),
)


@given(reviews=st.lists(outcomes, max_size=12), kept=st.sampled_from([1, 2, 100]))
@settings(deadline=None)
def test_every_outcome_is_counted_once_under_its_own_labels(
    reviews: Sequence[tuple[Selection, int, Verdict | DryRunRefused, str]], kept: int
) -> None:
    metrics = Metrics()
    requests: Counter[tuple[str, ...]] = Counter()
    rejections: Counter[tuple[str, ...]] = Counter()
    opened: Counter[tuple[str, ...]] = Counter()
    with pytest.MonkeyPatch.context() as patching:
        patching.setattr(module, "_KEPT_INVOCATIONS", kept)
        for selection, place, verdict, operation in reviews:
            invocation = selection.invocations(ASKED[operation], None)[place]
            name = invocation.webhook.name
            metrics.outcomes(operation, [settled(invocation, verdict, operation)])
            rejected = {Allowed: False, Failed: name.startswith("Fail")}.get(type(verdict), True)
            code = (
                200
                if isinstance(verdict, Allowed)
                else 0
                if isinstance(verdict, DryRunRefused)
                else verdict.code
            )
            if verdict is not UNREACHED:
                requests[name, "validating", operation, str(code), "true" if rejected else "false"] += 1
            if rejected:
                kind = {Denied: "no_error", Failed: "calling_webhook_error"}.get(
                    type(verdict), "gateway_internal_error"
                )
                rejections[name, "validating", operation, kind, str(code)] += 1
            elif not isinstance(verdict, Allowed):
                opened[name, "validating"] += 1
    assert samples(metrics, "webhook_requests_total") == requests
    assert samples(metrics, "webhook_rejections_total") == rejections
    assert samples(metrics, "webhook_fail_open_total") == opened
    durations = samples(metrics, "webhook_admission_duration_seconds_count")
    assert sum(durations.values()) == requests.total()


def test_the_cache_of_invocations_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "_KEPT_INVOCATIONS", 3)
    metrics = Metrics()
    for _ in range(10):
        invocation = Selection("validate", [webhook(phase="validate")]).invocations(ASKED["CREATE"], None)[0]
        metrics.outcomes("CREATE", [settled(invocation, ALLOWED, "CREATE")])
        assert len(metrics._allowed) <= 3
    assert list(samples(metrics, "webhook_requests_total").values()) == [10]


def test_plain_counters_exist_from_the_start_and_are_current_at_the_scrape() -> None:
    metrics = Metrics()
    pool = metrics.pool("p")
    assert metrics.pool("p") is pool
    assert samples(metrics, "reviews_cancelled_total") == {("admit",): 0, ("validating",): 0}
    assert samples(metrics, "worker_retries_total") == samples(metrics, "worker_hedges_total") == {("p",): 0}
    metrics.cancelled["validate"] += 2
    metrics.pool("q").retries += 3
    pool.hedges += 4
    metrics.refused = {503: 5, 400: 6}
    assert samples(metrics, "reviews_cancelled_total") == {("admit",): 0, ("validating",): 2}
    assert samples(metrics, "worker_retries_total") == {("p",): 0, ("q",): 3}
    assert samples(metrics, "worker_hedges_total") == {("p",): 4, ("q",): 0}
    assert samples(metrics, "requests_refused_total") == {("503",): 5, ("400",): 6}


numbers = st.dictionaries(st.sampled_from(["p", "q", "r"]), st.integers(0, 1000))


@given(st.lists(st.tuples(numbers, numbers), min_size=1, max_size=4))
@settings(deadline=None, max_examples=20)
def test_plain_counters_of_several_processes_are_added_up(
    processes: Sequence[tuple[dict[str, int], dict[str, int]]],
) -> None:
    scrapes = []
    for moved, withdrawn in processes:
        metrics = Metrics()
        for name, number in moved.items():
            metrics.pool(name).retries = number
        metrics.cancelled["mutate"] = sum(withdrawn.values())
        scrapes.append(expose(metrics.registry, OPENMETRICS)[0])
    total: Counter[str] = Counter()
    for moved, _ in processes:
        total.update(moved)
    lines = ProcessMetrics().add(dict(enumerate(scrapes)), set())[0].decode().splitlines()
    for name, number in total.items():
        assert f'admission_gateway_worker_retries_total{{pool="{name}"}} {float(number)}' in lines
    left = float(sum(sum(withdrawn.values()) for _, withdrawn in processes))
    assert f'admission_gateway_reviews_cancelled_total{{type="admit"}} {left}' in lines


def test_a_policy_that_an_exception_leaves_out_is_no_exclusion_by_a_condition() -> None:
    metrics = Metrics()
    (invocation,) = Selection("validate", [webhook("a", phase="validate")]).invocations(ASKED["CREATE"], None)
    metrics.exclusions("CREATE", [(invocation, Excluded("ns/e", is_exception=True))])
    metrics.exclusions("CREATE", [(invocation, Excluded("c"))])
    assert sum(samples(metrics, "match_condition_exclusions_total").values()) == 1
