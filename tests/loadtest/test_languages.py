"""What workers cost by language: the arithmetic, and a short run against real workers, two of Python's."""

from __future__ import annotations

import sys
from dataclasses import replace
from typing import TYPE_CHECKING

import orjson
import pytest
import uvloop

from loadtest import bench, languages
from loadtest.languages import (
    CASES,
    POLICIES,
    Case,
    LanguageCosts,
    Timing,
    as_measured,
    chosen,
    main,
    measure,
    request,
)
from loadtest.launch import BenchError
from loadtest.plan import QUICK_LANGUAGES, parse
from loadtest.sdk_client import Asked
from loadtest.sdk_cost import SeemedSlow, heard
from tests.languages.toolchains import LANGUAGES, PYTHON, Tool, named
from workers import Review
from workers.samples import server

if TYPE_CHECKING:
    from pathlib import Path

    from loadtest.languages import Round

TINY = Timing(rounds=2, window_s=0.02, warmup_s=0.01)
ONE = CASES[0]


def same_for_all(**us: float) -> Round:
    return dict.fromkeys(CASES, us)


def test_ratios_are_formed_within_a_round_and_medians_counted() -> None:
    rounds = [
        same_for_all(python=100.0, go=50.0),
        same_for_all(python=200.0, go=40.0),
        same_for_all(python=400.0, go=240.0),
    ]
    costs = LanguageCosts(rounds)
    assert costs.names == ["python", "go"]
    assert (costs.us(ONE, "python"), costs.us(ONE, "go")) == (200.0, 50.0)
    assert costs.times_python(ONE, "go") == 0.5
    assert costs.times_python(ONE, "python") == 1.0


def test_the_table_has_a_row_for_each_case_and_a_column_for_each_language() -> None:
    lines = str(LanguageCosts([same_for_all(python=80.0, go=20.0, java=120.0)])).splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines]
    assert cells[0][1:] == ["Python", "Go", "Java"]
    assert [row[0] for row in cells[2:]] == list(map(str, CASES))
    assert cells[2][1:] == ["80.0", "20.0 (0.25)", "120.0 (1.50)"]
    assert len({len(line) for line in lines}) == 1


def test_every_transport_is_measured_at_both_loads_with_both_policies() -> None:
    assert len(set(CASES)) == len(CASES) == 8
    assert Case("unary", "low", "p").asked == Asked(("p",), 1, 1)
    assert Case("stream", "full", "p").asked == Asked(("p",), 16, 2)


def test_the_policies_allow_what_they_are_asked_about_and_one_changes_it() -> None:
    changes = []
    for name in POLICIES:
        review = Review(request(), mutating=server.policies[name].mutating)
        result = server.policies[name].function(review)
        if result is not None:
            uvloop.run(_awaited(result))
        changes.append(len(review.changes()))
    assert changes == [0, 3]


async def _awaited(result: object) -> None:
    await result  # type: ignore[misc]


def test_a_language_that_cannot_be_started_is_left_out_with_the_reason() -> None:
    lacking = replace(PYTHON, name="a", tools=(Tool("no-such-program", (1,)),))
    unbuilt = replace(PYTHON, name="b", product="workers/nowhere/samples")
    present, missing = chosen([PYTHON, lacking, unbuilt])
    assert present == [PYTHON]
    assert missing == {
        "a": "no-such-program is not installed",
        "b": "not built; make test-workers builds it",
    }


@pytest.mark.parametrize(
    ("fate", "matters"),
    [("it is to await what it waits for", False), ("it runs in a thread from now on", True)],
)
def test_only_a_policy_that_was_moved_to_a_thread_spoils_the_measurement(fate: str, *, matters: bool) -> None:
    log = (
        "worker: serving 11 policies on 127.0.0.1:1\n"
        f'worker: policy "p" held up the event loop for more than 5 ms; {fate}\n'
    )
    if matters:
        with pytest.raises(SeemedSlow):
            heard(as_measured(log))
    else:
        heard(as_measured(log))


def test_python_alone_is_not_measured(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    lacking = replace(named("java"), tools=(Tool("no-such-program", (1,)),))
    assert measure(TINY, [PYTHON, lacking]) == LanguageCosts((), {"java": "no-such-program is not installed"})
    monkeypatch.setattr(languages, "measure", lambda timing: measure(timing, [PYTHON, lacking]))
    assert main([]) == 0
    assert capsys.readouterr().out == "java was not measured: no-such-program is not installed\n"


@pytest.mark.slow
def test_workers_are_measured_beside_each_other() -> None:
    costs = measure(TINY, [PYTHON, replace(PYTHON, name="go")])
    assert (len(costs.rounds), costs.names, costs.missing) == (2, ["python", "go"], {})
    assert all(us > 0 for round_ in costs.rounds for found in round_.values() for us in found.values())


OTHERWISE = """
from workers.samples import server

def always_pull_images(review):
    if review.object:
        review.object["spec"]["containers"][0]["imagePullPolicy"] = "Never"

del server._policies["always-pull-images"]
server.policy("always-pull-images", mutating=True)(always_pull_images)
server.main()
"""


@pytest.mark.slow
def test_a_worker_that_answers_otherwise_than_python_ends_the_measurement() -> None:
    other = replace(PYTHON, name="go", title="Go", run=(sys.executable, "-c", OTHERWISE))
    with pytest.raises(BenchError, match=r"^go: a review was not answered as it should be: (?s:.*)Never"):
        measure(TINY, [PYTHON, other])


@pytest.mark.slow
def test_a_worker_that_does_not_start_ends_the_measurement() -> None:
    broken = replace(PYTHON, name="go", title="Go", run=(sys.executable, "-c", "raise SystemExit('no')"))
    with pytest.raises(BenchError, match="the worker in Go ended with status 1:\nno"):
        measure(TINY, [PYTHON, broken])


def test_a_review_that_is_denied_is_no_measure(monkeypatch: pytest.MonkeyPatch) -> None:
    document = orjson.loads(request())
    del document["object"]["metadata"]["labels"]["team"]
    monkeypatch.setattr(languages, "request", lambda: orjson.dumps(document))
    with pytest.raises(BenchError, match="a review was not allowed"):
        measure(TINY, [PYTHON, replace(PYTHON, name="go")])


def test_the_benchmark_asks_for_all_languages_unless_others_are_named() -> None:
    assert parse([])[0].languages == Timing()
    assert parse(["--only", "languages"])[0].languages == Timing()
    assert parse(["--quick"])[0].languages == QUICK_LANGUAGES
    assert parse(["--only", "sdk"])[0].languages is None


def test_the_report_of_the_benchmark_has_the_table_and_names_what_is_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    costs = LanguageCosts([same_for_all(python=80.0, go=20.0)], {"java": "mvn is not installed"})
    monkeypatch.setattr(languages, "measure", lambda timing: costs)
    output = tmp_path / "found.md"
    assert bench.main(["--only", "languages", "--output", str(output)]) == 0
    text = output.read_text()
    assert str(costs) in text
    assert "java was not measured: mvn is not installed" in text


def test_where_python_seemed_slow_the_rest_of_the_benchmark_stands(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def slow(timing: Timing) -> LanguageCosts:
        raise SeemedSlow("it seemed slow")

    monkeypatch.setattr(languages, "measure", slow)
    output = tmp_path / "found.md"
    assert bench.main(["--only", "languages", "--output", str(output)]) == 0
    assert "languages was not measured: it seemed slow" in output.read_text()


def test_every_language_that_is_measured_has_a_name_and_a_title_of_its_own() -> None:
    assert (
        len({language.name for language in LANGUAGES}) == len({language.title for language in LANGUAGES}) == 5
    )
