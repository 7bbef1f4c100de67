"""A worker whose policies do nothing, or wait, so that what is measured is the way to them and back.

``python -m loadtest.worker --listen …`` takes the arguments of any worker.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

from workers import PolicyServer

if TYPE_CHECKING:
    from workers import Review

POLICIES: Final = 16
SLOW_POLICIES: Final = 8
SLEEP_S: Final = 0.005
LABELS: Final = "labels"
"""Name of the slow policy that changes every object: it adds the label ``LABEL``."""
LABEL: Final = "loadtest.example/labelled"


def validating_name(number: int) -> str:
    """Return the name of a policy that allows everything; *number* is from 0 to ``POLICIES`` - 1."""
    return f"allows-{number:02}"


def mutating_name(number: int) -> str:
    """Return the name of a policy that may change objects and leaves them as they are."""
    return f"leaves-{number:02}"


def sleeping_name(number: int) -> str:
    """Return the name of a policy that does so after ``SLEEP_S``; *number* is below ``SLOW_POLICIES``."""
    return f"sleeps-{number:02}"


def telling_name(number: int) -> str:
    """Return the name of a policy that sleeps and warns of the labels that it saw."""
    return f"tells-{number:02}"


def nothing(review: Review) -> None:
    """Allow, unseen."""


async def sleep(review: Review) -> None:
    """Allow, unseen and late."""
    await asyncio.sleep(SLEEP_S)


async def label(review: Review) -> None:
    """Add the label, late."""
    await asyncio.sleep(SLEEP_S)
    if review.object is not None:
        review.object["metadata"].setdefault("labels", {})[LABEL] = "yes"


async def tell(review: Review) -> None:
    """Say which labels there are, late: an answer to an outdated object would show."""
    await asyncio.sleep(SLEEP_S)
    if review.object is not None:
        review.warn("saw " + " ".join(sorted(review.object["metadata"].get("labels", {}))))


def make_server() -> PolicyServer:
    """Return a server with ``POLICIES`` policies of each kind that is quick, and the slow ones."""
    server = PolicyServer()
    for number in range(POLICIES):
        server.policy(validating_name(number))(nothing)
        server.policy(mutating_name(number), mutating=True)(nothing)
    for number in range(SLOW_POLICIES):
        server.policy(sleeping_name(number), mutating=True)(sleep)
        server.policy(telling_name(number), mutating=True)(tell)
    server.policy(LABELS, mutating=True)(label)
    return server


if __name__ == "__main__":
    make_server().main()
