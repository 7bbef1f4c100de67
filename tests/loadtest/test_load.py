"""The load generator and the benchmark, against real servers."""

from __future__ import annotations

import os
import subprocess
import sys
import threading
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
import uvloop

from loadtest import load
from loadtest.bench import main
from loadtest.exchange import Target
from loadtest.launch import BenchError
from loadtest.load import measure
from loadtest.measurement import Plan, cpu_clock
from loadtest.reviews import POD
from loadtest.servers import fleet
from tests.loadtest.review_server import REVIEW as SMALL
from tests.loadtest.review_server import RIGHT, ReviewServer

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtest.servers import Fleet

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A floor that runs."""
    with fleet(POD, ["floor"], tmp_path_factory.mktemp("floor")) as running:
        yield running


def test_the_generator_counts_answers_and_the_cpu_they_cost(floor: Fleet) -> None:
    front = floor.fronts["floor"]
    target = Target(front.address + "/validate", POD.read_bytes())
    found = uvloop.run(measure(target, Plan(4, warmup_s=0.05, window_s=0.2, watch=[front.pid])))
    assert found.errors == {}
    assert found.reviews > 0
    assert found.cpu_s[str(front.pid)] > 0
    assert found.latencies_ms["p50"] <= found.latencies_ms["p99"] <= found.latencies_ms["max"]


@pytest.mark.parametrize(
    ("path", "uid", "allowed", "problem"),
    [
        ("/nowhere", None, True, "HTTP/1.1 404 Not Found: "),
        ("/validate", "another", True, "expected the uid another, found "),
        ("/validate", None, False, "expected allowed: False, found "),
    ],
)
def test_wrong_answers_are_told_apart_and_not_counted_as_reviews(
    floor: Fleet, path: str, uid: str | None, allowed: bool, problem: str
) -> None:
    review = orjson.loads(POD.read_bytes())
    review["request"]["uid"] = uid or review["request"]["uid"]
    target = Target(floor.fronts["floor"].address + path, orjson.dumps(review), allowed)
    found = uvloop.run(measure(target, Plan(2, warmup_s=0.0, window_s=0.1)))
    assert found.reviews == 0
    # Which ends the connection of who is refused again and again.
    found.errors.pop("connection lost: closed by the server", None)
    assert [text.startswith(problem) for text in found.errors] == [True]


@pytest.mark.parametrize(("warmup_s", "sent"), [(0.0, 50), (0.1, None)])
def test_a_count_ends_the_run_after_exactly_so_many_reviews(
    certificate: tuple[Path, Path], warmup_s: float, sent: int | None
) -> None:
    with ReviewServer(certificate) as server:
        found = uvloop.run(measure(Target(server.url, SMALL), Plan(8, warmup_s, count=50)))
    assert found.errors == {}
    assert found.reviews == 50
    assert server.reviews == sent or (sent is None and server.reviews > 50)


def test_a_run_that_counts_ends_when_nothing_is_answered_any_more(
    certificate: tuple[Path, Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(load, "STALLED_AFTER_S", 0.2)
    go_on = threading.Event()

    def answer(number: int) -> bytes:
        if number == 5:
            go_on.wait()
        return RIGHT

    with ReviewServer(certificate, answer) as server:
        found = uvloop.run(measure(Target(server.url, SMALL), Plan(1, 0.0, count=50)))
        go_on.set()
    assert found.errors == {"no answer for 0.2 s": 1}
    assert found.reviews == 5


def test_a_run_ends_with_its_last_connection(certificate: tuple[Path, Path]) -> None:
    with ReviewServer(certificate, lambda number: RIGHT if number < 5 else None) as server:
        found = uvloop.run(measure(Target(server.url, SMALL), Plan(2, 0.0, count=50)))
    assert found.errors == {"connection lost: closed by the server": 2}
    assert found.reviews == 5


@pytest.mark.parametrize(
    ("options", "fields"),
    [
        (["--count", "20"], {"reviews": 20, "intended": 0, "handshakes": 0}),
        (["--rate", "500", "--count", "20"], {"intended": 20, "answered": 20, "unanswered": 0}),
        (["--fresh", "--count", "5"], {"reviews": 5, "handshakes": 5, "resumed": 0}),
        (["--fresh", "--resume", "--count", "5"], {"reviews": 5, "handshakes": 5, "resumed": 4}),
    ],
)
def test_the_command_prints_what_it_found(
    certificate: tuple[Path, Path],
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
    options: list[str],
    fields: dict[str, int],
) -> None:
    (tmp_path / "review.json").write_bytes(SMALL)
    with ReviewServer(certificate) as server:
        load.main([server.url, str(tmp_path / "review.json"), "--connections=1", "--warmup=0", *options])
    found = orjson.loads(capsys.readouterr().out)
    assert found["errors"] == {}
    assert {name: found[name] for name in fields} == fields


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ("--rate 5 --fresh", "--rate is an open loop and --fresh a closed one: expected one of them"),
        ("--backlog 5", "--backlog is for an open loop: expected --rate too"),
        ("--resume", "connections that are kept resume nothing: expected --fresh too"),
        ("--rate 0", "argument --rate: expected a number above 0, found 0"),
        ("--rate nan", "argument --rate: expected a number above 0, found nan"),
        ("--count -1", "argument --count: expected a number above 0, found -1"),
    ],
)
def test_options_that_do_not_go_together_are_refused(
    capsys: pytest.CaptureFixture[str], options: str, message: str
) -> None:
    with pytest.raises(SystemExit, match="2"):
        load.main(["https://127.0.0.1:1/validate", "review.json", *options.split()])
    assert capsys.readouterr().err.endswith(f"error: {message}\n")


def test_a_server_that_is_not_there_is_an_error_for_a_person(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest.load", "https://127.0.0.1:1/validate", str(POD)]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 1
    assert done.stderr.startswith("loadtest.load: https://127.0.0.1:1/validate: ")
    assert "Traceback" not in done.stderr


def test_the_cpu_clock_is_that_of_the_process(floor: Fleet) -> None:
    assert cpu_clock(os.getpid()) != cpu_clock(floor.fronts["floor"].pid)
    with pytest.raises(ProcessLookupError):
        cpu_clock(2**22 + 1)  # past the kernel's largest process id


def test_what_does_not_start_is_reported_with_its_log(tmp_path: Path) -> None:
    with (
        pytest.raises(BenchError, match=r"floor ended with status 1:(.|\n)*no-such-review\.json"),
        fleet(Path("no-such-review.json"), ["floor"], tmp_path),
    ):
        pass


def test_the_benchmark_runs_a_case_through_gateway_and_worker(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "found.md"
    tiny = ["--rounds", "1", "--window", "0.2", "--warmup", "0.1", "--connections", "4"]
    main(["--cases", "stream-16", *tiny, "--output", str(output)])  # its status says whether targets are met
    printed = capsys.readouterr().out
    assert "16 validating policies on four workers, stream" in printed
    assert output.read_text().startswith("# Benchmark\n")
