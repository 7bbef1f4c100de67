"""The load generator and the benchmark, against real servers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import orjson
import pytest
import uvloop

from loadtest.bench import REVIEW, main
from loadtest.load import Target, cpu_clock, measure
from loadtest.servers import BenchError, fleet

if TYPE_CHECKING:
    from collections.abc import Iterator

    from loadtest.servers import Fleet

pytestmark = pytest.mark.slow

LOCUSTFILE = Path(__file__).parents[2] / "loadtest" / "locustfile.py"


@pytest.fixture(scope="module")
def floor(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Fleet]:
    """A floor that runs."""
    with fleet(REVIEW, ["floor"], tmp_path_factory.mktemp("floor")) as running:
        yield running


def test_the_generator_counts_answers_and_the_cpu_they_cost(floor: Fleet) -> None:
    front = floor.fronts["floor"]
    target = Target(front.address + "/validate", REVIEW.read_bytes())
    found = uvloop.run(measure(target, connections=4, warmup_s=0.05, window_s=0.2, watch=[front.pid]))
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
    review = orjson.loads(REVIEW.read_bytes())
    review["request"]["uid"] = uid or review["request"]["uid"]
    target = Target(floor.fronts["floor"].address + path, orjson.dumps(review), allowed)
    found = uvloop.run(measure(target, connections=2, warmup_s=0.0, window_s=0.1))
    assert found.reviews == 0
    assert [text.startswith(problem) for text in found.errors] == [True]


def test_a_server_that_is_not_there_is_an_error_for_a_person(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "loadtest.load", "https://127.0.0.1:1/validate", str(REVIEW)]
    done = subprocess.run(command, cwd=LOCUSTFILE.parents[1], capture_output=True, text=True, check=False)
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
    assert main(["--cases", "stream-16", *tiny, "--output", str(output)]) == 0
    printed = capsys.readouterr().out
    assert "16 validating policies on four workers, stream" in printed
    assert output.read_text().startswith("# Benchmark\n")


@pytest.mark.parametrize(("limit_ms", "status"), [("60000", 0), ("0.001", 1)])
def test_locust_ends_with_a_status_that_says_whether_the_limits_held(
    floor: Fleet, tmp_path: Path, limit_ms: str, status: int
) -> None:
    corpus = tmp_path / "corpus"
    corpus.mkdir()
    (corpus / "pod.json").write_bytes(REVIEW.read_bytes())
    done = subprocess.run(
        [
            *(sys.executable, "-m", "locust", "-f", str(LOCUSTFILE), "--headless", "--only-summary"),
            *("--host", floor.fronts["floor"].address, "--users", "2", "--spawn-rate", "2"),
            *("--run-time", "1s", "--corpus", str(corpus), "--rate", "20", "--max-p99-ms", limit_ms),
            # The floor answers the uid that it was started with, which is not the one that is asked for.
            *("--max-failure-ratio", "1.0"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == status, done.stderr
    assert "reviews, 100.00% failed (at most 100.00%)" in done.stdout
