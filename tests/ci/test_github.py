"""The GitHub action: its steps run as a runner does, with the command, a container, and a pull request."""

from __future__ import annotations

import json
import sys
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.ci.runner import Run, environment
from tests.kit import ThreadingServer, serving
from tests.preview.kit import CONFIG_MAP, WEB, configure, deny, pods

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.faults.kit import StartWorker

pytestmark = pytest.mark.process

BIN = Path(sys.executable).parent
MARKER = "<!-- admission-gateway:preview -->"
INJECTED = "::set-output name=x::y\n::error::from a policy"


@pytest.fixture
def repository(tmp_path: Path, start_worker: StartWorker) -> Path:
    """A repository with manifests in a folder with a space, of which the Pods are denied."""
    folder = tmp_path / "repository"
    (folder / "my manifests").mkdir(parents=True)
    (folder / "my manifests" / "web.yaml").write_text(WEB)
    (folder / "allowed").mkdir()
    (folder / "allowed" / "c.yaml").write_text(CONFIG_MAP)
    message = deny(f"no latest\n{INJECTED}", "spec.containers[0].image")
    configure(folder / "gateway.yaml", start_worker().target, validate=[pods(message)])
    return folder


def run(repository: Path, event: dict[str, str] | None = None, **environ: str) -> Run:
    temporary = repository.parent / "temporary"
    temporary.mkdir(exist_ok=True)
    return Run(repository, temporary, {**environment(BIN), **environ}, event or {})


def test_a_denied_pod_of_a_deployment_fails_the_job_with_all_reports(repository: Path) -> None:
    done = run(repository)({"paths": "my manifests\nallowed", "config": "gateway.yaml"})
    assert done.status == 1
    assert done.outputs["result"] == "denied"
    sarif = json.loads(Path(done.outputs["sarif"]).read_text())
    (result,) = sarif["runs"][0]["results"]
    place = result["locations"][0]["physicalLocation"]
    assert place["artifactLocation"]["uri"] == "my%20manifests/web.yaml"
    assert place["region"]["startLine"] == 16
    assert Path(done.outputs["junit"]).read_text().startswith("<?xml")
    assert done.summary == Path(done.outputs["markdown"]).read_text()
    assert done.summary.startswith(f"{MARKER}\n")
    # No line of a message is a command for the runner.
    begin = done.log.index("::stop-commands::")
    token = done.log[begin:].split("\n", 1)[0].removeprefix("::stop-commands::")
    assert begin < done.log.index("::error::from a policy") < done.log.index(f"\n::{token}::\n")


def test_the_job_goes_on_if_nothing_is_denied_or_denials_are_only_reported(repository: Path) -> None:
    done = run(repository)({"paths": "allowed", "config": "gateway.yaml"})
    assert (done.status, done.outputs["result"]) == (0, "allowed")
    inputs = {"paths": "my manifests", "config": "gateway.yaml", "fail-on-denial": "false"}
    done = run(repository)(inputs)
    assert (done.status, done.outputs["result"]) == (0, "denied")
    done = run(repository)({**inputs, "arguments": "--expand=false\n--namespace=a b"})
    assert (done.status, done.outputs["result"]) == (0, "allowed"), done.log


def test_the_version_of_kubernetes_is_a_part_of_the_reports(repository: Path) -> None:
    removed = "apiVersion: resource.k8s.io/v1beta1\nkind: DeviceClass\nmetadata: {name: a}\n"
    (repository / "allowed" / "removed.yaml").write_text(removed)
    inputs = {"paths": "allowed", "config": "gateway.yaml"}
    assert run(repository)(inputs).status == 0
    done = run(repository)({**inputs, "kubernetes": "1.38"})
    assert (done.status, done.outputs["result"]) == (1, "denied")
    (result,) = json.loads(Path(done.outputs["sarif"]).read_text())["runs"][0]["results"]
    assert result["ruleId"] == "forecast-removed-api"
    assert "1.38 removes DeviceClass" in done.summary


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"config": "gateway.yaml"}, "paths: found nothing"),
        ({"paths": "\n", "config": "gateway.yaml"}, "paths: found nothing"),
        ({"paths": "allowed"}, "config: found nothing"),
        ({"paths": "none", "config": "gateway.yaml"}, "status 2"),
        ({"paths": "--json", "config": "gateway.yaml"}, "status 2"),
        ({"paths": "$(touch injected)", "config": "gateway.yaml"}, "status 2"),
    ],
)
def test_wrong_inputs_fail_with_what_is_wrong(repository: Path, inputs: dict[str, str], message: str) -> None:
    done = run(repository)(inputs)
    assert done.status == 2
    assert "result" not in done.outputs or not done.outputs["result"]
    assert f"::error::{message}" in done.log or message in done.log
    assert not (repository / "injected").exists()


def test_an_image_is_run_with_the_repository_read_only(repository: Path, tmp_path: Path) -> None:
    docker = tmp_path / "bin" / "docker"
    docker.parent.mkdir()
    # It only writes down how it was called. tests/images runs the image.
    docker.write_text(f'#!/bin/bash\nprintf "%s\\n" "$@" > {tmp_path}/called\nexit 2\n')
    docker.chmod(0o755)
    path = environment(docker.parent)["PATH"]
    inputs = {"paths": "allowed", "config": "gateway.yaml", "image": "registry.example/gateway:1"}
    assert run(repository, PATH=path)(inputs).status == 2
    called = (tmp_path / "called").read_text().splitlines()
    assert called[:2] == ["run", "--rm"]
    assert f"{repository}:{repository}:ro" in called
    image = called.index("registry.example/gateway:1")
    assert called[image + 1 : image + 4] == ["preview", "--config", "gateway.yaml"]
    assert called[-2:] == ["--", "allowed"]


class GitHub(ThreadingServer):
    """GitHub's comments of one pull request."""

    def __init__(self) -> None:
        super().__init__(_Handler)
        self.comments: list[dict[str, Any]] = []
        self.status = 200

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"

    def add(self, body: str, login: str) -> dict[str, Any]:
        self.comments.append({"id": 100 + len(self.comments), "body": body, "user": {"login": login}})
        return self.comments[-1]


class _Handler(BaseHTTPRequestHandler):
    server: GitHub

    def do_GET(self) -> None:
        if self.path == "/user":
            self._answer(403, {})
            return
        path, _, query = self.path.partition("?")
        assert path == "/repos/shop/web/issues/7/comments", path
        page = int(dict(part.split("=") for part in query.split("&"))["page"])
        self._answer(self.server.status, self.server.comments[100 * (page - 1) : 100 * page])

    def do_POST(self) -> None:
        assert self.path == "/repos/shop/web/issues/7/comments"
        self._answer(201, self.server.add(self._body(), "github-actions[bot]"))

    def do_PATCH(self) -> None:
        (found,) = (
            one for one in self.server.comments if self.path == f"/repos/shop/web/issues/comments/{one['id']}"
        )
        found["body"] = self._body()
        self._answer(200, found)

    def _body(self) -> str:
        assert self.headers["Authorization"] == "Bearer job"
        body: str = json.loads(self.rfile.read(int(self.headers["Content-Length"])))["body"]
        return body

    def _answer(self, status: int, content: object) -> None:
        text = json.dumps(content).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_request(self, *_: object) -> None:
        """Be silent."""


@pytest.fixture
def github() -> Iterator[GitHub]:
    server = GitHub()
    with serving(server):
        yield server


def comment(repository: Path, github: GitHub, paths: str, number: str = "7") -> Run:
    event = {"github.event.pull_request.number": number}
    environ = {"GITHUB_API_URL": github.url, "GITHUB_REPOSITORY": "shop/web"}
    return run(repository, event, **environ)({"paths": paths, "config": "gateway.yaml", "comment": "true"})


def test_a_pull_request_has_one_comment_of_the_last_run(repository: Path, github: GitHub) -> None:
    for number in range(120):
        github.add(f"text {number}", "alice")
    # Its author could change it after the run.
    github.add(f"{MARKER}\nall is well", "mallory")
    first = comment(repository, github, "my manifests")
    assert first.status == 1
    assert github.comments[-1]["body"] == first.summary
    assert len(github.comments) == 122
    second = comment(repository, github, "allowed")
    assert second.status == 0, second.log
    assert len(github.comments) == 122
    assert github.comments[-1]["body"] == Path(second.outputs["markdown"]).read_text()
    assert github.comments[120]["body"] == f"{MARKER}\nall is well"


@pytest.mark.parametrize(
    ("number", "status", "message"),
    [("", 200, "the event has no pull request"), ("7", 403, "pull-requests: write")],
)
def test_a_comment_that_cannot_be_written_fails_with_what_to_do(
    repository: Path, github: GitHub, number: str, status: int, message: str
) -> None:
    github.status = status
    done = comment(repository, github, "allowed", number)
    assert done.status == 1
    assert message in done.log
