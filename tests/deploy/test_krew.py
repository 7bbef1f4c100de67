"""The archives of ``kubectl admission`` for krew."""

from __future__ import annotations

import hashlib
import os
import re
import shutil
import subprocess
import sys
import tarfile
from typing import TYPE_CHECKING

import pytest
import yaml

from deploy import krew
from deploy.artifacts import build_python
from gateway import __version__
from tests.kit import PATIENCE_S
from tests.kubectl.test_plugin import DEPLOYMENT, UIDS, bed  # noqa: F401 - a fixture
from tests.status.test_command import cluster  # noqa: F401 - as above

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kubectl.test_plugin import Bed

PYTHON = "{}.{}".format(*sys.version_info)
URL = "https://example.com/archives"


@pytest.fixture(scope="module")
def archive(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The archive for this machine and this Python, in a folder of its own."""
    folder = tmp_path_factory.mktemp("krew")
    (folder / "python").mkdir()
    (folder / "krew").mkdir()
    build_python(folder / "python")
    platform = {machine: name for name, machine in krew.PLATFORMS.items()}[os.uname().machine]
    return krew.archive(folder / "python", folder / "krew", platform, [PYTHON])


def run(folder: Path, *arguments: str, python: str = "python3") -> subprocess.CompletedProcess[str]:
    """Run ``kubectl-admission`` of *folder* with a Python that has nothing else installed."""
    subprocess.run(
        [sys.executable, "-m", "venv", "--without-pip", folder / "bare"], check=True, timeout=PATIENCE_S
    )
    path = f"{folder}:{folder / 'bare' / 'bin'}"
    return subprocess.run(
        [folder / "bare" / "bin" / python, folder / arguments[0], *arguments[1:]],
        env={"PATH": path, "HOME": str(folder)},
        cwd=folder,
        capture_output=True,
        text=True,
        timeout=PATIENCE_S,
        check=False,
    )


@pytest.mark.slow
@pytest.mark.process
def test_an_unpacked_archive_runs_every_command_with_nothing_else_installed(
    tmp_path: Path,
    archive: Path,
    bed: Bed,  # noqa: F811 - the fixture
) -> None:
    (entry,) = [one["files"][0] for one in platforms({"amd64": archive})]
    with tarfile.open(archive) as packed:
        packed.extractall(tmp_path / "unpacked", filter="data")
    # As krew moves the files.
    for source in (tmp_path / "unpacked").glob(entry["from"]):
        source.rename(tmp_path / entry["to"] / source.name)
    assert (tmp_path / "LICENSE").is_file()
    for command in ((), ("why",), ("decisions",), ("status",), ("preview",)):
        done = run(tmp_path, "kubectl-admission", *command, "--help")
        assert (done.returncode, done.stderr) == (0, ""), command
        assert done.stdout.startswith(f"usage: {' '.join(('kubectl admission', *command))} ")
    assert run(tmp_path, "kubectl_complete-admission", "wh").stdout == "why\n:4\n"
    (tmp_path / "web.yaml").write_text(yaml.safe_dump(DEPLOYMENT))
    for status, words, line in (
        (0, ("why", UIDS["v"]), "  at gateway-b"),
        (0, ("why", "pod/web", "-n", "shop"), "    no team"),
        (
            1,
            ("why", "-f", "web.yaml"),
            "The configuration in force allows its creation (a dry run, at gateway-a):",
        ),
        (1, ("decisions",), "new: no answer: the pod does not run: Pending"),
        (1, ("status",), "! new: no answer"),
        (1, ("preview", "web.yaml"), "    no team"),
    ):
        done = run(tmp_path, "kubectl-admission", *words, "--kubeconfig", str(bed.kubeconfig))
        assert done.returncode == status, (words, done.stderr)
        assert line in done.stdout.split("\n"), words


def test_another_python_is_refused_with_those_that_are_expected(tmp_path: Path) -> None:
    shutil.copy(krew.LAUNCHER, tmp_path)
    for version in ("2.99", "4.1"):
        (tmp_path / f"lib-{version}").mkdir()
    done = run(tmp_path, "kubectl-admission")
    assert done.returncode == 1
    assert (
        done.stderr == f"kubectl admission: found Python {PYTHON}, expected Python 2.99 or 4.1 on the PATH\n"
    )


def test_the_manifest_names_each_archive_with_its_checksum(tmp_path: Path) -> None:
    archives = {}
    for platform in krew.PLATFORMS:
        archives[platform] = tmp_path / f"{krew.NAME}-{__version__}-linux-{platform}.tar.gz"
        archives[platform].write_text(platform)
    found = yaml.safe_load(krew.manifest(archives, f"{URL}/"))
    assert (found["kind"], found["metadata"]) == ("Plugin", {"name": "admission"})
    assert re.fullmatch(r"v\d+\.\d+\.\d+.*", found["spec"]["version"])
    # krew refuses a longer one, and a line break.
    assert len(found["spec"]["shortDescription"]) <= 50
    for one in found["spec"]["platforms"]:
        platform = one["selector"]["matchLabels"]["arch"]
        assert one["uri"] == f"{URL}/{archives[platform].name}"
        assert one["sha256"] == hashlib.sha256(platform.encode()).hexdigest()
    assert len(found["spec"]["platforms"]) == 2


def platforms(archives: dict[str, Path]) -> list[dict[str, list[dict[str, str]]]]:
    found: list[dict[str, list[dict[str, str]]]] = yaml.safe_load(krew.manifest(archives, URL))["spec"][
        "platforms"
    ]
    return found


def test_the_dependencies_are_those_of_the_gateway() -> None:
    from deploy.pinned import roots_of

    assert set(krew.DEPENDENCIES) <= set(roots_of("admission-gateway"))
