"""``admission-gateway status`` and ``completion`` with real gateways."""

from __future__ import annotations

import http.client
import json
import signal
import socket
import subprocess
import sys
from http.server import BaseHTTPRequestHandler
from shutil import which
from typing import TYPE_CHECKING, Any

import pytest

from gateway.tools.cli.completion import SHELLS
from tests.e2e.kubelet.streams import forward
from tests.faults.rotating import settings_document, write_whole
from tests.kit import (
    PATIENCE_S,
    ROOT,
    Process,
    ThreadingServer,
    call_command,
    pool_document,
    serving,
    webhook_document,
)

if TYPE_CHECKING:
    from collections.abc import Iterator
    from contextlib import ExitStack
    from pathlib import Path

    from tests.kit import StartGateway
    from tests.worker.server import StartWorker

DENIED = {"deny": {"message": "refused"}}
OFF = settings_document(pages={"enabled": False})


def configuration(target: str) -> str:
    return pool_document("pool", target) + webhook_document(
        "validate", "v", "pool", DENIED, timeoutSeconds=30
    )


@pytest.mark.process
@pytest.mark.parametrize(
    "settings", [pytest.param("", id="pages", marks=pytest.mark.smoke), pytest.param(OFF, id="metrics")]
)
def test_status_shows_webhooks_pools_and_what_was_refused(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, settings: str
) -> None:
    worker = start_worker()
    file = tmp_path / "c.yaml"
    file.write_text(configuration(worker.target) + settings)
    gateway = start_gateway(tmp_path)
    assert not gateway.review("/validate", "pod-create-validate")["allowed"]
    admin = f"127.0.0.1:{gateway.admin_port}"
    done = call_command("status", "--admin", admin)
    assert (done.returncode, done.stderr) == (0, "")
    assert "h0.v.test" in done.stdout
    assert "\x1b" not in done.stdout
    (found,) = json.loads(call_command("status", "--json", "--admin", admin).stdout)["gateways"]
    assert found["source"] == ("metrics" if settings else "pages")
    assert found["overview"]["webhooks"][0]["total"]["denied"] == 1

    write_whole(file, "bad: bad")
    gateway.signal(signal.SIGHUP)
    gateway.expect("configuration refused")
    done = call_command("status", "--admin", f"http://{admin}/")
    assert done.returncode == 1
    assert "was refused" in done.stdout
    if not settings:
        assert "apiVersion: is required" in done.stdout

    write_whole(file, configuration(worker.target) + settings)
    gateway.signal(signal.SIGHUP)
    gateway.expect("configuration reloaded")
    done = call_command("status", "--admin", admin)
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.process
@pytest.mark.parametrize("settings", ["", OFF], ids=["pages", "metrics"])
def test_status_shows_pools_without_a_worker(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, settings: str
) -> None:
    worker = start_worker()
    (tmp_path / "c.yaml").write_text(configuration(worker.target) + settings)
    gateway = start_gateway(tmp_path)
    worker.stop()
    gateway.expect("worker pool unreachable")
    done = call_command("status", "--admin", f"127.0.0.1:{gateway.admin_port}")
    assert done.returncode == 1
    assert "worker pool pool has no ready endpoint" in done.stdout
    assert "no worker is reachable; webhooks that fail closed: h0.v.test" in done.stdout


@pytest.mark.parametrize("command", ["status", "decisions"])
def test_nobody_at_the_default_port_is_a_line_with_the_options_that_choose(
    command: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.tools.cli.admin_ports.DEFAULT_ADMIN", "127.0.0.1:1")
    done = call_command(command)
    expected = "no gateway answers at 127.0.0.1:1; --admin HOST:PORT and --cluster choose others\n"
    assert (done.returncode, done.stderr) == (1, expected)


@pytest.mark.process
def test_status_of_nobody_is_a_failure_of_one_line() -> None:
    done = call_command("status", "--admin", "127.0.0.1:1")
    assert (done.returncode, done.stderr) == (1, "")
    assert "127.0.0.1:1: Connection refused" in done.stdout
    for flags in (
        ("--admin", "a b"),
        ("--namespace", "x"),
        ("--interval", "0"),
        ("--cluster", "--admin", "a:1"),
    ):
        assert call_command("status", *flags).returncode == 2


@pytest.mark.process
def test_pages_with_credentials_are_read_with_a_token(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    (tmp_path / "config").mkdir()
    (tmp_path / "tokens").write_text("# readers\na-long-token-for-readers\n")
    (tmp_path / "config" / "c.yaml").write_text(
        configuration(start_worker().target)
        + settings_document(pages={"tokenFile": str(tmp_path / "tokens")})
    )
    gateway = start_gateway(tmp_path / "config")
    command = "status", "--json", "--admin", f"127.0.0.1:{gateway.admin_port}"
    (without,) = json.loads(call_command(*command).stdout)["gateways"]
    (found,) = json.loads(call_command(*command, "--token-file", tmp_path / "tokens").stdout)["gateways"]
    assert (without["source"], found["source"]) == ("metrics", "pages")


@pytest.mark.process
def test_watch_prints_it_again_and_again(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, processes: ExitStack
) -> None:
    (tmp_path / "c.yaml").write_text(configuration(start_worker().target))
    gateway = start_gateway(tmp_path)
    command = "status", "--watch", "--json", "--interval", "0.1", "--admin", f"127.0.0.1:{gateway.admin_port}"
    watch = Process(sys.executable, "-m", "gateway", *command, stdout=subprocess.PIPE)
    processes.callback(watch.stop)
    assert watch.child.stdout is not None
    first, second = (json.loads(watch.child.stdout.readline()) for _ in range(2))
    assert first["kind"] == second["kind"] == "Status"


class Cluster(ThreadingServer):
    """An API server with pods, whose proxy and forwarded ports lead to *admin_ports* by the pod's name."""

    admin_ports: dict[str, int]
    forwards = proxies = True
    refusal = "you may not forward ports"
    namespace = ""
    """The only namespace with pods; empty: any that is asked for."""
    documents: dict[str, dict[str, Any]]
    """Further answers, by path."""

    class RequestHandlerClass(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            ports = self.server.admin_ports  # type: ignore[attr-defined]
            path, _, query = self.path.partition("?")
            head, _, rest = path.partition("/proxy")
            if path.endswith("/portforward"):
                self.forward(ports[path.split("/")[-2]])
                return
            if head.endswith("/pods"):
                self.list_pods(path)
                return
            if not rest:
                self.find()
                return
            if not self.server.proxies:  # type: ignore[attr-defined]
                self.refuse("you may not use the proxy")
                return
            name = head.rpartition("/")[2].partition(":")[0]
            connection = http.client.HTTPConnection("127.0.0.1", ports[name], timeout=PATIENCE_S)
            connection.request(
                "GET", rest + (f"?{query}" if query else ""), headers={"Host": "10.0.0.1:9090"}
            )
            answer = connection.getresponse()
            self.reply(answer.status, answer.read())
            connection.close()

        def do_POST(self) -> None:
            self.rfile.read(int(self.headers["Content-Length"]))
            self.find()

        def find(self) -> None:
            found = self.server.documents.get(self.path)  # type: ignore[attr-defined]
            missing = {"kind": "Status", "code": 404, "message": "not found"}
            self.reply(404 if found is None else 200, json.dumps(found or missing).encode())

        def list_pods(self, path: str) -> None:
            ports, namespace = self.server.admin_ports, self.server.namespace  # type: ignore[attr-defined]
            metadata = {"namespace": namespace} if namespace else {}
            pods: list[dict[str, Any]] = [
                {"metadata": {**metadata, "name": name}, "status": {"phase": "Running"}, "spec": {}}
                for name in ports
            ]
            pods.append({"metadata": {**metadata, "name": "new"}, "status": {"phase": "Pending"}})
            is_elsewhere = namespace and path not in ("/api/v1/pods", f"/api/v1/namespaces/{namespace}/pods")
            self.reply(200, json.dumps({"items": [] if is_elsewhere else pods}).encode())

        def forward(self, port: int) -> None:
            if self.server.forwards:  # type: ignore[attr-defined]
                forward(self, [port], lambda port: socket.create_connection(("127.0.0.1", port)))
            else:
                self.refuse(self.server.refusal)  # type: ignore[attr-defined]

        def refuse(self, message: str) -> None:
            status = {"kind": "Status", "code": 403, "message": message}
            self.reply(403, json.dumps(status).encode())

        def reply(self, status: int, body: bytes) -> None:
            self.send_response(status)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    def __init__(self) -> None:
        super().__init__(self.RequestHandlerClass)
        self.admin_ports = {}
        self.documents = {}

    def kubeconfig(self, folder: Path) -> Path:
        """Return a kubeconfig for it, written into *folder*."""
        document = {
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.server_port}"}}],
            "users": [{"name": "u", "user": {}}],
        }
        (folder / "kubeconfig").write_text(json.dumps(document))
        return folder / "kubeconfig"


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    server = Cluster()
    with serving(server):
        yield server


@pytest.mark.process
@pytest.mark.parametrize("forwards", [True, False])
def test_status_of_the_pods_of_a_cluster_is_read_through_the_api_server(
    tmp_path: Path,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    cluster: Cluster,
    *,
    forwards: bool,
) -> None:
    cluster.forwards = forwards
    (tmp_path / "config").mkdir()
    (tmp_path / "config" / "c.yaml").write_text(configuration(start_worker().target))
    for name in ("gateway-a", "gateway-b"):
        cluster.admin_ports[name] = start_gateway(tmp_path / "config").admin_port
    kubeconfig = cluster.kubeconfig(tmp_path)
    command = "status", "--cluster", "--kubeconfig", kubeconfig, "--namespace", "policies"
    found = {one["name"]: one for one in json.loads(call_command(*command, "--json").stdout)["gateways"]}
    assert found.keys() == {"gateway-a", "gateway-b", "new"}
    # Without the right to forward it is the proxy, which leads to the pod's address.
    assert found["gateway-a"]["source"] == ("pages" if forwards else "metrics")
    assert ("the port cannot be forwarded: " in found["gateway-a"]["note"]) is not forwards
    assert ("you may not forward ports" in found["gateway-a"]["note"]) is not forwards
    assert found["gateway-a"]["overview"]["pools"][0]["ready"] == 1
    assert "Pending" in found["new"]["error"]
    text = call_command(*command)
    assert text.returncode == 1
    assert "gateway-b" in text.stdout
    assert "new: no answer" in text.stdout


@pytest.mark.process
@pytest.mark.parametrize("shell", SHELLS)
def test_every_command_and_option_can_be_completed(shell: str, tmp_path: Path) -> None:
    done = call_command("completion", shell)
    assert (done.returncode, done.stderr) == (0, "")
    for word in ("serve", "manifests", "allow-empty", "conformance", "expiry-days"):
        assert word in done.stdout
    assert "--child" not in done.stdout
    if which(shell):
        script = tmp_path / "completion"
        script.write_text(done.stdout)
        subprocess.run([shell, "-n", str(script)], check=True, cwd=ROOT, timeout=PATIENCE_S)


@pytest.mark.process
def test_bash_completes_commands_and_options() -> None:
    script = """
source <("$0" -m gateway completion bash)
complete_words() {
    COMP_WORDS=("$@"); COMP_CWORD=$(($# - 1)); _shtab_admission_gateway; echo "${COMPREPLY[@]}"
}
complete_words admission-gateway con
complete_words admission-gateway serve --allow
"""
    done = subprocess.run(
        ["bash", "-c", script, sys.executable],
        capture_output=True,
        text=True,
        check=False,
        cwd=ROOT,
        timeout=PATIENCE_S,
    )
    assert done.stdout.split("\n")[:2] == ["conformance", "--allow-empty"], done.stderr
