"""The real policies: every worker and every peer that is built applies them as described."""

from __future__ import annotations

from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import yaml

from admission_gateway_worker.json_patch.patch import apply_patch, parse_patch
from gateway.pure.core.namespace import Namespace
from gateway.server.serving.devcert import make_development_certificate
from loadtest.cases import CASES
from loadtest.gateways import TESTED, mutating_documents
from loadtest.peers import gatekeeper, kyverno
from loadtest.peers.setups import ALONE, Bed, Gateway
from loadtest.policies import POLICY_WORKERS, SETS, labelled, mutated, real_path, unready, violating
from loadtest.policies.checking import lacking, problem
from loadtest.policies.mutations import MUTATIONS
from loadtest.reviews import POD
from loadtest.servers import run_servers
from tests.policies.documents import decided

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from loadtest.cases import Case
    from loadtest.peers.setups import Subject
    from tests.languages.toolchains import Language

NAMESPACE = Namespace("default", TESTED, b'{"metadata":{"name":"default"}}')


def test_each_policy_has_a_pod_of_its_own_that_it_denies() -> None:
    pod = orjson.loads(labelled(POD.read_bytes()))["request"]["object"]
    denied = [violating(pod, policy) for policy in SETS["v10"]]
    assert all(changed != pod for changed in denied)
    assert all(changed not in denied[:number] for number, changed in enumerate(denied))


@pytest.mark.parametrize(
    ("found", "expected", "path"),
    [
        ({"a": [{"b": 1, "c": 2}]}, {"a": [{"b": 1}]}, ""),
        ({"a": [{"b": 1}]}, {"a": [{"b": 2}]}, "/a/0/b"),
        ({"a": []}, {"a": [{"b": 2}]}, "/a"),
        ({}, {"a": 1}, "/a"),
        ([], {}, "/"),
    ],
)
def test_what_lacks_is_named_by_its_path(found: object, expected: object, path: str) -> None:
    assert lacking(found, expected).partition(":")[0] == path


def test_a_mutated_pod_has_all_of_the_pod() -> None:
    pod = orjson.loads(labelled(POD.read_bytes()))["request"]["object"]
    assert lacking(mutated(pod), pod) == ""
    assert lacking(pod, mutated(pod)) != ""


@pytest.mark.parametrize("name", MUTATIONS)
def test_each_mutating_document_changes_the_pod(name: str, tmp_path: Path) -> None:
    pod = orjson.loads(labelled(POD.read_bytes()))["request"]["object"]
    assert lacking(pod, MUTATIONS[name].result) != ""
    others = [each for each in mutating_documents() if each["kind"] != "Namespace"]
    mine = [each for each in others if each["metadata"]["name"] == name]
    members = {"object": pod, "userInfo": {"username": "admin"}}
    answer = decided(tmp_path, mine, members, phase="mutate", space=NAMESPACE)
    assert not answer.failures
    changed = apply_patch(pod, parse_patch(answer.decision.patch))
    assert [lacking(changed, each) for each in (pod, MUTATIONS[name].result)] == ["", ""]


def test_half_of_the_mutating_documents_are_patches() -> None:
    kinds = [mutation.spec["patchType"] for mutation in MUTATIONS.values()]
    assert (kinds.count("ApplyConfiguration"), kinds.count("JSONPatch")) == (5, 5)


@pytest.mark.parametrize("name", SETS)
@pytest.mark.parametrize(
    "documents",
    [
        partial(gatekeeper.documents, engine="cel"),
        partial(gatekeeper.documents, engine="rego"),
        partial(kyverno.documents, engine="cel"),
        partial(kyverno.documents, engine="pattern"),
    ],
)
def test_a_peer_that_reads_policies_gets_one_document_for_each(
    documents: Callable[[str], list[dict[str, Any]]], name: str
) -> None:
    found = documents(name)
    assert [document["metadata"]["name"] for document in found] == list(SETS[name])
    assert list(yaml.safe_load_all(yaml.safe_dump_all(found))) == found


@pytest.mark.parametrize("engine", ["cel", "rego"])
def test_each_constraint_of_gatekeeper_has_a_template(engine: gatekeeper.Engine) -> None:
    kinds = {one["spec"]["crd"]["spec"]["names"]["kind"] for one in gatekeeper.templates()}
    assert {f"{kind.lower()}.constraints.gatekeeper.sh" for kind in kinds} == set(gatekeeper.definitions())
    assert {one["kind"] for one in gatekeeper.documents("v10", engine)} <= kinds


@pytest.mark.slow
@pytest.mark.parametrize(
    "kind", [kind for kind in ALONE if not issubclass(kind, Gateway)], ids=lambda kind: kind.name
)
def test_each_set_is_applied(kind: type[Subject], tmp_path: Path) -> None:
    if why := kind.missing():
        pytest.skip(why)
    with ExitStack() as stack:
        subject = kind()
        certificate, key = make_development_certificate(tmp_path / "state")
        server = subject.start(Bed(stack, tmp_path, certificate, key))
        for name in subject.sets:
            subject.apply(name)
            assert problem(server.address + subject.path(name), name, POD.read_bytes()) == ""
            subject.clear(name)


@pytest.mark.slow
@pytest.mark.parametrize("language", POLICY_WORKERS.values(), ids=lambda language: language.name)
def test_the_worker_of_each_language_has_the_same_policies(language: Language, tmp_path: Path) -> None:
    if why := unready(language):
        pytest.skip(why)
    name = f"real-{language.name}"
    with run_servers(POD, [name], tmp_path) as running:
        address = running.servers[name].address
        assert {which: problem(address + real_path(which), which, POD.read_bytes()) for which in SETS} == (
            dict.fromkeys(SETS, "")
        )


@pytest.mark.slow
@pytest.mark.parametrize(
    "case", [case for case in CASES.values() if case.applied not in ("", *SETS)], ids=lambda case: case.name
)
def test_documents_of_the_gateway_are_applied(case: Case, tmp_path: Path) -> None:
    with run_servers(POD, [case.server], tmp_path) as running:
        url = running.servers[case.server].address + case.path
        assert problem(url, case.applied, POD.read_bytes()) == ""
