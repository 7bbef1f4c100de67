"""The text of ``status``, and the overview from metrics."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.terminal import Styled
from gateway.observe.telemetry.definitions import PREFIX
from gateway.observe.telemetry.exposition import expose
from gateway.observe.telemetry.metrics import Metrics
from gateway.tools.status.exposition import overview_of_metrics
from gateway.tools.status.reading import Reading, read
from gateway.tools.status.render import render
from tests.pages.kit import documents

if TYPE_CHECKING:
    from collections.abc import Callable

ANSI = re.compile(r"\x1b\[[0-9;]*m")


@pytest.fixture
def exposition() -> str:
    metrics = Metrics()
    metrics.activate("d" * 64, ())
    metrics._calls["h.v.test", "validate", "CREATE", 200, False].observe(0.002)
    metrics._calls["h.v.test", "validate", "CREATE", 403, True].observe(0.004)
    metrics._rejections.labels("h.v.test", "validating", "CREATE", "no_error", "403").inc(3)
    metrics._rejections.labels("h.v.test", "validating", "CREATE", "calling_webhook_error", "500").inc(2)
    metrics.rollouts._not_enforced.add(("h.v.test", "validating", "Warn", "denied"), 7)
    metrics.rollouts._compared.add(("h.v.test", "validating"), 329)
    metrics.rollouts._different.add(("h.v.test", "validating"), 70)
    metrics.rollouts._differences.add(("h.v.test", "validating", "newly_denied"), 63)
    metrics._fail_open.labels("h.v.test", "validating").inc(4)
    metrics.configuration = "d" * 64, {("h.v.test", "validating"): 10}
    metrics.worker_endpoints.labels("pool", "ready").set(1)
    metrics.worker_endpoints.labels("pool", "down").set(2)
    metrics.worker_endpoints.labels("lost", "down").set(1)
    metrics.reload_successful.set(0)
    return expose(metrics.registry, b"")[0].decode()


def test_the_overview_of_metrics_has_counts_pools_and_a_refused_configuration(exposition: str) -> None:
    overview = overview_of_metrics(exposition, "", [], 2_000_000_000.0)
    (webhook,) = overview["webhooks"]
    assert (webhook["phase"], webhook["name"], webhook["timeoutSeconds"]) == ("validate", "h.v.test", 10)
    assert webhook["total"] == {
        "count": 2,
        "denied": 3,
        "failedClosed": 2,
        "failedOpen": 4,
        "wouldBeDenied": 7,
        "wouldFailClosed": 0,
        "candidate": {"compared": 329, "different": 70, "newlyDenied": 63, "newlyAllowed": 0, "failed": 0},
    }
    assert 1 <= webhook["recent"]["p50Ms"] <= webhook["recent"]["p99Ms"] <= 5
    assert [(pool["name"], pool["ready"]) for pool in overview["pools"]] == [("pool", 1), ("lost", 0)]
    assert overview["configuration"]["digest"] == "d" * 64
    reading = Reading("g", overview, "metrics")
    assert {notice.title.partition(";")[0] for notice in reading.notices() if notice.level == "bad"} >= {
        "worker pool lost has no ready endpoint"
    }
    lines = render([reading, reading])
    at = next(index for index, line in enumerate(lines) if line.startswith("ROLL-OUT"))
    assert re.split(" {3,}", lines[at + 1])[-3:] == ["14 of 4", "0", "140 of 658"]
    assert lines[at + 2] == "  candidate: 126 newly denied"
    assert any("was refused" in notice.title for notice in reading.notices())


def test_an_exposition_of_another_program_is_refused() -> None:
    with pytest.raises(ValueError, match="no metrics of a gateway"):
        overview_of_metrics("up 1\n", "", [], 0.0)


def test_a_roll_out_has_stage_numbers_and_next_gate_within_80_columns() -> None:
    overview = overview_of_metrics(f"{PREFIX}build_info 1\n", "", [], 2_000_000_000.0)
    candidate = {"compared": 329, "different": 63, "newlyDenied": 60, "newlyAllowed": 0, "failed": 1}
    numbers = {"count": 1234, "denied": 0, "failedClosed": 0, "failedOpen": 0, "wouldFailClosed": 0}
    plan = {"stage": 2, "stages": 4, "phase": "Progressing", "reason": "", "gates": []}
    overview["webhooks"] = [
        {
            **dict.fromkeys(("pool", "policy", "url", "configuration"), ""),
            "phase": "validate",
            "name": "require-team-label.example.com",
            "failurePolicy": "Fail",
            "mode": "Warn",
            "plan": {
                **plan,
                "waitsFor": ["for 24h: 13h left", "minReviews: 4 reviews, expected at least 10"],
            },
            "recent": {**numbers, "perSecond": 1.0, "p50Ms": None, "p99Ms": None},
            "total": {**numbers, "wouldBeDenied": 12, "candidate": candidate},
        }
    ]
    lines = render([Reading("g", overview)])
    at = next(index for index, line in enumerate(lines) if line.startswith("ROLL-OUT"))
    assert lines[at : at + 5] == [
        "ROLL-OUT                         MODE   STAGE   WOULD DENY    FAIL   DIFFER",
        "require-team-label.example.com   Warn   2/4     12 of 1,234      0   63 of 329",
        "  Progressing; next gate: for 24h: 13h left",
        "    minReviews: 4 reviews, expected at least 10",
        "  candidate: 60 newly denied, 1 failed",
    ]
    behind = {
        **overview,
        "webhooks": [{**overview["webhooks"][0], "plan": {**plan, "stage": 1, "waitsFor": []}}],
    }
    assert "1-2/4" in "\n".join(render([Reading("g", overview), Reading("h", behind)]))


def test_endpoints_have_the_names_of_the_pages_and_a_problem_has_its_page() -> None:
    overview = documents()["overview"]
    local = {"name": "started by the gateway", "states": {"ready": 1}, "inFlight": 1}
    readings = []
    for folder in ("a", "b"):
        pools = [
            {**overview["pools"][0], "endpoints": [{**local, "address": f"unix:/tmp/{folder}/s"}]},
            overview["pools"][0],
        ]
        readings.append(Reading(folder, {**overview, "pools": pools}))
    lines = render(readings)
    at = next(index for index, line in enumerate(lines) if line.startswith("POOL AND ENDPOINT"))
    rows = [re.split(" {3,}", line) for line in lines[at + 1 : at + 3]]
    assert rows == [
        ["pool  started by the gateway", "ready", "2"],
        ["pool  policies.team.svc:50051 at 10.0.0.1", "ready", "4"],
    ]
    refused = next(index for index, line in enumerate(lines) if " was refused, " in line)
    assert "    What to do: docs/runbooks/reload-refused.md" in lines[refused : refused + 5]


def replace_texts(value: object, text: str) -> Any:
    if isinstance(value, dict):
        return {key: replace_texts(item, text) for key, item in value.items()}
    if isinstance(value, list):
        return [replace_texts(item, text) for item in value]
    return value + text if isinstance(value, str) else value


@given(st.text(st.characters()))
def test_no_text_of_a_gateway_reaches_the_terminal_unescaped(text: str) -> None:
    overview = {
        "ready": True,
        "version": "1",
        "scope": {"processes": 1, "answered": 1, "note": ""},
        "processes": [{"pid": 1, "ready": False, "reason": "why", "digest": "d"}],
        "configuration": {
            "digest": "d",
            "ageSeconds": 1,
            "isSameInAllProcesses": True,
            "refused": {
                "time": "t",
                "problems": [{"where": "w", "field": "f", "message": "m"}],
                "problemsLeftOut": 0,
            },
            "refusedResources": 0,
            "warnings": [{"where": "w", "field": "f", "message": "m"}],
            "warningsLeftOut": 0,
        },
        "faults": ["f"],
        "windowSeconds": 10,
        "reviews": {
            "inFlight": 0,
            "mutate": {"recent": {"perSecond": 1}},
            "validate": {"recent": {"perSecond": 1}},
        },
        "webhooks": [
            {
                **dict.fromkeys(("phase", "configuration", "name", "failurePolicy", "mode"), "x"),
                "total": {
                    **dict.fromkeys(("count", "wouldBeDenied", "wouldFailClosed"), 1),
                    "candidate": dict.fromkeys(
                        ("compared", "different", "newlyDenied", "newlyAllowed", "failed"), 1
                    ),
                },
                "plan": {
                    **dict.fromkeys(("phase", "reason", "stage", "stages"), "x"),
                    "gates": ["x"],
                    "waitsFor": ["x", "y"],
                },
                "recent": {
                    "perSecond": 1.5,
                    "denied": 1,
                    "failedClosed": 1,
                    "failedOpen": 1,
                    "p50Ms": 1.0,
                    "p99Ms": None,
                },
            }
        ],
        "pools": [
            {"name": "p", "ready": 0, "endpoints": [{"address": "a", "states": {"down": 1}, "inFlight": 0}]}
        ],
        "certificates": [{"use": "u", "problem": "", "remainingSeconds": -1}],
        "placement": [{"kind": "K", "name": "n", "state": "Gateway", "reason": "r"}],
        "exceptions": [
            {"name": "e", "uses": 1, "lastUse": "x", "expires": "x", "owner": "x", "remainingSeconds": -1}
        ],
    }
    reading = Reading("name" + text, replace_texts(overview, text), note="n" + text)
    for width in (None, 80):
        for line in render([reading, Reading("other" + text, error=text)], width):
            assert line.isprintable()
            assert ANSI.sub("", line.painted() if isinstance(line, Styled) else line) == line


class Port:
    name = "port"
    note = ""

    def __init__(self, answer: Callable[[str], tuple[int, bytes]]) -> None:
        self._answer = answer

    async def get(self, path: str) -> tuple[int, bytes]:
        return self._answer(path)


@pytest.mark.parametrize("status", [200, 404])
@pytest.mark.parametrize(
    "body",
    [b"", b"[]", b"{}", b'{"kind": "Overview"}', b"\xff", b'{"kind": "Overview", "pools": 1}', b"up 1"],
)
def test_an_answer_of_another_program_is_an_error_of_one_line(body: bytes, status: int) -> None:
    def answer(path: str) -> tuple[int, bytes]:
        return (status, body) if path.startswith("/?") else (200, body)

    reading = asyncio.run(read(Port(answer)))
    assert reading.overview is None
    lines = render([reading])
    assert reading.error
    assert "no answer" in "\n".join(lines)
