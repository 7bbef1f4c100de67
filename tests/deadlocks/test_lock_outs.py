"""Which parts of a cluster cannot start without the gateway."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.tools.deadlocks.compute import lock_outs
from gateway.tools.deadlocks.graph import component_of
from gateway.tools.deadlocks.subjects import ClusterObjects
from gateway.tools.inspection.lock_outs import lock_out_findings
from tests.deadlocks.kit import entry, namespace, pod, registration, rule, service, without

if TYPE_CHECKING:
    from gateway.tools.deadlocks.model import LockOuts, Result

Json = dict[str, Any]

CNI = pod("DaemonSet/calico-node", "calico", hostNetwork=True, tolerations=[{"operator": "Exists"}])
OWN = pod("Deployment/gateway", "policies", {"app": "gateway"})
SHOP = pod("Deployment/shop", "shop")
SERVICES = [service("gateway", "policies", app="gateway")]
NAMESPACES = [namespace(name) for name in ("kube-system", "calico", "policies", "shop")]
PODS = rule("pods", group="")


def computed(*configurations: Json, pods: list[Json] | None = None, **more: Any) -> LockOuts:
    found = [CNI, OWN, SHOP] if pods is None else pods
    given_objects = {"namespaces": NAMESPACES, "services": SERVICES, **more}
    return lock_outs(ClusterObjects(configurations, pods=found, **given_objects))


def by_title(found: LockOuts) -> dict[str, Result]:
    return {one.subject.title: one for one in found.results}


def groups(found: LockOuts) -> dict[str, str]:
    return {title: one.group for title, one in by_title(found).items() if one.group != "none"}


def test_the_network_plug_in_that_the_gateway_needs_is_a_deadlock_and_a_shop_an_outage() -> None:
    found = computed(registration(entry(PODS, namespaceSelector=without("kube-system", "policies"))))
    assert groups(found) == {
        "DaemonSet calico/calico-node": "DEADLOCK",
        "Deployment shop/shop": "OUTAGE",
    }
    deadlock, outage = lock_out_findings(found)
    assert (deadlock.severity, outage.severity) == ("error", "info")
    assert deadlock.place == "DEADLOCK T3 DaemonSet calico/calico-node"
    assert "CREATE pods is refused by ValidatingWebhookConfiguration/gateway: webhooks[0]" in deadlock.message
    assert deadlock.advice == "exclude the namespace calico"


def test_with_the_namespace_left_out_it_starts() -> None:
    left_out = without("kube-system", "policies", "calico")
    found = computed(registration(entry(PODS, namespaceSelector=left_out)))
    assert groups(found) == {"Deployment shop/shop": "OUTAGE"}
    assert by_title(found)["DaemonSet calico/calico-node"].state == "starts"


def test_a_gateway_that_needs_itself_is_a_deadlock_also_without_pods() -> None:
    fail = registration(entry(PODS, namespaceSelector=without("kube-system", "calico")))
    assert groups(computed(fail))["Deployment policies/gateway"] == "DEADLOCK"
    assert groups(computed(fail, pods=[]))["Pods of Service policies/gateway"] == "DEADLOCK"


def test_ignore_refuses_nothing() -> None:
    assert groups(computed(registration(entry(PODS, failurePolicy="Ignore")))) == {}


def test_nodes_and_signing_requests_are_left_out_by_no_namespace_selector() -> None:
    """kyverno#16177."""
    everything = entry(rule("*/*"), namespaceSelector=without("kube-system", "calico", "policies", "shop"))
    found = computed(registration(everything))
    assert groups(found)["a node that joins"] == "DEADLOCK"
    assert groups(found)["kube-apiserver"] == "DEADLOCK"
    node = by_title(found)["a node that joins"]
    assert {one.change for one in node.refusals if one.request.resource == "nodes"} == {
        "register its rules with scope: Namespaced"
    }
    namespaced = entry(
        rule("*/*", scope="Namespaced"), namespaceSelector=without("kube-system", "kube-node-lease")
    )
    assert "a node that joins" not in groups(computed(registration(namespaced)))


@pytest.mark.parametrize(
    ("expression", "group"),
    [
        ('!("system:nodes" in request.userInfo.groups)', None),
        ('request.userInfo.username != "system:node:node"', None),
        ('request.resource.resource != "nodes"', None),
        ('!has(request.subResource) || request.subResource != "status"', "DEADLOCK"),
        ("has(object.spec.taints)", "POSSIBLE DEADLOCK"),
        ("authorizer.group('').resource('nodes').check('get').allowed()", "POSSIBLE DEADLOCK"),
    ],
)
def test_a_match_condition_counts_as_far_as_it_is_known(expression: str, group: str | None) -> None:
    condition = {"name": "one", "expression": expression}
    nodes = entry(rule("nodes", group="", operations=("CREATE",)), matchConditions=[condition])
    assert groups(computed(registration(nodes))).get("a node that joins") == group


def test_another_webhook_that_is_down_without_the_gateway_is_away_too() -> None:
    other = entry(
        rule("pods", group="", operations=("CREATE",)),
        name="other.example.com",
        clientConfig={"service": {"namespace": "shop", "name": "shop"}},
        namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "calico"}},
    )
    own = entry(PODS, namespaceSelector={"matchLabels": {"kubernetes.io/metadata.name": "shop"}})
    services = [*SERVICES, service("shop", "shop", app="shop")]
    found = computed(registration(own), registration(other, name="other"), services=services)
    # The network plug-in waits for the shop's webhook, that for the gateway, and this for the network.
    assert groups(found) == {
        "DaemonSet calico/calico-node": "DEADLOCK",
        "Deployment shop/shop": "DEADLOCK",
    }
    alone = computed(registration(other, name="other"), services=services)
    assert (groups(alone), alone.has_gateway) == ({}, False)


def test_another_webhook_that_matches_the_gateways_own_pods_is_named() -> None:
    other = entry(
        PODS,
        name="other.example.com",
        clientConfig={"service": {"namespace": "shop", "name": "shop"}},
    )
    own = entry(rule("configmaps", group=""))
    (finding,) = [
        one
        for one in lock_out_findings(computed(registration(own), registration(other, name="other")))
        if one.severity == "warning"
    ]
    assert "refuses CREATE pods for Deployment policies/gateway" in finding.message
    assert finding.advice == "have it leave out the namespace policies"


@pytest.mark.parametrize(
    ("url", "group"),
    [
        # As sure as by the Service itself.
        ("https://gateway.policies.svc:443/validate", "DEADLOCK"),
        ("https://gateway.example.com/validate", "POSSIBLE DEADLOCK"),
    ],
)
def test_a_gateway_behind_a_url_needs_what_is_known_of_it(url: str, group: str) -> None:
    by_url = entry(PODS, namespaceSelector=without("kube-system", "policies"), clientConfig={"url": url})
    found = computed(registration(by_url))
    assert groups(found)["DaemonSet calico/calico-node"] == group
    (finding,) = [one for one in lock_out_findings(found) if "calico" in one.place]
    assert (finding.severity, "perhaps the gateway" in finding.message) == (
        ("error", False) if group == "DEADLOCK" else ("warning", True)
    )


def test_a_cron_job_needs_a_job_for_each_run_and_is_one_line() -> None:
    jobs = entry(rule("jobs", group="batch", operations=("CREATE",)))
    runs = [pod("CronJob/backup", "shop", number=number) for number in range(3)]
    found = by_title(computed(registration(jobs), pods=[OWN, *runs]))["CronJob shop/backup"]
    (refusal,) = found.refusals
    assert (found.subject.pods, refusal.request.step) == (3, "CREATE jobs.batch")
    assert refusal.request.user == "system:serviceaccount:kube-system:cronjob-controller"
    created = [one for one in found.subject.requests if one.step == "CREATE pods"]
    assert [one.user for one in created] == ["system:serviceaccount:kube-system:job-controller"]


def test_static_pods_start_whatever_webhooks_say() -> None:
    static = pod("Node/one", "kube-system", {"component": "etcd"})
    found = computed(registration(entry(PODS)), pods=[static, OWN])
    assert by_title(found)["static Pod kube-system/one-0"].state == "starts"


def test_pods_are_collapsed_by_workload() -> None:
    zones = [{"app": "shop", "topology.kubernetes.io/zone": zone} for zone in "abc"]
    found = computed(
        registration(entry(PODS)),
        pods=[
            pod(f"Deployment/shop-{index % 300}", "shop", zones[index // 300 % 3], number=index)
            for index in range(10_000)
        ],
    )
    rows = [one.subject for one in found.results if one.subject.namespace == "shop"]
    assert (len(rows), sum(one.pods for one in rows)) == (300, 10_000)
    shown = list(lock_out_findings(found))
    # Of 300, and of what people delete in kube-system, the first twenty are shown.
    assert shown[-1].message == "281 further workloads cannot start while the gateway is away"


RESOURCES = st.sampled_from(
    ["*", "*/*", "pods", "pods/*", "pods/binding", "nodes", "nodes/status", "leases", "serviceaccounts/token"]
)
RULES = st.builds(
    lambda resources, operation, scope: rule(*resources, operations=(operation,), scope=scope),
    st.lists(RESOURCES, min_size=1, max_size=2),
    st.sampled_from(["*", "CREATE", "UPDATE"]),
    st.sampled_from(["*", "Namespaced", "Cluster"]),
)
LEFT_OUT = st.lists(st.sampled_from(["kube-system", "calico", "policies", "shop"]), unique=True)
ENTRIES = st.lists(st.tuples(RULES, LEFT_OUT, st.booleans()), min_size=1, max_size=4)


def _registered(drawn: list[tuple[Json, list[str], bool]]) -> Json:
    return registration(
        *(
            entry(
                one,
                name=f"e{index}.admission-gateway.io",
                namespaceSelector=without(*left_out),
                objectSelector={"matchLabels": {"app": "shop"}} if has_selector else {},
            )
            for index, (one, left_out, has_selector) in enumerate(drawn)
        )
    )


def _severity(found: LockOuts) -> dict[str, int]:
    order = {"starts": 0, "perhaps": 1, "refused": 2}
    return {title: order[one.state] for title, one in by_title(found).items()}


def _is_no_worse(after: LockOuts, before: LockOuts) -> bool:
    known = _severity(before)
    return all(rank <= known[title] for title, rank in _severity(after).items() if title in known)


@given(ENTRIES, st.sampled_from(["kube-system", "calico", "policies", "shop"]))
def test_a_further_exclusion_never_refuses_more(
    drawn: list[tuple[Json, list[str], bool]], namespace_name: str
) -> None:
    further = [(one, [*left_out, namespace_name], more) for one, left_out, more in drawn]
    assert _is_no_worse(computed(_registered(further)), computed(_registered(drawn)))


@given(ENTRIES)
def test_an_entry_less_never_refuses_more(drawn: list[tuple[Json, list[str], bool]]) -> None:
    assert _is_no_worse(computed(_registered(drawn[1:])), computed(_registered(drawn)))


@given(ENTRIES)
def test_a_deadlock_is_refused_and_an_outage_does_not_keep_the_gateway_away(
    drawn: list[tuple[Json, list[str], bool]],
) -> None:
    found = computed(_registered(drawn))
    for one in found.results:
        assert (one.group in ("DEADLOCK", "OUTAGE")) <= (one.state == "refused")
        assert (one.state == "starts") <= (one.group == "none")
    # Without the deadlocks' own refusals nothing that the gateway needs is refused for certain.
    gateway = by_title(found)["Deployment policies/gateway"]
    assert (gateway.state == "refused") == (gateway.group == "DEADLOCK")


GRAPHS = st.dictionaries(st.integers(0, 7), st.sets(st.integers(0, 7)), min_size=8, max_size=8)


@given(GRAPHS)
def test_a_component_is_what_is_reached_and_leads_back(edges: dict[int, set[int]]) -> None:
    def reached(start: int) -> set[int]:
        found: set[int] = set()
        waiting = list(edges[start])
        while waiting:
            one = waiting.pop()
            if one not in found:
                found.add(one)
                waiting.extend(edges[one])
        return found

    own = reached(0)
    expected = {one for one in own if 0 in reached(one)} if 0 in own else set()
    assert component_of(0, edges) == expected
