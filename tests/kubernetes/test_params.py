"""The parameters of policies in a cluster: followed, looked up on a miss, and kept while it is away."""

from __future__ import annotations

import asyncio
import json
from typing import TYPE_CHECKING, Any

import pytest

from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.pure.admission_policies.model import ParamRef
from gateway.pure.admission_policies.params import ParamsError, UnreadParamsError, collect
from gateway.pure.cel.paths import WHOLE
from gateway.pure.core.conditions import FoundParam, ParamLookup
from gateway.pure.core.labels import Requirement, Selector
from gateway.pure.core.policy import ParamKind
from gateway.pure.core.role_bindings import CLUSTER_ROLE_BINDING, ROLE_BINDING, ROLE_PATHS
from gateway.server.kubernetes import params
from gateway.server.kubernetes.params import ClusterParams
from gateway.server.kubernetes.watch import Pace
from tests.kit import PATIENCE_S, call_command
from tests.kubernetes.server import refuse
from tests.waiting import until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from gateway.pure.cel.paths import Paths
    from gateway.pure.core.role_bindings import RoleIndex
    from tests.in_process import Stage
    from tests.kubernetes.server import ApiServer

FAST = Pace(first_pause_s=0.01, longest_pause_s=0.02)
CONFIG_MAP = ParamKind("v1", "ConfigMap")
LIMIT = ParamKind("limits.example.com/v1", "Limit")
MAPS = "/api/v1/namespaces/{}/configmaps/{}"
VERBS = ["get", "list", "watch"]
CORE = [
    {"name": "configmaps", "kind": "ConfigMap", "namespaced": True, "verbs": VERBS},
    {"name": "configmaps/status", "kind": "ConfigMap", "namespaced": True, "verbs": ["get"]},
    {"name": "bindings", "kind": "Binding", "namespaced": True, "verbs": ["create"]},
]
LIMITS = [{"name": "limits", "kind": "Limit", "namespaced": False, "verbs": [*VERBS, "create"]}]
ALL = Selector(())
MAPS_WHOLE = {("v1", "ConfigMap"): WHOLE}


@pytest.fixture
def cluster(server: ApiServer, tmp_path: Path, stage: Stage) -> Iterator[ClusterParams]:
    server.resources["/api/v1"] = CORE

    async def make() -> ClusterParams:
        return ClusterParams(KubernetesSettings(server.kubeconfig(tmp_path)), FAST)

    followed = stage.run(make())
    yield followed
    stage.run(followed.close())
    stage.eventually(lambda: server.watches == 0)


def ref(
    name: str = "", namespace: str = "", selector: Selector | None = None, action: Any = "Deny"
) -> ParamRef:
    return ParamRef(name, namespace, selector, action)


async def found(
    cluster: ClusterParams,
    kind: ParamKind,
    wanted: ParamRef,
    namespace: str = "default",
    paths: Paths = WHOLE,
) -> Any:
    """Return the parameters as a review that reads *paths* gets them, or the error."""
    results: dict[ParamLookup, FoundParam] = {}
    while True:
        try:
            return collect(kind, wanted, cluster, namespace, results, paths)
        except ParamsError as error:
            return str(error)
        except UnreadParamsError as unread:
            future: asyncio.Future[FoundParam] = asyncio.get_running_loop().create_future()
            cluster.look_up(unread.lookup, PATIENCE_S, future.set_result)
            results[unread.lookup] = await future


def names(found: Any) -> list[str] | str:
    return found if isinstance(found, str) else [one["metadata"]["name"] for one in found]


async def test_objects_of_a_kind_are_found_by_name_and_selector(
    server: ApiServer, cluster: ClusterParams
) -> None:
    server.keep(MAPS.format("default", "b"), data={"max": "1"}, metadata={"managedFields": [{}]})
    server.keep(MAPS.format("default", "a"), metadata={"labels": {"tier": "gold"}})
    server.keep(MAPS.format("other", "c"))
    cluster.activate(MAPS_WHOLE)
    (one,) = await found(cluster, CONFIG_MAP, ref("b"))
    assert one == {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "b", "namespace": "default", "resourceVersion": "101"},
        "data": {"max": "1"},
    }
    assert names(await found(cluster, CONFIG_MAP, ref(selector=ALL))) == ["a", "b"]
    gold = Selector((Requirement("tier", "In", frozenset({"gold"})),))
    assert names(await found(cluster, CONFIG_MAP, ref(selector=gold))) == ["a"]
    assert names(await found(cluster, CONFIG_MAP, ref("c", "other"))) == ["c"]
    assert names(await found(cluster, CONFIG_MAP, ref("c", action="Allow"))) == []
    followed: Any = cluster.of(CONFIG_MAP)
    assert [followed.select(f"none-{number}", ALL) for number in range(9)] == [[]] * 9
    assert followed._lists._spaces.keys() == {"default", "other"}
    assert followed._lists._spaces["default"][1].lists.keys() == {None, ALL, gold}
    server.keep(MAPS.format("default", "d"))
    await until(lambda: len(cluster.of(CONFIG_MAP).select("default", ALL)) == 3)  # type: ignore[union-attr]
    server.drop(MAPS.format("default", "b"))
    await until(lambda: len(cluster.of(CONFIG_MAP).select("default", ALL)) == 2)  # type: ignore[union-attr]
    assert server.asked("list params") == 1
    assert cluster.is_connected
    assert not cluster.warnings


async def test_expressions_read_what_the_watch_has_shown(server: ApiServer, cluster: ClusterParams) -> None:
    for key in (("b", "x"), ("a", "y"), ("a", "x")):
        server.keep(MAPS.format(*key))
    cluster.activate(MAPS_WHOLE)
    await cluster.wait_until_synced(PATIENCE_S)
    objects: Any = cluster.of(CONFIG_MAP)
    assert names([objects.seen("a", "y")]) == ["y"]
    assert objects.seen("a", "z") is None
    assert objects.seen("", "y") is None
    assert (objects.count(""), objects.count("a"), objects.count("c")) == (3, 2, 0)
    assert names(objects.select("", ALL)) == ["x", "y", "x"]
    assert 0 < objects.bytes_of("a", "y") < objects.bytes_of("a") < objects.bytes_of("")
    assert (objects.bytes_of("a", "z"), objects.bytes_of("c")) == (0, 0)
    asked = server.asked("get params")
    server.keep(MAPS.format("c", "z"))
    await until(lambda: objects.seen("c", "z") is not None)
    assert (objects.count(""), objects.count("c")) == (4, 1)
    assert server.asked("get params") == asked


async def test_an_object_that_the_watch_has_not_shown_is_requested(
    server: ApiServer, cluster: ClusterParams
) -> None:
    cluster.activate(MAPS_WHOLE)
    await cluster.wait_until_synced(PATIENCE_S)
    server.keep(MAPS.format("default", "new"), is_shown=False, data={"a": "b"})
    (one,) = await found(cluster, CONFIG_MAP, ref("new"))
    assert (one["kind"], one["data"]) == ("ConfigMap", {"a": "b"})
    missing = "no params found for policy binding with `Deny` parameterNotFoundAction"
    assert await found(cluster, CONFIG_MAP, ref("none")) == missing
    server.forbidden.add(MAPS.format("default", "secret"))
    assert "answers 403" in str(await found(cluster, CONFIG_MAP, ref("secret")))
    # Neither is a path.
    before = server.asked("get")
    assert await found(cluster, CONFIG_MAP, ref("x", "a/../b")) == missing
    assert server.asked("get") == before


async def test_a_kind_that_appears_later_is_found_and_one_that_goes_is_unknown(
    server: ApiServer, cluster: ClusterParams
) -> None:
    unknown = "failed to find resource referenced by paramKind: 'limits.example.com/v1, Kind=Limit'"
    cluster.activate({("limits.example.com/v1", "Limit"): WHOLE})
    assert await found(cluster, LIMIT, ref("a")) == unknown
    assert "the API server does not have Limit of limits.example.com/v1" in cluster.warnings[0]
    assert cluster.is_connected
    server.resources["/apis/limits.example.com/v1"] = LIMITS
    server.keep("/apis/limits.example.com/v1/limits/a", spec={"max": 3})
    await until(lambda: not cluster.warnings)
    assert names(await found(cluster, LIMIT, ref("a"))) == ["a"]
    assert names(await found(cluster, LIMIT, ref(selector=ALL), "")) == ["a"]
    assert "must not be provided" in str(await found(cluster, LIMIT, ref("a", "default")))
    del server.resources["/apis/limits.example.com/v1"]
    server.end_watches(abruptly=True)
    await until(lambda: "does not have" in "".join(cluster.warnings))
    assert await found(cluster, LIMIT, ref("a")) == unknown


async def test_the_last_objects_stay_while_the_api_server_is_away(
    server: ApiServer, cluster: ClusterParams
) -> None:
    server.keep(MAPS.format("default", "a"))
    cluster.activate(MAPS_WHOLE)
    await cluster.wait_until_synced(PATIENCE_S)
    await until(lambda: cluster.is_connected)
    for kind in ("list params", "watch params", "discovery", "get"):
        server.faults[kind].extend([refuse(500, "broken")] * 10_000)
    server.end_watches(abruptly=True)
    await until(lambda: not cluster.is_connected)
    assert names(await found(cluster, CONFIG_MAP, ref("a"))) == ["a"]
    assert names(await found(cluster, CONFIG_MAP, ref(selector=ALL))) == ["a"]
    assert "answers 500" in str(await found(cluster, CONFIG_MAP, ref("b")))
    await until(lambda: bool(cluster.warnings))
    assert cluster.warnings[0].endswith("the last known ones stay in use")
    for faults in server.faults.values():
        faults.clear()
    server.keep(MAPS.format("default", "b"))
    await until(lambda: cluster.is_connected)
    await until(lambda: len(cluster.of(CONFIG_MAP).select("default", ALL)) == 2)  # type: ignore[union-attr]


async def test_objects_that_have_not_been_read_are_waited_for_a_second(
    server: ApiServer, cluster: ClusterParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(params, "TIMEOUT_S", 0.05)
    server.faults["list params"].extend([refuse(403, "no")] * 10_000)
    cluster.activate(MAPS_WHOLE)
    text = "paramKind kind `&ParamKind{APIVersion:v1,Kind:ConfigMap,}` not yet synced to use for admission"
    assert await found(cluster, CONFIG_MAP, ref("a")) == text
    assert await found(cluster, CONFIG_MAP, ref(selector=ALL)) == text
    await until(lambda: "answers 403: no: policies cannot use them" in "".join(cluster.warnings))
    # One review has waited for nothing: the others do not wait while the API server refuses.
    monkeypatch.setattr(params, "TIMEOUT_S", 2 * PATIENCE_S)
    async with asyncio.timeout(PATIENCE_S):
        for _ in range(9):
            assert await found(cluster, CONFIG_MAP, ref("a")) == text
    server.faults["list params"].clear()
    await until(lambda: not cluster.warnings)
    assert names(await found(cluster, CONFIG_MAP, ref(selector=ALL, action="Allow"))) == []


async def test_a_kind_is_followed_once_and_only_while_it_is_used(
    server: ApiServer, cluster: ClusterParams
) -> None:
    kinds = MAPS_WHOLE
    cluster.activate(kinds)
    await until(lambda: server.watches == 1)
    cluster.stage({**kinds, ("v1", "Binding"): WHOLE})
    await cluster.wait_until_synced(PATIENCE_S)
    # It cannot be listed.
    assert await found(cluster, ParamKind("v1", "Binding"), ref("a")) == (
        "failed to find resource referenced by paramKind: '/v1, Kind=Binding'"
    )
    cluster.abandon()
    assert server.asked("list params") == 1
    cluster.activate({})
    await until(lambda: server.watches == 0)
    assert cluster.of(CONFIG_MAP) is None


async def test_a_kind_that_is_listed_with_another_plural_name_is_not_read(
    server: ApiServer, cluster: ClusterParams
) -> None:
    kinds = MAPS_WHOLE
    cluster.stage(kinds, {("v1", "ConfigMap"): "pods"})
    cluster.activate(kinds)
    assert "failed to find resource" in str(await found(cluster, CONFIG_MAP, ref("a")))
    (warning,) = cluster.warnings
    assert "is the resource configmaps, and policies of the GatewayConfiguration has pods" in warning
    assert server.asked("list params") == 0
    cluster.stage(kinds, {("v1", "ConfigMap"): "configmaps"})
    cluster.activate(kinds)
    await cluster.wait_until_synced(PATIENCE_S)
    assert not cluster.warnings


async def test_a_look_up_can_be_cancelled(server: ApiServer, cluster: ClusterParams) -> None:
    cluster.activate(MAPS_WHOLE)
    await cluster.wait_until_synced(PATIENCE_S)
    results: list[FoundParam] = []
    cluster.look_up(ParamLookup("v1", "ConfigMap", "default", "a"), 5.0, results.append)()
    assert names(await found(cluster, CONFIG_MAP, ref("b", action="Allow"))) == []
    assert not results


@pytest.mark.parametrize("reads", [False, True])
def test_a_review_of_a_file_takes_objects_from_the_cluster(
    server: ApiServer, tmp_path: Path, *, reads: bool
) -> None:
    """They are parameters, or expressions read them."""
    server.resources["/api/v1"] = CORE
    server.put("default")
    server.kubeconfig(tmp_path)
    rules = [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "p"}}
    policy: dict[str, Any] = {
        "matchConstraints": {"resourceRules": rules},
        "validations": [
            {"expression": "params.data.a == 'b'", "messageExpression": "'found ' + string(params.data.a)"}
        ],
    }
    reference = {"name": "x", "parameterNotFoundAction": "Deny"}
    binding: dict[str, Any] = {"policyName": "p", "validationActions": ["Deny"]}
    if reads:
        found = "resource.get('v1', 'configmaps', request.namespace, 'x')"
        policy = json.loads(json.dumps(policy).replace("params", found))
    else:
        policy["paramKind"] = {"apiVersion": "v1", "kind": "ConfigMap"}
        binding["paramRef"] = reference
    listed = {"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps"}
    documents = [
        {**head, "kind": "ValidatingAdmissionPolicy", "spec": policy},
        {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": binding},
        {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "GatewayConfiguration",
            "kubernetes": {"kubeconfig": str(tmp_path / "kubeconfig")},
            "policies": {"resources": [listed]},
        },
    ]
    config = tmp_path / "config.yaml"
    config.write_text("\n---\n".join(map(json.dumps, documents)))
    pod = tmp_path / "pod.json"
    metadata = {"name": "web", "namespace": "default"}
    pod.write_text(json.dumps({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {}}))
    for value, status in (("c", 1), ("b", 0)):
        server.keep(MAPS.format("default", "x"), data={"a": value})
        done = call_command("review", pod, "--config", config)
        assert done.returncode == status, done.stderr
        assert ("found c" in done.stdout) == (value == "c")


async def test_an_abandoned_configuration_leaves_the_names_by_which_kinds_are_listed(
    server: ApiServer, cluster: ClusterParams
) -> None:
    """Objects are not read by a wrong plural name."""
    server.keep(MAPS.format("default", "a"))
    kind = "v1", "ConfigMap"
    cluster.stage({kind: WHOLE}, {kind: "configmaps"})
    cluster.activate({kind: WHOLE})
    await cluster.wait_until_synced(PATIENCE_S)
    in_force = cluster.of(CONFIG_MAP)
    cluster.stage({kind: WHOLE}, {kind: "maps"})
    assert cluster.of(CONFIG_MAP) is in_force
    cluster.abandon()
    assert cluster.of(CONFIG_MAP) is in_force
    cluster.activate({kind: WHOLE})
    assert cluster.of(CONFIG_MAP) is in_force
    assert server.asked("list params") == 1


def content(one: Any) -> dict[str, Any]:
    """Return the object *one* without what all ConfigMaps here have."""
    assert (one["apiVersion"], one["kind"]) == ("v1", "ConfigMap")
    assert one["metadata"]["name"]
    return {key: value for key, value in one.items() if key not in ("apiVersion", "kind")}


async def test_only_what_is_read_is_kept_of_an_object(server: ApiServer, cluster: ClusterParams) -> None:
    large = {
        "labels": {"a": "b"},
        "annotations": {"note": "x" * 2000},
        "managedFields": [{"f": "x" * 2000}],
    }
    for number in range(600):
        data = {"limit": str(number), "text": "y" * 2000}
        server.keep(MAPS.format("default", f"m{number:04d}"), metadata=large, data=data)
    read = frozenset({("data", "limit"), ("spec", "x")})
    cluster.activate({("v1", "ConfigMap"): read})
    (one,) = await found(cluster, CONFIG_MAP, ref("m0007"), paths=read)
    metadata = {"name": "m0007", "namespace": "default"}
    assert content(one) == {"metadata": metadata, "data": {"limit": "7"}}
    followed: Any = cluster.of(CONFIG_MAP, read)
    kept = followed._store.by_name.values()
    assert len(kept) == 600
    assert sum(len(each.kept) + len(each.key) for each in kept) < 600 * 50
    # Also of what a watch shows, and of what is requested.
    server.keep(MAPS.format("default", "m0007"), metadata=large, data={"limit": "new", "other": "x"})
    await until(lambda: followed.get("default", "m0007")["data"] == {"limit": "new"})
    server.keep(
        MAPS.format("default", "late"), is_shown=False, metadata=large, data={"limit": "1", "other": ""}
    )
    (one,) = await found(cluster, CONFIG_MAP, ref("late"), paths=read)
    assert content(one) == {"metadata": {"name": "late", "namespace": "default"}, "data": {"limit": "1"}}


async def test_objects_are_read_again_when_a_policy_reads_more_and_the_others_go_on(
    server: ApiServer, cluster: ClusterParams
) -> None:
    server.keep(MAPS.format("default", "a"), data={"x": "1", "y": "2", "z": "3"})
    x, y = frozenset({("data", "x")}), frozenset({("data", "y")})
    both = x | y
    cluster.activate({("v1", "ConfigMap"): x})
    await cluster.wait_until_synced(PATIENCE_S)
    assert (await found(cluster, CONFIG_MAP, ref("a"), paths=x))[0]["data"] == {"x": "1"}
    server.faults["list params"].extend([refuse(500, "broken")] * 10_000)
    cluster.stage({("v1", "ConfigMap"): y})
    assert not cluster.warnings
    await until(lambda: server.asked("list params") > 1)
    assert (await found(cluster, CONFIG_MAP, ref("a"), paths=x))[0]["data"] == {"x": "1"}
    assert names(await found(cluster, CONFIG_MAP, ref("none", action="Allow"), paths=x)) == []
    with pytest.raises(UnreadParamsError):
        cluster.of(CONFIG_MAP, y)
    await until(lambda: bool(cluster.warnings))
    assert cluster.warnings[0].endswith("the last known ones stay in use")
    cluster.activate({("v1", "ConfigMap"): both})
    waiting = asyncio.create_task(found(cluster, CONFIG_MAP, ref("a"), paths=both))
    server.faults["list params"].clear()
    await cluster.wait_until_synced(PATIENCE_S)
    assert (await waiting)[0]["data"] == {"x": "1", "y": "2"}
    assert (await found(cluster, CONFIG_MAP, ref("a"), paths=both))[0]["data"] == {"x": "1", "y": "2"}
    # Less is not read again.
    lists = server.asked("list params")
    cluster.stage({("v1", "ConfigMap"): x})
    cluster.activate({("v1", "ConfigMap"): x})
    await cluster.wait_until_synced(PATIENCE_S)
    assert cluster.of(CONFIG_MAP, both) is not None
    assert server.asked("list params") == lists


async def test_an_object_that_nests_deep_is_kept(server: ApiServer, cluster: ClusterParams) -> None:
    """Deeper than orjson writes."""
    deep: list[Any] = []
    for _ in range(500):
        deep = [deep]
    server.keep(MAPS.format("default", "deep"), data={"a": "1"}, spec=deep)
    cluster.activate(MAPS_WHOLE)
    (one,) = await found(cluster, CONFIG_MAP, ref("deep"))
    assert (one["data"], one["spec"]) == ({"a": "1"}, deep)


async def test_few_parsed_objects_are_kept(
    server: ApiServer, cluster: ClusterParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(params, "_RECENT_BYTES", 20_000)
    for number in range(100):
        server.keep(MAPS.format("default", f"m{number}"), data={"a": str(number), "b": "x" * 1000})
    cluster.activate(MAPS_WHOLE)
    assert len(await found(cluster, CONFIG_MAP, ref(selector=ALL))) == 100
    followed: Any = cluster.of(CONFIG_MAP)
    recent = followed._recent
    assert 0 < len(recent._new) + len(recent._old) < 40
    for number in (1, 1, 99, 5):
        one = followed.get("default", f"m{number}")
        assert one["data"]["a"] == str(number)
        assert followed.get("default", f"m{number}") is one


RBAC = "/apis/rbac.authorization.k8s.io/v1"
BINDINGS = [
    {"name": "rolebindings", "kind": "RoleBinding", "namespaced": True, "verbs": VERBS},
    {"name": "clusterrolebindings", "kind": "ClusterRoleBinding", "namespaced": False, "verbs": VERBS},
]


def bind(server: ApiServer, path: str, kind: str, role: str, *users: str) -> None:
    """Keep a binding of *role*, which is of *kind*, for *users*."""
    subjects = [{"kind": "User", "name": user} for user in users]
    server.keep(f"{RBAC}/{path}", roleRef={"kind": kind, "name": role}, subjects=subjects)


def roles_of(index: RoleIndex | None, user: str) -> set[Any]:
    """What *user* has by *index*."""
    assert index is not None
    return {grant for found in index.of(user, []) for grant in found}


async def test_the_roles_of_users_follow_the_bindings(server: ApiServer, cluster: ClusterParams) -> None:
    server.resources[RBAC] = BINDINGS
    bind(server, "namespaces/a/rolebindings/x", "Role", "edit", "jane", "joe")
    bind(server, "namespaces/a/rolebindings/y", "ClusterRole", "view", "jane")
    for number in range(600):
        bind(server, f"clusterrolebindings/c{number}", "ClusterRole", f"r{number}", f"u{number}")
    kinds = dict.fromkeys((ROLE_BINDING, CLUSTER_ROLE_BINDING), ROLE_PATHS)
    cluster.activate(kinds)
    await cluster.wait_until_synced(PATIENCE_S)

    def index(key: tuple[str, str]) -> RoleIndex | None:
        followed = cluster.of(ParamKind(*key), ROLE_PATHS)
        assert followed is not None
        return followed.roles

    assert roles_of(index(ROLE_BINDING), "jane") == {(None, "a:edit"), ("a", "view")}
    assert roles_of(index(CLUSTER_ROLE_BINDING), "u599") == {("", "r599")}
    # A watch shows what changes, and so does a new list after its version is gone.
    bind(server, "namespaces/a/rolebindings/x", "Role", "edit", "joe")
    server.drop(f"{RBAC}/namespaces/a/rolebindings/y")
    await until(lambda: roles_of(index(ROLE_BINDING), "jane") == set())
    assert roles_of(index(ROLE_BINDING), "joe") == {(None, "a:edit")}
    server.compact()
    bind(server, "clusterrolebindings/c0", "ClusterRole", "r0", "jane")
    server.end_watches(abruptly=True)
    await until(lambda: roles_of(index(CLUSTER_ROLE_BINDING), "jane") == {("", "r0")})
    assert roles_of(index(CLUSTER_ROLE_BINDING), "u0") == set()
    kept = cluster._followed[CLUSTER_ROLE_BINDING]._store.by_name.values()
    assert {one.kept for one in kept} == {b"{}"}


async def test_bindings_that_are_parameters_have_roles_once_they_are_read_for_this(
    server: ApiServer, cluster: ClusterParams, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(params, "CHECK_S", 0.05)
    server.resources[RBAC] = BINDINGS
    bind(server, "clusterrolebindings/x", "ClusterRole", "view", "jane")
    kind, read = ParamKind(*CLUSTER_ROLE_BINDING), frozenset({("subjects",)})
    cluster.activate({CLUSTER_ROLE_BINDING: read})
    await cluster.wait_until_synced(PATIENCE_S)
    followed = cluster.of(kind, read)
    assert followed is not None
    assert followed.roles is None
    cluster.stage({CLUSTER_ROLE_BINDING: ROLE_PATHS})
    with pytest.raises(UnreadParamsError):
        cluster.of(kind, ROLE_PATHS)
    await cluster.wait_until_synced(PATIENCE_S)
    found = cluster.of(kind, ROLE_PATHS)
    assert found is followed
    assert roles_of(found.roles, "jane") == {("", "view")}
    assert found.get("", "x")["subjects"] == [{"kind": "User", "name": "jane"}]
    del server.resources[RBAC]
    server.end_watches(abruptly=True)
    await until(lambda: cluster.of(kind, ROLE_PATHS) is None)
    assert roles_of(found.roles, "jane") == set()
