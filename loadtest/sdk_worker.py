"""The worker that ``loadtest.sdk_cost`` measures: policies that read labels, and one that times parsing.

``python -m loadtest.sdk_worker --listen …`` takes the arguments of any worker.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Final

import orjson

from workers import Denied, PolicyServer

if TYPE_CHECKING:
    from workers import Review

POLICIES: Final = 4
"""That read labels."""
PARSER: Final = "parses"
"""Name of the policy that tells what a parse takes."""
PARSES: Final = 2000
"""Made for one answer of it: some 50 ms."""


def labels_name(number: int) -> str:
    """Return the name of a policy that reads labels; *number* is below ``POLICIES``."""
    return f"labels-{number}"


def has_labels(review: Review) -> None:
    """Deny objects without labels."""
    if not review.object["metadata"]["labels"]:
        raise Denied("there are no labels")


def parse(review: Review) -> None:
    """Parse the request ``PARSES`` times, and warn of the CPU seconds that it took."""
    text = orjson.dumps(review.request)
    started = time.thread_time()
    for _ in range(PARSES):
        orjson.loads(text)
    review.warn(str(time.thread_time() - started))


def make_server() -> PolicyServer:
    """Return the worker."""
    server = PolicyServer()
    for number in range(POLICIES):
        server.policy(labels_name(number))(has_labels)
    server.policy(PARSER, blocking=True)(parse)
    return server


if __name__ == "__main__":
    make_server().main()
