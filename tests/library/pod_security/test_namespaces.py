"""Namespaces: their labels, and warnings about the pods in them.

The tables are the facts of upstream's TestValidateNamespace and TestExemptNamespaceWarning.
"""

from __future__ import annotations

import asyncio
import socket
from typing import TYPE_CHECKING, Any, Final

import pytest

from admission_gateway_worker import Denied
from admission_gateway_worker.policies.pod_security import DEFINITIONS, existing_pods
from admission_gateway_worker.policies.pod_security.existing_pods import MAX_PODS, warnings
from admission_gateway_worker.policies.pod_security.levels import LevelVersion
from admission_gateway_worker.policies.pod_security.parameters import prepare
from tests.kit import PATIENCE_S
from tests.library.requests import request, run

if TYPE_CHECKING:
    from pathlib import Path

    from tests.library.api_server import ApiServer

(POLICY,) = DEFINITIONS
PREFIX: Final = "pod-security.kubernetes.io/"
PODS: Final = "/api/v1/namespaces/test/pods"
VIOLATES: Final = 'existing pods in namespace "test" violate the new PodSecurity enforce level '

Json = dict[str, Any]


@pytest.fixture(autouse=True)
def _no_list_takes_too_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """The client and its API server are in this process, which may be stopped for a second."""
    monkeypatch.setattr(existing_pods, "TIMEOUT_S", PATIENCE_S)


def labels(text: str) -> dict[str, str]:
    """Return labels of the form ``enforce=baseline enforce-version=v1.0``."""
    return {PREFIX + name: value for name, _, value in (each.partition("=") for each in text.split())}


def namespace(new: str, old: str | None = None) -> Json:
    def made(text: str) -> Json:
        return {"metadata": {"name": "test", "labels": labels(text)}}

    return request(
        "",
        "v1",
        "Namespace",
        made(new),
        None if old is None else made(old),
        resource={"group": "", "version": "v1", "resource": "namespaces"},
        name="test",
        namespace="test",
    )


def parameters(*, namespaces: list[str] | None = None, **defaults: str) -> Json:
    return {
        "defaults": defaults,
        "exemptions": {"namespaces": namespaces or [], "runtimeClasses": ["exempt"]},
    }


def pod(name: str, owner: str = "", **spec: Any) -> Json:
    metadata: Json = {"name": name, "namespace": "test"}
    if owner:
        metadata["ownerReferences"] = [{"uid": "other"}, {"uid": owner, "controller": True}]
    return {"metadata": metadata, "spec": spec}


@pytest.mark.parametrize(
    ("new", "old"),
    [
        ("enforce=privileged enforce-version=v1.0", None),
        ("enforce=baseline", None),
        ("enforce=restricted", None),
        # No stricter level begins to be enforced, so no pods are listed.
        ("enforce=restricted enforce-version=v1.0", "enforce=restricted enforce-version=v1.0"),
        ("enforce=unknown", "enforce=unknown"),
        ("enforce=baseline enforce-version=unknown", "enforce=baseline enforce-version=unknown"),
        ("enforce=baseline enforce-version=v1.0", "enforce=restricted enforce-version=v1.0"),
        ("enforce=baseline enforce-version=latest", "enforce=restricted enforce-version=latest"),
        ("enforce=baseline", "enforce=restricted"),
        ("enforce=privileged", "enforce=restricted enforce-version=v1.0"),
        ("", "enforce=restricted enforce-version=v1.0"),
        ("warn=restricted audit=restricted", ""),
    ],
)
def test_valid_labels_pass_without_a_list(api_server: ApiServer, new: str, old: str | None) -> None:
    assert run(POLICY, namespace(new, old)).warnings == []
    assert api_server.requests == []


LEVELS: Final = "must be one of privileged, baseline, restricted"
VERSIONS: Final = 'must be "latest" or "v1.x"'


@pytest.mark.parametrize(
    ("new", "old", "problems"),
    [
        ("enforce=unknown", None, {"enforce": f'"unknown": {LEVELS}'}),
        ("enforce=privileged enforce-version=unknown", None, {"enforce-version": f'"unknown": {VERSIONS}'}),
        ("enforce=unknown", "enforce=restricted", {"enforce": f'"unknown": {LEVELS}'}),
        ("enforce=unknown", "enforce=other", {"enforce": f'"unknown": {LEVELS}'}),
        ("enforce-version=v1.01", "enforce=restricted", {"enforce-version": f'"v1.01": {VERSIONS}'}),
        (
            "warn-version=v2 audit=",
            None,
            {"audit": f'"": {LEVELS}', "warn-version": f'"v2": {VERSIONS}'},
        ),
    ],
)
def test_new_problems_of_labels_are_denied(new: str, old: str | None, problems: dict[str, str]) -> None:
    with pytest.raises(Denied) as denied:
        run(POLICY, namespace(new, old))
    found = denied.value
    assert (found.code, found.reason, found.name, found.group, found.kind) == (
        422,
        "Invalid",
        "test",
        "",
        "Namespace",
    )
    expected = {
        f"metadata.labels[{PREFIX}{label}]": f"Invalid value: {text}" for label, text in problems.items()
    }
    assert {cause.field: cause.message for cause in found.causes} == expected
    assert {cause.reason for cause in found.causes} == {"FieldValueInvalid"}
    texts = ", ".join(f"{field}: {text}" for field, text in expected.items())
    assert found.message == f'Namespace "test" is invalid: {texts if len(expected) == 1 else f"[{texts}]"}'


@pytest.mark.parametrize(
    ("new", "defaults", "ignored"),
    [
        ("", {}, ""),
        ("enforce=privileged enforce-version=v1.24 warn-version=v1.25", {}, ""),
        ("enforce=baseline", {}, "enforce=baseline:latest"),
        ("warn=baseline", {}, "warn=baseline:latest"),
        ("audit=restricted", {}, "audit=restricted:latest"),
        ("", {"enforce": "baseline", "audit": "baseline", "warn": "baseline"}, ""),
        ("warn-version=v1.23", {"audit": "baseline", "warn": "baseline"}, "warn=baseline:v1.23"),
        (
            "enforce=restricted enforce-version=v1.0 audit=restricted warn=baseline",
            {},
            "enforce=restricted:v1.0, audit=restricted:latest, warn=baseline:latest",
        ),
    ],
)
def test_labels_of_an_exempt_namespace_are_warned_of(
    new: str, defaults: dict[str, str], ignored: str
) -> None:
    review = run(POLICY, namespace(new), parameters(namespaces=["test"], **defaults))
    assert review.warnings == (
        [f'namespace "test" is exempt from Pod Security, and the policy ({ignored}) will be ignored']
        if ignored
        else []
    )


def test_an_update_of_an_exempt_namespace_lists_no_pods(api_server: ApiServer) -> None:
    review = run(POLICY, namespace("enforce=restricted", ""), parameters(namespaces=["test"]))
    (warning,) = review.warnings
    assert warning.endswith(
        " is exempt from Pod Security, and the policy (enforce=restricted:latest) will be ignored"
    )
    assert api_server.requests == []


def test_pods_that_violate_a_stricter_level_are_warned_of(api_server: ApiServer) -> None:
    bad: Json = {"containers": [{"name": "main", "securityContext": {"privileged": True}}]}
    api_server.lists[PODS] = [
        pod("web", **bad),
        pod("exempt", runtimeClassName="exempt", hostNetwork=True),
        pod("agent", runtimeClassName="other", **bad),
        pod("both", hostPID=True, **bad),
        pod("fine"),
        pod("third", **bad),
    ]
    review = run(POLICY, namespace("enforce=baseline enforce-version=v1.3", ""), parameters())
    assert review.warnings == [
        f'{VIOLATES}"baseline:v1.3"',
        "agent (and 2 other pods): privileged",
        "both: host namespaces, privileged",
    ]


def test_a_default_that_comes_into_force_counts_too(api_server: ApiServer) -> None:
    api_server.lists[PODS] = [pod("a", hostPID=True), pod("b", hostIPC=True)]
    review = run(POLICY, namespace("", "enforce=privileged"), parameters(enforce="baseline"))
    assert review.warnings == [f'{VIOLATES}"baseline:latest"', "a (and 1 other pod): host namespaces"]


def test_pods_of_different_controllers_are_checked_first(api_server: ApiServer) -> None:
    exempt = [pod(f"exempt-{index}", runtimeClassName="exempt") for index in range(10)]
    replicas = [pod(f"replica-{index:04}", owner="one", hostPID=True) for index in range(MAX_PODS)]
    others = [pod("other", owner="two", hostIPC=True), pod("single", hostNetwork=True)]
    api_server.lists[PODS] = [*exempt, *replicas, *others]
    review = run(POLICY, namespace("enforce=baseline", ""), parameters())
    bound = f"{MAX_PODS} of {MAX_PODS + 2}"
    assert review.warnings == [
        f"new PodSecurity enforce level only checked against the first {bound} existing pods",
        f'{VIOLATES}"baseline:latest"',
        f"other (and {MAX_PODS - 1} other pods): host namespaces",
    ]


def test_pods_after_the_deadline_are_left_out() -> None:
    pods = [pod("first", hostPID=True), pod("second", hostPID=True)]
    level = LevelVersion("baseline", None)
    assert asyncio.run(warnings(pods, "test", level, prepare({}), deadline=0.0)) == [
        "new PodSecurity enforce level only checked against the first 1 of 2 existing pods",
        f'{VIOLATES}"baseline:latest"',
        "first: host namespaces",
    ]


def test_a_list_that_fails_is_warned_of(api_server: ApiServer) -> None:
    api_server.token = "of-another"
    review = run(POLICY, namespace("enforce=baseline", ""))
    assert review.warnings == ["failed to list pods while checking new PodSecurity enforce level"]


def test_a_list_takes_half_of_the_remaining_time_at_most(
    tmp_path: Path, api_server: ApiServer, monkeypatch: pytest.MonkeyPatch
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as silent:
        api_server.url = f"http://127.0.0.1:{silent.getsockname()[1]}"
        monkeypatch.setenv("KUBECONFIG", str(api_server.kubeconfig(tmp_path, token="t")))
        review = run(POLICY, namespace("enforce=baseline", ""), timeout_s=0.2)
    assert review.warnings == ["failed to list pods while checking new PodSecurity enforce level"]


def test_without_access_to_the_api_server_there_are_no_warnings(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    assert run(POLICY, namespace("enforce=restricted", "")).warnings == []


def test_other_requests_of_namespaces_pass() -> None:
    assert run(POLICY, {**namespace("enforce=unknown"), "subResource": "finalize"}).warnings == []
    assert run(POLICY, {**namespace("enforce=unknown"), "operation": "DELETE", "object": None}).warnings == []
    for document in (
        {**namespace(""), "object": None},
        {**namespace("", ""), "oldObject": None, "operation": "UPDATE"},
    ):
        with pytest.raises(Denied, match="failed to decode"):
            run(POLICY, document)
