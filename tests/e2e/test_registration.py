"""The API server accepts the output of ``admission-gateway manifests``, printed and applied."""

from __future__ import annotations

import json
import threading
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gateway.tools.cli.manifests_apply import FIELD_MANAGER
from tests.e2e.client import APPLY
from tests.e2e.cluster import NAMESPACE, Cluster
from tests.e2e.compare import Case, Operation, run
from tests.e2e.objects import GROUP, config_map, pod, widget, within
from tests.e2e.setups import REGISTRATIONS, BehindGateway, Hook, rule, run_manifests
from tests.kit import ROOT
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

EVERYTHING = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
DENY = {"deny": {"code": 403, "message": "no"}}


def entries(cluster: Cluster, plural: str, name: str) -> list[dict[str, Any]]:
    document = cluster.api.get(f"{REGISTRATIONS}/{plural}/{name}").document
    found: list[dict[str, Any]] = document.get("webhooks", [])
    return found


@pytest.fixture
def applied(cluster: Cluster) -> Iterator[str]:
    """The name under which a test applies its registrations, which are taken away again."""
    yield "applied"
    for plural in ("mutatingwebhookconfigurations", "validatingwebhookconfigurations"):
        cluster.api.delete(f"{REGISTRATIONS}/{plural}/applied")


@pytest.mark.parametrize("flags", [(), ("--split-mutating",)], ids=["one mutating entry", "two"])
def test_the_registration_of_the_shipped_configuration_is_accepted_as_it_is(
    cluster: Cluster, tmp_path: Path, flags: tuple[str, ...]
) -> None:
    shipped = next(
        one
        for one in yaml.safe_load_all((ROOT / "deploy" / "manifest.yaml").read_text())
        if one["kind"] == "ConfigMap"
    )
    for name, text in shipped["data"].items():
        (tmp_path / name).write_text(text)
    printed = run_manifests(
        *("--config", tmp_path, "--service", f"{NAMESPACE}/admission-gateway"),
        *("--ca-file", cluster.ca_file, *flags),
    )
    assert printed.returncode == 0, printed.stderr
    for document in yaml.safe_load_all(printed.stdout):
        path = f"{REGISTRATIONS}/{document['kind'].lower()}s?dryRun=All&fieldValidation=Strict"
        answer = cluster.api.create(path, document)
        assert (answer.status, answer.warnings) == (201, ()), answer
        # Nothing is left to a default that could be another one in another version.
        printed_entries = [{"objectSelector": {}, **entry} for entry in document["webhooks"]]
        assert answer.document["webhooks"] == printed_entries


def test_webhooks_of_different_versions_each_see_the_version_that_they_ask_for(
    cluster: Cluster, widgets: None, tmp_path: Path
) -> None:
    def hooks(phase: Any) -> list[Hook]:
        versions = {"older": ["v1"], "newer": ["v2"], "both": ["v1", "v2"], "any": ["*"]}
        return [
            Hook(
                phase,
                f"{name}-{phase}",
                {"record": True},
                ({**rule("widgets", group=GROUP), "apiVersions": api_versions},),
                configuration=f"{phase}-{name}",
                fields={"matchPolicy": policy} if (policy := {"both": "Exact"}.get(name)) else {},
            )
            for name, api_versions in versions.items()
        ]

    operations = [
        Operation("POST", within("widgets", f"{GROUP}/{version}"), widget(version, f"gear-{version}"))
        for version in ("v1", "v2")
    ]
    case = Case("versions", tuple(hooks("mutate") + hooks("validate")), tuple(operations))
    for directly, behind in run(cluster, tmp_path, [case])["versions"]:
        assert directly.status == 201
        assert {key.partition("/")[0] for key in directly.annotations} == {
            hook.name for hook in case.confined()
        }
        # Each entry counts its own webhooks, so that the log has no order across entries.
        assert sorted(behind.calls) == sorted(directly.calls)
        assert replace(behind, calls=()) == replace(directly, calls=())


def test_excluded_requests_do_not_wait_for_a_gateway_that_is_down(cluster: Cluster, tmp_path: Path) -> None:
    but_canaries = {"matchExpressions": [{"key": "canary", "operator": "DoesNotExist"}]}
    fields = {"objectSelector": but_canaries}
    hook = Hook("validate", "everything.excluded.test", DENY, (EVERYTHING,), fields=fields)
    with BehindGateway(cluster, tmp_path, [hook], "excluded") as setup:
        refused = cluster.api.create("/api/v1/namespaces/default/configmaps", config_map("excluded"))
        assert refused.status == 403, refused
        setup.gateway.stop()
        refused = cluster.api.create("/api/v1/namespaces/default/configmaps", config_map("excluded"))
        assert (refused.status, refused.document["reason"]) == (500, "InternalError")
        for namespace in ("kube-system", NAMESPACE):
            path = f"/api/v1/namespaces/{namespace}/configmaps"
            assert cluster.api.create(path, config_map("repair")).status == 201
            assert cluster.api.delete(f"{path}/repair").status == 200
        lease = {
            "apiVersion": "coordination.k8s.io/v1",
            "kind": "Lease",
            "metadata": {"name": "leader"},
            "spec": {"holderIdentity": "me"},
        }
        leases = "/apis/coordination.k8s.io/v1/namespaces/default/leases"
        assert cluster.api.create(leases, lease).status == 201
        assert cluster.api.delete(f"{leases}/leader").status == 200
        event = {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": "happened", "namespace": "default"},
            "involvedObject": {"kind": "Pod", "name": "web", "namespace": "default"},
            "reason": "Tested",
        }
        assert cluster.api.create("/api/v1/namespaces/default/events", event).status == 201
        whoami = {"apiVersion": "authentication.k8s.io/v1", "kind": "SelfSubjectReview"}
        assert cluster.api.create("/apis/authentication.k8s.io/v1/selfsubjectreviews", whoami).status == 201
        # The way out has to stay open: registrations are never sent to webhooks.
        setup.start_gateway()


def test_applying_again_removes_obsolete_entries(cluster: Cluster, tmp_path: Path, applied: str) -> None:
    setup = BehindGateway(cluster, tmp_path, [Hook("mutate", "a.apply.test", {})], applied)
    ignored = Hook("validate", "b.apply.test", {}, fields={"failurePolicy": "Ignore"})
    common = (
        *("--config", setup.config, "--service", f"{NAMESPACE}/{applied}:{setup.port}", "--name", applied),
        *("--ca-file", cluster.ca_file, "--apply", "--kubeconfig", cluster.kubeconfig()),
    )
    setup.hooks = [*setup.hooks, ignored]
    setup.write_configuration()
    first = run_manifests(*common)
    assert (first.returncode, first.stdout.count("created")) == (0, 2), first
    assert len(entries(cluster, "validatingwebhookconfigurations", applied)) == 2
    again = run_manifests(*common)
    assert (again.returncode, again.stdout.count("unchanged")) == (0, 2), again
    setup.hooks.remove(ignored)
    setup.write_configuration()
    changed = run_manifests(*common)
    assert changed.returncode == 0, changed
    (left,) = entries(cluster, "validatingwebhookconfigurations", applied)
    assert left["failurePolicy"] == "Fail"
    setup.hooks = [hook for hook in setup.hooks if hook.phase == "mutate"]
    setup.write_configuration()
    emptied = run_manifests(*common)
    assert emptied.stdout.count("configured") == 1, emptied
    assert entries(cluster, "validatingwebhookconfigurations", applied) == []
    still = run_manifests(*common)
    assert (still.returncode, still.stdout.count("unchanged")) == (0, 2), still


def test_entries_of_former_names_are_replaced_while_requests_are_refused(
    cluster: Cluster, tmp_path: Path, namespace: str
) -> None:
    denying = [
        Hook(
            *("validate", f"{policy.lower()}.renamed.test", DENY, (rule("configmaps", "CREATE"),)),
            fields={"failurePolicy": policy, "objectSelector": {"matchLabels": {"renamed": "yes"}}},
        )
        for policy in ("Fail", "Ignore")
    ]
    with BehindGateway(cluster, tmp_path, denying, "renamed") as setup:
        path = f"{REGISTRATIONS}/validatingwebhookconfigurations/renamed"
        (document,) = (one for one in setup.manifests() if one["kind"] == "ValidatingWebhookConfiguration")
        heads = {"mandatory": "fail", "optional": "ignore"}
        for entry in document["webhooks"]:
            head, _, rest = entry["name"].partition(".")
            entry["name"] = f"{heads[head]}.{rest}"
        former = [entry["name"] for entry in document["webhooks"]]
        cluster.api.delete(path)
        made = cluster.api.request("PATCH", f"{path}?fieldManager={FIELD_MANAGER}", document, APPLY)
        assert made.status == 201, made
        # A field of another manager, such as the watchdog's condition, keeps an entry from being removed.
        condition = {"name": "all", "expression": "true"}
        relaxed = {**document, "webhooks": [{"name": former[0], "matchConditions": [condition]}]}
        made = cluster.api.request("PATCH", f"{path}?fieldManager=watchdog", relaxed, APPLY)
        assert made.status == 200, made

        def is_refused() -> bool:
            where = f"/api/v1/namespaces/{namespace}/configmaps?dryRun=All"
            return cluster.api.create(where, config_map("x", {"renamed": "yes"})).status == 403

        eventually(is_refused)
        is_done, refusals = threading.Event(), list[bool]()

        def ask() -> None:
            while not is_done.is_set():
                refusals.append(is_refused())
            # Each thread has a connection of its own.
            cluster.api.close()

        asking = threading.Thread(target=ask)
        asking.start()
        try:
            done = run_manifests(
                *("--config", setup.config, "--service", f"{NAMESPACE}/renamed:{setup.port}"),
                *("--ca-file", cluster.ca_file, "--name", "renamed"),
                *("--apply", "--kubeconfig", cluster.kubeconfig()),
            )
            assert done.returncode == 0, done
            names = [
                entry["name"] for entry in entries(cluster, "validatingwebhookconfigurations", "renamed")
            ]
            assert names == [
                f"{head}.{one.partition('.')[2]}" for head, one in zip(heads, former, strict=True)
            ]
        finally:
            # Also behind the change, which API servers see a little later.
            seen = len(refusals)
            eventually(lambda: len(refusals) > seen + 20)
            is_done.set()
            asking.join()
        assert all(refusals)


def test_a_field_of_another_manager_is_overwritten_only_by_force(
    cluster: Cluster, tmp_path: Path, applied: str
) -> None:
    setup = BehindGateway(cluster, tmp_path, [Hook("mutate", "a.apply.test", {})], applied)
    setup.write_configuration()
    common = (
        *("--config", setup.config, "--service", f"{NAMESPACE}/{applied}:{setup.port}", "--name", applied),
        *("--ca-file", cluster.ca_file, "--apply", "--kubeconfig", cluster.kubeconfig()),
    )
    assert run_manifests(*common).returncode == 0
    name = entries(cluster, "mutatingwebhookconfigurations", applied)[0]["name"]
    patch = json.dumps({"webhooks": [{"name": name, "timeoutSeconds": 1}]})
    edited = cluster.kubectl(
        *("patch", f"mutatingwebhookconfiguration/{applied}", "--patch", patch, "--field-manager=somebody"),
    )
    assert edited.returncode == 0, edited
    refused = run_manifests(*common)
    assert refused.returncode == 1
    assert "somebody" in refused.stderr
    assert "timeoutSeconds" in refused.stderr
    assert "Traceback" not in refused.stderr
    assert entries(cluster, "mutatingwebhookconfigurations", applied)[0]["timeoutSeconds"] == 1
    forced = run_manifests(*common, "--force-conflicts")
    assert forced.returncode == 0, forced
    assert entries(cluster, "mutatingwebhookconfigurations", applied)[0]["timeoutSeconds"] > 1


def test_an_error_of_the_api_server_is_one_line(cluster: Cluster, tmp_path: Path) -> None:
    setup = BehindGateway(cluster, tmp_path, [Hook("mutate", "a.apply.test", {})], "unreached")
    setup.write_configuration()
    common = (
        "--config",
        setup.config,
        "--service",
        f"{NAMESPACE}/gateway",
        "--ca-file",
        cluster.ca_file,
        "--apply",
    )
    unreachable = tmp_path / "nobody.kubeconfig"
    unreachable.write_text(cluster.kubeconfig().read_text().replace(f":{cluster.port}", ":1"))
    for kubeconfig, expected in ((unreachable, "127.0.0.1:1"), (cluster.kubeconfig("stranger"), "forbidden")):
        done = run_manifests(*common, "--kubeconfig", kubeconfig)
        assert (done.returncode, done.stdout) == (1, "")
        assert expected in done.stderr
        assert done.stderr.count("\n") == 1, done.stderr


def test_a_new_policy_of_the_same_kind_needs_no_new_registration(cluster: Cluster, tmp_path: Path) -> None:
    hook = Hook("validate", "first.growing.test", {"warnings": ["first"]})
    with BehindGateway(cluster, tmp_path, [hook], "growing") as setup:
        path = "/api/v1/namespaces/default/pods?dryRun=All"
        assert cluster.api.create(path, pod()).warnings == ("first",)
        setup.hooks.insert(1, Hook("validate", "second.growing.test", {"warnings": ["second"]}))
        setup.write_configuration()
        eventually(lambda: cluster.api.create(path, pod()).warnings == ("first", "second"))
