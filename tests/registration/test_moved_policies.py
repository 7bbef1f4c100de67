"""The registration leaves out policies that API servers have in force, after it has announced that."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.pure.admission_policies.placing import Named
from gateway.server.kubernetes import apply as applying
from gateway.server.kubernetes import placed_objects
from gateway.server.kubernetes.placed_objects import UNREGISTERED, policies_left_out
from gateway.tools.cli import main
from gateway.tools.registration.roles import placement_roles
from tests.engine.test_moved import configured, digests

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    Json = dict[str, Any]

KIND = "ValidatingAdmissionPolicy"
A = Named(KIND, "a")
INSTALLATION = "policies/gateway"


class Cluster:
    """What the API server has in force by each read, and what was applied."""

    def __init__(self, *reads: tuple[dict[Named, str], set[Named]]) -> None:
        self.reads = list(reads)
        self.applied: list[tuple[set[Named], bool]] = []
        """What each registration announces to leave out, and whether it has the rules."""

    async def read_moved(self, settings: object, installation: str) -> tuple[dict[Named, str], set[Named]]:
        assert installation == INSTALLATION
        return self.reads.pop(0)

    async def apply(self, settings: object, documents: Sequence[Json], **options: object) -> list[str]:
        annotations = [one["metadata"].get("annotations", {}) for one in documents]
        left_out = [policies_left_out(each.get(UNREGISTERED), INSTALLATION) for each in annotations]
        assert left_out[0] == left_out[1]
        self.applied.append((left_out[0], any("webhooks" in one for one in documents)))
        return []


@pytest.fixture
def moved(tmp_path: Path) -> dict[Named, str]:
    """The digest of the policy ``a`` of the configuration."""
    config = configured(tmp_path / "config", a="no")
    kubeconfig = tmp_path / "kubeconfig"
    user = {"name": "a", "context": {"cluster": "a", "user": "a"}}
    document = {
        "current-context": "a",
        "contexts": [user],
        "clusters": [{"name": "a", "cluster": {"server": "https://api.test"}}],
        "users": [{"name": "a", "user": {}}],
    }
    kubeconfig.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **document}))
    gateway = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "kubernetes": {"kubeconfig": str(kubeconfig)},
        "policies": {"installation": INSTALLATION},
    }
    (tmp_path / "config" / "gateway.yaml").write_text(json.dumps(gateway))
    return digests(config, "a")


def register(folder: Path, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(placed_objects, "read_moved", cluster.read_moved)
    monkeypatch.setattr(applying, "apply", cluster.apply)
    with pytest.raises(SystemExit) as end:
        main(["manifests", "--config", str(folder / "config"), "--service", INSTALLATION, "--apply"])
    assert not end.value.code
    assert not cluster.reads


def test_what_is_left_out_is_announced_and_read_again_first(
    tmp_path: Path, moved: dict[Named, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster((moved, set()), (moved, {A}))
    register(tmp_path, cluster, monkeypatch)
    assert cluster.applied == [({A}, True), ({A}, False)]


def test_a_policy_that_returns_meanwhile_stays_registered(
    tmp_path: Path, moved: dict[Named, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster((moved, set()), ({}, {A}))
    register(tmp_path, cluster, monkeypatch)
    assert cluster.applied == [({A}, True), (set(), True)]


def test_what_was_announced_before_is_applied_once(
    tmp_path: Path, moved: dict[Named, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    cluster = Cluster((moved, {A}))
    register(tmp_path, cluster, monkeypatch)
    assert cluster.applied == [({A}, False)]


def test_another_version_of_a_policy_stays_registered(
    tmp_path: Path, moved: dict[Named, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    older = dict.fromkeys(moved, "another digest")
    cluster = Cluster((older, {A}))
    register(tmp_path, cluster, monkeypatch)
    assert cluster.applied == [(set(), True)]


def test_the_roles_are_for_the_policies_and_one_lease() -> None:
    assert placement_roles(None, ("a", "b")) == []
    cluster_role, _, role, _ = placement_roles(INSTALLATION, ("policies", "gateway"))
    names = [
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
    ]
    assert [one["resources"] for one in cluster_role["rules"]] == [  # type: ignore[attr-defined]
        names,
        ["mutatingwebhookconfigurations", "validatingwebhookconfigurations"],
    ]
    assert role["metadata"] == {"name": "admission-gateway-placement", "namespace": "policies"}
    assert role["rules"][1]["resourceNames"] == ["gateway-placement"]  # type: ignore[index]
