"""What the soak with faults is made of: kinds of reviews, and what each has to come to.

The kind of a review, when and how its client leaves, and its uid follow from the seed and its number alone.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from loadtest.configuration import PODS
from loadtest.reviews import POD
from loadtest.soak_worker import ALLOWS, DENIES, LABELS, NEVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

POOL: Final = "workers"
DENIED: Final = 403
FAILED: Final = 500
MAX_PAUSE_S: Final = 0.05
"""A client that leaves does so at any time up to this after its last byte: far below what a call waits."""
_UID: Final = "soak-0000000000"

Leaves = Literal["", "within", "after"]
"""Where the client leaves: not at all, before the end of the body, after it and before the answer."""
Goodbye = Literal["close_notify", "FIN", "RST"]
"""How a connection is ended: as TLS has it, by the network's own end, by a reset."""
GOODBYES: Final[Sequence[Goodbye]] = ("close_notify", "FIN", "RST")


@dataclass(frozen=True, slots=True)
class Kind:
    """Reviews of one kind; they have a webhook configuration, and so a path, to themselves."""

    name: str
    share: int
    """So many of ``sum(kind.share for kind in KINDS)`` reviews."""
    policies: Sequence[str] = (ALLOWS,)
    """One webhook each."""
    allowed: bool = True
    code: int = 0
    """Of the answer's status; 0: it has none."""
    tells: Sequence[bytes] = (b"",)
    """One of these has to be in the answer too."""
    phase: Literal["mutate", "validate"] = "validate"
    query: str = "timeout=10s"
    timeout_s: int = 10
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    leaves: Leaves = ""

    @property
    def target(self) -> str:
        """The request target."""
        return f"/{self.phase}/{self.name}?{self.query}"


_NO_ANSWER: Final = b"DEADLINE_EXCEEDED: no answer within "
_LOST: Final = b"UNAVAILABLE: "
"""Where a worker is lost with calls whose deadline is too near for another to be asked."""
KINDS: Final = (
    Kind("allowed", 780),
    Kind("changed", 70, (LABELS,), phase="mutate", tells=(b'"patch":',)),
    Kind("denied", 50, (ALLOWS, DENIES), allowed=False, code=DENIED, tells=(b"not in this soak",)),
    # A webhook has a second at least. Half of the timeouts are set by the review instead, which may have
    # less: clients that wait are connections that ask for nothing else.
    Kind("late", 15, (NEVER,), timeout_s=1, allowed=False, code=FAILED, tells=(_NO_ANSWER + b"1s", _LOST)),
    Kind("let-pass", 10, (NEVER,), timeout_s=1, failure_policy="Ignore", tells=(b"failed-open",)),
    Kind(
        "hurried", 25, (NEVER,), query="timeout=400ms", allowed=False, code=FAILED, tells=(_NO_ANSWER, _LOST)
    ),
    Kind("broken-off", 25, leaves="within"),
    Kind("left", 25, (NEVER,), timeout_s=2, allowed=False, code=FAILED, leaves="after"),
)


@dataclass(frozen=True, slots=True)
class Planned:
    """One review that is to be sent."""

    number: int
    kind: Kind
    goodbye: Goodbye = "FIN"
    pause_s: float = 0.0
    """Between the last byte that is sent and leaving."""
    part: float = 1.0
    """How much of the request is sent before the client leaves, as a share of its bytes."""

    @property
    def uid(self) -> str:
        """The uid of its request, of the same length for all."""
        return f"soak-{self.number:010}"


def planned(seed: int, count: int) -> Iterator[Planned]:
    """Yield *count* reviews, the same ones for the same *seed*."""
    random = Random(seed)
    kinds, shares = KINDS, [kind.share for kind in KINDS]
    for number in range(count):
        kind = random.choices(kinds, shares)[0]
        if not kind.leaves:
            yield Planned(number, kind)
            continue
        goodbye = random.choice(GOODBYES)
        pause_s = random.uniform(0, MAX_PAUSE_S)
        part = random.random() if kind.leaves == "within" else 1.0
        yield Planned(number, kind, goodbye, pause_s, part)


class Requests:
    """The HTTP requests of reviews: a Pod of 6 KB each, with a uid of its own."""

    def __init__(self, host: str) -> None:
        document: dict[str, Any] = orjson.loads(POD.read_bytes())
        document["request"]["uid"] = _UID
        body = orjson.dumps(document)
        self._before, _, self._after = body.partition(_UID.encode())
        self._heads = {
            kind: (
                f"POST {kind.target} HTTP/1.1\r\nHost: {host}\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            ).encode()
            for kind in KINDS
        }

    def __call__(self, review: Planned) -> bytes:
        """Return what is sent for *review*, without its last byte at least if the client leaves within."""
        request = b"".join((self._heads[review.kind], self._before, review.uid.encode(), self._after))
        if review.kind.leaves == "within":
            return request[: min(max(1, int(len(request) * review.part)), len(request) - 1)]
        return request


def documents(targets: Sequence[str], hedge_after: str = "") -> str:
    """Return the configuration, with one pool of workers at *targets*: a document of JSON each.

    With *hedge_after*, ``p95`` or a duration, calls are asked twice after it.
    """
    hedge = {"hedge": {"after": hedge_after}} if hedge_after else {}
    found: list[dict[str, Any]] = [
        {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "WorkerPool",
            "metadata": {"name": POOL},
            "spec": {"target": list(targets), **hedge},
        }
    ]
    for kind in KINDS:
        webhooks = [
            {
                "name": f"{policy}.{kind.name}.soak.example",
                "clientConfig": {"worker": {"pool": POOL, "policy": policy}},
                "rules": [dict(PODS)],
                "failurePolicy": kind.failure_policy,
                "timeoutSeconds": kind.timeout_s,
                "sideEffects": "None",
                "admissionReviewVersions": ["v1"],
            }
            for policy in kind.policies
        ]
        phase = {"mutate": "Mutating", "validate": "Validating"}[kind.phase]
        found.append(
            {
                "apiVersion": "admissionregistration.k8s.io/v1",
                "kind": f"{phase}WebhookConfiguration",
                "metadata": {"name": kind.name},
                "webhooks": webhooks,
            }
        )
    return "\n---\n".join(json.dumps(document) for document in found)
