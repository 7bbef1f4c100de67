"""Thousands of seeded reviews on virtual time: slow workers, late ones, crashing ones, in any order."""

from __future__ import annotations

import random
import zlib
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import jsonpatch
import orjson
import pytest

from gateway.core.decision import decide
from gateway.core.diff import same
from gateway.core.evaluation import Evaluation
from gateway.core.labels import EVERYTHING
from gateway.core.matching import Selection
from gateway.core.response import encode
from gateway.core.speculation import ChangeMemory
from gateway.core.verdict import ALLOWED, Allowed, Denied, Failed, FailureReason
from tests.core.build import known, labelled, request, webhook
from tests.simulation.clock import LATE, Ending, Simulation

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from gateway.core.call import Call
    from gateway.core.review import AdmissionRequest, Json
    from gateway.core.verdict import Verdict
    from gateway.core.webhook import Phase, Webhook

pytestmark = pytest.mark.slow

SEEDS = range(2500)
NAMESPACES = {"default": {"team": "a"}}
PATCHES = [
    orjson.dumps([{"op": "add", "path": path, "value": value}])
    for path, value in (("/metadata/labels/team", "b"), ("/metadata/labels/team", "a"), ("/x", 1), ("/x", 2))
] + [b'[{"op":"remove","path":"/x"}]', b'[{"op":"test","path":"/none"}]', b"[]"]


@dataclass
class World:
    """Everything about one review that follows from its seed."""

    seed: int
    phase: Phase
    webhooks: list[Webhook]
    asked: AdmissionRequest
    is_deterministic: bool
    """Whether a call's ending follows from webhook and object alone."""

    def __post_init__(self) -> None:
        self.dice = random.Random(self.seed)
        self.given: dict[Call, Ending] = {}

    def worker(self, call: Call) -> Ending:
        name, shown = call.invocation.webhook.name, call.payload.object
        self.given[call] = ending = self.ending(name, shown, self.dice)
        return ending

    def ending(self, name: str, shown: Json | None, dice: random.Random) -> Ending:
        if self.is_deterministic:
            key = orjson.dumps([self.seed, name, shown], option=orjson.OPT_SORT_KEYS)
            dice = random.Random(zlib.crc32(key))
        latency_s = dice.choice((0.0, 0.001, 0.01, 0.01, 0.1, 1.0, 2.5)) * dice.choice((1, 1, dice.random()))
        kind = dice.random()
        verdict: Verdict = ALLOWED
        if kind < 0.3:
            verdict = Allowed(dice.choice(PATCHES), dice.choice([(), ("warned",)]), (("k", str(kind)),))
        elif kind < 0.35:
            verdict = Denied(403, "", "no")
        elif kind < 0.45:
            verdict = Failed(FailureReason.STATUS, "UNAVAILABLE: gone", 503)
        return Ending(latency_s, verdict)

    def evaluation(self, memory: ChangeMemory | None = None) -> Evaluation:
        return Evaluation(
            Selection(self.phase, self.webhooks), self.asked, known(NAMESPACES, self.asked), memory
        )


def world(seed: int, phase: Phase, *, is_deterministic: bool) -> World:
    dice = random.Random(seed)
    webhooks = [
        webhook(
            f"w{number}",
            phase=phase,
            failure_policy=dice.choice(("Fail", "Ignore", "Ignore")),
            side_effects=dice.choice(("None", "None", "None", "NoneOnDryRun")),
            reinvocation_policy=dice.choice(("Never", "IfNeeded")) if phase == "mutate" else "Never",
            object_selector=dice.choice(
                (EVERYTHING, EVERYTHING, labelled("team", "a"), labelled("team", "b"))
            ),
            timeout_s=dice.choice((1, 2, 10)),
        )
        for number in range(dice.randrange(9))
    ]
    return World(seed, phase, webhooks, request(dryRun=dice.random() < 0.1), is_deterministic)


def memory_of(one: World) -> ChangeMemory:
    memory = ChangeMemory()
    for hook in one.webhooks:
        for _ in range(random.Random(one.seed + 1).randrange(8)):
            memory.note(hook, one.asked, changed=True)
    return memory


@contextmanager
def told(seed: int) -> Iterator[None]:
    """Says which seed it was when something does not hold."""
    try:
        yield
    except AssertionError as error:
        error.add_note(f"with seed {seed}")
        raise


def answer(evaluation: Evaluation) -> bytes:
    asked = evaluation.request
    return encode(asked.api_version, asked.uid, decide(evaluation, "Request"))


def serially(one: World, ending: Callable[[Call], Ending]) -> tuple[bytes, float]:
    """Ask one webhook after another with time to spare; return the answer, and how long it took.

    Nothing is asked ahead, because every webhook is said to have side effects.
    """
    blocked = [webhook_without_speculation(hook) for hook in one.webhooks]
    evaluation = Evaluation(Selection(one.phase, blocked), one.asked, known(NAMESPACES, one.asked))
    simulation = Simulation(evaluation, ending, budget_s=1e9)
    simulation.run()
    return answer(evaluation), simulation.now


def webhook_without_speculation(hook: Webhook) -> Webhook:
    members: dict[str, Any] = {name: getattr(hook, name) for name in hook.__slots__}
    return type(hook)(**{**members, "side_effects": "NoneOnDryRun"})


def check(one: World, simulation: Simulation) -> None:
    """What holds of every review, however it went."""
    evaluation = simulation.evaluation
    assert evaluation.done
    assert evaluation.take_withdrawn() == []
    said = orjson.loads(answer(evaluation))["response"]
    rejecting = [outcome for outcome in evaluation.outcomes if outcome.rejects]
    assert said["allowed"] is not bool(rejecting)
    for outcome in rejecting:
        assert outcome.invocation.webhook.name in said["status"]["message"]
    opened = [
        outcome.invocation.webhook.name
        for outcome in evaluation.outcomes
        if isinstance(outcome.verdict, Failed) and not outcome.rejects
    ]
    annotations = said.get("auditAnnotations", {})
    assert sorted(v for k, v in annotations.items() if k.startswith("failed-open.")) == sorted(opened)
    decision = decide(evaluation, "None")
    if decision.patch:
        patched = jsonpatch.apply_patch(orjson.loads(orjson.dumps(one.asked.object)), decision.patch.decode())
        assert same(patched, evaluation.final_object)
    elif decision.allowed:
        assert same(one.asked.object, evaluation.final_object)
    changes = sum(outcome.has_changed for outcome in evaluation.outcomes)
    assert len(simulation.made) <= len(one.webhooks) * (2 + changes)


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_however_long_workers_take_the_answer_is_that_of_asking_one_by_one_and_comes_no_later(
    phase: Phase,
) -> None:
    for seed in SEEDS:
        one = world(seed, phase, is_deterministic=True)
        with told(seed):
            expected, serial_s = serially(one, one.worker)
            for memory in (None, memory_of(one)):
                simulation = Simulation(one.evaluation(memory), one.worker, budget_s=1e9)
                simulation.run()
                check(one, simulation)
                assert answer(simulation.evaluation) == expected
                assert simulation.now <= serial_s + 1e-9
                if memory is None:
                    check_duration(one, simulation)


def check_duration(one: World, simulation: Simulation) -> None:
    """Where nothing changes and nobody has side effects, a review takes as long as its slowest call."""
    outcomes = simulation.evaluation.outcomes
    if any(hook.side_effects != "None" for hook in one.webhooks) or any(o.has_changed for o in outcomes):
        return
    used = [outcome.call for outcome in outcomes if outcome.call is not None]
    taken = [min(one.given[call].latency_s, call.invocation.webhook.timeout_s) for call in used]
    assert simulation.now == pytest.approx(max(taken, default=0.0))


@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_whatever_goes_wrong_the_answer_comes_in_time_and_is_that_of_the_verdicts_that_counted(
    phase: Phase,
) -> None:
    for seed in SEEDS:
        one = world(seed, phase, is_deterministic=False)
        dice = random.Random(-seed - 1)
        budget_s = dice.choice((0.0, 0.05, 1.0, 9.9, 29.9))
        crashes = [(dice.random() * 2, dice.randrange(3)) for _ in range(dice.randrange(4))]
        memory = memory_of(one) if seed % 2 else None
        with told(seed):
            simulation = Simulation(one.evaluation(memory), one.worker, budget_s, crashes, endpoints=3)
            simulation.run()
            check(one, simulation)
            assert simulation.now <= budget_s
            # Asked one by one, and given the verdicts that counted, the same comes out.
            assert serially(one, Replay(simulation.evaluation))[0] == answer(simulation.evaluation)


class Replay:
    """A worker that gives each webhook the verdicts that counted in another run, in their order."""

    def __init__(self, evaluation: Evaluation) -> None:
        self._verdicts: dict[str, list[Verdict]] = {}
        for outcome in evaluation.outcomes:
            if outcome.call is not None and outcome.call.verdict is not None:
                name = outcome.invocation.webhook.name
                self._verdicts.setdefault(name, []).append(outcome.call.verdict)

    def __call__(self, call: Call) -> Ending:
        return Ending(0.0, self._verdicts[call.invocation.webhook.name].pop(0))


def test_a_budget_that_is_over_before_the_calls_fails_every_one_of_them() -> None:
    one = world(7, "validate", is_deterministic=True)
    assert len(one.webhooks) > 1
    simulation = Simulation(one.evaluation(), lambda _: Ending(0.1, ALLOWED), budget_s=0.0)
    simulation.run()
    verdicts = [outcome.verdict for outcome in simulation.evaluation.outcomes]
    assert verdicts
    assert all(verdict is LATE for verdict in verdicts)


def test_a_seed_gives_the_same_review_again() -> None:
    for seed in SEEDS[:50]:
        answers = set()
        for _ in range(2):
            one = world(seed, "mutate", is_deterministic=False)
            simulation = Simulation(one.evaluation(), one.worker, 9.9, [(0.01, 0)])
            simulation.run()
            answers.add((answer(simulation.evaluation), simulation.now, len(simulation.made)))
        assert len(answers) == 1
