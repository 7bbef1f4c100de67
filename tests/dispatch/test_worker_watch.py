"""The watch of worker pools, without workers."""

from __future__ import annotations

import logging
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, cast

import pytest

from gateway.config.load import load
from gateway.worker_watch import LOST_AFTER_S, QUIET_S, WorkerWatch, policy_mismatches
from tests.kit import pool_document, webhook_document

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.model import Config
    from gateway.dispatch.pool import Pool


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
    watch = WorkerWatch(None, clock)
    watch.use(config, {"p": cast("Pool", pool)})
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
    watch = WorkerWatch(None, clock)
    watch.use(config, {"p": cast("Pool", pool)})
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
    found = list(policy_mismatches(config.validating, served))
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
    assert {one.hint for one in policy_mismatches(config.validating * 1_000, served)} == {""}
