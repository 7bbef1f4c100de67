"""The worker of the benchmark: policies that do nothing, read labels, wait, or measure one parse.

``python -m loadtest.worker --listen …`` takes the arguments of any worker.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

import orjson

from admission_gateway_worker import Denied, PolicyServer

if TYPE_CHECKING:
    from admission_gateway_worker import Review

POLICIES: Final = 16
SLOW_POLICIES: Final = 8
SLEEP_S: Final = 0.005
LABELS: Final = "labels"
"""Name of the slow policy that adds the label ``LABEL`` to every object."""
LABEL: Final = "loadtest.example/labelled"
READING_POLICIES: Final = 4
PARSER: Final = "parses"
"""Name of the policy that measures a parse."""
PARSES: Final = 2000
"""Parses for one answer of ``PARSER``: some 50 ms."""


def validating_name(number: int) -> str:
    """Return the name of a policy that allows everything; *number* is below ``POLICIES``."""
    return f"allows-{number:02}"


def mutating_name(number: int) -> str:
    """Return the name of a mutating policy that changes nothing; *number* is below ``POLICIES``."""
    return f"leaves-{number:02}"


def sleeping_name(number: int) -> str:
    """Return the name of a mutating policy that waits ``SLEEP_S``; *number* is below ``SLOW_POLICIES``."""
    return f"sleeps-{number:02}"


def reading_name(number: int) -> str:
    """Return the name of a policy that reads labels; *number* is below ``READING_POLICIES``."""
    return f"reads-{number}"


def nothing(review: Review) -> None:
    """Allow without parsing the request."""


async def sleep(review: Review) -> None:
    """Allow after ``SLEEP_S``."""
    await asyncio.sleep(SLEEP_S)


async def label(review: Review) -> None:
    """Add the label after ``SLEEP_S``."""
    await asyncio.sleep(SLEEP_S)
    if review.object is not None:
        review.object["metadata"].setdefault("labels", {})[LABEL] = "yes"


def read(review: Review) -> None:
    """Deny objects without labels."""
    if not review.object["metadata"]["labels"]:
        raise Denied("there are no labels")


def parse(review: Review) -> None:
    """Parse the request ``PARSES`` times and return the CPU seconds as a warning."""
    text = orjson.dumps(review.request)
    started = time.thread_time()
    for _ in range(PARSES):
        orjson.loads(text)
    review.warn(str(time.thread_time() - started))


def make_server() -> PolicyServer:
    """Return a server with all policies."""
    server = PolicyServer()
    for number in range(POLICIES):
        server.policy(validating_name(number))(nothing)
        server.policy(mutating_name(number), mutating=True)(nothing)
    for number in range(SLOW_POLICIES):
        server.policy(sleeping_name(number), mutating=True)(sleep)
    server.policy(LABELS, mutating=True)(label)
    for number in range(READING_POLICIES):
        server.policy(reading_name(number))(read)
    server.policy(PARSER, blocking=True)(parse)
    return server


if __name__ == "__main__":
    make_server().main()
