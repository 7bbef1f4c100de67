"""Which reviews are recorded, and what their lines have."""

from __future__ import annotations

import asyncio
import logging
import random
import uuid
from typing import TYPE_CHECKING, Any

import orjson
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from admission_gateway_worker.json_patch.patch import apply_patch
from gateway.config.kinds.record_settings import RecordSettings, RedactionRule
from gateway.observe.decisions import writer
from gateway.observe.recording import recorder, sampling
from gateway.observe.recording.lines import ReviewLines
from gateway.observe.recording.reader import Reading, read_recording
from gateway.observe.recording.recorder import Recorder
from gateway.observe.recording.redaction import Marks
from gateway.observe.recording.sampling import Sampling
from gateway.observe.telemetry.metrics import RecordingCounts
from gateway.pure.core.decision import PLAIN_ALLOWED
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.verdict import Denied, Failed, FailureReason
from tests.core.build import add, patch, request, webhook
from tests.decisions.kit import answer
from tests.decisions.test_redaction import CANARY, ENCODED, secret
from tests.kit import PATIENCE_S
from tests.waiting import until

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.pure.core.answer import Answer

HOOKS = [webhook("a.policies.test"), webhook("b.policies.test")]


@pytest.fixture(autouse=True)
def _the_end_waits_for_all_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(recorder, "CLOSE_S", PATIENCE_S)


def record(
    folder: Path, *answers: Answer, counts: RecordingCounts | None = None, **members: Any
) -> list[Any]:
    """Record *answers*, and return the lines of the reviews."""
    counts = counts or RecordingCounts()

    async def main() -> None:
        under_test = Recorder(counts)
        under_test.activate(RecordSettings(folder, **{"sample_percent": 100.0, **members}))
        observer = under_test.observer("d1")
        assert observer is not None
        for one in answers:
            observer.review_answered(one, 0.0015)
        # It waits for the lines that are being made.
        await under_test.close()
        assert counts.recorded + sum(counts.dropped.values()) == len(answers)

    asyncio.run(main())
    return [line for path in sorted(folder.iterdir()) for line in read_recording(path, Reading())]


def test_a_line_has_the_request_as_it_came_and_its_answer(tmp_path: Path) -> None:
    review = request(name="web", userInfo={"username": "ann"})
    (line,) = record(tmp_path, answer(webhooks=HOOKS, review=review))
    assert line["request"] == orjson.loads(review.json)
    assert line["webhooks"] == [
        {"configuration": "policies", "webhook": hook.name, "outcome": "Allowed", "milliseconds": 0.0}
        for hook in HOOKS
    ]
    expected = {
        "digest": "d1",
        "path": "/mutate",
        "phase": "mutate",
        "sampled": True,
        "allowed": True,
        "code": 200,
        "message": "",
        "warnings": [],
        "redacted": False,
        "namespace": None,
        "milliseconds": 1.5,
    }
    assert {name: line[name] for name in expected} == expected


@given(
    st.integers(1, 3),
    st.sampled_from(["web", "ünï", 'a"b\\', ""]),
    st.floats(0, 30),
    st.booleans(),
)
def test_the_line_of_an_allowed_review_is_that_of_the_general_form(
    number: int, name: str, elapsed_s: float, is_sampled: bool
) -> None:
    hooks = [webhook(f"{letter}.policies.test") for letter in "abc"[:number]]
    given_answer = answer(webhooks=hooks, review=request(name=name))._replace(decision=PLAIN_ALLOWED)
    for outcome in given_answer.evaluation.outcomes:
        assert outcome.call is not None
        outcome.call.elapsed_s = elapsed_s
    made = ReviewLines(Marks(b"key"), lambda kind: (), "d1")
    expected = made.plain(given_answer, made.head(given_answer, elapsed_s, 1.5, is_sampled=is_sampled))
    assert expected is not None
    for _ in range(2):  # without and with cached parts
        found = made.allowed(given_answer, elapsed_s, 1.5, is_sampled=is_sampled)
        assert found is not None
        assert list(orjson.loads(found).items()) == list(orjson.loads(expected).items())


def test_a_denial_a_failure_and_a_warning_are_recorded(tmp_path: Path) -> None:
    denied = answer({"b.policies.test": Denied(403, message="no", warnings=("old\napi", "soon"))}, HOOKS)
    failed = answer({"b.policies.test": Failed(FailureReason.STATUS, "UNAVAILABLE: gone")}, HOOKS)
    first, second = record(tmp_path, denied, failed)
    assert (first["allowed"], first["code"], first["message"]) == (
        False,
        403,
        "b.policies.test: no",
    )
    assert first["warnings"] == ["soon"]
    assert first["webhooks"][1]["message"] == "no"
    assert second["webhooks"][1]["outcome"] == "FailedClosed"
    assert second["webhooks"][1]["message"] == "UNAVAILABLE: gone"


@pytest.mark.parametrize("value", ["b", "--token=abcdef"])
def test_the_changes_of_webhooks_lead_to_the_object_that_they_left(tmp_path: Path, value: str) -> None:
    answers = {
        "a.policies.test": patch(add("/metadata/labels/x", value)),
        "b.policies.test": patch(add("/metadata/labels/y", "c"), {"op": "remove", "path": "/spec"}),
    }
    both = answer(answers, HOOKS)
    one = answer({"a.policies.test": answers["a.policies.test"]}, HOOKS)
    for line, of in zip(record(tmp_path, one, both), (one, both), strict=True):
        found = line["request"]["object"]
        for hook in line["webhooks"]:
            found = apply_patch(found, hook.get("patch", []))
        expected = of.evaluation.final_object
        assert expected is not None
        if value == "b":
            assert found == expected
            assert not line["redacted"]
        else:
            assert found["metadata"]["labels"]["x"].startswith("--token=redacted-")
            assert line["redacted"]


def test_the_namespace_is_recorded_as_it_was_matched(tmp_path: Path) -> None:
    one = answer(webhooks=HOOKS)
    document = {"metadata": {"name": "default", "labels": {"team": "a"}, "annotations": {"password": CANARY}}}
    one.evaluation.namespace = Namespace("default", {"team": "a"}, orjson.dumps(document))
    first, second = record(tmp_path, one, one)
    assert first["namespace"]["metadata"]["labels"] == {"team": "a"}
    assert first["namespace"]["metadata"]["annotations"]["password"].startswith("redacted-")
    assert second["namespace"] == first["namespace"]


SECRET = {"group": "", "version": "v1", "kind": "Secret"}


def of_secret(**members: Any) -> Answer:
    """The answer to a review of a Secret whose policy repeats a value in its message and its warning."""
    told = Denied(message=f"value {CANARY}", warnings=(f"value {CANARY}", ENCODED))
    review = request(kind=SECRET, object=secret(data={"key": ENCODED}, **members))
    return answer({"b.policies.test": told}, HOOKS, review)


def test_no_byte_of_a_secret_is_in_any_file(tmp_path: Path) -> None:
    copied = answer(
        {"a.policies.test": patch(add("/metadata/labels/copy", CANARY), add("/data/copy", ENCODED))},
        HOOKS,
        request(kind=SECRET, object=secret(data={"key": ENCODED}, metadata={"labels": {}})),
    )
    deleted = answer(
        webhooks=HOOKS,
        review=request(kind=SECRET, operation="DELETE", object=None, oldObject={"data": {"key": ENCODED}}),
    )
    lines = record(tmp_path, of_secret(), copied, deleted)
    text = orjson.dumps(lines).decode()
    assert len(lines) == 3
    assert all(line["redacted"] for line in lines)
    assert CANARY not in text
    assert ENCODED not in text
    assert "eyJrZXki" not in text


VALUES = st.recursive(
    st.just(CANARY) | st.text(max_size=5),
    lambda inner: st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@settings(max_examples=20)
@given(st.lists(VALUES, min_size=3, max_size=5))
def test_no_value_below_a_configured_path_is_in_a_line(
    tmp_path_factory: pytest.TempPathFactory, values: list[object]
) -> None:
    folder = tmp_path_factory.mktemp("record")
    reviews = [
        request(object={"kind": "Thing", "metadata": {"name": CANARY}, "spec": {"hidden": value, "a": 1}})
        for value in values
    ]
    rules = (RedactionRule((("spec", "hidden"),), ("Pod",)),)
    lines = record(folder, *(answer({}, HOOKS, review) for review in reviews), redact=rules)
    for value, line in zip(values, lines, strict=True):
        found = line["request"]["object"]
        assert CANARY not in orjson.dumps(found["spec"]).decode()
        if CANARY in orjson.dumps(value).decode():
            assert found["metadata"]["name"] != CANARY


def counted(folder: Path, *answers: Answer, clock: Any = None, **members: Any) -> RecordingCounts:
    """Record *answers* by settings with *members*, and return the counts."""
    counts = RecordingCounts()

    async def main() -> None:
        under_test = Recorder(counts, **({} if clock is None else {"clock": clock}))
        under_test.activate(RecordSettings(folder, **members))
        observer = under_test.observer("d1")
        assert observer is not None
        for one in answers:
            observer.review_answered(one, 0.001)
        await until(lambda: not under_test._recording._pending)  # type: ignore[union-attr]
        await under_test.close()

    asyncio.run(main())
    return counts


def test_every_combination_is_recorded_a_few_times_whatever_the_sample(tmp_path: Path) -> None:
    allowed = [answer(webhooks=HOOKS) for _ in range(5)]
    other = answer(webhooks=HOOKS, review=request(operation="UPDATE"))
    denied = answer({"b.policies.test": Denied()}, HOOKS)
    unmatched = answer(webhooks=[webhook("c.policies.test", rules=())])
    found = counted(tmp_path, *allowed, other, denied, unmatched, sample_percent=0.0, per_combination=2)
    assert found.recorded == 2 + 1 + 1 + 1


def test_an_hour_later_combinations_count_anew() -> None:
    under_test = Sampling(0.0, 1)
    one = answer(webhooks=HOOKS).evaluation
    assert [under_test.is_rare(one, now) for now in (1.0, 2.0, 3602.0, 3603.0)] == [True, False, True, False]


def test_made_up_kinds_do_not_make_the_table_grow(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sampling, "MAX_COMBINATIONS", 10)
    under_test = Sampling(0.0, 1)
    kinds = [{"group": "", "version": "v1", "kind": f"K{number}"} for number in range(30)]
    found = [
        under_test.is_rare(answer(webhooks=HOOKS[:1], review=request(kind=kind)).evaluation, 1.0)
        for kind in kinds
    ]
    assert found == [True] * 10 + [False] * 20
    assert len(under_test._counts) == 10


@given(st.uuids().map(str), st.floats(0, 100), st.floats(0, 100))
def test_the_sample_depends_on_the_uid_alone_and_grows_with_the_percentage(
    uid: str, one: float, other: float
) -> None:
    low, high = sorted((one, other))
    assert not Sampling(low, 0).in_sample(uid) or Sampling(high, 0).in_sample(uid)
    assert Sampling(100, 0).in_sample(uid)
    assert not Sampling(0, 0).in_sample(uid)


def test_a_tenth_of_the_uids_is_a_tenth() -> None:
    under_test = Sampling(10, 0)
    draw = random.Random(1)
    found = sum(under_test.in_sample(str(uuid.UUID(int=draw.getrandbits(128)))) for _ in range(20_000))
    assert 1800 < found < 2200


def test_reviews_beyond_a_bound_are_counted_logged_and_noted_in_the_file(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(recorder, "MAX_PENDING", 1)
    large = answer(webhooks=HOOKS, review=request(object={"metadata": {"annotations": {"a": "x" * 70_000}}}))
    with caplog.at_level(logging.WARNING):
        found = counted(
            tmp_path,
            *(large, of_secret(), of_secret(), answer(webhooks=HOOKS), answer(webhooks=HOOKS)),
            clock=lambda: 0.0,
            sample_percent=0.0,
            max_per_second=4,
        )
    assert found.dropped == {"size": 1, "queue": 1, "rate": 1}
    assert caplog.text.count("reviews are left out") == 1
    reading = Reading()
    for path in tmp_path.iterdir():
        list(read_recording(path, reading))
    assert (reading.reviews, reading.dropped) == (2, 3)


def test_a_review_with_more_secret_values_than_are_searched_is_left_out(tmp_path: Path) -> None:
    counts = RecordingCounts()
    annotations = {f"{number}token": f"value{number}" for number in range(300)}
    assert not record(tmp_path, of_secret(metadata={"annotations": annotations}), counts=counts)
    assert counts.dropped == {"redaction": 1}


async def test_files_that_cannot_be_written_are_logged_and_counted(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(writer, "FLUSH_S", 0.0)
    counts = RecordingCounts()
    under_test = Recorder(counts)
    under_test.activate(RecordSettings(tmp_path / "none" / "none", sample_percent=100.0))
    observer = under_test.observer("d1")
    assert observer is not None
    observer.review_answered(answer(webhooks=HOOKS), 0.001)
    await until(lambda: counts.dropped["writer"] == 1)
    await under_test.close()
    assert f"records are dropped: recording: {tmp_path}/none/none: " in caplog.text


async def test_the_settings_can_change_and_a_key_file_makes_marks_equal(tmp_path: Path) -> None:
    key = tmp_path / "key"
    key.write_bytes(b"0123456789abcdef\n")
    folders = [tmp_path / name for name in ("a", "b", "c")]
    under_test = Recorder(RecordingCounts())
    for folder, key_file in zip(folders, (key, key, None), strict=True):
        under_test.activate(RecordSettings(folder, key_file=key_file))
        observer = under_test.observer("d1")
        assert observer is not None
        observer.review_answered(of_secret(), 0.001)
        await until(lambda: not under_test._recording._pending)  # type: ignore[union-attr]
    under_test.activate(None)
    assert under_test.observer("d1") is None
    await under_test.close()
    readings = [Reading() for _ in folders]
    first, same, other = (
        next(iter(read_recording(next(folder.iterdir()), reading)))["request"]
        for folder, reading in zip(folders, readings, strict=True)
    )
    assert first == same != other
    assert readings[0].keys == readings[1].keys != readings[2].keys


async def test_without_its_key_nothing_is_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    under_test = Recorder(RecordingCounts())
    under_test.activate(RecordSettings(tmp_path, key_file=tmp_path / "none"))
    assert under_test.observer("d1") is None
    await under_test.close()
    assert "nothing is recorded: record.keyFile cannot be read" in caplog.text
