"""Certificates, credentials, configurations and workers are replaced under load without a failed review."""

from __future__ import annotations

import base64
import json
import signal
import socket
from typing import TYPE_CHECKING, Any

import pytest
import trustme

from tests.faults.rotating import (
    Client,
    command_pool,
    mount,
    named,
    pair,
    pems,
    sdk_worker,
    settings_document,
    write_whole,
)
from tests.kit import REVIEWS, WORKER, Process, free_port, pool_document, webhook_document
from tests.load import Load
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import ExitStack
    from pathlib import Path

    from loadtest.http_client import Answer, Request
    from tests.faults.kit import StartWorker
    from tests.kit import GatewayProcess, StartGateway
    from tests.load import Tally

pytestmark = pytest.mark.process

POD = "pod-create-validate"
EACH_ANEW = {"Connection": "close"}
"""A header that gives each review its own connection."""
RELOADED = "admission_gateway_config_last_reload_successful"


def assert_nothing_lost(*loads: Load) -> None:
    tallies = [load.tally for load in loads]
    assert [unhappy(tally) for tally in tallies] == [(0, 0, 0, 0)] * len(tallies), tallies
    assert all(tally.allowed == tally.sent for tally in tallies)


def unhappy(tally: Tally) -> tuple[int, int, int, int]:
    return tally.lost, tally.failed, tally.refused, tally.failed_open


@pytest.fixture
def config(tmp_path: Path, start_worker: StartWorker) -> Path:
    """A configuration folder with a pool and a validating webhook."""
    folder = tmp_path / "config"
    folder.mkdir()
    worker = start_worker()
    (folder / "c.yaml").write_text(
        pool_document("pool", worker.target) + webhook_document("validate", "v", "pool", {"delay_ms": 2})
    )
    return folder


# -- the serving certificate ----------------------------------------------------------------------


def serial(client: Client) -> str:
    """Return the serial number of the certificate on a new connection."""
    with (
        socket.create_connection(("127.0.0.1", client.port)) as plain,
        client.client_context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
    ):
        shown = wrapped.getpeercert()
    assert shown is not None
    return str(shown["serialNumber"])


def test_the_serving_certificate_and_its_authority_are_replaced(
    tmp_path: Path, config: Path, start_gateway: StartGateway, authority: trustme.CA
) -> None:
    other = trustme.CA(key_type=trustme.KeyType.ECDSA)
    secret = tmp_path / "secret"
    chain, key = pair(authority, "127.0.0.1")
    mount(secret, {"tls.crt": chain, "tls.key": key})
    flags = "--tls-cert", str(secret / "tls.crt"), "--tls-key", str(secret / "tls.key")
    gateway = start_gateway(config, *flags)
    client = Client(gateway, authority, other)
    with (
        Load(client, "/validate", POD, connections=4, rate=100) as old,
        Load(client, "/validate", POD, connections=4, rate=50, headers=EACH_ANEW) as new,
    ):
        for issuer in (authority, other):
            new.wait_for(10)
            before = serial(client)
            chain, key = pair(issuer, "127.0.0.1")
            mount(secret, {"tls.crt": chain, "tls.key": key})
            eventually(lambda before=before: serial(client) != before)  # type: ignore[misc]
            new.wait_for(10)
            old.wait_for(10)
        before = serial(client)
        mount(secret, {"tls.crt": pair(other, "127.0.0.1")[0], "tls.key": key})
        eventually(lambda: gateway.metric(RELOADED) == 0)
        gateway.expect("unusable, the old ones stay in force.*is not the key of the certificate")
        assert serial(client) == before
        new.wait_for(10)
        mount(secret, {"tls.crt": chain, "tls.key": key})
        eventually(lambda: gateway.metric(RELOADED) == 1)
        old.wait_for(10)
    assert_nothing_lost(old, new)


# -- callers' credentials -------------------------------------------------------------------------


def status_of(client: Client, **headers: str) -> int:
    """Return the status that a review gets on a new connection."""
    body = (REVIEWS / f"{POD}.json").read_bytes()
    head = "".join(f"{name}: {value}\r\n" for name, value in headers.items())
    with (
        socket.create_connection(("127.0.0.1", client.port)) as plain,
        client.client_context.wrap_socket(plain, server_hostname="127.0.0.1") as wrapped,
    ):
        wrapped.sendall(
            f"POST /validate HTTP/1.1\r\nHost: a\r\nContent-Type: application/json\r\n{head}"
            f"Connection: close\r\nContent-Length: {len(body)}\r\n\r\n".encode()
            + body
        )
        answer = b"".join(iter(lambda: wrapped.recv(65536), b""))
    return int(answer.split(b" ", 2)[1])


def bearer(token: str) -> dict[str, str]:
    return {"Authorization": f"Bearer {token}"}


def basic(credential: str) -> dict[str, str]:
    return {"Authorization": f"Basic {base64.b64encode(credential.encode()).decode()}"}


@pytest.mark.parametrize(
    ("field", "show", "old", "new"),
    [
        ("tokenFile", bearer, "old-token", "new-token"),
        ("basicAuthFile", basic, "api:old-password", "api:new-password"),
    ],
)
def test_credentials_are_replaced(
    tmp_path: Path,
    config: Path,
    start_gateway: StartGateway,
    authority: trustme.CA,
    field: str,
    show: Callable[[str], dict[str, str]],
    old: str,
    new: str,
) -> None:
    """First both credentials are valid, then clients change, then the old credential is removed."""
    secret = tmp_path / "secret"
    mount(secret, {"credentials": f"{old}\n".encode()})
    (config / "g.yaml").write_text(settings_document(authentication={field: str(secret / "credentials")}))
    gateway = start_gateway(config)
    client = Client(gateway, authority)

    def put(*credentials: str) -> None:
        seen = len(gateway.log)
        mount(secret, {"credentials": "".join(f"{one}\n" for one in credentials).encode()})
        gateway.expect("credentials reloaded", after=seen)

    assert (status_of(client, **show(old)), status_of(client, **show(new))) == (200, 401)
    with Load(client, "/validate", POD, connections=4, rate=100, headers=show(old)) as before:
        before.wait_for(10)
        put(old, new)
        before.wait_for(10)
    with Load(client, "/validate", POD, connections=4, rate=100, headers=show(new)) as after:
        after.wait_for(10)
        put(new)
        assert (status_of(client, **show(old)), status_of(client, **show(new))) == (401, 200)

        mount(secret, {"credentials": b"two words: no credential\xff of any kind\n:\n"})
        gateway.expect("changed credentials are unusable, the old ones stay")
        assert gateway.metric(RELOADED) == 0
        after.wait_for(10)
        assert (status_of(client, **show(old)), status_of(client, **show(new))) == (401, 200)
        put(new)
        assert gateway.metric(RELOADED) == 1
        after.wait_for(10)
    assert_nothing_lost(before, after)


def test_the_authority_of_clients_is_replaced(
    tmp_path: Path, config: Path, start_gateway: StartGateway, authority: trustme.CA
) -> None:
    old, new = (trustme.CA(key_type=trustme.KeyType.ECDSA) for _ in range(2))
    secret = tmp_path / "secret"
    mount(secret, {"ca.crt": pems(old)})
    gateway = start_gateway(config, "--client-ca", str(secret / "ca.crt"))
    clients = [
        Client(gateway, authority, shows=issuer.issue_cert(common_name="kube-apiserver"))
        for issuer in (old, new)
    ]

    def put(*authorities: trustme.CA) -> None:
        seen = len(gateway.log)
        mount(secret, {"ca.crt": pems(*authorities)})
        gateway.expect("TLS files reloaded", after=seen)

    def let_in() -> list[bool]:
        found = []
        for client in clients:
            try:
                found.append(status_of(client) == 200)
            except (OSError, IndexError):
                # With TLS 1.3 the client gets the error only after its handshake.
                found.append(False)
        return found

    assert let_in() == [True, False]
    with Load(clients[0], "/validate", POD, connections=4, rate=50, headers=EACH_ANEW) as before:
        before.wait_for(10)
        put(old, new)
        before.wait_for(10)
    assert let_in() == [True, True]
    with Load(clients[1], "/validate", POD, connections=4, rate=50, headers=EACH_ANEW) as after:
        after.wait_for(10)
        put(new)
        after.wait_for(10)
    assert let_in() == [False, True]
    assert status_of(Client(gateway, authority)) == 401
    assert_nothing_lost(before, after)


# -- the configuration ----------------------------------------------------------------------------


def generation(number: int, *targets: str) -> str:
    """Return a configuration with *number* in the answers of two webhooks.

    Every third one has another webhook, and the pool's worker changes each time.
    """
    first = {
        "annotations": {"generation": str(number)},
        "patch": [{"op": "add", "path": "/metadata/labels", "value": {"first": str(number)}}],
    }
    second = {
        "annotations": {"generation": str(number)},
        "patch": [{"op": "add", "path": "/metadata/labels/second", "value": str(number)}],
    }
    more = [{"annotations": {"generation": str(number)}}] if number % 3 == 0 else []
    return pool_document("pool", targets[number % len(targets)]) + webhook_document(
        "mutate", "m", "pool", first, second, *more
    )


def answered_generations(response: dict[str, Any]) -> set[str]:
    """Return the numbers of the generations in an answer."""
    numbers = {
        value for key, value in response["auditAnnotations"].items() if key.endswith(".test.generation")
    }
    patch = json.loads(base64.b64decode(response["patch"]))
    labels: dict[str, str] = {}
    for operation in patch:
        assert operation["path"].startswith("/metadata/labels"), patch
        labels |= operation["value"] if isinstance(operation["value"], dict) else {"": operation["value"]}
    assert len(labels) >= 2 or len(patch) >= 2, patch
    annotated = sum(key.endswith(".test.generation") for key in response["auditAnnotations"])
    assert annotated == 2 + (int(min(numbers)) % 3 == 0), response
    return numbers | set(labels.values())


class Generations(Load):
    """A load that keeps the answers."""

    def __init__(self, gateway: GatewayProcess) -> None:
        super().__init__(gateway, "/mutate", "pod-create-mutate", connections=8, rate=400)
        self.bodies: list[bytes] = []

    def ended(self, request: Request, answer: Answer | None, reason: str) -> bool:
        if answer is not None:
            self.bodies.append(answer.body)
        return super().ended(request, answer, reason)

    def seen(self, first: int = 0) -> list[set[str]]:
        """Return the generations in each answer from *first* on."""
        return [answered_generations(json.loads(body)["response"]) for body in self.bodies[first:]]


@pytest.mark.parametrize("count", ["1", "2"])
def test_every_answer_comes_from_one_configuration(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, count: str
) -> None:
    targets = [start_worker().target for _ in range(2)]
    file = tmp_path / "c.yaml"
    file.write_text(generation(0, *targets))
    gateway = start_gateway(tmp_path, "--processes", count)
    rounds = 20 if count == "1" else 5
    with Generations(gateway) as load:
        for number in range(1, rounds + 1):
            logged = len(gateway.log)
            if number % 7 == 0:
                write_whole(file, generation(number, *targets).replace("failurePolicy", "failPolicy") + "{")
                gateway.signal(signal.SIGHUP)
                gateway.expect("(?s)" + ".*".join(["configuration refused"] * int(count)), after=logged)
                load.wait_for(5)
                logged = len(gateway.log)
            write_whole(file, generation(number, *targets))
            gateway.signal(signal.SIGHUP)
            gateway.expect("(?s)" + ".*".join(["configuration reloaded"] * int(count)), after=logged)
            load.wait_for_those_in_flight()
            before = len(load.bodies)
            load.wait_for(6)
            assert all(generations == {str(number)} for generations in load.seen(before))
    seen = load.seen()
    assert [mixed for mixed in seen if len(mixed) != 1] == []
    assert {number for one in seen for number in one} == {str(one) for one in range(rounds + 1)}
    assert_nothing_lost(load)


def test_a_configuration_is_loaded_once_its_files_exist(
    tmp_path: Path, config: Path, start_gateway: StartGateway, authority: trustme.CA
) -> None:
    """A kubelet may update a ConfigMap before the Secret that it names."""
    gateway = start_gateway(config)
    client = Client(gateway, authority)
    tokens = tmp_path / "tokens"
    with Load(client, "/validate", POD, connections=4, rate=100, headers=bearer("later")) as load:
        write_whole(
            config / "g.yaml", settings_document(authentication={"tokenFile": str(tokens)}, drainSeconds=3)
        )
        gateway.expect("configuration refused(?s:.*)authentication.tokenFile")
        assert gateway.metric(RELOADED) == 0
        load.wait_for(10)
        assert status_of(client) == 200
        seen = len(gateway.log)
        write_whole(tokens, "later\n")
        gateway.expect("configuration reloaded", after=seen)
        eventually(lambda: gateway.metric(RELOADED) == 1)
        assert status_of(client) == 401
        load.wait_for(10)
    assert_nothing_lost(load)
    assert gateway.log.count("configuration refused") == 1


def test_a_reload_changes_limits(
    tmp_path: Path, config: Path, start_gateway: StartGateway, authority: trustme.CA
) -> None:
    gateway = start_gateway(config)
    client = Client(gateway, authority)
    small = (REVIEWS / f"{POD}.json").read_bytes()
    large = small + b" " * 40_000

    def reload(**limits: int) -> None:
        seen = len(gateway.log)
        write_whole(config / "g.yaml", settings_document(limits=limits))
        gateway.signal(signal.SIGHUP)
        gateway.expect("configuration reloaded", after=seen)

    with Load(client, "/validate", small, connections=8) as load:
        for bound, status in ((20_000, 413), (7 << 20, 200), (20_000, 413)):
            reload(maxRequestBytes=bound)
            assert gateway.exchange("/validate", large)[0] == status
            load.wait_for(20)
    assert_nothing_lost(load)
    with Load(client, "/validate", small, connections=8) as load:
        reload(maxConcurrentReviews=1)
        load.wait_until(lambda tally: tally.refused > 0)
        refused = load.tally
        reload(maxConcurrentReviews=100)
        load.wait_for(50)
    assert refused.lost == load.tally.lost == load.tally.failed == 0


# -- workers --------------------------------------------------------------------------------------


def flags_of(name: str) -> tuple[str, str]:
    """Return the flags of a worker with its name in every answer."""
    return "--override", json.dumps({"warnings": [name]})


@pytest.mark.parametrize("count", ["1", "2"])
@pytest.mark.parametrize("by", ["target", "command"])
def test_a_reload_replaces_the_worker_of_a_pool(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, by: str, count: str
) -> None:
    """The new worker gets calls when it is ready; the old one finishes its calls."""
    file = tmp_path / "c.yaml"
    old = start_worker(None, *flags_of("old"))

    def pool(name: str) -> str:
        if by == "command":
            return command_pool("pool", *WORKER, *flags_of(name))
        return pool_document("pool", (old if name == "old" else start_worker(None, *flags_of(name))).target)

    def names() -> set[str]:
        return {gateway.review("/validate", POD)["warnings"][0] for _ in range(4 * int(count))}

    webhooks = webhook_document("validate", "v", "pool", {"delay_ms": 10})
    write_whole(file, pool("old") + webhooks)
    gateway = start_gateway(tmp_path, "--processes", count)
    assert names() == {"old"}
    with Load(gateway, "/validate", POD, connections=8) as load:
        for name in ("new", "newer")[: 3 - int(count)]:
            load.wait_for(20)
            seen = len(gateway.log)
            write_whole(file, pool(name) + webhooks)
            if name == "newer":
                gateway.signal(signal.SIGHUP)
            gateway.expect("(?s)" + ".*".join(["configuration reloaded"] * int(count)), after=seen)
            assert names() == {name}
        if by == "target":
            old.stop()
        load.wait_for(20)
    assert_nothing_lost(load)
    assert "no worker reached yet" not in gateway.log


class MutualWorkers:
    """Workers of the SDK with mTLS, each with its own address."""

    def __init__(self, folder: Path, processes: ExitStack, count: int) -> None:
        self.targets = [f"127.0.0.1:{free_port()}" for _ in range(count)]
        self._folder = folder
        self._processes = processes
        self._running: dict[str, Process] = {}

    def start(self, target: str, issuer: trustme.CA, *trusted: trustme.CA) -> None:
        """Start the worker at *target*, or replace it as a rollout does."""
        old = self._running.pop(target, None)
        if old is not None:
            old.signal(signal.SIGTERM)
            assert old.wait() == 0, old.log
        chain, key = pair(issuer, "127.0.0.1")
        files = {"crt": chain, "key": key, "ca": pems(*trusted)}
        folder = self._folder / target.rpartition(":")[2]
        mount(folder, files)
        worker = Process(
            *sdk_worker(self._folder, self._folder / "log"),
            *("--listen", target, "--tls-cert", str(folder / "crt"), "--tls-key", str(folder / "key")),
            *("--client-ca", str(folder / "ca")),
        )
        self._processes.callback(worker.stop)
        worker.expect("worker: serving")
        self._running[target] = worker


@pytest.fixture
def authorities() -> tuple[trustme.CA, trustme.CA]:
    return trustme.CA(key_type=trustme.KeyType.ECDSA), trustme.CA(key_type=trustme.KeyType.ECDSA)


def test_the_authority_between_gateway_and_workers_is_replaced(
    tmp_path: Path,
    processes: ExitStack,
    start_gateway: StartGateway,
    authorities: tuple[trustme.CA, trustme.CA],
) -> None:
    """Both sides trust both authorities, then all certificates change, then the old authority is removed."""
    old, new = authorities
    workers = MutualWorkers(tmp_path, processes, 2)
    for target in workers.targets:
        workers.start(target, old, old)
    config, secret = tmp_path / "config", tmp_path / "secret"
    config.mkdir()

    def put(issuer: trustme.CA, *trusted: trustme.CA) -> None:
        chain, key = pair(issuer, "admission-gateway")
        mount(secret, {"tls.crt": chain, "tls.key": key, "ca.crt": pems(*trusted)})

    put(old, old)
    files = {"caFile": "ca.crt", "certFile": "tls.crt", "keyFile": "tls.key"}
    tls = {name: str(secret / file) for name, file in files.items()}
    webhooks = webhook_document("validate", "v", "pool", {})
    (config / "c.yaml").write_text(
        pool_document("pool", *workers.targets, tls=tls) + named(webhooks, "quick")
    )
    gateway = start_gateway(config)

    def both_are_ready() -> bool:
        return gateway.metric("admission_gateway_worker_endpoints", state="ready") == 2

    def reload(issuer: trustme.CA, *trusted: trustme.CA) -> None:
        seen = len(gateway.log)
        put(issuer, *trusted)
        gateway.expect("configuration reloaded", after=seen)
        eventually(both_are_ready)
        load.wait_for(20)

    with Load(gateway, "/validate", POD, connections=8, rate=200) as load:
        load.wait_for(20)
        reload(old, old, new)
        for target in workers.targets:
            eventually(both_are_ready)
            workers.start(target, new, old, new)
            load.wait_for(20)
        eventually(both_are_ready)
        reload(new, new)
    assert_nothing_lost(load)
