"""Reports and Events as an API server gets them, with conflicts, refusals and outages."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import ClusterError
from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.config.kinds.report_settings import ReportSettings
from gateway.server.kubernetes.access import ClusterAccess
from gateway.server.reports import writer as module
from gateway.server.reports.document import KINDS, NAME
from gateway.server.reports.events import EventWriter, event_of
from gateway.server.reports.finding import Finding, ObjectRef
from gateway.server.reports.writer import ReportWriter
from tests.kubernetes.server import ApiServer, refuse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from pathlib import Path

OPEN_REPORTS, POLICY_REPORTS = KINDS
REPORT = f"{OPEN_REPORTS.path('ns')}/{NAME}"


@pytest.fixture
def server() -> Iterator[ApiServer]:
    with ApiServer() as server:
        install(server, OPEN_REPORTS.group_version)
        yield server


def install(server: ApiServer, group_version: str) -> None:
    server.objects[f"/apis/{group_version}"] = {"kind": "APIResourceList"}


def finding(name: str = "p", time: float = 2_000_000_000.0, namespace: str = "ns") -> Finding:
    about = ObjectRef("v1", "Pod", namespace, name, "uid-1")
    return Finding("error", "w.test", "c", "pool/policy", "no answer", "UPDATE", time, about)


def run(server: ApiServer, folder: Path, scenario: Callable[[ClusterAccess], Awaitable[None]]) -> None:
    async def main() -> None:
        access = ClusterAccess(KubernetesSettings(server.kubeconfig(folder)))
        try:
            await scenario(access)
        finally:
            await access.close()

    asyncio.run(main())


def counts(server: ApiServer, path: str = REPORT) -> dict[str, str]:
    results = server.objects[path]["results"]
    return {one["resources"][0]["name"]: one["properties"]["count"] for one in results}


def test_two_processes_write_the_same_report(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(access: ClusterAccess) -> None:
        writers = [ReportWriter(access, ReportSettings()) for _ in range(2)]
        for writer in writers:
            for name in ("a", "b"):
                writer.add(finding(name))
        await asyncio.gather(*(writer.write() for writer in writers))
        assert counts(server) == {"a": "2", "b": "2"}
        assert [writer.dropped for writer in writers] == [0, 0]

    run(server, tmp_path, scenario)


def test_a_conflict_is_merged_again(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(access: ClusterAccess) -> None:
        writer = ReportWriter(access, ReportSettings())
        writer.add(finding())
        await writer.write()
        writer.add(finding())
        server.faults["put"].extend([refuse(409), refuse(409)])
        await writer.write()
        assert counts(server) == {"p": "2"}

    run(server, tmp_path, scenario)


def test_findings_wait_while_the_api_server_is_away(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(access: ClusterAccess) -> None:
        writer = ReportWriter(access, ReportSettings())
        writer.add(finding())
        server.faults["post"].append(refuse(500))
        with pytest.raises(ClusterError):
            await writer.write()
        await writer.write()
        assert counts(server) == {"p": "1"}
        assert writer.dropped == 0

    run(server, tmp_path, scenario)


@pytest.mark.parametrize("status", [403, 404, 422])
def test_a_refused_report_does_not_delay_the_others(server: ApiServer, tmp_path: Path, status: int) -> None:
    async def scenario(access: ClusterAccess) -> None:
        writer = ReportWriter(access, ReportSettings())
        writer.add(finding())
        writer.add(finding(namespace="other"))
        server.faults["post"].append(refuse(status))
        await writer.write()
        assert writer.dropped == 1
        assert counts(server, f"{OPEN_REPORTS.path('other')}/{NAME}") == {"p": "1"}

    run(server, tmp_path, scenario)


def test_a_report_that_another_program_made_stays(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "gateway.server.reports.writer")
    foreign = {"metadata": {"name": NAME, "resourceVersion": "1"}, "results": []}

    async def scenario(access: ClusterAccess) -> None:
        server.objects[REPORT] = foreign
        writer = ReportWriter(access, ReportSettings())
        writer.add(finding())
        await writer.write()
        assert server.objects[REPORT] is foreign
        assert writer.dropped == 1
        assert "has no label app.kubernetes.io/managed-by" in caplog.text

    run(server, tmp_path, scenario)


def test_both_kinds_of_report_are_written_where_both_are_installed(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(access: ClusterAccess) -> None:
        install(server, POLICY_REPORTS.group_version)
        writer = ReportWriter(access, ReportSettings())
        writer.add(finding(namespace=""))
        await writer.write()
        for kind in KINDS:
            report = server.objects[f"{kind.path('')}/{NAME}"]
            assert report["kind"] == kind.cluster
            assert ("source" in report) == kind.has_source

    run(server, tmp_path, scenario)


def test_without_definitions_findings_are_dropped_and_counted(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level("WARNING", "gateway.server.reports.writer")

    async def scenario(access: ClusterAccess) -> None:
        del server.objects[f"/apis/{OPEN_REPORTS.group_version}"]
        writer = ReportWriter(access, ReportSettings())
        for _ in range(2):
            writer.add(finding())
            await writer.write()
        assert writer.dropped == 2
        assert caplog.text.count("no CustomResourceDefinitions of openreports.io/v1alpha1") == 1

    run(server, tmp_path, scenario)


def test_findings_beyond_the_bound_are_dropped_and_counted(
    server: ApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "MAX_PENDING", 3)

    async def scenario(access: ClusterAccess) -> None:
        writer = ReportWriter(access, ReportSettings())
        for number in range(5):
            writer.add(finding(f"p{number}"))
        await writer.write()
        assert (len(counts(server)), writer.dropped) == (3, 2)
        writer.add(finding())
        await writer.write()
        assert (len(counts(server)), writer.dropped) == (4, 2)

    run(server, tmp_path, scenario)


def test_a_report_without_results_is_removed(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(access: ClusterAccess) -> None:
        writer = ReportWriter(access, ReportSettings())
        writer.add(finding())
        await writer.write()
        server.objects[REPORT]["results"][0]["timestamp"]["seconds"] = 1
        lists = [f"/apis/{OPEN_REPORTS.group_version}/{plural}" for plural in ("reports", "clusterreports")]
        server.objects[lists[0]] = {"items": [server.objects[REPORT]]}
        server.objects[lists[1]] = {"items": []}
        await writer.expire()
        assert REPORT not in server.objects

    run(server, tmp_path, scenario)


def test_an_event_is_created_once_for_all_replicas(server: ApiServer, tmp_path: Path) -> None:
    def is_event(path: str) -> bool:
        return path.startswith("/apis/events.k8s.io/v1/namespaces/ns/events")

    async def scenario(access: ClusterAccess) -> None:
        writers = [EventWriter(access, f"replica-{number}") for number in range(2)]
        tasks = [asyncio.create_task(writer.run()) for writer in writers]
        for writer in writers:
            for _ in range(3):
                writer.add(finding())
        await asyncio.to_thread(
            server.wait_for, lambda: server.asked("post") == 2 and any(map(is_event, server.objects))
        )
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        (event,) = (found for path, found in server.objects.items() if is_event(path))
        assert event["regarding"]["uid"] == "uid-1"
        assert event["note"] == 'UPDATE denied by webhook "w.test": no answer'

    run(server, tmp_path, scenario)


@pytest.mark.parametrize("text", ["\n\x1b[2J\ud800" + "x" * 100_000, "\N{EURO SIGN}" * 2000, ""])
@pytest.mark.parametrize("name", ["n" * 253, "system:Node:é", "...", "-", ""])
def test_an_event_keeps_the_bounds_of_the_api(text: str, name: str) -> None:
    about = ObjectRef("v1", "Pod", "", name)
    event: dict[str, Any] = event_of(
        Finding("fail", "w.test", "c", "", text, "DELETE", 1.0, about), "replica"
    )
    assert event["note"].isprintable()
    assert len(event["note"].encode()) <= 1024
    assert dns_1123_subdomain(event["metadata"]["name"]) is None
    assert event["metadata"]["namespace"] == "default"
