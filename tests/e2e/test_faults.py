"""Workers that hang, die, send invalid answers or unusable patches, under Fail and under Ignore.

Either way nothing half is stored, and the other webhooks of the same request do their part. Under Fail the
user reads which webhook it was and why; under Ignore the logs and metrics do.
"""

from __future__ import annotations

import re
import signal
import threading
from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.faults import ABSENT, CONFIG_MAPS, FAULTS, GONE, PHASES, POLICIES, Faulty, label, selected
from tests.e2e.objects import config_map
from tests.e2e.setups import BehindGateway, Directly, Hook, rule
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster
    from tests.e2e.setups import Phase


@pytest.fixture(scope="module")
def behind(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Faulty]:
    setup = Faulty(cluster, tmp_path_factory.mktemp("faulty"))
    with setup:
        yield setup


TABLE: Final = [
    (pool, name, phase) for name, fault in FAULTS.items() for pool in fault.pools for phase in fault.phases
]


@pytest.mark.parametrize("policy", POLICIES)
@pytest.mark.parametrize(("pool", "name", "phase"), TABLE)
def test_the_failure_policy_decides_for_a_faulty_worker(
    behind: Faulty, namespace: str, pool: str, name: str, phase: Phase, policy: str
) -> None:
    behind.shows_failure(namespace, label(pool, name, policy, phase), phase, FAULTS[name].cause)
    behind.is_stored(behind.create(namespace, "none", "next"), namespace, "next")


@pytest.mark.parametrize("phase", PHASES)
def test_a_webhook_that_fails_open_does_not_override_a_denial(
    behind: Faulty, namespace: str, phase: Phase
) -> None:
    for name, fault in FAULTS.items():
        if phase not in fault.phases or "hang" in fault.script:
            continue
        called = label(fault.pools[-1], name, "Ignore", phase)
        answer = behind.create(namespace, called, "victim", deny="please")
        assert (answer.status, answer.document["reason"]) == (403, "Forbidden"), answer
        assert answer.message.endswith("denied the request: denier.validate.test: not this one")
        assert behind.stored(namespace, "victim").status == 404


def test_a_duplicate_verdict_counts_once(behind: Faulty, namespace: str) -> None:
    for phase in PHASES:
        answer = behind.create(namespace, label("stream", "twice", "Fail", phase), phase)
        behind.is_stored(answer, namespace, phase)


# -- workers that are gone ------------------------------------------------------------------------

BOTH: Final = [pytest.param(phase, policy, id=f"{phase}-{policy}") for phase in PHASES for policy in POLICIES]


@pytest.mark.parametrize(("phase", "policy"), BOTH)
def test_the_failure_policy_decides_for_a_worker_that_never_started(
    behind: Faulty, namespace: str, phase: Phase, policy: str
) -> None:
    behind.shows_failure(namespace, label("absent", "started", policy, phase), phase, ABSENT.cause)


@pytest.mark.parametrize(("phase", "policy"), BOTH)
def test_the_failure_policy_decides_for_a_worker_that_crashes(
    behind: Faulty, namespace: str, phase: Phase, policy: str
) -> None:
    with behind.fragile_worker() as worker:
        behind.shows_failure(namespace, label("fragile", "exits", policy, phase), phase, GONE["exits"].cause)
        assert worker.wait() == 1
    with behind.fragile_worker():
        answer = behind.create(namespace, label("fragile", "back", "Fail", phase), "next")
        behind.is_stored(answer, namespace, "next")


@pytest.mark.parametrize(("phase", "policy"), BOTH)
def test_the_failure_policy_decides_at_once_for_a_killed_worker(
    behind: Faulty, namespace: str, phase: Phase, policy: str
) -> None:
    with behind.fragile_worker() as worker:

        def kill_in_flight() -> None:
            eventually(lambda: behind.gateway.metric("admission_gateway_reviews_in_flight"))
            worker.signal(signal.SIGKILL)

        killer = threading.Thread(target=kill_in_flight)
        killer.start()
        # "At once" is in the cause: it is not the DEADLINE_EXCEEDED of ten seconds later.
        behind.shows_failure(namespace, label("fragile", "hangs", policy, phase), phase, GONE["hangs"].cause)
        killer.join()


@pytest.mark.parametrize(("phase", "policy"), BOTH)
def test_the_failure_policy_decides_for_a_stopped_worker_until_it_continues(
    behind: Faulty, namespace: str, phase: Phase, policy: str
) -> None:
    with behind.fragile_worker() as worker:
        worker.signal(signal.SIGSTOP)
        behind.shows_failure(
            namespace, label("fragile", "frozen", policy, phase), phase, GONE["frozen"].cause
        )
        worker.signal(signal.SIGCONT)
        answer = behind.create(namespace, label("fragile", "back", policy, phase), "next")
        behind.is_stored(answer, namespace, "next")


# -- DELETE ---------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("phase", "cause"),
    [
        ("mutate", "answered a patch, but a DELETE request has no object to change"),
        ("validate", "a validating webhook may not answer a patch"),
    ],
)
def test_the_failure_policy_decides_for_a_patch_on_delete(
    behind: Faulty, namespace: str, phase: Phase, cause: str
) -> None:
    faults = {policy: label("scripted", "delete", policy, phase) for policy in POLICIES}
    for policy, fault in faults.items():
        assert behind.create(namespace, fault, policy.lower()).status == 201
    path = CONFIG_MAPS.format(namespace=namespace)
    refused = behind.cluster.api.delete(f"{path}/fail")
    assert (refused.status, refused.document["reason"]) == (500, "InternalError")
    assert refused.message.endswith(f'failed calling webhook "{faults["Fail"]}.faults.test": {cause}')
    assert behind.cluster.api.delete(f"{path}/ignore").status == 200
    assert [behind.stored(namespace, name).status for name in ("fail", "ignore")] == [200, 404]
    assert behind.opened(f"{faults['Ignore']}.faults.test", phase) == 1


# -- patches whose result only the API server refuses ---------------------------------------------

UNWELCOME: Final[dict[str, list[dict[str, Any]]]] = {
    "invalid": [{"op": "add", "path": "/data/not a key", "value": "x"}],
    "wrong-type": [{"op": "replace", "path": "/data", "value": 3}],
    "no-kind": [{"op": "remove", "path": "/kind"}],
    "unknown-field": [{"op": "add", "path": "/surprise", "value": 1}],
    "resource-version": [{"op": "add", "path": "/metadata/resourceVersion", "value": "1"}],
    "managed-fields": [{"op": "add", "path": "/metadata/managedFields", "value": [{"manager": "m"}]}],
}
"""Patches that the gateway accepts. ``test_identity.py`` has those that it refuses."""


def unwelcome_hooks() -> list[Hook]:
    return [
        Hook(
            "mutate",
            f"{name}.mutate.test",
            {"patch": patch},
            (rule("configmaps", "CREATE", "UPDATE"),),
            # The API server does not apply failurePolicy here, so the gateway must not either.
            fields={"failurePolicy": "Ignore", "objectSelector": selected(unwelcome=name)},
        )
        for name, patch in UNWELCOME.items()
    ]


def outcomes(cluster: Cluster, namespace: str) -> dict[str, list[Any]]:
    """Return the answers to CREATE and UPDATE with each unwelcome patch, and the stored objects."""
    path = CONFIG_MAPS.format(namespace=namespace)
    found: dict[str, list[Any]] = {}
    for name in UNWELCOME:
        assert cluster.api.create(path, config_map(f"old-{name}", {"late": "no"}, key="value")).status == 201
        new = cluster.api.create(path, config_map(f"new-{name}", {"unwelcome": name}, key="value"))
        update = config_map(f"old-{name}", {"unwelcome": name}, key="changed")
        old = cluster.api.update(f"{path}/old-{name}", update)
        found[name] = [
            [
                (answer.status, answer.document.get("reason"), plain(answer.message, namespace)),
                answer.warnings,
            ]
            for answer in (new, old)
        ]
        found[name] += [
            plain_object(cluster.api.get(f"{path}/{stored}").document, namespace)
            for stored in (f"new-{name}", f"old-{name}", "other")
        ]
        cluster.api.delete(f"{path}/other")
    return found


def plain(message: str, namespace: str) -> str:
    return re.sub(
        r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}", "UID", message.replace(namespace, "NAMESPACE")
    )


def plain_object(document: dict[str, Any], namespace: str) -> object:
    metadata = document.get("metadata", {})
    named = (metadata.get("name"), metadata.get("labels"), metadata.get("namespace") == namespace)
    return document.get("kind"), document.get("code"), named, document.get("data")


def test_a_patch_that_the_api_server_refuses_has_the_outcome_without_a_gateway(
    cluster: Cluster, tmp_path: Path
) -> None:
    found = []
    for kind, called in ((Directly, "direct"), (BehindGateway, "unwelcome")):
        made = cluster.api.create(
            "/api/v1/namespaces",
            {"apiVersion": "v1", "kind": "Namespace", "metadata": {"generateName": "test-"}},
        )
        with kind(cluster, tmp_path / called, unwelcome_hooks(), called):
            found.append(outcomes(cluster, made.document["metadata"]["name"]))
    directly, behind_gateway = found
    for name, outcome in directly.items():
        assert behind_gateway[name] == outcome, name
    assert directly["invalid"][0][0][:2] == (422, "Invalid")
    assert directly["wrong-type"][0][0][:2] == (500, "InternalError")
