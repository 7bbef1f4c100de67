"""Mutators before a real API server: those that never come to rest, conflicts, and their order."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import pytest

from deploy.monitoring import CHART_FILES
from gateway.config.merge.custom_resource import PLURALS
from gateway.pure.core.disputes import Dispute
from tests.docs.pages import DOCS
from tests.e2e.objects import config_map, deployment, deployments, within
from tests.e2e.setups import BehindGateway, Hook, deployed_account, rule
from tests.kit import call_command
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

MUTATING: Final = PLURALS["MutatingWebhookConfiguration"]
RULES: Final = (rule("configmaps", "CREATE", "UPDATE"),)
ADMISSION: Final = "admissionregistration.k8s.io/v1"


def marked(value: str) -> dict[str, Any]:
    """Return the field of a webhook that is called for the objects with the label ``case: VALUE``."""
    return {"objectSelector": {"matchLabels": {"case": value}}}


def sets(team: str, *further: str) -> dict[str, Any]:
    """Return the script of a webhook that sets the label ``team``, and *further* ones, to *team*."""
    labels = ("team", *further)
    return {"patch": [{"op": "add", "path": f"/metadata/labels/{name}", "value": team} for name in labels]}


def mutates(name: str, script: dict[str, Any], case: str, **more: Any) -> Hook:
    """Return a webhook for the ConfigMaps of *case*; *more* are further fields of it or of the ``Hook``."""
    known = {name: more.pop(name) for name in ("rules", "configuration") if name in more}
    return Hook("mutate", name, script, **{"rules": RULES, **known}, fields={**marked(case), **more})


def policies(name: str, case: str, mutation: dict[str, Any]) -> list[dict[str, Any]]:
    """Return a policy for the ConfigMaps of *case*, and its binding."""
    spec = {
        "reinvocationPolicy": "Never",
        "matchConstraints": {"resourceRules": list(RULES), **marked(case)},
        "mutations": [mutation],
    }
    head = {"apiVersion": ADMISSION, "metadata": {"name": name}}
    bound = {"policyName": name}
    return [
        {**head, "kind": "MutatingAdmissionPolicy", "spec": spec},
        {**head, "kind": "MutatingAdmissionPolicyBinding", "spec": bound},
    ]


def sets_by_policy(name: str, case: str, team: str) -> list[dict[str, Any]]:
    expression = f"Object{{metadata: Object.metadata{{labels: {{'team': '{team}'}}}}}}"
    mutation = {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}
    return policies(name, case, mutation)


def write_policies(setup: BehindGateway, documents: list[dict[str, Any]]) -> None:
    (setup.config / "policies.yaml").write_text("\n---\n".join(map(json.dumps, documents)))


class Objects:
    """Objects of one namespace, read and written as clients do."""

    def __init__(self, cluster: Cluster, namespace: str) -> None:
        self.api, self._cluster, self._namespace = cluster.api, cluster, namespace

    def path(self, name: str = "", query: str = "") -> str:
        return within(f"configmaps{name and '/'}{name}{query}").format(namespace=self._namespace)

    def create(self, name: str, case: str) -> Answer:
        return self.api.create(self.path(), config_map(name, {"case": case}, n="0"))

    def touch(self, name: str, number: int, query: str = "") -> Answer:
        """Write a value that no webhook cares for."""
        return self.api.patch(self.path(name, query), {"data": {"n": str(number)}})

    def labels(self, name: str) -> dict[str, str]:
        found: dict[str, str] = self.api.get(self.path(name)).document["metadata"]["labels"]
        return found

    def apply(self, document: dict[str, Any], *flags: str) -> None:
        apply(self._cluster, document, f"--namespace={self._namespace}", *flags)


def apply(cluster: Cluster, document: dict[str, Any], *flags: str) -> None:
    applied = cluster.kubectl("apply", *flags, "--filename=-", stdin=json.dumps(document))
    assert applied.returncode == 0, applied.stderr


@pytest.fixture
def objects(cluster: Cluster, namespace: str) -> Objects:
    return Objects(cluster, namespace)


# -- the detector ---------------------------------------------------------------------------------------

COUNT_RUNS: Final = policies(
    "count-runs",
    "own",
    {
        "patchType": "JSONPatch",
        "jsonPatch": {
            "expression": "[JSONPatch{op: 'add', path: '/data/runs', "
            "value: string(int(object.data.?runs.orValue('0')) + 1)}]"
        },
    },
)
RESTING: Final = (*RULES, rule("deployments", "CREATE", "UPDATE", group="apps"))
STATUS: Final = (rule("deployments deployments/status", "CREATE", "UPDATE", group="apps"),)
LIVE: Final = [
    mutates("a.again.test", sets("a"), "again", reinvocationPolicy="IfNeeded"),
    mutates("b.again.test", sets("b"), "again"),
    mutates("a.turns.test", sets("a"), "turns"),
    mutates("b.turns.test", sets("b"), "turns"),
    mutates("team.applied.test", sets("platform"), "applied"),
    *(mutates(f"rest.{case}.test", {"label": "added"}, case, rules=RESTING) for case in ("own", "rest")),
    mutates("rest.status.test", {"label": "added"}, "status", rules=STATUS),
    Hook("validate", "refuse.rest.test", {"deny": {"message": "no"}, "when": "refused"}, RESTING),
]
"""``rest`` webhooks are well-behaved."""


def found(setup: BehindGateway) -> dict[Dispute, int]:
    """Return the reviews in which webhooks did not come to rest."""
    disputes = json.loads(setup.gateway.admin("/?format=json")[1])["disputes"]
    return {Dispute(*(one[name] for name in Dispute._fields)): one["reviews"] for one in disputes}


@pytest.fixture
def live(cluster: Cluster, objects: Objects, namespace: str, tmp_path: Path) -> Iterator[BehindGateway]:
    """A gateway with ``LIVE`` and ``COUNT_RUNS``. Some objects are older than it."""
    assert objects.create("stale", "rest").status == 201
    made = cluster.api.create(deployments().format(namespace=namespace), deployment("old", {"case": "rest"}))
    assert made.status == 201, made
    setup = BehindGateway(
        cluster, tmp_path, LIVE, "mutators", gateway={"kubernetes": {"kubeconfig": str(cluster.kubeconfig())}}
    )
    write_policies(setup, COUNT_RUNS)
    with setup:
        yield setup


def test_mutators_that_never_come_to_rest_are_named_in_metrics_log_and_status(
    live: BehindGateway, objects: Objects
) -> None:
    assert objects.create("again", "again").status == 201
    for name in ("turns", "own"):
        assert objects.create(name, name).status == 201
        for number in range(4):
            assert objects.touch(name, number + 1).status == 200
    manifest = {"case": "applied", "team": "shop"}
    for flags in ((), ("--server-side", "--force-conflicts")):
        for _ in range(7):
            objects.apply(config_map(f"applied{len(flags)}", manifest), *flags)
        assert objects.labels(f"applied{len(flags)}")["team"] == "platform"

    expected = {
        Dispute("undone", "a.again.test", "b.again.test", "metadata.labels.team"): 1,
        Dispute("undone", "a.turns.test", "b.turns.test", "metadata.labels.team"): 2,
        Dispute("own_result", "count-runs", "", "data.runs"): 2,
        # By each client, of whose writes one made the object.
        Dispute("put_back", "team.applied.test", "", "metadata.labels.team"): 4,
    }
    eventually(lambda: found(live) == expected, f"{expected}")
    status = call_command("status", "--admin", f"127.0.0.1:{live.gateway.admin_port}").stdout
    for one, reviews in expected.items():
        labels = {"name": one.webhook, "other": one.other, "kind": one.kind, "path": one.path}
        assert live.gateway.metric("admission_gateway_mutation_disputes_total", **labels) == reviews
        assert (
            live.gateway.log.count(f"mutating webhooks do not come to rest: {one.line()}; reviews: 1, ") == 1
        )
        assert f"{one.line()}; reviews: {reviews}, the last of configmaps " in status


def test_well_behaved_webhooks_are_never_named(live: BehindGateway, objects: Objects, namespace: str) -> None:
    api = objects.api
    # A client that applies a manifest without the label of the webhook.
    for flags in ((), ("--server-side", "--force-conflicts")):
        for number in range(7):
            objects.apply(config_map("applied", {"case": "rest"}, n=str(number)), *flags)
    assert objects.labels("applied")["added"] == "set"

    # Writes of an old version of an object, which has no label yet.
    stale = api.get(objects.path("stale")).document
    assert "added" not in stale["metadata"]["labels"]
    assert objects.touch("stale", 1).status == 200
    assert {api.update(objects.path("stale"), stale).status for _ in range(7)} == {409}

    # A write that is refused and tried again, while a controller writes the status.
    path = deployments("old").format(namespace=namespace)
    for number in range(7):
        assert api.patch(f"{path}/status", {"status": {"observedGeneration": number}}).status == 200
        wanted = {"metadata": {"labels": {"refused": "yes"}}, "spec": {"replicas": number + 2}}
        assert api.patch(path, wanted).message.endswith("refuse.rest.test: no")
    assert "added" not in api.get(path).document["metadata"]["labels"]

    # A webhook that is called for the status, too.
    path = deployments("new").format(namespace=namespace)
    made = api.create(path.removesuffix("/new"), deployment("new", {"case": "status"}))
    assert made.document["metadata"]["labels"]["added"] == "set"
    for number in range(7):
        assert api.patch(f"{path}/status", {"status": {"observedGeneration": number}}).status == 200

    # Dry runs of what would be found.
    assert objects.create("dry", "own").status == 201
    assert {objects.touch("dry", number + 1, "?dryRun=All").status for number in range(7)} == {200}

    # Reviews are looked at in order.
    assert objects.create("own", "own").status == 201
    for number in range(3):
        assert objects.touch("own", number + 1).status == 200
    eventually(lambda: found(live))
    assert found(live) == {Dispute("own_result", "count-runs", "", "data.runs"): 1}


# -- conflicts ------------------------------------------------------------------------------------------

WRITERS: Final = [
    mutates("a.differ.test", sets("a"), "differ"),
    mutates("b.differ.test", sets("b"), "differ"),
    mutates("a.equal.test", sets("a"), "equal"),
    mutates("b.equal.test", sets("a"), "equal"),
    mutates("b.meant.test", sets("b"), "meant", after=["a.meant.test"]),
    mutates("a.meant.test", sets("a"), "meant", configuration="zz-later"),
]
OF_POLICIES: Final = [
    *sets_by_policy("team-of-platform", "policies", "platform"),
    *sets_by_policy("team-of-shop", "policies", "shop"),
]


@pytest.mark.parametrize("conflicts", ["Allow", "Reject"])
def test_conflicts_are_refused_if_the_configuration_says_so(
    cluster: Cluster, objects: Objects, tmp_path: Path, conflicts: str
) -> None:
    gateway = {"kubernetes": {"kubeconfig": str(cluster.kubeconfig())}, "conflicts": conflicts}
    setup = BehindGateway(cluster, tmp_path, WRITERS, "mutators", gateway=gateway)
    write_policies(setup, OF_POLICIES)
    with setup:
        assert objects.create("equal", "equal").status == objects.create("meant", "meant").status == 201
        assert (objects.labels("equal")["team"], objects.labels("meant")["team"]) == ("a", "b")
        answers = {case: objects.create(case, case) for case in ("differ", "policies")}
    if conflicts == "Allow":
        teams = {case: answer.document["metadata"]["labels"]["team"] for case, answer in answers.items()}
        assert teams == {"differ": "b", "policies": "shop"}
        return
    assert {answer.status for answer in answers.values()} == {403}
    assert answers["differ"].message.endswith(
        "b.differ.test: overwrites metadata.labels.team, which a.differ.test wrote, "
        "and conflicts are rejected"
    )
    # As on the page.
    text = (DOCS / "mutators.md").read_text()
    assert any(answers["policies"].message.endswith(line) for line in text.splitlines() if "rejected" in line)
    for case in answers:
        assert objects.api.get(objects.path(case)).status == 404


# -- order ----------------------------------------------------------------------------------------------


def shows(name: str, **more: Any) -> Hook:
    """Return a webhook that writes the labels that it sees into an annotation."""
    return mutates(name, {"echo": name.partition(".")[0]}, "order", **more)


def test_the_stored_object_shows_the_order_across_configurations(
    cluster: Cluster, objects: Objects, tmp_path: Path
) -> None:
    hooks = [
        shows("before.order.test", configuration="a"),
        shows("behind.order.test", configuration="a", after=["labels.order.test"]),
        mutates("labels.order.test", {"label": "added"}, "order", configuration="b"),
        shows("last.order.test", configuration="b"),
    ]
    with BehindGateway(cluster, tmp_path, hooks, "mutators"):
        answer = objects.create("order", "order")
    assert answer.document["metadata"]["annotations"] == {
        "before": "case",
        "behind": "added case",
        "last": "added case",
    }


def resource(name: str, *hooks: dict[str, Any]) -> dict[str, Any]:
    head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "MutatingWebhookConfiguration"}
    return {**head, "metadata": {"name": name}, "webhooks": list(hooks)}


def in_resource(letter: str, team: str, **more: Any) -> dict[str, Any]:
    """Return the webhook *letter* of a custom resource, which sets the labels *letter* and ``team``."""
    hook = mutates(f"{letter}.circle.test", sets(team, letter), "circle", **more)
    return hook.document({"worker": {"pool": "scripted", "policy": json.dumps(hook.script)}})


@pytest.fixture
def custom(cluster: Cluster, tmp_path: Path) -> Iterator[BehindGateway]:
    """A gateway that follows custom resources with the deployed rights: webhook ``b`` is after ``a``."""
    defined = cluster.kubectl("apply", "--server-side", f"--filename={CHART_FILES / 'crds.yaml'}")
    assert defined.returncode == 0, defined.stderr
    cluster.wait_until_served(*(f"{plural}.admission-gateway.io" for plural in PLURALS.values()))
    apply(cluster, resource("one", in_resource("a", "a")))
    apply(cluster, resource("two", in_resource("b", "b", after=["a.circle.test"])))
    try:
        with deployed_account(cluster, tmp_path, "custom-resources.yaml") as account:
            gateway = {"kubernetes": {"kubeconfig": str(account), "customResources": True}}
            with BehindGateway(cluster, tmp_path, [], "mutators", gateway=gateway) as setup:
                yield setup
    finally:
        cluster.kubectl("delete", f"{MUTATING}.admission-gateway.io", "--all")


def test_custom_resources_in_a_circle_are_refused_and_their_last_versions_stay(
    cluster: Cluster, custom: BehindGateway, objects: Objects
) -> None:
    def conditions() -> dict[str, tuple[str, str]]:
        documents = cluster.api.get(f"/apis/admission-gateway.io/v1alpha1/{MUTATING}").document["items"]
        found = {one["metadata"]["name"]: one.get("status", {}).get("conditions") for one in documents}
        return {name: (each[0]["reason"], each[0]["message"]) for name, each in found.items() if each}

    def reasons() -> dict[str, str]:
        return {name: reason for name, (reason, _) in conditions().items()}

    def labels(name: str) -> dict[str, str]:
        assert objects.create(name, "circle").status == 201
        return objects.labels(name)

    eventually(lambda: reasons() == {"one": "Accepted", "two": "Accepted"})
    in_order = {"case": "circle", "a": "a", "b": "b", "team": "b"}
    assert labels("in-order") == in_order

    apply(cluster, resource("one", in_resource("a", "changed", after=["b.circle.test"])))
    eventually(lambda: reasons() == {"one": "OrderCircle", "two": "OrderCircle"})
    assert "a.circle.test after b.circle.test after a.circle.test" in conditions()["one"][1]
    assert labels("in-a-circle") == in_order

    apply(cluster, resource("two", in_resource("b", "b")))
    eventually(lambda: reasons() == {"one": "Accepted", "two": "Accepted"})
    assert labels("reversed") == {**in_order, "a": "changed", "team": "changed"}
    assert "Traceback" not in custom.gateway.log
