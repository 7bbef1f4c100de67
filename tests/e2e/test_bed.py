"""The test bed itself: it leaves nothing behind."""

from __future__ import annotations

import socket
from typing import TYPE_CHECKING

import pytest

from tests.e2e.cluster import Cluster

if TYPE_CHECKING:
    from pathlib import Path


def test_a_control_plane_ends_with_its_block(cluster: Cluster, tmp_path: Path) -> None:
    with Cluster(cluster.binaries, tmp_path) as second:
        assert second.port != cluster.port
        assert second.api.get("/version").document["gitVersion"] == cluster.binaries.version
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.1", second.port))
    assert cluster.api.get("/readyz").status == 200


def test_kubectl_authenticates_as_the_given_user(cluster: Cluster) -> None:
    for user in ("admin", "alice"):
        result = cluster.kubectl("auth", "whoami", "--output=jsonpath={.status.userInfo.username}", user=user)
        assert (result.stdout, result.stderr) == (user, "")
