"""Two faulty policies, to demonstrate failurePolicy and timeoutSeconds."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from admission_gateway_worker import Review

SLEEP_S: Final = 60.0
"""Twice the longest timeout of a webhook."""


async def sleeps(review: Review) -> None:
    """Answers too late for anyone: after a minute, or when it is cancelled."""
    await asyncio.sleep(SLEEP_S)


def fails(review: Review) -> None:
    """Has a bug that shows on every review."""
    raise RuntimeError(f"this policy always fails (review {review.uid})")
