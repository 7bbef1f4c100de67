"""Policies of Kyverno and Gatekeeper in a cluster: their kinds are found, followed, and never written."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.config.yaml.documents import followed_kinds
from gateway.server.kubernetes.access import ClusterAccess
from gateway.server.kubernetes.loaded_kinds import LOOK_AGAIN_S, LoadedKinds
from gateway.server.kubernetes.watch import Pace
from tests.gatekeeper.documents import constraint, template
from tests.kubernetes.server import refuse, stream
from tests.kubernetes.test_custom_resources import RELOADED, answers
from tests.kubernetes.test_gateway import run, settings
from tests.kyverno.documents import PODS, exception, validating

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from tests.in_process import Stage
    from tests.kubernetes.server import ApiServer

    Json = dict[str, Any]

FAST: Final = Pace(first_pause_s=0.01, longest_pause_s=0.02)
VERBS: Final = ["get", "list", "watch"]
KYVERNO: Final = "/apis/policies.kyverno.io/v1"
TEMPLATES: Final = "/apis/templates.gatekeeper.sh/v1"
CONSTRAINTS: Final = "/apis/constraints.gatekeeper.sh/v1beta1"
POLICIES: Final = {
    "name": "validatingpolicies",
    "kind": "ValidatingPolicy",
    "namespaced": False,
    "verbs": VERBS,
}
EXCEPTIONS: Final = {
    "name": "policyexceptions",
    "kind": "PolicyException",
    "namespaced": True,
    "verbs": VERBS,
}
NEVER: Final = {"name": "never", "kind": "Never", "namespaced": False, "verbs": VERBS}
OF_TEMPLATES: Final = {
    "name": "constrainttemplates",
    "kind": "ConstraintTemplate",
    "namespaced": False,
    "verbs": VERBS,
}


@pytest.fixture
def folder(server: ApiServer, tmp_path: Path) -> Path:
    """A configuration with nothing but the cluster."""
    folder = tmp_path / "config"
    folder.mkdir()
    server.kubeconfig(tmp_path)
    document = json.loads(settings(kubeconfig="../kubeconfig", customResources=True).partition("\n---")[0])
    document["policies"] = {
        "customResourcesOf": ["Kyverno", "Gatekeeper"],
        "exceptionNamespaces": ["exceptions"],
    }
    (folder / "c.yaml").write_text(json.dumps(document))
    return folder


def keep(server: ApiServer, path: str, document: Json, generation: int = 1, **more: Any) -> None:
    """Create or replace the object at *path*, with the spec of *document*."""
    labels = {"labels": {"a": "b"}, "managedFields": [{"manager": "test"}], "finalizers": ["engine"]}
    metadata = {"uid": f"uid of {path}", "generation": generation, **labels}
    server.keep(path, spec=document["spec"], metadata=metadata, **more)


def policy(*validations: str) -> Json:
    return validating(*validations, matchConstraints={"resourceRules": [PODS]})


def test_policies_and_exceptions_are_followed_and_never_written(
    server: ApiServer, folder: Path, stage: Stage
) -> None:
    server.resources[KYVERNO] = [POLICIES, EXCEPTIONS]
    keep(server, f"{KYVERNO}/validatingpolicies/p", policy("false"))
    gateway = stage.start_gateway(folder, allow_empty=True)
    refused = (False, "Policy p failed: CEL expression validation failed at index 0")
    assert answers(gateway) == refused
    keep(server, f"{KYVERNO}/namespaces/exceptions/policyexceptions/e", exception())
    stage.eventually(lambda: answers(gateway) == (True, ""))
    server.drop(f"{KYVERNO}/namespaces/exceptions/policyexceptions/e")
    stage.eventually(lambda: answers(gateway) == refused)
    assert gateway.metric(RELOADED) == 1

    keep(server, f"{KYVERNO}/validatingpolicies/p", policy("no such"), 2)
    gateway.expect(
        r"custom resource refused \(generation 1 stays in force\): "
        r'cluster: ValidatingPolicy.policies.kyverno.io "p": spec.validations\[0\].expression'
    )
    stage.eventually(lambda: gateway.metric(RELOADED) == 0)
    assert answers(gateway) == refused
    keep(server, f"{KYVERNO}/validatingpolicies/p", policy("true"), 3)
    stage.eventually(lambda: answers(gateway) == (True, ""))
    gateway.expect("custom resource in force again: cluster: ValidatingPolicy.policies.kyverno.io")
    server.drop(f"{KYVERNO}/validatingpolicies/p")
    gateway.expect("configuration reloaded: .* 0 validating")
    assert not {"patch", "post", "put"} & {kind for kind, _ in server.requests}


def test_kinds_of_constraints_come_and_go(server: ApiServer, folder: Path, stage: Stage) -> None:
    gateway = stage.start_gateway(folder, allow_empty=True)
    assert answers(gateway) == (True, "")
    server.resources[TEMPLATES] = [OF_TEMPLATES]
    keep(server, f"{TEMPLATES}/constrainttemplates/never", template("Never", "false"))
    server.resources[CONSTRAINTS] = [NEVER]
    keep(server, f"{CONSTRAINTS}/never/c", constraint("Never"))
    stage.eventually(lambda: answers(gateway) == (False, "[c] failed expression: false"))
    server.drop(f"{CONSTRAINTS}/never/c")
    server.resources[CONSTRAINTS] = []
    server.drop(f"{TEMPLATES}/constrainttemplates/never")
    stage.eventually(lambda: answers(gateway) == (True, ""))
    # API servers end the watches of a kind that is gone.
    server.end_watches(abruptly=False)
    stage.run(asyncio.sleep(3 * LOOK_AGAIN_S))
    again = template("Never", {"expression": "false", "message": "again"})
    keep(server, f"{TEMPLATES}/constrainttemplates/never", again)
    server.resources[CONSTRAINTS] = [NEVER]
    keep(server, f"{CONSTRAINTS}/never/c", constraint("Never"))
    stage.eventually(lambda: answers(gateway) == (False, "[c] again"))
    assert "lost" not in gateway.log


def test_an_object_that_nests_too_deep_keeps_no_other_away(
    server: ApiServer, folder: Path, stage: Stage
) -> None:
    def deep(name: str) -> bytes:
        metadata = f'{{"name":"{name}","resourceVersion":"100"}}'
        return f'{{"metadata":{metadata},"spec":{"[" * 2000}{"]" * 2000}}}'.encode()

    page = b'{"metadata":{"resourceVersion":"100"},"items":[' + deep("listed") + b"]}"
    event = b'{"type":"ADDED","object":' + deep("watched") + b"}\n"
    server.resources[KYVERNO] = [POLICIES]
    server.faults["list params"].append(lambda handler: handler.send(200, page))
    server.faults["watch params"].append(stream(event))
    gateway = stage.start_gateway(folder, allow_empty=True)
    keep(server, f"{KYVERNO}/validatingpolicies/p", policy("false"))
    stage.eventually(lambda: answers(gateway)[0] is False)
    for name in ("listed", "watched"):
        gateway.expect(f'ValidatingPolicy.policies.kyverno.io "{name}": nested deeper than 100 levels')


def test_nothing_is_served_before_the_policies_are_read(
    server: ApiServer, folder: Path, stage: Stage
) -> None:
    server.resources[KYVERNO] = [POLICIES]
    keep(server, f"{KYVERNO}/validatingpolicies/p", policy("false"))
    # The role lacks the right.
    server.faults["list params"].extend([refuse(403, "forbidden")] * 3)
    gateway = stage.make_gateway(folder, allow_empty=True)
    gateway.begin()
    gateway.expect("validatingpolicies.policies.kyverno.io cannot be read yet: .*forbidden")
    gateway.wait_until_started()
    assert answers(gateway)[0] is False


def test_the_setting_can_be_turned_on_and_off(server: ApiServer, folder: Path, stage: Stage) -> None:
    server.resources[KYVERNO] = [POLICIES]
    keep(server, f"{KYVERNO}/validatingpolicies/p", policy("false"))
    file = folder / "c.yaml"
    with_engines = file.read_text()
    document = json.loads(with_engines)
    del document["policies"]["customResourcesOf"]
    file.write_text(json.dumps(document))
    gateway = stage.start_gateway(folder, allow_empty=True)
    assert answers(gateway) == (True, "")
    file.write_text(with_engines)
    stage.eventually(lambda: answers(gateway)[0] is False)
    file.write_text(json.dumps(document))
    stage.eventually(lambda: answers(gateway)[0] is True)


def test_commands_read_them(server: ApiServer, folder: Path) -> None:
    server.resources[KYVERNO] = [POLICIES]
    keep(server, f"{KYVERNO}/validatingpolicies/p", policy("false"))
    keep(server, f"{KYVERNO}/validatingpolicies/q", policy("no such"))
    registered = run("manifests", "--config", str(folder), "--service", "a/b")
    assert registered.returncode == 0, registered.stderr
    assert "pods" in registered.stdout
    assert 'ValidatingPolicy.policies.kyverno.io "q": spec.validations[0].expression' in registered.stderr
    assert not {"patch", "post", "put"} & {kind for kind, _ in server.requests}


@pytest.fixture
def followed(server: ApiServer, tmp_path: Path, stage: Stage) -> Iterator[tuple[LoadedKinds, list[None]]]:
    """The kinds of Kyverno, and a list that grows with each change."""
    changes: list[None] = []

    async def make() -> tuple[LoadedKinds, ClusterAccess]:
        access = ClusterAccess(KubernetesSettings(server.kubeconfig(tmp_path)))
        kinds = LoadedKinds(access, followed_kinds(["Kyverno"]), lambda: changes.append(None), FAST)
        kinds.start()
        return kinds, access

    kinds, access = stage.run(make())
    yield kinds, changes
    stage.run(kinds.close())
    stage.run(access.close())


def specs(kinds: LoadedKinds) -> dict[str, object]:
    return {one.name: one.document["spec"] for one in kinds.resources}


def test_a_status_of_the_engine_is_no_change(
    server: ApiServer, stage: Stage, followed: tuple[LoadedKinds, list[None]]
) -> None:
    kinds, changes = followed
    path = f"{KYVERNO}/validatingpolicies/p"
    server.resources[KYVERNO] = [POLICIES]
    keep(server, path, policy("false"))
    stage.eventually(lambda: len(specs(kinds)) == 1)
    (before,), seen = tuple(kinds.resources), len(changes)
    keep(server, path, policy("false"), status={"ready": True})
    keep(server, f"{KYVERNO}/validatingpolicies/q", policy("false"))
    stage.eventually(lambda: len(specs(kinds)) == 2)
    assert len(changes) == seen + 1
    assert before in tuple(kinds.resources)


def test_the_best_version_is_followed_and_another_one_when_it_is_gone(
    server: ApiServer, stage: Stage, followed: tuple[LoadedKinds, list[None]]
) -> None:
    kinds, _ = followed
    for version in ("v1alpha1", "v1beta1"):
        base = f"/apis/policies.kyverno.io/{version}"
        keep(server, f"{base}/validatingpolicies/p", policy(version))
    server.resources["/apis/policies.kyverno.io/v1alpha1"] = [POLICIES]
    server.resources["/apis/policies.kyverno.io/v1beta1"] = [POLICIES]

    def is_from(version: str) -> Callable[[], bool]:
        return lambda: (
            [one.document["apiVersion"] for one in kinds.resources] == [f"policies.kyverno.io/{version}"]
        )

    stage.eventually(is_from("v1beta1"))
    server.resources[KYVERNO] = [POLICIES]
    keep(server, f"{KYVERNO}/validatingpolicies/p", policy("v1"))
    del server.resources["/apis/policies.kyverno.io/v1beta1"]
    server.end_watches(abruptly=True)
    stage.eventually(is_from("v1"))


def test_objects_stay_while_the_api_server_does_not_have_their_kind(
    server: ApiServer, stage: Stage, followed: tuple[LoadedKinds, list[None]]
) -> None:
    kinds, _ = followed
    server.resources[KYVERNO] = [POLICIES]
    keep(server, f"{KYVERNO}/validatingpolicies/p", policy("false"))
    stage.eventually(lambda: len(specs(kinds)) == 1)
    assert kinds.is_connected
    found = server.resources.pop(KYVERNO)
    server.end_watches(abruptly=True)
    looks = server.asked("get")
    stage.eventually(lambda: server.asked("get") > looks + 20)
    assert len(specs(kinds)) == 1
    server.resources[KYVERNO] = found
    keep(server, f"{KYVERNO}/validatingpolicies/p", policy("true"), 2)
    stage.eventually(lambda: specs(kinds)["p"] == policy("true")["spec"])
