"""How a policy ended, as the message that goes to the gateway: a ``ReviewResponse`` or an ``Error``.

The stream and the unary method send the same outcome, so a policy cannot tell them apart.

Laws:
1. A denial is honoured whatever else is wrong: with odd texts, odd codes, or raised inside a TaskGroup.
2. Whatever is neither "returned None" nor a denial is an Error, never an allow.
3. No traceback and no more than ``MAX_ERROR_BYTES`` of text leave the worker.

Source: protos/admissiongateway/worker/v1/worker.proto; google/rpc/code.proto.
"""

from __future__ import annotations

import logging
import time
from typing import TYPE_CHECKING, Final

import grpc
import orjson

from gateway.pb import worker_pb2 as pb
from workers.review import Denied, MalformedPayload, Review, clean_text

if TYPE_CHECKING:
    from workers.policy import Policy

Outcome = pb.ReviewResponse | pb.Error

ALLOWED: Final = pb.ReviewResponse(allowed=True)
"""The usual answer. Shared by all reviews, so nothing may be set on it."""

MAX_MESSAGE_BYTES: Final = 8 * 1024 * 1024
"""Both ways, as the gateway has it: a review is at most 7 MiB, and gRPC's default of 4 MiB is too small."""

MAX_RESPONSE_BYTES: Final = MAX_MESSAGE_BYTES - 128
"""Leaves room for the verdict and the batch around it: short tags, lengths and an id."""

MAX_ERROR_BYTES: Final = 2000
"""Of an Error's text. In a unary answer it travels percent-encoded, up to three times as long, in the
trailers, for which gRPC has 8 KiB."""

MAX_RETRY_AFTER_S: Final = 2**31 - 1
"""Seconds; the API server reads an int32."""

TRACEBACK_INTERVAL_S: Final = 1.0
"""Per policy; logging each failure of a broken policy would cost more than all the other policies."""

_SAY_NO_MORE: Final = (Exception, RuntimeError)
"""Types whose name says no more than that it failed, so that the text stands alone, as in other languages."""

_CODES: Final = {code.value[0]: code for code in grpc.StatusCode}

log = logging.getLogger("workers")


def error(code: grpc.StatusCode, text: str) -> pb.Error:
    """Return the Error of that code, its text cut to ``MAX_ERROR_BYTES``."""
    encoded = text.encode("utf-8", "replace")
    if len(encoded) > MAX_ERROR_BYTES:
        encoded = encoded[: MAX_ERROR_BYTES - 3] + b"..."
    return pb.Error(code=code.value[0], message=encoded.decode("utf-8", "ignore"))


def status_code(failed: pb.Error) -> grpc.StatusCode:
    """Return the gRPC status of an Error."""
    return _CODES[failed.code]


def too_late() -> pb.Error:
    """Return the Error of a call whose deadline has passed."""
    return error(grpc.StatusCode.DEADLINE_EXCEEDED, "the deadline passed before the policy answered")


def ended(policy: Policy, review: Review, result: object) -> Outcome:
    """Return the outcome of a policy that returned *result*: allow, with its patch, if that is None."""
    if result is not None:
        # "return False" would otherwise be an allow that its author meant as a denial.
        wrong = TypeError(
            f"the policy returned {type(result).__name__}: it returns None to allow and raises Denied to deny"
        )
        return raised(policy, review, wrong)
    if not policy.mutating and not review.warnings and not review.annotations:
        return ALLOWED
    try:
        changes = review.changes()
        # Sorted, so that a worker in a language whose objects have no order writes the same bytes.
        patch = orjson.dumps(changes, option=orjson.OPT_SORT_KEYS) if changes else b""
    except Exception as problem:
        return raised(policy, review, problem)
    if not patch and not review.warnings and not review.annotations:
        return ALLOWED
    return _limited(
        pb.ReviewResponse(
            allowed=True, patch=patch, warnings=review.warnings, audit_annotations=review.annotations
        )
    )


def raised(policy: Policy, review: Review, problem: BaseException) -> Outcome:
    """Return the outcome of a policy that raised *problem*: a denial, or an Error and a line in the log."""
    denial = _denial_in(problem)
    if denial is not None:
        return _limited(_denied(review, denial))
    if isinstance(problem, MalformedPayload):
        return error(grpc.StatusCode.INVALID_ARGUMENT, str(problem))
    _log_failure(policy, problem)
    text, name = str(problem), type(problem).__name__
    if text and type(problem) not in _SAY_NO_MORE:
        text = f"{name}: {text}"
    return error(grpc.StatusCode.INTERNAL, text or name)


def _denial_in(problem: BaseException) -> Denied | None:
    """Return the denial; also the first one that a TaskGroup has wrapped."""
    if isinstance(problem, Denied):
        return problem
    if isinstance(problem, BaseExceptionGroup):
        return next(filter(None, map(_denial_in, problem.exceptions)), None)
    return None


def _denied(review: Review, denial: Denied) -> pb.ReviewResponse:
    code = denial.code if isinstance(denial.code, int) and 400 <= denial.code <= 599 else 400
    causes = [
        pb.StatusCause(
            reason=clean_text(cause.reason), message=clean_text(cause.message), field=clean_text(cause.field)
        )
        for cause in denial.causes
    ]
    after_s = denial.retry_after_seconds
    status = pb.Status(
        code=code,
        reason=clean_text(denial.reason),
        message=clean_text(denial.message),
        causes=causes,
        retry_after_seconds=after_s if isinstance(after_s, int) and 0 < after_s <= MAX_RETRY_AFTER_S else 0,
        name=clean_text(denial.name),
        group=clean_text(denial.group),
        kind=clean_text(denial.kind),
        uid=clean_text(denial.uid),
    )
    return pb.ReviewResponse(
        allowed=False, status=status, warnings=review.warnings, audit_annotations=review.annotations
    )


def _limited(response: pb.ReviewResponse) -> Outcome:
    """Return the response, or the Error that stands for one too large; a denial shrinks to its status."""
    size = response.ByteSize()
    if size <= MAX_RESPONSE_BYTES:
        return response
    if not response.allowed:
        return pb.ReviewResponse(
            allowed=False,
            status=pb.Status(
                code=response.status.code,
                reason=response.status.reason[:64],
                message=response.status.message[:4096],
                retry_after_seconds=response.status.retry_after_seconds,
            ),
        )
    return error(
        grpc.StatusCode.RESOURCE_EXHAUSTED,
        f"the answer has {size} bytes ({len(response.patch)} of them patch), more than {MAX_RESPONSE_BYTES}",
    )


def _log_failure(policy: Policy, problem: BaseException) -> None:
    now = time.monotonic()
    if now < policy.quiet_until:
        policy.unlogged += 1
        return
    more = f" ({policy.unlogged} failures since the last one shown)" if policy.unlogged else ""
    log.error('policy "%s" failed%s', policy.name, more, exc_info=problem)
    policy.quiet_until = now + TRACEBACK_INTERVAL_S
    policy.unlogged = 0
