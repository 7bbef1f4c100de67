"""``python -m loadtest.library``: the CPU that each policy of the library needs for a review.

Each runs with its example parameters on a recorded review of the first kind that its rules name, for Pods
one of 6 KB, or else on one of ``library_reviews``. The time includes the parse of the request, which the
first row has alone. Policies that read from the API server find it in this process, in another thread whose
time does not count: reads of the last second are kept, as in a worker, and checks of rights are requests.
The report has the figures of the catalogue in docs/.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import sys
import tempfile
import time
from contextlib import suppress
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission_gateway_worker import Denied, Review
from admission_gateway_worker.policies import definitions
from admission_gateway_worker.policies.cluster import connect
from loadtest import library_reviews
from loadtest.report import markdown_table
from loadtest.result_files import todays
from loadtest.reviews import POD
from loadtest.servers import ROOT
from tests.library.api_server import TOKEN, ApiServer

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
    """Return the recorded AdmissionRequest for *definition*, as JSON."""
    rule = definition.rules[0]
    resource, _, _ = rule["resources"][0].partition("/")
    if resource in ("pods", "*"):
        file = POD
    else:
        operation = rule["operations"][0].lower().replace("*", "create")
        file = ROOT / "tests" / "reviews" / f"{resource.removesuffix('s')}-{operation}.json"
    return orjson.dumps(orjson.loads(file.read_bytes())["request"])


def cost_us(run: Callable[[int], object]) -> float:
    """Return microseconds of CPU of one of the reviews that *run* is called with the number of.

    The median of some rounds.
    """
    found = []
    run(1)
    for _ in range(ROUNDS):
        count, begin = 0, time.thread_time()
        while (spent := time.thread_time() - begin) < ROUND_S:
            run(20)
            count += 20
        found.append(spent / count * 1e6)
    return median(found)


def runner(
    definition: Definition, request: bytes, loop: asyncio.AbstractEventLoop
) -> Callable[[int], object]:
    """Return a function that reviews *request* a number of times, as a worker does."""
    parameters = definition.prepare(dict(definition.example))

    async def run(count: int) -> None:
        for _ in range(count):
            review = Review(request, NAMESPACE, mutating=definition.mutating)
            review.parameters = parameters
            with suppress(Denied):
                result: Any = definition.function(review)
                if result is not None:
                    await result
            review.changes()

    return lambda count: loop.run_until_complete(run(count))


async def _disconnect() -> None:
    await connect().close()


def _parse(request: bytes, count: int) -> None:
    for _ in range(count):
        _ = Review(request).object


def measured() -> list[tuple[str, str, str]]:
    """Return name, kind of the review and microseconds for each policy, after those of the parse."""
    pod = orjson.dumps(orjson.loads(POD.read_bytes())["request"])
    rows = [("", "pod-create-6kb", f"{cost_us(partial(_parse, pod)):.0f}")]
    others = library_reviews.requests()
    loop = asyncio.new_event_loop()
    with ApiServer() as server, tempfile.TemporaryDirectory() as folder:
        server.lists.update(library_reviews.lists())
        server.others.update(library_reviews.RESOURCES)
        server.rights = lambda spec: {"allowed": spec["resourceAttributes"].get("resource") != "*"}
        os.environ["KUBECONFIG"] = str(server.kubeconfig(Path(folder), token=TOKEN))
        for each in definitions():
            request = orjson.dumps(others[each.name]) if each.name in others else recorded(each)
            kind = orjson.loads(request)["kind"]["kind"]
            rows.append((each.name, kind, f"{cost_us(runner(each, request, loop)):.0f}"))
        loop.run_until_complete(_disconnect())
    loop.close()
    return rows


def main(argv: Sequence[str] | None = None) -> int:
    """Write the report and return the exit status."""
    parser = argparse.ArgumentParser("loadtest.library", description="Measures the policies of the library.")
    parser.add_argument("--output", type=Path, default=todays("policies"))
    output: Path = parser.parse_args(argv).output
    table = markdown_table(("policy", "review", "us"), measured(), left=(0, 1))
    output.parent.mkdir(parents=True, exist_ok=True)
    output.write_text(
        f"# Policies of the library\n\nMicroseconds of CPU for a review, in one thread.\n\n{table}\n"
    )
    sys.stdout.write(f"{table}\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
