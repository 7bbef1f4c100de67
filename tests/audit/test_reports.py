"""The reports of audits in the cluster."""

from __future__ import annotations

from typing import TYPE_CHECKING

from tests.audit.kit import REPORTS, deployment, owned, pod

if TYPE_CHECKING:
    from tests.audit.kit import World


def writes(world: World) -> int:
    return sum(world.server.asked(kind) for kind in ("post", "put"))


def test_a_report_has_the_numbers_and_the_first_findings_and_says_how_many_are_not_listed(
    world: World,
) -> None:
    world.policy("never", "false")
    world.define_reports()
    world.write(
        "gateway",
        {
            "apiVersion": "admission-gateway.io/v1alpha1",
            "kind": "GatewayConfiguration",
            "metadata": {"name": "g"},
            "kubernetes": {"kubeconfig": str(world.server.kubeconfig(world.folder))},
            "reports": {"maxResults": 3},
        },
    )
    for number in range(5):
        world.add("shop", "configmaps", f"c{number}")
    world.add("shop", "deployments", "web", **deployment(app="web"))
    for name in ("a", "b"):
        world.add("bank", "pods", name, **pod(**owned("ReplicaSet", "web-1", "r", "1")))
    world.audit("--reports", status=1)
    found = world.report("shop")
    assert found is not None
    assert found["summary"] == {"pass": 0, "fail": 6, "warn": 0, "error": 0, "skip": 1}
    *listed, more = found["results"]
    assert [one["resources"][0]["name"] for one in listed] == ["c0", "c1", "c2"]
    assert more["result"] == "skip"
    assert more["message"] == "3 more findings are not listed: see the files of the audit"
    found = world.report("bank")
    assert found is not None
    (result,) = found["results"]
    assert (result["policy"], result["properties"]["count"]) == ("never", "2")
    assert result["properties"]["owner"] == "Deployment.apps/web"


def test_a_report_is_written_only_if_more_than_its_times_differs(world: World) -> None:
    world.policy()
    world.define_reports()
    world.add("shop", "pods", "bad", **pod())
    world.add("shop", "pods", "good", **pod(labels={"team": "a"}))
    world.audit("--reports", status=1)
    assert writes(world) == 1
    world.audit("--reports", status=1)
    assert writes(world) == 1
    world.add("shop", "pods", "worse", **pod())
    world.audit("--reports", status=1)
    assert writes(world) == 2
    found = world.report("shop")
    assert found is not None
    assert (found["summary"]["fail"], found["summary"]["pass"]) == (2, 1)


def test_a_report_without_findings_is_removed_if_all_objects_were_read(world: World) -> None:
    world.policy(resources=["configmaps"])
    world.define_reports()
    world.add("shop", "configmaps", "bad")
    world.audit("--reports", status=1)
    world.remove("shop", "configmaps", "bad")
    world.server.faults["list params"].append(lambda handler: handler.refuse(403, "no"))
    world.audit("--reports", status=3)
    assert world.report("shop") is not None
    world.audit("--reports")
    assert world.report("shop") is None


def test_a_report_of_somebody_else_stays_as_it_is(world: World) -> None:
    world.policy()
    world.define_reports()
    world.add("shop", "pods", "bad", **pod())
    path = f"{REPORTS}/namespaces/shop/reports/admission-gateway-audit"
    world.server.keep(path, results=[])
    report = world.audit("--reports", status=1)
    assert "it is not the gateway's" in report["problems"][0]
    assert writes(world) == 0


def test_a_cluster_without_the_definitions_makes_a_problem(world: World) -> None:
    world.policy()
    report = world.audit("--reports", status=3)
    assert "the cluster has no CustomResourceDefinitions of openreports.io/v1alpha1" in report["problems"][0]


def test_names_of_secrets_are_in_no_report(world: World) -> None:
    world.policy("never", "false", resources=["secrets"])
    world.define_reports()
    world.add("shop", "secrets", "hidden", data={})
    world.audit("--reports", "--include-secrets", status=1)
    found = world.report("shop")
    assert found is not None
    assert "hidden" not in str(found)
