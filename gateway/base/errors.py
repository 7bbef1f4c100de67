"""The exceptions of the gateway: one class for each party that has to act.

Events that can happen several times in one review (a failed call, a denial) are values in
``gateway.pure.core.verdict``. An exception ends the review, or the start of the program.
"""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import field as dataclass_field
from typing import Final

from admission_gateway_worker.text import printable


class GatewayError(Exception):
    """Base of all errors that the gateway raises deliberately; the text is for people."""


_SHOWN_CHARS: Final = 500
"""The longest file name or field path in a message. They may contain keys of any length."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One error of a configuration.

    ``where`` names place and object (``policies.yaml:12:3: WorkerPool "a"``), ``field`` is the path inside it
    (``webhooks[2].rules[0].operations``, empty for the whole), ``message`` has the found and the expected
    value.
    """

    where: str
    field: str
    message: str
    file: str = dataclass_field(default="", compare=False)
    """The file of the place; empty without one."""
    line: int = dataclass_field(default=0, compare=False)
    """From 1. 0 without a place."""
    column: int = dataclass_field(default=0, compare=False)
    """From 1, in Unicode characters."""

    def __str__(self) -> str:
        parts = printable(self.where, _SHOWN_CHARS), printable(self.field, _SHOWN_CHARS)
        return ": ".join(part for part in (*parts, printable(self.message, None)) if part)


class ConfigError(GatewayError):
    """The operator's fault: a configuration that cannot be used.

    ``problems`` has all errors, in reading order, so that one run shows all of them.
    """

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class ClusterError(GatewayError):
    """The cluster's API server cannot be reached, or refuses a request.

    ``status`` is the HTTP status of its answer, 0 without an answer.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ReviewError(GatewayError):
    """The caller's fault: a request that is not a review this gateway can answer."""


class MalformedReview(ReviewError):
    """The body is not JSON, or not an AdmissionReview that carries a request."""


class UnsupportedReview(ReviewError):
    """The body is an AdmissionReview of a version that is not supported."""


class NotAttested(ReviewError):
    """The caller's token is not for reviews of the request's API group."""


class Unavailable(GatewayError):
    """A transient condition: the caller should try again, perhaps at another replica."""


class Overloaded(Unavailable):
    """More reviews are in flight than ``limits.maxConcurrentReviews`` allows."""


class Draining(Unavailable):
    """The process is about to stop and takes no new reviews."""
