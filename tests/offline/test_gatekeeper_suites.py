"""``admission-gateway test`` runs suites of Gatekeeper as they are."""

from __future__ import annotations

import asyncio
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gateway.base.errors import ConfigError
from gateway.tools.policy_tests.discovery import read_tests
from gateway.tools.policy_tests.run import run_tests
from tests.gatekeeper.documents import constraint, scoped, template
from tests.kit import call_command

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.tools.policy_tests.results import CaseResult

Json = dict[str, Any]

SCHEMA = {"type": "object", "properties": {"labels": {"type": "array", "items": {"type": "string"}}}}
LABELS = template(
    "NeedsLabels",
    {
        "expression": "variables.anyObject.kind == 'Namespace' || has(variables.anyObject.metadata.labels)",
        "message": "no labels",
    },
    {
        "expression": "variables.params.labels.all(l, l in variables.anyObject.metadata.?labels.orValue({}))",
        "message": "a label is missing",
    },
    schema=SCHEMA,
)
REGO = {
    **LABELS,
    "spec": {
        **LABELS["spec"],
        "targets": [{"target": "admission.k8s.gatekeeper.sh", "rego": "package x"}],
    },
}


def pod(name: str = "p", **metadata: Any) -> Json:
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, **metadata}}


def one_test(*cases: Json, **members: Any) -> Json:
    return {"name": "t", "template": "t.yaml", "constraint": "c.yaml", "cases": list(cases), **members}


def case(name: str, *assertions: Json, **members: Any) -> Json:
    return {"name": name, "object": f"{name}.yaml", "assertions": list(assertions), **members}


def write(folder: Path, *tests: Json, head: Json | None = None, **files: Any) -> Path:
    """Write ``suite.yaml`` with *tests*, and *files* beside it; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    made = {"t": LABELS, "c": constraint(parameters={"labels": ["team"]}), "bare": pod(), **files}
    for name, content in made.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump(content))
    file = folder / "suite.yaml"
    suite = {"apiVersion": "test.gatekeeper.sh/v1alpha1", "kind": "Suite", "metadata": {"name": "s"}}
    file.write_text(yaml.safe_dump({**suite, "tests": list(tests), **(head or {})}))
    return file


def run(path: Path) -> dict[str, CaseResult]:
    results = asyncio.run(run_tests(read_tests([path], []), []))
    found = {one.name: one for one in results}
    assert len(found) == len(results)
    return found


def said(path: Path) -> dict[str, str]:
    """Run the suites in *path*, and return of each case its problems or status."""
    return {name: "\n".join(one.problems) or one.status for name, one in run(path).items()}


@pytest.mark.parametrize(
    ("assertion", "problem"),
    [
        ({}, ""),
        ({"violations": "yes"}, ""),
        ({"violations": True}, ""),
        ({"violations": 2}, ""),
        ({"message": "a label is .*"}, ""),
        ({"violations": 1, "message": "^no labels$"}, ""),
        ({"violations": 0, "message": "other"}, ""),
        ({"violations": "no"}, "violations: found 2, expected none"),
        ({"violations": False}, "violations: found 2, expected none"),
        ({"violations": 1}, "violations: found 2, expected 1"),
        ({"message": "other"}, "violations: found 0 whose message matches 'other', expected at least one"),
    ],
)
def test_assertions_count_violations(tmp_path: Path, assertion: Json, problem: str) -> None:
    (result,) = run(write(tmp_path, one_test(case("bare", assertion)))).values()
    shown = (problem, "  a label is missing", "  no labels") if problem else ()
    assert result.problems == shown
    assert result.name == "t/bare"


def test_all_assertions_have_to_hold(tmp_path: Path) -> None:
    labelled = pod(labels={"team": "a"})
    file = write(
        tmp_path,
        one_test(
            case("bare", {"violations": 2}, {"violations": "no"}), case("labelled", {"violations": "no"})
        ),
        labelled=labelled,
    )
    found = said(file)
    assert found["t/labelled"] == "passed"
    assert found["t/bare"].startswith("violations: found 2, expected none")


@pytest.mark.parametrize(
    ("spec", "count"),
    [
        ({"enforcementAction": "dryrun"}, 2),
        ({"enforcementAction": "warn"}, 2),
        (scoped(("warn", "gator.gatekeeper.sh")), 2),
        (scoped(("deny", "*")), 2),
        (scoped(("deny", "audit.gatekeeper.sh")), 0),
    ],
)
def test_the_action_does_not_hide_violations_but_the_enforcement_point_does(
    tmp_path: Path, spec: Json, count: int
) -> None:
    found = constraint(parameters={"labels": ["team"]}, **spec)
    assert said(write(tmp_path, one_test(case("bare", {"violations": count})), c=found)) == {
        "t/bare": "passed"
    }


def test_a_review_gives_the_members_of_the_request(tmp_path: Path) -> None:
    own = template(
        "NeedsLabels",
        "request.operation == 'DELETE' && request.userInfo.username == 'ann' && object == null",
        operations=["CREATE"],
    )
    review = {
        "apiVersion": "admission.k8s.io/v1",
        "kind": "AdmissionReview",
        "request": {"operation": "DELETE", "userInfo": {"username": "ann"}, "oldObject": pod()},
    }
    file = write(
        tmp_path,
        one_test(case("review", {"violations": "no"}), case("bare", {"violations": 1})),
        t=own,
        c=constraint(),
        review=review,
    )
    assert set(said(file).values()) == {"passed"}


def test_namespaces_are_those_of_the_inventory(tmp_path: Path) -> None:
    found = constraint(
        match={"namespaceSelector": {"matchLabels": {"tier": "x"}}}, parameters={"labels": ["a"]}
    )
    namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n", "labels": {"tier": "x"}}}
    file = write(
        tmp_path,
        one_test(
            case("known", {"violations": 2}, inventory=["n.yaml"], object="o.yaml"),
            case("unknown", {"violations": 1, "message": "missing Namespace"}, object="o.yaml"),
            case("no namespace", {"violations": 2}, object="free.yaml"),
        ),
        c=found,
        n=namespace,
        o=pod(namespace="n"),
        free=pod(),
    )
    assert set(said(file).values()) == {"passed"}


@pytest.mark.parametrize(
    ("match", "count"),
    [
        ({"namespaces": ["prod"]}, 2),
        ({"excludedNamespaces": ["default"]}, 2),
        ({"scope": "Cluster"}, 2),
        ({"scope": "Namespaced"}, 0),
    ],
)
def test_an_object_without_a_namespace_is_in_none(tmp_path: Path, match: Json, count: int) -> None:
    found = constraint(match=match, parameters={"labels": ["a"]})
    file = write(tmp_path, one_test(case("bare", {"violations": count})), c=found)
    assert said(file) == {"t/bare": "passed"}


def test_a_namespace_has_the_labels_that_are_written(tmp_path: Path) -> None:
    selector = {"namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": "n"}}}
    named = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "n"}}
    labelled = {**named, "metadata": {"name": "n", "labels": {"kubernetes.io/metadata.name": "n"}}}
    file = write(
        tmp_path,
        one_test(
            case("named", {"violations": 0}, inventory=["named.yaml"], object="o.yaml"),
            case("labelled", {"violations": 2}, inventory=["labelled.yaml"], object="o.yaml"),
        ),
        c=constraint(match=selector, parameters={"labels": ["a"]}),
        named=named,
        labelled=labelled,
        o=pod(namespace="n"),
    )
    assert set(said(file).values()) == {"passed"}


def test_a_constraint_that_contradicts_the_schema(tmp_path: Path) -> None:
    invalid = one_test(invalid=True)
    assert said(write(tmp_path, invalid, c=constraint(parameters={"labels": 1}))) == {"t": "passed"}
    assert said(write(tmp_path, invalid)) == {
        "t": "invalid: the constraint is valid, expected one that is not"
    }
    (problem,) = said(
        write(tmp_path, one_test(case("bare", {})), c=constraint(parameters={"labels": 1}))
    ).values()
    assert problem.startswith("spec.parameters.labels")


def test_what_is_skipped_or_not_supported_is_no_failure(tmp_path: Path) -> None:
    bare = case("bare", {"violations": "no"})
    assert said(write(tmp_path, one_test(bare, skip=True))) == {"t/bare": "skipped"}
    assert said(write(tmp_path, one_test({**bare, "skip": True}))) == {"t/bare": "skipped"}
    assert said(write(tmp_path, one_test(bare), head={"skip": True})) == {"t/bare": "skipped"}
    (rego,) = run(write(tmp_path, one_test(bare), t=REGO)).values()
    assert "has Rego only" in rego.not_supported
    (expanded,) = run(write(tmp_path, one_test(bare, expansion="e.yaml"))).values()
    assert expanded.not_supported.startswith("expansion: ")
    lines = call_command("test", str(tmp_path)).stdout.splitlines()
    assert lines[-1] == "1 case: 0 passed, 0 failed, 1 not supported"


def test_problems_have_file_and_field(tmp_path: Path) -> None:
    wrong = one_test(
        case("bare"),
        case("bare", {"violations": "many"}, {"message": "("}),
        {"name": "none"},
        template=1,
        extra=True,
    )
    file = write(tmp_path, wrong)
    with pytest.raises(ConfigError) as raised:
        read_tests([file], [])
    assert all(re.match(rf'{file}:\d+:\d+: Suite "s": ', str(one)) for one in raised.value.problems)
    found = [one.field.removeprefix("tests[0].") for one in raised.value.problems]
    assert found == [
        "template",
        "cases[0].assertions",
        "cases[1].assertions[0].violations",
        "cases[1].assertions[1].message",
        "cases[2].object",
        "cases[2].assertions",
    ]
    warnings = read_tests([write(tmp_path, one_test(case("bare", {}), extra=True))], []).warnings
    assert [(one.field, one.message) for one in warnings] == [
        ("tests[0].extra", "unknown field, which has no effect")
    ]


def test_an_object_that_cannot_be_read_fails_the_case(tmp_path: Path) -> None:
    many = [pod("a"), pod("b")]
    file = write(
        tmp_path,
        one_test(case("gone", {}), case("list", {}), case("empty", {})),
        list={"apiVersion": "v1", "kind": "List", "items": many},
        empty={"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": {}},
    )
    found = said(file)
    assert found["t/gone"] == f"object: {tmp_path / 'gone.yaml'}: cannot be read: no such file or folder"
    assert found["t/list"].startswith(f"object: {tmp_path / 'list.yaml'}: found 2 objects, expected one")
    assert found["t/empty"].endswith("found neither request.object nor request.oldObject")
