"""One trace from the client through a real API server and the gateway to the policy, in one collector."""

from __future__ import annotations

import re
import sys
from itertools import pairwise
from typing import TYPE_CHECKING

import pytest
import yaml

from tests.e2e.cluster import ALICE, Cluster
from tests.e2e.objects import pod
from tests.e2e.setups import BehindGateway, Hook
from tests.fakes.collector import Collector
from tests.kit import Process, pool_document
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.fakes.collector import Span

TRACE = "0af7651916cd43dd8448eb211c80319c"
LAST_TRACE = f"{TRACE[:-1]}d"
PARENT = "b7ad6b7169203331"
SAMPLED = f"00-{TRACE}-{PARENT}-01"
PODS = "/api/v1/namespaces/default/pods"
HOOKS = [
    Hook("mutate", "scripted.trace.test", {"patch": []}),
    Hook("validate", "traced.trace.test", {}, pool="traced", policy="traced"),
]


@pytest.fixture
def collector() -> Iterator[Collector]:
    with Collector() as collector:
        yield collector


@pytest.fixture
def traced(cluster: Cluster, collector: Collector, tmp_path: Path) -> Iterator[Cluster]:
    """A control plane of the same version that samples every request."""
    tracing = {
        "apiVersion": "apiserver.config.k8s.io/v1beta1",
        "kind": "TracingConfiguration",
        "endpoint": f"127.0.0.1:{collector.listen_grpc()}",
        "samplingRatePerMillion": 1_000_000,
    }
    file = tmp_path / "tracing.yaml"
    file.write_text(yaml.safe_dump(tracing))
    with Cluster(cluster.binaries, tmp_path / "cluster", f"--tracing-config-file={file}") as own:
        yield own


class Setup(BehindGateway):
    """The policies of ``HOOKS`` behind a gateway that traces."""

    def __init__(self, cluster: Cluster, folder: Path, collector: Collector) -> None:
        super().__init__(
            cluster, folder, HOOKS, "traced", gateway={"tracing": {"endpoint": collector.endpoint}}
        )
        self._collector = collector

    def start(self) -> None:
        """Put the policies in force."""
        listen = f"unix:{self.folder}/traced.sock"
        (self.config / "pool.yaml").write_text(pool_document("traced", listen))
        program = (
            sys.executable,
            "-m",
            "tests.e2e.tracing_worker",
            self._collector.endpoint,
            "--listen",
            listen,
        )
        process = Process(*program)
        self.stack.callback(process.stop)
        # The canaries do not call it.
        process.expect("serving")
        super().start()


def service(span: Span) -> str:
    return str(span.resource["service.name"])


def way_to(collector: Collector, name: str, trace_id: str) -> list[Span]:
    """Return the spans from the root of the trace to the span *name*; empty while one is missing."""
    by_id = {span.span_id: span for span in list(collector.spans) if span.trace_id == trace_id}
    way = [span for span in by_id.values() if span.name == name][:1]
    while way and way[0].parent_id and way[0].parent_id != PARENT:
        parent = by_id.get(way[0].parent_id)
        if parent is None:
            return []
        way.insert(0, parent)
    return way


def check(way: list[Span]) -> None:
    """Check the *way* to the span of the policy, and its times from the API server's call on."""
    services = [service(span) for span in way]
    assert re.fullmatch("(apiserver )+admission-gateway admission-gateway policies", " ".join(services))
    *_, client, review, call, policy = way
    assert (client.kind, review.kind, call.kind) == ("CLIENT", "SERVER", "CLIENT")
    assert review.name == "validate CREATE pods"
    assert call.attributes["admission_gateway.webhook"] == "traced.trace.test"
    assert policy.name == "check labels"
    for outer, inner in pairwise(way[-4:]):
        assert outer.start_ns <= inner.start_ns <= inner.end_ns <= outer.end_ns, (outer, inner)


def test_one_trace_leads_from_the_client_to_the_policy(
    traced: Cluster, collector: Collector, tmp_path: Path
) -> None:
    with Setup(traced, tmp_path / "gateway", collector) as setup:
        # The API server continues the traces of system:masters.
        created = traced.api.request("POST", PODS, pod("traced"), traceparent=SAMPLED)
        assert created.status == 201, created
        way = eventually(lambda: way_to(collector, "check labels", TRACE))
        assert way[0].parent_id == PARENT
        check(way)
        uid = way[-3].attributes["admission_gateway.uid"]
        mutate = eventually(lambda: way_to(collector, "webhook scripted.trace.test", TRACE))
        assert mutate[-2].name == "mutate CREATE pods"
        assert mutate[-2].attributes["admission_gateway.uid"] != uid

        denied = traced.kubectl("run", "x", "--image=a", "--labels=refused=yes", user=ALICE)
        assert denied.returncode == 1
        found = re.search(r"00-([0-9a-f]{32})-([0-9a-f]{16})-01", denied.stderr)
        assert found, denied.stderr
        # For other users the API server begins a trace.
        way = eventually(lambda: way_to(collector, "check labels", found[1]))
        assert way[0].parent_id == ""
        assert way[-2].span_id == found[2]
        assert way[-2].attributes["admission_gateway.outcome"] == "Denied"
        check(way)
        assert setup.gateway.metric("admission_gateway_trace_spans_dropped_total") == 0


def test_an_api_server_that_does_not_trace_passes_the_trace_of_its_client_on(
    cluster: Cluster, collector: Collector, tmp_path: Path
) -> None:
    """The reason for the bound on spans per second."""
    with Setup(cluster, tmp_path, collector):
        alice = cluster.user(ALICE)

        def create(traceparent: str) -> None:
            headers = {"traceparent": traceparent} if traceparent else {}
            created = alice.request("POST", f"{PODS}?dryRun=All", pod("traced"), **headers)
            assert created.status == 201, created

        create(SAMPLED)
        way = eventually(lambda: way_to(collector, "check labels", TRACE))
        assert [service(span) for span in way] == ["admission-gateway", "admission-gateway", "policies"]
        assert way[0].parent_id == PARENT
        create("")
        create(f"{SAMPLED[:-2]}00")
        # The spans of a process arrive in the order of its reviews: these are the last ones.
        create(SAMPLED.replace(TRACE, LAST_TRACE))
        assert eventually(lambda: way_to(collector, "check labels", LAST_TRACE))
        ways = [
            (span.trace_id, span.name) for span in collector.spans if service(span) == "admission-gateway"
        ]
        for trace in (TRACE, LAST_TRACE):
            assert [name for trace_id, name in ways if trace_id == trace] == [
                "mutate CREATE pods",
                "webhook scripted.trace.test",
                "validate CREATE pods",
                "webhook traced.trace.test",
            ]
        assert {trace_id for trace_id, _ in ways} == {TRACE, LAST_TRACE}
