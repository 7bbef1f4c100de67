"""``python -m tests.e2e.loopback``: would HTTP/2 make the front end cheaper for an API server on loopback?

kube-apiserver uses HTTP/2 for webhooks at loopback URLs only. Go's client, set up as the API server's, posts
reviews to two floors: the gateway's front end (HTTP/1.1) and a server with HTTP/2, both with nothing behind
them. The rounds alternate. docs/loopback.md has the figures and the decision.
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from statistics import median
from typing import TYPE_CHECKING, Any, Final

from loadtest.measurement import cpu_clock
from loadtest.report import markdown_table
from loadtest.reviews import POD
from tests.e2e.go_tools import build_tools
from tests.kit import Process

if TYPE_CHECKING:
    from pathlib import Path

CLIENTS: Final = (1, 16, 64)
FLOORS: Final = {"HTTP/1.1": "loadtest.floor", "HTTP/2": "loadtest.http2_floor"}
HEADINGS: Final = (
    *("reviews in flight", "protocol", "server, CPU a review", "client, CPU a review", "reviews/s"),
    *("p50", "p99"),
)


def measure(tool: Path, protocol: str, url: str, pid: int, clients: int, seconds: float) -> dict[str, Any]:
    """Return the report of the client, and the CPU of the server *pid* in seconds."""
    command = [tool, "--url", url, "--review", POD, "--clients", clients, "--seconds", seconds]
    child = subprocess.Popen(
        [*map(str, command), f"--http1={str(protocol == 'HTTP/1.1').lower()}"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    assert child.stderr is not None
    assert child.stdout is not None
    moments = []
    for line in child.stderr:
        if line.strip() not in ("begin", "end"):
            raise SystemExit(line)
        moments.append(time.clock_gettime(cpu_clock(pid)))
    report: dict[str, Any] = json.loads(child.stdout.read())
    child.wait()
    assert report["protocol"].startswith(protocol)
    return {**report, "server_s": moments[1] - moments[0]}


def main() -> None:
    """Measure, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m tests.e2e.loopback", description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0)
    parsed = parser.parse_args()
    tool = build_tools()["reviews"]
    found: dict[tuple[int, str], list[dict[str, Any]]] = {}
    with ExitStack() as stack:
        state = stack.enter_context(tempfile.TemporaryDirectory())
        servers = {}
        for protocol, module in FLOORS.items():
            process = Process(sys.executable, "-m", module, str(POD), "--state", state)
            stack.callback(process.stop)
            address = process.expect(r"serving on (https://\S+)")[1]
            servers[protocol] = f"{address}/validate", process.child.pid
        for number in range(parsed.rounds):
            for clients in CLIENTS:
                for protocol in list(FLOORS)[:: 1 if number % 2 else -1]:
                    result = measure(tool, protocol, *servers[protocol], clients, parsed.seconds)
                    found.setdefault((clients, protocol), []).append(result)
    rows = []
    for (clients, protocol), results in sorted(found.items()):

        def middle(figure: str, per: str = "", of: list[dict[str, Any]] = results) -> float:
            return float(median(one[figure] / (one[per] if per else 1) for one in of))

        rows.append(
            [
                str(clients),
                protocol,
                f"{middle('server_s', 'reviews') * 1e6:.0f} us",
                f"{middle('cpu_s', 'reviews') * 1e6:.0f} us",
                f"{middle('reviews', 'seconds'):,.0f}",
                f"{middle('p50_ms'):.2f} ms",
                f"{middle('p99_ms'):.2f} ms",
            ]
        )
    print(markdown_table(HEADINGS, rows, left=(0, 1)))  # noqa: T201


if __name__ == "__main__":
    main()
