"""The cases of the benchmark: a server, the load on it, and the reference that it is compared with.

The cases of a group are measured together, with the reference at the start, in the middle and at the end of
each round. The limits are in ``loadtest.targets``.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Literal

from loadtest.agnhost import PATH as AGNHOST_PATH
from loadtest.floor import PATH as FLOOR_PATH
from loadtest.gateways import DOCUMENTED_IN, MODES
from loadtest.policies import MUTATING_DOCUMENTS, POLICY_WORKERS, SETS, real_path

if TYPE_CHECKING:
    from tests.languages.toolchains import Language

CONNECTIONS: Final = 64
COMPILE_S: Final = 8.0
"""Until the JVM has compiled what a review runs: with 2 s, that takes more than half of the worker's CPU."""


@dataclass(frozen=True, slots=True)
class Load:
    """The reviews that are sent; a closed loop without *share* and *rate*."""

    connections: int = CONNECTIONS
    share: float = 0.0
    """Open loop at this share of the throughput of the group's reference."""
    rate: float = 0.0
    """Open loop of so many reviews a second."""
    is_fresh: bool = False
    """Whether each review has a new connection."""
    is_exact: bool = True
    """Whether all answers have the same bytes."""
    traceparent: str = ""
    """The header of all reviews; empty if they have none."""
    uids: int = 1
    """Reviews with so many uids are sent in turn."""
    review: Literal["pod", "labelled", "large", "update"] = "pod"
    """A Pod of 6 KB, the same with all labels of ``loadtest.policies``, a Pod of 1 MiB, or an update with two
    Pods of 3 MiB."""


@dataclass(frozen=True, slots=True)
class Case:
    """One load on one path of one server."""

    name: str
    title: str
    server: str
    """One of ``loadtest.gateways.GATEWAYS``, ``floor``, ``baseline`` or ``agnhost``."""
    path: str
    load: Load = Load()
    background: Load | None = None
    """Sent to the same path at the same time; its latency is not measured."""
    applied: str = ""
    """The set of policies whose answers are checked before the first round; empty for other policies."""
    warmup_s: float = 0.0
    """Time under load before the first round, for a worker that is compiled at run time."""


@dataclass(frozen=True, slots=True)
class Group:
    """Cases that are compared with one reference."""

    name: str
    title: str
    reference: Case
    cases: tuple[Case, ...]
    rounds: int = 3
    is_paced: bool = False
    """The rates are shares of the reference's throughput: it is measured once in each round, at the start."""
    stretch: int = 1
    """Its windows are so many times as long; for low rates, which have few reviews."""

    @property
    def servers(self) -> tuple[str, ...]:
        """The servers that the group needs."""
        return tuple(dict.fromkeys(case.server for case in (self.reference, *self.cases)))

    def order(self, number: int) -> list[Case]:
        """Return the cases of round *number* in the order in which they are measured.

        Odd rounds reverse the order, so that a machine that becomes slower favours no case.
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
_FRESH: Final = Load(connections=16, is_fresh=True)
_LARGE: Final = Load(connections=4, review="large")
_PODS: Final = Load(share=0.25)
_SOME_LARGE: Final = Load(connections=2, rate=5.0, review="large")
_FEW_PODS: Final = Load(rate=100.0)
_UPDATES: Final = Load(connections=1, review="update")
_FEW: Final = Load(connections=8)
_SOME: Final = Load(connections=16)
_NOT_SAMPLED: Final = Load(traceparent="00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-00")
_UIDS: Final = Load(uids=1000)
_REAL: Final = Load(connections=16, review="labelled")
RATES: Final = (10, 25, 50, 70, 90)
"""In percent of the throughput of a closed loop."""
SLOW_RATES: Final = (250, 500, 1000)
"""Reviews a second, as API servers send them."""
FRONT_RATE: Final = 400
"""Reviews a second of the front end alone."""


def _at(rate: int) -> Load:
    # As many connections as an API server keeps or fewer; they are used in turn.
    return Load(connections=16, rate=float(rate))


def _real(which: str, language: Language) -> Case:
    return Case(
        f"{which}-{language.name}",
        f"{which.upper()}, {language.title} worker",
        f"real-{language.name}",
        real_path(which),
        _REAL,
        applied=which,
        warmup_s=COMPILE_S if language.name == "java" else 0.0,
    )


def _documented(count: int, language: Language) -> Case:
    title = f"{3 * count} policies of a {language.title} worker with the validations of {count}"
    name = f"documents-{count}-{language.name}"
    return Case(name, title, name, "/validate", _REAL)


def _slow_rate(rate: int) -> Group:
    return Group(
        f"at-{rate}",
        f"Open loop of {rate:,} reviews a second",
        Case(f"floor-at-{rate}", f"floor, {rate:,}/s", "floor", FLOOR_PATH, _at(rate)),
        (Case(f"four-at-{rate}", f"4 policies, {rate:,}/s", "stream", _FOUR, _at(rate)),),
        stretch=2,
    )


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
            Case("serial-8", "8, called one after another", "serial", "/mutate/sleeps-8", _ALONE),
        ),
    ),
    Group(
        "rate",
        "Open loop, 4 policies: latency from the moment at which the review was due",
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
        "floor-rate",
        "Open loop, the floor",
        Case("floor-full", "its highest rate, closed loop of 64 connections", "floor", FLOOR_PATH),
        (Case("floor-rate-50", "50 % of it, open loop", "floor", FLOOR_PATH, Load(share=0.5)),),
        rounds=4,
        is_paced=True,
    ),
    *map(_slow_rate, SLOW_RATES),
    Group(
        f"at-{FRONT_RATE}",
        f"The front end alone: open loop of {FRONT_RATE} reviews a second",
        Case("front", f"floor, {FRONT_RATE}/s", "floor", FLOOR_PATH, _at(FRONT_RATE)),
        (
            Case("front-busy", "floor, closed loop", "floor", FLOOR_PATH, _SOME),
            Case(
                "unmatched",
                f"gateway, no webhook matches, {FRONT_RATE}/s",
                *("stream", "/validate/unmatched", _at(FRONT_RATE)),
            ),
        ),
        stretch=2,
    ),
    Group(
        "real",
        "Real policies, workers in several languages, 16 connections",
        Case("floor-real", "floor, the same review", "floor", FLOOR_PATH, _REAL),
        tuple(_real(name, language) for language in POLICY_WORKERS.values() for name in SETS),
    ),
    Group(
        "documents",
        "ValidatingAdmissionPolicies of three validations, and MutatingAdmissionPolicies, 16 connections",
        Case("floor-documents", "floor, the same review", "floor", FLOOR_PATH, _REAL),
        (
            Case("documents-1", "1 policy", "documents-1", "/validate", _REAL),
            Case("documents-10", "10 policies", "documents-10", "/validate", _REAL),
            Case(
                "pod-security",
                "10 ValidatingPolicies of Kyverno for Pods",
                *("pod-security", "/validate", _REAL),
            ),
            Case(
                "documents-10-mutating",
                "10 MutatingAdmissionPolicies that each change the Pod",
                *("documents-10-mutating", "/mutate", _REAL),
                applied=MUTATING_DOCUMENTS,
            ),
            Case("bindings-5", "5 policies with a binding each", "bindings-5", "/validate", _REAL),
            Case(
                "bindings-100",
                "10 policies with 100 bindings, of which 5 match",
                *("bindings-100", "/validate", _REAL),
            ),
            *(
                _documented(count, POLICY_WORKERS[language])
                for language in DOCUMENTED_IN
                for count in (1, 10)
            ),
        ),
    ),
    Group(
        "churn",
        "A TLS handshake for each review, 16 at a time",
        Case("floor-fresh", "floor, full handshake", "floor", FLOOR_PATH, _FRESH),
        (
            Case("stream-1-fresh", "1 policy, full handshake", "stream", "/validate/policies-1", _FRESH),
            Case("stream-4-fresh", "4 policies, full handshake", "stream", _FOUR, _FRESH),
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
        "6 KB at a quarter of the highest rate, with and without large reviews beside them",
        Case("mixed-full", "highest rate of 6 KB, closed loop", "stream", _FOUR),
        (
            Case("pods", "6 KB alone", "stream", _FOUR, _PODS),
            Case("pods-beside-large", "6 KB, with 5 of 1 MiB a second", "stream", _FOUR, _PODS, _SOME_LARGE),
            Case(
                "pods-beside-updates",
                "6 KB, 100/s, with one client that sends updates of 6 MiB",
                *("stream", _FOUR, _FEW_PODS, _UPDATES),
            ),
            Case(
                "floor-pods-beside-updates",
                "floor, the same",
                *("floor", FLOOR_PATH, _FEW_PODS, _UPDATES),
            ),
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
        "decision-log",
        "Decision log, 4 policies that allow the request",
        Case("logs-none", "no decisions", "logs-None", "/validate/four"),
        (
            Case(
                "logs-denied",
                "denials and failures, of which there are none",
                "logs-Denied",
                "/validate/four",
            ),
            Case("logs-all", "all decisions", "logs-All", "/validate/four"),
        ),
        rounds=4,
    ),
    Group(
        "modes",
        "Modes of one of 4 policies, and a candidate beside it",
        Case("mode-enforce", "all enforced", "four", "/validate/four", _UIDS),
        (
            *(
                Case(
                    f"mode-{mode.lower()}", f"one in the mode {mode}", f"mode-{mode}", "/validate/four", _UIDS
                )
                for mode in MODES
            ),
            Case("mode-candidate", "a candidate for all reviews", "candidate", "/validate/four", _UIDS),
        ),
        rounds=4,
    ),
    Group(
        "recording",
        "Recordings, 4 policies that allow the request",
        Case("record-none", "no recording", "four", "/validate/four", _UIDS),
        (
            Case("record-bounded", "10 %, at most 100 a second", "recorded-100", "/validate/four", _UIDS),
            Case("record-10", "10 %, however many", "recorded-1000000", "/validate/four", _UIDS),
        ),
        rounds=4,
    ),
    Group(
        "tracing",
        "Traces, 4 policies",
        Case("trace-none", "no traces, and no traceparent", "four", "/validate/four"),
        (
            Case("trace-passed", "no traces, traceparent passed on", "four", "/validate/four", _NOT_SAMPLED),
            Case("trace-idle", "traces, no traceparent", "traced-0", "/validate/four"),
            Case("trace-unsampled", "traces, not sampled", "traced-0", "/validate/four", _NOT_SAMPLED),
            Case("trace-1-percent", "traces of 1 % of the reviews", "traced-10000", "/validate/four"),
            Case("trace-all", "traces of all reviews", "traced-1000000", "/validate/four"),
        ),
        rounds=4,
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
        Case("by-stream", "1 policy of a worker, stream", "stream", "/validate/policies-1", _SOME),
        (
            Case("by-https", "1 webhook over HTTPS", "https", "/validate/policies-1", _SOME),
            Case("by-https-4", "4 webhooks over HTTPS", "https", "/validate/policies-4", _SOME),
        ),
    ),
    Group(
        "conditions",
        "matchConditions, 4 policies",
        Case("unconditional", "4 policies without conditions", "conditional", "/validate/without"),
        (
            Case("by-request", "one condition about the request each", "conditional", "/validate/by-request"),
            Case("by-object", "that and two about the Pod each", "conditional", "/validate/by-object"),
            Case("left-out", "and 36 more whose condition is false", "conditional", "/validate/left-out"),
        ),
    ),
)
"""In the order of the report."""

CASES: Final = {case.name: case for group in GROUPS for case in (group.reference, *group.cases)}
