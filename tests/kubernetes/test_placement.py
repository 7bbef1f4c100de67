"""Policies that a replica puts into the API server: its requests, and what it makes of the answers."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given

from gateway.base.errors import ClusterError
from gateway.config.merge.custom_resource import CustomResource
from gateway.config.merge.load import load
from gateway.config.merge.merged import Merged
from gateway.config.merge.resource_status import ResourceStatus
from gateway.engine.moved import MovedPolicies
from gateway.pure.admission_policies.placing import POLICIES, VIEW_S, WAIT_S, Named
from gateway.server.kubernetes import placed_objects
from gateway.server.kubernetes.custom_resources import ClusterCustomResources
from gateway.server.kubernetes.lease import LEASE_S
from gateway.server.kubernetes.placed_objects import (
    INSTALLATION,
    MANAGED_BY,
    PROOF,
    SEAL,
    UNREGISTERED,
    annotation_of,
    policies_left_out,
)
from gateway.server.kubernetes.placement import PolicyPlacement, placing_of
from tests.config.test_placement import drawn, merged_resources

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Mapping
    from pathlib import Path

    from gateway.config.merge.model import Config

    Json = dict[str, Any]

ROOT = "/apis/admissionregistration.k8s.io/v1"
POLICY = f"{ROOT}/validatingadmissionpolicies/p"
BINDING = f"{ROOT}/validatingadmissionpolicybindings/p"
LEASE = "/apis/coordination.k8s.io/v1/namespaces/policies/leases/gateway-placement"
P = Named("ValidatingAdmissionPolicy", "p")
SETTLE_S = 10.0


class FakeApi:
    """An API server that has informers without delay, and answers the dry runs of proofs."""

    url = "https://api.test"

    def __init__(self) -> None:
        self.objects: dict[str, Json] = {}
        self.version = 0
        self.refuses: Callable[[str, str], ClusterError | None] = lambda method, path: None
        """Returns the error for a request, by method and path."""
        self.writes: list[tuple[str, str]] = []

    def _admit(self, method: str, path: str) -> None:
        error = self.refuses(method, path)
        if error is not None:
            raise error

    def _stamp(self, document: Json, before: Json | None) -> Json:
        self.version += 1
        metadata = dict(document["metadata"])
        known: Json = {"uid": f"uid-{self.version}", "generation": 1}
        known = known if before is None else before["metadata"]
        is_same = before is None or before.get("spec") == document.get("spec")
        metadata["uid"] = known["uid"]
        metadata["generation"] = known["generation"] + (not is_same)
        metadata["resourceVersion"] = str(self.version)
        return {**document, "metadata": metadata}

    async def find(self, path: str) -> Json | None:
        self._admit("GET", path)
        return self.objects.get(path)

    async def pages(self, path: str, params: Mapping[str, str]) -> AsyncIterator[Json]:
        self._admit("LIST", path)
        label, _, value = params["labelSelector"].partition("=")
        yield {
            "items": [
                one
                for name, one in self.objects.items()
                if name.rpartition("/")[0] == path and one["metadata"].get("labels", {}).get(label) == value
            ]
        }

    async def write(self, method: str, path: str, document: Json) -> Json:
        path = path.partition("?")[0]
        if method == "POST":
            path = f"{path}/{document['metadata']['name']}"
        self._admit(method, path)
        present = self.objects.get(path)
        self.writes.append((method, path))
        if method == "DELETE":
            if present is None:
                raise ClusterError("not found", 404)
            wanted = document["preconditions"]
            if wanted and wanted["resourceVersion"] != present["metadata"]["resourceVersion"]:
                raise ClusterError("conflict", 409)
            del self.objects[path]
            return {}
        wanted = None if method == "POST" else document["metadata"]["resourceVersion"]
        if wanted != (None if present is None else present["metadata"]["resourceVersion"]):
            raise ClusterError("conflict", 409)
        self.objects[path] = self._stamp(json.loads(orjson.dumps(document)), present)
        return self.objects[path]

    async def patch(
        self, path: str, params: Mapping[str, str], body: bytes, media_type: str
    ) -> tuple[int, Json]:
        assert media_type == "application/merge-patch+json"
        self._admit("PATCH", path)
        metadata = json.loads(body)["metadata"]
        present = self.objects[path]
        if "dryRun" in params:
            return 200, self._proof(present, metadata["labels"])
        self.writes.append(("PATCH", path))
        if metadata["resourceVersion"] != present["metadata"]["resourceVersion"]:
            raise ClusterError("conflict", 409)
        annotations = {**present["metadata"]["annotations"], **metadata["annotations"]}
        annotations = {name: value for name, value in annotations.items() if value is not None}
        changed = {**present, "metadata": {**present["metadata"], "annotations": annotations}}
        self.objects[path] = self._stamp(changed, present)
        return 200, self.objects[path]

    def _proof(self, lease: Json, labels: Json) -> Json:
        name = "proof.gateway.policies.admission-gateway.io"
        for path in (f"{ROOT}/validatingadmissionpolicies", f"{ROOT}/mutatingadmissionpolicies"):
            binding = self.objects.get(f"{path[:-3]}ybindings/{name}")
            if (
                binding is None
                or binding["spec"]["matchResources"]["objectSelector"]["matchLabels"] != labels
            ):
                continue
            spec = self.objects[f"{path}/{name}"]["spec"]
            if "validations" in spec:
                raise ClusterError(spec["validations"][0]["message"], 422)
            (token,) = labels.values()
            assert token in spec["mutations"][0]["jsonPatch"]["expression"]
            return {"metadata": {**lease["metadata"], "annotations": {PROOF: token}}}
        return lease

    async def close(self) -> None:
        pass


class Replica(PolicyPlacement):
    """A replica at the fake API server, with a clock of the test."""

    def __init__(self, world: World) -> None:
        self.moved = MovedPolicies(lambda: world.now)
        self.told: list[frozenset[tuple[str, str]]] = []
        """What was told of policies that the API server evaluates."""
        super().__init__(world.settings, self.moved, lambda: 37, lambda: world.now, self.told.append)
        self._access = world  # type: ignore[assignment]

    @property
    def states(self) -> dict[str, str]:
        return {one.policy.name: one.state for one in self.placed}


class World:
    """The fake API server, a clock, and the configuration of all replicas."""

    def __init__(self, config: Config) -> None:
        self.api_server = FakeApi()
        self.now = 0.0
        self.config = config
        assert config.gateway.kubernetes is not None
        self.settings = config.gateway.kubernetes

    @asynccontextmanager
    async def api(self) -> AsyncIterator[FakeApi]:
        yield self.api_server

    async def close(self) -> None:
        pass

    def replica(self, config: Config | None = None) -> Replica:
        made = Replica(self)
        made._config = config or self.config
        return made

    async def run(self, *replicas: Replica, seconds: float = 4 * WAIT_S) -> None:
        """Have *replicas* look every four seconds, for so many *seconds*."""
        end = self.now + seconds
        while self.now < end:
            for replica in replicas:
                await replica.look()
            self.now += 4.0


def configured(folder: Path, placement: str = "Auto", kind: str = "Validating") -> Config:
    pods = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
    outside = {
        "key": "kubernetes.io/metadata.name",
        "operator": "NotIn",
        "values": ["kube-system", "policies"],
    }
    match = {"resourceRules": [pods], "namespaceSelector": {"matchExpressions": [outside]}}
    label = 'Object{metadata: Object.metadata{labels: {"a": "b"}}}'
    apply = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": label}}
    content: Json = (
        {"validations": [{"expression": "object.spec.hostNetwork != true"}]}
        if kind == "Validating"
        else {"mutations": [apply], "reinvocationPolicy": "IfNeeded"}
    )
    actions = {"validationActions": ["Deny"]} if kind == "Validating" else {}
    group = "admissionregistration.k8s.io/v1"
    head = {"metadata": {"name": "p"}, "apiVersion": group}
    gateway = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "kubernetes": {},
        "policies": {
            "placement": placement,
            "installation": "policies/gateway",
            "settleSeconds": int(SETTLE_S),
        },
    }
    documents = [
        {**head, "kind": f"{kind}AdmissionPolicy", "spec": {"matchConstraints": match, **content}},
        {**head, "kind": f"{kind}AdmissionPolicyBinding", "spec": {"policyName": "p", **actions}},
        gateway,
    ]
    folder.mkdir(exist_ok=True)
    (folder / "all.yaml").write_text("\n---\n".join(map(json.dumps, documents)))
    return load([folder])


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> World:
    made = World(configured(tmp_path / "config"))
    monkeypatch.setattr(placed_objects, "connect", lambda settings: made.api_server)
    return made


def refusing(status: int, *parts: str) -> Callable[[str, str], ClusterError | None]:
    """Return what refuses requests whose method or path has all *parts*."""
    return lambda method, path: (
        ClusterError("it is refused", status) if all(part in f"{method} {path}" for part in parts) else None
    )


@pytest.mark.parametrize("kind", ["Validating", "Mutating"])
async def test_a_policy_is_moved_and_returns(
    world: World, tmp_path: Path, kind: str, caplog: pytest.LogCaptureFixture
) -> None:
    config = configured(tmp_path / "own", kind=kind)
    one, two = world.replica(config), world.replica(config)
    key = Named(f"{kind}AdmissionPolicy", "p")
    caplog.set_level("INFO")
    await one.look()
    assert one.states == {"p": "Moving"}
    assert not one.moved.digests
    await world.run(one, two, seconds=SETTLE_S + 12.0)
    assert one.states == two.states == {"p": "APIServer"}
    assert set(one.moved.digests) == set(two.moved.digests) == {key}
    found = world.api_server.objects[f"{ROOT}/{kind.lower()}admissionpolicies/p"]["metadata"]
    assert found["labels"] == dict([MANAGED_BY])
    assert found["annotations"][INSTALLATION] == "policies/gateway"
    assert [one.warning, two.warning] == ["", ""]
    writes = len(world.api_server.writes)
    await world.run(one, two)
    assert {method for method, path in world.api_server.writes[writes:]} == {"PUT"}
    assert {path for method, path in world.api_server.writes[writes:]} == {LEASE}
    for replica in (one, two):
        replica._config = configured(tmp_path / "own", "Gateway", kind)
    await world.run(one, two, seconds=8.0)
    assert one.states == {"p": "Returning"}
    assert not one.moved.digests
    await world.run(one, two)
    assert set(world.api_server.objects) == {LEASE}
    assert one.states == {}
    assert one.told == two.told == [frozenset({tuple(key)}), frozenset()]
    assert f"{key}: the API server evaluates it" in caplog.text
    assert f"{key}: the gateway evaluates it" in caplog.text


async def test_what_another_program_changes_or_deletes_is_written_again(
    world: World, caplog: pytest.LogCaptureFixture
) -> None:
    replica = world.replica()
    await world.run(replica)
    changed = world.api_server.objects[POLICY]
    manager = {"manager": "somebody", "time": "2026-01-01T00:00:00Z"}
    changed["metadata"] |= {"generation": 7, "managedFields": [manager]}
    await replica.look()
    assert "ValidatingAdmissionPolicy p was changed by somebody, and is written again" in caplog.text
    assert not replica.moved.digests
    await world.run(replica)
    assert replica.states == {"p": "APIServer"}
    del world.api_server.objects[BINDING]
    await replica.look()
    assert "ValidatingAdmissionPolicyBinding p was deleted, and is written again" in caplog.text
    assert not replica.moved.digests
    await world.run(replica)
    assert replica.states == {"p": "APIServer"}
    assert replica.corrections == {"ValidatingAdmissionPolicy": 2}


async def test_an_object_of_another_owner_is_left_alone(world: World) -> None:
    other = {"metadata": {"name": "p", "resourceVersion": "1", "uid": "u"}, "spec": {}}
    world.api_server.objects[POLICY] = other
    replica = world.replica()
    await world.run(replica)
    assert world.api_server.objects[POLICY] is other
    assert BINDING not in world.api_server.objects
    ((_, state, reason),) = replica.placed
    assert state == "Gateway"
    assert "exists that the gateway does not own: delete it, or rename the policy" in reason


@pytest.mark.parametrize("status", [0, 403, 409, 500])
@pytest.mark.parametrize("part", ["POST", "PUT", "PATCH", "LIST", LEASE, POLICY, BINDING, "proof"])
async def test_after_a_fault_of_the_api_server_a_policy_is_moved(
    world: World, status: int, part: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    replica = world.replica()
    world.api_server.refuses = refusing(status, part)
    with monkeypatch.context() as short:
        # A proof that cannot succeed.
        short.setattr(placed_objects, "READ_WITHIN_S", 0.01)
        await world.run(replica, seconds=20.0)
    assert not replica.moved.digests
    world.api_server.refuses = lambda method, path: None
    await world.run(replica)
    assert replica.states == {"p": "APIServer"}
    assert replica.warning == ""


async def test_a_replica_that_cannot_read_evaluates_everything(world: World) -> None:
    replica = world.replica()
    await world.run(replica)
    assert P in replica.moved.digests
    world.api_server.refuses = refusing(403, "LIST")
    await world.run(replica, seconds=VIEW_S + 4.0)
    assert not replica.moved.digests
    assert "cannot list validatingadmissionpolicies: it is refused" in replica.fault


async def test_a_policy_whose_registration_leaves_it_out_is_not_deleted(world: World, tmp_path: Path) -> None:
    replica = world.replica()
    await world.run(replica)
    metadata: Json = {
        "name": "r",
        "labels": {"app.kubernetes.io/name": "admission-gateway"},
        "annotations": {UNREGISTERED: annotation_of([P], "policies/gateway")},
    }
    world.api_server.objects[f"{ROOT}/validatingwebhookconfigurations/r"] = {"metadata": metadata}
    replica._config = configured(tmp_path / "own", "Gateway")
    await world.run(replica)
    assert SEAL not in world.api_server.objects[POLICY]["metadata"]["annotations"]
    assert "stays in the API server until the gateway is registered for it" in replica.warning
    metadata["annotations"] = {}
    await world.run(replica)
    assert POLICY not in world.api_server.objects
    assert replica.warning == ""


async def test_another_replica_writes_after_the_first_one_is_gone(world: World, tmp_path: Path) -> None:
    one, two = world.replica(), world.replica()
    await world.run(one, two)
    two._config = configured(tmp_path / "own", "Gateway")
    await world.run(two, seconds=LEASE_S - 4.0)
    assert SEAL in world.api_server.objects[POLICY]["metadata"]["annotations"]
    await world.run(two)
    assert POLICY not in world.api_server.objects


async def test_a_lease_that_is_released_is_taken_at_once(world: World) -> None:
    one, two = world.replica(), world.replica()
    await one.look()
    one._task = asyncio.create_task(asyncio.sleep(0))
    await one.close()
    await world.run(two, seconds=SETTLE_S + 12.0)
    assert two.states == {"p": "APIServer"}


async def test_nothing_is_moved_without_an_installation(tmp_path: Path) -> None:
    config = configured(tmp_path / "config")
    made = placing_of(config, 37)
    assert made is not None
    assert set(made.targets) == {P}
    unknown = placing_of(config, None)
    assert unknown is not None
    assert not unknown.targets
    assert "the version of the API server is not known" in unknown.reasons[P]
    text = (tmp_path / "config" / "all.yaml").read_text()
    (tmp_path / "config" / "all.yaml").write_text(
        text.replace('["kube-system", "policies"]', '["kube-system"]')
    )
    of_gateway = placing_of(load([tmp_path / "config"]), 37)
    assert of_gateway is not None
    assert "policies" in of_gateway.reasons[P]
    (tmp_path / "config" / "all.yaml").write_text(text.replace('"installation": "policies/gateway", ', ""))
    without_owner = load([tmp_path / "config"])
    assert placing_of(without_owner, 37) is None
    assert without_owner.gateway.kubernetes is not None
    placement = PolicyPlacement(without_owner.gateway.kubernetes, MovedPolicies(lambda: 0.0), lambda: 37)
    placement.activate(without_owner)
    assert "policies.installation of the GatewayConfiguration is absent" in placement.fault
    assert placement.counts is None
    await placement.close()


@given(drawn())
def test_what_is_moved_is_what_was_written(configuration: tuple[list[Json], dict[str, set[str]]]) -> None:
    documents, _ = configuration
    placing = placing_of(merged_resources(documents), 37)
    assert placing is not None
    specs = {Named(one["kind"], one["metadata"]["name"]): one["spec"] for one in documents}
    for policy, target in placing.targets.items():
        wanted = {
            key: spec
            for key, spec in specs.items()
            if key == policy or Named(POLICIES.get(key.kind, ""), spec.get("policyName", "")) == policy
        }
        assert {key: sorted_json(spec) for key, spec in target.specs.items()} == {
            key: sorted_json(spec) for key, spec in wanted.items()
        }


def sorted_json(spec: Json) -> bytes:
    return orjson.dumps(spec, option=orjson.OPT_SORT_KEYS)


async def test_the_status_of_a_policy_says_that_the_api_server_evaluates_it(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def status(reason: str, name: str) -> ResourceStatus:
        document: Json = {"kind": P.kind, "metadata": {"name": name, "uid": name, "generation": 1}}
        return ResourceStatus(CustomResource(P.kind, name, document), reason)

    resources = ClusterCustomResources(world.settings, lambda: None)
    written: list[list[ResourceStatus]] = []
    monkeypatch.setattr(resources._writer, "use", written.append)
    resources.note_moved(frozenset({("ValidatingAdmissionPolicy", "before")}))
    assert not written
    resources.merged = Merged(
        world.config, statuses=(status("Accepted", "p"), status("Accepted", "q"), status("Invalid", "r"))
    )
    resources.note_moved(frozenset({(P.kind, "p"), (P.kind, "r")}))
    assert [one.reason for one in written[-1]] == ["InAPIServer", "Accepted", "Invalid"]
    assert [one.is_in_force for one in written[-1]] == [True, True, False]
    assert written[-1][0].note == "in force; the API server evaluates it"
    await resources.close()


@pytest.mark.parametrize("text", [None, "", "{", "[]", '{"other/gateway": ["A/b"]}'])
def test_annotations_of_others_leave_nothing_out(text: str | None) -> None:
    assert policies_left_out(text, "policies/gateway") == set()


def test_the_annotation_of_a_registration_is_read_as_it_was_written() -> None:
    assert policies_left_out(annotation_of([P], "a/b"), "a/b") == {P}
