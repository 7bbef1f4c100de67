"""Chains, and policies that share a payload, equal a serial run, in which each call is a Review."""

from __future__ import annotations

import asyncio
import gc
import logging
import math
from itertools import count
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from admission_gateway_worker import Denied, PolicyServer, Review, calls, payload
from admission_gateway_worker.answer import Outcome
from admission_gateway_worker.evaluation import Evaluator
from admission_gateway_worker.invoke import run
from admission_gateway_worker.json_patch.patch import PatchConflict, parse_patch
from admission_gateway_worker.json_patch.steps import finish
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.sharing import FIRST_CALLS, OWN_CALLS, PERIOD, Sharing
from gateway.pure.core.call import Payload as GatewayPayload
from gateway.pure.core.identity import PatchRefused
from gateway.pure.core.review import decode
from tests.waiting import until
from tests.workers.conftest import make_calls

if TYPE_CHECKING:
    from collections.abc import Callable

KEYS = ["a", "b", "é", "~/"]
VALUES: st.SearchStrategy[Any] = st.recursive(
    st.sampled_from([None, True, False, 0, 1, 1.0, -0.0, 0.0, 2**63, "", "x", "é"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=3),
    max_leaves=12,
)
OBJECTS = st.dictionaries(st.sampled_from(KEYS), VALUES, max_size=4)


@pytest.fixture(autouse=True)
def _no_records(monkeypatch: pytest.MonkeyPatch) -> None:
    """Pytest keeps records of failures, which refer to frames, and so to the requests that are counted."""
    monkeypatch.setattr(logging.getLogger("admission_gateway_worker"), "disabled", True)


kept: list[Any] = []
"""What policies keep of a review after their end."""


def _set(review: Review, key: str, value: Any) -> None:
    review.object["spec"][key] = orjson.loads(orjson.dumps(value))


def _remove(review: Review, key: str, value: Any) -> None:
    review.object["spec"].pop(key, None)


def _set_inside(review: Review, key: str, value: Any) -> None:
    inner = review.object["spec"].get(key)
    if isinstance(inner, dict):
        inner["a"] = value
    elif isinstance(inner, list):
        inner.insert(0, value)


def _replace_lists(review: Review, key: str, value: Any) -> None:
    review.object["spec"] = {
        name: tuple(member) if isinstance(member, list) else member
        for name, member in review.object["spec"].items()
    }


def _reverse_keys(review: Review, key: str, value: Any) -> None:
    review.object["spec"] = dict(reversed(review.object["spec"].items()))


def _equal_value(review: Review, key: str, value: Any) -> None:
    spec = review.object["spec"]
    for name, member in spec.items():
        if member == 1:
            spec[name] = True if type(member) is float else 1.0


def _keep(review: Review, key: str, value: Any) -> None:
    kept.append(review.object["spec"])
    kept.append(review)


def _change_kept(review: Review, key: str, value: Any) -> None:
    for part in kept:
        spec = part if isinstance(part, dict) else part.object["spec"]
        spec[key] = value


def _change_request(review: Review, key: str, value: Any) -> None:
    review.request["userInfo"] = {"username": key}


def _alias(review: Review, key: str, value: Any) -> None:
    shared = [value]
    review.object["spec"].update(a=shared, b=shared)


def _send_patch(review: Review, key: str, value: Any) -> None:
    spec = review.object["spec"]
    review.patch = [{"op": "add", "path": "/spec/a", "value": spec.get("a")}]
    if "a" not in spec:
        review.patch = [{"op": "add", "path": "/spec/a", "value": value}, {"op": "remove", "path": "/spec/a"}]


def _send_wrong_patch(review: Review, key: str, value: Any) -> None:
    review.patch = [{"op": "add", "path": "/spec/x", "value": 1}, {"op": "remove", "path": "/none"}]


def _send_loose_patch(review: Review, key: str, value: Any) -> None:
    review.patch = [{"op": "replace", "path": "/spec/b", "value": value}]


def _deny(review: Review, key: str, value: Any) -> None:
    review.object["spec"].clear()
    raise Denied("no", field=key)


def _fail(review: Review, key: str, value: Any) -> None:
    review.object["spec"].clear()
    raise ValueError(key)


def _warn(review: Review, key: str, value: Any) -> None:
    review.warn(key)


STEPS: list[Callable[[Review, str, Any], None]] = [
    *(_set, _remove, _set_inside, _replace_lists, _reverse_keys, _equal_value, _keep, _change_kept),
    *(_change_request, _alias, _send_patch, _send_wrong_patch, _send_loose_patch, _deny, _fail, _warn),
]
KINDS = ["plain", "plain", "plain", "async", "waiting", "thread"]


class Step:
    """A policy that records what it gets, and then does one of STEPS."""

    def __init__(self, step: Callable[[Review, str, Any], None], key: str, value: Any) -> None:
        self.step, self.key, self.value = step, key, value
        self.seen: list[tuple[object, int]] = []
        self.is_exact = True
        """Whether it records types that have the same JSON, such as lists and tuples."""

    def __call__(self, review: Review) -> None:
        request = review.request
        self.seen.append((repr(request) if self.is_exact else orjson.dumps(request), review.size_bytes))
        del request
        self.step(review, self.key, self.value)


def _serve(steps: list[tuple[Step, str, bool]]) -> PolicyServer:
    server = PolicyServer()
    for number, (step, kind, mutating) in enumerate(steps):

        async def at_once(review: Review, step: Step = step) -> None:
            step(review)

        async def waiting(review: Review, step: Step = step) -> None:
            await asyncio.sleep(0)
            step(review)
            await asyncio.sleep(0)

        function: Any = {"async": at_once, "waiting": waiting}.get(kind, step)
        server.policy(str(number), mutating=mutating, blocking=kind == "thread")(function)
    return server


async def _outcomes(server: PolicyServer, batch: pb.ReviewBatch, end: float = 0.0) -> dict[int, Outcome]:
    outcomes: dict[int, Outcome] = {}
    chained = set()

    def report(number: int, outcome: Outcome, is_chained: bool) -> None:
        assert number not in outcomes
        outcomes[number] = outcome
        if is_chained:
            chained.add(number)

    evaluator = Evaluator()
    calls, rpc = make_calls(server, evaluator, report)
    calls.accept(batch, evaluator.loop.time())
    while calls.is_busy:
        calls.go_on(end)
    await until(lambda: not calls)
    await evaluator.close()
    kept.clear()
    if rpc.held_bytes:
        gc.collect()  # exceptions of policies refer to their frames
    assert rpc.held_bytes == 0
    assert chained == {call.id for call in batch.calls if call.after}
    return outcomes


def _after(payload: GatewayPayload, outcome: Outcome) -> GatewayPayload:
    """Return what the gateway sends to the next webhook."""
    if not isinstance(outcome, pb.ReviewResponse) or not outcome.allowed or not outcome.patch:
        return payload
    try:
        return finish(payload.patched(parse_patch(outcome.patch), outcome.patch)) or payload
    except (PatchConflict, PatchRefused):
        return payload


def _request(held: dict[str, Any]) -> bytes:
    names = {"group": "", "version": "v1"}
    request = {
        "uid": "u",
        "kind": {**names, "kind": "Pod"},
        "resource": {**names, "resource": "pods"},
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "n"}, "spec": held},
        "operation": "CREATE",
        "userInfo": {"username": "u"},
    }
    return orjson.dumps({"kind": "AdmissionReview", "apiVersion": "admission.k8s.io/v1", "request": request})


Batch = tuple[bytes, list[tuple[Step, str, bool]], list[int]]


@st.composite
def _batches(draw: st.DrawFn) -> Batch:
    steps = draw(
        st.lists(
            st.tuples(
                st.builds(Step, st.sampled_from(STEPS), st.sampled_from(KEYS), VALUES),
                st.sampled_from(KINDS),
                st.booleans(),
            ),
            min_size=1,
            max_size=6,
        )
    )
    after = [draw(st.integers(max(0, number - 3), number)) for number in range(len(steps))]
    return _request(draw(OBJECTS)), steps, after


ENDS = st.sampled_from([0.0, math.inf])
"""The end of a slice: after each call, or after all."""


@settings(max_examples=100)
@given(_batches(), ENDS)
def test_chains_equal_a_serial_run(batch: Batch, end: float) -> None:
    equal_a_serial_run(batch, end)


@settings(max_examples=100)
@given(_batches(), ENDS)
def test_chains_of_policies_that_changed_nothing_yet_equal_a_serial_run(batch: Batch, end: float) -> None:
    equal_after_calls(batch, end)


@pytest.mark.slow
@settings(max_examples=1000)
@given(_batches(), ENDS)
def test_more_chains_equal_a_serial_run(batch: Batch, end: float) -> None:
    equal_a_serial_run(batch, end)
    equal_after_calls(batch, end)


def equal_after_calls(batch: Batch, end: float) -> None:
    """``equal_a_serial_run`` for policies of which only the JSON of what they leave is compared."""
    for step, kind, _ in batch[1]:
        # What a policy kept is not to change while another policy runs.
        assume(step.step is not _change_kept or kind != "thread")
        step.is_exact = False
    equal_a_serial_run(batch, end, FIRST_CALLS)


def equal_a_serial_run(batch: Batch, end: float, calls: int = 0) -> None:
    """Call N + 1 runs step N, after the call after[N], or on the payload itself.

    The policies have left the request as it was in so many *calls*.
    """
    body, steps, after = batch
    request = decode(body)
    kept.clear()
    server = _serve(steps)
    for policy in server.policies.values():
        policy.sharing = Sharing(policy.function, calls)
    expected: dict[int, Outcome] = {}
    payloads = {0: GatewayPayload(request)}
    for number, (step, _, mutating) in enumerate(steps, 1):
        kept.clear()
        payload = payloads[after[number - 1]]
        outcome = run(_plain(step, mutating=mutating), Review(payload.json, mutating=mutating))
        assert isinstance(outcome, Outcome)
        expected[number] = outcome
        payloads[number] = _after(payload, expected[number])
    serial = [step.seen.copy() for step, _, _ in steps]
    for step, _, _ in steps:
        step.seen.clear()
    message = pb.ReviewBatch(payloads=[pb.Payload(admission_request=request.json)])
    for number in range(1, len(steps) + 1):
        message.calls.add(id=number, policy=str(number - 1), timeout_millis=60_000, after=after[number - 1])
    for _ in range(2):  # the policies keep no state that changes the second turn
        kept.clear()
        outcomes = asyncio.run(_outcomes(server, message, end))
        assert [step.seen for step, _, _ in steps] == serial
        assert outcomes == expected
        for step, _, _ in steps:
            step.seen.clear()


@pytest.mark.parametrize("first", [0, FIRST_CALLS])
def test_a_policy_that_keeps_parts_has_requests_of_its_own(first: int) -> None:
    parts: list[dict[str, Any]] = []
    server = PolicyServer()
    calls = count()

    @server.policy("keep")
    def keep(review: Review) -> None:
        if next(calls) >= first:
            parts.append(review.object["spec"])

    @server.policy("change")
    def change(review: Review) -> None:
        review.object["spec"]["changed"] = True

    message = pb.ReviewBatch(payloads=[pb.Payload(admission_request=b'{"object":{"spec":{}}}')])
    for number, name in enumerate(server.policies, 1):
        message.calls.add(id=number, policy=name, timeout_millis=60_000)
    for _ in range(first + PERIOD + 1):
        asyncio.run(_outcomes(server, message, math.inf))
    # At the latest after a period.
    assert parts[PERIOD if first else 0 :] == [{}] * (1 if first else PERIOD + 1)


def test_a_request_is_parsed_once_for_policies_that_leave_it(monkeypatch: pytest.MonkeyPatch) -> None:
    parsed: list[bytes] = []
    parse = payload.Payload.parse

    def counted(self: payload.Payload) -> payload.JsonObject:
        parsed.append(self.json)
        return parse(self)

    monkeypatch.setattr(payload.Payload, "parse", counted)
    server = PolicyServer()
    for name in "abc":
        server.policy(name)(lambda review: review.warn(review.request["text"]))
    # As orjson writes it, and with an escape that it does not write.
    texts = (b'{"text":"<"}', b'{"text":"\\u003c"}')
    message = pb.ReviewBatch(payloads=[pb.Payload(admission_request=text) for text in texts])
    for number in range(6):
        message.calls.add(id=number + 1, policy="abc"[number % 3], payload=number // 3, timeout_millis=60_000)
    for _ in range(FIRST_CALLS + PERIOD):
        parsed.clear()
        outcomes = asyncio.run(_outcomes(server, message, math.inf))
        assert parsed == [*texts]
        allowed = pb.ReviewResponse(allowed=True, warnings=["<"])
        assert list(outcomes.values()) == [allowed] * 6


def test_the_first_calls_are_checked_in_full_and_then_some() -> None:
    sharing = Sharing(None)
    full = [number for number in range(1, 4 * PERIOD + 1) if sharing.next_way() == "full"]
    assert full == [*range(1, FIRST_CALLS + 1), *range(PERIOD, 4 * PERIOD + 1, PERIOD)]
    sharing.failed()
    ways = [sharing.next_way() for _ in range(OWN_CALLS + FIRST_CALLS + 1)]
    assert ways == ["own"] * OWN_CALLS + ["full"] * FIRST_CALLS + ["json"]


@pytest.mark.parametrize("is_explicit", [False, True])
def test_the_requests_of_a_chain_are_bounded(is_explicit: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    most = 32 * 1024
    for module in (payload, calls):
        monkeypatch.setattr(module, "MAX_CHAINED_BYTES", most)
    server = PolicyServer()
    sizes = []

    @server.policy("double", mutating=True)
    def double(review: Review) -> None:
        sizes.append(review.size_bytes)
        if is_explicit:
            review.patch = [{"op": "copy", "from": "/spec", "path": f"/spec/{len(sizes)}"}]
        else:
            review.object["spec"] = [review.object["spec"]] * 2

    message = pb.ReviewBatch(payloads=[pb.Payload(admission_request=b'{"object":{"spec":{}}}')])
    for number in range(1, 60):
        message.calls.add(id=number, policy="double", timeout_millis=60_000, after=number - 1)
    outcomes = asyncio.run(_outcomes(server, message))
    assert most / 4 < max(sizes) <= most
    assert [type(outcomes[number]) for number in range(1, 60)] == [
        *[pb.ReviewResponse] * len(sizes),
        *[pb.Error] * (59 - len(sizes)),
    ]


def _plain(step: Step, *, mutating: bool) -> Any:
    server = PolicyServer()
    server.policy("p", mutating=mutating)(step)
    return server.policies["p"]
