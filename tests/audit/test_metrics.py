"""Audits that go on: their passes, and their metrics."""

from __future__ import annotations

import sys
import urllib.error
import urllib.request
from typing import TYPE_CHECKING

import pytest

from gateway.tools.audit import metrics
from tests.audit.kit import pod
from tests.kit import Process, call_command, metric_of
from tests.waiting import eventually

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.kit import World

NAMES = ("part", "finding", "webhook", "namespace")


def test_the_numbers_are_written_as_metrics(world: World, tmp_path: Path) -> None:
    world.policy()
    world.add("shop", "pods", "bad", **pod())
    world.add("shop", "pods", "good", **pod(labels={"team": "a"}))
    file = tmp_path / "audit.prom"
    file.write_text("before")
    world.audit("--metrics-file", file, status=1)
    text = file.read_text()
    labels = dict(zip(NAMES, ("object", "denied", "named/named", "shop"), strict=True))
    assert metric_of(text, "admission_gateway_audit_findings", labels) == 1
    assert metric_of(text, "admission_gateway_audit_verdicts", {}) == 2
    assert metric_of(text, "admission_gateway_audit_complete", {}) == 1
    assert "admission_gateway_audit_interval_seconds" not in text
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_the_series_of_findings_are_bounded() -> None:
    number = metrics.MAX_SERIES + 50
    groups = [
        {**dict(zip(NAMES, ("object", "denied", "a/b", f"n{n}"), strict=True)), "objects": 2}
        for n in range(number)
    ]
    report = {member: 0 for member in metrics._SINGLE} | {"groups": groups}  # noqa: C420
    text = metrics.exposition(report).decode()
    assert text.count("admission_gateway_audit_findings{") == metrics.MAX_SERIES + 1
    others = dict(zip(NAMES, ("object", "denied", metrics.OTHERS, ""), strict=True))
    assert metric_of(text, "admission_gateway_audit_findings", others) == 100


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--metrics-listen", "127.0.0.1:0"), "need --continuous"),
        (("--interval", "1m"), "need --continuous"),
        (("--continuous", "--metrics-listen", "9090"), "expected HOST:PORT"),
    ],
)
def test_wrong_usage_ends_with_2(world: World, arguments: tuple[str, ...], text: str) -> None:
    world.policy()
    done = call_command("audit", "--config", world.config, *arguments)
    assert done.returncode == 2
    assert text in done.stderr


@pytest.mark.process
def test_a_continuous_audit_goes_on_through_failures_and_changes_until_it_is_told_to_end(
    world: World, tmp_path: Path
) -> None:
    world.policy(resources=["configmaps"])
    world.add("shop", "configmaps", "first")
    world.server.faults["list params"].append(lambda handler: handler.refuse(403, "not yet"))
    given = ("--config", world.config, "--kubeconfig", world.server.kubeconfig(world.folder))
    listen = ("--metrics-listen", "127.0.0.1:0", "--jsonl", tmp_path / "findings.jsonl")
    arguments = ("audit", *given, "--continuous", "--interval", "1s", *listen, "--requests-per-second", 1000)
    process = Process(sys.executable, "-m", "gateway", *map(str, arguments))
    try:
        port = int(process.expect(r"metrics on port (\d+)")[1])

        def get(path: str) -> str:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=30) as answer:
                found: str = answer.read().decode()
                return found

        assert get("/healthz") == "ok\n"
        with pytest.raises(urllib.error.HTTPError, match="404"):
            get("/other")
        process.expect("not yet")
        labels = dict(zip(NAMES, ("object", "denied", "named/named", "shop"), strict=True))
        name = "admission_gateway_audit_findings"
        eventually(lambda: f"{name}{{" in get("/metrics"))
        world.add("shop", "configmaps", "second")
        eventually(lambda: metric_of(get("/metrics"), name, labels) == 2)
        assert metric_of(get("/metrics"), "admission_gateway_audit_interval_seconds", {}) == 1
        world.policy("named", "true")
        eventually(lambda: f"{name}{{" not in get("/metrics"))
        assert (tmp_path / "findings.jsonl").read_text() == ""
        process.signal(15)
        assert process.wait() == 0
        assert "Traceback" not in process.log
    finally:
        process.stop()
