"""Random hooks and operations of a seed, under both set-ups.

The seed is the test's parameter; ``E2E_SEED`` is the first.
"""

from __future__ import annotations

import os
import random
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.client import APPLY, JSON, MERGE_PATCH
from tests.e2e.cluster import ADMIN, ALICE
from tests.e2e.compare import Case, Operation, assert_equal, run
from tests.e2e.objects import config_map, deployment, pod, within
from tests.e2e.outcome import Outcome
from tests.e2e.setups import Hook, Phase, rule

if TYPE_CHECKING:
    from collections.abc import Callable

    from tests.e2e.cluster import Cluster

FIRST: Final = int(os.environ.get("E2E_SEED", "0"))
SEEDS: Final = range(FIRST, FIRST + 25)

LABELS: Final = ("red", "green", "blue")
DOCUMENTS: Final[dict[str, tuple[str, Callable[..., dict[str, Any]]]]] = {
    "pods": ("v1", pod),
    "configmaps": ("v1", config_map),
    "deployments": ("apps/v1", deployment),
}


def case(seed: int) -> Case:
    draw = random.Random(seed)
    hooks = tuple(hook(draw, number) for number in range(draw.randint(2, 6)))
    operations = tuple(operation(draw) for _ in range(draw.randint(4, 7)))
    return Case(f"seed-{seed}", hooks, operations, {"tier": draw.choice(["gold", "iron"])})


def hook(draw: random.Random, number: int) -> Hook:
    phases: list[Phase] = ["mutate", "mutate", "validate"]
    phase = draw.choice(phases)
    policy = draw.choice(["Fail", "Ignore"])
    script = mutating(draw, number, policy) if phase == "mutate" else validating(draw)
    fields: dict[str, Any] = {"failurePolicy": policy}
    if phase == "mutate":
        fields["reinvocationPolicy"] = draw.choice(["Never", "IfNeeded"])
    if draw.random() < 0.3:
        fields["objectSelector"] = selector(draw, draw.choice(LABELS))
    if draw.random() < 0.2:
        fields["namespaceSelector"] = {"matchLabels": {"tier": draw.choice(["gold", "gold", "iron"])}}
    if draw.random() < 0.2:
        fields["sideEffects"] = "NoneOnDryRun"
    # What looks at the object, or changes it, is not for DELETE.
    operations = ["CREATE", "UPDATE"] if {"label", "count", "echo", "patch"} & script.keys() else ["*"]
    operations = operations if draw.random() < 0.8 else ["CREATE"]
    rules = (rule("pods configmaps", *operations), rule("deployments", *operations, group="apps"))
    chosen = rules if draw.random() < 0.7 else (draw.choice(rules),)
    configuration = draw.choice(["a-policies", "b-policies"])
    return Hook(phase, f"h{number}", script, chosen, configuration, fields)


def selector(draw: random.Random, label: str) -> dict[str, Any]:
    operator = draw.choice(["Exists", "DoesNotExist", "In", "NotIn"])
    values = {"values": ["set", "x"]} if operator.endswith("In") else {}
    return {"matchExpressions": [{"key": label, "operator": operator, **values}]}


def mutating(draw: random.Random, number: int, policy: str) -> dict[str, Any]:
    label = draw.choice(LABELS)
    relabel = {"op": "add", "path": "/metadata/labels", "value": {label: "x", "kept": "y"}}
    scripts: list[dict[str, Any]] = [
        {"label": label},
        {"label": label, "warnings": [f"added {label}"]},
        {"count": f"count-{number}"},
        {"echo": f"echo-{number}"},
        {"record": True, "annotations": {"key": f"value {number}"}},
        {"patch": [relabel]},
        {"patch": [relabel, {"op": "remove", "path": "/metadata/labels/kept"}]},
        {"deny": {"code": 403, "message": f"no {label}"}, "when": label, "record": True},
        {"status": draw.choice(["UNAVAILABLE", "INTERNAL", "RESOURCE_EXHAUSTED"])},
        {"garbage": True},
    ]
    if policy == "Fail":
        # Under Ignore the gateway lets these pass, and the API server does not.
        scripts.append({"patch": [{"op": "test", "path": f"/metadata/labels/{label}", "value": "set"}]})
        scripts.append({"patch": [{"op": "remove", "path": f"/metadata/labels/{label}"}]})
    return draw.choices(scripts, [4, 4, 4, 4, 3, 2, 2, 2, 1, 1, 1, 1][: len(scripts)])[0]


def validating(draw: random.Random) -> dict[str, Any]:
    label = draw.choice(LABELS)
    return draw.choice(
        [
            {"record": True},
            {"record": True, "warnings": ["seen", f"seen by {label}"]},
            {"deny": {"code": draw.choice([0, 403, 409, 422]), "message": f"{label} is out"}, "when": label},
            {
                "deny": {"causes": [{"message": label, "field": "metadata.labels"}]},
                "when": label,
                "warnings": ["no"],
            },
            {"status": "UNAVAILABLE"},
            {"patch": [{"op": "add", "path": "/metadata/labels/late", "value": "x"}]},
        ]
    )


def operation(draw: random.Random) -> Operation:
    resource = draw.choice(list(DOCUMENTS))
    version, document = DOCUMENTS[resource]
    name = draw.choice(["one", "two"])
    labels = {label: draw.choice(["set", "x", "other"]) for label in draw.sample(LABELS, draw.randint(0, 2))}
    query = draw.choice(["", "", "", "?dryRun=All"])
    user = draw.choice([ALICE, ADMIN])
    collection, one = within(resource, version), within(f"{resource}/{name}", version)
    relabelled = {"metadata": {"labels": {**labels, **draw.choice([{}, {draw.choice(LABELS): None}])}}}
    choices = [
        Operation("POST", collection + query, document(name, labels), JSON, user),
        Operation("PATCH", one + query, relabelled, MERGE_PATCH, user),
        Operation("PATCH", f"{one}?fieldManager=tester&force=true", document(name, labels), APPLY, user),
        Operation("DELETE", one + query, None, JSON, user),
        Operation("DELETE", collection, None, JSON, user),
    ]
    return draw.choices(choices, [8, 3, 3, 2, 1])[0]


CASES: Final = {seed: case(seed) for seed in SEEDS}
Results = dict[str, list[tuple[Outcome, Outcome]]]


@pytest.fixture(scope="module")
def results(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Results:
    """The outcomes of the seeds that are selected."""
    tests = (item for item in request.session.items if isinstance(item, pytest.Function))
    seeds = {test.callspec.params["seed"] for test in tests if test.path == request.path}
    drawn = [one for seed, one in CASES.items() if seed in seeds]
    return run(cluster, tmp_path_factory.mktemp("random"), drawn)


@pytest.mark.parametrize("seed", SEEDS)
def test_random_webhooks_and_operations_have_the_outcome_without_a_gateway(
    results: Results, seed: int
) -> None:
    drawn = CASES[seed]
    for number, pair in enumerate(results[drawn.name]):
        try:
            assert_equal(drawn, pair)
        except AssertionError as error:
            hooks = "\n".join(str(hook) for hook in drawn.hooks)
            raise AssertionError(
                f"seed {seed}, {drawn.operations[number]}, hooks\n{hooks}\n{error}"
            ) from None
