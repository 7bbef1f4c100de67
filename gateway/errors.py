"""The exceptions of the gateway, told apart by whose fault they are.

What can happen several times within one review (a webhook that failed, a denial) is a value in
``gateway.core.verdict``; an exception ends the review, or the start of the program.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from gateway.text import printable


class GatewayError(Exception):
    """Base of all errors that the gateway raises on purpose; its text is meant for a person."""


_SHOWN_CHARS: Final = 500
"""Of a path to what is wrong: the keys in it are as long as somebody has written them."""


@dataclass(frozen=True, slots=True, order=True)
class Problem:
    """One thing wrong in a configuration.

    ``where`` names file, document and object (``policies.yaml: document 2: WorkerPool "a"``), ``field`` is
    the path inside it (``webhooks[2].rules[0].operations``, empty for the whole), ``message`` says what was
    found and what was expected.
    """

    where: str
    field: str
    message: str

    def __str__(self) -> str:
        parts = printable(self.where, _SHOWN_CHARS), printable(self.field, _SHOWN_CHARS)
        return ": ".join(part for part in (*parts, printable(self.message, None)) if part)


class ConfigError(GatewayError):
    """The operator's fault: a configuration that cannot be used.

    ``problems`` holds everything that is wrong, in reading order, so that one run shows all.
    """

    def __init__(self, problems: list[Problem]) -> None:
        super().__init__("\n".join(map(str, problems)))
        self.problems = tuple(problems)


class ClusterError(GatewayError):
    """The cluster's API server cannot be reached, or refuses what it is asked.

    ``status`` is the HTTP status of its answer, 0 where there was none.
    """

    def __init__(self, message: str, status: int = 0) -> None:
        super().__init__(message)
        self.status = status


class ReviewError(GatewayError):
    """The caller's fault: a request that is not a review this gateway can answer."""


class MalformedReview(ReviewError):
    """The body is not JSON, or not an AdmissionReview that carries a request."""


class UnsupportedReview(ReviewError):
    """The body is an AdmissionReview of a version that the gateway does not speak."""


class Unavailable(GatewayError):
    """Nobody's fault and transient: the caller is to try again, perhaps elsewhere."""


class Overloaded(Unavailable):
    """More reviews are in flight than ``limits.maxConcurrentReviews`` allows."""


class Draining(Unavailable):
    """The process is about to stop and takes no new reviews."""
