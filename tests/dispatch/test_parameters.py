"""Parameters of calls: their ids on a stream, the table, and real workers with the SDK."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker import Denied, PolicyServer, Review
from admission_gateway_worker.pb import worker_pb2
from gateway.engine.dispatch import endpoint
from gateway.engine.dispatch.parameter_ids import MAX_IDS, ParameterIds
from gateway.engine.dispatch.parameter_schema import parameter_schema
from gateway.engine.dispatch.parameters import NOWHERE, ParameterTable, merged
from gateway.engine.dispatch.verdict_cache import VerdictCache
from gateway.pure.core.call import Call, Payload
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import decode
from gateway.pure.core.verdict import ALLOWED, Allowed, Failed, FailureReason
from gateway.pure.core.webhook import MAX_PARAMETERS_BYTES, Cache, WorkerRef
from tests.core.build import webhook
from tests.kit import REVIEWS
from tests.world import in_world

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gateway.pure.core.verdict import Verdict

EVENT_LOOPS = ("asyncio", "uvloop")

REQUEST = decode((REVIEWS / "pod-create-mutate.json").read_bytes())
KEY = "example.com/parameters"
MAX = parameter_schema('{"properties": {"max": {"type": "integer"}}, "required": ["max"]}')
NONE = parameter_schema("")


@given(st.lists(st.lists(st.integers(0, 3 * MAX_IDS), max_size=MAX_IDS), max_size=6))
def test_the_worker_has_the_value_of_every_id_of_a_batch(batches: list[list[int]]) -> None:
    ids, stored = ParameterIds(), dict[int, bytes]()
    for values in batches:
        ids.begin_batch()
        encoded: list[bytes] = []
        used = [(ids.of(b"%d" % value, encoded)[0], b"%d" % value) for value in values]
        for one in worker_pb2.ReviewBatch.FromString(b"".join(encoded)).parameters:
            stored[one.id] = one.json
        assert all(stored[number] == value for number, value in used)
        assert set(stored) <= set(range(1, MAX_IDS + 1))


def test_a_value_is_sent_once_and_again_only_after_it_was_replaced() -> None:
    ids, batch = ParameterIds(), list[bytes]()
    ids.begin_batch()
    assert ids.of(b"first", batch) == (1, 5)
    assert ids.of(b"first", batch) == (1, 0)
    assert ids.has_room(MAX_IDS - 1)
    assert not ids.has_room(MAX_IDS)
    for number in range(MAX_IDS):
        ids.begin_batch()
        ids.of(b"%d" % number, batch)
        if number < MAX_IDS - 1:
            assert ids.of(b"first", batch)[1] == 0
    ids.begin_batch()
    assert ids.of(b"0", batch) == (3, 1)


def namespace(annotation: object, name: str = "shop") -> Namespace:
    metadata = {"name": name, "annotations": {KEY: annotation, "other": "1"}}
    return Namespace(name, {}, orjson.dumps({"metadata": metadata}))


@pytest.mark.parametrize(
    ("annotation", "expected"),
    [
        ('{"max": 3}', b'{"max":3,"text":"x"}'),
        ('{"new": [1], "text": null}', b'{"max":5,"new":[1],"text":null}'),
        ("{}", b'{"max":5,"text":"x"}'),
        ("5", "found the number 5, expected a JSON object"),
        ("max=5", "found no JSON, expected a JSON object: "),
        ('{"max": ' + "[" * 300 + "]" * 300 + "}", "the JSON nests too deeply"),
        ('{"max": "%s"}' % ("x" * MAX_PARAMETERS_BYTES), "with it the parameters have 65"),
    ],
)
def test_the_annotation_of_a_namespace_replaces_members(annotation: str, expected: bytes | str) -> None:
    worker = WorkerRef("pool", "p", b'{"max":5,"text":"x"}', KEY)
    found = ParameterTable().of(worker, REQUEST, namespace(annotation))
    if isinstance(expected, bytes):
        assert found == expected == merged(worker.parameters, annotation)
        return
    assert isinstance(found, Failed)
    assert (found.reason, found.code) == (FailureReason.PARAMETERS, 400)
    assert found.cause.startswith(f"annotation {KEY} of the namespace: {expected}")
    with pytest.raises(ValueError, match=expected[:20]):
        merged(worker.parameters, annotation)


def test_parameters_apply_as_they_are_without_the_annotation_and_without_a_namespace() -> None:
    table, worker = ParameterTable(), WorkerRef("pool", "p", b'{"max":5}', KEY)
    assert table.of(worker, REQUEST, Namespace("shop", {}, b'{"metadata":{"name":"shop"}}')) == b'{"max":5}'
    cluster_scoped = decode((REVIEWS / "node-create.json").read_bytes())
    assert table.of(worker, cluster_scoped, None) == b'{"max":5}'
    of_a_namespace = decode((REVIEWS / "namespace-create.json").read_bytes())
    assert table.of(worker, of_a_namespace, None) == b'{"max":5}'
    lost = Failed(FailureReason.NAMESPACE, "no answer")
    assert table.of(worker, REQUEST, lost) is lost
    unknown = table.of(worker, REQUEST, None)
    assert isinstance(unknown, Failed)
    assert unknown.cause == f'namespace "{REQUEST.namespace}" is not known: it is {NOWHERE}'
    # A client without the annotation needs no namespace.
    assert table.of(replace(worker, parameters_annotation=""), REQUEST, None) == b'{"max":5}'


def test_parameters_that_no_worker_accepts_fail_the_call() -> None:
    table, worker = ParameterTable(), WorkerRef("pool", "p", b'{"max":"5"}')
    assert table.of(worker, REQUEST, None) == b'{"max":"5"}'
    table.declare("pool", {"p": (MAX,)})
    refused = table.of(worker, REQUEST, None)
    assert isinstance(refused, Failed)
    expected = 'parameters.max: found the string "5", expected a value of type integer'
    assert refused.cause == expected
    missing = table.of(WorkerRef("pool", "p"), REQUEST, None)
    assert isinstance(missing, Failed)
    assert missing.cause == "parameters.max: is required"
    # Another policy and another pool are not affected.
    assert table.of(WorkerRef("pool", "q", b"{}"), REQUEST, None) == b"{}"
    assert table.of(WorkerRef("other", "p", b"{}"), REQUEST, None) == b"{}"
    # One worker of several accepts them.
    table.declare("pool", {"p": (MAX, parameter_schema("{}"))})
    assert table.of(worker, REQUEST, None) == b'{"max":"5"}'
    table.declare("pool", {"p": (NONE,)})
    assert "the policy takes none" in str(table.of(worker, REQUEST, None))
    table.declare("pool", {})
    assert not table.has_schemas
    assert table.of(worker, REQUEST, None) == b'{"max":"5"}'


def test_values_of_a_namespace_are_checked_too() -> None:
    table, worker = ParameterTable(), WorkerRef("pool", "p", b"", KEY)
    table.declare("pool", {"p": (MAX,)})
    assert table.of(worker, REQUEST, namespace('{"max": 2}')) == b'{"max":2}'
    found = table.of(worker, REQUEST, namespace('{"max": true}'))
    assert isinstance(found, Failed)
    assert found.cause == (
        f"annotation {KEY} of the namespace: parameters.max: found true, expected a value of type integer"
    )
    found = table.of(worker, REQUEST, namespace(7))
    assert isinstance(found, Failed)
    assert found.cause == "parameters.max: is required"


@pytest.mark.parametrize("key", [b"same", b""])
def test_a_kept_verdict_is_one_for_the_same_parameters(key: bytes) -> None:
    """Without a key none is kept, whatever the parameters are."""
    hook = webhook(cache=Cache(60, cast("Any", FixedKey(key)), 10))
    cache, found = VerdictCache([hook], now=lambda: 0.0), []
    for parameters in (b'{"a":1}', b'{"a":2}', b"", b'{"a":1}', b""):
        call = Call(0, cast("Any", SimpleNamespace(webhook=hook)), Payload(REQUEST), is_ahead=False)
        call.parameters = parameters
        verdict = cache.find(call)
        found.append(verdict)
        if verdict is None and call.cache_key:
            cache.keep(call, Allowed(warnings=(parameters.decode(),)))
    expected: list[Verdict | None] = [
        None,
        None,
        None,
        Allowed(warnings=('{"a":1}',)),
        Allowed(warnings=("",)),
    ]
    assert found == (expected if key else [None] * 5)


@dataclass(frozen=True)
class FixedKey:
    digest_: bytes

    def digest(self, condition_input: object) -> bytes:
        return self.digest_


class Probe:
    """A worker with the SDK, whose policies show their parameters."""

    def __init__(self) -> None:
        self.server = PolicyServer()
        self.prepared: list[Any] = []

        def prepare(parameters: dict[str, Any]) -> dict[str, Any]:
            self.prepared.append(parameters)
            return parameters

        @self.server.policy("shows", parameters={}, prepare=prepare)
        def shows(review: Review) -> None:
            review.annotate("parameters", orjson.dumps(review.parameters).decode())

        @self.server.policy("labels", parameters={}, mutating=True)
        def labels(review: Review) -> None:
            label = review.parameters["label"]
            review.object["metadata"].setdefault("labels", {})[label] = "set"
            review.annotate("labels", " ".join(sorted(review.object["metadata"]["labels"])))

        @self.server.policy("allows", parameters={})
        def allows(review: Review) -> None:
            pass

        @self.server.policy("denies", parameters={})
        def denies(review: Review) -> None:
            raise Denied(str(review.parameters))


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
@in_world
async def test_workers_get_the_parameters_of_each_call(world: Any, tmp_path: Path, transport: str) -> None:
    probe = Probe()
    [address] = await probe.server.start(f"unix:{tmp_path}/s")
    try:
        await world.all_ready(await world.add_pool(address, transport=transport))
        for _ in range(3):
            scripts = [
                {"client": WorkerRef("pool", "shows", b'{"n":%d}' % n if n else b"")} for n in range(4)
            ]
            scripts.append({"client": WorkerRef("pool", "allows", b"{}")})
            evaluation = await world.settle(*scripts)
            *shown, plain = [outcome.call.verdict for outcome in evaluation.outcomes]
            seen = [orjson.loads(dict(verdict.audit_annotations)["parameters"]) for verdict in shown]
            assert seen == [{}, {"n": 1}, {"n": 2}, {"n": 3}]
            assert plain is ALLOWED
        assert len(probe.prepared) == 4
        denied = await world.ask({"client": WorkerRef("pool", "denies", b'{"a":1}')})
        assert denied.message == "{'a': 1}"
        many = [{"client": WorkerRef("pool", "shows", b'{"n":%d}' % n)} for n in range(600)]
        evaluation = await world.settle(*many)
        seen = [
            orjson.loads(dict(outcome.call.verdict.audit_annotations)["parameters"])["n"]
            for outcome in evaluation.outcomes
        ]
        assert seen == list(range(600))
    finally:
        for pool in world.pools.values():
            await pool.close(0.0)
        await probe.server.stop(0)


@pytest.mark.parametrize("max_ids", [MAX_IDS, 2])
@in_world
async def test_chains_carry_parameters(
    world: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, max_ids: int
) -> None:
    """Also a chain with more parameters than a batch may have, whose first call is sent alone."""
    monkeypatch.setattr(endpoint, "MAX_IDS", max_ids)
    probe = Probe()
    [address] = await probe.server.start(f"unix:{tmp_path}/s")
    try:
        await world.all_ready(await world.add_pool(address))
        scripts = [
            {"client": WorkerRef("pool", "labels", b'{"label":"l%d"}' % n), "label": "x"} for n in range(3)
        ]
        evaluation = await world.settle(*scripts, phase="mutate", chained=True)
        last = evaluation.outcomes[-1].call.verdict
        assert dict(last.audit_annotations)["labels"].split()[-3:] == ["l0", "l1", "l2"]
        # When one call has ended, the parameters of the other two are few enough.
        assert evaluation.kept_ahead == (2 if max_ids == MAX_IDS else 1)
    finally:
        for pool in world.pools.values():
            await pool.close(0.0)
        await probe.server.stop(0)


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
@in_world
async def test_an_answer_that_allows_without_the_parameters_is_a_failure(
    world: Any, start_worker: Callable[..., Any], transport: str
) -> None:
    target = start_worker("127.0.0.1:0").target
    await world.all_ready(await world.add_pool(target, transport=transport))

    async def ask(script: dict[str, Any], parameters: bytes) -> Verdict:
        policy = orjson.dumps(script).decode()
        found: Verdict = await world.ask({"client": WorkerRef("pool", policy, parameters)})
        return found

    ignored = await ask({}, b"{}")
    assert isinstance(ignored, Failed)
    assert ignored.cause.startswith("FAILED_PRECONDITION: the worker ignored the parameters")
    assert isinstance(await ask({"warnings": ["w"]}, b"{}"), Failed)
    assert isinstance(await ask({}, b""), Allowed)
    denied = await ask({"deny": {"message": "no"}}, b"{}")
    assert denied.message == "no"  # type: ignore[union-attr]


def test_results_of_changing_namespaces_are_bounded() -> None:
    table, worker = ParameterTable(), WorkerRef("pool", "policy", b"", KEY)
    results = table._results
    for number in range(40):
        json = orjson.dumps({"metadata": {"labels": {"n": f"{number}" * 1_000_000}}})
        assert table.of(worker, REQUEST, Namespace("default", {}, json)) == b""
        assert sum(len(key[1]) for key in results) < 20 * 1024 * 1024
