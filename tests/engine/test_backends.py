"""Backends of policies over real sockets and TLS: what policies get, and what a bad server costs."""

from __future__ import annotations

import asyncio
import base64
import ssl
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any, Final

import pytest
import trustme

from gateway.config.merge.load import load
from gateway.engine.dispatch.https.policy_backend import (
    MAX_ANSWER_BYTES,
    MAX_GETS_IN_FLIGHT,
    PolicyBackend,
)
from gateway.engine.dispatch.timer_wheel import TimerWheel
from gateway.engine.engine import Engine
from gateway.observe.telemetry.metrics import Metrics
from gateway.pure.core.conditions import BackendAnswer, BackendGet
from gateway.pure.core.webhook import BackendOfPolicies, HttpsClient
from gateway.tools.offline.gateway import offline_gateway
from tests.core.build import body
from tests.engines import snapshot_of
from tests.kit import PATIENCE_S
from tests.kyverno.documents import validating
from tests.policies.documents import written
from tests.stream_server import stream_server
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence
    from pathlib import Path

    Json = dict[str, Any]

POD: Final = body(
    {
        "uid": "u",
        "kind": {"group": "", "version": "v1", "kind": "Pod"},
        "resource": {"group": "", "version": "v1", "resource": "pods"},
        "name": "web",
        "operation": "CREATE",
        "userInfo": {},
        "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "web"}},
    }
)
LONG_S: Final = 2 * PATIENCE_S


class Server:
    """Answers by the path: ``/200/TEXT``; ``/long`` is too long, ``/never`` has no answer."""

    def __init__(self) -> None:
        self.heads: list[list[str]] = []
        self.connections = 0

    async def serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.connections += 1
        while True:
            try:
                head = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")[:-2]
            except asyncio.IncompleteReadError:
                return
            self.heads.append(head)
            status, _, text = head[0].split(" ")[1].removeprefix("/data/").partition("/")
            if status == "never":
                await reader.read()
                return
            if status == "end":
                return
            content = b"x" * (MAX_ANSWER_BYTES + 1) if status == "long" else text.encode()
            code = status if status.isdigit() else "200"
            to = "Location: /data/200/true\r\n" if code.startswith("3") else ""
            writer.write(
                f"HTTP/1.1 {code} X\r\n{to}Content-Length: {len(content)}\r\n\r\n".encode() + content
            )
            await writer.drain()


@asynccontextmanager
async def served(certificate: tuple[Path, Path]) -> AsyncIterator[tuple[Server, str]]:
    tls = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    tls.load_cert_chain(*certificate)
    server = Server()
    async with stream_server(server.serve, ssl=tls) as port:
        yield server, f"https://localhost:{port}/data"


@asynccontextmanager
async def opened(url: str, ca: bytes) -> AsyncIterator[PolicyBackend]:
    loop = asyncio.get_running_loop()
    client = HttpsClient(url, ca, backend=BackendOfPolicies("inventory", 30))
    backend = PolicyBackend(client, None, TimerWheel(loop, loop.time), Metrics().pool("https"))
    try:
        yield backend
    finally:
        await backend.close(0.0)


async def got(backend: PolicyBackend, target: str, timeout_s: float = LONG_S) -> BackendAnswer:
    done: asyncio.Future[BackendAnswer] = asyncio.get_running_loop().create_future()
    backend.get(BackendGet("inventory", target), timeout_s, done.set_result)
    return await done


async def test_a_review_gets_data_from_a_server(
    certificate: tuple[Path, Path], authority: trustme.CA, tmp_path: Path
) -> None:
    """The configuration names it, and it sees neither credentials nor a second equal request."""
    async with served(certificate) as (server, url):
        bundle = base64.b64encode(authority.cert_pem.bytes()).decode()
        settings = {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "GatewayConfiguration",
            "policies": {"backends": [{"name": "inventory", "url": url, "caBundle": bundle}]},
        }
        get = f"http.get('{url}/200/[1]?name=' + string(object.metadata.name), {{'X-Team': 'a'}})"
        policies = [validating(f"{get}.body == [1]", name="a"), validating(f"{get}.body == [2]", name="b")]
        written(tmp_path, [settings, *policies])
        engine = Engine(Metrics(), lambda _: [])
        try:
            engine.activate(await engine.prepare(load([tmp_path])))
            for _ in range(2):
                run = await engine.dry_run(POD, [snapshot_of(engine).paths["/validate"]])
                status = run.decision.status
                assert status is not None
                assert status.message == "Policy b failed: CEL expression validation failed at index 0"
        finally:
            await engine.close()
        assert (
            server.heads
            == [
                [
                    "GET /data/200/[1]?name=web HTTP/1.1",
                    f"Host: {url.split('/')[2]}",
                    "User-Agent: admission-gateway",
                    "Accept: application/json, */*",
                    "X-Team: a",
                ]
            ]
            * 2
        )
        assert server.connections == 1


async def test_commands_that_review_send_nothing(certificate: tuple[Path, Path], tmp_path: Path) -> None:
    async with served(certificate) as (server, url):
        settings = {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "GatewayConfiguration",
            "policies": {"backends": [{"name": "inventory", "url": url}]},
        }
        written(tmp_path, [settings, validating(f"http.get('{url}/200/1').body == 1")])
        async with offline_gateway(load([tmp_path])) as gateway:
            status = (await gateway.review(POD, ("validate",))).decision.status
        assert status is not None
        assert status.message.endswith("only a gateway that serves reviews sends requests to backends")
        assert server.connections == 0


async def test_answers_and_failures(certificate: tuple[Path, Path], authority: trustme.CA) -> None:
    async with served(certificate) as (server, url), opened(url, authority.cert_pem.bytes()) as backend:
        assert await got(backend, '/data/404/{"a":1}') == BackendAnswer(404, b'{"a":1}')
        assert await got(backend, "/data/503/x") == BackendAnswer(503, b"x")
        for target, problem in (
            ("/data/302/x", "status 302: redirects are not followed"),
            ("/data/307/x", "status 307: redirects are not followed"),
            ("/data/long", f"found an answer of {MAX_ANSWER_BYTES + 1} bytes, expected at most"),
            ("/data/end", "EOF"),
        ):
            answer = await got(backend, target)
            assert answer.status == 0
            assert answer.error.startswith(f"backend inventory: {problem}")
        assert not [head for head in server.heads if "200/true" in head[0]]
        assert (await got(backend, "/data/never", 0.0)).error == "backend inventory: no answer in time"


async def test_the_certificate_is_verified(certificate: tuple[Path, Path]) -> None:
    other = trustme.CA(key_type=trustme.KeyType.ECDSA).cert_pem.bytes()
    async with served(certificate) as (server, url), opened(url, other) as backend:
        answer = await got(backend, "/data/200/true")
        assert "tls: failed to verify certificate" in answer.error
        assert server.heads == []


async def test_a_server_that_does_not_answer_holds_a_bounded_number_of_requests(
    certificate: tuple[Path, Path], authority: trustme.CA
) -> None:
    waiting: list[BackendAnswer] = []
    async with served(certificate) as (server, url), opened(url, authority.cert_pem.bytes()) as backend:
        cancel = [
            backend.get(BackendGet("inventory", "/data/never"), LONG_S, waiting.append)
            for _ in range(MAX_GETS_IN_FLIGHT)
        ]
        full = f"backend inventory: {MAX_GETS_IN_FLIGHT} requests are in flight, which is the maximum"
        assert (await got(backend, "/data/200/true")).error == full
        await until(lambda: len(server.heads) == MAX_GETS_IN_FLIGHT)
        cancel[0]()
        assert (await got(backend, "/data/200/true")).status == 200
        assert waiting == []
    # Those that are left get an answer when it closes, and the cancelled one none.
    closed = BackendAnswer(error="backend inventory: the gateway is shutting down")
    assert waiting == [closed] * (MAX_GETS_IN_FLIGHT - 1)


@pytest.mark.parametrize("is_kept", [True, False])
async def test_connections_are_kept_with_the_same_settings(
    certificate: tuple[Path, Path], authority: trustme.CA, tmp_path: Path, *, is_kept: bool
) -> None:
    async with served(certificate) as (server, url):
        bundle = base64.b64encode(authority.cert_pem.bytes()).decode()

        def documents(timeout_s: int, message: str) -> Sequence[Json]:
            backend = {"name": "inventory", "url": url, "caBundle": bundle, "timeoutSeconds": timeout_s}
            head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
            validation = {"expression": f"http.get('{url}/200/1').body == 2", "message": message}
            return [{**head, "policies": {"backends": [backend]}}, validating(validation)]

        engine = Engine(Metrics(), lambda _: [])
        try:
            for timeout_s, message in ((7, "a"), (7 if is_kept else 8, "b")):
                written(tmp_path, documents(timeout_s, message))
                engine.activate(await engine.prepare(load([tmp_path])))
                run = await engine.dry_run(POD, [snapshot_of(engine).paths["/validate"]])
                assert run.decision.status is not None
                assert run.decision.status.message == f"Policy p failed: {message}"
        finally:
            await engine.close()
        assert server.connections == (1 if is_kept else 2)
        assert server.heads[0] == server.heads[1]
