"""``admission-gateway preview`` with real workers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from tests.decisions.test_redaction import CANARY, ENCODED, secret
from tests.kit import call_command
from tests.preview.kit import CONFIG_MAP, WEB, configure, deny, findings, of, pods, preview

if TYPE_CHECKING:
    from pathlib import Path

    from tests.faults.kit import StartWorker

pytestmark = pytest.mark.process

IMAGE = "spec.containers[0].image"
SIDECAR = [{"op": "add", "path": "/spec/containers/0", "value": {"name": "sidecar", "image": "s:1"}}]


def kinds(report: dict[str, Any]) -> list[tuple[str, str]]:
    return [(one["kind"], one["result"]) for one in report["objects"]]


@pytest.mark.smoke
def test_the_pods_of_a_deployment_are_reviewed_and_found_in_its_file(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    target = start_worker().target
    config = configure(tmp_path / "c.yaml", target, validate=[pods(deny("has no tag", IMAGE))])
    file = tmp_path / "web.yaml"
    file.write_text(f"{CONFIG_MAP}---\n{WEB}")
    report = preview(file, "--config", config, status=1)
    assert kinds(report) == [
        ("ConfigMap", "allowed"),
        ("Deployment", "allowed"),
        ("ReplicaSet", "allowed"),
        ("Pod", "denied"),
    ]
    (found,) = findings(report)
    line = file.read_text().split("\n")[found["line"] - 1]
    assert line[found["column"] - 1 : found["endColumn"] - 1] == "image"
    pod = report["objects"][-1]
    assert pod["user"] == "system:serviceaccount:kube-system:replicaset-controller"
    assert pod["createdFrom"]["kind"] == "ReplicaSet"
    assert report["summary"]["created"] == 2
    assert kinds(preview(file, "--config", config, "--expand", "false")) == kinds(report)[:2]
    text = call_command("preview", file, "--config", config)
    assert text.returncode == 1
    assert (
        f"{file}:{found['line']}:{found['column']}: error: denied by v/h0.v.test: has no tag\n" in text.stdout
    )
    assert text.stdout.endswith(
        "2 objects in 1 file and 2 that controllers create: 3 allowed, 1 denied, 0 undecided, 0 changed; "
        "1 error, 0 warnings, 0 notes\n"
    )


def test_the_template_is_that_of_the_object_after_its_mutation(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    target = start_worker().target
    label = [{"op": "add", "path": "/spec/template/metadata/labels/team", "value": "a"}]
    config = configure(
        tmp_path / "c.yaml",
        target,
        mutate=[of({"patch": label}, "apps", "deployments"), pods({"patch": SIDECAR})],
        validate=[pods(deny("team", "spec.containers[1].image", when="team"))],
    )
    (tmp_path / "web.yaml").write_text(WEB)
    report = preview(tmp_path / "web.yaml", "--config", config, status=1)
    deployment, _, pod = report["objects"]
    assert deployment["changedBy"] == ["m/h0.m.test"]
    assert "+        team: a" in deployment["changes"]
    assert pod["changedBy"] == ["m/h1.m.test"]
    # The second container of the Pod is the first of the file.
    (found,) = (one for one in findings(report) if one["finding"] == "denied")
    assert WEB.split("\n")[found["line"] - 1].strip() == "image: nginx"


def test_all_denials_are_shown_and_where_the_mutating_phase_stops(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    target = start_worker().target
    config = configure(
        tmp_path / "c.yaml",
        target,
        mutate=[of(deny("not this one"), "", "secrets")],
        validate=[
            deny("a"),
            {"warnings": ["w"]},
            deny("b"),
            deny("c", webhook={"rollout": {"mode": "Warn"}}),
        ],
    )
    (tmp_path / "c.json").write_text(json.dumps(yaml.safe_load(CONFIG_MAP)))
    (tmp_path / "s.json").write_text(
        json.dumps({"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s"}})
    )
    report = preview(tmp_path / "c.json", tmp_path / "s.json", "--config", config, status=1)
    config_map, stopped = report["objects"]
    shown = [(one["level"], one["finding"], one["message"]) for one in config_map["findings"]]
    assert ("error", "denied", "a") in shown
    assert ("error", "denied", "b") in shown
    assert ("warning", "warned", "w") in shown
    assert not config_map["stoppedInMutatingPhase"]
    assert stopped["stoppedInMutatingPhase"]
    assert [one["message"] for one in stopped["findings"]] == ["not this one"]
    text = call_command("preview", tmp_path / "s.json", "--config", config).stdout
    assert "the mutating phase stops it: 4 validating webhooks not reached" in text


def test_a_webhook_without_an_answer_is_a_failure_and_status_3(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    target = start_worker().target
    failing = {"status": "INTERNAL"}
    (tmp_path / "c.yaml").write_text(CONFIG_MAP)
    closed = configure(tmp_path / "closed.yaml", target, validate=[failing])
    report = preview(tmp_path / "c.yaml", "--config", closed, status=3)
    (found,) = findings(report)
    assert (found["rule"], found["level"], found["webhook"]) == ("webhook-failure", "error", "v/h0.v.test")
    opened = configure(
        tmp_path / "open.yaml", target, validate=[{**failing, "webhook": {"failurePolicy": "Ignore"}}]
    )
    (found,) = findings(preview(tmp_path / "c.yaml", "--config", opened))
    assert (found["finding"], found["level"]) == ("failed", "warning")
    both = configure(tmp_path / "both.yaml", target, validate=[failing, deny()])
    preview(tmp_path / "c.yaml", "--config", both, status=1)


SELECTOR = {"namespaceSelector": {"matchLabels": {"team": "a"}}}


def test_labels_of_namespaces_come_from_manifests_files_and_the_configuration(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(
        tmp_path / "c.yaml", start_worker().target, validate=[of(deny(), "", "configmaps", **SELECTOR)]
    )
    namespace = "apiVersion: v1\nkind: Namespace\nmetadata: {name: shop, labels: {team: a}}\n"
    object_ = CONFIG_MAP.replace("name: c", "name: c, namespace: shop")
    (tmp_path / "one.yaml").write_text(object_)
    report = preview(tmp_path / "one.yaml", "--config", config, status=3)
    assert findings(report)[0]["message"].endswith(
        "the labels of the namespace are not known (see --namespaces)"
    )
    # It may come after its objects.
    preview("-", "--config", config, status=1, stdin=f"{object_}---\n{namespace}")
    (tmp_path / "n.yaml").write_text(namespace)
    preview(tmp_path / "one.yaml", "--config", config, "--namespaces", tmp_path / "n.yaml", status=1)
    preview(tmp_path / "one.yaml", "--config", config, tmp_path / "n.yaml", status=1)
    # The namespace of objects without one is new.
    preview("-", "--config", config, "--namespace", "new", stdin=CONFIG_MAP)
    preview("-", "--config", config, stdin=CONFIG_MAP)


def test_users_and_custom_resources_are_those_of_the_options_and_of_the_manifests(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    hooks = [of({"report": True}, "a.example", "geese"), of(deny("guess"), "a.example", "gooses")]
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=hooks)
    goose = "apiVersion: a.example/v1\nkind: Goose\nmetadata: {name: g}\n"
    definition = (
        "apiVersion: apiextensions.k8s.io/v1\nkind: CustomResourceDefinition\n"
        "metadata: {name: geese.a.example}\n"
        "spec: {group: a.example, scope: Cluster, names: {kind: Goose, plural: geese}}\n"
    )
    assert findings(preview("-", "--config", config, stdin=goose, status=1))[0]["message"] == "guess"
    arguments = ("-", "--config", config, "--user", "ann", "--group", "devs", "--group", "all")
    report = preview(*arguments, stdin=f"{goose}---\n{definition}", status=1)
    request = json.loads(findings(report)[0]["message"])["request"]
    assert request["userInfo"] == {"username": "ann", "groups": ["devs", "all"]}
    assert request["resource"]["resource"] == "geese"
    assert "namespace" not in request
    assert request["dryRun"] is True


UNCALLED = {"sideEffects": "Unknown", "clientConfig": {"url": "https://127.0.0.1:1/"}}


def test_webhooks_with_side_effects_are_not_called(tmp_path: Path, start_worker: StartWorker) -> None:
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[deny(webhook=UNCALLED)])
    config.write_text(config.read_text().replace("registration.k8s.io/v1", "registration.k8s.io/v1beta1"))
    done = call_command("preview", "-", "--config", config, stdin=CONFIG_MAP.encode())
    assert done.returncode == 0
    assert "not called, because their sideEffects allow no dry run: validate v/h0.v.test" in done.stderr


def test_two_runs_print_the_same_bytes(tmp_path: Path, start_worker: StartWorker) -> None:
    config = configure(
        tmp_path / "c.yaml",
        start_worker().target,
        mutate=[{"label": "x"}],
        validate=[deny("a", IMAGE), {"warnings": ["w"]}],
    )
    for number in range(40):
        (tmp_path / f"{number}.yaml").write_text(WEB.replace("web", f"web-{number}"))
    for form in ((), ("--json",)):
        found = {call_command("preview", tmp_path, "--config", config, *form).stdout for _ in range(2)}
        assert len(found) == 1
        names = [
            line for line in found.pop().split("\n") if 'kind": "Deployment' in line or "  Deployment" in line
        ]
        assert len(names) >= 40


def test_no_value_of_a_secret_is_printed(tmp_path: Path, start_worker: StartWorker) -> None:
    patch = [{"op": "add", "path": "/metadata/labels", "value": {"copy": CANARY}}]
    config = configure(
        tmp_path / "c.yaml",
        start_worker().target,
        mutate=[{"patch": patch}],
        validate=[deny(f"value {CANARY} or {ENCODED}")],
    )
    (tmp_path / "s.json").write_text(json.dumps(secret(data={"key": ENCODED})))
    for form in ((), ("--json",)):
        done = call_command("preview", tmp_path / "s.json", "--config", config, *form)
        assert done.returncode == 1
        assert "redacted" in done.stdout
        assert CANARY not in done.stdout + done.stderr
        assert ENCODED not in done.stdout + done.stderr


def test_what_is_no_object_is_an_error_with_its_line_and_others_are_reviewed(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[deny()])
    text = f"- 1\n---\n{CONFIG_MAP}---\na: b\n---\nkind: [\n---\n\n---\n# nothing\n---\n{CONFIG_MAP}  x: 1\n"
    report = preview("-", "--config", config, stdin=text, status=2)
    assert [(one["line"], one["message"]) for one in report["unreadable"]] == [
        (1, "found a list, expected an object with apiVersion and kind"),
        (7, "apiVersion: found null, expected the apiVersion of an object"),
        (10, "did not find expected node content, while parsing a flow node"),
        (18, "did not find expected key, while parsing a block mapping"),
    ]
    assert [one["result"] for one in report["objects"]] == ["denied"]


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x]\n" + "".join(f"b{n}: &b{n} [{', '.join([f'*b{n - 1}'] * 9)}]\n" for n in range(1, 20)),
        "{" * 100_000,
        "a: " + "[" * 150 + "]" * 150,
        CONFIG_MAP.replace("c}", '"\\ud800"}'),
        CONFIG_MAP + "data: {a: \x07}\n",
        CONFIG_MAP.replace("{name: c}", "[]"),
        CONFIG_MAP.replace("{name: c}", "{namespace: [1], name: c}"),
        CONFIG_MAP.replace("{name: c}", "{name: 1}"),
        CONFIG_MAP.replace("c}", "c, ownerReferences: 1, annotations: []}"),
        WEB.replace("containers:", "containers: []\n      x:"),
        WEB[: WEB.index("  template:")] + "  template: 1\n",
        '{"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "\\ud800"}}',
        "apiVersion: v1\nkind: List\nitems: [1, {apiVersion: v1, kind: List, items: []}]\n",
        "? {a: b}\n: c\n",
    ],
)
def test_hostile_manifests_have_no_traceback(text: str, tmp_path: Path, start_worker: StartWorker) -> None:
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[{}])
    done = call_command("preview", "-", "--config", config, stdin=text.encode(errors="surrogatepass"))
    assert done.returncode in (0, 1, 2, 3)
    assert "Traceback" not in done.stderr + done.stdout
    assert "\x07" not in done.stdout


def test_a_large_text_and_control_characters_of_a_worker_are_shown_in_one_line(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(
        tmp_path / "c.yaml", start_worker().target, validate=[deny("a\x1b[31m\u202eb\r" + "x" * 1_000_000)]
    )
    text = CONFIG_MAP + f"data: {{a: {'y' * 2_000_000}}}\n"
    done = call_command("preview", "-", "--config", config, stdin=text.encode())
    assert done.returncode == 1
    assert "\x1b" not in done.stdout
    assert "\u202e" not in done.stdout
    assert len(done.stdout) < 100_000


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (("none.yaml",), "found no object of Kubernetes in the input"),
        (("-", "-"), "found - several times, expected it once"),
        (("-",), "found no object of Kubernetes in the input"),
        *(
            (
                ("-", option, "-"),
                f"{option}: found -, expected a file: standard output has the text, or --json",
            )
            for option in ("--sarif", "--junit", "--code-quality", "--markdown")
        ),
    ],
)
def test_wrong_usage_is_one_line_and_status_2(
    arguments: tuple[str, ...], text: str, tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[{}])
    done = call_command("preview", *arguments, "--config", config)
    assert done.returncode == 2
    assert text in done.stderr


def test_a_list_of_kubectl_is_read_with_the_places_of_its_items(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[deny("no", "data.b")])
    items = [{**yaml.safe_load(CONFIG_MAP), "data": {"a": "😀", "b": "c"}}] * 2
    for document in (
        {"apiVersion": "v1", "kind": "List", "items": items},
        {
            "apiVersion": "v1",
            "kind": "ConfigMapList",
            "items": [{k: v for k, v in one.items() if k != "kind"} for one in items],
        },
    ):
        text = json.dumps(document, indent="\t")
        (tmp_path / "list.json").write_text(text)
        report = preview(tmp_path / "list.json", "--config", config, status=1)
        for one in findings(report):
            assert text.split("\n")[one["line"] - 1][one["column"] - 1 : one["endColumn"] - 1] == '"b"'
        assert len({one["line"] for one in findings(report)}) == 2


def test_mutators_that_change_their_own_results_fail_the_preview(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    image = [{"op": "replace", "path": "/spec/containers/0/image", "value": "b"}]
    mutators = [
        pods({"count": "seen"}),
        pods({"patch": image}),
        pods({"patch": [{**image[0], "value": "c"}]}),
    ]
    config = configure(tmp_path / "c.yaml", start_worker().target, mutate=mutators)
    report = preview("-", "--config", config, stdin=WEB, status=1)
    assert {one["result"] for one in report["objects"]} == {"allowed"}
    assert report["summary"]["notStable"] == 1
    by_rule = {one["rule"]: one for one in findings(report)}
    assert by_rule["mutation-not-stable"]["webhook"] == "m/h0.m.test"
    assert by_rule["mutation-not-stable"]["level"] == "error"
    assert by_rule["mutation-not-stable"]["field"] == "metadata.annotations.seen"
    conflict = by_rule["mutation-conflict"]
    assert (conflict["level"], conflict["webhook"]) == ("warning", "m/h2.m.test")
    assert WEB.split("\n")[conflict["line"] - 1].strip() == "image: nginx"
    text = call_command("preview", "-", "--config", config, stdin=WEB.encode()).stdout
    assert ", 1 changed, 1 not stable; 1 error, 1 warning, 0 notes\n" in text


def test_a_namespace_of_an_object_that_has_none_is_dropped_as_by_the_api_server(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(tmp_path / "c.yaml", start_worker().target, validate=[{"report": True}])
    role = "apiVersion: rbac.authorization.k8s.io/v1\nkind: ClusterRole\nmetadata: {name: r, namespace: n}\n"
    report = preview("-", "--config", config, stdin=role, status=1)
    request = json.loads(findings(report)[0]["message"])["request"]
    assert request["object"]["metadata"] == {"name": "r"}
    assert "namespace" not in request


def test_hidden_files_and_unreadable_ones_do_not_end_a_preview(
    tmp_path: Path, start_worker: StartWorker
) -> None:
    config = configure(tmp_path / "c.txt", start_worker().target, validate=[{}])
    (tmp_path / ".github").mkdir()
    (tmp_path / ".github/ci.yaml").write_text("on: push\n")
    (tmp_path / "c.yaml").write_text(CONFIG_MAP)
    assert kinds(preview(tmp_path, "--config", config)) == [("ConfigMap", "allowed")]
    report = preview(tmp_path / "none.yaml", "/dev/null", tmp_path, "--config", config, status=2)
    assert [one["message"] for one in report["unreadable"]] == [
        "cannot be read: No such file or directory",
        "is not a file; give - for standard input",
    ]
    assert kinds(report) == [("ConfigMap", "allowed")]
