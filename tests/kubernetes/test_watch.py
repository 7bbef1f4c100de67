"""The watch against an API server that is slow, forgets, refuses and breaks off."""

from __future__ import annotations

import logging
from contextlib import asynccontextmanager
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.pure.core.namespace import Namespace
from gateway.server.kubernetes.namespaces import ClusterNamespaces, namespace_of
from gateway.server.kubernetes.watch import Pace, Store, stored_json
from tests.kit import PATIENCE_S
from tests.kubernetes.server import ApiServer, hang, hang_up, refuse, silence, stream
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Callable, Iterator

    from tests.in_process import Stage
    from tests.kubernetes.server import Handler

FAST = Pace(watch_s=(30, 30), first_pause_s=0.002, longest_pause_s=0.01)


EVENT_LOOPS = ("asyncio", "uvloop")


@asynccontextmanager
async def followed(file: Path, pace: Pace = FAST) -> AsyncIterator[ClusterNamespaces]:
    namespaces = ClusterNamespaces(KubernetesSettings(file), pace)
    await namespaces.start()
    try:
        yield namespaces
    finally:
        await namespaces.close()


def labels_in(namespaces: ClusterNamespaces) -> dict[str, dict[str, str]]:
    return {name: dict(namespace.labels) for name, namespace in namespaces.by_name.items()}


async def in_step(namespaces: ClusterNamespaces, server: ApiServer) -> None:
    await until(lambda: labels_in(namespaces) == server.labels())


def test_an_object_that_stays_is_there_while_a_list_replaces_the_others() -> None:
    """A thread that evaluates a policy may look at any time."""
    seen: list[bool] = []

    def objects() -> Iterator[Namespace]:
        for name in ("new", "stays"):
            seen.append("stays" in store.by_name)
            yield Namespace(name, {}, b"")

    store: Store[Namespace] = Store(namespace_of)
    store.replace([Namespace("goes", {}, b""), Namespace("stays", {}, b"")])
    store.replace(objects())
    assert seen == [True, True]
    assert {*store.by_name} == {"new", "stays"}


async def test_objects_are_listed_and_changes_followed(server: ApiServer, tmp_path: Path) -> None:
    server.put("red", team="a")
    async with followed(server.kubeconfig(tmp_path)) as namespaces:
        before = namespaces.not_synced
        assert before == "namespaces not synced: the API server has not answered yet"
        assert await namespaces.wait_until_synced(PATIENCE_S)
        assert namespaces.not_synced is None
        await in_step(namespaces, server)
        server.put("blue", team="b")
        server.put("red", team="c")
        await in_step(namespaces, server)
        server.delete("red")
        await in_step(namespaces, server)
        assert set(namespaces.by_name) == {"blue"}
        assert namespaces.is_connected
    assert (server.asked("list"), server.asked("watch")) == (1, 1)


async def test_workers_get_the_object_without_managed_fields(
    server: ApiServer, tmp_path: Path, stage: Stage
) -> None:
    async with followed(server.kubeconfig(tmp_path)) as namespaces:
        await until(lambda: server.watches == 1)
        server.put("red", team="a")
        await in_step(namespaces, server)
        shown = namespaces.by_name["red"].json
        assert shown.startswith(b'{"apiVersion":"v1","kind":"Namespace","metadata":{"name":"red"')
        assert "one\x85line\u2028only" in shown.decode()
        assert b'"finalizers":["kubernetes"]' in shown
        assert b"managedFields" not in shown


async def test_a_long_list_comes_in_pages(server: ApiServer, tmp_path: Path, stage: Stage) -> None:
    server.page = 2
    for number in range(5):
        server.put(f"n{number}")
    async with followed(server.kubeconfig(tmp_path)) as namespaces:
        await in_step(namespaces, server)
    assert [parameters.get("continue") for kind, parameters in server.requests if kind == "list"] == [
        *(None, "2", "4")
    ]


async def test_a_new_watch_continues_from_the_last_version(
    server: ApiServer, tmp_path: Path, stage: Stage
) -> None:
    """Also from a bookmark, so that a watch without events need not list again."""
    async with followed(server.kubeconfig(tmp_path)) as namespaces:
        for number, abruptly in enumerate((False, True)):
            await until(lambda: (server.asked("watch"), server.watches) == (number + 1, 1))  # noqa: B023
            server.put("red", time=str(abruptly))
            server.bookmark()
            server.bookmark()
            await until(lambda: namespaces._watch._version == str(server.version))
            server.end_watches(abruptly=abruptly, last_words=b'{"type":"ADDED","obj')
        await until(lambda: server.asked("watch") == 3)
        await until(lambda: namespaces.is_connected)
    watches = [parameters for kind, parameters in server.requests if kind == "watch"]
    assert all(parameters["allowWatchBookmarks"] == "true" for parameters in watches)
    assert server.asked("list") == 1
    assert [parameters["resourceVersion"] for parameters in watches] == ["100", "103", "106"]


@pytest.mark.parametrize(
    "fault",
    [
        refuse(410, "too old resource version"),
        stream(b'{"type":"ERROR","object":{"kind":"Status","code":410,"message":"too old"}}\n'),
        stream(b'{"type":"ERROR","object":{"kind":"Status","code":500,"message":"etcd is restored"}}\n'),
        stream(b'{"type":"ERROR"}\n'),
        stream(b'{"type":"MODIFIED","object":{"metadata":{}}}\n'),
        stream(b'{"type":"MODIFIED","object":{"metadata":{"resourceVersion":"1"}}}\n'),
        stream(b'{"type":"OTHER","object":{"metadata":{"resourceVersion":"1","name":"x"}}}\n'),
        stream(b"[]\n"),
        stream(b"<html>\n"),
        refuse(504, "Too large resource version"),
    ],
)
async def test_a_watch_with_an_expired_version_lists_again(
    server: ApiServer, tmp_path: Path, stage: Stage, fault: Callable[[object], None]
) -> None:
    server.put("red")
    server.faults["watch"].append(fault)
    async with followed(server.kubeconfig(tmp_path)) as namespaces:
        await until(lambda: server.asked("watch") == 2)
        server.put("blue")
        await in_step(namespaces, server)
    assert server.asked("list") == 2


@pytest.mark.parametrize(
    "fault",
    [
        hang_up,
        refuse(429, "too many requests"),
        stream(),
        stream(ends=False),
        stream(b'{"type":"ADDED","object":{"metadata":', ends=False),
    ],
)
async def test_a_broken_watch_is_restarted(
    server: ApiServer, tmp_path: Path, stage: Stage, fault: Callable[[object], None]
) -> None:
    server.put("red")
    server.faults["watch"].extend([fault] * 3)
    async with followed(server.kubeconfig(tmp_path)) as namespaces:
        await until(lambda: server.watches == 1)
        server.put("blue")
        await in_step(namespaces, server)
    assert server.asked("list") == 1


async def test_a_silent_connection_is_closed(server: ApiServer, tmp_path: Path, stage: Stage) -> None:
    server.faults["watch"].append(silence)
    pace = Pace(watch_s=(0, 0), silence_s=0.05, first_pause_s=0.001)
    async with followed(server.kubeconfig(tmp_path), pace):
        await until(lambda: server.asked("watch") >= 2)


async def test_a_server_that_ends_every_watch_immediately_causes_back_off(
    server: ApiServer, tmp_path: Path, stage: Stage
) -> None:
    at: list[float] = []

    def end(handler: Handler) -> None:
        at.append(stage.loop.time())
        stream()(handler)

    server.faults["watch"].extend([end] * 12)
    async with followed(server.kubeconfig(tmp_path), Pace()):
        await until(lambda: server.watches == 1)
        at.append(stage.loop.time())
    pauses = [after - before for before, after in pairwise(at)]
    assert len(pauses) == 12
    assert 0.25 <= pauses[0] <= 0.51
    assert all(15 <= pause <= 30.01 for pause in pauses[6:])


async def test_the_last_known_namespaces_stay_while_the_server_is_down(
    server: ApiServer, tmp_path: Path, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway")
    server.put("red", team="a")
    async with followed(server.kubeconfig(tmp_path)) as namespaces:
        await until(lambda: server.watches == 1)
        known = labels_in(namespaces)
        server.faults["watch"].extend([refuse(503)] * 3)
        server.faults["list"].extend([refuse(500)] * 20)
        server.end_watches(abruptly=True)
        await until(lambda: server.asked("list") > 10)
        assert labels_in(namespaces) == known
        assert not namespaces.is_connected
        assert namespaces.not_synced is None
        server.put("blue")
        await in_step(namespaces, server)
        await until(lambda: namespaces.is_connected)
        # The loss is logged once for all attempts.
        server.put("green")
        await in_step(namespaces, server)
    said = [
        record.getMessage() for record in caplog.records if record.name == "gateway.server.kubernetes.watch"
    ]
    assert said == [
        f"namespaces synced: 1 from {server.url}",
        "watch of namespaces lost, the last known ones stay in force: the API server answers 503: refused",
        "watch of namespaces restored",
    ]


async def test_the_reason_for_unsynced_namespaces(
    server: ApiServer, tmp_path: Path, stage: Stage, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "gateway")
    server.token = "right"
    async with followed(server.kubeconfig(tmp_path, token="wrong")) as namespaces:
        await until(lambda: server.asked("list") > 3)
        assert namespaces.not_synced == ("namespaces not synced: the API server answers 401: Unauthorized")
        server.token = "wrong"
        assert await namespaces.wait_until_synced(PATIENCE_S)
    assert [
        record.getMessage() for record in caplog.records if record.name == "gateway.server.kubernetes.watch"
    ][:2] == [
        "namespaces cannot be read yet: the API server answers 401: Unauthorized",
        f"namespaces synced: 0 from {server.url}",
    ]


@pytest.mark.parametrize(
    ("fault", "why"),
    [
        (refuse(403, 'namespaces is forbidden: User "x" cannot list'), "403: namespaces is forbidden: User"),
        (hang_up, "Server disconnected without sending a response."),
        (lambda handler: handler.send(200, b"<html>"), "is not an object"),
        (lambda handler: handler.send(200, b"{}"), "is not a NamespaceList"),
        (lambda handler: handler.send(500, b"<h1>proxy</h1>"), "500: <h1>proxy</h1>"),
        (lambda handler: handler.send(302, b"", Location="/login"), "302: no explanation"),
        (
            lambda handler: handler.send(200, b'{"items":[5],"metadata":{"resourceVersion":"1"}}'),
            "a Namespace without a name",
        ),
    ],
)
async def test_the_error_of_a_server_that_is_not_an_api_server_is_one_line(
    server: ApiServer, tmp_path: Path, stage: Stage, fault: Callable[[object], None], why: str
) -> None:
    server.faults["list"].append(fault)
    pace = Pace(first_pause_s=PATIENCE_S, longest_pause_s=PATIENCE_S)
    async with followed(server.kubeconfig(tmp_path), pace) as namespaces:
        await until(lambda: "not answered yet" not in (namespaces.not_synced or ""))
        assert why in (namespaces.not_synced or "")
        assert "\n" not in (namespaces.not_synced or "")


async def test_the_watch_waits_for_a_server_that_is_down(
    server: ApiServer, tmp_path: Path, stage: Stage
) -> None:
    file = server.kubeconfig(tmp_path, {"server": "http://127.0.0.1:9"})
    async with followed(file) as namespaces:
        await until(lambda: "Connect" in (namespaces.not_synced or ""))
        assert namespaces.not_synced == ("namespaces not synced: http://127.0.0.1:9: Connection refused")
        # The kubeconfig is read again after failures.
        server.kubeconfig(tmp_path)
        assert await namespaces.wait_until_synced(PATIENCE_S)


def test_another_cluster_in_the_same_kubeconfig_is_listed(
    server: ApiServer, tmp_path: Path, stage: Stage
) -> None:
    async def scenario(other: ApiServer) -> None:
        server.put("red")
        other.put("blue")
        async with followed(server.kubeconfig(tmp_path)) as namespaces:
            await in_step(namespaces, server)
            await until(lambda: server.watches == 1)
            other.kubeconfig(tmp_path)
            server.end_watches(abruptly=True)
            await in_step(namespaces, other)

    stage.run(scenario(stage.enter(ApiServer())))


async def test_it_can_be_closed_at_any_moment(server: ApiServer, tmp_path: Path, stage: Stage) -> None:
    server.faults["list"].append(hang)
    async with followed(server.kubeconfig(tmp_path)):
        await until(lambda: server.asked("list") == 1)
    async with followed(server.kubeconfig(tmp_path)):
        pass


names = st.sampled_from(["a", "b", "c", "d"])
steps = st.lists(
    st.one_of(
        st.tuples(st.just("put"), names, st.sampled_from("xyz")),
        st.tuples(st.just("delete"), names),
        st.tuples(st.sampled_from(["bookmark", "compact", "break", "end", "gone", "busy", "wait"])),
    ),
    max_size=12,
)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(steps=steps)
def test_after_any_sequence_of_faults_the_store_equals_the_server(
    steps: list[tuple[str, ...]], tmp_path: Path, stage: Stage
) -> None:
    async def scenario() -> None:
        async with ApiServer() as server, followed(server.kubeconfig(tmp_path)) as namespaces:
            server.page = 2
            for step, *members in steps:
                match step:
                    case "put":
                        server.put(members[0], value=members[1])
                    case "delete":
                        server.delete(members[0])
                    case "bookmark":
                        server.bookmark()
                    case "compact":
                        server.compact()
                    case "break" | "end":
                        server.end_watches(abruptly=step == "break", last_words=b'{"type":"DEL')
                    case "gone":
                        server.faults["watch"].append(refuse(410))
                    case "busy":
                        server.faults["list"].append(hang_up)
                        server.faults["watch"].append(refuse(429))
                    case _:
                        await in_step(namespaces, server)
            await in_step(namespaces, server)

    stage.run(scenario())


def test_stored_json_takes_no_more_memory_than_its_length() -> None:
    """4 KB for each of them would be 160 MB."""

    def memory() -> int:
        return int(Path("/proc/self/status").read_text().split("RssAnon:")[1].split()[0]) * 1024

    before = memory()
    stored = [stored_json({"limit": number}) for number in range(40_000)]
    assert memory() - before < 40_000_000
    assert stored[7] == b'{"limit":7}'
