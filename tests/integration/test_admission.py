"""A review from its bytes to its answer, without front end and workers."""

from __future__ import annotations

import asyncio
import gc
from typing import TYPE_CHECKING

import orjson

from gateway.base.errors import MalformedReview, Overloaded
from gateway.config.merge.model import Config
from gateway.engine.cluster_source import ClusterView, NoCluster
from gateway.engine.engine import Engine
from gateway.observe.telemetry.metrics import Metrics
from gateway.pure.core.large import LARGE_BYTES
from gateway.pure.core.namespace import Namespace
from tests.core.build import body, document, labelled, webhook
from tests.engines import begin, snapshot_of
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.engine.cluster_source import FoundNamespace, NamespaceLookUp
    from gateway.pure.core.answer import Answer

LARGE = "x" * (LARGE_BYTES + 1)


class Cluster(NoCluster):
    """A cluster without anything but a look-up of namespaces."""

    def __init__(self, look_up: NamespaceLookUp) -> None:
        self.view = ClusterView({}, look_up, lambda *_: lambda: None)


class Case:
    """An admission whose cluster answers look-ups on request, and the results of its reviews."""

    def __init__(self) -> None:
        self.answers: list[Answer] = []
        self.errors: list[tuple[type[Exception], str]] = []
        self.look_ups: list[Callable[[FoundNamespace], None]] = []
        self.cancelled_look_ups = 0
        self.metrics = Metrics()
        # Its pool does not exist, so each of its calls fails.
        selective = webhook(namespace_selector=labelled("team", "a"), failure_policy="Ignore")
        self.config = Config(mutating=(selective,))

    async def start(self) -> None:
        self.engine = Engine(self.metrics, lambda pool: ())
        self.engine.activate(await self.engine.prepare(self.config, Cluster(self.look_up)))

    def look_up(
        self, name: str, timeout_s: float, found: Callable[[FoundNamespace], None]
    ) -> Callable[[], None]:
        self.look_ups.append(found)
        return self.cancel_look_up

    def cancel_look_up(self) -> None:
        self.cancelled_look_ups += 1

    def review(self, content: bytes, budget_s: float = 30.0) -> Callable[[], None]:
        selection = snapshot_of(self.engine).paths["/mutate"]
        return begin(self.engine, selection, content, self.answers.append, self.failed, budget_s)

    def failed(self, error: Exception) -> None:
        # Not the error itself, whose traceback refers to the review.
        self.errors.append((type(error), str(error)))

    def reviews_alive(self) -> int:
        """The number of reviews in memory."""
        return sum(type(found).__name__ == "_Review" for found in gc.get_objects())


def run(scenario: Callable[[Case], Awaitable[None]]) -> Case:
    """Run *scenario*, a coroutine function, without garbage collection, and check that no review stays."""
    case = Case()

    async def main() -> None:
        await case.start()
        gc.collect()
        gc.disable()
        try:
            await scenario(case)
            assert case.reviews_alive() == 0, "only the garbage collector would free the review"
        finally:
            gc.enable()
            await case.engine.close()

    asyncio.run(main())
    return case


def test_a_review_waits_for_its_namespace_and_is_answered() -> None:
    async def scenario(case: Case) -> None:
        case.review(body(document()))
        assert not case.answers
        case.look_ups.pop()(Namespace("default", {"team": "a"}, b"{}"))

    case = run(scenario)
    (answer,) = case.answers
    assert orjson.loads(answer.body)["response"]["allowed"] is True
    assert [outcome.rejects for outcome in answer.evaluation.outcomes] == [False]
    assert not case.errors


def test_a_cancelled_review_cancels_its_look_up_and_is_counted() -> None:
    async def scenario(case: Case) -> None:
        case.review(body(document()))()
        case.look_ups.clear()

    case = run(scenario)
    assert case.cancelled_look_ups == 1
    assert case.metrics.cancelled == {"mutate": 1}
    assert not case.answers
    assert not case.errors


def test_a_large_review_is_decoded_later() -> None:
    async def scenario(case: Case) -> None:
        case.review(body(document(object={"data": LARGE})))
        assert not case.look_ups
        await until(lambda: case.look_ups)
        case.look_ups.pop()(None)

    (answer,) = run(scenario).answers
    assert answer.decision.allowed


def test_a_large_review_can_be_cancelled_before_it_is_decoded() -> None:
    async def scenario(case: Case) -> None:
        case.review(body(document(object={"data": LARGE})))()
        case.review(body(document(object={"data": LARGE})))
        await until(lambda: case.look_ups)
        case.look_ups.pop()(None)

    case = run(scenario)
    assert len(case.answers) == 1
    assert case.metrics.cancelled == {"mutate": 1}


def test_malformed_bodies_fail() -> None:
    async def scenario(case: Case) -> None:
        case.review(body({}))
        case.review(b"[" + b" " * LARGE_BYTES)
        await until(lambda: len(case.errors) == 2)

    assert [kind for kind, _ in run(scenario).errors] == [MalformedReview, MalformedReview]


def test_a_large_review_whose_time_is_over_fails() -> None:
    async def scenario(case: Case) -> None:
        case.review(body(document(object={"data": LARGE})), budget_s=0.0)
        await until(lambda: case.errors)

    text = "the 0 seconds for the review were over before it was read"
    assert run(scenario).errors == [(Overloaded, text)]
