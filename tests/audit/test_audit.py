"""``admission-gateway audit``: what it reads, what it finds, and its exit status."""

from __future__ import annotations

import base64
import json
import sqlite3
from typing import TYPE_CHECKING

import pytest
import trustme

from tests.audit.kit import deployment, owned, pod
from tests.kit import call_command, free_port, pool_document, webhook_document

if TYPE_CHECKING:
    from pathlib import Path

    from tests.audit.kit import World
    from tests.faults.kit import StartWorker

SAYS_NO = "ValidatingAdmissionPolicy 'named' with binding 'named' denied request: named says no"


def test_objects_that_policies_deny_are_found_by_webhook_namespace_and_kind(world: World) -> None:
    world.policy()
    world.add("shop", "pods", "good", **pod(labels={"team": "a"}))
    world.add("shop", "pods", "bad", **pod())
    world.add("bank", "configmaps", "bad", data={})
    report = world.audit(status=1)
    assert (report["complete"], report["listed"], report["verdicts"], report["denied"]) == (True, 3, 3, 2)
    found = {(one["namespace"], one["kind"]): one for one in report["groups"]}
    assert set(found) == {("shop", "Pod"), ("bank", "ConfigMap")}
    group = found["shop", "Pod"]
    assert (group["webhook"], group["objects"]) == ("named/named", 1)
    assert group["examples"] == [{"name": "bad", "owner": "", "message": SAYS_NO}]
    text = world.run(status=1)
    assert "2 denied" in text
    assert "1  named/named: Pod, in shop" in text


def test_objects_that_all_policies_allow_end_with_0(world: World) -> None:
    world.policy()
    world.add("shop", "pods", "good", **pod(labels={"team": "a"}))
    report = world.audit()
    assert (report["denied"], report["groups"]) == (0, [])


def test_all_findings_are_written_as_lines_and_into_a_database(world: World, tmp_path: Path) -> None:
    world.policy()
    for number in range(600):
        world.add("shop", "configmaps", f"c{number}")
    world.run("--jsonl", tmp_path / "a.jsonl", "--sqlite", tmp_path / "a.db", status=1)
    lines = [json.loads(line) for line in (tmp_path / "a.jsonl").read_text().splitlines()]
    assert len(lines) == 600
    assert {one["finding"] for one in lines} == {"denied"}
    with sqlite3.connect(tmp_path / "a.db") as db:
        rows = db.execute("SELECT name, webhook, message FROM findings WHERE finding = 'denied'").fetchall()
        (objects,) = db.execute("SELECT COUNT(*) FROM objects").fetchone()
    db.close()
    assert sorted(rows) == sorted((one["name"], "named", SAYS_NO) for one in lines)
    assert objects == 600
    # One page in flight.
    asked = [asked for kind, asked in world.server.requests if kind == "list params"]
    assert {one["limit"] for one in asked} == {"250"}
    assert [one["continue"] for one in asked if "continue" in one] == ["500"]


def test_pods_of_one_controller_and_template_count_once(world: World) -> None:
    world.policy()
    for number in range(5):
        world.add("shop", "pods", f"web-{number}", **pod(**owned("ReplicaSet", "web-1", "rs-1", "1")))
    world.add("shop", "pods", "web-next", **pod(**owned("ReplicaSet", "web-2", "rs-2", "2")))
    report = world.audit(status=1)
    assert (report["listed"], report["verdicts"], report["denied"]) == (6, 2, 2)
    (group,) = report["groups"]
    assert (group["objects"], group["alike"]) == (2, 6)
    assert group["examples"][0]["owner"] == "Deployment.apps/web"
    assert [one["objects"] for one in report["skipped"]] == [4]


def test_objects_being_deleted_and_mirror_pods_are_skipped_and_counted(world: World) -> None:
    world.policy()
    world.add("shop", "pods", "going", **pod(deletionTimestamp="2026-01-01T00:00:00Z"))
    world.add("shop", "pods", "static", **pod(annotations={"kubernetes.io/config.mirror": "x"}))
    report = world.audit()
    assert report["verdicts"] == 0
    assert {one["reason"]: one["objects"] for one in report["skipped"]} == {
        "being deleted": 1,
        "mirror Pods of kubelets": 1,
    }


def test_secrets_are_read_only_where_that_is_wanted_and_their_values_are_nowhere(world: World) -> None:
    world.policy("values", "false", resources=["secrets"], validations=[{
        "expression": "false", "messageExpression": "'value ' + object.data.a",
    }])  # fmt: skip
    world.add("shop", "secrets", "s", data={"a": "aHVudGVyMg=="})
    report = world.audit()
    assert report["notes"] == ["Secrets are not read (see --include-secrets)"]
    assert report["listed"] == 0
    printed = world.run("--include-secrets", "--json", status=1)
    assert json.loads(printed)["denied"] == 1
    assert "aHVudGVyMg==" not in printed
    assert "hunter2" not in printed


def test_a_webhook_that_would_change_an_object_or_fails_has_a_class_of_its_own(
    world: World, start_worker: StartWorker
) -> None:
    world.add("shop", "pods", "web", **pod())
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
    target = start_worker().target
    (world.config / "c.yaml").write_text(
        pool_document("pool", target)
        + webhook_document("mutate", "label", "pool", {"label": "a"}, rules=rules, timeoutSeconds=30)
    )
    report = world.audit()
    assert (report["wouldChange"], report["denied"], report["failed"]) == (1, 0, 0)
    (finding,) = world.findings()
    assert finding["finding"] == "wouldChange"
    assert finding["message"].startswith("would change /metadata")
    (world.config / "c.yaml").write_text(
        pool_document("pool", target)
        + webhook_document("validate", "v", "pool", {"status": "INTERNAL"}, rules=rules, timeoutSeconds=30)
    )
    report = world.audit(status=3)
    assert (report["wouldChange"], report["denied"], report["failed"]) == (0, 0, 1)


def test_a_ca_that_cannot_be_read_from_the_cluster_is_a_problem(world: World) -> None:
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
    source = {"secret": {"namespace": "shop", "name": "ca"}}
    # Nobody listens there.
    client = {"url": f"https://127.0.0.1:{free_port()}/", "caBundleFrom": source}
    webhook = {"name": "a.b.c", "rules": rules, "sideEffects": "None", "admissionReviewVersions": ["v1"]}
    world.write(
        "hook",
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": "ValidatingWebhookConfiguration",
            "metadata": {"name": "v"},
            "webhooks": [{**webhook, "clientConfig": client}],
        },
    )
    world.add("shop", "pods", "a", **pod())
    done = call_command("audit", "--config", world.config)
    assert done.returncode == 2
    assert "expected GatewayConfiguration.kubernetes to name one" in done.stderr
    world.write(
        "gateway",
        {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "GatewayConfiguration",
            "metadata": {"name": "g"},
            "kubernetes": {},
        },
    )
    report = world.audit(status=3)
    assert (report["complete"], report["failed"]) == (False, 1)
    (problem,) = report["problems"]
    assert problem.startswith("CA bundle of Secret shop/ca, key ca.crt cannot be used")
    ca = base64.b64encode(trustme.CA().cert_pem.bytes()).decode()
    world.server.hold("/api/v1/namespaces/shop/secrets/ca", data={"ca.crt": ca})
    report = world.audit(status=3)
    assert (report["complete"], report["failed"], report["problems"]) == (True, 1, [])


def test_a_policy_that_is_not_enforced_does_not_deny(world: World) -> None:
    world.policy(binding={"validationActions": ["Audit"]})
    world.add("shop", "pods", "bad", **pod())
    report = world.audit()
    assert report["denied"] == 0


def test_owners_are_those_of_the_label_of_the_object_or_its_namespace(world: World) -> None:
    world.policy("never", "false")
    world.server.put("shop", team="shoppers")
    world.add("shop", "pods", "a", **pod())
    world.add("shop", "pods", "b", **pod(labels={"team": "others"}))
    world.add("bank", "pods", "c", **pod())
    report = world.audit(status=1)
    assert {one["owner"]: one["denied"] for one in report["owners"]} == {"shoppers": 1, "others": 1, "": 1}
    assert "others" in world.run(status=1)
    assert {one["owner"] for one in world.audit("--owner-label", "none", status=1)["owners"]} == {""}


def test_workloads_that_would_be_refused_at_their_next_restart_are_named_by_owner(world: World) -> None:
    world.policy(
        "tier", "has(object.metadata.labels) && 'tier' in object.metadata.labels", resources=["pods"]
    )
    world.server.put("shop", team="shoppers")
    # Its Pod was created before the policy.
    world.add("shop", "deployments", "web", **deployment(app="web"))
    world.add("shop", "deployments", "good", **deployment(app="web", tier="a"))
    world.add("shop", "deployments", "stopped", **deployment(0, app="web"))
    world.add("shop", "replicasets", "web-1", metadata=owned("Deployment", "web", "d", "1"), **deployment())
    report = world.audit(status=1)
    assert (report["denied"], report["refusedAtRestart"], report["evaluated"]) == (0, 1, 2)
    (workload,) = report["workloads"]
    assert (workload["owner"], workload["namespace"], workload["workload"]) == (
        *("shoppers", "shop"),
        "Deployment/web",
    )
    assert workload["webhooks"] == "tier/tier"
    assert {one["reason"].split(":")[0] for one in report["skipped"]} == {"workloads without a next Pod"}
    text = world.run(status=1)
    assert "1 workload would be refused at its next restart" in text
    assert "  shoppers, in shop\n           Deployment/web: " in text
    (line,) = world.findings(status=1)
    assert (line["part"], line["kind"], line["name"]) == ("restart", "Deployment", "web")


def test_the_next_pod_of_a_workload_is_changed_before_it_is_judged(
    world: World, start_worker: StartWorker
) -> None:
    world.policy("named", resources=["pods"])
    world.add("shop", "deployments", "web", **deployment(app="web"))
    rules = [{"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
    (world.config / "c.yaml").write_text(
        pool_document("pool", start_worker().target)
        + webhook_document("mutate", "label", "pool", {"label": "team"}, rules=rules, timeoutSeconds=30)
    )
    report = world.audit()
    assert (report["refusedAtRestart"], report["wouldChange"]) == (0, 0)


def test_kinds_that_are_named_are_read_and_no_others(world: World) -> None:
    world.policy("never", "false")
    world.add("shop", "pods", "a", **pod())
    world.add("shop", "configmaps", "b")
    assert world.audit("--kinds", "configmaps", status=1)["listed"] == 1
    report = world.audit("--kinds", "configmaps,configmap,widgets.example.com", status=1)
    assert report["problems"] == [
        '--kinds configmap: the cluster has no such resource; did you mean "configmaps"?',
        "--kinds widgets.example.com: the cluster has no such resource",
    ]


def test_a_kind_that_may_not_be_listed_makes_the_audit_incomplete(world: World) -> None:
    world.policy(resources=["configmaps"])
    world.add("shop", "configmaps", "good", metadata={"labels": {"team": "a"}})
    world.server.faults["list params"].append(lambda handler: handler.refuse(403, "maps are forbidden"))
    report = world.audit(status=3)
    assert not report["complete"]
    assert "maps are forbidden" in report["problems"][0]


def test_a_page_that_is_too_large_is_read_again_in_smaller_ones(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("gateway.tools.replay.cluster.MAX_PAGE_BYTES", 20_000)
    world.policy("never", "false", resources=["configmaps"])
    for number in range(40):
        world.add("shop", "configmaps", f"c{number}", data={"a": "x" * 1000})
    world.server.limits_pages = True
    report = world.audit(status=1)
    assert (report["complete"], report["denied"]) == (True, 40)
    asked = [asked["limit"] for kind, asked in world.server.requests if kind == "list params"]
    assert {"250", "62", "15"} <= set(asked)
    world.add("shop", "configmaps", "huge", data={"a": "x" * 30_000})
    report = world.audit(status=1)
    assert "an answer of more than" in report["problems"][0]


def test_a_busy_api_server_is_asked_again(world: World) -> None:
    world.policy()
    world.add("shop", "pods", "bad", **pod())
    world.server.faults["list params"].append(lambda handler: handler.refuse(429, "too many requests"))
    report = world.audit(status=1)
    assert report["complete"]


def test_a_list_whose_version_is_gone_goes_on_with_what_the_server_offers_and_says_so(world: World) -> None:
    world.policy("never", "false", resources=["configmaps"])
    for number in range(4):
        world.add("shop", "configmaps", f"c{number}")
    world.server.page = 2
    gone = {"kind": "Status", "code": 410, "message": "too old", "metadata": {"continue": "2"}}
    faults = world.server.faults["list params"]
    faults.extend([lambda handler: handler.answer(200, page_of(world)), lambda h: h.answer(410, gone)])
    report = world.audit(status=1)
    assert report["denied"] == 4
    assert "the list took longer" in report["problems"][0]


def page_of(world: World) -> dict[str, object]:
    """The first page of ConfigMaps."""
    items = [found for path, found in world.server.objects.items() if "/configmaps/" in path][:2]
    return {"items": items, "metadata": {"resourceVersion": "1", "continue": "2"}}


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("--requests-per-second", "0"), "expected a number above 0"),
        (("--max-cpu", "x"), "expected a number above 0"),
        (("--max-age", "x"), "expected a duration"),
        (("--jsonl", "-", "--json"), "--json excludes --jsonl -"),
        (("--state", __file__), "cannot be used as a state"),
    ],
)
def test_wrong_usage_ends_with_2(world: World, arguments: tuple[object, ...], text: str) -> None:
    world.policy()
    given = ("--config", world.config, "--kubeconfig", world.server.kubeconfig(world.folder))
    done = call_command("audit", *given, *arguments)
    assert done.returncode == 2
    assert text in done.stderr
    assert "Traceback" not in done.stderr
