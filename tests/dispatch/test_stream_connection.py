"""Connections to workers: TLS, peers that are not workers, keepalive, flow control and GOAWAY."""

from __future__ import annotations

import asyncio
import os
import re
import socket
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import h2.config
import h2.connection
import h2.events
import h2.settings
import hpack
import orjson
import pytest
from hyperframe.frame import DataFrame, GoAwayFrame, HeadersFrame, SettingsFrame

from admission_gateway_worker.pb import worker_pb2
from gateway.base.errors import ConfigError
from gateway.config.kinds.worker_pool import WorkerTls
from gateway.engine.dispatch import stream, stream_connection
from gateway.engine.dispatch.keepalive import KEEPALIVE_TIME_S
from gateway.engine.dispatch.unsolicited import MAX_UNSOLICITED
from gateway.pure.core.verdict import ALLOWED, Failed
from tests.dispatch.peers import Says
from tests.kit import REVIEWS
from tests.waiting import until
from tests.world import in_world, simulated

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    import trustme

    from gateway.pure.core.evaluation import Evaluation
    from tests.worker.server import ScriptedWorker, StartWorker
    from tests.world import SimulatedWorld, World

    OnEachLoop = Callable[[Callable[[World], Awaitable[None]]], None]

EVENT_LOOPS = ("asyncio", "uvloop")


class RawConnection(asyncio.Protocol):
    """A connection to a worker whose frames a test chooses."""

    def __init__(self, worker: RawWorker) -> None:
        self.worker = worker
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=False))
        self.body = b""
        self.calls: list[int] = []
        self.batches = 0
        self.has_ended = self.is_stopped = False

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self.worker.connections.append(self)
        self.h2.local_settings = h2.settings.Settings(
            client=False, initial_values={h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: self.worker.window}
        )
        self.h2.initiate_connection()
        self.flush()
        if self.worker.hangs_up:
            transport.close()

    def data_received(self, data: bytes) -> None:
        if self.is_stopped:
            return
        for event in self.h2.receive_data(data):
            if isinstance(event, h2.events.RequestReceived):
                self.h2.send_headers(1, [(":status", "200"), ("content-type", "application/grpc")])
            elif isinstance(event, h2.events.DataReceived):
                self.take(event.data)
            elif isinstance(event, h2.events.StreamEnded):
                self.has_ended = True
        if not self.worker.is_mute:
            self.flush()

    def take(self, data: bytes) -> None:
        self.body += data
        while len(self.body) >= 5 and len(self.body) >= (end := 5 + int.from_bytes(self.body[1:5], "big")):
            batch = worker_pb2.ReviewBatch.FromString(self.body[5:end])
            self.body = self.body[end:]
            self.batches += 1
            self.calls += [call.id for call in batch.calls]
            if self.worker.answers_at_once:
                self.answer()

    def answer(self, *unsolicited: int) -> None:
        verdicts = [{"id": number, "response": {"allowed": True}} for number in (*self.calls, *unsolicited)]
        message = worker_pb2.VerdictBatch(verdicts=verdicts).SerializeToString()
        self.calls = []
        self.h2.send_data(1, b"\0" + len(message).to_bytes(4, "big") + message)
        self.flush()

    def end(self, status: str) -> None:
        self.h2.send_headers(1, [("grpc-status", status)], end_stream=True)
        self.flush()

    def send_goaway(self) -> None:
        # As bytes, because h2 closes its connection at once after it sends GOAWAY.
        self.transport.write(GoAwayFrame(0, last_stream_id=1).serialize())

    def flush(self) -> None:
        self.transport.write(self.h2.data_to_send())


class RawWorker:
    """A worker, and the settings of its connections."""

    def __init__(self) -> None:
        self.connections: list[RawConnection] = []
        self.window = 65_535
        self.is_mute = self.hangs_up = False
        self.answers_at_once = True
        self.target = ""

    async def reached(self, world: World) -> RawConnection:
        """Return the connection of a pool that has this worker alone."""
        pool = await world.add_pool(self.target)
        assert await pool.wait_until_ready(30)
        (raw,) = self.connections
        return raw


def raw_worker(world: SimulatedWorld) -> RawWorker:
    worker = RawWorker()
    worker.target = world.listen(lambda: RawConnection(worker))
    return worker


@pytest.fixture
def tls_files(tmp_path: Path, authority: trustme.CA, certificate: tuple[Path, Path]) -> WorkerTls:
    """The authority, and a client's certificate from it."""
    authority.cert_pem.write_to_path(str(tmp_path / "ca.pem"))
    issued = authority.issue_cert("gateway.test")
    issued.cert_chain_pems[0].write_to_path(str(tmp_path / "client.crt"))
    issued.private_key_pem.write_to_path(str(tmp_path / "client.key"))
    return WorkerTls(tmp_path / "ca.pem", tmp_path / "client.crt", tmp_path / "client.key")


@pytest.fixture
def tls_worker(
    start_worker: StartWorker, certificate: tuple[Path, Path], tls_files: WorkerTls
) -> ScriptedWorker:
    """A worker for localhost that lets in only clients of the authority."""
    cert, key = certificate
    return start_worker("127.0.0.1:0", "--tls", str(key), str(cert), str(tls_files.ca_file))


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
@in_world
async def test_both_sides_authenticate_with_certificates(
    world: World, tls_worker: ScriptedWorker, tls_files: WorkerTls, transport: str
) -> None:
    port = tls_worker.target.rpartition(":")[2]
    for number, target in enumerate((f"localhost:{port}", f"ipv4:127.0.0.1:{port}")):
        name = f"pool-{number}"
        pool = await world.add_pool(target, name=name, transport=transport, tls=tls_files)
        assert await pool.wait_until_ready(30)
        assert await world.ask({"pool": name}) is ALLOWED


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
@in_world
async def test_ca_certificates_may_be_in_the_configuration_itself(
    world: World, tls_worker: ScriptedWorker, tls_files: WorkerTls, transport: str
) -> None:
    assert tls_files.ca_file is not None
    # Whatever stands around the certificates is passed over, as it is in a file.
    bundle = "Von der Behörde:\n".encode() + tls_files.ca_file.read_bytes()
    tls = replace(tls_files, ca_file=None, ca_bundle=bundle)
    target = f"ipv4:127.0.0.1:{tls_worker.target.rpartition(':')[2]}"
    pool = await world.add_pool(target, transport=transport, tls=tls)
    assert await pool.wait_until_ready(30)
    assert await world.ask({}) is ALLOWED


@pytest.mark.parametrize(
    ("change", "cause"),
    [
        ({"server_name": "other.test"}, "UNAVAILABLE: ipv4:127.0.0.1:PORT: .*(mismatch|not valid for)"),
        ({"ca_file": None}, "UNAVAILABLE: ipv4:127.0.0.1:PORT: .*CERTIFICATE_VERIFY_FAILED"),
        ({"cert_file": None, "key_file": None}, "UNAVAILABLE: "),
    ],
    ids=["a worker of another name", "an unknown authority", "no certificate of ours"],
)
@in_world
async def test_a_peer_with_a_wrong_certificate_gets_no_call(
    world: World,
    tls_worker: ScriptedWorker,
    tls_files: WorkerTls,
    change: dict[str, Any],
    cause: str,
) -> None:
    port = tls_worker.target.rpartition(":")[2]
    tls = replace(tls_files, **change)
    pool = await world.add_pool(f"ipv4:127.0.0.1:{port}", transport="Stream", tls=tls)
    failed = await world.ask({})
    assert isinstance(failed, Failed)
    assert re.match(cause.replace("PORT", port), failed.cause), failed.cause
    assert not await pool.wait_until_ready(0)


@in_world
async def test_unusable_tls_files_are_named(world: World, tls_files: WorkerTls, tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no certificate")
    for change in ({"ca_file": tmp_path / "absent"}, {"cert_file": tmp_path / "text"}):
        file = next(iter(change.values()))
        with pytest.raises(ConfigError, match=f"{file}: cannot be used: "):
            await world.add_pool("ipv4:127.0.0.1:1", name="broken", tls=replace(tls_files, **change))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("first_bytes", "cause"),
    [
        (b"", "no answer within 5s"),
        (None, "connection to the worker lost"),
        (b"HTTP/1.1 400 Bad Request\r\nContent-Length: 0\r\n\r\n", "invalid HTTP/2"),
    ],
    ids=["nothing", "goodbye", "HTTP/1.1"],
)
@simulated
async def test_a_peer_that_is_no_worker_is_described(
    world: SimulatedWorld, first_bytes: bytes | None, cause: str
) -> None:
    target = world.listen(lambda: Says(first_bytes))
    await world.add_pool(target, transport="Stream")
    failed = await world.ask({})
    assert isinstance(failed, Failed)
    assert failed.cause.startswith(f"UNAVAILABLE: {target}: {cause}")


@simulated
async def test_keepalive_detects_a_silent_worker_which_is_connected_again(world: SimulatedWorld) -> None:
    worker = raw_worker(world)
    pool = await world.add_pool(worker.target)
    assert await world.ask({}) is ALLOWED
    # A worker that answers pings is not silent.
    await asyncio.sleep(5 * KEEPALIVE_TIME_S)
    assert len(worker.connections) == 1
    worker.is_mute, worker.answers_at_once = True, False
    failed = await world.ask({"timeout_s": 100}, budget_s=100.0)
    assert isinstance(failed, Failed)
    assert failed.cause == "UNAVAILABLE: keepalive timed out after 40s"
    worker.is_mute, worker.answers_at_once = False, True
    assert await pool.wait_until_ready(30)
    assert await world.ask({}) is ALLOWED


@simulated
async def test_calls_made_while_flow_control_blocks_share_a_batch(world: SimulatedWorld) -> None:
    worker = raw_worker(world)
    worker.window = 100
    raw = await worker.reached(world)
    answers: list[Evaluation] = []
    world.start([{}], answers.append)
    await until(lambda: raw.body)
    for _ in range(20):
        world.start([{}, {}], answers.append)
    await asyncio.sleep(0)
    assert raw.batches == 0
    raw.h2.increment_flow_control_window(2**20, 1)
    raw.h2.increment_flow_control_window(2**20)
    raw.flush()
    await until(lambda: len(answers) == 21)
    assert raw.batches == 2


@simulated
async def test_after_a_goaway_new_calls_use_a_new_connection_and_open_ones_are_answered(
    world: SimulatedWorld,
) -> None:
    worker = raw_worker(world)
    worker.answers_at_once = False
    old = await worker.reached(world)
    answers: list[Evaluation] = []
    world.start([{}], answers.append)
    await until(lambda: old.calls)
    old.send_goaway()
    await until(lambda: len(worker.connections) == 2)
    worker.answers_at_once = True
    assert await world.ask({}) is ALLOWED
    assert not answers
    old.answer()
    await until(lambda: answers)
    assert answers[0].outcomes[0].verdict is ALLOWED
    # The old stream ends after its last answer.
    await until(lambda: old.has_ended)


@simulated
async def test_calls_queued_before_a_goaway_are_sent_and_answered(world: SimulatedWorld) -> None:
    worker = raw_worker(world)
    worker.window = 100
    old = await worker.reached(world)
    answers: list[Evaluation] = []
    world.start([{}], answers.append)
    await until(lambda: old.body)
    for _ in range(5):
        world.start([{}], answers.append)
    old.send_goaway()
    await until(lambda: len(worker.connections) == 2)
    old.h2.increment_flow_control_window(2**20, 1)
    old.flush()
    await until(lambda: len(answers) == 6)
    assert (old.batches, worker.connections[1].batches) == (2, 0)


@simulated
async def test_a_worker_that_ends_every_stream_is_connected_with_back_off(world: SimulatedWorld) -> None:
    worker = raw_worker(world)
    worker.hangs_up = True
    await world.add_pool(worker.target)
    for _ in range(50):
        failed = await world.ask({})
        assert isinstance(failed, Failed)
        assert failed.cause.startswith("UNAVAILABLE: ")
    assert len(worker.connections) < 10
    # Each call that was lost with a stream was retried once.
    assert world.calls("UNAVAILABLE") == 50 + world.metrics.pool("pool").retries


@simulated
async def test_answers_before_a_flood_are_counted(world: SimulatedWorld) -> None:
    worker = raw_worker(world)
    worker.answers_at_once = False
    raw = await worker.reached(world)
    answers: list[Evaluation] = []
    world.start([{}], answers.append)
    await until(lambda: raw.calls)
    raw.answer(*range(10**6, 10**6 + MAX_UNSOLICITED + 1))
    await until(lambda: answers)
    # It is counted with the last slice of the message.
    await until(lambda: world.calls("OK") == 1)


@simulated
async def test_answers_of_more_than_a_slice_are_read_in_several(
    world: SimulatedWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(stream_connection, "SLICE_S", 0.0)
    monkeypatch.setattr(stream, "STEP_VERDICTS", 1)
    worker = raw_worker(world)
    worker.answers_at_once = False
    raw = await worker.reached(world)
    answers: list[Evaluation] = []
    for _ in range(2):  # reading pauses between slices, and goes on after the last one
        for _ in range(5):
            world.start([{}], answers.append)
        await until(lambda: len(raw.calls) == 5)
        raw.answer()
        await until(lambda: len(answers) == 5)
        assert {answer.outcomes[0].verdict for answer in answers} == {ALLOWED}
        answers.clear()
    assert worker.connections == [raw]


@simulated
async def test_unimplemented_after_an_answer_is_a_failure_of_the_stream(world: SimulatedWorld) -> None:
    worker = raw_worker(world)
    raw = await worker.reached(world)
    assert await world.ask({}) is ALLOWED
    worker.answers_at_once = False
    settled: list[Evaluation] = []
    world.start([{"side_effects": "Some"}], settled.append)
    await until(lambda: raw.calls)
    raw.end("12")
    await until(lambda: settled)
    # No retry, since the worker may have done the call.
    failed = settled[0].outcomes[0].verdict
    assert isinstance(failed, Failed)
    assert failed.cause == "UNIMPLEMENTED"
    worker.answers_at_once = True
    assert await world.ask({}) is ALLOWED
    assert world.pools["pool"].endpoints[0]._transport.is_streaming


@simulated
async def test_a_stopped_process_is_distinguished_from_another_at_the_same_port(
    world: SimulatedWorld,
) -> None:
    worker, other = raw_worker(world), raw_worker(world)
    pool = await world.add_pool(worker.target, other.target)
    await world.all_ready(pool)
    await until(lambda: all(not endpoint.calls.count for endpoint in pool.endpoints))
    cancel = world.start([{"side_effects": "Some"}], lambda _: None, budget_s=6.0)
    (slot,) = pool.endpoints[0].calls.groups
    stopped = worker.connections[:]
    for raw in stopped:
        raw.is_stopped = True
    await until(lambda: pool.endpoints[0].state == "stalled")
    await until(lambda: pool.endpoints[0].state == "ready")
    # The stopped process may continue, so it keeps its calls.
    assert slot.open_count
    cancel()
    assert pool.choose() is pool.endpoints[0]
    assert await world.ask({"side_effects": "Some"}) is ALLOWED


@simulated
async def test_a_connection_with_invalid_first_bytes_is_closed(world: SimulatedWorld) -> None:
    first = (
        SettingsFrame().serialize()
        + HeadersFrame(
            1,
            hpack.Encoder().encode([(":status", "200"), ("content-type", "application/grpc")]),
            flags=["END_HEADERS"],
        ).serialize()
        + DataFrame(1, b"\0\0\0\0\x03\xff\xff\xff").serialize()
    )
    peers: list[Says] = []

    def accept() -> Says:
        peers.append(Says(first))
        return peers[-1]

    await world.add_pool(world.listen(accept), transport="Stream")
    failed = await world.ask({"side_effects": "Some"})
    assert isinstance(failed, Failed)
    assert "VerdictBatch" in failed.cause
    await until(lambda: peers[0].is_closed)


@simulated
async def test_a_unary_call_that_cannot_reach_the_worker_does_not_end_the_stream(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    pool = await world.ready_pool()
    # A large review is a unary call.
    failed = await world.ask({"status": "UNAVAILABLE", "details": "by itself"}, body=large_review())
    assert isinstance(failed, Failed)
    assert failed.cause == "UNAVAILABLE: by itself"
    assert "lost; reconnecting: UNAVAILABLE: by itself" in caplog.text
    assert await pool.wait_until_ready(30)
    assert (await world.report())["streams"] == 1


@simulated
async def test_each_open_call_of_a_lost_connection_fails_once(world: SimulatedWorld) -> None:
    worker = raw_worker(world)
    worker.answers_at_once = False
    raw = await worker.reached(world)
    answers: list[Evaluation] = []
    world.start([{}] * 130, answers.append)
    await until(lambda: len(raw.calls) == 130)
    # In a second slot and at the edges of one.
    raw.calls = [raw.calls[place] for place in (0, 63, 64, 129)]
    raw.answer()
    await until(lambda: world.calls("OK") == 4)
    raw.transport.abort()
    await until(lambda: answers)
    outcomes = [outcome.verdict is ALLOWED for outcome in answers[0].outcomes]
    assert [place for place, allowed in enumerate(outcomes) if allowed] == [0, 63, 64, 129]
    assert world.calls("UNAVAILABLE") == 126
    assert world.is_clean()


@in_world
async def test_abstract_sockets_are_reached(world: World) -> None:
    worker = RawWorker()
    name = f"admission-gateway-{os.getpid()}"
    sock = socket.socket(socket.AF_UNIX)
    sock.bind(f"\0{name}")
    server = await asyncio.get_running_loop().create_unix_server(lambda: RawConnection(worker), sock=sock)
    await world.add_pool(f"unix-abstract:{name}", transport="Stream")
    assert await world.ask({}) is ALLOWED
    server.close()
    for made in worker.connections:
        made.transport.abort()


@pytest.mark.parametrize("transport", ["Stream", "Unary"])
@in_world
async def test_an_intermediate_ca_is_trusted_and_a_name_may_end_in_a_dot(
    world: World,
    start_worker: StartWorker,
    authority: trustme.CA,
    tls_files: WorkerTls,
    tmp_path: Path,
    transport: str,
) -> None:
    between = authority.create_child_ca()
    issued = between.issue_cert("localhost")
    (tmp_path / "chain.pem").write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    (tmp_path / "key.pem").write_bytes(issued.private_key_pem.bytes())
    (tmp_path / "between.pem").write_bytes(between.cert_pem.bytes())
    files = (tmp_path / "key.pem", tmp_path / "chain.pem", tls_files.ca_file)
    worker = start_worker("127.0.0.1:0", "--tls", *map(str, files))
    tls = replace(tls_files, ca_file=tmp_path / "between.pem", server_name="localhost.")
    await world.add_pool(worker.target, transport=transport, tls=tls)
    assert await world.ask({}) is ALLOWED


@in_world
async def test_a_server_name_that_is_no_host_name_is_refused(world: World, tls_files: WorkerTls) -> None:
    tls = replace(tls_files, server_name="x" * 70 + ".test")
    with pytest.raises(ConfigError, match=r"tls\.serverName: expected the name in a certificate"):
        await world.add_pool("ipv4:127.0.0.1:1", tls=tls)


def large_review() -> bytes:
    review = orjson.loads((REVIEWS / "pod-create-mutate.json").read_bytes())
    review["request"]["object"]["metadata"]["annotations"] = {"large": "x" * 100_000}
    return orjson.dumps(review)


@simulated
async def test_a_worker_that_starts_later_is_logged_without_a_warning(
    world: SimulatedWorld, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("INFO", "gateway.engine.dispatch.endpoint")
    worker = world.start_worker()
    worker.crash(delivers_written=False)
    pool = await world.add_pool(worker.target)
    await until(lambda: pool.endpoints[0].state == "down")
    worker.restart()
    assert await pool.wait_until_ready(30)
    worker.crash(delivers_written=False)
    await until(lambda: pool.endpoints[0].state == "down")
    assert [
        (record.levelname, record.message.partition(":1 ")[2].partition(":")[0]) for record in caplog.records
    ] == [
        # That it is not reachable at first is expected, and not mentioned.
        ("INFO", "connected"),
        ("WARNING", "lost; reconnecting"),
    ]
