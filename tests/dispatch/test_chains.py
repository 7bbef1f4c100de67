"""Chains: calls that a worker evaluates on the object that an earlier call leaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gateway.pure.core.verdict import Allowed, Failed, FailureReason
from tests.kit import REVIEWS
from tests.world import simulated

if TYPE_CHECKING:
    from gateway.pure.core.evaluation import Evaluation
    from tests.world import SimulatedWorld

LABELS: list[dict[str, Any]] = [{"label": name} for name in "abcd"]
CHAINED = {"phase": "mutate", "chained": True}


def labels(evaluation: Evaluation) -> set[str]:
    """Return the labels that the webhooks have added."""
    return set(metadata(evaluation)["labels"]) & set("abcd")


def metadata(evaluation: Evaluation) -> Any:
    assert evaluation.final_object is not None
    return evaluation.final_object["metadata"]


@simulated
async def test_a_chain_is_one_batch(world: SimulatedWorld) -> None:
    await world.ready_pool(world.start_worker(chains=True))
    evaluation = await world.settle(*LABELS, **CHAINED)
    assert labels(evaluation) == set("abcd")
    assert (evaluation.kept_ahead, evaluation.discarded_ahead) == (3, 0)
    report = await world.report()
    assert (report["calls"], report["chained"], report["batches"], report["payloads"]) == (5, 3, 2, 2)


@pytest.mark.parametrize(("streams", "chains"), [(True, False), (False, False), (False, True)])
@simulated
async def test_a_worker_without_chains_is_called_serially(
    world: SimulatedWorld, *, streams: bool, chains: bool
) -> None:
    await world.ready_pool(world.start_worker(streams=streams, chains=chains))
    for _ in range(3):
        evaluation = await world.settle(*LABELS, **CHAINED)
        assert labels(evaluation) == set("abcd")
        assert evaluation.kept_ahead == 0
    report = await world.report()
    # The first review has three calls too many: no verdict has shown yet that the worker has no chains.
    assert report.get("chained", 0) == (3 if streams else 0)
    assert report["scripts"] == 3 * 4 + report.get("chained", 0) + 1


@simulated
async def test_a_chain_of_a_large_request_is_sent_by_unary_calls(world: SimulatedWorld) -> None:
    review = orjson.loads((REVIEWS / "pod-create-mutate.json").read_bytes())
    review["request"]["object"]["metadata"]["annotations"] = {"padding": "x" * 70_000}
    await world.ready_pool(world.start_worker(chains=True))
    evaluation = await world.settle(*LABELS, body=orjson.dumps(review), **CHAINED)
    assert labels(evaluation) == set("abcd")
    report = await world.report()
    assert (report["unary"], report.get("chained", 0)) == (4, 0)


@simulated
async def test_the_timeout_of_a_call_counts_from_the_verdict_before_it(world: SimulatedWorld) -> None:
    slow = {"delay_ms": 2000, "timeout_s": 5}
    await world.ready_pool(world.start_worker(chains=True))
    evaluation = await world.settle(*({**script, **slow} for script in LABELS[:3]), **CHAINED)
    assert labels(evaluation) == set("abc")
    assert evaluation.discarded_ahead == 0


@simulated
async def test_a_call_of_a_chain_fails_at_its_timeout(world: SimulatedWorld) -> None:
    silent = {"hang": True, "timeout_s": 1, "failure_policy": "Ignore", "label": "x"}
    await world.ready_pool(world.start_worker(chains=True))
    evaluation = await world.settle(LABELS[0], silent, LABELS[1], **CHAINED)
    expected = Failed(FailureReason.DEADLINE, "DEADLINE_EXCEEDED: no answer within 1s", 504)
    assert evaluation.outcomes[1].verdict == expected
    assert labels(evaluation) == set("ab")
    assert world.is_clean()


@simulated
async def test_a_denial_cancels_the_rest_of_the_chain(world: SimulatedWorld) -> None:
    await world.ready_pool(world.start_worker(chains=True))
    denying = {"deny": {"code": 403}, "label": "a"}
    evaluation = await world.settle(denying, {"label": "b", "hang": True}, LABELS[2], **CHAINED)
    assert len(evaluation.outcomes) == 1
    assert world.is_clean()
    report = await world.report()
    assert report["cancelled"] == 2


@simulated
async def test_calls_of_a_chain_count_as_in_flight(world: SimulatedWorld) -> None:
    await world.ready_pool(world.start_worker(chains=True), max_in_flight=2)
    evaluation = await world.settle(*LABELS, **CHAINED)
    assert labels(evaluation) == set("abcd")
    report = await world.report()
    assert (report["calls"], report["chained"]) == (5, 2)


@simulated
async def test_large_patches_of_a_chain_are_not_applied_in_one_step(world: SimulatedWorld) -> None:
    large = [{"op": "add", "path": "/metadata/annotations", "value": {"x": "x" * 9_000}}]
    await world.ready_pool(world.start_worker(chains=True))
    scripts = [LABELS[0], *({"patch": large} for _ in range(3))]
    evaluation = await world.settle(*scripts, **CHAINED)
    assert all(isinstance(outcome.verdict, Allowed) for outcome in evaluation.outcomes)
    assert metadata(evaluation)["annotations"] == {"x": "x" * 9_000}
    assert evaluation.discarded_ahead == 2


@pytest.mark.parametrize("status", ["UNAVAILABLE", "INTERNAL"])
@simulated
async def test_a_chain_whose_stream_breaks_is_continued_by_other_calls(
    world: SimulatedWorld, status: str
) -> None:
    """The second call breaks every stream; by a unary call it is answered."""
    breaking = {"label": "b", **({"garbage": True} if status == "INTERNAL" else {"end": True})}
    await world.ready_pool(world.start_worker(chains=True))
    evaluation = await world.settle(LABELS[0], {**breaking, "failure_policy": "Ignore"}, **CHAINED)
    assert "a" in labels(evaluation)
    assert len(evaluation.outcomes) == 2
    assert world.is_clean()
