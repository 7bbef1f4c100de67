"""Faults of workers, retries, ejection, drain and deadlines: each behaviour as a row, in virtual time."""

from __future__ import annotations

from typing import Final

import pytest

from gateway.config.kinds.worker_pool import Hedge
from tests.simulation.rows import Row, W, check, reviews

SLOW: Final = {"delay_ms": 50}
SOME: Final = {"side_effects": "Some"}
ON_DRY_RUN: Final = {"side_effects": "NoneOnDryRun"}
BROKEN: Final = {"status": "INTERNAL", "details": "always"}
ALWAYS: Final = "500 INTERNAL: always"
RESET: Final = "503 UNAVAILABLE: (connection to the worker lost: .* reset|Connection reset by peer)"
REFUSED: Final = "503 UNAVAILABLE: .*Connection refused"
LATE_1: Final = "504 DEADLINE_EXCEEDED: no answer within 1s"
HANGS: Final = W(override={"hang": True})
OK: Final = W()


def crash(at: float, for_s: float = 99.0) -> W:
    """A worker that is lost: its process ends."""
    return W(faults=((at, "crash", for_s),))


def stop(at: float, for_s: float = 99.0) -> W:
    """A worker that is stopped: its connections stay open."""
    return W(faults=((at, "stop", for_s),))


LOST = [
    Row(
        what="a call of a worker that is lost is answered by another",
        workers=[crash(0.02), OK],
        scripts=[SLOW],
        called="12a",
        ms=[70],
        codes={"UNAVAILABLE": 1, "OK": 1},
        retries=1,
    ),
    *(
        Row(
            what=f"a call with sideEffects {effects['side_effects']} is not repeated when its worker is lost",
            workers=[crash(0.02), OK],
            scripts=[{**SLOW, **effects}],
            called="1f",
            ms=[20],
            codes={"UNAVAILABLE": 1},
            retries=0,
            causes=[RESET],
        )
        for effects in (SOME, ON_DRY_RUN)
    ),
    Row(
        what="a call in the mode Shadow is not repeated",
        workers=[crash(0.02), OK],
        scripts=[{**SLOW, "mode": "Shadow"}],
        called="1f",
        retries=0,
        causes=[RESET],
    ),
    Row(
        what="a call that crashes two workers is not sent to a third",
        workers=[OK, OK, OK],
        scripts=[{"exit": True}],
        called="12f",
        ms=[0],
        codes={"UNAVAILABLE": 2},
        retries=1,
        causes=[RESET],
        states=[(0.1, "down down ready")],
    ),
    Row(
        what="a worker that is lost costs no review, and is called again when it is back",
        workers=[crash(0.24, 1.0), OK],
        scripts=[SLOW],
        at=[0.0, 0.1, 0.2, 0.3, 0.4, 3.0, 3.1],
        called="2*1a 12a 2*2a 2*1a",
        retries=1,
    ),
    Row(
        what="a worker that vanishes costs no review",
        workers=[W(faults=((0.02, "vanish", 60.0),)), OK],
        scripts=[SLOW],
        at=reviews(10, 1.003),
        called="12a 9*2a",
        retries=1,
        states=[(9.0, "stalled ready")],
    ),
    *(
        Row(
            what=f"without workers failurePolicy {policy} decides, until they are back",
            workers=[crash(0.24, 1.0), crash(0.24, 1.0)],
            scripts=[{"failure_policy": policy}],
            at=[0.0, 0.1, 0.5, 0.7, 0.9, 3.0, 3.1],
            called="2*1a 3*f 2*1a",
            causes=[REFUSED],
            states=[(0.6, "down down"), (3.2, "ready ready")],
        )
        for policy in ("Fail", "Ignore")
    ),
]

STOPPED = [
    Row(
        what="a call of a stopped worker is answered by another, until the worker resumes",
        workers=[stop(0.02, 9.0), OK],
        # No check of the gateway is at half of the time.
        scripts=[{**SLOW, "timeout_s": 6.1}],
        at=[0.0, 4.03, 4.15, 10.03],
        called="12a 2*2a 1a",
        ms=[3150, 50],
        codes={"CANCELLED": 1, "OK": 4},
        retries=1,
        states=[
            (2.95, "ready ready"),
            (3.15, "stalled ready"),
            (8.95, "stalled ready"),
            (9.25, "ready ready"),
        ],
    ),
    *(
        Row(
            what=f"a call with sideEffects {effects['side_effects']} of a stopped worker ends at its timeout",
            workers=[stop(0.02), OK],
            scripts=[{**SLOW, **effects, "timeout_s": 2}],
            at=[0.0, 1.5],
            called="1f 2a",
            ms=[2000, 50],
            retries=0,
            causes=["504 DEADLINE_EXCEEDED: no answer within 2s"],
        )
        for effects in (SOME, ON_DRY_RUN)
    ),
    Row(
        what="a slow answer does not make a worker stalled",
        workers=[OK, OK],
        scripts=[{"delay_ms": 3500, "timeout_s": 6}],
        called="1a",
        ms=[3500],
        codes={"OK": 1},
        retries=0,
        states=[(3.1, "ready ready"), (3.4, "ready ready")],
    ),
    Row(
        what="of two workers that stop only one is taken out",
        workers=[stop(0.02), stop(0.02)],
        scripts=[{**SLOW, "timeout_s": 6}],
        at=[0.0, 0.01],
        ms=[6000],
        states=[(5.9, "stalled ready")],
        causes=["504 DEADLINE_EXCEEDED: no answer within 6s"],
    ),
]

FAILING = [
    Row(
        what="a worker that always fails is ejected, for longer each time",
        workers=[W(override=BROKEN), OK],
        at=reviews(200),
        called="5*1f 20*2a 1f 39*2a 1f 78*2a 1f 55*2a",
        ms=[0],
        codes={"INTERNAL": 8, "OK": 192},
        retries=0,
        causes=[ALWAYS],
        states=[(0.45, "ready ready"), (1, "ejected ready"), (2.6, "ready ready"), (3, "ejected ready")],
    ),
    Row(
        what="a worker that always fails is ejected for a minute at most",
        workers=[W(override=BROKEN), OK],
        transports=["Unary"],
        at=reviews(260, 1.003),
        called="5*1f 2*2a 1f 4*2a 1f 8*2a 1f 16*2a 1f 32*2a 1f 60*2a 1f 60*2a 1f 60*2a 1f 5*2a",
        causes=[ALWAYS],
    ),
    Row(
        what="another worker at the address of an ejected one is called at once",
        workers=[W(override=BROKEN, replaced=((1.0, {}),)), OK],
        transports=["Stream"],
        at=reviews(20),
        called="5*1f 5*2a 10*1a",
        causes=[ALWAYS],
        states=[(0.9, "ejected ready"), (1.1, "ready ready")],
    ),
    Row(
        what="at most half of the workers are ejected",
        workers=[W(override=BROKEN), W(override=BROKEN), OK],
        at=reviews(60, 0.053),
        called="6*1f 38*2f 16*1f",
        causes=[ALWAYS],
        states=[(1.0, "ejected ready ready"), (2.0, "ejected ready ready")],
    ),
    Row(
        what="of two workers that fail only one is ejected",
        workers=[W(override=BROKEN), W(override=BROKEN)],
        at=reviews(60),
        called="5*1f 20*2f 21*1f 14*2f",
        causes=[ALWAYS],
        states=[(1.0, "ejected ready"), (2.4, "ejected ready"), (3.0, "ready ejected")],
    ),
    Row(
        what="the only worker is not ejected",
        workers=[W(override=BROKEN)],
        at=reviews(20),
        called="20*1f",
        causes=[ALWAYS],
        states=[(1.5, "ready")],
    ),
    *(
        Row(
            what=f"{status} does not eject",
            workers=[W(override={"status": status}), OK],
            at=reviews(20),
            called="20*1f",
            causes=[cause],
            states=[(1.5, "ready ready")],
        )
        for status, cause in (
            ("CANCELLED", "499 CANCELLED"),
            ("RESOURCE_EXHAUSTED", "429 RESOURCE_EXHAUSTED"),
        )
    ),
    Row(
        what="timeouts eject a worker that answers nothing",
        workers=[HANGS, OK],
        scripts=[{"timeout_s": 1}],
        at=reviews(8, 1.103),
        called="5*1f 2*2a 1f",
        causes=[LATE_1],
        states=[(5.6, "ejected ready")],
    ),
    Row(
        what="timeouts of one policy do not eject a worker that answers others",
        workers=[OK, OK],
        scripts=[{"hang": True, "timeout_s": 1}, {}],
        at=reviews(8, 1.103),
        called="8*11fa",
        causes=[LATE_1],
        states=[(5.6, "ready ready")],
    ),
]

HEALTH = [
    Row(
        what="a worker that reports NOT_SERVING answers its calls, and gets no new ones meanwhile",
        workers=[W(health=True, faults=((0.22, "unwell", 0.5), (1.0, "unwell", 0.3))), W(health=True)],
        scripts=[SLOW],
        at=reviews(15),
        called="3*1a 5*2a 2*1a 3*2a 2*1a",
        retries=0,
        states=[
            (0.3, "unhealthy ready"),
            (0.8, "ready ready"),
            (1.1, "unhealthy ready"),
            (1.4, "ready ready"),
        ],
    ),
    Row(
        what="workers that all report NOT_SERVING are still called",
        workers=[W(health=True, faults=((0.1, "unwell", 9.0),))] * 2,
        at=reviews(5),
        called="5*1a",
        states=[(0.3, "unhealthy unhealthy")],
    ),
    Row(
        what="the health of the only worker is not asked for",
        workers=[W(health=True, faults=((0.1, "unwell", 9.0),))],
        at=reviews(5),
        called="5*1a",
        states=[(0.3, "ready")],
    ),
    Row(
        what="the report of a worker ends with it",
        workers=[W(health=True, faults=((0.05, "unwell", 9.0), (0.2, "crash", 0.1))), W(health=True)],
        at=[0.0, 0.1, 2.0, 2.1],
        called="1a 2a 2*1a",
        states=[(0.1, "unhealthy ready"), (2.0, "ready ready")],
    ),
]

HEDGE: Final = {"hedge": Hedge(0.1, 50.0, 50.0)}
HEDGED = [
    Row(
        what="a hedge answers instead of a slow worker, which is notified",
        workers=[HANGS, OK],
        pool=HEDGE,
        at=reviews(3, 1.003),
        called="3*12a",
        codes={"OK": 3, "CANCELLED": 3},
        hedges=3,
        retries=0,
        cancelled=(3, 0),
    ),
    Row(
        what="hedges stay within the budget",
        workers=[W(override={"delay_ms": 200}), OK],
        pool={"hedge": Hedge(0.02, 50.0, 5.0)},
        at=reviews(50, 1.003),
        called="5*12a 16*1a 12a 18*1a 12a 9*1a",
        hedges=7,
    ),
    Row(
        what="without a fixed time a call is hedged that takes longer than the percentile of others",
        workers=[W(override={"delay_ms": 300}, every=120), OK],
        pool={"hedge": Hedge(None, 95.0, 50.0)},
        scripts=[{"delay_ms": [1, 10]}],
        at=reviews(130),
        called="119*1a 12a 10*1a",
        hedges=1,
    ),
    Row(
        what="a review of many calls may overdraw the budget of hedges, which is repaid",
        workers=[HANGS, OK],
        pool={"hedge": Hedge(0.02, 95.0, 5.0)},
        scripts=[{"timeout_s": 3}] * 8,
        at=[0.0, 5.0],
        called="1111111122222222aaaaaaaa 11111111ffffffff",
        hedges=8,
        causes=["504 DEADLINE_EXCEEDED: no answer within 3s"],
    ),
    *(
        Row(
            what=f"a call with sideEffects {effects['side_effects']} is not hedged",
            workers=[W(override={"delay_ms": 300}), OK],
            pool=HEDGE,
            scripts=[effects],
            called="1a",
            ms=[300],
            hedges=0,
        )
        for effects in (SOME, ON_DRY_RUN)
    ),
    Row(
        what="of calls that were sent together only those without side effects are hedged",
        workers=[HANGS, OK],
        pool=HEDGE,
        scripts=[{}, {**SOME, "timeout_s": 1}],
        called="112af",
        hedges=1,
        codes={"OK": 1, "CANCELLED": 1, "DEADLINE_EXCEEDED": 1},
        causes=[LATE_1],
    ),
    Row(
        what="a hedge that fails does not end the call",
        workers=[W(override={"delay_ms": 300}), W(override=BROKEN)],
        pool=HEDGE,
        called="12a",
        ms=[300],
        hedges=1,
        codes={"OK": 1, "INTERNAL": 1},
    ),
]

WRONG = [
    *(
        Row(
            what=f"an answer that is wrong affects only its own webhook: {name}",
            transports=["Stream"],
            workers=[OK],
            scripts=[{**fault, "timeout_s": 1}, {"delay_ms": 20}],
            at=reviews(3, 2.0),
            called=f"3*{called}",
            streams=(streams,),
            causes=causes,
        )
        for name, fault, called, streams, causes in (
            ("twice", {"twice": True}, "11aa", 4, []),
            ("an unknown id", {"wrong_id": True}, "11fa", 4, [LATE_1]),
            ("another's id", {"others_id": True}, "11fa", 4, [LATE_1]),
            # All calls of the stream are repeated, each by a unary call of its own.
            ("garbage", {"garbage": True}, "1111fa", 4, ["503 malformed answer: no ReviewResponse"]),
            (
                "no outcome",
                {"empty": True},
                "11fa",
                1,
                ["503 malformed answer: a verdict without an outcome"],
            ),
            ("the end", {"end": True}, "1111aa", 4, []),
            ("flood", {"flood": True}, "111aa", 4, []),
        )
    ),
    Row(
        what="a worker that floods is not connected again at once, later and later",
        workers=[W(override={"flood": True}), OK],
        transports=["Stream"],
        at=reviews(100),
        called="7*1a 18*2a 1a 19*2a 1a 54*2a",
        streams=(9, 1),
        states=[(1.0, "draining ready"), (6.0, "draining ready"), (9.0, "draining ready")],
    ),
    Row(
        what="while the only worker gets no stream its calls are unary",
        workers=[W(override={"flood": True})],
        transports=["Stream"],
        at=reviews(100),
        called="100*1a",
        ms=[0],
        streams=(9,),
    ),
    Row(
        what="a verdict with the id of another call affects no other worker",
        workers=[W(override={"others_id": True}), OK],
        transports=["Stream"],
        scripts=[{"timeout_s": 1}, {"delay_ms": 20, "timeout_s": 1}],
        at=reviews(4, 0.01),
        called="11fa 22aa 11fa 22aa",
        causes=[LATE_1],
    ),
    Row(
        what="an answer after the timeout is no fault",
        workers=[OK],
        transports=["Stream"],
        scripts=[{"stubborn": True, "delay_ms": 1500, "timeout_s": 1}, {"delay_ms": 20}],
        at=reviews(3, 2.0),
        called="3*11fa",
        streams=(1,),
        causes=[LATE_1],
    ),
]

FULL: Final = (
    r"429 RESOURCE_EXHAUSTED: worker pool pool: 2 calls are in flight on each endpoint \(maxInFlight\)"
)
DEADLINES = [
    Row(
        what="a call fails at the timeout of its webhook, and its worker is notified",
        workers=[OK],
        scripts=[{"hang": True, "timeout_s": 1}, {"delay_ms": 900, "timeout_s": 2}],
        called="11fa",
        ms=[1000],
        codes={"DEADLINE_EXCEEDED": 1, "OK": 1},
        cancelled=(1,),
        causes=[LATE_1],
    ),
    *(
        Row(
            what=f"a call fails at the deadline of its review, failurePolicy {policy}",
            workers=[OK],
            scripts=[{"hang": True, "timeout_s": 30, "failure_policy": policy}],
            options={"budget_s": 2.0},
            called="1f",
            ms=[2000],
            cancelled=(1,),
            causes=["504 DEADLINE_EXCEEDED: no answer within 2s"],
        )
        for policy in ("Fail", "Ignore")
    ),
    Row(
        what="a review past its deadline makes no call",
        workers=[OK],
        scripts=[{}, {}],
        options={"budget_s": 0.0},
        called="ff",
        ms=[0],
        causes=["504 DEADLINE_EXCEEDED: no answer within 0s"],
    ),
    Row(
        what="the calls of one review that are above maxInFlight fail at once",
        workers=[OK],
        pool={"max_in_flight": 2},
        scripts=[{"delay_ms": 20}] * 3,
        called="11aaf",
        codes={"OK": 2},
        causes=[FULL],
    ),
    Row(
        what="calls above maxInFlight fail at once",
        workers=[OK],
        pool={"max_in_flight": 2},
        scripts=[{"hang": True, "timeout_s": 3}],
        at=[0.0, 0.1, 0.2, 0.3],
        called="2*1f 2*f",
        ms=[3000, 0],
        causes=["504 DEADLINE_EXCEEDED: no answer within 3s", FULL],
    ),
]

CALLS_AHEAD = [
    Row(
        what="a call ahead of its turn without room is made in its turn",
        workers=[OK],
        pool={"max_in_flight": 1},
        scripts=[{}, {"label": "a"}, {}, {"deny": {"message": "no"}}],
        options={"phase": "mutate"},
        called="1111aaad",
        codes={"OK": 4},
    ),
    Row(
        what="withdrawn calls make room before new calls",
        workers=[OK],
        pool={"max_in_flight": 3},
        scripts=[{"label": "a"}, {"delay_ms": 100}, {"delay_ms": 100}],
        options={"phase": "mutate"},
        called="11111aaa",
        codes={"OK": 3, "CANCELLED": 2},
    ),
]

DRAIN = [
    *(
        Row(
            what=f"a worker that drains{how} answers its calls, and gets new ones on another connection",
            workers=[W(faults=((0.15, fault, 0.0),))],
            transports=["Stream"],
            scripts=[{"delay_ms": 300}],
            at=reviews(8),
            called="8*1a",
            ms=[300],
            retries=0,
            streams=(2,),
        )
        for fault, how in (("drain", ""), ("goaway", " by GOAWAY"))
    ),
    Row(
        what="each drain notice of a worker replaces the connection",
        workers=[OK],
        transports=["Stream"],
        scripts=[{"drain": True}],
        at=reviews(12, 1.0),
        called="12*1a",
        streams=(13,),
    ),
    Row(
        what="a worker that drains gets no calls while another is ready",
        workers=[W(faults=((0.15, "refuse", 2.0), (0.15, "drain", 0.0))), OK],
        transports=["Stream"],
        scripts=[{"delay_ms": 40}],
        at=reviews(8),
        called="2*1a 6*2a",
    ),
    Row(
        what="workers that drain and end one after another cost no review",
        workers=[
            W(faults=((0.52, "refuse", 2.0), (0.52, "drain", 0.0), (1.4, "farewell", 0.2))),
            W(faults=((4.52, "refuse", 2.0), (4.52, "drain", 0.0), (5.4, "farewell", 0.2))),
        ],
        transports=["Stream"],
        scripts=[SLOW],
        at=reviews(100),
        called="6*1a 15*2a 79*1a",
        ms=[50],
        retries=0,
    ),
]

NAMES = [
    Row(
        what="a name is looked up every five seconds, and workers come and go with it",
        workers=[OK, OK],
        members=[(0.0, (1,)), (1.0, (2,)), (8.0, (1, 2))],
        at=reviews(20, 1.0, 0.5),
        called="4*1a 5*2a 11*1a",
        states=[(0.5, "ready"), (14, "ready ready")],
    ),
    Row(
        what="a name that cannot be looked up keeps its addresses",
        workers=[OK],
        members=[(0.0, (1,)), (1.0, None)],
        at=reviews(10, 1.003),
        called="10*1a",
    ),
    Row(
        what="a pool without endpoints looks its name up twice a second",
        workers=[OK],
        members=[(0.0, None), (1.0, (1,))],
        at=[0.9, 1.7, 1.8],
        called="f 2*1a",
        causes=["503 UNAVAILABLE: worker pool pool: pool.test:1 cannot be resolved: Temporary .*"],
    ),
    Row(
        what="calls in flight of a worker that is gone from the name are answered",
        workers=[OK, OK],
        members=[(0.0, (1,)), (0.5, (2,))],
        scripts=[{"delay_ms": 8000}],
        at=[0.0, 7.0],
        called="1a 2a",
        ms=[8000],
        retries=0,
    ),
    Row(
        what="a new configuration replaces the workers, and calls in flight are answered",
        workers=[OK, OK, OK],
        targets=[(0.0, (1, 2)), (0.55, (3,))],
        scripts=[{"delay_ms": 100}],
        at=reviews(10),
        called="6*1a 4*3a",
        ms=[100],
        retries=0,
    ),
    Row(
        what="the less loaded worker is called",
        workers=[OK, OK],
        scripts=[{"delay_ms": 100}],
        at=reviews(10, 0.01),
        called="1a 2a 1a 2a 1a 2a 1a 2a 1a 2a",
    ),
]
ROWS = [*LOST, *STOPPED, *FAILING, *HEALTH, *HEDGED, *WRONG, *DEADLINES, *CALLS_AHEAD, *DRAIN, *NAMES]


@pytest.mark.parametrize(
    ("row", "transport"),
    [
        pytest.param(row, transport, id=f"{row.what}, {transport}")
        for row in ROWS
        for transport in row.transports
    ],
)
def test_row(row: Row, transport: str) -> None:
    check(row, transport)
