"""Locust as users run it: against a gateway, and against a server that answers like an API server."""

from __future__ import annotations

import json
import re
import ssl
from typing import TYPE_CHECKING, Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from loadtest.reviews import POD as REVIEW
from tests.kit import REVIEWS, GatewayProcess, WorkerProcess, pool_document, webhook_document
from tests.kubernetes.server import ApiServer, Handler
from tests.loadtest.locust_run import run_locust, write_corpus

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Iterator
    from pathlib import Path

    import trustme

pytestmark = pytest.mark.slow

POD = json.loads(REVIEW.read_bytes())
TOKEN = "the-token"
MANIFEST = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "plain"}, "spec": {}}
SCRIPTS: dict[str, dict[str, Any]] = {
    "allow": {},
    "deny": {"deny": {"code": 403, "message": "no"}},
    "slow": {"delay_ms": 100},
    "broken": {"status": "UNAVAILABLE"},
}


# -- a gateway ------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def gateway(
    tmp_path_factory: pytest.TempPathFactory, certificate: tuple[Path, Path], authority: trustme.CA
) -> Iterator[GatewayProcess]:
    """A gateway with a configuration object for each of ``SCRIPTS``."""
    config = tmp_path_factory.mktemp("config")
    worker = WorkerProcess(f"unix:{tmp_path_factory.mktemp('worker')}/s")
    documents = [webhook_document("validate", name, "w", script) for name, script in SCRIPTS.items()]
    (config / "gateway.yaml").write_text(pool_document("w", worker.target) + "".join(documents))
    gateway = GatewayProcess(config, certificate, authority)
    yield gateway
    gateway.stop()
    worker.stop()


@pytest.fixture
def corpus(tmp_path: Path) -> Path:
    return write_corpus(tmp_path / "corpus", pod=POD)


def direct(gateway: GatewayProcess, *policies: str) -> list[str]:
    paths = [argument for policy in policies for argument in ("--path", f"/validate/{policy}")]
    return ["--host", f"https://127.0.0.1:{gateway.port}/", *paths]


def test_reviews_go_to_all_paths_and_a_denial_is_no_failure(
    gateway: GatewayProcess, corpus: Path, tmp_path: Path, authority: trustme.CA
) -> None:
    """The gateway is verified, and an option comes from the environment."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    options = [*direct(gateway, "allow", "deny"), "--ca-file", tmp_path / "ca.crt"]
    run = run_locust(corpus, *options, LOADTEST_MAX_FAILURE_RATIO="0.5")
    assert run.status == 0, run.log
    line = r"pass: 0 of (\d+) answers are failures, 0.00% \(at most 50.00%\); (\d+) are denials"
    answered, denied = map(int, run.line(line))
    assert answered >= 20
    # Two users take turns between the two paths.
    assert abs(2 * denied - answered) <= 2
    for policy in ("allow", "deny"):
        run.line(rf"POST +/validate/{policy} pod +\d+ +0\(0\.00%\)")
    sent, planned = map(int, run.line(r"pass: (\d+) of (\d+) planned requests were sent"))
    assert answered == sent <= planned


@pytest.mark.parametrize(
    ("policy", "limit", "lines"),
    [
        ("slow", ["--max-p99-ms", "50"], [r"FAIL: p99 \d+ ms \(at most 50 ms\)"]),
        (
            "broken",
            ["--max-failure-ratio", "0.5"],
            [
                r"FAIL: (\d+) of \1 answers are failures, 100.00%",
                r"\d+ +POST pod: .*failed closed, code 500",
            ],
        ),
    ],
)
def test_an_exceeded_limit_makes_the_exit_status_1(
    gateway: GatewayProcess, corpus: Path, policy: str, limit: list[str], lines: list[str]
) -> None:
    run = run_locust(corpus, *direct(gateway, policy), *limit)
    assert run.status == 1, run.log
    for line in lines:
        run.line(line)
    # The other lines pass: this one decides the status.
    assert run.output.count("FAIL: ") == 1


def test_a_gateway_that_is_not_there_is_a_failure_and_no_traceback(corpus: Path) -> None:
    run = run_locust(corpus, "--host", "https://127.0.0.1:1")
    assert run.status == 1
    run.line(r"POST pod: .*no answer: ConnectionRefusedError")
    assert "Traceback" not in run.log


def test_a_gateway_with_a_certificate_of_another_authority_is_a_failure(
    gateway: GatewayProcess, corpus: Path, tmp_path: Path, authority: trustme.CA
) -> None:
    type(authority)().cert_pem.write_to_path(str(tmp_path / "other.crt"))
    run = run_locust(corpus, *direct(gateway, "allow"), "--ca-file", tmp_path / "other.crt")
    assert run.status == 1
    run.line(r"POST pod: .*no answer: .*CERTIFICATE_VERIFY_FAILED")


def test_an_unusable_option_is_an_error_without_a_traceback(corpus: Path) -> None:
    run = run_locust(corpus, "--host", "https://127.0.0.1:1", "--corpus", "no-such-folder")
    assert run.status == 1
    assert "locustfile: no-such-folder: expected AdmissionReviews" in run.log
    assert "Traceback" not in run.log


# -- a path through an API server -----------------------------------------------------------------


class PodServer(ApiServer):
    """Creates, deletes and discovers pods. The label ``webhook`` of a pod decides the answer.

    ``tests/e2e`` uses a real API server.
    """

    def __init__(self, tls: ssl.SSLContext) -> None:
        super().__init__(tls)
        self.token = TOKEN
        self.resources["/api/v1"] = [{"name": "pods", "kind": "Pod", "namespaced": True}]
        self.stored: set[str] = set()
        self.options: list[str] = []
        """Those of Locust for this server."""

    def handler(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> Handler:
        return PodHandler(self, reader, writer)


class PodHandler(Handler):
    server: PodServer

    async def _do_post(self) -> None:
        url, pod = urlsplit(self.path), json.loads(self.body)
        if not await self._admit("post", {"path": url.path, **dict(parse_qsl(url.query))}):
            return
        name = f"{pod['metadata']['generateName']}{len(self.server.requests):05d}"
        match (pod["metadata"].get("labels") or {}).get("webhook"):
            case "denies":
                self.refuse(403, f'admission webhook "h.test" denied the request: {name} is bad')
            case "fails":
                self.refuse(500, 'Internal error occurred: failed calling webhook "h.test": EOF')
            case _:
                if "dryRun" not in url.query:
                    self.server.stored.add(f"{url.path}/{name}")
                self.answer(201, {**pod, "metadata": {**pod["metadata"], "name": name}})

    async def _do_delete(self) -> None:
        if not await self._admit("delete", {"path": self.path}):
            return
        if "sticky" in self.path:
            self.refuse(403, "not this one")
        else:
            self.server.stored.remove(urlsplit(self.path).path)
            self.answer(200, {"kind": "Status"})


@pytest.fixture
def api_server(tmp_path: Path, certificate: tuple[Path, Path], authority: trustme.CA) -> Iterator[PodServer]:
    tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    tls.load_cert_chain(*certificate)
    ca_file, token = tmp_path / "ca.crt", tmp_path / "token"
    authority.cert_pem.write_to_path(str(ca_file))
    token.write_text(TOKEN)
    server = PodServer(tls)
    server.options += ("--via", "apiserver", "--host", f"https://localhost:{server.server_port}")
    server.options += ("--ca-file", str(ca_file), "--token-file", str(token))
    with server:
        yield server


def labelled(webhook: str) -> dict[str, Any]:
    return {**MANIFEST, "metadata": {"name": "web", "labels": {"webhook": webhook}}}


def test_creates_are_dry_runs(api_server: PodServer, tmp_path: Path) -> None:
    update = json.loads((REVIEWS / "pod-update-validate.json").read_bytes())
    corpus = write_corpus(
        tmp_path / "corpus", review=POD, manifest=MANIFEST, denied=labelled("denies"), update=update
    )
    run = run_locust(corpus, *api_server.options, "--namespace", "trial")
    assert run.status == 0, run.log
    assert "locustfile: left out update.json: its operation is UPDATE, not CREATE" in run.log
    sent = [asked for kind, asked in api_server.requests if kind == "post"]
    assert {*map(str, sent)} == {"{'path': '/api/v1/namespaces/trial/pods', 'dryRun': 'All'}"}
    answered, denied = map(int, run.line(r"pass: 0 of (\d+) answers are failures, .*; (\d+) are denials"))
    assert answered == len(sent) >= 20
    assert abs(3 * denied - answered) <= 4
    for name in ("review", "manifest", "denied"):
        run.line(rf"POST +{name} +\d+ +0\(0\.00%\)")


def test_stored_objects_are_deleted_at_the_end_and_those_that_cannot_be_are_listed(
    api_server: PodServer, tmp_path: Path
) -> None:
    """Nor is there an object of a create whose webhook cannot be called, which is a failure."""
    sticky = {**MANIFEST, "metadata": {"name": "sticky"}}
    corpus = write_corpus(tmp_path / "corpus", review=POD, failed=labelled("fails"), sticky=sticky)
    run = run_locust(corpus, *api_server.options, "--persist", "--max-failure-ratio", "0.1")
    assert run.status == 1
    run.line(r"FAIL: \d+ of \d+ answers are failures")
    run.line(r"POST failed: .*HTTP status 500: Internal error occurred: failed calling webhook")
    methods = [kind for kind, _ in api_server.requests if kind != "discovery"]
    deletes = methods.count("delete")
    assert methods == ["post"] * (len(methods) - deletes) + ["delete"] * deletes
    assert not any("dryRun" in asked for _, asked in api_server.requests)
    deleted = deletes - len(api_server.stored)
    assert min(deleted, len(api_server.stored)) >= 4
    assert run.line(r"(\d+) of (\d+) objects deleted") == (str(deleted), str(deletes))
    for path in api_server.stored:
        assert "/sticky-" in path
        assert re.search(rf"^not deleted: {path}: HTTP status 403: .*not this one", run.output, re.MULTILINE)


def test_a_wrong_token_is_an_error_before_the_run(api_server: PodServer, tmp_path: Path) -> None:
    corpus = write_corpus(tmp_path / "corpus", pod=MANIFEST)
    (tmp_path / "wrong").write_text("another")
    run = run_locust(corpus, *api_server.options, "--token-file", tmp_path / "wrong")
    assert run.status == 1
    assert re.search(r"locustfile: GET https://localhost:\d+/api/v1: HTTP status 401", run.log)
    assert [kind for kind, _ in api_server.requests] == ["discovery"]
