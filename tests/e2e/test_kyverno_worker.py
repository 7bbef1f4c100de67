"""Rules in Kyverno's own language decide behind the gateway, in its worker, as in Kyverno itself.

One API server has Kyverno's own program, and one has a gateway with the same documents and the worker.
Compared are the code, the reason, each rule that refuses with its text, the warnings and the stored object of
each operation.
"""

from __future__ import annotations

from contextlib import ExitStack
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from loadtest.peers.programs import build
from tests.e2e.binaries import VERSIONS, obtain
from tests.e2e.cluster import NAMESPACE, Cluster
from tests.e2e.engine_comparison import DENIAL, assert_equal, bed
from tests.e2e.kyverno_comparison import (
    Kyverno,
    KyvernoRunning,
    WithCluster,
    WithWorker,
    apply,
    build_worker,
    define,
    documents_of,
    namespace,
    refusals,
    wait_until_ready,
)
from tests.e2e.kyverno_mutating import BY_NAME
from tests.e2e.kyverno_rules import (
    ALWAYS,
    condition,
    deny,
    exception,
    labels_of,
    merge,
    policy,
    scenario,
    validate,
)
from tests.e2e.kyverno_worker_scenarios import CANARIES, SCENARIOS
from tests.e2e.objects import config_map
from tests.e2e.test_engine_resources import remove
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.engine_comparison import Outcomes

    Json = dict[str, Any]

pytestmark = pytest.mark.timeout(3600)  # seconds: the first run builds Kyverno and its worker


@pytest.fixture(scope="module")
def as_kyverno(tmp_path_factory: pytest.TempPathFactory) -> Outcomes:
    """What users see of Kyverno."""
    build("kyverno")
    with ExitStack() as stack:
        subjects, cluster = bed(stack, tmp_path_factory.mktemp("kyverno"))
        subject = Kyverno()
        subject.start(subjects)
        running = KyvernoRunning(cluster, SCENARIOS, CANARIES)
        running.make_namespaces()
        subject.create(*documents_of((*SCENARIOS, *CANARIES)))
        wait_until_ready(cluster)
        return running.outcomes()


def entry_of(resource: str, inside: str) -> Json:
    """Return a GlobalContextEntry ``maps`` of *resource* in the namespace *inside*."""
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "GlobalContextEntry",
        "metadata": {"name": "maps"},
        "spec": {"kubernetesResource": {"version": "v1", "resource": resource, "namespace": inside}},
    }


def assert_as_kyverno(found: Outcomes, as_kyverno: Outcomes) -> None:
    """Compare *found* with what users see of Kyverno, except for what the documentation says."""
    # Kyverno warns of an error under ``Ignore``. The gateway has it in the audit log.
    ignored, warned = ("errors", 2), as_kyverno["errors", 2]
    assert warned.warnings
    # A rule for another version of the request's kind: Kyverno's webhooks name both versions for other rules.
    other_version, same_version = ("custom", 4), as_kyverno["custom", 5]
    assert (as_kyverno[other_version].status, same_version.status) == (201, 400)
    differences = {ignored: replace(warned, warnings=()), other_version: same_version}
    assert_equal(found, {**as_kyverno, **differences})
    stored = found[BY_NAME.name, 0].stored
    assert stored is not None
    assert stored["metadata"]["labels"] == {"trace": "x-a-b-c"}


def test_rules_decide_in_the_worker_as_in_kyverno(tmp_path: Path, as_kyverno: Outcomes) -> None:
    build_worker()
    scenarios = (*SCENARIOS, BY_NAME)
    with Cluster(obtain(VERSIONS[0]), tmp_path / "cluster") as cluster:
        running = KyvernoRunning(cluster, scenarios, CANARIES)
        running.make_namespaces()
        with WithWorker(cluster, tmp_path, (*scenarios, *CANARIES)):
            found = running.outcomes()
    assert_as_kyverno(found, as_kyverno)


def test_rules_of_the_cluster_decide_as_in_kyverno(tmp_path: Path, as_kyverno: Outcomes) -> None:
    build_worker()
    scenarios = (*SCENARIOS, BY_NAME)
    with Cluster(obtain(VERSIONS[0]), tmp_path / "cluster") as cluster:
        running = KyvernoRunning(cluster, scenarios, CANARIES)
        running.make_namespaces()
        define(cluster)
        apply(cluster, documents_of((*scenarios, *CANARIES)))
        with WithCluster(cluster, tmp_path, (*scenarios, *CANARIES)) as setup:
            found = running.outcomes()
            assert "Traceback" not in setup.gateway.log
            assert "panic" not in setup.engine.log
    assert_as_kyverno(found, as_kyverno)


def test_rules_of_the_cluster_change_and_go_and_read_only_what_the_worker_may(tmp_path: Path) -> None:
    build_worker()
    name = "changing"
    maps = f"/api/v1/namespaces/{name}/configmaps"
    here: Json = {"any": [{"resources": {"kinds": ["ConfigMap"], "namespaces": [name]}}]}

    def refusing(message: str, **members: Any) -> Json:
        return policy("refuses", validate("r", match=here, message=message, deny=ALWAYS, **members))

    def calling(resource: str) -> Json:
        call = {"urlPath": f"/api/v1/namespaces/{name}/{resource}/read", "jmesPath": "data.text"}
        read = {"name": "read", "apiCall": call}
        shows = deny(condition("{{ read }}", "NotEquals", "nothing"))
        return policy("refuses", validate("r", match=here, message="{{ read }}", context=[read], deny=shows))

    with Cluster(obtain(VERSIONS[0]), tmp_path / "cluster") as cluster:
        define(cluster)
        marking = policy("marks", merge("m", labels_of(marked="first"), match=here))
        apply(cluster, [namespace(scenario(name, [])), refusing("first"), marking])

        def create() -> Answer:
            return cluster.api.create(f"{maps}?dryRun=All", config_map("excepted"))

        def mark() -> object:
            answer = create()
            return answer.document["metadata"].get("labels") if answer.status == 201 else answer.message

        def refused() -> list[str]:
            return refusals(DENIAL.sub("", create().message))

        def expect(message: str) -> None:
            eventually(lambda: refused() == [f"refuses/r: {message}"], message)

        with WithCluster(cluster, tmp_path, ()) as setup:
            expect("first")
            apply(cluster, [refusing("second")])
            expect("second")
            # A context entry reads with the account of the worker, which the chart let read ConfigMaps.
            read = config_map("read", text="third")
            read["metadata"]["namespace"] = name
            secret = {**read, "kind": "Secret", "data": {"text": "aGlkZGVu"}}
            remove(cluster, refusing(""))
            eventually(lambda: create().status == 201, "no rule")
            apply(cluster, [read, secret])
            apply(cluster, [calling("configmaps")])
            expect("third")
            entry = {"name": "read", "configMap": {"name": "read", "namespace": name}}
            apply(cluster, [refusing("map {{ read.data.text }}", context=[entry])])
            expect("map third")
            remove(cluster, refusing(""))
            eventually(lambda: create().status == 201, "no rule")
            apply(cluster, [{**read, "data": {"text": "fourth"}}])
            apply(cluster, [calling("configmaps")])
            expect("fourth")
            asked = {"resourceAttributes": {"resource": "configmaps", "verb": "list"}}
            review = {
                "kind": "SelfSubjectAccessReview",
                "apiVersion": "authorization.k8s.io/v1",
                "spec": asked,
            }
            posted = {
                "urlPath": "/apis/authorization.k8s.io/v1/selfsubjectaccessreviews",
                "method": "POST",
                "data": [{"key": key, "value": value} for key, value in review.items()],
                "jmesPath": "to_string(status.allowed)",
            }
            apply(cluster, [refusing("may: {{ may }}", context=[{"name": "may", "apiCall": posted}])])
            expect("may: true")
            shared = {"name": "maps", "globalReference": {"name": "maps", "jmesPath": "[].metadata.name"}}
            apply(cluster, [entry_of("configmaps", name)])
            apply(cluster, [refusing("maps: {{ join(',', maps) }}", context=[shared])])
            expect("maps: read")
            remove(cluster, refusing(""))
            eventually(lambda: create().status == 201, "no rule")
            apply(cluster, [{**read, "metadata": {"name": "second", "namespace": name}}])
            apply(cluster, [refusing("maps: {{ join(',', maps) }}", context=[shared])])
            expect("maps: read,second")
            apply(cluster, [calling("secrets")])
            eventually(lambda: "secrets" in create().message, "the rule that reads a Secret")
            (failed,) = refused()
            account = f"system:serviceaccount:{NAMESPACE}:admission-gateway-kyverno"
            assert f'secrets "read" is forbidden: User "{account}" cannot get resource "secrets"' in failed
            assert "hidden" not in failed
            # Exceptions apply in the namespaces that the worker is told.
            apply(cluster, [refusing("fifth")])
            expect("fifth")
            match = {"any": [{"resources": {"kinds": ["ConfigMap"]}}]}
            excepted = exception("excepted", "refuses", "r", match=match)
            elsewhere = {**excepted, "metadata": {"name": "excepted", "namespace": name}}
            apply(cluster, [elsewhere])
            setup.engine.expect(f"--exception-namespaces does not have the namespace {name}")
            expect("fifth")
            apply(cluster, [excepted])
            eventually(lambda: create().status == 201, "the exception")
            assert mark() == {"marked": "first"}
            apply(cluster, [policy("marks", merge("m", labels_of(marked="second"), match=here))])
            eventually(lambda: mark() == {"marked": "second"}, "the changed rule")
            remove(cluster, marking)
            eventually(lambda: mark() is None, "no rule that changes")
            remove(cluster, excepted)
            expect("fifth")
            remove(cluster, refusing(""))
            eventually(lambda: create().status == 201, "no rule")
            assert "Traceback" not in setup.gateway.log
            assert "panic" not in setup.engine.log
