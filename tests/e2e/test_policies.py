"""ValidatingAdmissionPolicies decide in the gateway as they do in the API server."""

from __future__ import annotations

import json
import re
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.core.decision import MAX_WARNING_CHARS
from tests.e2e.policy_cases import CANARY, CASES, DRAWN, PARAMS, canonical
from tests.e2e.setups import REGISTRATIONS, BehindGateway
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster
from tests.e2e.policy_cases import PolicyCase

PATHS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
}
FAILURES: Final = "validation.policy.admission.k8s.io/validation_failure"


class Policies(BehindGateway):
    """A gateway with the policies of all cases in files."""

    def __init__(self, cluster: Cluster, folder: Path, documents: list[dict[str, Any]]) -> None:
        super().__init__(
            cluster, folder, [], "policies", gateway={"kubernetes": {"kubeconfig": str(cluster.kubeconfig())}}
        )
        self.documents = documents

    def write_configuration(self) -> None:
        super().write_configuration()
        text = "".join(json.dumps(each) + "\n---\n" for each in self.documents)
        (self.config / "policies.yaml").write_text(text)


def documents(namespace: str) -> list[dict[str, Any]]:
    params = [{**each, "metadata": {**each["metadata"], "namespace": namespace}} for each in PARAMS]
    return [*(one for case in (*CASES, CANARY) for one in case.documents()), *params]


def outcome(cluster: Cluster, namespace: str, case: PolicyCase, number: int) -> Any:
    """Return everything about a creation that a user or an auditor sees."""
    made = case.requests()[number]
    path = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"
    answer = cluster.api.create(path, made)
    name = made["metadata"]["name"]
    # The API server cuts the warnings of webhooks.
    return _refusal(answer), sorted(text[:MAX_WARNING_CHARS] for text in answer.warnings), name


def _refusal(answer: Answer) -> Any:
    if answer.status == 201:
        return None
    message = answer.message
    begin = max(message.find("ValidatingAdmissionPolicy '"), 0)
    return (
        answer.status,
        answer.document.get("reason"),
        # The API server evaluates the bindings of a policy in any order.
        re.sub(r"with binding '[^']*'", "with binding", message[begin:].split("\n")[0]),
    )


def published(cluster: Cluster, namespace: str, names: list[str]) -> dict[str, dict[str, object]]:
    """Return the annotations of policies by object, each with the last part of its key."""
    found: dict[str, dict[str, object]] = {}
    for event in cluster.audit_events(lambda event: event.get("stage") == "ResponseComplete"):
        ref = event.get("objectRef", {})
        if ref.get("namespace") != namespace or ref.get("name") not in names or event["verb"] != "create":
            continue
        kept: dict[str, object] = {}
        for key, value in event.get("annotations", {}).items():
            last = key.rpartition("/")[2]
            if key == FAILURES:
                kept["validation_failure"] = canonical(value)
            elif key.startswith(("fail.validate", "ignore.validate")):
                policy, _, name = last.rpartition(".")
                if policy.partition(".")[0] not in ("failed-open", "mutation"):
                    kept[name] = canonical(value)
            elif "/" in key and not key.split("/")[0].endswith("k8s.io"):
                kept[last] = canonical(value)
        found[ref["name"]] = kept
    return found


@pytest.fixture(scope="module")
def namespaces(cluster: Cluster) -> tuple[str, str]:
    names = []
    for _ in range(2):
        made = cluster.api.create(
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "policies-"}},
        )
        names.append(made.document["metadata"]["name"])
        for param in PARAMS:
            assert cluster.api.create(f"/api/v1/namespaces/{names[-1]}/configmaps", param).status == 201
    return names[0], names[1]


def in_force(cluster: Cluster, namespace: str) -> bool:
    return outcome(cluster, namespace, CANARY, 0)[0] is not None


@pytest.fixture(scope="module")
def outcomes(
    cluster: Cluster, namespaces: tuple[str, str], tmp_path_factory: pytest.TempPathFactory
) -> tuple[dict[Any, Any], dict[Any, Any]]:
    """The outcomes in the API server, and behind the gateway, by case and number of the object."""
    natively = _with_annotations(cluster, namespaces[0], _natively(cluster, namespaces[0]))
    folder = tmp_path_factory.mktemp("policies")
    return natively, _with_annotations(cluster, namespaces[1], _behind(cluster, namespaces[1], folder))


def _with_annotations(cluster: Cluster, namespace: str, made: list[tuple[Any, Any]]) -> dict[Any, Any]:
    names = [name for _, (_, _, name) in made]
    audited: dict[str, Any] = {}

    def complete() -> bool:
        audited.update(published(cluster, namespace, names))
        return audited.keys() >= set(names)

    eventually(complete)
    return {key: (refusal, warnings, audited[name]) for key, (refusal, warnings, name) in made}


def _all(cluster: Cluster, namespace: str) -> list[tuple[Any, Any]]:
    return [
        ((case.name, number), outcome(cluster, namespace, case, number))
        for case in CASES
        for number in range(len(case.objects))
    ]


def _natively(cluster: Cluster, namespace: str) -> list[tuple[Any, Any]]:
    made: list[str] = []
    refused: set[str] = set()
    try:
        for case in (*CASES, CANARY):
            for document in case.documents():
                kind = PATHS[document["kind"]]
                answer = cluster.api.create(f"{REGISTRATIONS}/{kind}", document)
                if answer.status == 422 and case in DRAWN:
                    # Older API servers do not have all functions.
                    refused.add(case.name)
                    break
                assert answer.status == 201, (answer.message, document)
                made.append(f"{REGISTRATIONS}/{kind}/{document['metadata']['name']}")
        eventually(lambda: in_force(cluster, namespace))
        return [found for found in _all(cluster, namespace) if found[0][0] not in refused]
    finally:
        for path in made:
            cluster.api.delete(path)
        eventually(lambda: not in_force(cluster, namespace))


def _behind(cluster: Cluster, namespace: str, folder: Path) -> list[tuple[Any, Any]]:
    with Policies(cluster, folder, documents(namespace)):
        eventually(lambda: in_force(cluster, namespace))
        return _all(cluster, namespace)


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_policy_decides_in_the_gateway_as_in_the_api_server(
    outcomes: tuple[dict[Any, Any], dict[Any, Any]], case: PolicyCase, request: pytest.FixtureRequest
) -> None:
    natively, behind = outcomes
    if request.node.callspec.params["cluster"] == "1.33":
        # It publishes only the first failure of an expression.
        behind = {key: (*found[:2], _with_first_failure(found[2])) for key, found in behind.items()}
    if (case.name, 0) not in natively:
        pytest.skip("this version of the API server does not know one of the functions")
    for number in range(len(case.objects)):
        assert behind[case.name, number] == natively[case.name, number], (case.spec, case.objects[number])


def _with_first_failure(audited: dict[str, Any]) -> dict[str, Any]:
    failures = audited.get("validation_failure")
    return {**audited, "validation_failure": failures[:1]} if failures else audited


def test_the_cases_have_every_outcome(outcomes: tuple[dict[Any, Any], dict[Any, Any]]) -> None:
    natively, _ = outcomes
    codes = {refusal and refusal[0] for refusal, _, _ in natively.values()}
    assert codes == {None, 403, 413, 422}
    assert any(warnings for _, warnings, _ in natively.values())
    assert any(audited for _, _, audited in natively.values())
