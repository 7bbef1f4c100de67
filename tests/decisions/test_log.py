"""Which decisions are logged, and how many."""

from __future__ import annotations

import asyncio
import base64
import os
from functools import partial
from itertools import count
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from gateway.config.kinds.logging_settings import (
    DecisionFile,
    DecisionLogSettings,
    LoggedDecisions,
    LoggingSettings,
)
from gateway.observe.decisions import allowed_lines
from gateway.observe.decisions import log as log_module
from gateway.observe.decisions.log import DecisionLog
from gateway.observe.decisions.record import is_noteworthy
from gateway.observe.decisions.redaction import SEARCHES_PER_SECOND, SMALL_SEARCH
from gateway.observe.telemetry.metrics import LogCounts
from gateway.pure.core.large import LARGE_BYTES
from gateway.pure.core.verdict import Denied, Failed, FailureReason
from gateway.server.serving.message import HttpRequest, error_response
from tests.core.build import request, webhook
from tests.decisions.kit import answer
from tests.kit import PATIENCE_S
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from gateway.pure.core.answer import Answer

ALLOWED = answer()
DENIED = answer({"a.policies.test": Denied(403, message="no")})
FAIL_OPEN = answer(
    {"a.policies.test": Failed(FailureReason.DEADLINE, "slow")}, [webhook(failure_policy="Ignore")]
)


@pytest.fixture(autouse=True)
def _the_end_waits_for_all_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_module, "CLOSE_S", PATIENCE_S)


def logged(
    folder: Path,
    answers: Sequence[Answer],
    decisions: LoggedDecisions = "Denied",
    *,
    refused: int = 0,
    pause_s: float = 1.0,
    **settings: Any,
) -> tuple[list[dict[str, Any]], LogCounts]:
    """Return the records of *answers*, which are *pause_s* apart, and of so many *refused* requests."""
    path, counts, times = folder / "d.jsonl", LogCounts(), count(1000.0, pause_s)
    chosen = DecisionLogSettings(file=DecisionFile(path), **settings)

    async def main() -> None:
        log = DecisionLog(counts, clock=lambda: next(times))
        log.activate(LoggingSettings(decisions=decisions, decision_log=chosen))
        for one in answers:
            log.offer(one, 0.1, "d1", is_noteworthy=is_noteworthy(one))
        for _ in range(refused):
            log.refused(HttpRequest(0.0, b"POST", b"/validate", {}), error_response(503, "too many reviews"))
        await log.close()

    asyncio.run(main())
    lines = path.read_bytes().splitlines() if path.exists() else []
    return [orjson.loads(one) for one in lines], counts


def has_lines(path: Path, number: int) -> bool:
    return path.exists() and path.read_bytes().count(b"\n") == number


def outcomes(found: tuple[list[dict[str, Any]], LogCounts]) -> list[str]:
    return [record["outcome"] for record in found[0]]


@pytest.mark.parametrize(
    ("decisions", "expected"),
    [
        ("None", []),
        ("Denied", ["Denied", "FailedOpen", "Refused"]),
        ("All", ["Allowed", "Denied", "FailedOpen", "Refused"]),
    ],
)
def test_the_setting_chooses_the_decisions(
    decisions: LoggedDecisions, expected: list[str], tmp_path: Path
) -> None:
    assert outcomes(logged(tmp_path, [ALLOWED, DENIED, FAIL_OPEN], decisions, refused=1)) == expected


def test_a_sample_of_the_others_is_logged(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    values = iter([0.05, 0.2, 0.99])
    monkeypatch.setattr(log_module, "random", lambda: next(values))
    assert outcomes(logged(tmp_path, [ALLOWED] * 3, sample_percent=10)) == ["Allowed"]


def test_records_above_the_rate_are_dropped_and_their_number_is_logged(tmp_path: Path) -> None:
    records, counts = logged(tmp_path, [DENIED] * 15, pause_s=0.0, max_per_second=10)
    assert [one["outcome"] for one in records] == ["Denied"] * 10 + ["Dropped"]
    assert records[-1]["dropped"] == 5
    assert (counts.logged, counts.dropped) == (10, {"file": 5})


def test_ordinary_decisions_leave_room_for_denials(tmp_path: Path) -> None:
    found = outcomes(logged(tmp_path, [ALLOWED] * 100 + [DENIED] * 2, "All", pause_s=0.0, max_per_second=20))
    assert found.count("Allowed") == 15
    assert found.count("Denied") == 2


@pytest.mark.parametrize("rate", [1, 2, 1000])
def test_ordinary_decisions_are_logged_at_any_rate(rate: int, tmp_path: Path) -> None:
    assert outcomes(logged(tmp_path, [ALLOWED] * 3, "All", max_per_second=rate)) == ["Allowed"] * 3


def test_refused_requests_are_limited_too(tmp_path: Path) -> None:
    found = outcomes(logged(tmp_path, [], refused=1000, pause_s=0.0))
    assert found == ["Refused"] * log_module.REFUSALS_AT_ONCE + ["Dropped"]


@pytest.mark.parametrize("size", [0, LARGE_BYTES])
def test_the_data_of_a_secret_is_not_in_a_message_about_it(size: int, tmp_path: Path) -> None:
    value = base64.b64encode(b"CaNaRy-4711").decode()
    review = request(
        kind={"group": "", "version": "v1", "kind": "Secret"},
        object={"kind": "Secret", "metadata": {"name": "db"}, "data": {"a": value, "b": "x" * size}},
    )
    denied = answer({"a.policies.test": Denied(403, message="CaNaRy-4711 is weak")}, (), review)
    ((record,), _) = logged(tmp_path, [denied])
    assert "CaNaRy" not in str(record)
    assert ("is weak" in record["message"]) is (size == 0)


def test_the_search_for_values_of_secrets_is_bounded(tmp_path: Path) -> None:
    review = request(kind={"group": "", "version": "v1", "kind": "Secret"}, object={"kind": "Secret"})
    denied = answer({"a.policies.test": Denied(403, message="no")}, (), review)
    most = round(SEARCHES_PER_SECOND / SMALL_SEARCH)
    records, _ = logged(tmp_path, [denied] * (most + 30), pause_s=0.0)
    messages = [record["webhooks"][0]["message"] for record in records]
    assert most / 2 < messages.count("no") <= most
    assert len(messages) == most + 30


async def test_an_allowed_decision_waits_for_a_bounded_number_of_others_of_bounded_size(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "ALLOWED_WAIT_S", PATIENCE_S)
    size = len(ALLOWED.evaluation.request.json)
    for bounds, expected in (((4, 10**6), 4), ((100, 2 * size + 1), 3)):
        monkeypatch.setattr(allowed_lines, "MAX_WAITING", bounds[0])
        monkeypatch.setattr(allowed_lines, "MAX_WAITING_BYTES", bounds[1])
        path = tmp_path / str(expected)
        log = DecisionLog(LogCounts())
        log.activate(
            LoggingSettings(decisions="All", decision_log=DecisionLogSettings(file=DecisionFile(path)))
        )
        for _ in range(expected + 1):
            log.offer(ALLOWED, 0.1, "", is_noteworthy=False)
        await until(partial(has_lines, path, expected))
        await log.close()
        assert has_lines(path, expected + 1)


async def test_an_allowed_decision_is_written_without_others(tmp_path: Path) -> None:
    path = tmp_path / "d.jsonl"
    log = DecisionLog(LogCounts())
    log.activate(LoggingSettings(decisions="All", decision_log=DecisionLogSettings(file=DecisionFile(path))))
    for expected in (1, 2):
        log.offer(ALLOWED, 0.1, "", is_noteworthy=False)
        await until(partial(has_lines, path, expected))
    await log.close()


async def test_changed_settings_apply_to_the_next_decision(tmp_path: Path) -> None:
    def to(name: str, decisions: LoggedDecisions = "All") -> LoggingSettings:
        return LoggingSettings(
            decisions=decisions, decision_log=DecisionLogSettings(file=DecisionFile(tmp_path / name))
        )

    log = DecisionLog(LogCounts())
    for settings in (to("a"), to("a"), to("b"), to("c", "None"), to("b")):
        log.activate(settings)
        log.offer(ALLOWED, 0.1, "", is_noteworthy=False)
    await log.close()
    assert {one.name: len(one.read_bytes().splitlines()) for one in tmp_path.iterdir()} == {"a": 2, "b": 2}


@pytest.mark.parametrize("form", ["json", "text"])
async def test_standard_error_has_the_form_of_the_logs(
    form: Any, capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    log = DecisionLog(LogCounts())
    log.activate(LoggingSettings(format=form))
    log.offer(DENIED, 0.1, "", is_noteworthy=True)
    await log.close()
    found = capfd.readouterr().err
    assert found.count("\n") == 1
    assert ("decision Denied: CREATE v1 Pod default/web by ann" in found) is (form == "text")
    assert found.startswith("{") is (form == "json")


async def test_the_end_waits_for_a_blocked_destination_only_so_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(log_module, "CLOSE_S", 0.01)
    pipe = tmp_path / "pipe"
    os.mkfifo(pipe)
    log = DecisionLog(LogCounts())
    log.activate(LoggingSettings(decision_log=DecisionLogSettings(file=DecisionFile(pipe))))
    log.offer(DENIED, 0.1, "", is_noteworthy=True)
    await log.close()
    os.close(os.open(pipe, os.O_RDONLY | os.O_NONBLOCK))  # frees the thread
