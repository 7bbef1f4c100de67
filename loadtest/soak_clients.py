"""The clients of the soak: a closed loop over TLS in which some clients leave before they are answered.

The kind of a review, its uid, and when and how its client leaves follow from the seed and its number alone.
"""

from __future__ import annotations

import asyncio
import json
import time
from collections import Counter
from dataclasses import dataclass, field
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from loadtest.gateways import PODS
from loadtest.http_client import client_tls
from loadtest.reviews import POD
from loadtest.soak_worker import ALLOWS, DENIAL, DENIES, LABELS, NEVER
from tests.connection import Connection, NoAnswer

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from tests.connection import Answer, CloseMode

POOL: Final = "workers"
DENIED: Final = 403
FAILED: Final = 500
MAX_PAUSE_S: Final = 0.05
"""A client leaves at any time up to this after its last byte, long before a call times out."""
CLOSE_MODES: Final[Sequence[CloseMode]] = ("close_notify", "FIN", "RST")
MAX_TEXT: Final = 120
"""Characters of a wrong answer in the report."""
_UID: Final = "soak-0000000000"

Leaves = Literal["", "within", "after"]
"""Where the client leaves: not at all, within the request, or after the request and before the answer."""


@dataclass(frozen=True, slots=True)
class Kind:
    """Reviews of one kind. Each kind has its own webhook configuration and therefore its own path."""

    name: str
    share: int
    """Relative frequency."""
    policies: Sequence[str] = ALLOWS[:1]
    """One webhook each."""
    allowed: bool = True
    code: int = 0
    """The code of the answer's status; 0 if it has no status."""
    contains: Sequence[bytes] = (b"",)
    """The answer must contain one of these."""
    phase: Literal["mutate", "validate"] = "validate"
    query: str = "timeout=10s"
    timeout_s: int = 10
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    leaves: Leaves = ""

    @property
    def target(self) -> str:
        """The request target."""
        return f"/{self.phase}/{self.name}?{self.query}"

    @property
    def times_out(self) -> bool:
        """Whether a webhook gets no answer."""
        return NEVER in self.policies


FAULTLESS: Final = (Kind("allowed", 1, ALLOWS),)

_NO_ANSWER: Final = b"DEADLINE_EXCEEDED: no answer within "
_LOST: Final = b"UNAVAILABLE: "
"""When a worker is lost and too little time is left for a retry."""
FAULTY: Final = (
    Kind("allowed", 780),
    Kind("changed", 70, (LABELS,), phase="mutate", contains=(b'"patch":',)),
    Kind("denied", 50, (*ALLOWS[:1], DENIES), allowed=False, code=DENIED, contains=(DENIAL.encode(),)),
    # The shortest timeout of a webhook is a second. Half of the timeouts come from the review instead, which
    # may have less: clients that wait send no other reviews.
    Kind(
        "times-out",
        15,
        (NEVER,),
        timeout_s=1,
        allowed=False,
        code=FAILED,
        contains=(_NO_ANSWER + b"1s", _LOST),
    ),
    Kind("fails-open", 10, (NEVER,), timeout_s=1, failure_policy="Ignore", contains=(b"failed-open",)),
    Kind(
        *("short-timeout", 25, (NEVER,)),
        query="timeout=400ms",
        allowed=False,
        code=FAILED,
        contains=(_NO_ANSWER, _LOST),
    ),
    Kind("incomplete", 25, leaves="within"),
    Kind("abandoned", 25, (NEVER,), timeout_s=2, allowed=False, code=FAILED, leaves="after"),
)


@dataclass(frozen=True, slots=True)
class Planned:
    """One review that is to be sent."""

    number: int
    kind: Kind
    close_mode: CloseMode = "FIN"
    pause_s: float = 0.0
    """Between the last byte and leaving."""
    part: float = 1.0
    """Share of the request's bytes that are sent before the client leaves."""

    @property
    def uid(self) -> str:
        """The uid of its request; all have the same length."""
        return f"soak-{self.number:010}"


def planned(kinds: Sequence[Kind], seed: int, count: int) -> Iterator[Planned]:
    """Yield *count* reviews; the same for the same *seed*."""
    random = Random(seed)
    shares = [kind.share for kind in kinds]
    for number in range(count):
        kind = random.choices(kinds, shares)[0]
        if not kind.leaves:
            yield Planned(number, kind)
            continue
        close_mode = random.choice(CLOSE_MODES)
        pause_s = random.uniform(0, MAX_PAUSE_S)
        part = random.random() if kind.leaves == "within" else 1.0
        yield Planned(number, kind, close_mode, pause_s, part)


class Requests:
    """The HTTP requests: a Pod of 6 KB each, with its own uid."""

    def __init__(self, kinds: Sequence[Kind]) -> None:
        document: dict[str, Any] = orjson.loads(POD.read_bytes())
        document["request"]["uid"] = _UID
        body = orjson.dumps(document)
        self._before, _, self._after = body.partition(_UID.encode())
        self._heads = {
            kind: (
                f"POST {kind.target} HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
                f"Content-Length: {len(body)}\r\n\r\n"
            ).encode()
            for kind in kinds
        }

    def __call__(self, review: Planned) -> bytes:
        """Return the request of *review*; incomplete if the client leaves within it."""
        request = b"".join((self._heads[review.kind], self._before, review.uid.encode(), self._after))
        if review.kind.leaves == "within":
            return request[: min(max(1, int(len(request) * review.part)), len(request) - 1)]
        return request


def documents(kinds: Sequence[Kind], targets: Sequence[str], hedge_after: str = "") -> str:
    """Return the configuration, JSON documents in YAML, with one pool of the workers at *targets*.

    With *hedge_after*, ``p95`` or a duration, calls are hedged after that time.
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
    for kind in kinds:
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


@dataclass(slots=True)
class Tally:
    """The reviews of all clients by their outcome and kind."""

    sent: Counter[str] = field(default_factory=Counter)
    """Sent completely."""
    answered: Counter[str] = field(default_factory=Counter)
    """Answered as planned."""
    abandoned: Counter[str] = field(default_factory=Counter)
    """The client left after the request and before the answer."""
    incomplete: Counter[str] = field(default_factory=Counter)
    """The client left within the request."""
    refused: Counter[str] = field(default_factory=Counter)
    """Answered with 503."""
    close_modes: Counter[str] = field(default_factory=Counter)
    """How clients left."""
    wrong: Counter[str] = field(default_factory=Counter)
    """Wrong and missing answers, by text."""
    connections: int = 0

    @property
    def ended(self) -> int:
        """The number of reviews that have ended."""
        counts = (self.answered, self.abandoned, self.incomplete, self.refused, self.wrong)
        return sum(count.total() for count in counts)


@dataclass(frozen=True, slots=True)
class Address:
    """A gateway on 127.0.0.1, whose certificate is not verified."""

    port: int
    client_context: Any = field(default_factory=client_tls)


class Clients:
    """All clients of a run. Each sends the next review of the plan when its last review has ended."""

    def __init__(self, port: int, kinds: Sequence[Kind], seed: int, count: int) -> None:
        self.tally = Tally()
        self._address = Address(port)
        self._requests = Requests(kinds)
        self._reviews = planned(kinds, seed, count)
        self._left = 0

    async def run(self, clients: int, reviews: int, give_up: float) -> None:
        """Send the next *reviews* over as many new connections as *clients*, and wait for their ends.

        No review begins after *give_up*, a monotonic time.
        """
        self._left = reviews
        async with asyncio.TaskGroup() as group:
            for _ in range(clients):
                group.create_task(self._client(give_up))

    async def _client(self, give_up: float) -> None:
        connection: Connection | None = None
        while self._left > 0 and time.monotonic() < give_up:
            self._left -= 1
            review = next(self._reviews, None)
            if review is None:
                break
            try:
                if connection is None or not connection.is_open:
                    connection = await Connection.open(self._address)
                    self.tally.connections += 1
                await self._review(connection, review)
            except (NoAnswer, OSError) as error:
                self.tally.wrong[f"{review.kind.name}: {error or type(error).__name__}"] += 1
                if connection is not None:
                    connection.abandon("FIN")
        if connection is not None:
            await connection.close()

    async def _review(self, connection: Connection, review: Planned) -> None:
        kind, tally = review.kind, self.tally
        request = self._requests(review)
        if kind.leaves != "within":
            tally.sent[kind.name] += 1
        if kind.leaves:
            exchange = asyncio.create_task(connection.exchange(request))
            await asyncio.wait([exchange], timeout=review.pause_s)
            if not exchange.done():
                exchange.cancel()
                connection.abandon(review.close_mode)
                tally.close_modes[review.close_mode] += 1
                (tally.incomplete if kind.leaves == "within" else tally.abandoned)[kind.name] += 1
                return
            answer = exchange.result()
        else:
            answer = await connection.exchange(request)
        if answer.status == 503:
            tally.refused[kind.name] += 1
            return
        problem = "an answer to an incomplete request" if kind.leaves == "within" else wrong(review, answer)
        if problem:
            tally.wrong[f"{kind.name}: {problem}"] += 1
        else:
            tally.answered[kind.name] += 1


def wrong(review: Planned, answer: Answer) -> str:
    """Return what is wrong with the *answer* to *review*; empty if it is as planned."""
    kind, body = review.kind, answer.body
    if answer.status != 200:
        return f"{answer.status}: {body[:MAX_TEXT].decode(errors='replace')}"
    try:
        response: Mapping[str, Any] = orjson.loads(body)["response"]
        uid, found = response["uid"], (response["allowed"], response.get("status", {}).get("code", 0))
    except (ValueError, KeyError, TypeError):
        return f"not an AdmissionReview: {body[:MAX_TEXT].decode(errors='replace')}"
    if uid != review.uid:
        return "the answer to another review"
    if found != (kind.allowed, kind.code) or not any(text in body for text in kind.contains):
        text = response.get("status", {}).get("message", "")
        return f"allowed: {found[0]}, code {found[1]}: {text[:MAX_TEXT]!r}"
    return ""
