"""The soak with faults: its plan, its sums, and a short run in which everything adds up."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loadtest.lines import Found, judge
from loadtest.soak import main, parse
from loadtest.soak_faults import Plan, Ran, run
from loadtest.soak_load import Tally, wrong
from loadtest.soak_mix import KINDS, MAX_PAUSE_S, Planned, Requests, documents, planned
from loadtest.soak_processes import Held, Worker, held
from loadtest.soak_sums import Series, Sum, line, sums
from loadtest.soak_worker import ALLOWS, COUNTS_BYTES, DENIES, Counts, make_counts, read_counts

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from pathlib import Path

    from loadtest.soak_memory import Sample

BY_NAME = {kind.name: kind for kind in KINDS}
WHOLE = sum(kind.share for kind in KINDS)


# -- the plan -------------------------------------------------------------------------------------


@given(st.integers(0, 2**32), st.integers(0, 200))
def test_the_plan_follows_from_the_seed_alone(seed: int, count: int) -> None:
    plan = list(planned(seed, count))
    assert plan == list(planned(seed, count))
    assert [review.number for review in plan] == list(range(count))
    assert len({review.uid for review in plan}) == count
    for review in plan:
        assert 0 <= review.pause_s <= MAX_PAUSE_S
        assert bool(review.kind.leaves) or review == Planned(review.number, review.kind)


def test_a_twentieth_each_is_late_denied_and_left() -> None:
    def share(chosen: Callable[[str], bool]) -> float:
        return sum(kind.share for kind in KINDS if chosen(kind.name)) / WHOLE

    assert share(lambda name: BY_NAME[name].code == 403) == 0.05
    assert share(lambda name: name in ("late", "let-pass", "hurried")) == 0.05
    assert share(lambda name: bool(BY_NAME[name].leaves)) == 0.05


@given(st.floats(0, 1, exclude_max=True), st.sampled_from(KINDS))
def test_a_request_is_whole_unless_its_client_leaves_within(part: float, kind: Any) -> None:
    request = Requests("127.0.0.1:1")(Planned(7, kind, "FIN", 0.0, part))
    head, separator, body = request.partition(b"\r\n\r\n")
    length = head.partition(b"Content-Length: ")[2].partition(b"\r\n")[0]
    is_whole = bool(separator) and len(body) == int(length)
    assert is_whole == (kind.leaves != "within")
    assert request
    if is_whole:
        assert orjson.loads(body)["request"]["uid"] == "soak-0000000007"


def test_every_kind_has_a_configuration_object_of_its_own() -> None:
    found = [orjson.loads(text) for text in documents(["unix:/a", "unix:/b"]).split("\n---\n")]
    assert [document["metadata"]["name"] for document in found[1:]] == [kind.name for kind in KINDS]
    assert found[0]["spec"]["target"] == ["unix:/a", "unix:/b"]


# -- what clients take for right --------------------------------------------------------------------


def answer(uid: str, *, allowed: bool, code: int = 0, message: str = "") -> bytes:
    response: dict[str, Any] = {"uid": uid, "allowed": allowed}
    if code:
        response["status"] = {"code": code, "message": message}
    return orjson.dumps({"response": response})


@pytest.mark.parametrize(
    ("kind", "status", "body", "problem"),
    [
        ("allowed", 200, answer("soak-0000000001", allowed=True), ""),
        ("allowed", 200, answer("soak-0000000002", allowed=True), "the answer to another review"),
        ("allowed", 500, b'{"error": "no"}', "HTTP/1.1 500 X: {"),
        ("allowed", 200, b"[]", "not an AdmissionReview"),
        ("allowed", 200, answer("soak-0000000001", allowed=False, code=500), "allowed: False, code 500"),
        (
            "denied",
            200,
            answer("soak-0000000001", allowed=False, code=403, message="not in this soak"),
            "",
        ),
        ("denied", 200, answer("soak-0000000001", allowed=False, code=403), "allowed: False, code 403"),
        ("denied", 200, answer("soak-0000000001", allowed=True), "allowed: True, code 0"),
        ("changed", 200, answer("soak-0000000001", allowed=True), "allowed: True, code 0"),
        (
            "late",
            200,
            answer(
                "soak-0000000001",
                allowed=False,
                code=500,
                message="DEADLINE_EXCEEDED: no answer within 1s",
            ),
            "",
        ),
        (
            "late",
            200,
            answer("soak-0000000001", allowed=False, code=500, message="INTERNAL: x"),
            "allowed: F",
        ),
    ],
)
def test_an_answer_is_right_if_uid_verdict_and_text_are(
    kind: str, status: int, body: bytes, problem: str
) -> None:
    found = wrong(Planned(1, BY_NAME[kind]), b"HTTP/1.1 %d X\r\nA: b" % status, body)
    assert found.startswith(problem)
    assert bool(found) == bool(problem)


# -- the sums ---------------------------------------------------------------------------------------

counts = st.integers(0, 50)
worlds = st.fixed_dictionaries(
    {kind.name: counts for kind in KINDS}
    | {"unread": counts, "lost": counts, "doubled": counts, "given up": counts, "refused": counts}
)


def world(found: Mapping[str, int]) -> tuple[Tally, dict[str, int], tuple[int, int]]:
    """Return what clients, the gateway and workers count when all is well, after *found* reviews by kind."""
    tally = Tally()
    withdrawn = found["left"]
    answered = {kind.name: found[kind.name] for kind in KINDS if not kind.leaves}
    tally.answered.update(answered)
    tally.left["left"] = found["left"] + found["unread"]
    tally.broken_off["broken-off"] = found["broken-off"]
    tally.refused["allowed"] = found["refused"]
    tally.sent.update(answered)
    tally.sent["left"] += tally.left["left"]
    tally.sent["allowed"] += found["refused"]
    answered["left"] = found["unread"]
    late = sum(answered[name] for name in ("late", "hurried", "let-pass", "left"))
    given_up = min(found["given up"], late)
    verdicts = answered["allowed"] + answered["changed"] + 2 * answered["denied"]
    refusing = answered["denied"] + answered["late"] + answered["hurried"] + answered["left"]
    review = 'review_duration_seconds_count{type="%s",operation="CREATE",allowed="%s"}'
    webhook = 'webhook_requests_total{name="w",type="validating",operation="CREATE",code="%s",rejected="x"}'
    call = 'worker_calls_total{pool="p",endpoint="e",code="%s"}'
    rejection = 'webhook_rejections_total{name="w",error_type="%s"}'
    series = {
        review % ("admit", "true"): answered["changed"],
        review % ("validating", "true"): answered["allowed"] + answered["let-pass"],
        review % ("validating", "false"): refusing,
        'reviews_withdrawn_total{type="validating"}': withdrawn,
        'requests_refused_total{code="503"}': found["refused"],
        "reviews_in_flight": 0,
        webhook % 200: verdicts - answered["denied"],
        webhook % 403: answered["denied"],
        webhook % 503: given_up,
        webhook % 504: late - given_up,
        "webhook_admission_duration_seconds_count": verdicts + late,
        rejection % "no_error": answered["denied"],
        rejection % "calling_webhook_error": refusing - answered["denied"],
        'webhook_fail_open_total{name="w"}': answered["let-pass"],
        call % "OK": verdicts,
        call % "DEADLINE_EXCEEDED": late - given_up + found["doubled"],
        call % "CANCELLED": withdrawn,
        call % "UNAVAILABLE": given_up + found["lost"],
        'worker_retries_total{pool="p"}': found["lost"] + found["doubled"],
        'worker_hedges_total{pool="p"}': 0,
    }
    return tally, series, (verdicts + late, verdicts)


def exposition(series: Mapping[str, int]) -> Series:
    """Return a scrape of *series*, each as a gauge so that its name is taken as it is."""
    return Series("".join(f"admission_gateway_{name} {value}\n" for name, value in series.items()))


@given(worlds)
def test_when_all_is_well_every_sum_is_right(found: dict[str, int]) -> None:
    tally, series, workers = world(found)
    assert [sum_ for sum_ in sums(exposition(series), tally, workers) if sum_.off] == []


@given(worlds, st.data())
def test_a_count_that_is_off_by_one_shows(found: dict[str, int], data: st.DataObject) -> None:
    tally, series, workers = world(found)
    name = data.draw(st.sampled_from(sorted(series)))
    series[name] += data.draw(st.sampled_from([1, -1] if series[name] else [1]))
    assert [sum_ for sum_ in sums(exposition(series), tally, workers) if sum_.off]


@given(worlds)
def test_a_verdict_that_no_worker_gave_shows(found: dict[str, int]) -> None:
    tally, series, (seen, said) = world(found)
    assert [sum_ for sum_ in sums(exposition(series), tally, (seen, said - 1)) if sum_.off]
    made = sum(value for name, value in series.items() if name.startswith("worker_calls"))
    assert [sum_ for sum_ in sums(exposition(series), tally, (made + 1, said)) if sum_.off]


def test_a_sum_is_judged_by_how_much_it_is_off() -> None:
    exact, bounded = Sum("a; b", 7, 8), Sum("c; d", 7, 8, may_be_less=True)
    results = judge(
        [line(exact), line(bounded)], Found((), {exact.text: exact.off, bounded.text: bounded.off})
    )
    assert [(result.verdict, result.remark) for result in results] == [
        ("FAIL", "7, the same as 8"),
        ("pass", "7, no more than 8"),
    ]


def test_descriptors_and_threads_that_stay_are_judged() -> None:
    tally = Tally(answered=Counter(allowed=10))
    began, ended = {"the gateway": Held(10, 2)}, {"the gateway": Held(11, 2)}
    ran = Ran(tally, [], {}, began, ended, "")
    results = judge(ran.lines(10), Found((), ran.numbers()))
    assert {result.line.text: result.verdict for result in results if result.verdict != "pass"} == {
        "descriptors of the gateway at the end, beyond those at the start": "FAIL"
    }


HOLDER = """\
import socket, sys, threading
print(flush=True)
sys.stdin.readline()
held = socket.socket()
threading.Thread(target=sys.stdin.read).start()
print(flush=True)
"""


@pytest.mark.slow
def test_what_a_process_holds_is_counted() -> None:
    command = [sys.executable, "-c", HOLDER]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdin is not None
        assert child.stdout is not None
        child.stdout.readline()
        before = held(child.pid)
        print(file=child.stdin, flush=True)
        child.stdout.readline()
        assert held(child.pid) == Held(before.descriptors + 1, before.threads + 1)


def test_a_tally_is_read_as_it_is_printed() -> None:
    tally = Tally(sent=Counter(allowed=3), connections=2)
    assert Tally.read(orjson.loads(orjson.dumps(tally))) == tally


# -- the worker -------------------------------------------------------------------------------------


def test_what_was_counted_outlives_who_counted(tmp_path: Path) -> None:
    path = tmp_path / "counts"
    make_counts(path)
    assert path.stat().st_size == COUNTS_BYTES
    assert read_counts(path) == (0, 0)
    for _ in range(2):
        counts = Counts(path)
        counts.seen(ALLOWS)
        counts.answered(ALLOWS)
        counts.seen(DENIES)
    assert read_counts(path) == (4, 2)


@pytest.mark.slow
def test_a_worker_that_is_cut_lives_on_and_one_that_is_killed_is_back(tmp_path: Path) -> None:
    worker = Worker(0, tmp_path)
    with ExitStack() as stack:
        stack.callback(worker.stop)
        worker.start()
        first = worker.pid

        def connect() -> socket.socket:
            connection = stack.enter_context(socket.socket(socket.AF_UNIX))
            connection.settimeout(10)
            connection.connect(worker.target.removeprefix("unix:"))
            assert connection.recv(1)  # HTTP/2: the server speaks first
            return connection

        connection = connect()
        worker.suffer("cut")
        while connection.recv(4096):
            pass
        connect()
        assert worker.pid == first
        for fault in ("killed", "stopped"):
            before = worker.pid
            worker.suffer(fault)
            assert worker.pid != before
            with pytest.raises(ProcessLookupError):
                os.kill(before, signal.SIGCONT)
            connect()


# -- short runs -------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(("processes", "hedge_after"), [(1, ""), (1, "20ms"), (2, "")])
def test_everything_adds_up_in_a_run_with_faults(processes: int, hedge_after: str) -> None:
    samples: list[Sample] = []
    plan = Plan(3000, 60.0, 48, seed=processes, processes=processes, hedge_after=hedge_after, steps=6)
    ran = run(plan, samples.append)
    assert not ran.tally.wrong, ran.log[-4000:]
    assert [sum_ for sum_ in ran.sums if sum_.off] == []
    assert ran.ended.keys() == ran.began.keys()
    assert all(ended.is_within(ran.began[name]) for name, ended in ran.ended.items()), (ran.began, ran.ended)
    assert ran.tally.ended == plan.count
    assert ran.tally.sent.total() + ran.tally.broken_off.total() == plan.count
    assert ran.faults["cut"]
    # Every kind of review was there, and every way of leaving.
    assert {kind.name for kind in KINDS} == {
        name for counter in (ran.tally.answered, ran.tally.left, ran.tally.broken_off) for name in counter
    }
    assert set(ran.tally.goodbyes) == {"close_notify", "FIN", "RST"}
    assert len(samples) == 7


@pytest.mark.slow
def test_the_report_of_a_run_with_faults_says_what_was_done_and_found(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    output = tmp_path / "found.md"
    # Its status says whether targets are met, and memory has no time to settle.
    main(["--faults", "--count", "300", "--clients", "16", "--output", str(output)])
    text = output.read_text()
    for part in (
        "- 16 clients, seed 0, 1 process\n",
        "| hurried    | never",
        "workers: ",
        "pass: 300 of 300",
    ):
        assert part in text
    assert "reviews: answered, withdrawn or refused; sent: off by" in capsys.readouterr().out
    assert (tmp_path / "found-memory.svg").exists()


def test_with_faults_there_are_half_as_many_reviews_and_another_report() -> None:
    plain, faulty = parse([]), parse(["--faults"])
    assert (plain.count, faulty.count) == (1_000_000, 500_000)
    assert plain.output.name.endswith("-soak.md")
    assert faulty.output.name.endswith("-soak-faults.md")
