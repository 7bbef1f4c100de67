"""The clients of the soak: a closed loop over TLS in which some clients leave before they are answered.

The kind of a review, its uid, and when and how its client leaves follow from the seed and its number alone.
"""

from __future__ import annotations

import asyncio
import json
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import islice
from random import Random
from typing import TYPE_CHECKING, Any, Final, Literal

import orjson

from loadtest.gateways import PODS
from loadtest.generator import Generator, Outcomes
from loadtest.http_client import Address, Departure, Request, client_tls, post
from loadtest.outcomes import FAILED, outcome_of
from loadtest.reviews import POD
from loadtest.soak_worker import ALLOWS, DENIAL, DENIES, LABELS, NEVER

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from loadtest.http_client import Answer, CloseMode
    from loadtest.outcomes import Outcome

POOL: Final = "workers"
DENIED: Final = 403
MAX_PAUSE_S: Final = 0.05
"""A client leaves at any time up to this after its last byte, long before a call times out."""
ANSWERS_TIMEOUT_S: Final = 60.0
"""For the reviews that are in flight at the end. Those without an answer have not ended."""
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
    def outcome(self) -> Outcome:
        """The outcome of its reviews."""
        if self.allowed:
            return "failed open" if self.failure_policy == "Ignore" else "allowed"
        return "failed" if self.code == FAILED else "denied"

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
class Review(Request):
    """One review that is sent."""

    kind: Kind = FAULTLESS[0]


def reviews(kinds: Sequence[Kind], seed: int, count: int) -> Iterator[Review]:
    """Yield *count* reviews of a Pod of 6 KB, each with its own uid; the same for the same *seed*.

    The data of a review whose client leaves within the request are incomplete.
    """
    document: dict[str, Any] = orjson.loads(POD.read_bytes())
    document["request"]["uid"] = _UID
    body, random = orjson.dumps(document), Random(seed)
    before, after = {}, b""
    for kind in kinds:
        before[kind], _, after = post(kind.target, "127.0.0.1", body).partition(_UID.encode())
    shares = [kind.share for kind in kinds]
    for number in range(count):
        kind = random.choices(kinds, shares)[0]
        uid = f"soak-{number:010}"
        data = b"".join((before[kind], uid.encode(), after))
        if not kind.leaves:
            yield Review(uid, data, kind=kind)
            continue
        leaves = Departure(random.uniform(0, MAX_PAUSE_S), random.choice(CLOSE_MODES))
        if kind.leaves == "within":
            data = data[: random.randrange(1, len(data))]
        yield Review(uid, data, leaves, kind)


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
    def sent(self) -> Counter[str]:
        """Sent completely, as far as nothing is wrong."""
        return self.answered + self.abandoned + self.refused

    @property
    def ended(self) -> int:
        """The number of reviews that have ended."""
        return self.sent.total() + self.incomplete.total() + self.wrong.total()


class Clients(Outcomes[Review]):
    """All clients of a run. Each sends the next review of the plan when its last review has ended."""

    def __init__(self, port: int, kinds: Sequence[Kind], seed: int, count: int) -> None:
        self.tally = Tally()
        self._address = Address("127.0.0.1", port, client_tls())
        self._reviews = reviews(kinds, seed, count)

    async def run(self, clients: int, count: int, limit_s: float) -> None:
        """Send the next *count* reviews over as many new connections as *clients*, and wait for their ends.

        No review begins after *limit_s*.

        Raises:
            OSError: the gateway does not accept the connections.
        """
        generator = Generator(lambda: self._address, islice(self._reviews, count), self)
        await generator.open(clients)
        with generator.sending():
            for timeout_s in (limit_s, ANSWERS_TIMEOUT_S):
                with suppress(TimeoutError):
                    await asyncio.wait_for(generator.is_over.wait(), timeout_s)
                generator.stop()
        await generator.close()
        self.tally.connections += generator.connections

    def judge(self, request: Review, answer: Answer) -> bool:
        """Count *answer*. See ``Outcomes``."""
        kind = request.kind
        outcome, _ = outcome_of(answer, request.uid)
        problem = "" if outcome == "refused" else wrong(request, answer)
        if problem:
            self.tally.wrong[f"{kind.name}: {problem}"] += 1
        else:
            (self.tally.refused if outcome == "refused" else self.tally.answered)[kind.name] += 1
        return not problem

    def lost(self, request: Review | None, reason: str) -> None:
        """Count a review without an answer. See ``Outcomes``."""
        if request is not None:
            self.tally.wrong[f"{request.kind.name}: {reason}"] += 1

    def left(self, request: Review) -> None:
        """Count a review whose client has left. See ``Outcomes``."""
        assert request.leaves is not None
        self.tally.close_modes[request.leaves.mode] += 1
        is_incomplete = request.kind.leaves == "within"
        (self.tally.incomplete if is_incomplete else self.tally.abandoned)[request.kind.name] += 1


def wrong(review: Review, answer: Answer) -> str:
    """Return what is wrong with the *answer* to *review*; empty if it is as planned."""
    kind = review.kind
    if kind.leaves == "within":
        return "an answer to an incomplete request"
    outcome, text = outcome_of(answer, review.uid)
    is_planned = outcome == kind.outcome and (outcome != "denied" or text.startswith(f"{kind.code}: "))
    if is_planned and any(expected in answer.body for expected in kind.contains):
        return ""
    return f"{outcome}: {text[:MAX_TEXT]}"
