"""Clusters of another version than the one by which expressions are evaluated."""

from __future__ import annotations

import json
import logging
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.config.merge.load import load
from gateway.server.kubernetes import version
from gateway.server.kubernetes.version import ADVICE, ClusterVersion, minor_of, version_difference
from tests.kubernetes.server import refuse
from tests.policies.documents import binding, policy
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from gateway.config.merge.model import Config
    from tests.kubernetes.server import ApiServer


def info(minor: str, major: str = "1") -> dict[str, str]:
    return {"major": major, "minor": minor, "gitVersion": f"v{major}.{minor}.0"}


@pytest.fixture
def config(tmp_path: Path) -> Callable[..., Config]:
    """Return the function that loads a configuration for a version, with one policy or none."""

    def make(assumed: str | None, *documents: object) -> Config:
        settings = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
        fields = {} if assumed is None else {"kubernetesVersion": assumed}
        every = [{**settings, **fields}, *(documents or (policy(validations=["true"]), binding()))]
        file = tmp_path / "version.yaml"
        file.write_text("\n---\n".join(map(json.dumps, every)))
        return load([file])

    return make


@pytest.mark.parametrize(
    ("said", "minor"),
    [
        (info("37"), 37),
        (info("33+"), 33),
        (info("0", "2"), None),
        ({"major": 1, "minor": 37}, None),
        (info(""), None),
        ({}, None),
        (None, None),
    ],
)
def test_the_minor_version_is_read(said: dict[str, Any] | None, minor: int | None) -> None:
    assert minor_of(said) == minor


@pytest.mark.parametrize(
    ("assumed", "minor", "differs"),
    [
        (None, 37, False),
        (None, 38, False),
        (None, 36, True),
        (None, None, False),
        ("1.33", 33, False),
        ("1.33", 36, False),
        ("1.33", 37, True),
    ],
)
def test_versions_differ_where_results_do(
    config: Callable[..., Config], assumed: str | None, minor: int | None, differs: bool
) -> None:
    found = version_difference(config(assumed), minor)
    assert bool(found) == differs
    if differs:
        assert f"has Kubernetes 1.{minor}, and expressions are evaluated as in {assumed or '1.37'}," in found


def test_a_configuration_without_expressions_does_not_differ(config: Callable[..., Config]) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "a"}}
    assert version_difference(config(None, space), 33) == ""


async def test_each_difference_is_logged_once_until_the_configuration_or_the_cluster_changes(
    server: ApiServer,
    config: Callable[..., Config],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setattr(version, "CHECK_S", 0.01)
    monkeypatch.setattr(version, "RETRY_S", 0.01)
    caplog.set_level(logging.WARNING)
    server.objects["/version"] = info("33")
    server.faults["version"].append(refuse(500, "not yet"))
    followed = ClusterVersion(KubernetesSettings(server.kubeconfig(tmp_path)))
    try:
        followed.activate(config(None))
        await until(lambda: followed.difference)
        assert followed.difference.endswith("compares maps and lists otherwise")
        before = server.asked("version")
        await until(lambda: server.asked("version") > before + 2)
        followed.activate(config("1.33"))
        assert followed.difference == ""
        server.objects["/version"] = info("37")
        await until(lambda: followed.difference)
        assert "has Kubernetes 1.37, and expressions are evaluated as in 1.33," in followed.difference
    finally:
        await followed.close()
    first, second = (record.getMessage() for record in caplog.records)
    assert first.startswith("other version of Kubernetes: the API server has Kubernetes 1.33, and ")
    assert first.endswith(f": {ADVICE}")
    assert second.startswith("other version of Kubernetes: the API server has Kubernetes 1.37, and ")
