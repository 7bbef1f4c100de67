from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from gateway.base.errors import ConfigError
from gateway.config.merge.load import load
from gateway.config.merge.model import Config
from gateway.config.yaml.fields import MAX_PROBLEMS
from tests.config.documents import load_documents, load_text

POOL = """\
apiVersion: admission-gateway.io/v1alpha1
kind: WorkerPool
metadata: {name: %s}
spec: {target: "dns:///%s:50051"}
"""
NAMESPACE = "apiVersion: v1\nkind: Namespace\nmetadata: {name: %s}\n"
GATEWAY = "apiVersion: admission-gateway.io/v1alpha1\nkind: GatewayConfiguration\nprocesses: %d\n"
CONFIGURATION = """\
apiVersion: admissionregistration.k8s.io/v1
kind: %sWebhookConfiguration
metadata: {name: %s}
webhooks:
"""
WEBHOOK = """\
- name: %s.example.com
  clientConfig: {worker: {pool: %s, policy: p}}
  rules: [{operations: ["*"], apiGroups: ["*"], apiVersions: ["*"], resources: ["*"]}]
  sideEffects: None
  admissionReviewVersions: [v1]
"""


def configuration(phase: str, name: str, *webhooks: str, pool: str = "pods") -> str:
    return CONFIGURATION % (phase, name) + "".join(WEBHOOK % (webhook, pool) for webhook in webhooks)


def joined(*documents: str) -> str:
    return "---\n".join(documents)


def problems(*paths: Path) -> list[str]:
    with pytest.raises(ConfigError) as caught:
        load(paths)
    return [str(problem) for problem in caught.value.problems]


def write(folder: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text(text)


def test_nothing_is_a_valid_configuration(tmp_path: Path) -> None:
    assert load([]) == load([tmp_path]) == Config()


def test_webhooks_apply_by_configuration_name_in_byte_order_then_as_written(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "1.yaml": joined(POOL % ("pods", "a"), configuration("Mutating", "b", "z.z", "a.a")),
            "2.yaml": joined(
                configuration("Mutating", "a.b", "m.m"), configuration("Validating", "a0", "v.v")
            ),
            "3.yaml": joined(
                configuration("Mutating", "a-b", "k.k"), configuration("Validating", "a", "w.w", "u.u")
            ),
        },
    )
    config = load([tmp_path])
    assert [(hook.configuration, hook.name[0]) for hook in config.mutating] == [
        *(("a-b", "k"), ("a.b", "m"), ("b", "z"), ("b", "a")),
    ]
    assert [(hook.configuration, hook.name[0]) for hook in config.validating] == [
        *(("a", "w"), ("a", "u"), ("a0", "v")),
    ]
    assert config.configurations == {
        *(("mutate", "a-b"), ("mutate", "a.b"), ("mutate", "b"), ("validate", "a"), ("validate", "a0")),
    }


def test_problems_name_file_document_object_and_field(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    write(
        tmp_path,
        {
            "conf/a.yaml": joined(
                POOL % ("pods", "a"), "# nothing\n", configuration("Mutating", "x", "a.b", pool="pod")
            ),
            "conf/b.yml": joined(POOL % ("Bad", "a"), "kind: WorkerPool\nmetadata: {name: a}\n"),
            "conf/c.json": "[1]",
            "txt": "a: [",
        },
    )
    monkeypatch.chdir(tmp_path)
    assert problems(Path("conf"), Path("txt"), Path("gone")) == [
        (
            'conf/b.yml:3:12: WorkerPool "Bad": metadata.name: found "Bad", expected a name of '
            'at most 253 lower-case letters, digits, "-" and ".", '
            "with a letter or digit at both ends of each part"
        ),
        'conf/b.yml:6:1: WorkerPool "a": apiVersion: is required',
        "conf/c.json:1:1: found a list, expected a mapping with apiVersion and kind",
        "txt:2:1: did not find expected node content, while parsing a flow node",
        "gone: cannot be read: no such file or folder",
    ]


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a", 'found the string "a", expected a mapping with apiVersion and kind'),
        ("5", "found the number 5, expected a mapping with apiVersion and kind"),
        ("{}", "kind: is required"),
        ("apiVersion: v1", "kind: is required"),
        ("kind: Namespace", "Namespace: apiVersion: is required"),
        ("{apiVersion: v1, kind: [a]}", "kind: found a list, expected a string"),
        (
            "{apiVersion: 1, kind: Namespace}",
            "Namespace: apiVersion: found the number 1, expected a string; put",
        ),
        (
            "{apiVersion: v1, kind: Pod}",
            'Pod: kind: found the unknown kind "Pod", expected MutatingWebhookConf',
        ),
        (
            "{apiVersion: v1, kind: workerpool}",
            'found the unknown kind "workerpool"; did you mean "WorkerPool"?',
        ),
        ("{apiVersion: v2, kind: Namespace}", 'apiVersion: found "v2", expected v1 for a Namespace'),
        (
            "{apiVersion: v1, kind: MutatingWebhookConfiguration}",
            'found "v1", expected admissionregistration.k8s.io/v1, admissionregistration.k8s.io/v1beta1 or ',
        ),
        ('{apiVersion: v1, kind: "a\\e[1mb"}', 'a.yaml:1:18: "a\\u001b[1mb": kind: found the unknown kind'),
        ("a: 1\na: 2", 'a.yaml:2:1: duplicate key "a", first in line 1'),
    ],
)
def test_unknown_objects_are_refused(text: str, problem: str, tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": text})
    assert problem in "\n".join(problems(tmp_path / "a.yaml"))


def test_a_list_is_read_as_its_items(tmp_path: Path) -> None:
    items = "\n".join(
        "- " + text.replace("\n", "\n  ").rstrip() for text in (POOL % ("pods", "a"), NAMESPACE % "a")
    )
    config = load_text(f"apiVersion: v1\nkind: List\nmetadata: {{resourceVersion: ''}}\nitems:\n{items}\n")
    assert (set(config.pools), set(config.namespaces)) == ({"pods"}, {"a"})
    nested = "\n  ".join(f"apiVersion: v1\nkind: List\nitems:\n{items}".splitlines())
    assert set(load_text(f"apiVersion: v1\nkind: List\nitems:\n- {nested}").namespaces) == {"a"}
    assert set(
        load_text("apiVersion: v1\nkind: NamespaceList\nitems: [{metadata: {name: b}}]").namespaces
    ) == {"b"}
    assert (
        load_text("apiVersion: v1\nkind: List")
        == load_text("apiVersion: v1\nkind: List\nitems: null")
        == Config()
    )


@pytest.mark.parametrize("kind", ["Mutating", "Validating"])
@pytest.mark.parametrize("version", ["v1", "v1beta1"])
def test_items_of_a_typed_list_need_no_kind(kind: str, version: str) -> None:
    config = load_text(
        f"apiVersion: admissionregistration.k8s.io/{version}\nkind: {kind}WebhookConfigurationList\n"
        "metadata: {}\nitems: [{metadata: {name: a}}, {metadata: {name: b}}]"
    )
    assert {name for _, name in config.configurations} == {"a", "b"}


def test_problems_in_items_name_the_item(tmp_path: Path) -> None:
    text = (
        "apiVersion: v1\nkind: List\nextra: 1\nitems:\n"
        "- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n"
        "- {apiVersion: v1, kind: Namespace, metadata: {name: A, name: b}}\n"
        "- 5\n- {kind: Namespace, apiVersion: v1}\n"
        "- {apiVersion: v1, kind: Namespace, metadata: {name: a}}\n"
    )
    write(tmp_path, {"a.yaml": text})
    file = tmp_path / "a.yaml"
    found = [problem.removeprefix(f"{file}:") for problem in problems(file)]
    assert found == [
        '6:57: List: items[1].metadata: duplicate key "name", first in line 6',
        "7:3: List: items[2]: found the number 5, expected a mapping",
        "3:1: List: extra: unknown field; known fields: apiVersion, kind, metadata, items",
        (
            '6:48: Namespace "A": items[1].metadata.name: found "A", expected a name of at most 63 '
            'lower-case letters, digits and "-", with a letter or digit at both ends'
        ),
        "8:3: Namespace: items[3].metadata: is required",
        (
            f'9:48: Namespace "a": items[4].metadata.name: found "a" a second time; the first: {file}:5:3: '
            'Namespace "a"'
        ),
    ]


@pytest.mark.parametrize(
    ("text", "label"),
    [
        (POOL % ("a", "b"), 'WorkerPool "a"'),
        (NAMESPACE % "a", 'Namespace "a"'),
        (configuration("Mutating", "a") + "  []", 'MutatingWebhookConfiguration "a"'),
        (configuration("Validating", "a") + "  []", 'ValidatingWebhookConfiguration "a"'),
    ],
)
def test_a_name_is_taken_once_in_each_kind(text: str, label: str, tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": text, "b.yaml": joined(NAMESPACE % "z", text)})
    assert problems(tmp_path) == [
        (
            f'{tmp_path}/b.yaml:7:12: {label}: metadata.name: found "a" a second time; '
            f"the first: {tmp_path}/a.yaml:1:1: {label}"
        )
    ]


def test_the_same_name_in_two_kinds_or_versions(tmp_path: Path) -> None:
    mutating = configuration("Mutating", "a") + "  []\n"
    validating = configuration("Validating", "a") + "  []\n"
    write(tmp_path, {"a.yaml": joined(POOL % ("a", "b"), NAMESPACE % "a", mutating, validating)})
    assert load([tmp_path]).configurations == {("mutate", "a"), ("validate", "a")}
    write(tmp_path, {"b.yaml": mutating.replace("/v1", "/v1beta1")})
    assert len(problems(tmp_path)) == 1


def test_there_is_at_most_one_gateway_configuration(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": GATEWAY % 2, "b.yaml": GATEWAY % 2})
    assert load([tmp_path / "a.yaml"]).gateway.processes == 2
    [problem] = problems(tmp_path)
    assert problem == (
        f"{tmp_path}/b.yaml:1:1: GatewayConfiguration: found a second one, expected at most one; "
        f"the first: {tmp_path}/a.yaml:1:1: GatewayConfiguration"
    )


def test_a_pool_with_problems_of_its_own_is_not_called_missing(tmp_path: Path) -> None:
    text = joined(configuration("Mutating", "a", "b.c"), POOL % ("pods", "not a host"))
    write(tmp_path, {"a.yaml": text})
    [problem] = problems(tmp_path)
    assert "spec.target" in problem


def test_a_folder_means_the_files_directly_in_it_by_name(tmp_path: Path) -> None:
    write(
        tmp_path,
        {
            "b.yaml": "kind: b",
            "a.json": '{"kind": "a"}',
            "c.yml": "kind: c",
            "d.txt": "kind: d",
            ".e.yaml": "kind: e",
            "f.yaml.bak": "kind: f",
            "sub/g.yaml": "kind: g",
            "h.yaml/i.yaml": "kind: i",
        },
    )
    assert [problem.split(": ")[0] for problem in problems(tmp_path)] == [
        *[f"{tmp_path}/a.json:1:1"] * 1,
        f"{tmp_path}/b.yaml:1:1",
        f"{tmp_path}/c.yml:1:1",
    ]


def test_a_mounted_config_map_is_read_through_its_links(tmp_path: Path) -> None:
    write(tmp_path, {"..2025_01_01/a.yaml": NAMESPACE % "a", "..2025_01_01/b.yaml": NAMESPACE % "b"})
    (tmp_path / "..data").symlink_to("..2025_01_01")
    for name in ("a.yaml", "b.yaml"):
        (tmp_path / name).symlink_to(f"..data/{name}")
    assert set(load([tmp_path]).namespaces) == {"a", "b"}


def test_a_file_that_is_reached_twice_is_read_once(tmp_path: Path) -> None:
    write(tmp_path, {"a.yaml": NAMESPACE % "a"})
    (tmp_path / "link.yaml").symlink_to("a.yaml")
    assert set(load([tmp_path, tmp_path / "a.yaml", tmp_path / "." / "a.yaml"]).namespaces) == {"a"}


def test_a_byte_order_mark_is_skipped_and_other_encodings_are_refused(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_bytes(b"\xef\xbb\xbf" + (NAMESPACE % "a").encode())
    assert set(load([tmp_path]).namespaces) == {"a"}
    (tmp_path / "b.yaml").write_bytes(b"kind: \xff")
    assert problems(tmp_path) == [f"{tmp_path}/b.yaml:1:7: is not UTF-8 text: byte 7 is 0xff"]


def test_files_that_cannot_be_read_are_problems(tmp_path: Path) -> None:
    (tmp_path / "broken.yaml").symlink_to("nowhere")
    (tmp_path / "loop.yaml").symlink_to("loop.yaml")
    (tmp_path / "large.yaml").touch()
    os.truncate(tmp_path / "large.yaml", 17 * 1024 * 1024)
    os.mkfifo(tmp_path / "pipe.yaml")
    write(tmp_path, {"good.yaml": "kind: X"})
    found = [problem.removeprefix(f"{tmp_path}/") for problem in problems(tmp_path)]
    assert found[0] == "broken.yaml: cannot be read: No such file or directory"
    assert found[-1] == "pipe.yaml: is not a file"
    assert "large.yaml: has more than 16 MiB" in found
    assert any(problem.startswith("good.yaml:1:1: X: ") for problem in found)
    assert any(
        "cannot be read" in problem and "loop" in problem
        for problem in [*found, *problems(tmp_path / "loop.yaml")]
    )


@pytest.mark.parametrize("name", ["a\0b", "x" * 5000])
def test_paths_that_no_file_can_have_are_problems(name: str) -> None:
    [problem] = problems(Path(name))
    assert "cannot be read" in problem


def test_the_first_of_very_many_problems_are_reported(tmp_path: Path) -> None:
    (tmp_path / "a.yaml").write_text("--- {}\n" * 10_000)
    (tmp_path / "b.yaml").write_text("never: read\n")
    with pytest.raises(ConfigError) as caught:
        load([tmp_path])
    problems = caught.value.problems
    assert len(problems) == MAX_PROBLEMS + 1
    assert problems[0].where == f"{tmp_path / 'a.yaml'}:1:5"
    place = f"{tmp_path / 'a.yaml'}:500:5"
    assert str(problems[-1]) == f"{place}: found 1000 problems; the rest was not read"


def test_the_first_of_very_many_unknown_kinds_are_reported(tmp_path: Path) -> None:
    unknown = "--- {apiVersion: v1, kind: Thing, metadata: {name: x}}\n"
    (tmp_path / "a.yaml").write_text(unknown * 10_000)
    (tmp_path / "b.yaml").write_text(unknown)
    with pytest.raises(ConfigError) as caught:
        load([tmp_path])
    problems = caught.value.problems
    assert len(problems) == MAX_PROBLEMS + 1
    place = f"{tmp_path / 'a.yaml'}:1000:22"
    assert str(problems[-1]) == f'{place}: Thing "x": found 1000 problems; the rest was not read'


@pytest.mark.parametrize("is_first", [False, True], ids=["behind", "before"])
def test_a_policy_may_have_more_parameters_in_files_than_there_may_be_problems(*, is_first: bool) -> None:
    head = {"apiVersion": "admissionregistration.k8s.io/v1", "metadata": {"name": "p"}}
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    rules = [{"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}]
    spec = {
        "paramKind": kind,
        "matchConstraints": {"resourceRules": rules},
        "validations": [{"expression": "true"}],
    }
    ref = {"name": "m0", "parameterNotFoundAction": "Deny"}
    bound = {"policyName": "p", "validationActions": ["Deny"], "paramRef": ref}
    policies = [
        {**head, "kind": "ValidatingAdmissionPolicy", "spec": spec},
        {**head, "kind": "ValidatingAdmissionPolicyBinding", "spec": bound},
    ]
    maps = [{**kind, "metadata": {"name": f"m{number}"}} for number in range(MAX_PROBLEMS + 500)]
    listed: dict[str, Any] = {"apiVersion": "v1", "kind": "List"}
    documents = [{**listed, "items": each} for each in ((maps, policies) if is_first else (policies, maps))]
    assert len(load_documents(*documents).objects) == len(maps)


def test_the_first_of_very_many_unknown_fields_are_reported(tmp_path: Path) -> None:
    file = tmp_path / "a.yaml"
    file.write_text("kind: WorkerPool\napiVersion: admission-gateway.io/v1alpha1\nmetadata: {name: p}\n")
    with file.open("a") as more:
        more.writelines(f"f{number}: 1\n" for number in range(20_000))
    with pytest.raises(ConfigError) as caught:
        load([file])
    assert len(caught.value.problems) == MAX_PROBLEMS + 1
