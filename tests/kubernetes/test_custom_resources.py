"""A whole gateway with custom resources: the configuration in force, statuses and Events."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest

from tests.kit import REVIEWS, pool_document, webhook_document
from tests.kubernetes.server import EVENTS, ApiServer, refuse
from tests.kubernetes.test_gateway import run, settings
from tests.kubernetes.test_schemas import publish
from tests.worker.server import scripted_worker

if TYPE_CHECKING:
    from pathlib import Path

    from tests.in_process import Stage
    from tests.kit import Answering

POD = "pod-create-validate"
DENIED = {"deny": {"message": "refused"}}
RELOADED = "admission_gateway_config_last_reload_successful"
VALIDATING = "ValidatingWebhookConfiguration"


def custom(phase: str, name: str, pool: str, *scripts: dict[str, Any], **fields: Any) -> dict[str, Any]:
    document: dict[str, Any] = json.loads(
        webhook_document(phase, name, pool, *scripts, **fields).rpartition("---")[0]
    )
    return {**document, "apiVersion": "admission-gateway.io/v1alpha1"}


def pool(name: str, target: str, **spec: Any) -> dict[str, Any]:
    return {"kind": "WorkerPool", "metadata": {"name": name}, "spec": {"target": target, **spec}}


@pytest.fixture
def target(stage: Stage) -> str:
    return stage.enter(scripted_worker("127.0.0.1:0")).target


@pytest.fixture
def folder(server: ApiServer, tmp_path: Path) -> Path:
    """A configuration with nothing but the cluster."""
    folder = tmp_path / "config"
    folder.mkdir()
    server.kubeconfig(tmp_path)
    (folder / "c.yaml").write_text(settings(kubeconfig="../kubeconfig", customResources=True))
    return folder


def answers(gateway: Answering, path: str = "/validate") -> tuple[bool, str]:
    answer = gateway.review(path, POD)
    return answer["allowed"], answer.get("status", {}).get("message", "")


def conditions(server: ApiServer, kind: str, name: str) -> tuple[str, str, int]:
    found = server.ready(kind, name)
    return found.get("status", ""), found.get("reason", ""), found.get("observedGeneration", 0)


def test_resources_are_served_followed_and_get_a_status(
    server: ApiServer, folder: Path, target: str, stage: Stage
) -> None:
    server.apply(pool("pods", target))
    server.apply(custom("validate", "v", "pods", DENIED))
    gateway = stage.start_gateway(folder, allow_empty=True)
    assert gateway.admin("/readyz")[0] == 200
    assert answers(gateway) == (False, "h0.v.test: refused")
    stage.eventually(lambda: conditions(server, VALIDATING, "v") == ("True", "Accepted", 1))
    stage.eventually(lambda: conditions(server, "WorkerPool", "pods") == ("True", "Accepted", 1))
    assert gateway.metric(RELOADED) == 1

    server.apply(custom("validate", "v", "pods", {"deny": {"message": "another"}}))
    stage.eventually(lambda: answers(gateway) == (False, "h0.v.test: another"))
    stage.eventually(lambda: conditions(server, VALIDATING, "v") == ("True", "Accepted", 2))
    server.remove(VALIDATING, "v")
    stage.eventually(lambda: answers(gateway) == (True, ""))
    assert server.told == []
    patches = [parameters for kind, parameters in server.requests if kind == "patch"]
    assert len(patches) == 3
    assert all(parameters["type"] == "application/apply-patch+yaml" for parameters in patches)


def test_the_last_webhook_stays_in_force_when_all_resources_are_deleted(
    server: ApiServer, folder: Path, target: str, stage: Stage
) -> None:
    server.apply(pool("pods", target))
    server.apply(custom("validate", "v", "pods", DENIED))
    gateway = stage.start_gateway(folder)
    server.remove(VALIDATING, "v")
    gateway.expect("found no webhooks in .*, the custom resources of the cluster: .*--allow-empty")
    assert answers(gateway) == (False, "h0.v.test: refused")
    assert gateway.metric(RELOADED) == 0
    server.apply(custom("validate", "v", "pods", {"deny": {"message": "another"}}))
    stage.eventually(lambda: answers(gateway) == (False, "h0.v.test: another"))
    assert gateway.metric(RELOADED) == 1


def test_an_invalid_change_is_refused_alone_and_can_be_corrected(
    server: ApiServer, folder: Path, target: str, stage: Stage
) -> None:
    server.apply(pool("pods", target))
    server.apply(custom("validate", "v", "pods", DENIED))
    gateway = stage.start_gateway(folder, allow_empty=True)
    server.apply(custom("validate", "v", "pods", {"deny": {"message": "bad"}}, timeoutSeconds=99))
    server.apply(custom("validate", "w", "pods", {"deny": {"message": "good"}}))
    stage.eventually(lambda: answers(gateway) == (False, "h0.v.test: refused\nh0.w.test: good"))
    stage.eventually(lambda: conditions(server, VALIDATING, "v") == ("False", "Invalid", 2))
    told = server.ready(VALIDATING, "v")["message"]
    assert told == (
        "webhooks[0].timeoutSeconds: found the number 99, expected a whole number from 1 to 30\n"
        "Effect: generation 1 stays in force."
    )
    assert gateway.metric(RELOADED) == 0
    gateway.expect(r'cluster: ValidatingWebhookConfiguration "v": webhooks\[0\].timeoutSeconds: found')
    stage.eventually(lambda: len(server.told) == 1)
    (event,) = server.told
    assert (event["type"], event["reason"]) == ("Warning", "Invalid")
    assert event["regarding"]["name"] == "v"
    assert event["note"] == "refused because of webhooks[0].timeoutSeconds; its status says why"

    server.apply(custom("validate", "v", "pods", {"deny": {"message": "mended"}}))
    stage.eventually(lambda: answers(gateway) == (False, "h0.v.test: mended\nh0.w.test: good"))
    stage.eventually(lambda: conditions(server, VALIDATING, "v") == ("True", "Accepted", 3))
    stage.eventually(lambda: [event["type"] for event in server.told] == ["Warning", "Normal"])
    assert gateway.metric(RELOADED) == 1


@pytest.fixture
def declared(tmp_path: Path) -> Path:
    """The policies of ``declaring``."""
    file = tmp_path / "policies.json"
    file.write_text(json.dumps({json.dumps(DENIED): {}}))
    return file


@pytest.fixture
def declaring(stage: Stage, declared: Path) -> str:
    """A worker that lists its policies."""
    return stage.enter(scripted_worker("127.0.0.1:0", declared=declared)).target


def test_a_change_that_workers_reject_is_refused_alone_and_taken_when_they_accept_it(
    server: ApiServer,
    folder: Path,
    declaring: str,
    declared: Path,
    stage: Stage,
) -> None:
    server.apply(pool("pods", declaring))
    server.apply(custom("validate", "v", "pods", DENIED))
    gateway = stage.start_gateway(folder, allow_empty=True)
    other = {"deny": {"message": "another"}}
    server.apply(custom("validate", "v", "pods", other))
    server.apply(custom("validate", "w", "pods", DENIED))
    stage.eventually(lambda: conditions(server, VALIDATING, "v") == ("False", "RejectedByWorkers", 2))
    stage.eventually(lambda: conditions(server, VALIDATING, "w") == ("True", "Accepted", 1))
    message = server.ready(VALIDATING, "v")["message"]
    assert message.startswith("webhooks[0].clientConfig.worker.policy: found ")
    assert message.endswith("\nEffect: generation 1 stays in force.")
    assert answers(gateway) == (False, "h0.v.test: refused\nh0.w.test: refused")
    assert gateway.metric(RELOADED) == 0
    assert "custom resource refused (generation 1 stays in force): " in gateway.admin("/readyz?verbose")[1]
    # Its workers are replaced: the gateway asks the new ones at once.
    declared.write_text(json.dumps({json.dumps(one): {} for one in (DENIED, other)}))
    server.apply(pool("more", declaring))
    server.apply(custom("validate", "x", "more", DENIED))
    stage.eventually(lambda: answers(gateway)[1].startswith("h0.v.test: another"))
    stage.eventually(lambda: conditions(server, VALIDATING, "v") == ("True", "Accepted", 2))
    assert "custom resource refused" not in gateway.admin("/readyz?verbose")[1]
    assert gateway.log.count("custom resource refused") == 1


def test_a_pool_whose_workers_reject_its_webhooks_is_refused(
    server: ApiServer, folder: Path, declaring: str, tmp_path: Path, stage: Stage
) -> None:
    server.apply(pool("pods", declaring))
    server.apply(custom("validate", "v", "pods", DENIED))
    gateway = stage.start_gateway(folder, allow_empty=True)
    other = tmp_path / "other.json"
    other.write_text("{}")
    worker = stage.enter(scripted_worker("127.0.0.1:0", declared=other))
    server.apply(pool("pods", worker.target))
    stage.eventually(lambda: conditions(server, "WorkerPool", "pods") == ("False", "RejectedByWorkers", 2))
    stage.eventually(lambda: conditions(server, VALIDATING, "v") == ("True", "Accepted", 1))
    message = server.ready("WorkerPool", "pods")["message"]
    assert 'ValidatingWebhookConfiguration "v": webhooks[0].clientConfig.worker.policy: found' in message
    assert answers(gateway) == (False, "h0.v.test: refused")


def test_a_start_with_invalid_resources_fails_closed(
    server: ApiServer, folder: Path, target: str, stage: Stage
) -> None:
    server.apply(pool("pods", target))
    server.apply(custom("validate", "v", "pods", DENIED, timeoutSeconds=99))
    server.apply(custom("validate", "i", "pods", DENIED, timeoutSeconds=99, failurePolicy="Ignore"))
    server.apply(custom("mutate", "m", "none", DENIED))
    gateway = stage.start_gateway(folder, allow_empty=True)
    assert gateway.admin("/readyz")[0] == 200
    assert gateway.metric(RELOADED) == 0
    failed = 'failed calling webhook "h0.{}.test": UNAVAILABLE: no worker pool for the refused {}'
    assert answers(gateway) == (False, failed.format("v", VALIDATING))
    assert answers(gateway, "/mutate") == (False, failed.format("m", "MutatingWebhookConfiguration"))
    stage.eventually(
        lambda: conditions(server, "MutatingWebhookConfiguration", "m") == ("False", "NoWorkerPool", 1)
    )
    stage.eventually(lambda: "1 of its webhooks fail by" in server.ready(VALIDATING, "i").get("message", ""))
    server.apply(pool("none", target))
    stage.eventually(lambda: answers(gateway, "/mutate") == (False, "h0.m.test: refused"))


def test_a_custom_resource_can_always_be_corrected(
    server: ApiServer, folder: Path, target: str, stage: Stage
) -> None:
    """An invalid webhook for everything is not called for the change that corrects it."""
    server.apply(custom("validate", "v", "none", DENIED))
    gateway = stage.start_gateway(folder, allow_empty=True)
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {
            "uid": "1",
            "kind": {"group": "admission-gateway.io", "version": "v1alpha1", "kind": VALIDATING},
            "resource": {
                "group": "admission-gateway.io",
                "version": "v1alpha1",
                "resource": "validatingwebhookconfigurations",
            },
            "name": "v",
            "operation": "UPDATE",
            "userInfo": {"username": "admin"},
            "object": {"metadata": {"name": "v"}},
        },
    }
    assert answers(gateway)[0] is False
    assert gateway.review("/validate", json.dumps(review).encode())["allowed"] is True


def test_files_take_precedence_over_resources(
    server: ApiServer, folder: Path, target: str, stage: Stage
) -> None:
    file = folder / "d.yaml"
    file.write_text(pool_document("pods", target) + webhook_document("validate", "v", "pods", DENIED))
    server.apply(pool("pods", "127.0.0.1:9"))
    server.apply(custom("validate", "v", "pods", {"deny": {"message": "taken over"}}))
    server.apply(custom("validate", "w", "pods", {"deny": {"message": "beside"}}))
    gateway = stage.start_gateway(folder, allow_empty=True)
    assert answers(gateway) == (False, "h0.v.test: refused\nh0.w.test: beside")
    stage.eventually(lambda: conditions(server, "WorkerPool", "pods")[1] == "NameInFiles")
    stage.eventually(lambda: conditions(server, VALIDATING, "v")[1] == "NameInFiles")
    # An invalid file is refused, and resources change beside the last valid files.
    seen = len(gateway.log)
    file.write_text(file.read_text() + "kind: Nonsense\n")
    gateway.expect("configuration refused", after=seen)
    server.apply(custom("validate", "w", "pods", {"deny": {"message": "still"}}))
    stage.eventually(lambda: answers(gateway) == (False, "h0.v.test: refused\nh0.w.test: still"))


@pytest.mark.parametrize(("file", "content"), [("tokens", "no token\n"), ("ca.pem", "")])
def test_an_invalid_file_does_not_block_resources(
    server: ApiServer,
    folder: Path,
    target: str,
    certificate: tuple[Path, Path],
    stage: Stage,
    file: str,
    content: str,
) -> None:
    """Otherwise a new webhook would not be enforced because of an unrelated file."""
    (folder.parent / "ca.pem").write_bytes(certificate[0].read_bytes())
    (folder.parent / "tokens").write_text("secret\n")
    head = json.loads((folder / "c.yaml").read_text().partition("\n---")[0])
    head["authentication"] = {"tokenFile": "../tokens"}
    secure = pool_document("secure", target, tls={"caFile": "../ca.pem"})
    (folder / "c.yaml").write_text(f"{json.dumps(head)}\n---\n{secure}")
    server.apply(pool("pods", target))
    gateway = stage.start_gateway(folder, allow_empty=True)
    (folder.parent / file).write_text(content)
    gateway.expect(
        "configuration refused, the one in force stays|credentials are unusable, the old ones stay"
    )
    seen = len(gateway.log)
    server.apply(custom("validate", "v", "pods", DENIED))
    gateway.expect(r"configuration reloaded: .* 1 validating", after=seen)


def test_it_does_not_serve_before_the_resources_are_read(
    server: ApiServer, folder: Path, target: str, stage: Stage
) -> None:
    server.apply(pool("pods", target))
    server.lacks_custom_resources = True
    gateway = stage.make_gateway(folder, allow_empty=True)
    gateway.begin()
    why = (
        "the API server answers 404: the server could not find the requested resource (is there no "
        "CustomResourceDefinition workerpools.admission-gateway.io? deploy/chart/files/crds.yaml has it)"
    )
    gateway.expect(re.escape(f"workerpools.admission-gateway.io cannot be read yet: {why}"))
    status, said = gateway.admin("/readyz")
    expected = f"starting: workerpools.admission-gateway.io not synced: {why}"
    assert (status, json.loads(said)["error"]) == (503, expected)
    assert not gateway.is_serving
    server.lacks_custom_resources = False
    gateway.expect("workerpools.admission-gateway.io synced: 1 from")
    gateway.wait_until_started()
    assert gateway.admin("/readyz")[0] == 200


def test_policies_are_served_and_not_bypassed_while_they_may_not_be_read(
    server: ApiServer, folder: Path, stage: Stage
) -> None:
    rules = [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}]
    spec = {"matchConstraints": {"resourceRules": rules}, "validations": [{"expression": "false"}]}
    server.apply({"kind": "ValidatingAdmissionPolicy", "metadata": {"name": "p"}, "spec": spec})
    bound = {"policyName": "p", "validationActions": ["Deny"]}
    server.apply({"kind": "ValidatingAdmissionPolicyBinding", "metadata": {"name": "b"}, "spec": bound})
    server.put("default")
    server.faults["list validatingadmissionpolicies"].extend([refuse(403, "forbidden")] * 2)
    server.faults["list mutatingadmissionpolicies"].extend([refuse(404, "not found")] * 3)
    gateway = stage.start_gateway(folder)
    gateway.expect("validatingadmissionpolicies.admission-gateway.io cannot be read yet: .* 403: forbidden")
    allowed, message = answers(gateway)
    assert (allowed, message.rpartition("denied request: ")[2]) == (False, "failed expression: false")
    policy = "ValidatingAdmissionPolicy"
    stage.eventually(lambda: conditions(server, policy, "p") == ("True", "Accepted", 1))
    server.remove(policy, "p")
    server.apply(custom("validate", "v", "pods", DENIED))
    stage.eventually(lambda: "failed expression" not in answers(gateway)[1])
    stage.eventually(lambda: conditions(server, f"{policy}Binding", "b") == ("False", "NoPolicy", 1))


def test_a_policy_that_cannot_succeed_is_told(server: ApiServer, folder: Path, stage: Stage) -> None:
    policy = "ValidatingAdmissionPolicy"
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"], "operations": ["CREATE"]}
    spec = {
        "matchConstraints": {"resourceRules": [rule]},
        "validations": [{"expression": "object.spec.replicaz > 1"}],
    }
    server.apply({"kind": policy, "metadata": {"name": "p"}, "spec": spec})
    bound = {"policyName": "p", "validationActions": ["Deny"]}
    server.apply({"kind": f"{policy}Binding", "metadata": {"name": "b"}, "spec": bound})
    gateway = stage.start_gateway(folder)
    stage.eventually(lambda: conditions(server, policy, "p") == ("True", "CannotSucceed", 1))
    told = "spec.validations[0].expression cannot succeed on /v1, Kind=Pod: 1:12: undefined field 'replicaz'"
    assert server.ready(policy, "p")["message"] == f"in force, but {told}"
    gateway.expect(re.escape(told))
    assert told in gateway.admin("/readyz?verbose")[1]
    assert not answers(gateway)[0]
    spec["validations"] = [{"expression": "object.metadata.name != ''"}]
    server.apply({"kind": policy, "metadata": {"name": "p"}, "spec": spec})
    stage.eventually(lambda: conditions(server, policy, "p") == ("True", "Accepted", 2))
    assert gateway.admin("/readyz?verbose") == (200, "ok\n")


def test_the_expressions_of_a_policy_for_custom_objects_are_checked_by_their_schema(
    server: ApiServer, folder: Path, stage: Stage
) -> None:
    policy = "ValidatingAdmissionPolicy"
    rule = {"apiGroups": ["example.io"], "apiVersions": ["v1"], "resources": ["widgets"], "operations": ["*"]}
    validation = {"expression": "object.parts.all(p, p.sizee > 1)"}
    spec = {"matchConstraints": {"resourceRules": [rule]}, "validations": [validation]}
    server.apply({"kind": policy, "metadata": {"name": "p"}, "spec": spec})
    server.put("default")
    gateway = stage.start_gateway(folder, allow_empty=True)
    stage.eventually(lambda: conditions(server, policy, "p") == ("True", "Accepted", 1))
    stage.eventually(
        lambda: "schemas of policies' kinds cannot be read" in gateway.admin("/readyz?verbose")[1]
    )
    publish(server, 1, size={"type": "integer"})
    stage.eventually(lambda: conditions(server, policy, "p") == ("True", "CannotSucceed", 1))
    message = server.ready(policy, "p")["message"]
    assert "cannot succeed on example.io/v1, Kind=Widget: 1:22: undefined field 'sizee'" in message
    publish(server, 2, sizee={"type": "integer"})
    stage.eventually(lambda: conditions(server, policy, "p") == ("True", "Accepted", 1))


def test_resources_stay_in_force_while_the_api_server_is_down(
    server: ApiServer, folder: Path, target: str, stage: Stage
) -> None:
    server.apply(pool("pods", target))
    server.apply(custom("validate", "v", "pods", DENIED))
    gateway = stage.start_gateway(folder, allow_empty=True)
    faults = [server.faults[f"{verb} validatingwebhookconfigurations"] for verb in ("list", "watch")]
    for each in faults:
        each.extend([refuse(503)] * 10_000)
    server.faults["watch workerpools"].append(refuse(410, "too old resource version"))
    server.end_watches(abruptly=True)
    stage.eventually(lambda: gateway.metric("admission_gateway_cluster_watch_connected") == 0)
    assert gateway.admin("/readyz")[0] == 200
    assert answers(gateway) == (False, "h0.v.test: refused")
    for each in faults:
        each.clear()
    server.remove(VALIDATING, "v")
    stage.eventually(lambda: answers(gateway) == (True, ""))


def test_a_storm_of_changes_costs_few_reloads(
    server: ApiServer, folder: Path, target: str, stage: Stage
) -> None:
    server.apply(pool("pods", target))
    gateway = stage.start_gateway(folder, allow_empty=True)
    began_at = stage.loop.time()
    for number in range(300):
        server.apply(custom("validate", "v", "pods", {"deny": {"message": f"change {number}"}}))
        stage.run(asyncio.sleep(0.01))
    stage.eventually(lambda: answers(gateway) == (False, "h0.v.test: change 299"))
    # At most one reload every half second; the start may have left one.
    passed_s = stage.loop.time() - began_at
    assert passed_s < 4
    assert 5 <= gateway.log.count("configuration reloaded") <= 1 + 2 * passed_s


def test_two_gateways_write_one_status_and_one_event(
    server: ApiServer, folder: Path, target: str, stage: Stage
) -> None:
    server.apply(pool("pods", target))
    first, second = (stage.start_gateway(folder, allow_empty=True) for _ in range(2))
    server.apply(custom("validate", "v", "pods", DENIED, timeoutSeconds=99))
    stage.eventually(lambda: conditions(server, VALIDATING, "v")[0] == "False")
    stage.eventually(lambda: answers(second)[0] is False)
    stage.eventually(lambda: len(server.told) == 1)
    first.stop()
    server.apply(custom("validate", "v", "pods", DENIED))
    stage.eventually(lambda: conditions(server, VALIDATING, "v")[0] == "True")
    stage.eventually(lambda: [event["type"] for event in server.told] == ["Warning", "Normal"])


def test_statuses_that_cannot_be_written_do_not_affect_reviews(
    server: ApiServer, folder: Path, target: str, stage: Stage
) -> None:
    server.faults["patch"].append(refuse(403, "patch is forbidden"))
    server.faults["post"].append(refuse(500))
    server.apply(pool("pods", target))
    server.apply(custom("validate", "v", "pods", DENIED))
    gateway = stage.start_gateway(folder, allow_empty=True)
    assert answers(gateway) == (False, "h0.v.test: refused")
    gateway.expect("cannot write the status of custom resources: the API server answers 403")
    assert "Traceback" not in gateway.log


def test_custom_resources_can_be_enabled_and_disabled_by_reload(
    server: ApiServer, folder: Path, target: str, stage: Stage
) -> None:
    server.apply(pool("pods", target))
    server.apply(custom("validate", "v", "pods", DENIED))
    file = folder / "c.yaml"
    file.write_text(settings(kubeconfig="../kubeconfig"))
    gateway = stage.start_gateway(folder, allow_empty=True)
    assert answers(gateway) == (True, "")
    file.write_text(settings(kubeconfig="../kubeconfig", customResources=True))
    stage.eventually(lambda: answers(gateway)[0] is False)
    file.write_text(settings(kubeconfig="../kubeconfig"))
    stage.eventually(lambda: answers(gateway)[0] is True)


def test_a_reload_that_waits_for_missing_crds_keeps_the_gateway_ready(
    server: ApiServer, folder: Path, stage: Stage
) -> None:
    file = folder / "c.yaml"
    with_resources = file.read_text()
    file.write_text(settings(kubeconfig="../kubeconfig"))
    gateway = stage.start_gateway(folder, allow_empty=True)
    stage.eventually(lambda: gateway.admin("/readyz")[0] == 200)
    server.lacks_custom_resources = True
    file.write_text(with_resources)
    gateway.expect("workerpools.admission-gateway.io cannot be read yet")
    found = set()

    def is_refused() -> bool:
        found.add(gateway.admin("/readyz")[0])
        return "configuration refused, the one in force stays" in gateway.log

    stage.eventually(is_refused)
    assert found == {200}


def test_check_needs_no_cluster_and_names_what_it_does_not_check(server: ApiServer, folder: Path) -> None:
    checked = run("check", "--config", str(folder))
    assert checked.returncode == 0
    assert "custom resources in the cluster are not checked" in checked.stderr
    assert server.requests == []


def test_custom_resources_can_be_loaded_from_files(tmp_path: Path, server: ApiServer) -> None:
    file = tmp_path / "a.yaml"
    documents = [custom("validate", "v", "pods", DENIED), pool("pods", "127.0.0.1:1")]
    listed = {
        "apiVersion": "v1",
        "kind": "List",
        "items": [
            {**document, "apiVersion": "admission-gateway.io/v1alpha1", "status": {"conditions": []}}
            for document in documents
        ],
    }
    file.write_text(json.dumps(listed))
    checked = run("check", "--config", str(file))
    assert checked.returncode == 0, checked.stderr
    assert "1 validating; worker pools: 1" in checked.stdout


def test_the_review_command_reads_custom_resources(
    server: ApiServer, folder: Path, threaded_target: str, tmp_path: Path
) -> None:
    server.apply(pool("pods", threaded_target))
    server.apply(custom("validate", "v", "pods", DENIED))
    server.apply(custom("validate", "w", "pods", DENIED, timeoutSeconds=99))
    done = run("review", str(REVIEWS / f"{POD}.json"), "--config", str(folder))
    assert json.loads(done.stdout)["response"]["status"]["message"].startswith("h0.v.test: refused\n")
    assert 'ValidatingWebhookConfiguration "w": webhooks[0].timeoutSeconds' in done.stderr
    assert not {"patch", "post", "put"} & {kind for kind, _ in server.requests}
    assert EVENTS not in server.objects
