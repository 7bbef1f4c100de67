"""A review from its bytes to its answer, without front end and workers."""

from __future__ import annotations

import gc
from typing import TYPE_CHECKING

import orjson

from gateway.base.errors import MalformedReview, Overloaded
from gateway.config.merge.model import Config
from gateway.engine.cluster_source import ClusterView, NoCluster
from gateway.pure.core.large import LARGE_BYTES
from gateway.pure.core.namespace import Namespace
from tests.core.build import body, document, labelled, webhook
from tests.engines import begin
from tests.waiting import until
from tests.world import SimulatedWorld, simulate

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from gateway.engine.cluster_source import FoundNamespace, NamespaceLookUp
    from gateway.pure.core.answer import Answer
    from tests.simulation.loop import VirtualLoop

LARGE = "x" * (LARGE_BYTES + 1)


class Cluster(NoCluster):
    """A cluster without anything but a look-up of namespaces."""

    def __init__(self, look_up: NamespaceLookUp) -> None:
        self.view = ClusterView({}, look_up, lambda *_: lambda: None)


class Admitting(SimulatedWorld):
    """A world whose cluster answers look-ups on request, and the results of its reviews."""

    def __init__(self, loop: VirtualLoop) -> None:
        super().__init__(loop)
        self.answers: list[Answer] = []
        self.errors: list[tuple[type[Exception], str]] = []
        self.look_ups: list[Callable[[FoundNamespace], None]] = []
        self.cancelled_look_ups = 0

    async def activate(self) -> None:
        # The pool of the webhook does not exist, so each of its calls fails.
        selective = webhook(namespace_selector=labelled("team", "a"), failure_policy="Ignore")
        config = Config(mutating=(selective,))
        self.engine.activate(await self.engine.prepare(config, Cluster(self.look_up)))

    def look_up(
        self, name: str, timeout_s: float, found: Callable[[FoundNamespace], None]
    ) -> Callable[[], None]:
        self.look_ups.append(found)
        return self.cancel_look_up

    def cancel_look_up(self) -> None:
        self.cancelled_look_ups += 1

    def begin(self, content: bytes, budget_s: float = 30.0) -> Callable[[], None]:
        """Begin a review, and return a function that cancels it."""
        selection = self.snapshot.paths["/mutate"]
        return begin(self.engine, selection, content, self.answers.append, self.failed, budget_s)

    def failed(self, error: Exception) -> None:
        # Not the error itself, whose traceback refers to the review.
        self.errors.append((type(error), str(error)))

    def reviews_alive(self) -> int:
        """The number of reviews in memory."""
        return sum(type(found).__name__ == "_Review" for found in gc.get_objects())


def run(scenario: Callable[[Admitting], Awaitable[None]]) -> Admitting:
    """Run *scenario*, a coroutine function, without garbage collection, and check that no review stays."""
    worlds: list[Admitting] = []

    async def main(world: Admitting) -> None:
        worlds.append(world)
        await world.activate()
        gc.collect()
        gc.disable()
        try:
            await scenario(world)
            assert world.reviews_alive() == 0, "only the garbage collector would free the review"
        finally:
            gc.enable()

    simulate(main, Admitting)
    return worlds[0]


def test_a_review_waits_for_its_namespace_and_is_answered() -> None:
    async def scenario(world: Admitting) -> None:
        world.begin(body(document()))
        assert not world.answers
        world.look_ups.pop()(Namespace("default", {"team": "a"}, b"{}"))

    world = run(scenario)
    (answer,) = world.answers
    assert orjson.loads(answer.body)["response"]["allowed"] is True
    assert [outcome.rejects for outcome in answer.evaluation.outcomes] == [False]
    assert not world.errors


def test_a_cancelled_review_cancels_its_look_up_and_is_counted() -> None:
    async def scenario(world: Admitting) -> None:
        world.begin(body(document()))()
        world.look_ups.clear()

    world = run(scenario)
    assert world.cancelled_look_ups == 1
    assert world.metrics.cancelled == {"mutate": 1}
    assert not world.answers
    assert not world.errors


def test_a_large_review_is_decoded_later() -> None:
    async def scenario(world: Admitting) -> None:
        world.begin(body(document(object={"data": LARGE})))
        assert not world.look_ups
        await until(lambda: world.look_ups)
        world.look_ups.pop()(None)

    (answer,) = run(scenario).answers
    assert answer.decision.allowed


def test_a_large_review_can_be_cancelled_before_it_is_decoded() -> None:
    async def scenario(world: Admitting) -> None:
        world.begin(body(document(object={"data": LARGE})))()
        world.begin(body(document(object={"data": LARGE})))
        await until(lambda: world.look_ups)
        world.look_ups.pop()(None)

    world = run(scenario)
    assert len(world.answers) == 1
    assert world.metrics.cancelled == {"mutate": 1}


def test_malformed_bodies_fail() -> None:
    async def scenario(world: Admitting) -> None:
        world.begin(body({}))
        world.begin(b"[" + b" " * LARGE_BYTES)
        await until(lambda: len(world.errors) == 2)

    assert [kind for kind, _ in run(scenario).errors] == [MalformedReview, MalformedReview]


def test_a_large_review_whose_time_is_over_fails() -> None:
    async def scenario(world: Admitting) -> None:
        world.begin(body(document(object={"data": LARGE})), budget_s=0.0)
        await until(lambda: world.errors)

    text = "the 0 seconds for the review were over before it was read"
    assert run(scenario).errors == [(Overloaded, text)]
