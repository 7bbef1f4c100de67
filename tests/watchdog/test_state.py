"""When the watchdog opens and closes, in virtual time."""

from __future__ import annotations

import json
from typing import get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.watchdog.state import Mode, Settings, Sight, Stored, Trend, decide

START = 1_000_000.0
Look = tuple[Sight, int, float]
"""What a look shows, the ready endpoints, and the seconds since the look before."""

AWAY: Look = ("unreachable", 0, 5.0)
WELL: Look = ("answered", 3, 5.0)


def history(
    settings: Settings, looks: list[Look], stored: Stored | None = None
) -> list[tuple[float, Stored]]:
    """Return the state after each look, and its time."""
    state, trend, now, found = stored or Stored(), Trend(), START, []
    for sight, ready, later in looks:
        now += later
        trend = trend.seen(sight, ready, now)
        state = decide(settings, state, trend, now).stored
        found.append((now - START, state))
    return found


def changes(settings: Settings, looks: list[Look], stored: Stored | None = None) -> list[tuple[float, str]]:
    """Return when the step changed, and to which."""
    found: list[tuple[float, str]] = []
    before = (stored or Stored()).step
    for at, state in history(settings, looks, stored):
        if state.step != before:
            before = state.step
            found.append((at, state.step))
    return found


def test_it_opens_after_a_minute_and_closes_when_the_gateway_has_answered_for_a_while() -> None:
    looks = [AWAY] * 20 + [WELL] * 20
    assert changes(Settings("Exempt"), looks) == [(65.0, "Exempt"), (135.0, "Closed")]
    assert changes(Settings("Ignore", escalate_after_s=20), looks) == [
        (65.0, "Exempt"),
        (85.0, "Ignore"),
        (145.0, "Closed"),
    ]
    # Packets that are dropped, while no endpoint is ready.
    silent: Look = ("timeout", 0, 15.0)
    assert changes(Settings("Exempt"), [silent] * 10) == [(90.0, "Exempt")]


@pytest.mark.parametrize(
    "other",
    [
        ("slow", 0, 5.0),
        ("unknown", 0, 5.0),
        ("answered", 0, 5.0),
        ("unreachable", 1, 5.0),
        ("timeout", 1, 5.0),
    ],
    ids=["too slow", "API server away", "answered, also with a denial", "a ready endpoint", "overloaded"],
)
def test_anything_else_ends_the_row(other: Look) -> None:
    assert changes(Settings("Ignore"), [*[AWAY] * 10, other] * 10) == []
    assert changes(Settings("Ignore"), [other] * 100) == []


def test_a_second_opening_within_an_hour_needs_a_person() -> None:
    opened = [AWAY] * 14 + [WELL] * 20
    assert [step for _, step in changes(Settings("Exempt"), opened + [AWAY] * 600)] == ["Exempt", "Closed"]
    again = [step for _, step in changes(Settings("Exempt"), opened + [AWAY] * 720)]
    assert again == ["Exempt", "Closed", "Exempt"]
    trend = Trend(100, START - 1000, None, START - 1000)
    decision = decide(Settings("Exempt"), Stored("Closed", START - 900, START - 1000), trend, START)
    assert "a person has to decide" in decision.reason


def test_another_watchdog_goes_on_from_the_annotation() -> None:
    stored = Stored.parse(Stored("Exempt", START - 600, START - 600).text())
    assert changes(Settings("Exempt"), [WELL] * 8, stored) == [(35.0, "Closed")]


@pytest.mark.parametrize(
    "text", [None, "", "{", "[]", '{"step": "Open", "since": 1, "opened": 1}', '{"step": 1}']
)
def test_an_annotation_that_cannot_be_read_is_a_closed_registration(text: object) -> None:
    assert Stored.parse(text) == Stored()


def test_a_time_to_come_does_not_keep_a_registration_open() -> None:
    stored = Stored("Exempt", START + 1e9, START + 1e9)
    assert changes(Settings("Exempt"), [WELL] * 10, stored) == [(35.0, "Closed")]
    assert json.loads(stored.text())["step"] == "Exempt"


SIGHTS: st.SearchStrategy[Sight] = st.sampled_from(get_args(Sight))
RUNS = st.lists(
    st.tuples(
        st.tuples(SIGHTS, st.sampled_from([0, 0, 2]), st.sampled_from([1.0, 5.0, 40.0])), st.integers(1, 40)
    ),
    max_size=12,
).map(lambda runs: [look for look, count in runs for _ in range(count)])
MODES: st.SearchStrategy[Mode] = st.sampled_from(["Alert", "Exempt", "Ignore"])


@given(RUNS, MODES)
def test_the_laws_hold_for_any_history(looks: list[Look], mode: Mode) -> None:
    settings = Settings(mode, min_open_s=100, min_closed_s=200, again_s=1000)
    before, opened_at, closed_at = "Closed", None, None
    for number, (at, state) in enumerate(history(settings, looks)):
        if state.step == before:
            continue
        row = []
        for past, (sight, ready, later) in reversed(list(enumerate(looks[: number + 1]))):
            if sight not in ("unreachable", "timeout") or ready:
                break
            row.append(later if past else 0.0)
        if state.step == "Closed":
            assert opened_at is not None
            assert at - opened_at >= settings.min_open_s
            assert looks[number][0] == "answered"
            closed_at = at
        else:
            # Laws 1, 2, 5 and 6.
            assert mode != "Alert"
            assert len(row) >= settings.failures
            assert sum(row[:-1]) >= settings.after_s
            assert state.step == "Exempt" or (mode == "Ignore" and before == "Exempt")
            if before == "Closed":
                assert opened_at is None or at - opened_at >= settings.again_s
                assert closed_at is None or at - closed_at >= settings.min_closed_s
                opened_at = at
        before = state.step


@given(RUNS)
def test_without_the_opening_it_is_the_registration_of_its_owner(looks: list[Look]) -> None:
    well = [WELL] * 100
    (*_, (_, last)) = history(Settings("Ignore"), looks + well)
    assert last.step == "Closed"
