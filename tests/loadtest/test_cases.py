"""The cases of the benchmark: their order, and the configurations of their gateways."""

from __future__ import annotations

from typing import TYPE_CHECKING

import orjson
import pytest

from gateway.config.merge.load import load
from gateway.pure.core.matching import selectors_match
from gateway.pure.core.review import decode
from gateway.pure.core.rules import rules_match
from gateway.pure.core.webhook import WorkerRef
from gateway.server.serving.devcert import make_development_certificate
from loadtest.bench import LANGUAGES, parse
from loadtest.cases import CASES, GROUPS
from loadtest.floor import PATH as FLOOR_PATH
from loadtest.gateways import COUNTS, GATEWAYS, MANY
from loadtest.policies.worker import make_server as real_server
from loadtest.reviews import LARGE_BYTES, POD, UPDATE_BYTES, enlarged, update
from loadtest.targets import SDK
from loadtest.worker import make_server

if TYPE_CHECKING:
    from pathlib import Path

ADDRESSES = [f"127.0.0.1:{port}" for port in range(1, 5)]


@pytest.mark.parametrize("number", [0, 1])
def test_a_round_measures_each_case_once_between_measurements_of_its_reference(number: int) -> None:
    for group in GROUPS:
        order = group.order(number)
        assert order[0] is group.reference
        others = [case for case in order if case is not group.reference]
        assert others == list(group.cases)[:: -1 if number else 1]
        # The throughput of a reference decides the rates: a paced group measures it once, at the start.
        assert group.is_paced == any(case.load.share for case in group.cases)
        assert group.is_paced or len(group.cases) == 1 or order[-1] is group.reference


def test_ratios_compare_cases_with_as_many_connections() -> None:
    for group in GROUPS:
        connections = {case.load.connections for case in (group.reference, *group.cases)}
        assert group.is_paced or len(connections) == 1


def test_names_are_unique() -> None:
    names = [case.name for group in GROUPS for case in (group.reference, *group.cases)]
    names += [*(group.name for group in GROUPS), SDK, LANGUAGES]
    assert len(set(names)) == len(names)


def test_selected_cases_are_measured_with_their_reference() -> None:
    plan, output = parse(["--only", "stream-4", "--quick", "--output", "x.md", "--connections", "5"])
    [group] = plan.groups
    assert [case.name for case in group.order(0)] == ["floor", "stream-4", "floor"]
    assert {case.load.connections for case in group.order(0)} == {5}
    assert group.servers == ("floor", "stream")
    assert (group.rounds, plan.sdk, plan.languages, str(output)) == (1, False, None, "x.md")
    everything, _ = parse([])
    assert (everything.groups, everything.sdk) == (GROUPS, True)
    assert everything.languages is not None


@pytest.mark.slow  # a thousand webhooks
@pytest.mark.parametrize("name", GATEWAYS)
def test_every_path_has_webhooks_and_every_policy_is_served(name: str, tmp_path: Path) -> None:
    gateway = GATEWAYS[name]
    file = tmp_path / "gateway.yaml"
    ca_file, _ = make_development_certificate(tmp_path / "state")
    file.write_text(gateway.text(ADDRESSES[: gateway.workers], "https://127.0.0.1:1", ca_file))
    config = load([file])
    webhooks = (*config.mutating, *config.validating)
    paths = {path for hook in webhooks for path in (f"/{hook.phase}", f"/{hook.phase}/{hook.configuration}")}
    assert {case.path for case in CASES.values() if case.server == name} <= paths
    policies = {webhook.client.policy for webhook in webhooks if isinstance(webhook.client, WorkerRef)}
    server = real_server() if gateway.language else make_server()
    assert policies <= set(server.policies)
    assert bool(policies) is bool(gateway.workers)


def test_the_controls_serve_the_paths_of_their_cases() -> None:
    assert {case.path for case in CASES.values() if case.server == "floor"} == {FLOOR_PATH}
    paths = {f"/validate/policies-{count}" for count in COUNTS}
    assert {case.path for case in CASES.values() if case.server == "baseline"} == paths


@pytest.mark.slow  # a thousand webhooks
@pytest.mark.parametrize(
    ("gateway", "name", "configured", "by_rules"),
    [("four", "four", 4, 4), ("many", "by-rules", MANY, 4), ("many", "by-labels", MANY, MANY)],
)
def test_four_of_many_webhooks_match_the_pod(
    gateway: str, name: str, configured: int, by_rules: int, tmp_path: Path
) -> None:
    (tmp_path / "gateway.yaml").write_text(GATEWAYS[gateway].text(ADDRESSES[:1]))
    config = load([tmp_path / "gateway.yaml"])
    webhooks = [webhook for webhook in config.validating if webhook.configuration == name]
    request = decode(POD.read_bytes())
    matched = [webhook for webhook in webhooks if rules_match(webhook, request)]
    assert (len(webhooks), len(matched)) == (configured, by_rules)
    selected = [selectors_match(webhook, request, request.object, None) is True for webhook in matched]
    assert sum(selected) == 4


def test_large_reviews_have_their_size_and_are_the_same_pod() -> None:
    small, large = (orjson.loads(text)["request"] for text in (POD.read_bytes(), enlarged(POD.read_bytes())))
    assert LARGE_BYTES <= len(orjson.dumps(large["object"])) < LARGE_BYTES * 1.01
    containers = large["object"]["spec"].pop("containers")
    assert containers[: len(small["object"]["spec"]["containers"])] == small["object"]["spec"].pop(
        "containers"
    )
    assert len({container["name"] for container in containers}) == len(containers)
    assert large == small
    updated = orjson.loads(update(POD.read_bytes()))["request"]
    assert updated["operation"] == "UPDATE"
    size_bytes = len(orjson.dumps(updated["object"])) + len(orjson.dumps(updated["oldObject"]))
    assert UPDATE_BYTES <= size_bytes < UPDATE_BYTES * 1.01
