"""When statuses and Events are written, and when not."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import ClusterError, Problem
from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.config.kinds.names import dns_1123_subdomain
from gateway.config.merge.custom_resource import CustomResource
from gateway.config.merge.resource_status import ResourceStatus
from gateway.pure.admission_policies.expression_warnings import ExpressionWarning
from gateway.server.kubernetes import status_writer
from gateway.server.kubernetes.access import ClusterAccess
from gateway.server.kubernetes.status_writer import StatusWriter, condition_of
from tests.kubernetes.server import GATEWAY, ApiServer, refuse

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from gateway.config.merge.custom_resource import Key


def judged(server: ApiServer, name: str = "p", *messages: str) -> ResourceStatus:
    """What came of the resource *name*, as the server has it now."""
    document = server.objects[f"{GATEWAY}/workerpools/{name}"]
    problems = tuple(Problem("cluster", "spec.target", message) for message in messages)
    reason = "Invalid" if problems else "Accepted"
    return ResourceStatus(
        CustomResource("WorkerPool", name, document), reason, problems, "the resource is ignored"
    )


def pool(name: str = "p") -> dict[str, Any]:
    return {"kind": "WorkerPool", "metadata": {"name": name}, "spec": {"target": "a:1"}}


def written(server: ApiServer) -> int:
    return server.asked("patch")


def run(
    server: ApiServer,
    folder: Path,
    scenario: Callable[[Callable[..., Awaitable[None]]], Awaitable[None]],
) -> None:
    """Run *scenario* with a function that writes statuses."""

    async def main() -> None:
        access = ClusterAccess(KubernetesSettings(server.kubeconfig(folder)))
        watched: dict[Key, CustomResource] = {}
        writer = StatusWriter(access, watched.get, "me")

        async def tell(*statuses: ResourceStatus) -> None:
            watched.update((status.resource.key, status.resource) for status in statuses)
            writer.use(statuses)
            await writer.write_all()

        try:
            await scenario(tell)
        finally:
            await access.close()

    asyncio.run(main())


def test_a_policy_has_the_warnings_of_type_checking(
    server: ApiServer, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    policy = "ValidatingAdmissionPolicy"
    warning = ExpressionWarning("spec.validations[0].expression", "apps/v1, Kind=X: …\n", "it cannot succeed")

    def accepted(*warnings: ExpressionWarning) -> ResourceStatus:
        server.apply({"kind": policy, "metadata": {"name": "p"}, "spec": {}})
        document = server.objects[f"{GATEWAY}/validatingadmissionpolicies/p"]
        status = ResourceStatus(CustomResource(policy, "p", document), "Accepted")
        return status.with_type_warnings(warnings)

    def status() -> dict[str, Any]:
        found: dict[str, Any] = server.objects[f"{GATEWAY}/validatingadmissionpolicies/p"]["status"]
        return found

    async def scenario(tell: Callable[..., Awaitable[None]]) -> None:
        await tell(accepted(warning))
        ready = server.ready(policy, "p")
        assert (ready["status"], ready["reason"]) == ("True", "CannotSucceed")
        assert ready["message"] == "in force, but it cannot succeed"
        found = [{"fieldRef": warning.field_ref, "warning": warning.warning}]
        assert status()["typeChecking"] == {"expressionWarnings": found}
        generation = status()["observedGeneration"]
        assert generation == ready["observedGeneration"]
        await tell(accepted())
        assert server.ready(policy, "p")["reason"] == "Accepted"
        assert "typeChecking" not in status()
        # A definition that is older than the gateway.
        undeclared = "failed to create typed patch object: .status.typeChecking: field not declared in schema"
        server.faults["patch"].append(refuse(500, undeclared))
        await tell(accepted(warning))
        assert server.ready(policy, "p")["reason"] == "CannotSucceed"
        assert "typeChecking" not in status()
        await tell(accepted())
        assert server.ready(policy, "p")["reason"] == "Accepted"
        assert written(server) == 5

    run(server, tmp_path, scenario)
    (told,) = [one for one in caplog.messages if "status without typeChecking" in one]
    assert "apply deploy/chart/files/crds.yaml" in told


def test_a_status_is_written_once_and_has_the_time_of_its_transition(
    server: ApiServer, tmp_path: Path
) -> None:
    async def scenario(tell: Callable[..., Awaitable[None]]) -> None:
        server.apply(pool())
        await tell(judged(server))
        first = server.ready("WorkerPool", "p")
        assert (first["status"], first["message"], first["observedGeneration"]) == ("True", "in force", 1)
        await tell(judged(server))
        assert written(server) == 1
        server.objects[f"{GATEWAY}/workerpools/p"]["status"]["conditions"][0]["lastTransitionTime"] = "then"
        server.apply(pool())
        await tell(judged(server))
        second = server.ready("WorkerPool", "p")
        assert (second["observedGeneration"], second["lastTransitionTime"]) == (2, "then")
        await tell(judged(server, "p", "wrong"))
        assert server.ready("WorkerPool", "p")["lastTransitionTime"] != "then"
        assert written(server) == 3

    run(server, tmp_path, scenario)


def test_a_status_that_the_server_drops_is_not_written_in_a_loop(server: ApiServer, tmp_path: Path) -> None:
    """As for a CustomResourceDefinition without a status."""

    async def scenario(tell: Callable[..., Awaitable[None]]) -> None:
        server.apply(pool())
        for _ in range(10):
            await tell(judged(server))
            server.objects[f"{GATEWAY}/workerpools/p"].pop("status", None)
        assert written(server) == 1

    run(server, tmp_path, scenario)


async def test_a_replica_skips_what_another_has_written_and_creates_no_second_event(
    server: ApiServer, tmp_path: Path
) -> None:
    server.apply(pool())
    stale = judged(server, "p", "wrong")
    seen = {stale.resource.key: stale.resource}
    access = ClusterAccess(KubernetesSettings(server.kubeconfig(tmp_path)))
    first, second, late = (StatusWriter(access, seen.get, name) for name in ("1", "2", "3"))
    for writer in (first, second, late):
        writer.use([stale])
    await asyncio.gather(first.write_all(), second.write_all())
    assert written(server) == 2, "neither could have seen the other's status"
    assert len(server.told) == 1
    seen[stale.resource.key] = judged(server, "p", "wrong").resource
    await late.write_all()
    assert written(server) == 2
    await access.close()


def test_a_deleted_or_replaced_object_does_not_delay_others(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(tell: Callable[..., Awaitable[None]]) -> None:
        for name in ("a", "b", "c"):
            server.apply(pool(name))
        statuses = [judged(server, name) for name in ("a", "b", "c")]
        server.remove("WorkerPool", "a")
        server.remove("WorkerPool", "b")
        server.apply(pool("b"))
        await tell(*statuses)
        assert server.ready("WorkerPool", "b") == {}
        assert server.ready("WorkerPool", "c")["status"] == "True"

    run(server, tmp_path, scenario)


def test_events_are_limited_and_contain_no_values(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(tell: Callable[..., Awaitable[None]]) -> None:
        names = [f"p{number}" for number in range(status_writer.MAX_EVENTS_PER_MINUTE + 5)]
        for name in names:
            server.apply(pool(name))
        await tell(*(judged(server, name, 'found "s3cret"') for name in names))
        assert len(server.told) == status_writer.MAX_EVENTS_PER_MINUTE
        assert all("s3cret" not in str(event) and "spec.target" in event["note"] for event in server.told)
        assert all(server.ready("WorkerPool", name)["status"] == "False" for name in names)

    run(server, tmp_path, scenario)


def test_a_status_is_written_although_the_event_is_refused(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(tell: Callable[..., Awaitable[None]]) -> None:
        server.faults["post"].append(refuse(403, "events is forbidden"))
        server.apply(pool())
        await tell(judged(server, "p", "wrong"))
        assert server.ready("WorkerPool", "p")["status"] == "False"

    run(server, tmp_path, scenario)


def test_a_long_list_of_problems_is_cut() -> None:
    problems = tuple(Problem("c", f"webhooks[{n}]", "x" * 300) for n in range(50))
    resource = CustomResource("WorkerPool", "p", {})
    message = condition_of(ResourceStatus(resource, "Invalid", problems, "gone"))["message"]
    assert len(message) == status_writer.MAX_MESSAGE_CHARS
    short = tuple(Problem("c", f"webhooks[{n}]", "x") for n in range(50))
    message = condition_of(ResourceStatus(resource, "Invalid", short, "gone"))["message"]
    assert message.splitlines()[-2:] == ["and 30 more", "Effect: gone."]


@pytest.mark.parametrize("status", [403, 422])
def test_a_refused_status_does_not_delay_others_and_is_not_retried_in_a_loop(
    server: ApiServer, tmp_path: Path, status: int
) -> None:
    """As by a CustomResourceDefinition that has become stricter, or by another webhook."""

    async def scenario(tell: Callable[..., Awaitable[None]]) -> None:
        for name in ("a", "b"):
            server.apply(pool(name))
        server.faults["patch"].extend([refuse(status)])
        statuses = [judged(server, name) for name in ("a", "b")]
        with pytest.raises(ClusterError):
            await tell(*statuses)
        written_ones = [name for name in ("a", "b") if server.ready("WorkerPool", name)]
        assert len(written_ones) == 1
        for _ in range(10):
            await tell(judged(server, "a"), judged(server, "b"))
        assert written(server) == 2

    run(server, tmp_path, scenario)


def test_a_status_without_an_answer_is_written_again(server: ApiServer, tmp_path: Path) -> None:
    async def scenario(tell: Callable[..., Awaitable[None]]) -> None:
        server.apply(pool())
        server.faults["patch"].append(refuse(503))
        with pytest.raises(ClusterError):
            await tell(judged(server))
        await tell(judged(server))
        assert server.ready("WorkerPool", "p")["status"] == "True"

    run(server, tmp_path, scenario)


@pytest.mark.parametrize("name", ["p", "a" * 199 + "-" + "b" * 53, "a" * 199 + ".b", "a" * 253])
def test_the_name_of_an_event_is_valid(server: ApiServer, tmp_path: Path, name: str) -> None:
    async def scenario(tell: Callable[..., Awaitable[None]]) -> None:
        server.apply(pool(name))
        await tell(judged(server, name, "wrong"))
        (event,) = server.told
        assert dns_1123_subdomain(event["metadata"]["name"]) is None

    run(server, tmp_path, scenario)
