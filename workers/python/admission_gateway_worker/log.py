"""The worker's log: records on stderr, and the record of a failed policy."""

from __future__ import annotations

import json
import logging
import sys
import time
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.log_lines import LogFormatter
from admission_gateway_worker.traceparent import trace_id

if TYPE_CHECKING:
    from admission_gateway_worker.policy import Policy
    from admission_gateway_worker.review import Review

FAILURE_INTERVAL_S: Final = 1.0
"""Interval of logged failures for each policy: tracebacks of all failures would use too much CPU."""

MAX_CHARS: Final = 1000
"""Limit of each value in a record."""

log = logging.getLogger("admission_gateway_worker")


def set_up() -> None:
    """Write records to stderr, with time and level. For a program."""
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LogFormatter("%(asctime)s %(levelname)s worker: %(message)s"))
    logging.basicConfig(level=logging.INFO, handlers=[handler])
    logging.captureWarnings(True)  # noqa: FBT003 - the standard library's only way


def log_failure(policy: Policy, review: Review, problem: BaseException) -> None:
    """Log a failed review with its uid and trace, at most once in ``FAILURE_INTERVAL_S`` for each policy.

    A record has the number of failures that were not logged before it.
    """
    now = time.monotonic()
    if now < policy.no_failure_until:
        policy.unlogged_failures += 1
        return
    values = {
        "policy": policy.name,
        "uid": _uid(review),
        "trace_id": trace_id(review.traceparent),
        "error": f"{type(problem).__name__}: {problem}",
    }
    text = " ".join(f"{name}={_quoted(value)}" for name, value in values.items() if value)
    dropped = f" dropped={policy.unlogged_failures}" if policy.unlogged_failures else ""
    log.error("policy failed: %s%s", text, dropped, exc_info=problem)
    policy.no_failure_until = now + FAILURE_INTERVAL_S
    policy.unlogged_failures = 0


def _quoted(value: str) -> str:
    return json.dumps(value[:MAX_CHARS], ensure_ascii=False)


def _uid(review: Review) -> str:
    """Return the uid; empty if the request is malformed, or if the policy has changed it."""
    try:
        uid: object = review.uid
    except Exception:
        return ""
    return uid if isinstance(uid, str) else ""
