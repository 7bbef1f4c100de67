"""The watch of worker pools, without workers."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any, cast

import pytest

from gateway.config.merge.load import load
from gateway.engine.acceptance import to_judge
from gateway.engine.dispatch.parameters import ParameterTable
from gateway.engine.dispatch.policy_listing import PolicyListing
from gateway.engine.policy_check import ASK_AGAIN_S, LOST_AFTER_S, QUIET_S, PolicyCheck
from gateway.engine.policy_mismatch import parameter_mismatches, policy_mismatches
from gateway.observe.telemetry.metrics import Metrics
from gateway.pure.core.review import decode
from gateway.pure.core.verdict import Failed
from tests.kit import REVIEWS, pool_document, webhook_document

if TYPE_CHECKING:
    from collections.abc import Collection
    from pathlib import Path

    from gateway.config.merge.model import Config
    from gateway.engine.dispatch.pool import Pool


REQUEST = decode((REVIEWS / "pod-create-mutate.json").read_bytes())


@dataclass(eq=False)
class FakeEndpoint:
    listing: PolicyListing
    problem: str = ""
    """The worker's judgement of all parameters."""
    address: str = "a:1"
    connected_count: int = 1
    lost_reason: str = ""
    asked: list[object] = field(default_factory=list)

    async def list_policies(self) -> PolicyListing:
        self.asked.append("list")
        return self.listing

    async def check_parameters(
        self, listing: PolicyListing, wanted: Collection[tuple[str, bytes]]
    ) -> PolicyListing:
        self.asked += sorted(wanted - listing.checked.keys())
        return replace(listing, checked=dict.fromkeys(wanted, self.problem))


@dataclass
class FakePool:
    is_reachable: bool = True
    endpoints: tuple[Any, ...] = ()
    unreachable_reason: str = "refused"


@dataclass
class Clock:
    now_s: float = field(default=100.0)

    def __call__(self) -> float:
        return self.now_s


@pytest.fixture
def config(tmp_path: Path) -> Config:
    file = tmp_path / "c.yaml"
    scripts = [{"webhook": {"failurePolicy": policy}} for policy in ("Fail", "Ignore")]
    file.write_text(pool_document("p", "a:1") + webhook_document("validate", "v", "p", *scripts))
    return load([file])


def test_a_flapping_pool_is_logged_at_most_once_in_thirty_seconds(
    config: Config, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    clock, pool = Clock(), FakePool()
    watch = PolicyCheck(Metrics(), clock, ParameterTable())
    watch.activate(config, {"p": cast("Pool", pool)})
    began, every = clock(), 100
    for _ in range(every):
        for is_reachable in (False, False, False, False, True):
            pool.is_reachable = is_reachable
            watch.check()
            clock.now_s += 1
    lost = [record for record in caplog.messages if "unreachable" in record]
    again = [record for record in caplog.messages if "reachable again" in record]
    assert len(lost) == len(again)
    assert 2 <= len(lost) <= (clock() - began) / QUIET_S + 1
    assert "(lost 6 times since the last such record)" in lost[-1]


def test_a_short_loss_is_not_logged(config: Config, caplog: pytest.LogCaptureFixture) -> None:
    clock, pool = Clock(), FakePool()
    watch = PolicyCheck(Metrics(), clock, ParameterTable())
    watch.activate(config, {"p": cast("Pool", pool)})
    pool.is_reachable = False
    watch.check()
    clock.now_s += LOST_AFTER_S / 2
    watch.check()
    pool.is_reachable = True
    clock.now_s += LOST_AFTER_S
    watch.check()
    assert caplog.messages == []


def test_mismatches_name_the_workers_and_the_effect(config: Config) -> None:
    served = {"a": {"{}": False}, "b": {}, "c": {"{}": True}}
    found = list(policy_mismatches([(hook, hook.worker) for hook in config.validating], served))
    assert [(one.webhook.name, one.reason, one.workers) for one in found] == [
        ("h0.v.test", "not_served", ("b",)),
        ("h0.v.test", "other_kind", ("c",)),
        ("h1.v.test", "not_served", ("b",)),
        ("h1.v.test", "other_kind", ("c",)),
    ]
    assert [("closed" in one.message, "open" in one.message) for one in found[::2]] == [
        (True, False),
        (False, True),
    ]


def test_many_unknown_policies_are_compared_with_few_others(config: Config) -> None:
    served = {"a": {f"policy-{number}": False for number in range(10_000)}}
    clients = [(hook, hook.worker) for hook in config.validating] * 1_000
    assert {one.hint for one in policy_mismatches(clients, served)} == {""}


async def test_what_workers_declare_holds_for_their_pool_alone(tmp_path: Path) -> None:
    file = tmp_path / "c.yaml"
    script = {
        "webhook": {"clientConfig": {"worker": {"pool": "p", "policy": "x", "parameters": {"max": "3"}}}}
    }
    file.write_text(pool_document("p", "a:1") + webhook_document("validate", "v", "p", script))
    config, table = load([file]), ParameterTable()
    (hook,) = config.validating
    schema = '{"properties": {"max": {"type": "integer"}}}'
    listing = PolicyListing({"x": False}, schemas={"x": schema})
    watch = PolicyCheck(Metrics(), Clock(), table)
    pool = cast("Pool", FakePool(endpoints=(FakeEndpoint(listing),)))
    watch.activate(config, {"p": pool})
    await watch.read_all()
    (found,) = watch.mismatches()
    assert found.reason == "parameters"
    assert isinstance(table.of(hook.worker, REQUEST, None), Failed)
    watch.activate(config, {"p": cast("Pool", FakePool())})
    assert table.of(hook.worker, REQUEST, None) == b'{"max":"3"}'
    assert not table.has_schemas


async def test_a_worker_is_asked_when_it_connects_and_when_the_parameters_change(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    def config_of(value: int) -> Config:
        worker = {"pool": "p", "policy": "x", "parameters": {"max": value}}
        script = {"webhook": {"clientConfig": {"worker": worker}}}
        file = tmp_path / "c.yaml"
        file.write_text(pool_document("p", "a:1") + webhook_document("validate", "v", "p", script))
        return load([file])

    endpoint = FakeEndpoint(PolicyListing({"x": False}, schemas={"x": "{}"}), "no number")
    pools = {"p": cast("Pool", FakePool(endpoints=(endpoint,)))}
    watch = PolicyCheck(Metrics(), Clock(), ParameterTable())
    for value in (3, 3, 4):
        watch.activate(config_of(value), pools)
        await watch.read_all()
        await watch.read_all()
    assert endpoint.asked == ["list", ("x", b'{"max":3}'), ("x", b'{"max":4}')]
    (found,) = watch.mismatches()
    assert found.message == "no number (according to a:1), so that calls fail closed"
    endpoint.asked, endpoint.problem, endpoint.connected_count = [], "", 2
    await watch.read_all()
    assert endpoint.asked == ["list", ("x", b'{"max":4}')]
    assert watch.mismatches() == []
    # Once for each value, and not again for each question.
    assert [text.partition(":")[0] for text in caplog.messages] == ["policy mismatch"] * 2


async def test_a_worker_that_lacks_a_policy_of_an_engine_is_asked_again(config: Config) -> None:
    (hook, _) = config.validating
    of_engine = replace(hook, client=replace(hook.worker, kind="NeedsLabels"))
    config, clock = replace(config, validating=(of_engine,)), Clock()
    endpoint = FakeEndpoint(PolicyListing({}))
    watch = PolicyCheck(Metrics(), clock, ParameterTable())
    watch.activate(config, {"p": cast("Pool", FakePool(endpoints=(endpoint,)))})
    await watch.read_all()
    assert [one.reason for one in watch.mismatches()] == ["not_served"]
    endpoint.listing = PolicyListing({hook.worker.policy: False})
    await watch.read_all()
    assert endpoint.asked == ["list"]
    for _ in range(2):
        clock.now_s += ASK_AGAIN_S
        await watch.read_all()
    assert endpoint.asked == ["list", "list"]
    assert watch.mismatches() == []


def test_policies_of_engines_may_be_later_than_their_documents(config: Config) -> None:
    first, second = config.validating
    of_engine = replace(first, client=replace(first.worker, kind="NeedsLabels"))
    judged = to_judge(replace(config, validating=(of_engine, second)), None)
    assert [one.webhook for one in judged] == [second]


@pytest.mark.parametrize(
    ("schemas", "message"),
    [
        (
            {"a": "", "b": ""},
            "found parameters, expected none: the policy takes none (according to a, b), so that",
        ),
        ({"a": "{", "b": "{}"}, " (according to a), so that parameters are not checked"),
        (
            {"a": '{"maxProperties": 0}', "b": "{}"},
            "(according to a), so that its calls may fail: other workers accept them",
        ),
    ],
)
def test_parameters_that_only_some_workers_refuse_are_told(
    tmp_path: Path, schemas: dict[str, str], message: str
) -> None:
    file = tmp_path / "c.yaml"
    script = {"webhook": {"clientConfig": {"worker": {"pool": "p", "policy": "x", "parameters": {"max": 3}}}}}
    file.write_text(pool_document("p", "a:1") + webhook_document("validate", "v", "p", script))
    (hook,) = load([file]).validating
    listings = {
        address: PolicyListing({"x": False}, schemas={"x": schema} if schema else {})
        for address, schema in schemas.items()
    }
    (found,) = parameter_mismatches([(hook, hook.worker)], listings)
    assert message in str(found)
    assert found.is_fatal == (schemas["b"] == "")


@pytest.mark.parametrize(
    ("listing", "told"),
    [
        (PolicyListing(None, "refused"), "policies of a worker are not known: a:1: refused"),
        (PolicyListing({}, unchecked="why"), "parameters are not judged by a worker: a:1: why"),
    ],
)
async def test_what_a_worker_does_not_say_is_in_the_log(
    config: Config, caplog: pytest.LogCaptureFixture, listing: PolicyListing, told: str
) -> None:
    caplog.set_level(logging.DEBUG, "gateway.engine.policy_check")
    watch = PolicyCheck(Metrics(), Clock(), ParameterTable())
    watch.activate(config, {"p": cast("Pool", FakePool(endpoints=(FakeEndpoint(listing),)))})
    await watch.read_all()
    await watch.close()
    assert told in caplog.messages
