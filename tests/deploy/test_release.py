"""The version of everything that is published, and what `make release` builds."""

from __future__ import annotations

import hashlib
import json
import subprocess
import tarfile
from typing import TYPE_CHECKING

import pytest

from deploy import release, version
from deploy.artifacts import ROOT, git, sources
from gateway import __version__
from tests.deploy.test_image import (
    DOCKERFILE,
    ENGINE_DOCKERFILE,
    KUBEWARDEN_DOCKERFILE,
    WORKER_DOCKERFILE,
    copied,
)

if TYPE_CHECKING:
    from pathlib import Path

ENGINES = ("gatekeeper", "kyverno")
"""The workers that engine.Dockerfile builds."""


def test_every_file_has_the_version_of_the_gateway() -> None:
    assert version.other_versions() == []


def test_no_other_file_names_the_version() -> None:
    """Lock files name those of other projects, and tests and the changelog may name any."""
    named = git("grep", "--files-with-matches", "--fixed-strings", __version__).splitlines()
    others = {name for name in named if not name.startswith(("tests/", "loadtest/", "CHANGELOG.md"))}
    locks = {"constraints.txt", *(name for name in named if name.endswith("go.sum"))}
    assert others - locks == version.PLACES.keys()


@pytest.mark.parametrize("new", ["77.3.0", "0.77.0-rc.1"])
def test_a_new_version_is_written_to_every_place(new: str, monkeypatch: pytest.MonkeyPatch) -> None:
    written: dict[str, str] = {}
    monkeypatch.setattr("pathlib.Path.write_text", lambda path, text: written.update({str(path): text}))
    version.write(new)
    for name in version.PLACES:
        old, text = (ROOT / name).read_text(), written[str(ROOT / name)]
        assert text.replace(new, __version__) == old.replace(new, __version__)
        assert (new in text) is True
    assert f"## Unreleased\n\n## {new}, 2" in written[str(version.CHANGELOG)]


def test_a_section_of_the_changelog_is_that_of_the_version() -> None:
    assert version.changes(__version__).startswith(("## Unreleased\n", f"## {__version__},"))
    assert version.changes("999.0.0").startswith("## Unreleased\n")


def test_uncommitted_files_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(release, "git", lambda *_: " M gateway/server/app.py\n?? x")
    with pytest.raises(
        SystemExit, match=r"release: 2 files are not committed, such as gateway/server/app\.py"
    ):
        release.main([str(tmp_path)])


@pytest.mark.slow
@pytest.mark.timeout(3600)
def test_a_release_is_complete_and_the_same_in_every_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
    folders = [tmp_path / "first", tmp_path / "second"]
    for folder in folders:
        assert release.main(["--allow-changes", str(folder), "python", "go"]) == 0
    first, second = ((folder / "SHA256SUMS").read_text() for folder in folders)
    assert first == second
    folder = folders[0]
    done = subprocess.run(["sha256sum", "--check", "--quiet", "SHA256SUMS"], cwd=folder, check=False)
    assert done.returncode == 0
    provenance = json.loads((folder / "provenance.intoto.json").read_text())
    named = {subject["name"]: subject["digest"]["sha256"] for subject in provenance["subject"]}
    for name in (f"python/admission_gateway-{__version__}.tar.gz", f"chart/{release.NAME}.tgz", "CHANGES.md"):
        assert named[name] == hashlib.sha256((folder / name).read_bytes()).hexdigest()
    (dependency, _) = provenance["predicate"]["buildDefinition"]["resolvedDependencies"]
    assert dependency["digest"] == {"gitCommit": git("rev-parse", "HEAD")}
    with tarfile.open(folder / "chart" / f"{release.NAME}.tgz") as chart:
        files = {member.name for member in chart.getmembers() if member.isfile()}
    assert "admission-gateway/Chart.yaml" in files
    assert not [name for name in files if not name.startswith("admission-gateway/")]
    assert not [name for name in files if name.startswith("admission-gateway/ci/")]
    with tarfile.open(folder / "images" / f"{release.NAME}-context.tar.gz") as context:
        names = set(context.getnames())
    for dockerfile in (DOCKERFILE, WORKER_DOCKERFILE, ENGINE_DOCKERFILE, KUBEWARDEN_DOCKERFILE):
        copies = [s.replace("${WORKER}", worker) for s in copied(dockerfile) for worker in ENGINES]
        for source in (f"deploy/{dockerfile.name}", *copies):
            for path in sources(ROOT / source):
                assert f"{release.NAME}/{path.relative_to(ROOT)}" in names


def test_the_bill_of_materials_has_every_dependency_once() -> None:
    document = json.loads(release.requirements_sbom())
    references = [component["bom-ref"] for component in document["components"]]
    assert len(references) == len(set(references))
    assert any(reference.startswith("pkg:pypi/grpcio@") for reference in references)
    assert document["metadata"]["component"]["purl"] == f"pkg:pypi/admission-gateway@{__version__}"
    assert all(component.get("licenses") for component in document["components"])
    listed = {*references, document["metadata"]["component"]["bom-ref"]}
    for entry in document["dependencies"]:
        assert entry["ref"] in listed
        assert set(entry["dependsOn"]) <= listed
    roots = next(e for e in document["dependencies"] if e["ref"].startswith("pkg:pypi/admission-gateway@"))
    assert f"pkg:pypi/admission-gateway-worker@{__version__}" in roots["dependsOn"]
