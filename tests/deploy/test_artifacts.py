"""Metadata under which the SDKs are published: the same in every language, one version for all."""

from __future__ import annotations

import json
import re
import tarfile
import tomllib
import zipfile
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

import pytest

from deploy import artifacts
from deploy.artifacts import DISTRIBUTIONS, GO_MODULE, ROOT, WORKERS
from gateway import __version__

if TYPE_CHECKING:
    from pathlib import Path

REPOSITORY = "https://github.com/admission-gateway/admission-gateway"
HOME = "https://admission-gateway.io"
PACKAGE: dict[str, Any] = json.loads((WORKERS / "typescript" / "package.json").read_text())
CRATE: dict[str, Any] = tomllib.loads((WORKERS / "rust" / "Cargo.toml").read_text())["package"]
POMS = sorted((WORKERS / "java").glob("**/pom.xml"))
MAVEN = "{http://maven.apache.org/POM/4.0.0}"


def pom(path: Path) -> ElementTree.Element:
    return ElementTree.parse(path).getroot()


def test_every_sdk_has_the_version_of_the_gateway() -> None:
    lock = json.loads((WORKERS / "typescript" / "package-lock.json").read_text())
    versions = [PACKAGE["version"], lock["version"], lock["packages"][""]["version"], CRATE["version"]]
    for path in POMS:
        own = pom(path)
        versions.append(own.findtext(f"{MAVEN}version") or own.findtext(f"{MAVEN}parent/{MAVEN}version"))
    # Its users name the version.
    versions += re.findall(
        r"<artifactId>admission-gateway-worker</artifactId>\s*<version>(.*?)<",
        (WORKERS / "java" / "README.md").read_text(),
    )
    assert versions == [__version__] * (5 + len(POMS))
    assert len(POMS) == 3


def test_licence_repository_and_home_page_are_the_same_in_every_language() -> None:
    parent = pom(WORKERS / "java" / "pom.xml")
    assert {
        PACKAGE["license"],
        CRATE["license"],
        parent.findtext(f"{MAVEN}licenses/{MAVEN}license/{MAVEN}name"),
    } == {"Apache-2.0"}
    assert PACKAGE["repository"] == {
        "type": "git",
        "url": f"git+{REPOSITORY}.git",
        "directory": "workers/typescript",
    }
    assert {CRATE["repository"], parent.findtext(f"{MAVEN}scm/{MAVEN}url")} == {REPOSITORY}
    assert {PACKAGE["homepage"], CRATE["homepage"], parent.findtext(f"{MAVEN}url")} == {HOME}
    assert PACKAGE["keywords"] == CRATE["keywords"]


def test_the_name_is_the_same_in_every_language() -> None:
    library = pom(WORKERS / "java" / "worker" / "pom.xml")
    names = {PACKAGE["name"], CRATE["name"], library.findtext(f"{MAVEN}artifactId")}
    assert names == {"admission-gateway-worker"}
    assert f"module {GO_MODULE}\n" in (WORKERS / "go" / "go.mod").read_text()


@pytest.mark.parametrize("folder", DISTRIBUTIONS.values(), ids=DISTRIBUTIONS)
def test_the_metadata_of_python_is_that_of_the_other_languages(folder: Path) -> None:
    project = tomllib.loads((folder / "pyproject.toml").read_text())["project"]
    assert project["license"] == "Apache-2.0"
    assert project["urls"] == {"Homepage": HOME, "Repository": REPOSITORY}
    assert project["keywords"] == PACKAGE["keywords"]
    assert project["requires-python"] == ">=3.11"


@pytest.mark.slow
def test_python_distributions_are_complete_and_the_same_in_every_build(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    built = {}
    for number in (1, 2):
        monkeypatch.setenv("SOURCE_DATE_EPOCH", "1700000000")
        folder = artifacts.build("python", tmp_path / str(number))
        built[number] = {path.name: path.read_bytes() for path in folder.iterdir()}
    assert built[1] == built[2]
    kinds = ("-py3-none-any.whl", ".tar.gz")
    bases = [f"{name.replace('-', '_')}-{__version__}" for name in DISTRIBUTIONS]
    assert built[1].keys() == {base + kind for base in bases for kind in kinds}
    for (name, root), base in zip(DISTRIBUTIONS.items(), bases, strict=True):
        with zipfile.ZipFile(folder / f"{base}-py3-none-any.whl") as wheel:
            files = {file for file in wheel.namelist() if ".dist-info/" not in file}
            assert wheel.read(f"{base}.dist-info/licenses/LICENSE") == (ROOT / "LICENSE").read_bytes()
        package = {"admission-gateway": "gateway"}.get(name, name.replace("-", "_"))
        listed = artifacts.sources(root / package)
        # README.md is for readers of the repository.
        assert files == {path.relative_to(root).as_posix() for path in listed if path.suffix != ".md"}
        with tarfile.open(folder / f"{base}.tar.gz") as archive:
            assert {f"{base}/{file}" for file in (*files, "README.md", "LICENSE")} <= set(archive.getnames())


def test_the_package_can_be_published() -> None:
    assert "private" not in PACKAGE
    assert not [text for text in PACKAGE["dependencies"].values() if not text.startswith("^")]


def test_the_module_has_no_other_module_and_nothing_of_this_machine(tmp_path: Path) -> None:
    """Source: Go Modules Reference, module zip files; golang.org/x/mod/zip."""
    versions = artifacts.build("go", tmp_path) / GO_MODULE / "@v"
    assert (versions / "list").read_text() == f"v{__version__}\n"
    with zipfile.ZipFile(versions / f"v{__version__}.zip") as archive:
        names = [name.removeprefix(f"{GO_MODULE}@v{__version__}/") for name in archive.namelist()]
    assert {"LICENSE", "go.mod", "server.go"} <= set(names)
    assert [name for name in names if name.startswith(("/", "target/", "samples/tracing/"))] == []
    first = (versions / f"v{__version__}.zip").read_bytes()
    assert artifacts.build("go", tmp_path) == tmp_path / "go"
    assert (versions / f"v{__version__}.zip").read_bytes() == first


def test_an_unknown_language_is_refused(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as exit_status:
        artifacts.main([str(tmp_path), "cobol"])
    assert exit_status.value.code == 2
    assert "cobol is none of python, go, typescript, rust, java" in capsys.readouterr().err
