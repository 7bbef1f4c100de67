"""A release is built, signed and published to registries on this machine, and installed from there."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from contextlib import ExitStack
from typing import TYPE_CHECKING

import pytest
import yaml

from gateway import __version__
from tests.e2e.binaries import chart_tool, release_tool
from tests.images.builder import unpacked
from tests.kit import REVIEWS, ROOT
from tests.languages.projects import (
    CARGO_TARGET,
    Published,
    become_a_worker,
    from_files,
    maven_repository,
    python_environment,
)
from tests.languages.toolchains import LANGUAGES, NAMES
from tests.release.registries import Registries
from tests.release.rehearsal import Publisher, build, npm_upstream, run, start_oci_registry, wheels

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.languages.toolchains import Language

pytestmark = [
    pytest.mark.slow,
    pytest.mark.process,
    pytest.mark.timeout(7200),
    pytest.mark.xdist_group("release"),
    pytest.mark.skipif(shutil.which("go") is None, reason="cosign and a registry are built with Go"),
]
PAGE = ROOT / "docs" / "release.md"


@pytest.fixture(scope="module")
def publisher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Publisher]:
    """Someone with rights, and a release that was built and not published yet."""
    folder = tmp_path_factory.mktemp("release")
    for path in (folder, folder.parent):
        path.chmod(0o755)
    (folder / "home").mkdir()
    upstream = npm_upstream() if shutil.which("npm") else ""
    with Registries(wheels(folder / "wheels"), upstream) as registries, ExitStack() as stack:
        oci, host = start_oci_registry()
        stack.callback(oci.stop)
        parts = build(folder / "release", f"--files={registries.downloads}", f"--registry={host}/team")
        publisher = Publisher(folder / "release", registries, f"{host}/team", folder / "home", parts)
        stack.callback(publisher.close)
        yield publisher


@pytest.fixture(scope="module")
def published(publisher: Publisher) -> Publisher:
    """The same, after the release was published, at the second attempt."""
    planned = publisher.publish("--dry-run")
    assert {line.rpartition(": ")[2] for line in planned[:-1]} == {"would be published"}
    assert publisher.registries.written == []
    right, publisher.environment["TWINE_PASSWORD"] = publisher.environment["TWINE_PASSWORD"], "wrong"
    with pytest.raises(AssertionError, match="`twine upload` failed with status 1"):
        publisher.publish()
    assert publisher.registries.written == []
    publisher.environment["TWINE_PASSWORD"] = right
    lines = publisher.publish()
    assert [line.rpartition(": ")[0] for line in lines] == [line.rpartition(": ")[0] for line in planned]
    # Images and chart were there after the first attempt.
    assert {line.rpartition(": ")[2] for line in lines[:-1]} == {"is there already", "published"}
    ends = {name.rpartition(".")[2] for name in publisher.registries.written}
    assert ("asc" in ends) is ("java" in publisher.parts and "GNUPGHOME" in publisher.environment)
    return publisher


def test_a_second_run_publishes_nothing(published: Publisher) -> None:
    before = list(published.registries.written)
    lines = published.publish()
    assert {line.rpartition(": ")[2] for line in lines[:-1]} == {"is there already"}
    assert published.registries.written == before


def test_other_content_under_the_version_is_refused(
    published: Publisher, monkeypatch: pytest.MonkeyPatch
) -> None:
    files, before = published.registries.files, list(published.registries.written)
    (name,) = (name for name in files if re.search(r"/admission_gateway-[\d.]+-py3-none-any\.whl$", name))
    monkeypatch.setitem(files, name, b"changed")
    with pytest.raises(AssertionError, match=r"nothing is published: .* is there already with other content"):
        published.publish()
    assert published.registries.written == before


def test_signatures_are_verified_by_the_commands_of_the_page(published: Publisher) -> None:
    (section,) = re.findall(r"^## Verify\n(.*?)^## ", PAGE.read_text(), re.MULTILINE | re.DOTALL)
    commands = "".join(re.findall(r"^```sh\n(.*?)^```$", section, re.MULTILINE | re.DOTALL))
    assert commands.count("cosign verify") == 4
    # The key of the rehearsal is in no public log.
    text = commands.replace("cosign.pub", f"{published.home}/cosign.pub --insecure-ignore-tlog=true")
    text = text.replace("REGISTRY", published.oci).replace("0.2.0", __version__)
    if "images" not in published.parts:
        text = re.sub(r"^cosign verify .*(?<!/charts)/admission-gateway:.*\n", "", text, flags=re.MULTILINE)
    assert "Verified OK" in run("sh", "-ec", text, cwd=published.release, environment=published.environment)
    sums = published.release / "SHA256SUMS"
    content = sums.read_text()
    sums.write_text(content.replace("a", "b", 1))
    (line,) = (line for line in text.splitlines() if line.endswith(" SHA256SUMS") and "blob" in line)
    with pytest.raises(AssertionError, match="invalid signature"):
        run("sh", "-ec", line, cwd=published.release, environment=published.environment)
    sums.write_text(content)


def test_the_gateway_of_the_index_answers_a_review(published: Publisher, tmp_path: Path) -> None:
    environment = {"HOME": str(tmp_path), "PIP_INDEX_URL": published.registries.pypi, "PIP_FIND_LINKS": ""}
    place = python_environment(tmp_path / "environment")
    run(place / "bin/pip", "install", "admission-gateway", cwd=tmp_path, environment=environment)
    run(place / "bin/pip", "install", "admission-gateway-conformance", cwd=tmp_path, environment=environment)
    run(place / "bin/pip", "check", cwd=tmp_path)
    program = place / "bin" / "admission-gateway"
    assert run(program, "--version", cwd=tmp_path).split()[-1] == __version__
    shutil.copy(ROOT / "gateway" / "dev.yaml", tmp_path / "gateway.yaml")
    review = (program, "review", REVIEWS / "pod-create-mutate.json", "--phase", "mutate")
    path = {"PATH": f"{place}/bin{os.pathsep}{os.environ['PATH']}"}
    output = run(*review, "--config", "gateway.yaml", cwd=tmp_path, environment=path)
    assert '"allowed":true' in output


def test_krew_installs_the_plug_in_by_the_command_of_the_page(published: Publisher, tmp_path: Path) -> None:
    (documented,) = re.findall(r"`kubectl krew (install [^`]+)`", PAGE.read_text())
    command = documented.replace("FILES", published.registries.downloads)
    # In place of the public index, which krew downloads first.
    (index := tmp_path / "index").mkdir()
    author = ("-c", "user.name=me", "-c", "user.email=me@release.example")
    run("git", "init", "--quiet", cwd=index)
    run("git", *author, "commit", "--quiet", "--allow-empty", "--message=none", cwd=index)
    environment = {"KREW_ROOT": str(tmp_path / "krew"), "KREW_DEFAULT_INDEX_URI": str(index)}
    run(release_tool("krew"), *command.split(), cwd=tmp_path, environment=environment)
    run(sys.executable, "-m", "venv", "--without-pip", tmp_path / "bare")
    path = {"PATH": f"{tmp_path}/krew/bin:{tmp_path}/bare/bin:/usr/bin:/bin"}
    shown = run("kubectl-admission", "--help", cwd=tmp_path, environment=path)
    assert shown.startswith("usage: kubectl admission ")


def test_artifact_hub_finds_changes_and_images_of_the_chart_and_its_publisher(
    published: Publisher, tmp_path: Path
) -> None:
    chart = f"oci://{published.oci}/charts/admission-gateway"
    helm = (chart_tool("helm"), "show", "chart", chart, "--plain-http", "--version", __version__)
    shown = run(*helm, cwd=tmp_path, environment={"HOME": str(tmp_path)})
    annotations = yaml.safe_load(shown[shown.index("annotations:") :])["annotations"]
    images = {one["name"]: one["image"] for one in yaml.safe_load(annotations["artifacthub.io/images"])}
    assert images["admission-gateway"] == f"{published.oci}/admission-gateway:{__version__}"
    assert len(yaml.safe_load(annotations["artifacthub.io/changes"])) > 1
    place = f"{published.oci}/charts/admission-gateway"
    (layer,) = json.loads(published.run("crane", "manifest", f"{place}:artifacthub.io"))["layers"]
    assert layer["mediaType"] == "application/vnd.cncf.artifacthub.repository-metadata.layer.v1.yaml"
    about = published.run("crane", "blob", f"{place}@{layer['digest']}")
    assert about == (published.home / "artifacthub-repo.yml").read_text()


def project_of(published: Publisher, language: Language, folder: Path) -> Published:
    """Return what projects of *language* below *folder* need to find what was published."""
    registries = published.registries
    match language.name:
        case "python":
            place = python_environment(folder / "environment", "pytest")
            path = f"{place / 'bin'}{os.pathsep}{os.environ['PATH']}"
            return Published({"PATH": path, "PIP_INDEX_URL": registries.pypi, "PIP_FIND_LINKS": ""})
        case "typescript":
            return Published({"HOME": str(folder), "npm_config_registry": registries.npm})
        case "rust":
            add = "cargo add admission-gateway-worker"
            environment = {
                "CARGO_REGISTRIES_RELEASE_INDEX": registries.crates,
                "CARGO_TARGET_DIR": str(CARGO_TARGET),
            }
            return Published(
                environment, {f"{add}\n": f"{add} --registry release\n"}, {"target": CARGO_TARGET}
            )
        case "java":
            (folder / ".m2").mkdir()
            repository = f"<id>release</id><url>{registries.maven}</url>"
            profile = f"<id>release</id><repositories><repository>{repository}</repository></repositories>"
            active = "<activeProfiles><activeProfile>release</activeProfile></activeProfiles>"
            settings = f"<settings><profiles><profile>{profile}</profile></profiles>{active}</settings>"
            (folder / ".m2" / "settings.xml").write_text(settings)
            local = maven_repository(folder / "repository")
            return Published({"MAVEN_OPTS": f"-Duser.home={folder} -Dmaven.repo.local={local}"})
        case _:
            # The tag is what publishes a module in Go. A proxy has the files that it makes of the tag.
            return from_files(language, published.release / "go", folder)


@pytest.mark.parametrize("language", LANGUAGES, ids=NAMES)
def test_the_readme_of_a_language_works_with_what_was_published(
    published: Publisher, language: Language, tmp_path: Path, processes: ExitStack
) -> None:
    if language.name not in published.parts:
        pytest.skip(f"{language.title} is left out of the release")
    become_a_worker(tmp_path, processes, language, project_of(published, language, tmp_path))


def test_the_chart_of_the_registry_is_that_of_the_tree(published: Publisher, tmp_path: Path) -> None:
    helm, home = chart_tool("helm"), {"HOME": str(tmp_path)}
    chart = f"oci://{published.oci}/charts/admission-gateway"
    options = ("--namespace", "admission-gateway", "--set", f"image.registry={published.oci}")
    of_registry = ("--plain-http", "--version", __version__)
    there = run(helm, "template", "gateway", chart, *of_registry, *options, cwd=tmp_path, environment=home)
    here = run(helm, "template", "gateway", ROOT / "deploy/chart", *options, cwd=tmp_path, environment=home)
    documents = [text[text.index("---") :] for text in (there, here)]
    assert documents[0] == documents[1]
    assert f'"{published.oci}/admission-gateway:{__version__}"' in there.replace(
        "image: ", 'image: "'
    ).replace('""', '"')


@pytest.mark.parametrize("name", ["admission-gateway", "sample-policies"])
def test_an_image_of_the_registry_runs(published: Publisher, name: str, tmp_path: Path) -> None:
    if "images" not in published.parts:
        pytest.skip("images are left out of the release")
    for path in (tmp_path, *tmp_path.parents[:2]):
        path.chmod(0o755)
    layout = tmp_path / "layout"
    run(release_tool("crane"), "pull", "--format=oci", f"{published.oci}/{name}:{__version__}", layout)
    image = unpacked(layout, tmp_path / "files")
    assert image.config["Labels"]["org.opencontainers.image.version"] == __version__
    (mounted := tmp_path / "mounted").mkdir()
    output = run(*image.command(mounted, "--help"), cwd=tmp_path)
    assert "usage: " in output
    statement = json.loads((published.release / "provenance.intoto.json").read_text())
    assert f"images/{name}-{__version__}.oci.tar" in [subject["name"] for subject in statement["subject"]]
