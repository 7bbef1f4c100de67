"""What the benchmark measures, as a list: which front end, what is sent to it, what it is measured beside.

A group is measured together, its reference first, in the middle and last in each round. What the figures
have to be is in ``loadtest.lines``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final, Literal

from loadtest.agnhost import PATH as AGNHOST_PATH
from loadtest.floor import PATH as FLOOR_PATH

CONNECTIONS: Final = 64


@dataclass(frozen=True, slots=True)
class Load:
    """What is sent, and when."""

    connections: int = CONNECTIONS
    share: float = 0.0
    """Open loop: reviews arrive by the clock, at this share of the rate of the group's reference."""
    rate: float = 0.0
    """Open loop at this many reviews a second."""
    handshake: Literal["once", "full", "resumed"] = "once"
    """Whether each review has a connection of its own, and whether that resumes a TLS session."""
    review: Literal["pod", "large"] = "pod"
    """A Pod of 6 KB or one of 1 MiB."""


@dataclass(frozen=True, slots=True)
class Case:
    """One thing to measure."""

    name: str
    title: str
    front: str
    """Who answers: one of ``loadtest.configuration.GATEWAYS``, ``floor``, ``floor-tickets``, ``baseline`` or
    ``agnhost``."""
    path: str
    load: Load = Load()
    beside: Load | None = None
    """Sent to the same place at the same time and not measured."""


@dataclass(frozen=True, slots=True)
class Group:
    """Cases of which the ratios count."""

    name: str
    title: str
    reference: Case
    cases: tuple[Case, ...]
    rounds: int = 3
    is_paced: bool = False
    """Rates follow from what the reference reaches: it is measured first in each round, and only there."""

    @property
    def fronts(self) -> tuple[str, ...]:
        """The front ends that the group needs."""
        return tuple(dict.fromkeys(case.front for case in (self.reference, *self.cases)))

    def order(self, number: int) -> list[Case]:
        """Return what is measured in round *number*, in this order.

        Every other round is backwards, so that a machine that gets slower favours no case.
        """
        others = list(self.cases)
        if number % 2:
            others.reverse()
        if self.is_paced:
            return [self.reference, *others]
        half = (len(others) + 1) // 2
        last = [self.reference] if others[half:] else []
        return [self.reference, *others[:half], self.reference, *others[half:], *last]


FLOOR: Final = Case("floor", "floor: same front end, orjson.loads, fixed answer", "floor", FLOOR_PATH)
_FOUR: Final = "/validate/policies-4"
_ALONE: Final = Load(connections=1)
_FRESH: Final = Load(connections=16, handshake="full")
_RESUMED: Final = Load(connections=16, handshake="resumed")
_LARGE: Final = Load(connections=4, review="large")
_PODS: Final = Load(share=0.25)
_SOME_LARGE: Final = Load(connections=2, rate=5.0, review="large")
_FEW: Final = Load(connections=8)
_SOME: Final = Load(connections=16)
RATES: Final = (10, 25, 50, 70, 90)
"""In percent of the highest rate."""

GROUPS: Final = (
    Group(
        "cost",
        "CPU and throughput, closed loop of 64 connections",
        FLOOR,
        (
            Case("stream-1", "1 validating policy, stream", "stream", "/validate/policies-1"),
            Case("stream-4", "4 validating policies on one worker, stream", "stream", _FOUR),
            Case(
                "stream-16",
                "16 validating policies on four workers, stream",
                "stream",
                "/validate/policies-16",
            ),
            Case(
                "mutate-4", "4 mutating policies that change nothing, stream", "stream", "/mutate/policies-4"
            ),
            Case("agnhost", "1 policy of agnhost's webhook server, Go", "agnhost", AGNHOST_PATH),
            Case("unary-1", "1 validating policy, unary", "unary", "/validate/policies-1"),
            Case("unary-4", "4 validating policies on one worker, unary", "unary", _FOUR),
            Case(
                "unary-16", "16 validating policies on four workers, unary", "unary", "/validate/policies-16"
            ),
            Case("baseline-1", "1 policy, plain grpc.aio gateway", "baseline", "/validate/policies-1"),
            Case("baseline-4", "4 policies on one worker, plain grpc.aio gateway", "baseline", _FOUR),
            Case(
                "baseline-16",
                "16 policies on four workers, plain grpc.aio gateway",
                "baseline",
                "/validate/policies-16",
            ),
        ),
        rounds=4,
    ),
    Group(
        "alone",
        "Latency of one connection, closed loop",
        Case("alone-1", "1 policy, one connection", "stream", "/validate/policies-1", _ALONE),
        (Case("alone-4", "4 policies, one connection", "stream", _FOUR, _ALONE),),
        rounds=4,
    ),
    Group(
        "slow",
        "Mutating policies of 5 ms each, one connection",
        Case("sleeps-1", "1 of them, changes nothing", "slow", "/mutate/sleeps-1", _ALONE),
        (
            Case("sleeps-8", "8 of them, change nothing", "slow", "/mutate/sleeps-8", _ALONE),
            Case("third-changes", "8, the third changes the object", "slow", "/mutate/third-changes", _ALONE),
            Case("serial-8", "8, asked one after another", "serial", "/mutate/sleeps-8", _ALONE),
        ),
    ),
    Group(
        "rate",
        "Open loop, 4 policies: latency from the moment at which a review was due",
        Case("full", "highest rate, closed loop of 64 connections", "stream", _FOUR),
        tuple(
            Case(
                f"rate-{percent}", f"{percent} % of it, open loop", "stream", _FOUR, Load(share=percent / 100)
            )
            for percent in RATES
        ),
        rounds=4,
        is_paced=True,
    ),
    Group(
        "churn",
        "A TLS handshake for each review, 16 at a time",
        Case("floor-fresh", "floor, full handshake", "floor", FLOOR_PATH, _FRESH),
        (
            Case("stream-1-fresh", "1 policy, full handshake", "stream", "/validate/policies-1", _FRESH),
            Case("stream-4-fresh", "4 policies, full handshake", "stream", _FOUR, _FRESH),
            Case(
                "floor-tickets",
                "floor that gives tickets, full handshake",
                "floor-tickets",
                FLOOR_PATH,
                _FRESH,
            ),
            Case("floor-resumed", "floor that gives tickets, resumed", "floor-tickets", FLOOR_PATH, _RESUMED),
        ),
    ),
    Group(
        "large",
        "A Pod of 1 MiB, closed loop of 4 connections",
        Case("floor-large", "floor, 1 MiB", "floor", FLOOR_PATH, _LARGE),
        (Case("stream-4-large", "4 policies, 1 MiB", "stream", _FOUR, _LARGE),),
    ),
    Group(
        "mixed",
        "6 KB at a quarter of the highest rate, with and without 1 MiB among them",
        Case("mixed-full", "highest rate of 6 KB, closed loop", "stream", _FOUR),
        (
            Case("pods", "6 KB alone", "stream", _FOUR, _PODS),
            Case("pods-beside-large", "6 KB, with 5 of 1 MiB a second", "stream", _FOUR, _PODS, _SOME_LARGE),
            Case("floor-pods", "floor, 6 KB alone, same rate", "floor", FLOOR_PATH, _PODS),
            Case(
                "floor-pods-beside-large",
                "floor, 6 KB, with 5 of 1 MiB a second",
                "floor",
                FLOOR_PATH,
                _PODS,
                _SOME_LARGE,
            ),
        ),
        is_paced=True,
    ),
    Group(
        "processes",
        "One process and two",
        Case("one-process", "4 policies, one process", "stream", _FOUR),
        (Case("two-processes", "4 policies, two processes", "two", _FOUR),),
    ),
    Group(
        "matching",
        "Many configured webhooks, of which four match",
        Case("match-4", "4 configured", "four", "/validate/four"),
        (Case("match-by-rules", "1,000 configured, 996 for other resources", "many", "/validate/by-rules"),),
    ),
    Group(
        "labels",
        "Many configured webhooks for Pods, of which four match by their labels, 8 connections",
        Case("labels-4", "4 configured", "four", "/validate/four", _FEW),
        (
            Case(
                "match-by-labels", "1,000 for Pods, 996 for other labels", "many", "/validate/by-labels", _FEW
            ),
        ),
    ),
    Group(
        "https",
        "Webhooks over HTTPS, 16 connections",
        Case("by-stream", "1 policy of a worker, by stream", "stream", "/validate/policies-1", _SOME),
        (
            Case("by-https", "1 webhook over HTTPS", "https", "/validate/policies-1", _SOME),
            Case("by-https-4", "4 webhooks over HTTPS", "https", "/validate/policies-4", _SOME),
        ),
    ),
    Group(
        "conditions",
        "matchConditions, 4 policies",
        Case("unconditional", "4 policies without", "conditional", "/validate/without"),
        (
            Case("by-request", "each with one about the request", "conditional", "/validate/by-request"),
            Case("by-object", "each with that and two about the Pod", "conditional", "/validate/by-object"),
            Case("left-out", "and 36 that one leaves out", "conditional", "/validate/left-out"),
        ),
    ),
)
"""In the order of the report."""

CASES: Final = {case.name: case for group in GROUPS for case in (group.reference, *group.cases)}
