"""The mapping ``logging`` of a GatewayConfiguration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import ConfigError
from gateway.config.kinds.logging_settings import DecisionFile, DecisionLogSettings, LoggingSettings
from tests.config.documents import load_documents
from tests.config.test_resources import gateway

if TYPE_CHECKING:
    from pathlib import Path


def test_denials_are_logged_as_text_by_default() -> None:
    assert load_documents(gateway()).gateway.logging == LoggingSettings("text", "Denied")


def test_every_field_is_read(tmp_path: Path) -> None:
    log = {
        "samplePercent": 1.5,
        "maxPerSecond": 10,
        "secretNames": True,
        "file": {"path": str(tmp_path / "decisions.jsonl"), "maxBytes": 65536, "keep": 0},
        "otlpEndpoint": "http://collector:4318/v1/logs",
    }
    found = load_documents(gateway(logging={"format": "json", "decisions": "All", "decisionLog": log}))
    file = DecisionFile(tmp_path / "decisions.jsonl", 65536, 0)
    expected = DecisionLogSettings(
        1.5, 10, secret_names=True, file=file, otlp_endpoint="http://collector:4318/v1/logs"
    )
    assert found.gateway.logging == LoggingSettings("json", "All", expected)


@pytest.mark.parametrize(
    ("fields", "place", "fragment"),
    [
        ({"decisionLog": {"file": {"path": "a/b"}}}, "logging.decisionLog.file.path", "that exists"),
        ({"decisionLog": {"file": {"path": "."}}}, "logging.decisionLog.file.path", "is a folder"),
        ({"decisionLog": {"otlpEndpoint": "collector:4318"}}, "logging.decisionLog.otlpEndpoint", "a URL"),
        ({"decisionLog": {"otlpEndpoint": "http://a:b/"}}, "logging.decisionLog.otlpEndpoint", "a URL"),
    ],
)
def test_a_wrong_value_is_a_problem(fields: dict[str, Any], place: str, fragment: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_documents(gateway(logging=fields))
    (problem,) = caught.value.problems
    assert problem.field == place
    assert fragment in problem.message
