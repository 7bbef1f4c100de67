"""Exemplars: the trace ids of sampled reviews in the histograms of OpenMetrics."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

import pytest

from gateway.observe.telemetry.exposition import accepts_openmetrics
from tests.kit import REVIEWS, pool_document, webhook_document

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import StartGateway
    from tests.worker.server import StartWorker

POD = (REVIEWS / "pod-create-validate.json").read_bytes()
SPAN = "b7ad6b7169203331"
PROMETHEUS = (
    "application/openmetrics-text;version=1.0.0;escaping=allow-utf-8;q=0.6,"
    "application/openmetrics-text;version=0.0.1;q=0.5,text/plain;version=1.0.0;q=0.4,*/*;q=0.1"
)
"""As Prometheus sends it."""


def trace_id(number: int) -> str:
    return f"{number:032x}"


@pytest.mark.process
@pytest.mark.parametrize("process_count", ["1", "2"])
def test_only_sampled_reviews_leave_their_trace_ids(
    tmp_path: Path,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    process_count: str,
) -> None:
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", start_worker().target)
        + webhook_document("validate", "v", "pool", {"deny": {"message": "no"}})
    )
    gateway = start_gateway(tmp_path, "--processes", process_count)
    for traceparent in (
        f"00-{trace_id(1)}-{SPAN}-00",
        f"00-{trace_id(0)}-{SPAN}-01",
        f"00-{trace_id(2)}-{'0' * 16}-01",
        f"00-{trace_id(3)[1:]}g-{SPAN}-01",
        f'00-{trace_id(4)}-{SPAN}-01"}} 1\t# {{x="y',
        "",
        f"00-{trace_id(5)}-{SPAN}-01",
    ):
        connection = gateway.connect()
        headers = {"Content-Type": "application/json", "traceparent": traceparent}
        connection.request("POST", "/validate", POD, headers)
        assert connection.getresponse().status == 200
        connection.close()
    media_type, text = gateway.scrape(PROMETHEUS)
    assert media_type == "application/openmetrics-text; version=1.0.0; charset=utf-8"
    assert text.endswith("# EOF\n")
    found = re.findall(r"^admission_gateway_(\w+)_bucket.* # (\{.*\}) \S+ \S+$", text, re.MULTILINE)
    exemplar = f'{{trace_id="{trace_id(5)}"}}'
    assert sorted(found) == [
        ("review_duration_seconds", exemplar),
        ("webhook_admission_duration_seconds", exemplar),
    ]
    media_type, text = gateway.scrape(None)
    assert media_type.startswith("text/plain")
    assert "trace_id" not in text


@pytest.mark.parametrize(
    ("accept", "is_accepted"),
    [
        (PROMETHEUS, True),
        ("application/openmetrics-text", True),
        ("text/plain, Application/OpenMetrics-Text; q=0.2", True),
        ("", False),
        ("*/*", False),
        ("text/plain;version=0.0.4", False),
        ("application/openmetrics-text;version=2.0.0", False),
        ("application/openmetrics-text;q=0", False),
        ("application/openmetrics-text;q=0.000,text/plain", False),
        ("application/openmetrics-textual", False),
        (";;,=;q==,\xff", False),
    ],
)
def test_openmetrics_is_served_to_clients_that_accept_it(accept: str, *, is_accepted: bool) -> None:
    assert accepts_openmetrics(accept.encode("latin-1")) is is_accepted
