"""Shared by several folders of tests: child processes, which end with the test, and configurations."""

from __future__ import annotations

import functools
import gc
import http.client
import importlib
import io
import itertools
import json
import logging
import os
import random
import re
import socket
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack, chdir, contextmanager, suppress
from http.server import ThreadingHTTPServer
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest import mock

import yaml

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from http.server import HTTPServer
    from socketserver import BaseRequestHandler

    import trustme

ROOT = Path(__file__).parents[1]
REVIEWS = ROOT / "tests" / "reviews"
WORKER = (sys.executable, "-m", "tests.worker")
"""The command of the scripted worker; it needs ``ROOT`` as working directory."""
PATIENCE_S = 120.0
"""The bound of every wait, in seconds: far more than a busy machine needs."""

_LANES = 64


@functools.cache
def _ports() -> Iterator[int]:
    """Return ports of this process alone: they are bound some time after they were chosen.

    Several runs of pytest may be under way, each with several processes. An abstract socket, which ends with
    the process, keeps the others from the same ports.
    """
    for lane in range(_LANES):
        with socket.socket(socket.AF_UNIX) as keeper, suppress(OSError):
            keeper.bind(f"\0admission-gateway-tests-{lane}")
            keeper.detach()
            ports = range(10_000 + lane, 30_000, _LANES)
            return itertools.cycle(random.sample(ports, len(ports)))
    raise AssertionError("too many processes run tests")


def free_port() -> int:
    """Return an unused port of 127.0.0.1 that the system gives to no client, unlike those for port 0."""
    for port in _ports():
        with socket.socket() as probe, suppress(OSError):
            probe.bind(("127.0.0.1", port))
            return port
    raise AssertionError


class ThreadingServer(ThreadingHTTPServer):
    """A server on a port of its own, whose connections end with it, and with them their threads.

    An error in a thread that is left would be written into the output of a later test.
    """

    daemon_threads = False
    request_queue_size = 256

    def __init__(
        self,
        handler: type[BaseRequestHandler],
        host: str = "127.0.0.1",
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._connections: set[socket.socket] = set()
        super().__init__((host, 0), handler)
        if tls is not None:
            # The handshake is the handler's: meanwhile others connect.
            self.socket = tls.wrap_socket(self.socket, server_side=True, do_handshake_on_connect=False)

    def get_request(self) -> tuple[socket.socket, Any]:
        """See ``socketserver``."""
        connection, address = super().get_request()
        self._connections.add(connection)
        return connection, address

    def shutdown_request(self, request: Any) -> None:
        """See ``socketserver``."""
        self._connections.discard(request)
        super().shutdown_request(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """See ``socketserver``. A client that has ended the connection is no error."""
        if not isinstance(sys.exception(), ConnectionError | ssl.SSLError):
            super().handle_error(request, client_address)

    def server_close(self) -> None:
        """See ``socketserver``."""
        for connection in self._connections.copy():
            with suppress(OSError):
                # Not that of a TLS socket, which its thread still uses.
                socket.socket.shutdown(connection, socket.SHUT_RDWR)
        super().server_close()


@contextmanager
def serving(server: HTTPServer) -> Iterator[None]:
    """Run *server* in a thread inside the block, and close it at the end."""
    # By default it would see its end after up to half a second.
    thread = threading.Thread(target=server.serve_forever, args=(0.02,))
    thread.start()
    try:
        yield
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


@contextmanager
def without_collector() -> Iterator[Callable[..., int]]:
    """Free objects inside the block by reference counting alone.

    The function that is yielded counts the objects of types that were made in the block and are left.
    """
    # What existed before is looked at neither by the counts nor by a collection in the block.
    gc.freeze()
    gc.disable()
    try:
        yield lambda *types: sum(isinstance(found, types) for found in gc.get_objects())
    finally:
        gc.enable()
        gc.unfreeze()


def children_of(pid: int) -> list[int]:
    """Return the ids of the children of the main thread of process *pid* that were not waited for."""
    return [int(child) for child in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def metric_of(exposition: str, name: str, labels: Mapping[str, str]) -> float:
    """Return the sum of all samples of *name* in *exposition* that carry *labels*."""
    total = 0.0
    for line in exposition.splitlines():
        found = re.fullmatch(rf"{name}(?:{{(.*)}})? (\S+)", line)
        if found and all(f'{key}="{value}"' in (found[1] or "") for key, value in labels.items()):
            total += float(found[2])
    return total


class Process:
    """A child process that is stopped at the end of the test. Its standard error is stored."""

    def __init__(
        self,
        *command: str,
        stdout: int | None = None,
        cwd: Path = ROOT,
        environment: dict[str, str] | None = None,
    ) -> None:
        self.child = subprocess.Popen(
            command,
            cwd=cwd,
            env=environment,
            stdout=stdout,
            stderr=subprocess.PIPE,
            text=True,
            errors="backslashreplace",  # a process that is killed may have written half a character
            start_new_session=True,
        )
        self.log = ""
        self._is_silent = False
        """Whether the process and its descendants have closed standard error."""
        self._logged = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.child.stderr is not None
        for line in self.child.stderr:
            with self._logged:
                self.log += line
                self._logged.notify_all()
        with self._logged:
            self._is_silent = True
            self._logged.notify_all()

    def expect(self, pattern: str, *, after: int = 0) -> re.Match[str]:
        """Wait until the log, from character *after* on, matches *pattern*; return the match in the whole."""
        sought = re.compile(pattern)
        with self._logged:
            found = self._logged.wait_for(
                lambda: sought.search(self.log, after) or self._is_silent, PATIENCE_S
            )
        match = sought.search(self.log, after)
        if not match:
            self.stop()
        assert match, f"no {pattern!r} in the log of a process that {found and 'runs or ended'}:\n{self.log}"
        return match

    def signal(self, number: int) -> None:
        self.child.send_signal(number)

    def children(self) -> list[int]:
        """Return the ids of the children of its main thread that were not waited for."""
        return children_of(self.child.pid)

    def wait(self) -> int:
        status = self.child.wait(PATIENCE_S)
        self._reader.join(PATIENCE_S)
        return status

    def stop(self) -> None:
        if self.child.poll() is None:
            self.child.terminate()
            try:
                self.child.wait(PATIENCE_S)
            except subprocess.TimeoutExpired:
                self.child.kill()
        self.wait()
        for pipe in (self.child.stderr, self.child.stdout):
            if pipe is not None:
                pipe.close()


def run_command(
    *arguments: object, stdin: bytes | None = None, environment: dict[str, str] | None = None
) -> subprocess.CompletedProcess[str]:
    """Run ``admission-gateway`` as a process to its end, and return its result, whatever its exit status."""
    return subprocess.run(
        [sys.executable, "-m", "gateway", *map(str, arguments)],
        cwd=ROOT,
        env=environment,
        capture_output=True,
        text=True,
        input=stdin.decode() if stdin is not None else None,
        timeout=PATIENCE_S,
        check=False,
    )


_BOUNDS = (
    "admission_gateway_worker.kubernetes_client REQUEST_TIMEOUT_S",
    "gateway.server.kubernetes.custom_resources READ_ONCE_TIMEOUT_S",
    "gateway.server.kubernetes.namespaces LOOK_UP_TIMEOUT_S",
    "gateway.server.kubernetes.params TIMEOUT_S",
    "gateway.server.kubernetes.port_forward TIMEOUT_S",
    "gateway.tools.inspection.policies _SCHEMAS_WITHIN_S",
    "gateway.tools.offline.gateway OWN_READY_WITHIN_S",
    "gateway.tools.offline.gateway _READY_WITHIN_S",
    "gateway.tools.status.admin_ports POST_TIMEOUT_S",
    "gateway.tools.status.admin_ports TIMEOUT_S",
)
"""Bounds of commands that a test on a busy machine could exceed."""


def call_command(
    *arguments: object,
    stdin: bytes | None = None,
    environment: dict[str, str] | None = None,
    folder: Path | None = None,
    program: str = "gateway.tools.cli",
) -> subprocess.CompletedProcess[str]:
    """As :func:`run_command` in this process, which saves the start of an interpreter.

    *folder* is the working directory, instead of the project's. *program* is the module with its ``main``.

    Output of child processes of the command is not in the result. Afterwards standard streams, environment,
    working directory and log are as before. The command's own bounds are ``PATIENCE_S``.
    """
    main = importlib.import_module(program).main
    out, err = (io.TextIOWrapper(io.BytesIO(), "utf-8") for _ in range(2))
    streams: dict[str, Any] = {
        "stdin": io.TextIOWrapper(io.BytesIO(stdin or b""), "utf-8"),
        "stdout": out,
        "stderr": err,
    }
    environ = mock.patch.dict(os.environ, environment or {}, clear=environment is not None)
    status: object = None
    with (
        mock.patch.multiple("sys", **streams),
        environ,
        chdir(folder or ROOT),
        _own_log(),
        ExitStack() as patches,
    ):
        for module, name in map(str.split, _BOUNDS):
            # A test of what never happens has set it to 0.
            if getattr(importlib.import_module(module), name):
                patches.enter_context(mock.patch(f"{module}.{name}", PATIENCE_S))
        try:
            main([*map(str, arguments)])
        except SystemExit as end:
            status = end.code
    assert isinstance(status, int)
    out.flush()
    err.flush()
    printed = (stream.buffer.getvalue().decode() for stream in (out, err))
    return subprocess.CompletedProcess([*map(str, arguments)], status, *printed)


@contextmanager
def _own_log() -> Iterator[None]:
    """Let a command set up its log inside the block as in a process of its own."""
    from gateway.base import logs

    root = logging.getLogger()
    handlers, level, is_debug = root.handlers[:], root.level, logs.current.is_debug
    root.handlers.clear()  # beside those of pytest the command would add none
    try:
        yield
    finally:
        root.handlers[:] = handlers
        root.setLevel(level)
        logging.captureWarnings(False)  # noqa: FBT003 - the standard library's only way
        logs.current.is_debug = is_debug


class WorkerProcess(Process):
    """The scripted worker of ``tests/worker``."""

    def __init__(self, listen: str, *flags: str) -> None:
        super().__init__(*WORKER, "--listen", listen, *flags, stdout=subprocess.PIPE)
        assert self.child.stdout is not None
        self.targets = self.child.stdout.readline().split()
        assert self.targets, self.log
        self.target = self.targets[0]


class Answering:
    """What tests ask a gateway, wherever it runs."""

    def exchange(self, path: str, body: bytes) -> tuple[int, bytes]:
        """Return status and body of the answer to a review."""
        raise NotImplementedError

    def _admin(self, path: str, headers: dict[str, str]) -> tuple[int, str, str]:
        """Return status, media type and body of the answer to a GET at the admin port."""
        raise NotImplementedError

    def post(self, path: str, body: bytes) -> bytes:
        """Send *body* and return the body of the answer, whose status must be 200."""
        status, answer = self.exchange(path, body)
        assert status == 200, answer
        return answer

    def review(self, path: str, review: str | bytes) -> dict[str, Any]:
        """Return ``response`` of the answer to a recorded review, by name, or to the bytes of one."""
        body = review if isinstance(review, bytes) else (REVIEWS / f"{review}.json").read_bytes()
        answer: dict[str, Any] = json.loads(self.post(path, body))
        response: dict[str, Any] = answer["response"]
        assert response["uid"] == json.loads(body)["request"]["uid"]
        return response

    def admin(self, path: str) -> tuple[int, str]:
        status, _, text = self._admin(path, {})
        return status, text

    def scrape(self, accept: str | None = None) -> tuple[str, str]:
        """Return the media type and the text of the metrics, when all processes answer."""
        headers = {} if accept is None else {"Accept": accept}
        give_up = time.monotonic() + PATIENCE_S
        while (answer := self._admin("/metrics", headers))[0] == 503 and time.monotonic() < give_up:
            pass  # One of several processes did not answer its parent, which waits for two seconds.
        status, media_type, text = answer
        assert status == 200, text
        return media_type, text

    def metric(self, name: str, /, **labels: str) -> float:
        """Return the sum of all samples of *name* that carry *labels*."""
        return metric_of(self.scrape()[1], name, labels)


class GatewayProcess(Answering, Process):
    """``admission-gateway serve`` with its own configuration folder."""

    module = "gateway"

    def __init__(
        self, config: Path, certificate: tuple[Path, Path] | None, authority: trustme.CA, *flags: str
    ) -> None:
        pair = () if certificate is None else ("--tls-cert", certificate[0], "--tls-key", certificate[1])
        self.config = config
        self.client_context = ssl.create_default_context()
        authority.configure_trust(self.client_context)
        super().__init__(
            *(sys.executable, "-m", self.module, "serve", "--config", str(config)),
            *("--listen", "127.0.0.1:0", "--admin-listen", "127.0.0.1:0"),
            *(*map(str, pair), *flags),
        )
        found = self.expect(r"serving on https://127\.0\.0\.1:(\d+), admin on http://[\d.]+:(\d+)")
        self.port, self.admin_port = int(found[1]), int(found[2])

    def connect(self) -> http.client.HTTPSConnection:
        connection = http.client.HTTPSConnection(
            "127.0.0.1", self.port, context=self.client_context, timeout=PATIENCE_S
        )
        connection.connect()
        return connection

    def post(self, path: str, body: bytes, connection: http.client.HTTPSConnection | None = None) -> bytes:
        """Send *body* and return the body of the answer, whose status must be 200."""
        status, answer = self.exchange(path, body, connection)
        assert status == 200, answer
        return answer

    def exchange(
        self, path: str, body: bytes, connection: http.client.HTTPSConnection | None = None
    ) -> tuple[int, bytes]:
        used = connection or self.connect()
        try:
            used.request("POST", path, body, {"Content-Type": "application/json"})
            response = used.getresponse()
            return response.status, response.read()
        finally:
            if connection is None:
                used.close()

    def _admin(self, path: str, headers: dict[str, str]) -> tuple[int, str, str]:
        connection = http.client.HTTPConnection("127.0.0.1", self.admin_port, timeout=PATIENCE_S)
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.getheader("Content-Type") or "", response.read().decode()
        finally:
            connection.close()


StartGateway = Callable[..., GatewayProcess]
"""Starts a gateway: ``start_gateway(config_folder, *flags)``."""


def load_yaml(text: str) -> Iterator[Any]:
    """Yield the documents of *text*, by libyaml where it is installed, which is ten times as fast."""
    return yaml.load_all(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))


def webhook_document(phase: str, name: str, pool: str, *scripts: dict[str, Any], **fields: Any) -> str:
    """Return a webhook configuration as JSON (a YAML document): a webhook ``hN.NAME.test`` for each script.

    A script's ``webhook`` member holds fields of that webhook; *fields* are those of all.
    """
    everything = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
    webhooks = []
    for number, script in enumerate(scripts):
        policy = {key: value for key, value in script.items() if key != "webhook"}
        webhooks.append(
            {
                "name": f"h{number}.{name}.test",
                "clientConfig": {"worker": {"pool": pool, "policy": json.dumps(policy, sort_keys=True)}},
                "rules": [everything],
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
                **fields,
                **script.get("webhook", {}),
            }
        )
    kind = {"mutate": "MutatingWebhookConfiguration", "validate": "ValidatingWebhookConfiguration"}[phase]
    document = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "webhooks": webhooks,
    }
    return json.dumps(document) + "\n---\n"


def pool_document(name: str, *targets: str, **spec: Any) -> str:
    document = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name},
        "spec": {"target": list(targets), **spec},
    }
    return json.dumps(document) + "\n---\n"
