"""matchConditions: the called webhooks, failures, and the delay of other reviews."""

from __future__ import annotations

import json
import threading
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import PATIENCE_S, REVIEWS, pool_document, run_command, webhook_document
from tests.kubernetes.server import ApiServer
from tests.waiting import eventually
from tests.world import simulated

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.kit import GatewayProcess, StartGateway
    from tests.worker.server import StartWorker
    from tests.world import SimulatedWorld

POD = "pod-create-mutate"
SEEN = {"warnings": ["seen"]}
ABSENT = "object.spec.nothing.there == 1"
LONG = "object.data.all(a, object.data.all(b, a + b < 1000000))"
"""Within the API server's limits for a hundred items; without limits it takes seconds for thousands."""


def when(*expressions: str, **fields: Any) -> dict[str, Any]:
    """Return the members of a script for matchConditions and other fields of its webhook."""
    conditions = [{"name": f"c{number}", "expression": text} for number, text in enumerate(expressions)]
    return {"webhook": {"matchConditions": conditions, **fields}}


def served(*documents: tuple[str, list[dict[str, Any]]]) -> list[str]:
    """Return the webhooks of phases with scripts."""
    return [webhook_document(phase, phase[0], "pool", *scripts) for phase, scripts in documents]


@pytest.fixture
def serve(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> Callable[..., GatewayProcess]:
    def start(*documents: tuple[str, list[dict[str, Any]]], further: str = "") -> GatewayProcess:
        pool = pool_document("pool", start_worker().target)
        (tmp_path / "c.yaml").write_text("".join((pool, further, *served(*documents))))
        return start_gateway(tmp_path)

    return start


def review_of(**members: Any) -> bytes:
    """Return the recorded review with changed members of its request."""
    review = json.loads((REVIEWS / f"{POD}.json").read_bytes())
    review["request"].update(members)
    return json.dumps(review).encode()


@simulated
async def test_match_conditions_select_the_webhooks(world: SimulatedWorld) -> None:
    scripts = [
        {"warnings": ["pods"], **when("request.kind.kind == 'Pod'", "object.spec.containers.size() > 0")},
        {"warnings": ["others"], **when("request.kind.kind != 'Pod'")},
        {"warnings": ["one false"], **when("true", "1 + 1 == 3", ABSENT)},
    ]
    await world.serve(*served(("validate", scripts)))
    response = await world.review("/validate", POD)
    assert response["warnings"] == ["pods"]
    assert "auditAnnotations" not in response
    excluded = "admission_gateway_match_condition_exclusions_total"
    assert world.metric(excluded) == 2
    assert world.metric(excluded, name="h1.v.test", type="validating", operation="CREATE") == 1


@simulated
async def test_a_condition_sees_the_object_with_earlier_patches(world: SimulatedWorld) -> None:
    labelled = "has(object.metadata.labels) && 'added' in object.metadata.labels"
    scripts = [
        {"warnings": ["before"], **when(labelled)},
        {"label": "added"},
        {"warnings": ["after"], **when(labelled, "oldObject == null")},
    ]
    await world.serve(*served(("mutate", scripts)))
    response = await world.review("/mutate", POD)
    assert response["warnings"] == ["after"]
    annotations = response["auditAnnotations"]
    assert {key for key in annotations if key.startswith("mutation.round_0")} == {
        "mutation.round_0_index_1",
        "mutation.round_0_index_2",
    }


@simulated
async def test_an_evaluation_error_obeys_the_failure_policy(world: SimulatedWorld) -> None:
    await world.serve(
        *served(
            ("validate", [{**SEEN, **when(ABSENT)}]),
            ("mutate", [{**SEEN, **when(ABSENT, failurePolicy="Ignore")}, {"warnings": ["next"]}]),
        )
    )
    refused = await world.review("/validate", POD)
    assert refused["allowed"] is False
    status = refused["status"]
    assert (status["code"], status["reason"]) == (500, "InternalError")
    assert status["message"].startswith('failed calling webhook "h0.v.test": ')
    assert ABSENT in status["message"]
    assert "no such key: nothing" in status["message"]
    opened = await world.review("/mutate", POD)
    assert opened["allowed"] is True
    assert opened["warnings"] == ["next"]
    assert opened["auditAnnotations"]["failed-open.round_0_index_0"] == "h0.m.test"
    errors = "admission_gateway_match_condition_evaluation_errors_total"
    assert world.metric(errors, name="h0.v.test", type="validating", operation="CREATE") == 1
    assert world.metric(errors, name="h0.m.test", type="admit", operation="CREATE") == 1


@pytest.mark.process
def test_an_expensive_expression_does_not_delay_other_reviews(serve: Callable[..., GatewayProcess]) -> None:
    gateway = serve(("validate", [{**SEEN, **when(f"!has(object.data) || {LONG}", failurePolicy="Ignore")}]))
    heavy = review_of(object={"kind": "ConfigMap", "metadata": {}, "data": list(range(100_000))})
    answers: list[str] = []

    def think() -> None:
        gateway.review("/validate", heavy)
        answers.append("heavy")

    threads = [threading.Thread(target=think) for _ in range(8)]
    for thread in threads:
        thread.start()
    eventually(lambda: gateway.metric("admission_gateway_reviews_in_flight") >= 2)
    connection = gateway.connect()
    light = review_of()
    for _ in range(20):
        assert b"seen" in gateway.post("/validate", light, connection)
        answers.append("light")
    connection.close()
    for thread in threads:
        thread.join(PATIENCE_S)
    assert answers.count("light") == 20
    assert answers.index("light") < len(answers) - 1 - answers[::-1].index("heavy")


@pytest.fixture
def api_server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        yield server


@pytest.mark.process
def test_each_authorizer_check_is_sent_once_per_review(
    serve: Callable[..., GatewayProcess], api_server: ApiServer, tmp_path: Path
) -> None:
    def may(verb: str) -> str:
        return f"authorizer.group('').resource('pods').check('{verb}').allowed()"

    api_server.rights = lambda spec: {"allowed": spec["resourceAttributes"]["verb"] == "bind"}
    kubeconfig = api_server.kubeconfig(tmp_path)
    head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
    further = json.dumps({**head, "kubernetes": {"kubeconfig": str(kubeconfig)}}) + "\n---\n"
    scripts = [
        {"warnings": ["may"], **when(may("bind"))},
        {"warnings": ["may not"], **when(may("steal"))},
        {"warnings": ["may, too"], **when(may("bind"), f"!{may('steal')}")},
    ]
    gateway = serve(("validate", scripts), ("mutate", scripts), further=further)
    for phase in ("validate", "mutate"):
        api_server.reviewed.clear()
        assert gateway.review(f"/{phase}", POD)["warnings"] == ["may", "may, too"]
        verbs = [spec["resourceAttributes"]["verb"] for spec in api_server.reviewed]
        assert sorted(verbs) == ["bind", "steal"]
    user = json.loads((REVIEWS / f"{POD}.json").read_bytes())["request"]["userInfo"]
    assert {spec["user"] for spec in api_server.reviewed} == {user["username"]}
    assert all(set(spec["groups"]) == set(user["groups"]) for spec in api_server.reviewed)


@pytest.mark.process
def test_explain_says_which_condition_left_a_webhook_out(tmp_path: Path, start_worker: StartWorker) -> None:
    text = pool_document("pool", start_worker().target)
    scripts = [{**SEEN, **when("true", "request.dryRun")}, SEEN]
    (tmp_path / "c.yaml").write_text(text + webhook_document("validate", "v", "pool", *scripts))
    done = run_command("review", str(REVIEWS / f"{POD}.json"), "--config", str(tmp_path), "--explain")
    assert done.returncode == 0, done.stderr
    assert 'validate v/h0.v.test: not matched, its matchCondition "c1" is false' in done.stderr
    assert json.loads(done.stdout)["response"]["warnings"] == ["seen"]
