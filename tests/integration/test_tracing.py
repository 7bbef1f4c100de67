"""Traces: a gateway process with workers, and a collector that takes, refuses, hangs or floods."""

from __future__ import annotations

import json
import signal
import ssl
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from tests.fakes.collector import Collector
from tests.kit import PATIENCE_S, REVIEWS, free_port, pool_document, webhook_document
from tests.waiting import eventually
from tests.webhook_process import WebhookProcess

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    import trustme

    from tests.fakes.collector import Span
    from tests.kit import GatewayProcess, StartGateway
    from tests.worker.server import StartWorker

pytestmark = pytest.mark.process

POD = "pod-create-mutate"
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
NOT_SAMPLED = f"00-{TRACE}-{PARENT}-00"
OWN = "admission_gateway."


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


def settings_document(**tracing: Any) -> str:
    document = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "tracing": tracing,
    }
    return json.dumps(document) + "\n---\n"


def review(gateway: GatewayProcess, path: str, traceparent: str | bytes = "") -> dict[str, Any]:
    """Post a review with a *traceparent*, and return ``response`` of the answer."""
    connection = gateway.connect()
    headers: dict[str, str | bytes] = {"Content-Type": "application/json"}
    if traceparent:
        headers["traceparent"] = traceparent
    connection.request("POST", path, (REVIEWS / f"{POD}.json").read_bytes(), headers)
    response = connection.getresponse()
    answer = json.loads(response.read())
    connection.close()
    assert response.status == 200, answer
    found: dict[str, Any] = answer["response"]
    return found


def received(response: dict[str, Any]) -> dict[str, str]:
    """Return the trace context that each webhook received, by its name."""
    end = ".traceparent"
    annotations = response.get("auditAnnotations", {}).items()
    return {key.removesuffix(end): value for key, value in annotations if key.endswith(end)}


def only(spans: list[Span]) -> Span:
    (span,) = spans
    return span


@pytest.mark.smoke
def test_spans_link_the_api_server_to_the_worker(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, collector: Collector
) -> None:
    worker, unary = start_worker(), start_worker(None, "--no-stream")
    (tmp_path / "c.yaml").write_text(
        settings_document(endpoint=collector.endpoint, resourceAttributes={"k8s.cluster.name": "test"})
        + pool_document("pool", worker.target)
        + pool_document("unary", unary.target)
        + webhook_document(
            "validate", "v", "pool", {"trace": True}, {"trace": True, "deny": {"message": "no"}}
        )
        + webhook_document("validate", "w", "unary", {"trace": True})
    )
    gateway = start_gateway(tmp_path)
    response = review(gateway, "/validate", SAMPLED)
    eventually(lambda: len(collector.spans) >= 4)
    server = only(collector.named("validate CREATE pods"))
    assert (server.trace_id, server.parent_id, server.kind) == (TRACE, PARENT, "SERVER")
    assert server.attributes[f"{OWN}uid"] == response["uid"]
    assert server.attributes[f"{OWN}allowed"] is False
    assert server.resource["service.name"] == "admission-gateway"
    assert server.resource["k8s.cluster.name"] == "test"
    calls = collector.named("webhook ")
    assert len(calls) == 3
    for call in calls:
        assert (call.trace_id, call.parent_id, call.kind) == (TRACE, server.span_id, "CLIENT")
        assert server.start_ns <= call.start_ns <= call.end_ns <= server.end_ns
    assert received(response) == {
        call.attributes[f"{OWN}webhook"]: f"00-{TRACE}-{call.span_id}-01" for call in calls
    }
    denied = only(collector.named("webhook h1.v.test"))
    assert (
        denied.attributes.items()
        >= {
            f"{OWN}configuration": "v",
            f"{OWN}pool": "pool",
            f"{OWN}outcome": "Denied",
            f"{OWN}message": "no",
            f"{OWN}code": 400,
            f"{OWN}retried": False,
            f"{OWN}hedged": False,
            "server.address": worker.target,
        }.items()
    )
    assert denied.attributes[f"{OWN}queue_seconds"] >= 0
    # They are counted after the answer of the collector.
    eventually(lambda: gateway.metric("admission_gateway_trace_spans_exported_total") == 4)


def test_a_trace_that_is_not_sampled_is_passed_on(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, collector: Collector
) -> None:
    worker = start_worker()
    (tmp_path / "c.yaml").write_text(
        settings_document(endpoint=collector.endpoint)
        + pool_document("pool", worker.target)
        + webhook_document("validate", "v", "pool", {"trace": True})
    )
    gateway = start_gateway(tmp_path)
    assert received(review(gateway, "/validate", NOT_SAMPLED)) == {"h0.v.test": NOT_SAMPLED}
    assert received(review(gateway, "/validate")) == {"h0.v.test": ""}
    for invalid in (
        f"ff{SAMPLED[2:]}",
        SAMPLED + "0",
        SAMPLED.upper(),
        b"\x80" * 55,
        f"00-{'0' * 32}-{PARENT}-01",
    ):
        assert received(review(gateway, "/validate", invalid)) == {"h0.v.test": ""}
    review(gateway, "/validate", SAMPLED)
    eventually(lambda: len(collector.spans) == 2)
    assert not [span for span in collector.spans if span.trace_id != TRACE]


def test_without_tracing_a_trace_is_passed_on(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway
) -> None:
    worker, unary = start_worker(), start_worker(None, "--no-stream")
    (tmp_path / "c.yaml").write_text(
        pool_document("pool", worker.target)
        + pool_document("unary", unary.target)
        + webhook_document("validate", "v", "pool", {"trace": True})
        + webhook_document("validate", "w", "unary", {"trace": True})
    )
    gateway = start_gateway(tmp_path)
    assert set(received(review(gateway, "/validate", SAMPLED)).values()) == {SAMPLED}
    assert "admission_gateway_trace_spans" not in gateway.admin("/metrics")[1]


def test_a_rate_makes_traces_of_reviews_without_one(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, collector: Collector
) -> None:
    worker = start_worker()
    (tmp_path / "c.yaml").write_text(
        settings_document(endpoint=collector.endpoint, samplingRatePerMillion=1_000_000)
        + pool_document("pool", worker.target)
        + webhook_document("mutate", "m", "pool", {"trace": True})
    )
    gateway = start_gateway(tmp_path)
    (context,) = received(review(gateway, "/mutate")).values()
    assert received(review(gateway, "/mutate", NOT_SAMPLED)) == {"h0.m.test": NOT_SAMPLED}
    eventually(lambda: len(collector.spans) >= 2)
    server, call = only(collector.named("mutate")), only(collector.named("webhook"))
    assert (server.parent_id, call.parent_id) == ("", server.span_id)
    assert context == f"00-{server.trace_id}-{call.span_id}-01"


def test_speculation_retries_and_hedges_are_shown(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, collector: Collector
) -> None:
    slow = start_worker(None, "--override", '{"hang": true}')
    fast, dying, worker = start_worker(), start_worker(None, "--override", '{"exit": true}'), start_worker()
    gate = tmp_path / "gate"
    label = {"patch": [{"op": "add", "path": "/metadata/labels", "value": {"a": "b"}}]}
    (tmp_path / "c.yaml").write_text(
        settings_document(endpoint=collector.endpoint)
        + pool_document("pool", worker.target)
        + pool_document("hedged", slow.target, fast.target, hedge={"after": "20ms", "budgetPercent": 100})
        + pool_document("retried", dying.target, fast.target)
        + webhook_document("mutate", "m", "pool", {"until": str(gate), **label}, {})
        + webhook_document("validate", "hedged", "hedged", {})
        + webhook_document("validate", "retried", "retried", {})
    )
    gateway = start_gateway(tmp_path)
    thread = threading.Thread(target=review, args=(gateway, "/mutate", SAMPLED))
    thread.start()
    eventually(lambda: gateway.metric("admission_gateway_worker_calls_total", code="OK") == 1)
    gate.touch()
    thread.join(PATIENCE_S)
    # The spans of a review may come in two exports.
    eventually(lambda: len(collector.named("webhook")) >= 3)
    later = collector.named("webhook h1.m.test")
    kept = [(call.attributes[f"{OWN}outcome"], call.attributes.get(f"{OWN}speculation")) for call in later]
    assert sorted(kept, key=str) == [("Allowed", None), ("Discarded", "discarded")]

    def shown(event: str, webhook: str) -> Span | None:
        review(gateway, "/validate", SAMPLED)
        return next((span for span in collector.named(f"webhook {webhook}") if event in span.events), None)

    hedged = eventually(lambda: shown("hedge", "h0.hedged.test"))
    assert hedged is not None
    assert hedged.attributes[f"{OWN}hedged"] is True
    assert hedged.attributes["server.address"] == hedged.events["hedge"]["server.address"] == fast.target
    retried = eventually(lambda: shown("retry", "h0.retried.test"))
    assert retried is not None
    assert retried.attributes[f"{OWN}retried"] is True
    assert retried.events["retry"] == {"server.address": fast.target}


def test_failures_and_cancelled_reviews_have_spans(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, collector: Collector
) -> None:
    worker = start_worker()
    (tmp_path / "c.yaml").write_text(
        settings_document(endpoint=collector.endpoint)
        + pool_document("pool", worker.target)
        + webhook_document("validate", "v", "pool", {"status": "INTERNAL", "details": "bro\nken\x1b[2J"})
        + webhook_document("mutate", "m", "pool", {"hang": True}, timeoutSeconds=30)
    )
    gateway = start_gateway(tmp_path)
    review(gateway, "/validate", SAMPLED)
    failed = only(eventually(lambda: collector.named("webhook h0.v.test")))
    assert failed.attributes[f"{OWN}outcome"] == "FailedClosed"
    assert failed.error is not None
    assert failed.error.isprintable()
    assert "bro" in failed.error
    connection = gateway.connect()
    body = (REVIEWS / f"{POD}.json").read_bytes()
    connection.request("POST", "/mutate", body, {"Content-Type": "application/json", "traceparent": SAMPLED})
    eventually(lambda: gateway.metric("admission_gateway_reviews_in_flight") == 1)
    connection.close()
    cancelled = only(eventually(lambda: collector.named("mutate")))
    assert cancelled.error == "Cancelled"
    withdrawn = only(eventually(lambda: collector.named("webhook h0.m.test")))
    assert withdrawn.attributes[f"{OWN}outcome"] == "Withdrawn"


def test_spans_are_bounded_by_second(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, collector: Collector
) -> None:
    worker = start_worker()
    (tmp_path / "c.yaml").write_text(
        settings_document(endpoint=collector.endpoint, maxSpansPerSecond=1)
        + pool_document("pool", worker.target)
        + webhook_document("validate", "v", "pool", *[{"trace": True}] * 20)
    )
    gateway = start_gateway(tmp_path)
    first = received(review(gateway, "/validate", SAMPLED))
    second = received(review(gateway, "/validate", SAMPLED))
    assert SAMPLED not in first.values()
    assert set(second.values()) == {SAMPLED}
    assert gateway.metric("admission_gateway_trace_reviews_not_recorded_total") == 1
    gateway.expect("traces: 1 reviews .* maxSpansPerSecond")


def test_a_reload_has_a_span_and_changes_the_collector(
    tmp_path: Path, start_worker: StartWorker, start_gateway: StartGateway, collector: Collector
) -> None:
    worker = start_worker()
    headers = tmp_path / "headers"
    headers.write_text("Authorization: Bearer one\n")
    others = pool_document("pool", worker.target) + webhook_document("validate", "v", "pool", {})
    file = tmp_path / "c.yaml"
    file.write_text(settings_document(endpoint=collector.endpoint, headersFile=str(headers)) + others)
    gateway = start_gateway(tmp_path)
    file.write_text(file.read_text().replace('"v"', '"w"'))
    gateway.expect("configuration reloaded")
    reload = only(eventually(lambda: collector.named("reload configuration")))
    assert (reload.parent_id, reload.kind, reload.error) == ("", "INTERNAL", None)
    assert collector.requests[-1]["authorization"] == "Bearer one"
    seen = len(gateway.log)
    headers.write_text("Authorization: Bearer two\n")
    gateway.expect("configuration reloaded", after=seen)
    review(gateway, "/validate", SAMPLED)
    eventually(lambda: collector.requests[-1]["authorization"] == "Bearer two")
    headers.write_text("Authorization\n")
    gateway.expect("headersFile")
    refused = eventually(lambda: [span for span in collector.named("reload") if span.error])
    assert "headersFile" in (refused[0].error or "")
    with Collector() as other:
        seen = len(gateway.log)
        file.write_text(settings_document(endpoint=other.endpoint) + others)
        gateway.expect("configuration reloaded", after=seen)
        review(gateway, "/validate", SAMPLED)
        eventually(lambda: other.named("validate"))
        assert "authorization" not in other.requests[0]
    seen = len(gateway.log)
    file.write_text(others)
    gateway.expect("configuration reloaded", after=seen)
    assert review(gateway, "/validate", SAMPLED)["allowed"]


@pytest.mark.parametrize("fault", ["dead", "refusing", "hanging", "flooding"])
def test_a_faulty_collector_affects_no_review(
    tmp_path: Path,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    collector: Collector,
    fault: str,
) -> None:
    worker = start_worker()
    endpoint = collector.endpoint
    match fault:
        case "dead":
            endpoint = f"http://127.0.0.1:{free_port()}"
        case "refusing":
            collector.status = 500
        case "hanging":
            collector.may_answer.clear()
        case _:
            collector.floods = True
    (tmp_path / "c.yaml").write_text(
        settings_document(endpoint=endpoint, maxSpansPerSecond=1_000_000)
        + pool_document("pool", worker.target)
        + webhook_document("validate", "v", "pool", *[{"deny": {"message": "x" * 900}}] * 50)
    )
    began_at = time.monotonic()
    gateway = start_gateway(tmp_path)
    # More spans than the queue takes.
    for _ in range(120):
        assert not review(gateway, "/validate", SAMPLED)["allowed"]
    if fault == "flooding":
        eventually(lambda: gateway.metric("admission_gateway_trace_spans_exported_total") >= 1000)
        # Little more than the buffers of the sockets.
        assert collector.flooded_bytes / len(collector.requests) < 16 * 2**20
        return
    if fault == "hanging":
        eventually(lambda: gateway.metric("admission_gateway_trace_spans_dropped_total", reason="queue_full"))
    else:
        eventually(
            lambda: gateway.metric("admission_gateway_trace_spans_dropped_total", reason="export_failed")
        )
        reason = "Connection refused" if fault == "dead" else "HTTP status 500"
        gateway.expect(f"traces: .*{reason}")
    # Once a minute for each of two causes.
    assert gateway.log.count("traces: ") <= 2 * (1 + (time.monotonic() - began_at) // 60)
    gateway.signal(signal.SIGTERM)
    assert gateway.wait() == 0


def test_https_webhooks_get_the_context_of_their_call(
    tmp_path: Path, start_gateway: StartGateway, collector: Collector
) -> None:
    webhook = WebhookProcess(tmp_path)
    try:
        script: dict[str, Any] = {"answer": {}}
        client = webhook.client_config(script)
        config = tmp_path / "config"
        config.mkdir()
        (config / "c.yaml").write_text(
            settings_document(endpoint=collector.endpoint)
            + webhook_document("validate", "v", "none", {"webhook": {"clientConfig": client}})
        )
        gateway = start_gateway(config)
        for traceparent in ("", NOT_SAMPLED, SAMPLED):
            assert review(gateway, "/validate", traceparent)["allowed"]
        sent = [request["headers"].get("traceparent") for request in webhook.requests(webhook.client(script))]
        call = only(eventually(lambda: collector.named("webhook ")))
        assert sent == [None, NOT_SAMPLED, f"00-{TRACE}-{call.span_id}-01"]
        assert call.attributes["server.address"].startswith("https://")
        assert f"{OWN}pool" not in call.attributes
    finally:
        webhook.stop()


def test_a_collector_with_tls(
    tmp_path: Path,
    start_worker: StartWorker,
    start_gateway: StartGateway,
    authority: trustme.CA,
    certificate: tuple[Path, Path],
) -> None:
    worker = start_worker()
    config = tmp_path / "config"
    config.mkdir()
    authority.cert_pem.write_to_path(str(tmp_path / "ca.crt"))
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(*certificate)
    context.verify_mode = ssl.CERT_REQUIRED
    authority.configure_trust(context)
    own = {"certFile": str(certificate[0]), "keyFile": str(certificate[1])}
    others = pool_document("pool", worker.target) + webhook_document("validate", "v", "pool", {})
    file = config / "c.yaml"
    with Collector(context) as collector:
        file.write_text(settings_document(endpoint=collector.endpoint, tls=own) + others)
        gateway = start_gateway(config)
        review(gateway, "/validate", SAMPLED)
        gateway.expect("traces: .*certificate verify failed")
        seen = len(gateway.log)
        tls = {**own, "caFile": str(tmp_path / "ca.crt")}
        file.write_text(settings_document(endpoint=collector.endpoint, tls=tls) + others)
        gateway.expect("configuration reloaded", after=seen)
        review(gateway, "/validate", SAMPLED)
        eventually(lambda: collector.named("webhook"))
