"""Reports as documents: laws of the merge."""

from __future__ import annotations

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.kinds.report_settings import ReportSettings
from gateway.server.reports.document import KINDS, NAME, is_ours, merged
from gateway.server.reports.finding import Finding, ObjectRef

NOW = 1_800_000_000.0
OPEN_REPORTS = KINDS[0]

names = st.sampled_from(["a", "b", "c"])
abouts = st.builds(ObjectRef, st.just("v1"), st.sampled_from(["Pod", "Service"]), st.just("ns"), names)
findings = st.builds(
    Finding,
    result=st.sampled_from(["fail", "warn", "error"]),
    webhook=st.sampled_from(["one.test", "two.test"]),
    configuration=st.just("c"),
    policy=st.just("pool/policy"),
    message=st.text(max_size=20),
    operation=st.just("CREATE"),
    time=st.integers(int(NOW) - 1000, int(NOW)).map(float),
    about=abouts,
)


def merge(
    report: dict[str, Any] | None, found: list[Finding], now: float = NOW, **settings: Any
) -> dict[str, Any] | None:
    before = copy.deepcopy(report)
    after = merged(report, found, now, ReportSettings(**settings), OPEN_REPORTS, "ns")
    assert report == before, "the argument is not changed"
    return after


def total(report: dict[str, Any] | None) -> int:
    return sum(int(one["properties"]["count"]) for one in (report or {"results": []})["results"])


@given(st.lists(findings, max_size=12), st.data())
def test_the_order_of_findings_and_of_writers_does_not_matter(found: list[Finding], data: Any) -> None:
    whole = merge(None, found)
    shuffled = data.draw(st.permutations(found))
    cut = data.draw(st.integers(0, len(found)))
    assert merge(merge(None, shuffled[:cut]), shuffled[cut:]) == whole
    assert total(whole) == len(found)


@given(st.lists(findings, max_size=12), st.integers(1, 4))
def test_a_report_is_bounded_and_keeps_the_newest(found: list[Finding], limit: int) -> None:
    report = merge(None, found, max_results=limit)
    kept = (report or {"results": []})["results"]
    everything = (merge(None, found) or {"results": []})["results"]
    assert kept == everything[:limit]
    if report is not None:
        assert sum(report["summary"].values()) == len(kept)


@given(st.lists(findings, min_size=1, max_size=12), st.integers(0, 1100))
def test_old_results_are_dropped_and_a_report_without_results_is_removed(
    found: list[Finding], age: int
) -> None:
    now = NOW + 100 - age
    report = merge(merge(None, found), [], now, retention_s=500.0)
    times = {one["timestamp"]["seconds"] for one in (report or {"results": []})["results"]}
    assert all(time >= now - 500 for time in times)
    assert (report is None) == all(one.time < now - 500 for one in found)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)


@given(json_values, st.lists(findings, min_size=1, max_size=3))
def test_results_that_others_have_edited_are_dropped(value: Any, found: list[Finding]) -> None:
    report = merge(None, found)
    assert report is not None
    edited = {**report, "results": [value, *report["results"]]}
    assert merge(edited, []) == report
    assert merge({**report, "results": value}, found) is not None


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("namespace", ["ns", ""])
def test_a_report_names_its_scope_and_its_maker(kind: Any, namespace: str) -> None:
    about = ObjectRef("v1", "Namespace", "", "n", "uid-1")
    finding = Finding("error", "w.test", "c", "", "no\x1banswer", "CREATE", NOW, about)
    report = merged(None, [finding], NOW, ReportSettings(), kind, namespace)
    assert report is not None
    assert is_ours(report)
    assert report["metadata"]["name"] == NAME
    assert report["kind"] == (kind.namespaced if namespace else kind.cluster)
    assert report.get("scope", {}).get("name", "") == namespace
    (result,) = report["results"]
    assert result["message"] == "no\\x1banswer"
    assert result["resources"] == [{"apiVersion": "v1", "kind": "Namespace", "name": "n", "uid": "uid-1"}]
    assert "rule" not in result
