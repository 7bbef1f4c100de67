"""``admission-gateway test``: suites of cases against real workers."""

from __future__ import annotations

import json
import re
import xml.etree.ElementTree as ET
from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.policies import definitions
from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.tools.cli.policies import configuration
from gateway.tools.offline.changes import as_yaml, changes
from gateway.tools.policy_tests.discovery import read_tests
from tests.kit import REVIEWS, ROOT, call_command, pool_document, webhook_document

if TYPE_CHECKING:
    from pathlib import Path

    from tests.worker.server import StartWorker

SAMPLES = ROOT / "gateway/dev.yaml"
HEAD = f"""\
apiVersion: admission-gateway.io/v1alpha1
kind: PolicyTest
metadata: {{name: pods}}
config: [{SAMPLES}]
"""
CASES = """\
cases:
  # The comment stays.
  - name: no team
    object: &pod
      apiVersion: v1
      kind: Pod
      metadata: {name: a}
      spec: {containers: [{name: c, image: "nginx:1.27"}]}
    expect:
      allowed: false
      code: 403
      message: |-
        require-labels.samples.example: metadata.labels[team]: label "team" is missing: add it
  - name: defaults
    object: *pod
    phase: mutate
    webhooks: [default-resources.samples.example]
    expect:
      allowed: true
      warnings: []
      patch:
        - op: add
          path: /spec/containers/0/resources
          value: {requests: {memory: 128Mi, cpu: 100m}}
      object:
        apiVersion: v1
        kind: Pod
        metadata: {name: a}
        spec:
          containers:
            - name: c
              image: nginx:1.27
              resources: {requests: {cpu: 100m, memory: 128Mi}}
"""


def suite(tmp_path: Path, cases: str = CASES, head: str = HEAD) -> Path:
    folder = tmp_path / "suites"
    folder.mkdir(exist_ok=True)
    file = folder / "pods.yaml"
    file.write_text(head + cases)
    return file


def one_case(**fields: Any) -> str:
    case = {"name": "one", **fields}
    return f"cases:\n- {json.dumps(case)}\n"


@pytest.mark.process
@pytest.mark.smoke
def test_cases_pass_or_fail_with_the_difference(tmp_path: Path) -> None:
    file = suite(tmp_path)
    passed = call_command("test", str(file.parent))
    assert passed.returncode == 0, passed.stderr
    assert passed.stdout.splitlines() == [
        f"{file}: pods",
        "  ok    no team",
        "  ok    defaults",
        "2 cases: 2 passed, 0 failed",
    ]
    file.write_text(file.read_text().replace("128Mi", "64Mi").replace("code: 403", "code: 400"))
    failed = call_command("test", str(file), "--junit", str(tmp_path / "junit.xml"))
    assert failed.returncode == 1
    lines = failed.stdout.splitlines()
    assert "        code: found 403, expected 400" in lines
    assert "        object: the object after all changes differs" in lines
    assert "          -        memory: 64Mi" in lines
    assert "          +        memory: 128Mi" in lines
    assert lines[-1] == "2 cases: 0 passed, 2 failed"
    root = ET.parse(tmp_path / "junit.xml").getroot()
    assert root[0].attrib["failures"] == "2"
    assert [case[0].attrib["message"] for case in root[0]] == [
        "code: found 403, expected 400",
        "object: the object after all changes differs",
    ]


@pytest.mark.process
def test_update_writes_the_decision_and_keeps_the_rest_of_the_file(tmp_path: Path) -> None:
    file = suite(tmp_path)
    before = file.read_text()
    wrong = before.replace("128Mi", "64Mi").replace("allowed: true", "allowed: false")
    file.write_text(wrong + "  - name: new\n    object: *pod\n\n  # at the end\n")
    assert call_command("test", str(file)).returncode == 1
    updated = call_command("test", str(file), "--update")
    assert (updated.returncode, updated.stderr.splitlines()[-1]) == (0, f"updated: {file}")
    text = file.read_text()
    assert "  # The comment stays.\n" in text
    assert "  # at the end\n" in text
    assert yaml.safe_load(text)["cases"][:2] == yaml.safe_load(before)["cases"]
    assert yaml.safe_load(text)["cases"][2]["expect"]["allowed"] is False
    assert call_command("test", str(file)).returncode == 0
    again = call_command("test", str(file), "--update")
    assert "updated" not in again.stderr
    assert file.read_text() == text


@pytest.mark.process
def test_lines_of_denials_are_compared_without_their_order(tmp_path: Path) -> None:
    lines = 'metadata.labels[team]: label "team" is missing: add it'
    head = {"phase": "validate", "object": {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}}
    texts = {"messageLines": [f"  {lines}\n", lines]}
    file = suite(tmp_path, one_case(**head, webhooks=["require-labels.samples.example"], expect=texts))
    assert call_command("test", str(file)).returncode == 0
    file.write_text(
        HEAD
        + "cases:\n- name: one\n  phase: validate\n  webhooks: [require-labels.samples.example]\n"
        + "  object: {apiVersion: v1, kind: Pod, metadata: {name: a}}\n"
        + "  expect:\n    messageLines: [other]\n"
    )
    failed = call_command("test", str(file))
    assert failed.returncode == 1
    assert (
        "        messageLines: differs\n          -other\n          +metadata.labels[team]: label"
        in failed.stdout
    )
    assert call_command("test", str(file), "--update").returncode == 0
    assert yaml.safe_load(file.read_text())["cases"][0]["expect"] == {
        "allowed": False,
        "messageLines": [lines],
    }


@pytest.mark.usefixtures("no_wait_for_workers")
def test_a_failed_webhook_fails_the_case_and_is_never_written(tmp_path: Path) -> None:
    config = tmp_path / "config.yaml"
    ignored = webhook_document("validate", "v", "pool", {"webhook": {"failurePolicy": "Ignore"}})
    config.write_text(pool_document("pool", "127.0.0.1:1") + ignored)
    pod = {"apiVersion": "v1", "kind": "Pod"}
    file = suite(tmp_path, one_case(object=pod, expect={"allowed": False}))
    before = file.read_text()
    done = call_command("test", str(file), "--config", str(config), "--update")
    assert done.returncode == 1
    assert "        h0.v.test failed: " in done.stdout
    assert file.read_text() == before


@pytest.mark.process
def test_an_annotation_that_the_worker_does_not_accept_fails_the_case(tmp_path: Path) -> None:
    (definition,) = (each for each in definitions() if each.name == "allowed-registries")
    worker, policy = configuration([definition])
    client = policy["webhooks"][0]["clientConfig"]["worker"]
    client["parametersFrom"] = {"namespaceAnnotation": "example.com/registries"}
    config = tmp_path / "config.yaml"
    config.write_text(yaml.safe_dump_all([worker, policy]))
    pod = {"metadata": {"name": "a"}, "spec": {"containers": [{"name": "c", "image": "ghcr.io/x:1"}]}}
    cases = [
        {
            "name": name,
            "object": {"apiVersion": "v1", "kind": "Pod", **pod},
            "namespace": {"name": "shop", "annotations": {"example.com/registries": json.dumps(value)}},
            "expect": {"allowed": True},
        }
        for name, value in (("a list", {"registries": ["ghcr.io"]}), ("a text", {"registries": "ghcr.io"}))
    ]
    done = call_command("test", suite(tmp_path, f"cases: {json.dumps(cases)}\n"), "--config", config)
    passed, failed, problem, count = done.stdout.splitlines()[1:]
    assert (passed, failed) == ("  ok    a list", "  FAIL  a text")
    assert problem.endswith(
        "failed: annotation example.com/registries of the namespace: "
        'parameters.registries: found the string "ghcr.io", expected a value of type array'
    )
    assert count == "2 cases: 1 passed, 1 failed"


@pytest.mark.process
def test_a_case_has_user_namespace_and_old_object(tmp_path: Path, start_worker: StartWorker) -> None:
    worker = start_worker()
    config = tmp_path / "config.yaml"
    fields = {
        "namespaceSelector": {"matchLabels": {"tier": "prod"}},
        "matchConditions": [
            {"name": "c", "expression": "request.userInfo.username == 'bob' && oldObject.data.a == '1'"}
        ],
    }
    denial = {"deny": {"message": "no"}, "webhook": fields}
    config.write_text(
        pool_document("pool", worker.target) + webhook_document("validate", "v", "pool", denial)
    )
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a"}}
    (tmp_path / "suites").mkdir()
    (tmp_path / "suites/old.json").write_text(json.dumps({**pod, "data": {"a": "1"}}))
    case = {"object": pod, "oldObject": "old.json", "operation": "UPDATE", "user": "bob"}
    namespace = {"name": "shop", "labels": {"tier": "prod"}}
    cases = [
        {
            "name": "all",
            **case,
            "namespace": namespace,
            "expect": {"allowed": False, "message": "h0.v.test: no"},
        },
        {"name": "no label", **case, "namespace": "shop", "expect": {"allowed": True}},
        {"name": "user", **case, "namespace": namespace, "user": "eve", "expect": {"allowed": True}},
        {
            "name": "recorded",
            "review": str(REVIEWS / "pod-create-validate.json"),
            "expect": {"allowed": True},
        },
    ]
    file = suite(tmp_path, f"cases: {json.dumps(cases)}\n")
    done = call_command("test", str(file), "--config", str(config), "--json")
    assert done.returncode == 0, done.stdout
    found = json.loads(done.stdout)
    assert (found["passed"], found["failed"]) == (4, 0)
    assert [one["name"] for one in found["suites"][0]["cases"]] == ["all", "no label", "user", "recorded"]
    one = call_command("test", str(file), "--config", str(config), "--filter", "pods/no*", "--json")
    assert json.loads(one.stdout)["passed"] == 1


POD = {"apiVersion": "v1", "kind": "Pod"}
WRONG = [
    (one_case(object=POD, review="x.json"), "expected one of object and review"),
    (one_case(), "expected one of object and review"),
    (one_case(object=POD, expect={}), "expect: found nothing"),
    (one_case(object=POD, expect={"alowed": True}), 'did you mean "allowed"?'),
    (one_case(object=POD, expect={"patch": {}}), "expect.patch: found a mapping"),
    (one_case(object="none.yaml", expect={"allowed": True}), "none.yaml: cannot be read"),
    (one_case(object=POD, operation="UPDATE"), "UPDATE needs the old object"),
    (one_case(review=str(REVIEWS / "pod-create-validate.json"), user="x"), "user: is for an object"),
    ("cases: []\n", "cases: found none"),
    (one_case(object=POD) + one_case(object=POD)[7:], "found a second time"),
]


@pytest.mark.parametrize(("cases", "text"), WRONG)
def test_a_wrong_suite_is_refused_with_file_and_field(tmp_path: Path, cases: str, text: str) -> None:
    file = suite(tmp_path, cases)
    with pytest.raises(ConfigError) as raised:
        read_tests([file.parent], [])
    assert text in str(raised.value)
    assert str(file) in str(raised.value)


@pytest.mark.process
def test_wrong_usage_has_the_status_2(tmp_path: Path) -> None:
    (tmp_path / "empty").mkdir()
    file = suite(
        tmp_path, one_case(object=POD, webhooks=["requir-labels.samples.example"], expect={"allowed": True})
    )
    for arguments, text in (
        ([str(tmp_path / "empty")], "found no document of the kind PolicyTest"),
        ([str(tmp_path / "none")], "cannot be read"),
        ([str(file)], 'did you mean "require-labels.samples.example"?'),
    ):
        done = call_command("test", *arguments)
        assert done.returncode == 2
        assert text in done.stderr
        assert "Traceback" not in done.stderr
    other = call_command("test", str(suite(tmp_path)), "--filter", "nothing")
    assert (other.returncode, other.stdout) == (2, "")
    assert "no case matches --filter nothing" in other.stderr


def test_suites_may_lie_beside_the_configuration(tmp_path: Path) -> None:
    (tmp_path / "config.yaml").write_text(SAMPLES.read_text())
    (tmp_path / "tests.yaml").write_text(HEAD + CASES)
    assert len(load([tmp_path]).validating) == len(load([SAMPLES]).validating)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-3, 3) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(max_size=5), inner, max_size=4),
    max_leaves=12,
)


@given(before=VALUES.filter(lambda v: v is not None), after=VALUES.filter(lambda v: v is not None))
def test_changes_are_printable_and_empty_only_for_equal_values(before: object, after: object) -> None:
    lines = list(changes(before, after))
    assert all(line.isprintable() for line in lines)
    assert bool(lines) == (as_yaml(before) != as_yaml(after))
    assert yaml.safe_load(as_yaml(before)) == before


def test_characters_are_written_as_they_are_and_halves_of_pairs_are_escaped() -> None:
    assert as_yaml({"a": "é😀"}) == "a: é😀\n"
    assert as_yaml({"a": "\ud800"}) == 'a: "\\uD800"\n'


@pytest.mark.process
def test_the_suite_of_the_documentation_passes(tmp_path: Path) -> None:
    page = (ROOT / "docs/test-policies.md").read_text()
    text = page.split("```yaml\n")[1].split("```")[0]
    file = tmp_path / "suite.yaml"
    file.write_text(text)
    done = call_command("test", str(file), "--config", str(SAMPLES))
    assert done.returncode == 0, done.stdout
    assert done.stdout.endswith("2 cases: 2 passed, 0 failed\n")


@pytest.mark.parametrize(("number", "count"), [(2, 3), (3, 3), (4, 2), (5, 1)])
def test_the_tests_of_files_in_the_documentation_pass(tmp_path: Path, number: int, count: int) -> None:
    page = (ROOT / "docs/test-policies.md").read_text()
    text = page.split("```yaml\n")[number].split("```")[0]
    parts = re.split(r"^# (\S+/\S+\.yaml)\n", text, flags=re.MULTILINE)
    for name, content in zip(parts[1::2], parts[2::2], strict=True):
        file = tmp_path / name
        file.parent.mkdir(exist_ok=True)
        file.write_text(content.removesuffix("---\n"))
    done = call_command("test", str(tmp_path))
    assert done.returncode == 0, done.stdout
    cases = f"{count} case{'s' if count > 1 else ''}"
    assert done.stdout.endswith(f"{cases}: {count} passed, 0 failed\n")


READING = """\
apiVersion: admission-gateway.io/v1alpha1
kind: GatewayConfiguration
policies:
  resources:
    - {apiVersion: v1, kind: ConfigMap, resource: configmaps}
    - {apiVersion: v1, kind: Namespace, resource: namespaces}
---
apiVersion: v1
kind: Namespace
metadata: {name: shop, labels: {limit: low}}
---
apiVersion: v1
kind: ConfigMap
metadata: {name: low, namespace: shop}
data: {most: "1"}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicy
metadata: {name: few}
spec:
  paramKind: {apiVersion: test/v1, kind: Least}
  matchConstraints:
    resourceRules: [{apiGroups: [""], apiVersions: [v1], operations: ["*"], resources: [secrets]}]
  variables:
    - {name: limit, expression: "resource.get('v1', 'namespaces', '', 'shop').metadata.labels.limit"}
    - {name: most, expression: "resource.get('v1', 'configmaps', 'shop', variables.limit).data.most"}
  validations:
    - {expression: object.data.size() <= int(variables.most), messageExpression: "'most ' + variables.most"}
    - {expression: object.data.size() >= params.least}
---
apiVersion: admissionregistration.k8s.io/v1
kind: ValidatingAdmissionPolicyBinding
metadata: {name: few}
spec:
  policyName: few
  paramRef: {name: least, parameterNotFoundAction: Deny}
  validationActions: [Deny]
---
apiVersion: test/v1
kind: Least
metadata: {name: least}
least: 0
"""
UNREAD = ", which no policy reads, expected ConfigMap of v1, Least of test/v1 or Namespace of v1"
WIDGETS = "{apiVersion: test/v1, kind: Widget, resource: widgets}"
SECRET = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "s", "namespace": "shop"}}
THREE = {**SECRET, "data": {"a": "", "b": "", "c": ""}}


def limit(most: int) -> dict[str, Any]:
    metadata = {"name": "low", "namespace": "shop"}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"most": str(most)}}


def reading(tmp_path: Path, objects: list[Any], *cases: dict[str, Any]) -> Path:
    """A suite with *objects* and *cases* about a Secret with three values."""
    (tmp_path / "config.yaml").write_text(READING)
    document = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "PolicyTest",
        "config": ["config.yaml"],
        "objects": objects,
        "cases": [{"name": str(index), "object": THREE, **case} for index, case in enumerate(cases)],
    }
    file = tmp_path / "tests.yaml"
    file.write_text(yaml.safe_dump(document))
    return file


def test_policies_read_objects_of_the_files_the_suite_and_the_case(tmp_path: Path) -> None:
    (tmp_path / "objects").mkdir()
    (tmp_path / "objects/high.yaml").write_text(yaml.safe_dump(limit(9)))
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop", "labels": {}}}
    least = {"apiVersion": "test/v1", "kind": "Least", "metadata": {"name": "least"}, "least": 4}
    allowed = {"allowed": True}
    denied = {"allowed": False, "messageContains": "most 2"}
    file = reading(
        tmp_path,
        [limit(2)],
        {"expect": denied},
        {"objects": [limit(3)], "expect": allowed},
        {"objects": ["objects"], "expect": allowed},
        {"objects": [namespace], "expect": {"allowed": False, "messageContains": "no such key: limit"}},
        {"objects": [limit(3), least], "expect": {"allowed": False, "messageContains": "params.least"}},
        {"expect": denied},
    )
    done = call_command("test", str(file))
    assert done.stdout.endswith("6 cases: 6 passed, 0 failed\n"), done.stdout + done.stderr
    named = {path.name for path in read_tests([file], []).named_files()}
    assert named == {"config.yaml", "objects"}
    file = reading(tmp_path, [], {"expect": {"allowed": False, "messageContains": "most 1"}})
    assert call_command("test", str(file)).returncode == 0
    file = reading(tmp_path, ["objects/high.yaml"], {"objects": ["other.yaml"], "expect": allowed})
    with pytest.raises(ConfigError, match=r"cases\[0\]\.objects\[0\]: .*other\.yaml: cannot be read"):
        read_tests([file], [])


@pytest.mark.parametrize(
    ("objects", "problem"),
    [
        ({}, "objects: found a mapping, expected a list of objects and paths"),
        ([1], "objects[0]: found the number 1, expected an object, or the path of a file or folder"),
        ([{"kind": "ConfigMap"}], "objects[0].apiVersion: is required"),
        ([{**limit(1), "metadata": {}}], "objects[0].metadata.name: is required"),
        (
            [SECRET],
            f"objects: found a Secret of v1{UNREAD}; no policy may read Secrets",
        ),
        (
            [{**SECRET, "apiVersion": "test/v1", "kind": "Widget"}],
            f"objects: found a Widget of test/v1{UNREAD}; to read it, add {WIDGETS} to policies.resources of",
        ),
    ],
)
def test_objects_that_no_policy_reads_are_refused(tmp_path: Path, objects: Any, problem: str) -> None:
    expect = {"expect": {"allowed": True}}
    done = call_command("test", str(reading(tmp_path, objects, expect)))
    assert done.returncode == 2
    assert problem in done.stderr
    done = call_command("test", str(reading(tmp_path, [], {"objects": objects, **expect})))
    assert f"cases[0].{problem}" in done.stderr


@pytest.fixture
def counting(start_worker: StartWorker, tmp_path: Path) -> Path:
    """A configuration whose first webhook changes its own result, and whose second does not."""
    file = tmp_path / "counting.yaml"
    webhooks = webhook_document("mutate", "m", "pool", {"count": "runs"}, {"label": "team"})
    file.write_text(pool_document("pool", start_worker().target) + webhooks)
    return file


AGAIN = 'h0.m.test changes again on its own result: metadata.annotations.runs: "1" becomes "2"'
LABELLED = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "a", "labels": {}}}


def test_a_webhook_that_changes_its_own_result_fails_the_case(tmp_path: Path, counting: Path) -> None:
    case = {"object": LABELLED, "expect": {"allowed": True}}
    file = suite(tmp_path, one_case(**case))
    failed = call_command("test", str(file), "--config", str(counting))
    assert failed.returncode == 1
    assert f"        {AGAIN}" in failed.stdout.splitlines()
    alone = suite(tmp_path, one_case(**case, webhooks=["h1.m.test"]))
    assert call_command("test", str(alone), "--config", str(counting)).returncode == 0


@pytest.mark.parametrize("is_at_the_head", [True, False])
def test_a_webhook_may_be_known_to_change_its_own_result(
    tmp_path: Path, counting: Path, is_at_the_head: bool
) -> None:
    known = {"changesAgain": ["h0.m.test"]}
    case = {"object": LABELLED, "expect": {"allowed": True}}
    head = HEAD + (json.dumps(known)[1:-1] + "\n" if is_at_the_head else "")
    file = suite(tmp_path, one_case(**case, **({} if is_at_the_head else known)), head)
    assert call_command("test", str(file), "--config", str(counting)).returncode == 0
    file.write_text(file.read_text().replace("h0.m.test", "h0.n.test"))
    unknown = call_command("test", str(file), "--config", str(counting))
    assert unknown.returncode == 2
    assert 'changesAgain: there is no webhook "h0.n.test"' in unknown.stderr


def test_update_writes_the_decision_and_a_webhook_that_changes_again_still_fails(
    tmp_path: Path, counting: Path
) -> None:
    file = suite(tmp_path, one_case(object=LABELLED, expect={"allowed": True}).replace("{", "\n  {", 1))
    before = file.read_text()
    done = call_command("test", str(file), "--config", str(counting), "--update")
    assert (done.returncode, file.read_text()) == (1, before)
