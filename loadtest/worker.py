"""A worker whose policies do nothing, so that what is measured is the way to them and back.

``python -m loadtest.worker --listen …`` takes the arguments of any worker.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from workers import PolicyServer

if TYPE_CHECKING:
    from workers import Review

POLICIES: Final = 16


def validating_name(number: int) -> str:
    """Return the name of a policy that allows everything; *number* is from 0 to ``POLICIES`` - 1."""
    return f"allows-{number:02}"


def mutating_name(number: int) -> str:
    """Return the name of a policy that may change objects and leaves them as they are."""
    return f"leaves-{number:02}"


def nothing(review: Review) -> None:
    """Allow, unseen."""


def make_server() -> PolicyServer:
    """Return a server with ``POLICIES`` policies of each kind."""
    server = PolicyServer()
    for number in range(POLICIES):
        server.policy(validating_name(number))(nothing)
        server.policy(mutating_name(number), mutating=True)(nothing)
    return server


if __name__ == "__main__":
    make_server().main()
