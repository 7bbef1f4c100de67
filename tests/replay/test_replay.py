"""``admission-gateway replay`` with real workers."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.decisions.test_process import configure as configure_gateway
from tests.decisions.test_redaction import CANARY, ENCODED, secret
from tests.kit import call_command, pool_document, webhook_document
from tests.recording.test_process import record
from tests.replay.kit import configure, pod, recording, replay, review
from tests.replay.test_sources import event

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.kit import StartWorker
    from tests.kit import StartGateway

pytestmark = pytest.mark.process

NO = {"deny": {"code": 403, "message": "no"}}
HOOK = {"configuration": "v", "webhook": "h0.v.test", "outcome": "Allowed", "milliseconds": 1.0}
DENIED = {**HOOK, "outcome": "Denied", "message": "no", "code": 403}
REFUSED = {"allowed": False, "code": 403, "message": "h0.v.test: no"}


@pytest.mark.smoke
def test_what_a_gateway_recorded_is_equal_with_its_configuration_and_differs_with_another(
    tmp_path: Path, start_gateway: StartGateway, start_worker: StartWorker
) -> None:
    target, old, new = start_worker().target, tmp_path / "old", tmp_path / "new"
    for folder in (old, new):
        folder.mkdir()
        configure_gateway(folder, target)
    with (old / "c.yaml").open("a") as file:
        file.write(webhook_document("mutate", "label", "pool", {"label": "a"}, {"label": "b"}))
    record(old, samplePercent=100)
    gateway = start_gateway(old)
    for path, name in (("allow", "validate"), ("deny", "validate"), ("label", "mutate")):
        for _ in range(5):
            gateway.review(f"/{name}/{path}", f"pod-create-{name}")
    gateway.stop()
    same = replay(old / "recordings", "--config", old)
    assert (same["replayed"], same["equal"], same["problems"]) == (15, 15, [])
    with (new / "c.yaml").open("a") as file:
        file.write(webhook_document("mutate", "label", "pool", {"label": "a"}, {"label": "c"}))
    text = (new / "c.yaml").read_text()
    (new / "c.yaml").write_text(text.replace('"message\\": \\"no\\"', '"message\\": \\"never\\"'))
    other = replay(old / "recordings", "--config", new)
    assert (other["otherMessage"], other["otherObject"], other["equal"]) == (5, 5, 5)
    objects = next(one for one in other["differences"] if one["difference"] == "otherObject")
    assert objects["webhook"] == "label/h1.label.test"
    assert "-    b: set" in objects["examples"][0]["changes"]
    assert "+    c: set" in objects["examples"][0]["changes"]


def test_differences_are_grouped_with_examples_and_thresholds_decide_the_status(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(tmp_path / "new", start_worker().target, "validate", NO | {"when": "bad"})
    bad = {"metadata": {"name": "bad", "namespace": "default", "labels": {"bad": "x"}}}
    reviews = [
        *(review(pod(uid=f"u-{number}", object=bad), HOOK) for number in range(5)),
        review(pod(uid="u-5"), DENIED, **REFUSED),
        review(pod(uid="u-6"), HOOK),
    ]
    path = recording(tmp_path / "r.gz", *reviews)
    found = replay(path, "--config", config)
    assert (found["newlyDenied"], found["newlyAllowed"], found["equal"]) == (5, 1, 1)
    first, second = found["differences"]
    assert (first["webhook"], first["namespace"], first["kind"], first["count"]) == (
        *("v/h0.v.test", "default", "Pod"),
        5,
    )
    assert [one["uid"] for one in first["examples"]] == ["u-0", "u-1", "u-2"]
    assert first["examples"][0]["after"] == ["h0.v.test: no"]
    assert second["examples"][0]["before"] == ["h0.v.test: no"]
    assert replay(path, "--config", config, "--max-newly-denied", "5")["newlyDenied"] == 5
    done = call_command(
        "replay", path, "--config", config, "--max-newly-denied", "4", "--max-newly-allowed", "0"
    )
    assert done.returncode == 1
    assert "--max-newly-denied: found 5, at most 4 allowed" in done.stderr
    assert "--max-newly-allowed: found 1, at most 0 allowed" in done.stderr
    assert "5 newly denied, 1 newly allowed" in done.stdout


def test_two_configurations_are_compared_with_each_other(tmp_path: Path, start_worker: StartWorker) -> None:
    target = start_worker().target
    old = configure(tmp_path / "old", target, "validate", NO)
    new = configure(tmp_path / "new", target, "validate", {})
    path = recording(tmp_path / "r.gz", review(pod(), HOOK))
    found = replay(path, "--config", new, "--against", old, "--latency")
    assert (found["newlyAllowed"], found["replayed"]) == (1, 1)
    assert found["against"] == found["comparedWith"] == str(old)
    assert {one["webhook"] for one in found["latency"]} == {"v/h0.v.test"}


def test_the_report_is_the_same_bytes_whatever_the_order_of_answers(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    script = {"delay_ms": [0, 5], "deny": {"message": "no"}, "when": "bad"}
    config = configure(tmp_path / "new", start_worker().target, "validate", script)
    kinds = ("Pod", "Job", "Thing")
    reviews = [
        review(
            pod(
                uid=f"u-{number}",
                kind={"group": "", "version": "v1", "kind": kinds[number % 3]},
                object={"metadata": {"labels": {"bad": "x"} if number % 2 else {}, "name": f"n{number}"}},
            ),
            HOOK,
        )
        for number in range(300)
    ]
    path = recording(tmp_path / "r.gz", *reviews)
    found = {call_command("replay", path, "--config", config).stdout for _ in range(3)}
    pages = set()
    for number in range(2):
        page = tmp_path / f"{number}.html"
        done = call_command("replay", path, "--config", config, "--html", page)
        assert done.returncode == 0, done.stderr
        pages.add(page.read_bytes())
    assert len(found) == len(pages) == 1
    assert "150 newly denied" in found.pop()


def test_webhooks_with_side_effects_are_not_called_and_named(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    log = tmp_path / "calls"
    target = start_worker(None, "--log", str(log)).target
    text = pool_document("pool", target) + webhook_document(
        "validate", "v", "pool", NO, {"report": True}, sideEffects="Some"
    ).replace("admissionregistration.k8s.io/v1", "admissionregistration.k8s.io/v1beta1")
    (tmp_path / "new").mkdir()
    (tmp_path / "new" / "c.yaml").write_text(text)
    path = recording(tmp_path / "r.gz", review(pod(), DENIED, **REFUSED))
    found = replay(path, "--config", tmp_path / "new")
    assert found["webhooksLeftOut"] == ["validate v/h0.v.test", "validate v/h1.v.test"]
    assert found["equal"] == 1
    assert not log.exists() or not log.read_text()


def test_reviews_are_sent_as_dry_runs_with_the_recorded_namespace(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(tmp_path / "new", start_worker().target, "validate", {"report": True})
    path = recording(tmp_path / "r.gz", review(pod(dryRun=False), HOOK))
    (group,) = replay(path, "--config", config)["differences"]
    told = "".join(group["examples"][0]["after"])
    assert re.search(r'"dryRun": true', told) or "dryRun" not in told


def test_a_namespace_whose_labels_are_not_known_is_said_and_not_guessed(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    selector = {"matchLabels": {"team": "a"}}
    config = configure(tmp_path / "new", start_worker().target, "validate", NO, namespaceSelector=selector)
    path = recording(tmp_path / "r.gz", review(pod(), HOOK, namespace=None), review(pod(), HOOK))
    found = replay(path, "--config", config)
    assert (found["newlyDenied"], found["leftOut"]) == (1, 1)
    assert "labels of the namespace are not known" in found["leftOutByReason"][0]["reason"]
    namespaces = tmp_path / "namespaces.yaml"
    namespaces.write_text(
        json.dumps({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "default"}})
    )
    found = replay(path, "--config", config, "--namespaces", namespaces)
    assert (found["newlyDenied"], found["equal"], found["leftOut"]) == (1, 1, 0)


def test_a_path_of_another_registration_selects_phase_and_failure_policy(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(
        tmp_path / "new", start_worker().target, "validate", NO, {"webhook": {"failurePolicy": "Ignore"}}
    )
    paths = [
        "/validate.fail.versions.2/v9/a/b",
        "/validate.ignore.versions/v9",
        "/nothing",
        "/validate.fail/gone",
    ]
    path = recording(tmp_path / "r.gz", *(review(pod(), HOOK, path=one) for one in paths))
    found = replay(path, "--config", config)
    assert (found["newlyDenied"], found["equal"]) == (2, 1)
    assert found["leftOutByReason"] == [
        {"reason": "the request is not a valid AdmissionRequest", "reviews": 1}
    ]
    assert found["notes"][0]["reviews"] == 3


@pytest.mark.parametrize("script", [{"exit": True}, {"status": "UNAVAILABLE"}])
def test_workers_that_die_are_failures_and_end_a_long_replay(
    tmp_path: Path, start_worker: StartWorker, script: dict[str, Any]
) -> None:
    config = configure(tmp_path / "new", start_worker().target, "validate", script)
    path = recording(tmp_path / "r.gz", *(review(pod(uid=f"u-{number}"), HOOK) for number in range(1500)))
    found = replay(path, "--config", config, "--max-failures", "0", status=1)
    assert found["failures"] == found["replayed"] == 1000
    assert found["newlyDenied"] == 0
    assert "1000 reviews in a row" in found["stopped"]


def test_an_audit_log_and_objects_are_replayed_through_both_phases(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    target = start_worker().target
    config = configure(tmp_path / "new", target, "validate", NO | {"when": "set"})
    with (config / "c.yaml").open("a") as file:
        file.write(webhook_document("mutate", "m", "pool", {"label": "set"}))
    log = tmp_path / "audit.log"
    log.write_text(json.dumps(event()) + "\n" + json.dumps(event("delete")) + "\n")
    found = replay("--audit-log", log, "--config", config)
    assert (found["newlyDenied"], found["leftOut"]) == (1, 1)
    assert "without defaults" in found["notes"][0]["reason"]
    objects = tmp_path / "objects"
    objects.mkdir()
    (objects / "a.json").write_text(json.dumps(event()["requestObject"]))
    of_objects = replay("--objects", objects, "--config", config)
    assert of_objects["newlyDenied"] == 1
    # Neither has recorded answers.
    assert found["comparedWith"] == "the answers in the audit log"
    assert of_objects["comparedWith"] == "an admission of each object, which has no recorded answer"
    text = call_command("replay", "--objects", objects, "--config", config).stdout
    assert f"compared with {of_objects['comparedWith']}\n" in text


def test_no_value_of_a_secret_is_in_a_report(tmp_path: Path, start_worker: StartWorker) -> None:
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"copy": CANARY}}]
    told = {"deny": {"message": f"value {CANARY} or {ENCODED}"}}
    target = start_worker().target
    denies = configure(tmp_path / "denies", target, "validate", told)
    copies = configure(tmp_path / "copies", target, "mutate", {"patch": patch})
    plain = configure(tmp_path / "plain", target, "mutate", {})
    (tmp_path / "s.json").write_text(json.dumps(secret(data={"key": ENCODED})))
    for arguments in (("--config", denies), ("--config", copies, "--against", plain)):
        page = tmp_path / "r.html"
        done = call_command("replay", "--objects", tmp_path / "s.json", *arguments, "--html", page)
        assert done.returncode == 0, done.stderr
        assert "redacted" in done.stdout
        for text in (done.stdout, done.stderr, page.read_text()):
            assert CANARY not in text
            assert ENCODED not in text


def test_hostile_texts_forge_nothing(tmp_path: Path, start_worker: StartWorker) -> None:
    evil = "<script>alert(1)</script>\x1b[2J\nallowed\u202e"
    config = configure(tmp_path / "new", start_worker().target, "validate", {"deny": {"message": evil}})
    path = recording(
        tmp_path / "r.gz", review(pod(name=evil, namespace=evil, userInfo={"username": evil}), HOOK)
    )
    page = tmp_path / "r.html"
    done = call_command("replay", path, "--config", config, "--html", page)
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout + page.read_text()
    assert "<script" not in page.read_text()
    assert not [line for line in done.stdout.splitlines() if line.startswith("allowed")]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "expected RECORDING, --audit-log, --objects or --cluster-objects"),
        (("/dev/null", "--plan", "--objects", "/dev/null"), "--plan: expected RECORDING or --audit-log"),
        (("a", "--updates-as-creates"), "--updates-as-creates needs --audit-log"),
        (("a", "--max-failures", "-1"), "expected a number from 0"),
        (("none",), "none: there is no such file or folder"),
    ],
)
@pytest.mark.usefixtures("no_wait_for_workers")
def test_wrong_usage_is_status_2(tmp_path: Path, arguments: tuple[str, ...], message: str) -> None:
    config = configure(tmp_path / "new", "127.0.0.1:1", "validate", {})
    done = call_command("replay", *arguments, "--config", config)
    assert done.returncode == 2
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


@pytest.mark.usefixtures("no_wait_for_workers")
def test_an_empty_input_and_a_wrong_configuration_are_no_success(tmp_path: Path) -> None:
    config = configure(tmp_path / "new", "127.0.0.1:1", "validate", {})
    assert call_command("replay", recording(tmp_path / "r.gz"), "--config", config).returncode == 1
    (config / "c.yaml").write_text("kind: Nothing")
    assert call_command("replay", tmp_path / "r.gz", "--config", config).returncode == 2


@pytest.mark.slow
def test_memory_does_not_depend_on_the_length_of_the_input(tmp_path: Path, start_worker: StartWorker) -> None:
    """The largest resident size of a replay of 12,000 reviews, by its children's usage, and of 1,000."""
    config = configure(tmp_path / "new", start_worker().target, "validate", NO)
    program = (
        "import resource, subprocess, sys\n"
        "command = [sys.executable, '-m', 'gateway', 'replay', *sys.argv[1:]]\n"
        "subprocess.run(command, stdout=subprocess.DEVNULL)\n"
        "print(resource.getrusage(resource.RUSAGE_CHILDREN).ru_maxrss)"
    )
    sizes = []
    for number in (1_000, 12_000):
        reviews = (review(pod(uid=f"u-{one}", namespace=f"ns-{one}"), HOOK) for one in range(number))
        path = recording(tmp_path / f"{number}.gz", *reviews)
        command = [sys.executable, "-c", program, str(path), "--config", str(config)]
        sizes.append(int(subprocess.run(command, capture_output=True, check=True).stdout))
    assert sizes[1] < 1.2 * sizes[0]


def test_exceptions_and_modes_act_as_in_the_gateway(tmp_path: Path, start_worker: StartWorker) -> None:
    target = start_worker().target
    config = configure(tmp_path / "new", target, "validate", NO)
    path = recording(tmp_path / "r.gz", review(pod(), HOOK))
    assert replay(path, "--config", config)["newlyDenied"] == 1
    spec = {
        "webhooks": ["h0.v.test"],
        "match": {"kinds": ["Pod"]},
        "reason": "r",
        "owner": "o",
        "permanent": True,
    }
    exception = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": "default"},
        "spec": spec,
    }
    (config / "e.yaml").write_text(json.dumps(exception))
    assert replay(path, "--config", config)["equal"] == 1
    warns = configure(tmp_path / "warns", target, "validate", NO, rollout={"mode": "Warn"})
    found = replay(path, "--config", warns)
    assert (found["newlyDenied"], found["otherMessage"]) == (0, 1)
    assert found["notes"] == [
        {"reason": "v/h0.v.test, in the mode Warn, would refuse the request", "reviews": 1}
    ]


def test_objects_that_policies_read_and_nothing_has_are_said_and_not_guessed(tmp_path: Path) -> None:
    expression = "resource.get('v1', 'configmaps', 'default', 'limits') != null"
    rules: list[dict[str, Any]] = [
        {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["pods"]}
    ]
    api_version = "admissionregistration.k8s.io/v1"
    settings: dict[str, Any] = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "policies": {"resources": [{"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps"}]},
    }
    policy = {
        "apiVersion": api_version,
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "p"},
        "spec": {
            "matchConstraints": {"resourceRules": rules},
            "validations": [{"expression": expression}],
        },
    }
    binding = {
        "apiVersion": api_version,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "b"},
        "spec": {"policyName": "p", "validationActions": ["Deny"]},
    }
    source = recording(tmp_path / "a.jsonl.gz", review(), review(pod(operation="DELETE", object=None)))
    limits = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "limits", "namespace": "default"},
    }

    def replayed(*more: dict[str, Any], status: int = 0) -> dict[str, Any]:
        config = tmp_path / "config.yaml"
        config.write_text(yaml.safe_dump_all([policy, binding, *more]))
        return replay(source, "--config", config, status=status)

    with_cluster = {**settings, "kubernetes": {}}
    found = replayed(with_cluster, status=1)
    reason = "policies read objects that are not known (see --context): ConfigMap of v1"
    assert found["leftOutByReason"] == [{"reason": reason, "reviews": 2}]
    assert found["replayed"] == 0
    found = replayed(with_cluster, limits)
    assert (found["equal"], found["leftOut"]) == (2, 0)
    # Without a cluster, the gateway itself has no objects but those of files.
    found = replayed(settings)
    assert (found["newlyDenied"], found["leftOut"]) == (2, 0)
    rules[0]["resources"] = ["services"]
    found = replayed(with_cluster)
    assert (found["equal"], found["leftOut"]) == (2, 0)


def test_webhooks_that_change_their_own_results_are_counted_beside_the_differences(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    target = start_worker().target
    reviews = [review(path="/mutate", phase="mutate") for _ in range(3)]
    file = recording(tmp_path / "r.jsonl.gz", *reviews, review())
    config = configure(tmp_path / "new", target, "mutate", {"label": "team"}, {"count": "runs"})
    found = replay(file, "--config", config, "--against", config)
    assert (found["equal"], found["changedAgain"]) == (4, 3)
    (group,) = found["differences"]
    assert (group["difference"], group["webhook"], group["count"]) == ("changedAgain", "v/h1.v.test", 3)
    line = "h1.v.test changes again on its own result: metadata.annotations.runs"
    assert group["examples"][0]["after"] == [line]
    replay(file, "--config", config, "--max-changed-again", 2, status=1)
    replay(file, "--config", config, "--max-changed-again", 3)
