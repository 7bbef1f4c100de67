"""Reports and Events in a real API server, with the definitions of OpenReports and the deployed role."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.cluster import ALICE
from tests.e2e.objects import pod
from tests.e2e.report_definitions import GROUP, define_reports
from tests.e2e.setups import PODS, BehindGateway, Hook, deployed_account
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.cluster import Cluster


@pytest.fixture(scope="module")
def account(cluster: Cluster, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """A kubeconfig of the deployed service account with the rights of reports.yaml; reports are defined."""
    define_reports(cluster)
    with deployed_account(cluster, tmp_path_factory.mktemp("account"), "reports.yaml") as kubeconfig:
        yield kubeconfig


def report(cluster: Cluster, namespace: str) -> dict[str, Any]:
    answer = cluster.api.get(f"{GROUP}/namespaces/{namespace}/reports/admission-gateway")
    return answer.document if answer.status == 200 else {}


def test_failures_are_reported_and_denials_of_existing_objects_have_an_event(
    cluster: Cluster, namespace: str, account: Path, tmp_path: Path
) -> None:
    hooks = [
        Hook("validate", "open.reports.test", {"status": "INTERNAL"}, fields={"failurePolicy": "Ignore"}),
        Hook(
            "validate",
            "deny.reports.test",
            {"deny": {"message": "labels are fixed"}},
            ({**PODS, "operations": ["UPDATE"]},),
        ),
    ]
    settings = {"kubernetes": {"kubeconfig": str(account)}, "reports": {"retention": "1m", "events": True}}
    pods = f"/api/v1/namespaces/{namespace}/pods"
    with BehindGateway(cluster, tmp_path, hooks, "reports", gateway=settings) as setup:
        created = cluster.api.create(pods, pod("reported"))
        assert created.status == 201, created
        uid = created.document["metadata"]["uid"]
        denied = cluster.kubectl("label", "pod", "reported", "a=b", f"--namespace={namespace}", user=ALICE)
        assert "labels are fixed" in denied.stderr

        eventually(lambda: report(cluster, namespace))
        found = report(cluster, namespace)
        assert found["source"] == "admission-gateway"
        assert found["summary"]["error"] == len(found["results"])
        (result,) = (one for one in found["results"] if one["resources"][0]["name"] == "reported")
        assert result["policy"] == "open.reports.test"
        assert result["message"].endswith("the request passed")
        listed = cluster.kubectl("get", "reports", f"--namespace={namespace}").stdout
        assert "admission-gateway" in listed

        def described() -> str:
            return cluster.kubectl("describe", "pod", "reported", f"--namespace={namespace}").stdout

        text = 'UPDATE denied by webhook "deny.reports.test": labels are fixed'
        eventually(lambda: text in described())
        events = cluster.api.get(f"/apis/events.k8s.io/v1/namespaces/{namespace}/events").document["items"]
        assert [one["regarding"]["uid"] for one in events if one["reason"] == "AdmissionDenied"] == [uid]
        assert "forbidden" not in setup.gateway.log
        assert "Traceback" not in setup.gateway.log
