"""The mapping ``tracing`` of a GatewayConfiguration."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import ConfigError
from gateway.config.kinds.tracing_settings import CollectorTls, TracingSettings
from tests.config.documents import load_documents
from tests.config.test_resources import gateway

if TYPE_CHECKING:
    from pathlib import Path


ENDPOINT = "https://collector:4318/v1/traces"


def test_there_are_no_traces_by_default() -> None:
    assert load_documents(gateway()).gateway.tracing is None


def test_an_endpoint_is_enough() -> None:
    found = load_documents(gateway(tracing={"endpoint": ENDPOINT})).gateway.tracing
    assert found == TracingSettings(ENDPOINT, 0, 1000, None, CollectorTls(), {})


@pytest.mark.parametrize(
    ("endpoint", "url"),
    [
        ("http://a", "http://a/v1/traces"),
        ("http://a:1/", "http://a:1/v1/traces"),
        ("http://[::1]:4318", "http://[::1]:4318/v1/traces"),
        ("http://a/x", "http://a/x"),
        ("https://a:1/otlp/v1/traces", "https://a:1/otlp/v1/traces"),
    ],
)
def test_an_endpoint_without_a_path_gets_the_usual_one(endpoint: str, url: str) -> None:
    found = load_documents(gateway(tracing={"endpoint": endpoint})).gateway.tracing
    assert found is not None
    assert found.endpoint == url


def test_every_field_is_read(tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.write_text("# of the tenant\n\nAuthorization: Bearer a b: c\nX-Scope:team\n")
    tracing = {
        "endpoint": ENDPOINT,
        "protocol": "http/protobuf",
        "samplingRatePerMillion": 10,
        "maxSpansPerSecond": 5,
        "headersFile": str(headers),
        "tls": {},
        "resourceAttributes": {"k8s.cluster.name": "a"},
    }
    expected = TracingSettings(ENDPOINT, 10, 5, headers, CollectorTls(), {"k8s.cluster.name": "a"})
    assert load_documents(gateway(tracing=tracing)).gateway.tracing == expected


@pytest.mark.parametrize(
    ("fields", "place", "fragment"),
    [
        ({"endpoint": "collector:4317"}, "endpoint", "expected a URL"),
        ({"endpoint": "grpc://collector:4317"}, "endpoint", "expected a URL"),
        ({"endpoint": "http://a:99999"}, "endpoint", "expected a URL"),
        ({"endpoint": "http://a b"}, "endpoint", "expected a URL"),
        ({"endpoint": "http://a\x1b[2J"}, "endpoint", "expected a URL"),
        ({"endpoint": "http://user:secret@a"}, "endpoint", "has a user"),
        ({"endpoint": "http://a/?key=secret"}, "endpoint", "a query"),
        ({"endpoint": ENDPOINT, "headersFile": "none"}, "headersFile", "cannot be read"),
        ({"endpoint": ENDPOINT, "tls": {"caFile": "none"}}, "tls.caFile", "cannot be read"),
        ({"endpoint": ENDPOINT, "resourceAttributes": {"a": 1}}, "resourceAttributes.a", "quotes"),
        ({"endpoint": ENDPOINT, "resourceAttributes": {"": "a"}}, "resourceAttributes", "empty name"),
    ],
)
def test_a_wrong_value_is_a_problem(fields: dict[str, Any], place: str, fragment: str) -> None:
    with pytest.raises(ConfigError) as caught:
        load_documents(gateway(tracing=fields))
    (problem,) = caught.value.problems
    assert problem.field == f"tracing.{place}"
    assert fragment in problem.message
    assert "secret" not in problem.message


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"# none\n",
        b"Bearer secret",
        b"a b: secret",
        b"a: secret\x07",
        b"a:\n",
        b"Host: secret",
        b"a: \xff",
    ],
)
def test_headers_have_to_be_headers(content: bytes, tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.write_bytes(content)
    with pytest.raises(ConfigError) as caught:
        load_documents(gateway(tracing={"endpoint": ENDPOINT, "headersFile": str(headers)}))
    (problem,) = caught.value.problems
    assert problem.field == "tracing.headersFile"
    assert "secret" not in problem.message


@pytest.mark.parametrize(
    ("endpoint", "fragments"),
    [
        ("http://localhost:4318", []),
        ("https://collector:4318", []),
        ("http://collector:4318", ["others can read the headers"]),
        ("https://collector:4317", ["OTLP over gRPC"]),
    ],
)
def test_a_doubtful_endpoint_is_a_warning(endpoint: str, fragments: list[str], tmp_path: Path) -> None:
    headers = tmp_path / "headers"
    headers.write_text("a: b")
    tracing = {"endpoint": endpoint, "headersFile": str(headers)}
    messages = [warning.message for warning in load_documents(gateway(tracing=tracing)).warnings]
    assert len(messages) == len(fragments)
    assert all(fragment in message for message, fragment in zip(messages, fragments, strict=True))
