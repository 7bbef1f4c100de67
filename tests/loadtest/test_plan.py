"""What is measured, in which order, and whether the gateways are configured for it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from gateway.config.load import load
from gateway.core.matching import selectors_match
from gateway.core.review import decode
from gateway.core.rules import rules_match
from gateway.core.webhook import HttpsClient, WorkerRef
from gateway.serving.devcert import make_development_certificate
from loadtest.cases import CASES, GROUPS
from loadtest.configuration import COUNTS, GATEWAYS, MANY
from loadtest.floor import PATH as FLOOR_PATH
from loadtest.lines import SDK
from loadtest.plan import parse
from loadtest.reviews import LARGE_BYTES, POD, enlarged
from loadtest.serial import PATHS, STEPS
from loadtest.worker import make_server

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.config.model import Config
    from loadtest.cases import Group

ADDRESSES = [f"127.0.0.1:{port}" for port in range(1, 5)]


def group(name: str) -> Group:
    (found,) = [group for group in GROUPS if group.name == name]
    return found


@pytest.mark.parametrize("name", [group.name for group in GROUPS])
@pytest.mark.parametrize("number", [0, 1])
def test_a_round_measures_every_case_once_and_its_reference_first(name: str, number: int) -> None:
    measured = group(name)
    order = measured.order(number)
    assert order[0] is measured.reference
    others = [case for case in order if case is not measured.reference]
    assert sorted(case.name for case in others) == sorted(case.name for case in measured.cases)
    assert others == list(measured.cases)[:: -1 if number else 1]


def test_the_floor_is_measured_before_between_and_after() -> None:
    for number in (0, 1):
        order = group("cost").order(number)
        places = [place for place, case in enumerate(order) if case.name == "floor"]
        assert places == [0, 7, 13]


def test_every_rate_follows_from_a_reference_that_is_measured_before_it() -> None:
    for measured in GROUPS:
        paced = [case for case in measured.cases if case.load.share]
        assert measured.is_paced == bool(paced)
        assert not measured.reference.load.share


def test_names_are_unique_over_cases_and_groups() -> None:
    names = [case.name for measured in GROUPS for case in (measured.reference, *measured.cases)]
    everything = [*names, *(measured.name for measured in GROUPS), SDK]
    assert len(set(everything)) == len(everything)


def test_only_the_named_cases_and_their_reference_are_measured() -> None:
    plan, output = parse(["--only", "stream-4", "--quick", "--output", "x.md"])
    (measured,) = plan.groups
    assert [case.name for case in measured.order(0)] == ["floor", "stream-4", "floor"]
    assert measured.fronts == ("floor", "stream")
    assert (measured.rounds, plan.sdk, str(output)) == (1, False, "x.md")


def test_a_group_is_named_as_a_whole_and_cases_keeps_its_old_name() -> None:
    assert parse(["--cases", "matching", "rate-50"])[0].groups[1] == group("matching")
    assert [case.name for case in parse(["--cases", "rate-50"])[0].groups[0].order(0)] == ["full", "rate-50"]
    assert parse(["--only", "sdk"])[0].groups == ()
    assert parse([])[0].groups == GROUPS
    assert parse([])[0].sdk


def test_connections_are_changed_where_there_are_as_many_as_usual() -> None:
    plan, _ = parse(["--connections", "5", "--only", "stream-4", "alone", "churn"])
    assert {(case.name, case.load.connections) for found in plan.groups for case in found.order(0)} >= {
        *(("floor", 5), ("stream-4", 5), ("alone-4", 1), ("floor-fresh", 16)),
    }
    assert str(plan).endswith("; 5 connections where 64 are named")
    assert "connections" not in str(parse([])[0])


def test_times_are_those_of_a_reference_that_is_asked_in_the_same_way() -> None:
    for measured in GROUPS:
        if not measured.is_paced:
            connections = {case.load.connections for case in (measured.reference, *measured.cases)}
            assert len(connections) == 1, measured.name


@pytest.mark.slow  # for the thousand webhooks
@pytest.mark.parametrize("name", GATEWAYS)
def test_every_path_that_is_asked_has_webhooks_whose_policies_the_worker_serves(
    name: str, tmp_path: Path
) -> None:
    gateway = GATEWAYS[name]
    file = tmp_path / "gateway.yaml"
    ca_file, _ = make_development_certificate(tmp_path / "state")
    file.write_text(gateway.text(ADDRESSES[: gateway.workers], "https://127.0.0.1:1", ca_file))
    config = load([file])
    wanted = {case.path for case in CASES.values() if case.front == name}
    wanted |= {*PATHS, *STEPS} if name == "slow" else {*PATHS} if name == "serial" else set()
    webhooks = (*config.mutating, *config.validating)
    assert wanted <= {f"/{webhook.phase}/{webhook.configuration}" for webhook in webhooks}
    clients = [webhook.client for webhook in webhooks]
    policies = {client.policy for client in clients if isinstance(client, WorkerRef)}
    assert policies <= set(make_server().policies)
    assert bool(policies) is not gateway.asks_server
    served = {client.url for client in clients if isinstance(client, HttpsClient)}
    assert served == ({f"https://127.0.0.1:1{FLOOR_PATH}"} if gateway.asks_server else set())
    assert {pool.targets for pool in config.pools.values()} == {
        (address,) for address in ADDRESSES[: gateway.workers]
    }


def test_other_front_ends_are_asked_at_paths_that_they_have() -> None:
    assert {case.path for case in CASES.values() if case.front == "floor"} == {FLOOR_PATH}
    served = {f"/validate/policies-{count}" for count in COUNTS}
    assert {case.path for case in CASES.values() if case.front == "baseline"} == served


@pytest.fixture(scope="module")
def matching(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Config]:
    folder = tmp_path_factory.mktemp("matching")
    for name in ("four", "many"):
        (folder / name).write_text(GATEWAYS[name].text(ADDRESSES[:1]))
    return {name: load([folder / name]) for name in ("four", "many")}


@pytest.mark.slow
def test_the_gateway_with_four_webhooks_has_no_others(matching: dict[str, Config]) -> None:
    assert len(matching["four"].validating) == 4
    assert matching["four"].mutating == ()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gateway", "name", "configured", "by_rules", "called"),
    [("four", "four", 4, 4, 4), ("many", "by-rules", MANY, 4, 4), ("many", "by-labels", MANY, MANY, 4)],
)
def test_four_of_many_webhooks_match_the_pod(
    gateway: str, name: str, configured: int, by_rules: int, called: int, matching: dict[str, Config]
) -> None:
    webhooks = [webhook for webhook in matching[gateway].validating if webhook.configuration == name]
    request = decode(POD.read_bytes())
    ruled = [webhook for webhook in webhooks if rules_match(webhook, request)]
    assert (len(webhooks), len(ruled)) == (configured, by_rules)
    admitted = [selectors_match(webhook, request, request.object, None) is True for webhook in ruled]
    assert sum(admitted) == called


def test_the_large_review_is_the_same_pod_with_more_containers() -> None:
    small, large = orjson.loads(POD.read_bytes()), orjson.loads(enlarged(POD.read_bytes()))
    size_bytes = len(orjson.dumps(large["request"]["object"]))
    assert LARGE_BYTES <= size_bytes < LARGE_BYTES * 1.01
    containers = large["request"]["object"]["spec"].pop("containers")
    kept = small["request"]["object"]["spec"].pop("containers")
    assert containers[: len(kept)] == kept
    assert len({container["name"] for container in containers}) == len(containers)
    assert large == small
    assert orjson.loads(enlarged(POD.read_bytes(), 10)) == orjson.loads(POD.read_bytes())
