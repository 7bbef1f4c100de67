"""Large patches are applied in steps, with the same result as in one."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.work_queue import WorkQueue
from gateway.engine.dispatch.backends import Backends
from gateway.engine.dispatch.driver import LARGE_PATCH_BYTES
from gateway.pure.core.verdict import Failed
from tests.waiting import until
from tests.world import simulated

if TYPE_CHECKING:
    from collections.abc import Generator

    from gateway.pure.core.evaluation import Evaluation
    from tests.simulation.loop import VirtualLoop
    from tests.world import SimulatedWorld

COUNT = 600
MUTATE = {"phase": "mutate"}


def large(prefix: str, *first: dict[str, Any]) -> dict[str, Any]:
    """Return the script of a policy that adds ``COUNT`` labels: after *first*, or to no labels."""
    labels = [
        {"op": "add", "path": f"/metadata/labels/{prefix}{number}", "value": "x"} for number in range(COUNT)
    ]
    start = {"op": "add", "path": "/metadata/labels", "value": {}}
    return {"patch": [*(first or [start]), *labels]}


def labels_of(evaluation: Evaluation) -> dict[str, str]:
    labels: dict[str, str] = (evaluation.final_object or {})["metadata"]["labels"]
    return labels


def endless(loop: VirtualLoop) -> Generator[None, None, None]:
    """Yield after each millisecond of work."""
    while True:
        loop.advance(0.001)
        yield


def never(result: object) -> None:
    pytest.fail(f"an unexpected result: {result}")


@simulated
async def test_each_patch_applies_to_the_result_of_the_one_before(world: SimulatedWorld) -> None:
    needs = {"op": "test", "path": "/metadata/labels/a1", "value": "x"}
    assert len(str(large("a"))) > LARGE_PATCH_BYTES
    await world.ready_pool()
    one = await world.settle(large("a"), large("b", needs), **MUTATE)
    assert [outcome.has_changed for outcome in one.outcomes] == [True, True]
    assert len(labels_of(one).keys() & {f"{p}{n}" for p in "ab" for n in range(COUNT)}) == 2 * COUNT
    other = await world.settle(large("b", needs), large("a"), **MUTATE)
    (refused,) = other.outcomes
    assert isinstance(refused.verdict, Failed)
    assert "operation 0" in refused.verdict.cause


@pytest.mark.parametrize("ending", ["deadline", "the client disconnects"])
@simulated
async def test_a_queued_patch_ends_with_its_review(
    world: SimulatedWorld, monkeypatch: pytest.MonkeyPatch, ending: str
) -> None:
    busy = WorkQueue(world.loop.time)
    monkeypatch.setattr(Backends, "patch_queue", lambda *_: busy)
    stop = busy.begin(endless(world.loop), never, never)
    await world.ready_pool()
    if ending == "deadline":
        evaluation = await world.settle({**large("a"), "timeout_s": 2}, **MUTATE)
        (outcome,) = evaluation.outcomes
        assert isinstance(outcome.verdict, Failed)
        assert outcome.verdict.cause == "DEADLINE_EXCEEDED: no answer within 2s"
        assert not evaluation.has_changed
    else:
        cancel = world.start([large("a")], never, **MUTATE)
        await until(lambda: len(busy) == 2, "the patch waits")
        cancel()
    stop()
    await until(lambda: not busy.has_work(), "nothing is left of it")
    await asyncio.sleep(0)
