"""The metrics of the policy, as a worker serves them."""

from __future__ import annotations

import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any, Final

import grpc
import orjson
import pytest

from tests.kit import ROOT
from tests.library.requests import of_pod
from tests.workers.conftest import OPTIONS, Worker
from tests.workers.test_metrics import http, on_loop, value

if TYPE_CHECKING:
    from collections.abc import Iterator

NAMESPACE: Final = {
    "metadata": {
        "name": "default",
        "labels": {
            "pod-security.kubernetes.io/enforce": "baseline",
            "pod-security.kubernetes.io/warn": "restricted",
            "pod-security.kubernetes.io/warn-version": "v1.99",
        },
    }
}
CALLS: Final = 20


@pytest.fixture(params=[1, 2])
def worker(request: pytest.FixtureRequest) -> Iterator[tuple[str, str]]:
    """The addresses of the reviews and of the metrics of a worker with the library."""
    with subprocess.Popen(
        [
            *(sys.executable, "-m", "admission_gateway_worker.policies", "--listen", "127.0.0.1:0"),
            *("--metrics-listen", "127.0.0.1:0", "--processes", str(request.param)),
        ],
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
    ) as process:
        assert process.stderr is not None
        metrics = ""
        for line in process.stderr:
            if found := re.fullmatch(r"worker: metrics on http://(.*)/metrics\n", line):
                metrics = found[1]
            if " policies on " in line:
                break
        yield line.rpartition(" ")[2].strip(), metrics
        process.terminate()


@pytest.mark.process
@on_loop
async def test_a_worker_serves_the_metrics_of_all_its_processes(worker: tuple[str, str]) -> None:
    address, metrics = worker
    resource = {"group": "", "version": "v1", "resource": "pods"}
    document = of_pod({"hostNetwork": True}, resource=resource, name="web")
    allowed = of_pod({"containers": [{"name": "main"}]}, resource=resource, name="web")
    for _ in range(CALLS):
        # A channel of its own: the kernel chooses a process for each connection.
        async with grpc.aio.insecure_channel(address, options=OPTIONS) as channel:
            client = Worker(channel, address)
            for each in (document, allowed):
                await client.unary("pod-security", orjson.dumps(each), orjson.dumps(NAMESPACE))
            await client.unary("pod-security", orjson.dumps(document))
    answer = await http(metrics, b"GET /metrics HTTP/1.1\r\n\r\n")

    def counted(name: str, **labels: Any) -> float:
        of_request = {"request_operation": "create", "resource": "pod", "subresource": ""}
        return value(answer, f"pod_security_{name}_total", **of_request, **labels)

    enforced = {"mode": "enforce", "policy_level": "baseline", "policy_version": "latest"}
    assert counted("evaluations", decision="deny", **enforced) == CALLS
    assert counted("evaluations", decision="allow", **enforced) == CALLS
    warned = {"mode": "warn", "policy_level": "restricted", "policy_version": "future"}
    assert counted("evaluations", decision="deny", **warned) == CALLS
    assert counted("errors", fatal="true") == CALLS
    assert b"# TYPE pod_security_exemptions_total counter" in answer
