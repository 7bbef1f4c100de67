"""``python -m loadtest.library``: the CPU that each policy of the library needs for a review.

Each runs with its example parameters on a recorded review of the first kind that its rules name: for Pods
one of 6 KB. The time includes the parse of the request, which the first row has alone. Policies that read
from the API server are left out, and so are those of kinds without a recorded review. The report has the
figures of the catalogue in docs/.
"""

from __future__ import annotations

import argparse
import asyncio
import sys
import time
from contextlib import suppress
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission_gateway_worker import Denied, Review
from admission_gateway_worker.policies import definitions
from loadtest.report import markdown_table
from loadtest.result_files import todays
from loadtest.reviews import POD
from loadtest.servers import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from admission_gateway_worker.policies.definition import Definition

ROUNDS: Final = 5
ROUND_S: Final = 0.1
NAMESPACE: Final = orjson.dumps(
    {
        "apiVersion": "v1",
        "kind": "Namespace",
        "metadata": {"name": "default", "labels": {"pod-security.kubernetes.io/enforce": "restricted"}},
    }
)


def recorded(definition: Definition) -> bytes:
    """Return the AdmissionRequest for *definition*, as JSON; empty if none was recorded."""
    rule = definition.rules[0]
    resource, _, _ = rule["resources"][0].partition("/")
    if resource in ("pods", "*"):
        file = POD
    else:
        operation = rule["operations"][0].lower().replace("*", "create")
        file = ROOT / "tests" / "reviews" / f"{resource.removesuffix('s')}-{operation}.json"
    return orjson.dumps(orjson.loads(file.read_bytes())["request"]) if file.is_file() else b""


def cost_us(run: Callable[[], object]) -> float:
    """Return microseconds of CPU that *run* takes: the median of some rounds."""
    found = []
    for _ in range(ROUNDS):
        count, begin = 0, time.thread_time()
        while (spent := time.thread_time() - begin) < ROUND_S:
            for _ in range(20):
                run()
            count += 20
        found.append(spent / count * 1e6)
    return median(found)


def runner(definition: Definition, request: bytes) -> Callable[[], object]:
    """Return a function that reviews *request* as a worker does."""
    parameters = definition.prepare(dict(definition.example))

    def run() -> None:
        review = Review(request, NAMESPACE, mutating=definition.mutating)
        review.parameters = parameters
        with suppress(Denied):
            result: Any = definition.function(review)
            if result is not None:
                asyncio.run(result)
        review.changes()

    return run


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report and return the exit status."""
    parser = argparse.ArgumentParser("loadtest.library", description="Measures the policies of the library.")
    parser.add_argument("--output", type=Path, default=todays("policies"))
    output: Path = parser.parse_args(argv).output
    pod = orjson.dumps(orjson.loads(POD.read_bytes())["request"])
    rows = [("", "pod-create-6kb", f"{cost_us(lambda: Review(pod).object):.0f}")]
    for each in definitions():
        request = b"" if each.needs_cluster else recorded(each)
        if request:
            kind = orjson.loads(request)["kind"]["kind"]
            rows.append((each.name, kind, f"{cost_us(runner(each, request)):.0f}"))
    table = markdown_table(("policy", "review", "us"), rows, left=(0, 1))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(
        f"# Policies of the library\n\nMicroseconds of CPU for a review, in one thread.\n\n{table}\n"
    )
    sys.stdout.write(f"{table}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
