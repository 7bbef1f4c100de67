"""Fixtures of several folders: certificates, workers and gateways as processes."""

from __future__ import annotations

import asyncio
import inspect
import logging
import os
import ssl
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import pytest
import trustme
import uvloop
from hypothesis import HealthCheck, settings

from gateway.pure.core import final_patch
from tests.change import changed_paths
from tests.kit import ROOT, GatewayProcess
from tests.waiting import in_thread
from tests.worker.server import ScriptedWorker, parse, scripted_worker

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.in_process import Stage
    from tests.kit import StartGateway
    from tests.worker.server import StartWorker

os.environ.setdefault("GRPC_ENABLE_FORK_SUPPORT", "0")

OURS = ("gateway", "admission_gateway_worker")

# Every final patch is checked by jsonpatch, too.
final_patch.SAMPLE = 1

# The examples are the same in every run, so that a failure is due to a change;
# `--hypothesis-profile=thorough` draws new ones. No deadline and no health check, because an example takes
# longer on a busy machine.
settings.register_profile(
    "patient", deadline=None, derandomize=True, suppress_health_check=[HealthCheck.too_slow]
)
settings.register_profile("thorough", settings.get_profile("patient"), derandomize=False, max_examples=3_000)
settings.load_profile("patient")


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--touched",
        action="store_true",
        help="what `make test` leaves out of the files that the change touches",
    )


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("--touched"):
        changed = {ROOT / path for path in changed_paths()}
        left_out = [item for item in items if is_left_out({mark.name for mark in item.iter_markers()})]
        chosen = [item for item in left_out if item.path in changed]
        config.hook.pytest_deselected(items=[item for item in items if item not in set(chosen)])
        items[:] = chosen


LOOPS = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Run a test that is a coroutine function on each of the event loops that its module names.

    A module names them as ``EVENT_LOOPS``; by default it is that of asyncio. One with ``stage`` runs there.
    """
    if inspect.iscoroutinefunction(metafunc.function) and "stage" not in metafunc.fixturenames:
        metafunc.fixturenames.append("event_loop_name")
        metafunc.parametrize("event_loop_name", getattr(metafunc.module, "EVENT_LOOPS", ("asyncio",)))


@pytest.hookimpl(tryfirst=True)
def pytest_pyfunc_call(pyfuncitem: pytest.Function) -> bool | None:
    if not inspect.iscoroutinefunction(pyfuncitem.obj):
        return None
    found: dict[str, Any] = pyfuncitem.funcargs
    arguments = {name: found[name] for name in pyfuncitem._fixtureinfo.argnames}
    if "stage" in found:
        found["stage"].run(pyfuncitem.obj(**arguments))
        return True
    name: str = pyfuncitem.callspec.params["event_loop_name"]  # type: ignore[assignment]
    with asyncio.Runner(loop_factory=LOOPS[name]) as runner:
        runner.run(pyfuncitem.obj(**arguments))
    return True


def is_left_out(markers: set[str]) -> bool:
    """Return whether `make test` leaves out a test with *markers*."""
    return "smoke" not in markers and not markers.isdisjoint({"process", "slow"})


@pytest.fixture(autouse=True)
def _log_levels_end_with_the_test() -> Iterator[None]:
    """A command or a gateway in this process sets levels, which later tests must not have."""
    before = dict(_levels())
    yield
    for name, level in _levels():
        wanted = before.get(name, OWN_LEVELS.get(name, logging.NOTSET))
        if level != wanted:
            logging.getLogger(name).setLevel(wanted)


OWN_LEVELS = {"gateway.worker_output": logging.INFO}
"""Levels that modules set when they are imported."""


def _levels() -> list[tuple[str, int]]:
    return [("", logging.root.level)] + [
        (name, logger.level)
        for name, logger in logging.root.manager.loggerDict.items()
        if isinstance(logger, logging.Logger) and name.partition(".")[0] in OURS
    ]


@pytest.fixture
def no_wait_for_workers(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command in this process does not wait for workers, because none ever becomes reachable."""
    monkeypatch.setattr("gateway.tools.offline.gateway._READY_WITHIN_S", 0.0)


@pytest.fixture
def processes() -> Iterator[ExitStack]:
    """An exit stack that is closed at the end of the test."""
    with ExitStack() as stack:
        yield stack


@pytest.fixture
def start_worker(processes: ExitStack, tmp_path_factory: pytest.TempPathFactory) -> StartWorker:
    """Start a scripted worker in a thread: ``start_worker(listen=None, *flags)``."""

    def start(listen: str | None = None, *flags: str) -> ScriptedWorker:
        address = listen or f"unix:{tmp_path_factory.mktemp('w')}/s"
        options, _ = parse(["--listen", address, *flags])
        return processes.enter_context(in_thread(scripted_worker(**options)))

    return start


@pytest.fixture(scope="session")
def authority() -> trustme.CA:
    return trustme.CA(key_type=trustme.KeyType.ECDSA)


@pytest.fixture(scope="session")
def certificate(authority: trustme.CA, tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, Path]:
    """Certificate and key files for localhost and 127.0.0.1."""
    folder = tmp_path_factory.mktemp("certificate")
    issued = authority.issue_cert("localhost", "127.0.0.1", key_type=trustme.KeyType.ECDSA)
    issued.cert_chain_pems[0].write_to_path(str(folder / "tls.crt"))
    issued.private_key_pem.write_to_path(str(folder / "tls.key"))
    return folder / "tls.crt", folder / "tls.key"


@pytest.fixture
def start_gateway(
    processes: ExitStack, certificate: tuple[Path, Path], authority: trustme.CA
) -> StartGateway:
    """Start a gateway: ``start_gateway(config_folder, *flags)``."""

    def start(config: Path, *flags: str) -> GatewayProcess:
        gateway = GatewayProcess(config, certificate, authority, *flags)
        processes.callback(gateway.stop)
        return gateway

    return start


@pytest.fixture(scope="session")
def client_tls_of_gateways(authority: trustme.CA) -> ssl.SSLContext:
    """The TLS context of clients of the gateways of tests."""
    context = ssl.create_default_context()
    authority.configure_trust(context)
    return context


@pytest.fixture
def stage(certificate: tuple[Path, Path], client_tls_of_gateways: ssl.SSLContext) -> Iterator[Stage]:
    """A loop in virtual time for gateways and what they need."""
    from tests.in_process import staged

    with staged(certificate, client_tls_of_gateways) as stage:
        yield stage
