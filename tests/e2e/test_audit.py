"""The API server's audit log contains the annotations of the gateway and its policies."""

from __future__ import annotations

import hashlib
import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.objects import config_map
from tests.e2e.outcome import audit_annotations
from tests.e2e.setups import BehindGateway, Directly, Hook, rule

if TYPE_CHECKING:
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

MARKED: Final = {"matchLabels": {"audited": "yes"}}
CONFIG_MAPS: Final = (rule("configmaps", "CREATE"),)
LONG: Final = "a-policy-with-a-long-name.of-some-team.example"
ODD_KEYS: Final = ("a", "A-b_c.d", "0", "a..b", "x" * 62, "y" * 63)
BAD_KEYS: Final = ("x" * 64, "a/b", "-a", "a-", ".", "", " ", "é", "new\nline")


def hook(phase: Any, name: str, script: dict[str, Any], **fields: Any) -> Hook:
    return Hook(phase, name, script, CONFIG_MAPS, fields={"objectSelector": MARKED, **fields})


HOOKS: Final = [
    hook(
        "mutate",
        "first.e2e.test",
        {"echo": "seen", "annotations": {"said": "once"}},
        reinvocationPolicy="IfNeeded",
    ),
    hook("mutate", "label.e2e.test", {"label": "added", "annotations": {"said": "label"}}),
    hook("mutate", "gone.e2e.test", {"status": "UNAVAILABLE"}, failurePolicy="Ignore"),
    hook(
        "mutate",
        LONG,
        {"annotations": {key: f"{key} kept" for key in ODD_KEYS} | dict.fromkeys(BAD_KEYS, "dropped")},
    ),
    hook("validate", "team.e2e.test", {"annotations": {"team": "none", "long": "é" * 3000}}),
    hook("validate", "open.e2e.test", {"status": "UNAVAILABLE"}, failurePolicy="Ignore"),
    hook("validate", "quiet.e2e.test", {"record": True}, failurePolicy="Ignore"),
    hook(
        "validate",
        "denies.e2e.test",
        {"deny": {"message": "no"}, "annotations": {"said": "no"}},
        objectSelector={"matchLabels": {"audited": "yes", "denied": "yes"}},
    ),
]


def shortened(key: str) -> str:
    """Return a policy's key as the gateway shortens it (docs/answers.md)."""
    return key if len(key) <= 63 else f"{key[:54]}-{hashlib.sha256(key.encode()).hexdigest()[:8]}"


def mutation(name: str, *, mutated: bool) -> str:
    return json.dumps(
        {"configuration": "policies", "webhook": name, "mutated": mutated}, separators=(",", ":")
    )


def patch(name: str, path: str, value: Any) -> str:
    operation = {"op": "add", "path": path, "value": value}
    names = {"configuration": "policies", "webhook": name}
    return json.dumps({**names, "patch": [operation], "patchType": "JSONPatch"}, separators=(",", ":"))


OF_POLICIES: Final = {
    "first.e2e.test.said": "once",
    "label.e2e.test.said": "label",
    **{shortened(f"{LONG}.{key}"): f"{key} kept" for key in ODD_KEYS},
    "team.e2e.test.team": "none",
    "team.e2e.test.long": "é" * 3000,
}
"""The expected annotations of the policies by key."""

AT_METADATA: Final = {
    "mutation.round_0_index_0": mutation("first.e2e.test", mutated=True),
    "mutation.round_0_index_1": mutation("label.e2e.test", mutated=True),
    "mutation.round_0_index_2": mutation("gone.e2e.test", mutated=False),
    "failed-open.round_0_index_2": "gone.e2e.test",
    "mutation.round_0_index_3": mutation(LONG, mutated=False),
    "mutation.round_1_index_0": mutation("first.e2e.test", mutated=True),
    "failed-open.round_0_index_0": "open.e2e.test",
}
AT_REQUEST: Final = {
    "patch.round_0_index_0": patch("first.e2e.test", "/metadata/annotations/seen", "audited"),
    "patch.round_0_index_1": patch("label.e2e.test", "/metadata/labels/added", "set"),
    "patch.round_1_index_0": patch("first.e2e.test", "/metadata/annotations/seen", "added audited"),
}


@pytest.fixture(scope="module", params=["None", "Metadata", "Request"])
def gateway(
    cluster: Cluster, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Any:
    level = request.param
    with BehindGateway(
        cluster, tmp_path_factory.mktemp("audit"), HOOKS, gateway={"auditLevel": level}
    ) as setup:
        yield level, setup


def audited(cluster: Cluster, namespace: str, **labels: str) -> tuple[Answer, dict[str, str]]:
    """Return the answer to the creation of a ConfigMap, and all audit annotations of it."""
    document = config_map("audited", {"audited": "yes", **labels}, key="value")
    document["metadata"]["annotations"] = {"kept": "x"}
    answer = cluster.api.create(f"/api/v1/namespaces/{namespace}/configmaps", document)
    (annotations,) = audit_annotations(cluster, [answer]).values()
    return answer, annotations


def of_the_gateway(annotations: dict[str, str]) -> dict[str, str]:
    """Return the annotations that the gateway's entries answered, without the names of the entries."""
    found: dict[str, str] = {}
    for key, value in annotations.items():
        prefix, _, name = key.partition("/")
        if prefix.endswith(".admission-gateway.io"):
            assert name not in found, f"two entries answer {name}"
            found[name] = value
    return found


def test_the_audit_log_holds_every_annotation_of_the_gateway_and_its_policies(
    cluster: Cluster, namespace: str, gateway: tuple[str, BehindGateway]
) -> None:
    level, _ = gateway
    answer, annotations = audited(cluster, namespace)
    assert answer.status == 201, answer
    expected = OF_POLICIES | {"None": {}, "Metadata": AT_METADATA, "Request": AT_METADATA | AT_REQUEST}[level]
    found = of_the_gateway(annotations)
    record = {key: found.pop(key) for key in list(found) if key.startswith("quiet.e2e.test.saw-")}
    assert found == expected
    assert len(record) == 1


def test_the_audit_log_has_the_annotations_of_a_denied_review(
    cluster: Cluster, namespace: str, gateway: tuple[str, BehindGateway]
) -> None:
    answer, annotations = audited(cluster, namespace, denied="yes")
    assert answer.status == 400, answer
    found = of_the_gateway(annotations)
    assert {key: found.get(key) for key in ("denies.e2e.test.said", "team.e2e.test.team")} == {
        "denies.e2e.test.said": "no",
        "team.e2e.test.team": "none",
    }


def test_the_api_server_accepts_every_annotation_key_of_the_gateway(
    cluster: Cluster, namespace: str, gateway: tuple[str, BehindGateway]
) -> None:
    _, setup = gateway
    _, annotations = audited(cluster, namespace)
    found = of_the_gateway(annotations)
    (shown,) = (value for key, value in found.items() if key.startswith("quiet.e2e.test.saw-"))
    review = json.dumps(
        {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": json.loads(shown)}
    )
    # The validating phase again, with the very request that the API server sent.
    sent: dict[str, str] = {}
    for path in ("/validate.fail", "/validate.ignore"):
        sent |= setup.gateway.review(path, review.encode()).get("auditAnnotations", {})
    assert sent
    assert sent.items() <= found.items()


def test_the_annotations_of_a_reinvocation_do_not_replace_the_first(
    cluster: Cluster, namespace: str, tmp_path: Path
) -> None:
    """The API server keeps the first value of a key; the object is that of the last call."""
    twice = {"objectSelector": {"matchLabels": {"audited": "twice"}}}
    script = {"echo": "seen", "record": True}
    policies = [hook("mutate", "echo.e2e.test", script, reinvocationPolicy="IfNeeded", **twice)]
    late = [hook("mutate", "late.e2e.test", {"label": "late"}, **twice)]
    # Configurations are called in the order of their names.
    with (
        BehindGateway(
            cluster, tmp_path / "gateway", policies, "a-gateway", gateway={"auditLevel": "Request"}
        ),
        Directly(cluster, tmp_path / "late", late, "b-late"),
    ):
        answer, annotations = audited(cluster, namespace, audited="twice")
    assert answer.document["metadata"]["annotations"]["seen"] == "audited late"
    found = of_the_gateway(annotations)
    assert json.loads(found["mutation.round_0_index_0"])["mutated"]
    assert found["patch.round_0_index_0"] == patch("echo.e2e.test", "/metadata/annotations/seen", "audited")
    # What differs by key is there of both calls.
    assert len([key for key in found if key.startswith("echo.e2e.test.saw-")]) == 2
    again = json.loads(annotations["patch.webhook.admission.k8s.io/round_1_index_0"])
    assert again["patch"] == [
        {"op": "replace", "path": "/metadata/annotations/seen", "value": "audited late"}
    ]
