"""The files of ``--write``."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import pytest
import yaml

from gateway.tools.preview.written import WrittenObjects
from tests.kit import call_command
from tests.preview.kit import CONFIG_MAP, WEB, configure, deny, of, pods, preview

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.kit import StartWorker

pytestmark = pytest.mark.process


def test_final_objects_have_files_that_only_their_owner_reads(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(
        tmp_path / "c.yaml",
        start_worker().target,
        mutate=[pods({"label": "team"})],
        validate=[of(deny(), "", "services")],
    )
    # The names of kinds that are not known are not checked.
    hostile = 'apiVersion: a.b/v1\nkind: C\nmetadata: {name: "../../../etc/x", namespace: "..\\u0000/a"}\n'
    text = "---\n".join(
        [
            WEB,
            CONFIG_MAP,
            CONFIG_MAP,
            hostile,
            "apiVersion: v1\nkind: Service\nmetadata: {name: s}\n",
            "apiVersion: v1\nkind: Namespace\nmetadata: {name: n}\n",
            "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: 'system:a'}\n",
        ]
    )
    found = []
    for name in ("a", "b"):
        folder = tmp_path / name
        preview("-", "--config", config, "--write", folder, stdin=text, status=1)
        files = sorted(path for path in folder.rglob("*") if path.is_file())
        assert all(stat.S_IMODE(path.stat().st_mode) == 0o600 for path in files)
        found.append({path.relative_to(folder).as_posix(): path.read_text() for path in files})
    assert found[0] == found[1]
    names = list(found[0])
    assert "default/configmap-c.yaml" in names
    assert "default/configmap-c-2.yaml" in names
    assert "default/deployment.apps-web.yaml" in names
    assert "n/namespace-n.yaml" in names
    assert any(name.startswith("_cluster/clusterrole.rbac.authorization.k8s.io-system_a_") for name in names)
    assert not any("service" in name for name in names)
    (pod,) = (yaml.safe_load(content) for name, content in found[0].items() if "/pod-" in name)
    assert pod["metadata"]["labels"]["team"] == "set"
    assert len([one for one in names if "etc_x" in one]) == 1
    assert sorted(path.name for path in tmp_path.iterdir()) == ["a", "b", "c.yaml"]


def test_files_that_exist_are_not_mixed_with_those_of_a_preview(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[{}])
    done = call_command("preview", "-", "--config", config, "--write", tmp_path, stdin=CONFIG_MAP.encode())
    assert done.returncode == 2
    assert "found files in it, expected an empty folder" in done.stderr
    WrittenObjects(tmp_path / "new" / "folder")
