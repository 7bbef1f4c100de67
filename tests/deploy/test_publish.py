"""What `make publish` refuses, leaves as it is, and publishes. tests/release publishes a whole release."""

from __future__ import annotations

import argparse
import base64
import hashlib
import json
import re
import shlex
import subprocess
import sys
from contextlib import suppress
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler
from typing import TYPE_CHECKING

import pytest

from deploy import publish, registries
from deploy.artifacts import ROOT, git
from deploy.registries import (
    Crate,
    Download,
    HelmChart,
    MavenLibrary,
    NpmPackage,
    PythonFile,
    Refused,
    Signature,
    Signer,
)
from deploy.release import digests
from gateway import __version__
from tests.kit import ThreadingServer, serving
from tests.release.registries import TOKEN, Registries

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

OPTIONS = argparse.Namespace(allow_changes=False)


@dataclass
class Made:
    """A part in a state, which notes that it was published."""

    state: str
    name: str = "file -> place"
    tools: tuple[str, ...] = ()
    pushed: list[str] = field(default_factory=list)

    def there(self) -> str:
        return self.state

    def push(self) -> None:
        self.pushed.append(self.name)


@pytest.fixture
def server() -> Iterator[Registries]:
    with Registries() as server:
        yield server


@pytest.fixture
def release(tmp_path: Path) -> Path:
    """A release of one file, from this commit."""
    (tmp_path / "CHANGES.md").write_text("none")
    definition = {
        "resolvedDependencies": [{"digest": {"gitCommit": git("rev-parse", "HEAD")}}],
        "internalParameters": {"uncommittedFiles": 0},
        "externalParameters": {"version": __version__, "files": "https://files.example/v1"},
    }
    statement = {"predicate": {"buildDefinition": definition}}
    (tmp_path / "provenance.intoto.json").write_text(json.dumps(statement))
    sums = "".join(f"{sha}  {name}\n" for name, sha in digests(tmp_path).items())
    (tmp_path / "SHA256SUMS").write_text(sums)
    return tmp_path


@pytest.mark.parametrize(
    ("arguments", "refusal"),
    [
        (
            (),
            r"no destination\. Name one at least: REGISTRY=HOST/PATH, PYPI=URL, .*, MAVEN=URL",
        ),
        (("--npm", "https://me:secret@npm.example"), "--npm has credentials"),
        (
            ("--pypi", "https://python.example", "--pypi-upload", "https://me@i.example"),
            "--pypi-upload has credentials",
        ),
        (("--npm", "https://npm.example", "--artifacthub", "a.yml"), "--artifacthub needs --registry"),
    ],
)
def test_a_command_line_without_destination_or_with_credentials_is_refused(
    arguments: tuple[str, ...], refusal: str, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        publish.main(["build/release", *arguments])
    assert ended.value.code == 2
    assert re.search(refusal, capsys.readouterr().err)


def test_what_is_there_is_left_and_the_rest_published(capsys: pytest.CaptureFixture[str]) -> None:
    there, new = Made("same"), Made("")
    publish.publish([there, new], dry_run=True)
    assert new.pushed == []
    publish.publish([there, new], dry_run=False)
    assert (there.pushed, new.pushed) == ([], [new.name])
    ends = [line.rpartition(": ")[2] for line in capsys.readouterr().out.splitlines()]
    assert ends == ["is there already", "would be published", "is there already", "published"]


def test_nothing_is_published_if_a_version_is_there_with_other_content() -> None:
    new = Made("")
    with pytest.raises(Refused, match=r"nothing is published: .+ with other content\n  file -> place$"):
        publish.publish([new, Made("other")], dry_run=False)
    assert new.pushed == []


def test_a_release_is_published_from_its_commit_and_as_it_was_built(release: Path) -> None:
    publish.check(release, [], OPTIONS)
    for signature in ("SHA256SUMS.sigstore.json", "CHANGES.md.asc"):
        (release / signature).touch()
    publish.check(release, [], OPTIONS)
    with pytest.raises(Refused, match="not installed: no-such-tool"):
        publish.check(release, [Made("", tools=("no-such-tool",))], OPTIONS)
    (release / "python").mkdir()
    (release / "python" / "added.whl").touch()
    with pytest.raises(Refused, match=r"python/added\.whl is not in SHA256SUMS: remove it"):
        publish.check(release, [], OPTIONS)
    (release / "CHANGES.md").write_text("changed")
    with pytest.raises(Refused, match=r"CHANGES\.md is not the file of SHA256SUMS"):
        publish.check(release, [], OPTIONS)


@pytest.mark.parametrize("name", ["SHA256SUMS", "provenance.intoto.json"])
def test_a_release_that_is_not_whole_is_refused(release: Path, name: str) -> None:
    (release / name).write_text("{")
    with pytest.raises(Refused, match="is not a whole release: run `make release` again"):
        publish.check(release, [], OPTIONS)
    (release / name).unlink()
    with pytest.raises(Refused, match=f"is not a whole release: .*{re.escape(name)}"):
        publish.check(release, [], OPTIONS)


@pytest.mark.parametrize(
    ("old", "new", "refusal"),
    [
        (git("rev-parse", "HEAD"), "0" * 40, "is from the commit 0{40}: check it out"),
        ('"uncommittedFiles": 0', '"uncommittedFiles": 2', "from uncommitted files"),
    ],
)
def test_a_release_of_other_sources_is_refused(release: Path, old: str, new: str, refusal: str) -> None:
    file = release / "provenance.intoto.json"
    file.write_text(file.read_text().replace(old, new))
    sums = "".join(f"{sha}  {name}\n" for name, sha in digests(release).items())
    (release / "SHA256SUMS").write_text(sums)
    with pytest.raises(Refused, match=refusal):
        publish.check(release, [], OPTIONS)
    publish.check(release, [], argparse.Namespace(allow_changes=True))


def test_a_release_whose_manifest_names_another_place_is_refused(release: Path) -> None:
    for files in ("https://files.example/v1", "https://files.example/v1/", ""):
        publish.check(release, [], argparse.Namespace(allow_changes=False, files=files))
    refusal = r"names https://files\.example/v1: run `make release FILES=https://b\.example`, then `make pub"
    with pytest.raises(Refused, match=refusal):
        publish.check(release, [], argparse.Namespace(allow_changes=False, files="https://b.example/"))


def test_files_for_download_are_signed_one_by_one_or_listed(release: Path) -> None:
    for name in ("SHA256SUMS.sigstore.json", "krew/admission.yaml", "sbom/all.cdx.json"):
        (release / name).parent.mkdir(exist_ok=True)
        (release / name).touch()
    options = publish.parsed([str(release), "--files", "https://files.example/v1", "--key", "cosign.key"])
    names = [part.name for part in publish.chosen(release, options)]
    signed = ("SHA256SUMS", "admission.yaml")
    assert names[:2] == [f"signature of {name} -> {name}.sigstore.json" for name in signed]
    files = [*signed, *(f"{name}.sigstore.json" for name in signed)]
    files += ["CHANGES.md", "provenance.intoto.json", "all.cdx.json"]
    assert names[2:] == [f"{name} -> https://files.example/v1" for name in files]


def test_a_folder_of_files_tells_what_it_has_and_takes_new_ones(
    server: Registries, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    part = Download(tmp_path / "admission.yaml", server.downloads)
    assert part.there() == ""
    part.file.write_bytes(b"content")
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(Refused, match=r"(?s)`curl --fail-with-body` failed .* 401"):
        part.push()
    (tmp_path / ".netrc").write_text(f"machine 127.0.0.1 login me password {TOKEN}\n")
    part.push()
    assert part.there() == "same"
    part.file.write_bytes(b"changed")
    assert part.there() == "other"


def test_a_destination_needs_its_part_of_the_release(release: Path) -> None:
    options = publish.parsed([str(release), "--npm", "https://npm.example"])
    with pytest.raises(Refused, match=r"has no typescript/\*\.tgz: `make release` has not built it"):
        list(publish.chosen(release, options))


def test_a_python_index_tells_what_it_has(server: Registries, tmp_path: Path) -> None:
    name = f"admission_gateway-{__version__}.tar.gz"
    (tmp_path / name).write_bytes(b"content")
    part = PythonFile(tmp_path / name, server.pypi, server.url)
    assert part.there() == ""
    server.files[f"/pypi/simple/admission-gateway/{name}"] = b"content"
    assert part.there() == "same"
    server.files[f"/pypi/simple/admission-gateway/{name}"] = b"changed"
    assert part.there() == "other"


def test_an_index_of_python_that_has_hashes_is_believed(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    name = f"admission_gateway-{__version__}-py3-none-any.whl"
    (tmp_path / name).write_bytes(b"content")
    page = f'<a href="../../files/{name}#sha256={hashlib.sha256(b"content").hexdigest()}">{name}</a>'
    monkeypatch.setattr(
        registries, "fetch", {"https://python.example/simple/admission-gateway/": page.encode()}.pop
    )
    assert PythonFile(tmp_path / name, "https://python.example/simple/", "").there() == "same"


def test_an_index_of_crates_tells_what_it_has(server: Registries, tmp_path: Path) -> None:
    file = tmp_path / f"admission-gateway-worker-{__version__}.crate"
    file.write_bytes(b"content")
    part = Crate(file, server.crates)
    assert part.there() == ""
    lines = [
        {"vers": "0.0.1", "cksum": "00"},
        {"vers": __version__, "cksum": hashlib.sha256(b"content").hexdigest()},
    ]
    server.files["/crates/index/ad/mi/admission-gateway-worker"] = "\n".join(map(json.dumps, lines)).encode()
    assert part.there() == "same"
    file.write_bytes(b"changed")
    assert part.there() == "other"


def test_a_maven_repository_tells_what_it_has(server: Registries, tmp_path: Path) -> None:
    folder = tmp_path / "io" / "admission-gateway-worker" / __version__
    folder.mkdir(parents=True)
    start = f"admission-gateway-worker-{__version__}"
    for end in (".jar", ".pom", "-sources.jar", "-javadoc.jar"):
        (folder / f"{start}{end}").write_text(end)
    part = MavenLibrary(folder, tmp_path, server.maven)
    place = f"/maven/io/admission-gateway-worker/{__version__}/{start}"
    assert part.there() == ""
    for end in (".jar", ".pom", "-sources.jar"):
        server.files[f"{place}{end}"] = end.encode()
    assert part.there() == "other"
    server.files[f"{place}-javadoc.jar"] = b"-javadoc.jar"
    assert part.there() == "same"
    server.files[f"{place}.pom"] = b"changed"
    assert part.there() == "other"


def test_npm_tells_what_it_has(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    file = tmp_path / f"admission-gateway-worker-{__version__}.tgz"
    file.write_bytes(b"content")
    answers = {"": "", '"sha512-other"': "other"}
    answers[json.dumps(f"sha512-{base64.b64encode(hashlib.sha512(b'content').digest()).decode()}")] = "same"
    for answer, state in answers.items():
        monkeypatch.setattr(registries, "run", lambda *_, answer=answer: answer)
        assert NpmPackage(file, "https://npm.example").there() == state


def test_only_the_chart_of_the_release_is_signed(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    chart = HelmChart(tmp_path / f"admission-gateway-{__version__}.tgz", "registry.example")
    chart.file.write_bytes(b"content")
    ran: list[tuple[str, ...]] = []
    manifest = json.dumps({"layers": [{"digest": f"sha256:{hashlib.sha256(b'content').hexdigest()}"}]})

    def run(*command: str) -> str:
        ran.append(command)
        return manifest

    monkeypatch.setattr(registries, "run", run)
    signature = Signature(chart, Signer("cosign.key", ()))
    signature.push()
    digest = hashlib.sha256(manifest.encode()).hexdigest()
    assert ran[-1][-1] == f"registry.example/charts/admission-gateway@sha256:{digest}"
    chart.file.write_bytes(b"another")
    with pytest.raises(Refused, match="is not what was published, so it is not signed"):
        signature.push()


def test_a_registry_that_does_not_answer_or_may_not_be_read_is_named(server: Registries) -> None:
    with pytest.raises(Refused, match="ftp://x is no URL of http or https"):
        registries.fetch("ftp://x")
    url = server.url
    server.__exit__()
    with pytest.raises(Refused, match=re.escape(url)):
        registries.fetch(url)


class _Hostile(BaseHTTPRequestHandler):
    """Answers 302 to a PUT, and otherwise in the way that the path says."""

    def do_GET(self) -> None:
        if self.path == "/cut":
            self.wfile.write(b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\npage")
        if self.path == "/endless":
            self.wfile.write(b"HTTP/1.1 200 OK\r\n\r\n")
            with suppress(OSError):
                while True:
                    self.wfile.write(b"x")

    def do_PUT(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.wfile.write(b"HTTP/1.1 302 Found\r\nLocation: /login\r\nContent-Length: 0\r\n\r\n")

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def hostile() -> Iterator[str]:
    server = ThreadingServer(_Hostile)
    with serving(server):
        yield f"http://127.0.0.1:{server.server_port}"


@pytest.mark.parametrize(
    ("path", "bound", "value", "refusal"),
    [
        ("none", "MAX_BYTES", 9, "closed connection without response"),
        ("cut", "MAX_BYTES", 9, "the answer ends 5 bytes too early"),
        ("endless", "MAX_BYTES", 2 * 1024**2, "the answer has more than 2 MiB"),
        ("endless", "READ_WITHIN_S", 0.0, "the answer has not ended within 0 s"),
    ],
)
def test_an_answer_of_a_hostile_registry_has_bounds(
    path: str, bound: str, value: float, refusal: str, hostile: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(registries, bound, value)
    with pytest.raises(Refused, match=refusal):
        registries.fetch(f"{hostile}/{path}")


def test_an_upload_that_is_redirected_is_not_published(hostile: str, tmp_path: Path) -> None:
    (tmp_path / "admission.yaml").write_bytes(b"content")
    with pytest.raises(Refused, match=r"answers 302 to admission\.yaml, which is not there now"):
        Download(tmp_path / "admission.yaml", hostile).push()


@pytest.mark.parametrize("answer", [b"{", b"5", b"[]", b"{}", b"[" * 100_000, b"\xff"])
def test_an_index_that_is_none_is_named(answer: bytes, server: Registries, tmp_path: Path) -> None:
    part = Crate(tmp_path / f"admission-gateway-worker-{__version__}.crate", server.crates)
    server.files["/crates/index/ad/mi/admission-gateway-worker"] = answer
    with pytest.raises(Refused, match=f"^{re.escape(part.name)}: the registry's answer cannot be read: "):
        publish.state_of(part)


def test_a_tool_does_not_see_the_secrets_of_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("COSIGN_PASSWORD", "TWINE_PASSWORD", "NPM_TOKEN", "CARGO_HOME", "AWS_SECRET_ACCESS_KEY"):
        monkeypatch.setenv(name, "x")
    seen = {line.partition("=")[0] for line in registries.run("env").splitlines()}
    assert seen & {"COSIGN_PASSWORD", "TWINE_PASSWORD", "NPM_TOKEN"} == set()
    assert seen > {"CARGO_HOME", "AWS_SECRET_ACCESS_KEY"}
    monkeypatch.setitem(registries._OWNERS, "TWINE_", "env")
    assert "TWINE_PASSWORD=x" in registries.run("env")


def test_the_versions_of_mavens_plugins_are_that_of_the_sdk() -> None:
    pom = (ROOT / "workers" / "java" / "pom.xml").read_text()
    for goal in (registries.MAVEN_DEPLOY, registries.MAVEN_SIGN_AND_DEPLOY):
        _, plugin, version, _ = goal.split(":")
        assert f"<artifactId>{plugin}</artifactId>\n          <version>{version}<" in pom


def test_a_tool_that_fails_is_reported_with_what_it_said() -> None:
    with pytest.raises(Refused, match=r"(?s)`sh -c` failed with status 3:.*why"):
        registries.run("sh", "-c", "echo why >&2; exit 3")
    with pytest.raises(Refused, match="no-such-tool is not installed"):
        registries.run("no-such-tool")


def test_a_tool_that_asks_a_question_gets_no_answer() -> None:
    program = "from deploy.registries import run; print(run('cat'))"
    command = (sys.executable, "-c", program)
    done = subprocess.run(command, cwd=ROOT, input="typed", capture_output=True, text=True, check=True)
    assert done.stdout == "\n"


def test_make_gives_every_destination_to_the_program() -> None:
    options = publish.parsed(["build/release", "--registry", "x"])
    given = {name: name for name, value in vars(options).items() if value in ("", "x", None)}
    assert given.keys() > publish.DESTINATIONS.keys()
    variables = [f"{name.upper()}={name}" for name in given]
    command = ("make", "-n", "publish", *variables, "DRY_RUN=1", "GPG=1")
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    (line,) = (line for line in done.stdout.replace("\\\n", "").splitlines() if "deploy.publish" in line)
    made = publish.parsed(shlex.split(line.partition("-m deploy.publish ")[2]))
    assert {name: getattr(made, name) for name in given} == given
    assert (made.dry_run, made.gpg, made.allow_changes) == (True, True, False)
