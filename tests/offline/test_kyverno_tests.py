"""``admission-gateway test`` runs tests of Kyverno as they are."""

from __future__ import annotations

import asyncio
import json
import re
from typing import TYPE_CHECKING, Any

import pytest
import yaml

from gateway.base.errors import ConfigError
from gateway.tools.policy_tests.discovery import read_tests
from gateway.tools.policy_tests.run import run_tests
from tests.kit import call_command

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.tools.policy_tests.results import CaseResult

Json = dict[str, Any]


def policy(name: str, *expressions: str, **spec: Any) -> Json:
    """A ValidatingPolicy for ConfigMaps, changed by *spec*."""
    rule = {
        "apiGroups": [""],
        "apiVersions": ["v1"],
        "operations": ["CREATE", "UPDATE", "DELETE"],
        "resources": ["configmaps"],
    }
    return {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "ValidatingPolicy",
        "metadata": {"name": name},
        "spec": {
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": one, "message": "wrong"} for one in expressions],
            **spec,
        },
    }


def config_map(name: str, namespace: str | None = None, **data: str) -> Json:
    metadata = {"name": name} if namespace is None else {"name": name, "namespace": namespace}
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": data}


def write(folder: Path, test: Json, **files: list[Json]) -> Path:
    """Write ``kyverno-test.yaml`` with *test*, and *files* beside it; return its path."""
    folder.mkdir(parents=True, exist_ok=True)
    for name, documents in files.items():
        (folder / f"{name}.yaml").write_text(yaml.safe_dump_all(documents))
    file = folder / "kyverno-test.yaml"
    head: Json = {"apiVersion": "cli.kyverno.io/v1alpha1", "kind": "Test", "metadata": {"name": "t"}}
    named: Json = {
        name: [f"{name}.yaml"] for name in ("policies", "resources", "exceptions") if name in files
    }
    file.write_text(yaml.safe_dump(head | named | test))
    return file


def run(path: Path, *filters: str) -> dict[str, CaseResult]:
    """Run the tests in *path*, and return the results by the names of the cases."""
    results = asyncio.run(run_tests(read_tests([path], []), filters))
    found = {one.name: one for one in results}
    assert len(found) == len(results)
    return found


def said(path: Path) -> dict[str, str]:
    """Run the tests in *path*, and return of each case its first problem, the reason, or ``passed``."""
    return {name: "\n".join(one.problems) or one.not_supported or "passed" for name, one in run(path).items()}


def rows(*found: Json, **common: Any) -> Json:
    return {"results": [{"kind": "ConfigMap", **common, **one} for one in found]}


HAS_OWNER = "has(object.data.owner)"
GOOD, BAD = config_map("good", owner="a"), config_map("bad", x="y")


def test_rows_pass_or_fail(tmp_path: Path) -> None:
    test = rows(
        {"resources": ["good"], "result": "pass"},
        {"resources": ["bad"], "result": "fail"},
        {"resources": ["bad", "good"], "result": "skip"},
        policy="owner",
    )
    file = write(tmp_path, test, policies=[policy("owner", HAS_OWNER)], resources=[GOOD, BAD])
    assert said(file) == {
        "owner on good: pass": "passed",
        "owner on bad: fail": "passed",
        "owner on bad: skip": "result: found fail, expected skip: Policy owner failed: wrong",
        "owner on good: skip": "result: found pass, expected skip",
    }


def test_a_problem_says_what_skipped_the_policy(tmp_path: Path) -> None:
    conditions = [{"name": "never", "expression": "false"}]
    test = rows({"policy": "owner", "resources": ["bad"], "result": "fail"})
    found = policy("owner", HAS_OWNER, matchConditions=conditions)
    assert said(write(tmp_path, test, policies=[found], resources=[BAD])) == {
        "owner on bad: fail": "result: found skip, expected fail: the matchCondition never is false"
    }


def test_skip_is_a_false_condition_or_an_exception_and_not_another_object(tmp_path: Path) -> None:
    conditions = [{"name": "is-new", "expression": "object.metadata.name != 'old'"}]
    exception: Json = {
        "apiVersion": "policies.kyverno.io/v1",
        "kind": "PolicyException",
        "metadata": {"name": "e", "namespace": "x"},
        "spec": {
            "policyRefs": [{"name": "owner", "kind": "ValidatingPolicy"}],
            "matchConditions": [{"name": "is-free", "expression": "object.metadata.name == 'free'"}],
        },
    }
    passing: Json = {
        **exception,
        "metadata": {"name": "p", "namespace": "x"},
        "spec": {
            **exception["spec"],
            "matchConditions": [{"name": "is-fine", "expression": "object.metadata.name == 'fine'"}],
            "reportResult": "pass",
        },
    }
    test = rows(
        {"resources": ["old", "free", "none"], "result": "skip"},
        {"resources": ["fine"], "result": "pass"},
        policy="owner",
    )
    file = write(
        tmp_path,
        test,
        policies=[policy("owner", HAS_OWNER, matchConditions=conditions)],
        resources=[
            *(config_map(name) for name in ("old", "free", "fine")),
            {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "none"}},
        ],
        exceptions=[exception, passing],
    )
    assert said(file) == {
        "owner on old: skip": "passed",
        "owner on free: skip": "passed",
        "owner on fine: pass": "passed",
        "owner on none: skip": "result: the policy does not match, expected skip",
    }


def test_errors_and_warnings_are_results_of_their_own(tmp_path: Path) -> None:
    unscored = policy("unscored", HAS_OWNER)
    unscored["metadata"]["annotations"] = {"policies.kyverno.io/scored": "false"}
    test = rows(
        {"policy": "broken", "resources": ["bad"], "result": "error"},
        {"policy": "unscored", "resources": ["bad"], "result": "warn"},
    )
    policies = [policy("broken", "object.data.owner == 'a'"), unscored]
    file = write(tmp_path, test, policies=policies, resources=[BAD])
    assert set(said(file).values()) == {"passed"}


@pytest.mark.parametrize("actions", [["Audit"], ["Warn"], ["Deny"], ["Warn", "Audit"]])
def test_what_a_policy_is_set_to_do_does_not_hide_a_failure(tmp_path: Path, actions: list[str]) -> None:
    test = rows({"policy": "owner", "resources": ["bad"], "result": "fail"})
    found = policy("owner", HAS_OWNER, validationActions=actions)
    file = write(tmp_path, test, policies=[found], resources=[BAD])
    assert said(file) == {"owner on bad: fail": "passed"}


def test_objects_are_named_with_namespace_and_kind_or_are_all(tmp_path: Path) -> None:
    test = rows(
        {"resources": ["a/m"], "result": "pass"},
        {"resources": ["b/ConfigMap/m"], "result": "fail"},
        {
            "resources": [],
            "resourceSpecs": [{"version": "v1", "namespace": "a", "name": "m", "kind": "ConfigMap"}],
            "result": "pass",
        },
        {"resources": ["m"], "result": "pass"},
        {"result": "fail"},
        {"resources": ["gone"], "result": "pass"},
        policy="owner",
    )
    objects = [config_map("m", "a", owner="x"), config_map("m", "b"), config_map("m", "a")]
    file = write(tmp_path, test, policies=[policy("owner", HAS_OWNER)], resources=objects)
    results = asyncio.run(run_tests(read_tests([file], []), []))
    wrong = "result: found fail, expected pass: Policy owner failed: wrong"
    assert [(one.name, one.problems) for one in results] == [
        ("owner on a/m: pass", ()),
        ("owner on b/ConfigMap/m: fail", ()),
        ("owner on a/m: pass", ()),
        ("owner on m: pass", (wrong,)),
        ("owner on all: fail", ("result: found pass, expected fail",)),
        ("owner on gone: pass", ('resources: there is no "gone" in resources.yaml',)),
    ]


def test_specs_of_objects_count_beside_names_only(tmp_path: Path) -> None:
    spec = {"version": "v1", "namespace": "default", "name": "good"}
    test = rows({"policy": "owner", "resourceSpecs": [spec], "result": "pass"})
    file = write(tmp_path, test, policies=[policy("owner", HAS_OWNER)], resources=[GOOD, BAD])
    assert said(file) == {
        "owner on all: pass": "result: found fail, expected pass: Policy owner failed: wrong"
    }
    (warning,) = read_tests([file], []).warnings
    assert str(warning).endswith("results[0].resourceSpecs: is not used without resources, as by Kyverno")


def test_namespaces_of_policies_in_rows_are_not_compared(tmp_path: Path) -> None:
    found = policy("owner", HAS_OWNER)
    found["kind"], found["metadata"]["namespace"] = "NamespacedValidatingPolicy", "default"
    test = rows(*({"policy": name, "result": "fail"} for name in ("owner", "default/owner", "x/owner")))
    file = write(tmp_path, test, policies=[found], resources=[BAD])
    assert set(said(file).values()) == {"passed"}


def test_the_end_of_an_exception_does_not_count(tmp_path: Path) -> None:
    spec = {
        "policyRefs": [{"name": "owner", "kind": "ValidatingPolicy"}],
        "expiresAt": "2020-01-01T00:00:00Z",
    }
    metadata = {"name": "e", "namespace": "x"}
    head = {"apiVersion": "policies.kyverno.io/v1", "kind": "PolicyException"}
    exception: Json = {**head, "metadata": metadata, "spec": spec}
    file = write(
        tmp_path,
        rows({"policy": "owner", "result": "skip"}),
        policies=[policy("owner", HAS_OWNER)],
        resources=[BAD],
        exceptions=[exception],
    )
    assert said(file) == {"owner on all: skip": "passed"}


def test_operations_are_those_of_the_row_of_the_values_or_create(tmp_path: Path) -> None:
    test = rows(
        {"policy": "is", "resources": ["good"], "result": "pass"},
        {"policy": "is", "resources": ["good"], "result": "fail", "operation": "CREATE"},
        {"policy": "is", "resources": ["good"], "result": "fail", "operation": "DELETE"},
        {"policy": "deleted", "resources": ["good"], "result": "pass", "operation": "DELETE"},
        {"policy": "is", "resources": ["bad"], "result": "pass"},
    )
    policies = [
        policy("is", "request.operation == 'UPDATE' && object == oldObject"),
        policy("deleted", "object == {} && oldObject.metadata.name == 'good'"),
    ]
    values = {"globalValues": {"request.operation": "UPDATE"}}
    file = write(tmp_path, {**test, "values": values}, policies=policies, resources=[GOOD, BAD])
    assert set(said(file).values()) == {"passed"}
    # Only policies with rules have an operation for one object.
    updates = [{"name": "bad", "values": {"request.operation": "UPDATE"}}]
    of_object = {"policies": [{"name": name, "resources": updates} for name in ("is", "rules")]}
    (tmp_path / "values.yaml").write_text(json.dumps({"kind": "Values", **of_object}))
    rules = role_rule("rules", {"resources": {"kinds": ["ConfigMap"], "operations": ["CREATE"]}})
    test = rows(
        {"policy": "is", "resources": ["good", "bad"], "result": "fail"},
        {"policy": "rules", "resources": ["good", "bad"], "result": "fail"},
    )
    file = write(
        tmp_path, {**test, "variables": "values.yaml"}, policies=[*policies, rules], resources=[GOOD, BAD]
    )
    assert said(file) == {
        "is on good: fail": "passed",
        "is on bad: fail": "passed",
        "rules on good: fail": "passed",
        "rules on bad: fail": "result: the policy does not match, expected fail",
    }


def test_namespaces_are_those_of_the_values(tmp_path: Path) -> None:
    values = {
        "namespaceSelector": [{"name": "a", "labels": {"tier": "x"}}, {"name": "b", "labels": {"tier": "x"}}],
        "namespaces": [{"metadata": {"name": "b", "labels": {"tier": "y"}, "annotations": {"n": "1"}}}],
    }
    by_label = policy("by-label", "false")
    by_label["spec"]["matchConstraints"]["namespaceSelector"] = {"matchLabels": {"tier": "x"}}
    noted = policy("noted", "namespaceObject.metadata.annotations['n'] == '1'")
    test = rows(
        {"policy": "by-label", "resources": ["a/m"], "result": "fail"},
        {"policy": "by-label", "resources": ["b/m"], "result": "fail"},
        {"policy": "noted", "resources": ["b/m"], "result": "pass"},
    )
    objects = [config_map("m", "a"), config_map("m", "b")]
    file = write(tmp_path, {**test, "values": values}, policies=[by_label, noted], resources=objects)
    assert said(file) == {
        "by-label on a/m: fail": "passed",
        "by-label on b/m: fail": "result: the policy does not match, expected fail",
        "noted on b/m: pass": "passed",
    }


def test_the_user_is_that_of_userinfo(tmp_path: Path) -> None:
    user = {"username": "ann", "groups": ["g"], "uid": "7", "extra": {"k": ["v"]}}
    expression = (
        "request.userInfo.username == 'ann' && request.userInfo.groups == ['g'] "
        "&& request.userInfo.uid == '7' && request.userInfo.extra['k'] == ['v']"
    )
    (tmp_path / "user.yaml").write_text(json.dumps({"kind": "UserInfo", "roles": [], "userInfo": user}))
    row = rows({"policy": "user", "resources": ["good"], "result": "pass"})
    files: Json = {"policies": [policy("user", expression)], "resources": [GOOD]}
    assert said(write(tmp_path, {**row, "userinfo": "user.yaml"}, **files)) == {
        "user on good: pass": "passed"
    }
    (without,) = said(write(tmp_path, row, **files)).values()
    assert without.startswith("result: found error, expected pass")


def test_users_have_no_empty_members(tmp_path: Path) -> None:
    (tmp_path / "user.yaml").write_text(json.dumps({"userInfo": {"username": "", "groups": []}}))
    row = rows({"policy": "user", "resources": ["good"], "result": "pass"})
    found = policy("user", "!has(request.userInfo.username) && !has(request.userInfo.groups)")
    assert said(write(tmp_path, {**row, "userinfo": "user.yaml"}, policies=[found], resources=[GOOD])) == {
        "user on good: pass": "passed"
    }


def role_rule(name: str, match: Json | None = None, exclude: Json | None = None) -> Json:
    """A ClusterPolicy that refuses ConfigMaps that *match*, and are not excluded."""
    block = {"resources": {"kinds": ["ConfigMap"]}, **(match or {})}
    rule: Json = {
        "name": "r",
        "match": {"any": [block]},
        "validate": {"cel": {"expressions": [{"expression": "false"}]}},
    }
    spec = {"rules": [rule | ({"exclude": exclude} if exclude else {})]}
    return {"apiVersion": "kyverno.io/v1", "kind": "ClusterPolicy", "metadata": {"name": name}, "spec": spec}


@pytest.mark.parametrize(
    ("user", "refusing"),
    [
        # Kyverno compares no user where none is told.
        (None, {"for-admins", "for-devs", "for-others"}),
        ({"userInfo": {"username": "ann"}}, {"for-others"}),
        ({"clusterRoles": ["view", "admin"]}, {"for-admins"}),
        ({"roles": ["other", "n:dev"], "userInfo": {"username": "ann"}}, {"for-devs", "for-others"}),
    ],
    ids=["nobody", "without-roles", "cluster-role", "role"],
)
def test_the_roles_of_the_user_are_those_of_userinfo(
    tmp_path: Path, user: Json | None, refusing: set[str]
) -> None:
    if user is not None:
        (tmp_path / "user.yaml").write_text(json.dumps({"kind": "UserInfo", **user}))
    policies = [
        role_rule("for-admins", {"clusterRoles": ["admin"]}),
        role_rule("for-devs", {"roles": ["n:dev"]}),
        role_rule("for-others", exclude={"clusterRoles": ["admin"]}),
    ]
    names = [one["metadata"]["name"] for one in policies]
    test = rows(*({"policy": name, "rule": "r", "resources": ["good"], "result": "fail"} for name in names))
    named = {} if user is None else {"userinfo": "user.yaml"}
    found = said(write(tmp_path, {**test, **named}, policies=policies, resources=[GOOD]))
    assert {name.partition(" ")[0] for name, what in found.items() if what == "passed"} == refusing


def test_an_object_of_a_subresource_is_sent_to_it(tmp_path: Path) -> None:
    scale = {
        "apiVersion": "autoscaling/v1",
        "kind": "Scale",
        "metadata": {"name": "s"},
        "spec": {"replicas": 9},
    }
    values = {
        "subresources": [
            {
                "subresource": {
                    "name": "deployments/scale",
                    "kind": "Scale",
                    "group": "autoscaling",
                    "version": "v1",
                },
                "parentResource": {
                    "name": "deployments",
                    "kind": "Deployment",
                    "group": "apps",
                    "version": "v1",
                },
            }
        ]
    }
    found = policy("scaled", "object.spec.replicas < 5")
    found["spec"]["matchConstraints"]["resourceRules"] = [
        {
            "apiGroups": ["*"],
            "apiVersions": ["*"],
            "operations": ["*"],
            "resources": ["deployments/scale"],
        }
    ]
    test = rows({"policy": "scaled", "resources": ["s"], "result": "fail", "kind": "Scale"})
    file = write(tmp_path, {**test, "values": values}, policies=[found], resources=[scale])
    assert said(file) == {"scaled on s: fail": "passed"}


def test_policies_of_the_api_server_with_their_parameters(tmp_path: Path) -> None:
    rule = {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
    found: Json = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicy",
        "metadata": {"name": "limit"},
        "spec": {
            "paramKind": {"apiVersion": "test/v1", "kind": "Limit"},
            "matchConstraints": {"resourceRules": [rule]},
            "validations": [{"expression": "size(object.data) <= params.most"}],
        },
    }
    binding: Json = {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": "limit"},
        "spec": {
            "policyName": "limit",
            "validationActions": ["Audit"],
            "paramRef": {"name": "p", "parameterNotFoundAction": "Deny"},
        },
    }
    (tmp_path / "params.yaml").write_text(
        json.dumps({"apiVersion": "test/v1", "kind": "Limit", "metadata": {"name": "p"}, "most": 1})
    )
    unbound: Json = {
        **found,
        "metadata": {"name": "free"},
        "spec": {**found["spec"], "validations": [{"expression": "false"}]},
    }
    del unbound["spec"]["paramKind"]
    conditions = [{"name": "is-not-old", "expression": "object.metadata.name != 'old'"}]
    found["spec"]["matchConditions"] = conditions
    test = rows(
        {"policy": "limit", "resources": ["one"], "result": "pass"},
        {"policy": "limit", "resources": ["two"], "result": "fail"},
        {"policy": "limit", "resources": ["old"], "result": "skip"},
        {"policy": "free", "resources": ["one"], "result": "fail"},
        isValidatingAdmissionPolicy=True,
    )
    objects = [config_map("one", a="1"), config_map("two", a="1", b="2"), config_map("old")]
    file = write(
        tmp_path,
        {**test, "paramResources": ["params.yaml"]},
        policies=[found, binding, unbound, {"apiVersion": "v1", "kind": "ConfigMap"}],
        resources=objects,
    )
    assert set(said(file).values()) == {"passed"}


def test_rules_of_the_old_kinds_have_results_of_their_own(tmp_path: Path) -> None:
    def rule(name: str, expression: str, **more: Any) -> Json:
        cel = {"expressions": [{"expression": expression, "message": name}]}
        match = {"any": [{"resources": {"kinds": ["Pod"]}}]}
        return {"name": name, "match": match, "validate": {"failureAction": "Audit", "cel": cel}, **more}

    found = {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": "pods"},
        "spec": {
            "rules": [
                rule("good", "object.spec.hostname == 'a'"),
                rule("bad", "object.spec.hostname == 'b'"),
                rule("not-now", "false", celPreconditions=[{"name": "never", "expression": "false"}]),
            ]
        },
    }
    spec = {"hostname": "a", "containers": []}
    template = {"metadata": {"labels": {}}, "spec": spec}
    objects: list[Json] = [
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod"}, "spec": spec},
        {
            "apiVersion": "apps/v1",
            "kind": "Deployment",
            "metadata": {"name": "deployment"},
            "spec": {"template": template},
        },
        {
            "apiVersion": "batch/v1",
            "kind": "CronJob",
            "metadata": {"name": "cron-job"},
            "spec": {"jobTemplate": {"spec": {"template": template}}},
        },
    ]
    test = rows(
        {"rule": "good", "resources": ["pod", "deployment", "cron-job"], "result": "pass"},
        {"rule": "bad", "resources": ["pod", "deployment", "cron-job"], "result": "fail"},
        {"rule": "not-now", "resources": ["pod", "deployment"], "result": "skip"},
        {"rule": "autogen-good", "resources": ["deployment"], "result": "pass"},
        {"rule": "goo", "resources": ["pod"], "result": "pass"},
        {"resources": ["pod"], "result": "pass"},
        policy="pods",
    )
    wrong = {
        "pods goo on pod: pass": "result: the policy does not match, expected pass",
        "pods on pod: pass": "result of bad: found fail, expected pass: bad\n"
        "result of not-now: found skip, expected pass: cel preconditions not met",
    }
    result = said(write(tmp_path, test, policies=[found], resources=objects))
    assert {name: text for name, text in result.items() if text != "passed"} == wrong
    assert len(result) == 11


MUTATING: Json = {
    "apiVersion": "admissionregistration.k8s.io/v1",
    "kind": "MutatingAdmissionPolicy",
    "metadata": {"name": "label"},
    "spec": {
        "reinvocationPolicy": "Never",
        "matchConstraints": {
            "resourceRules": [
                {"apiGroups": [""], "apiVersions": ["v1"], "operations": ["*"], "resources": ["configmaps"]}
            ]
        },
        "mutations": [
            {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {
                    "expression": "Object{metadata: Object.metadata{labels: {'team': 'a'}}}"
                },
            }
        ],
    },
}


def test_objects_after_all_changes_are_compared_without_what_is_empty(tmp_path: Path) -> None:
    row = {"policy": "label", "resources": ["good"], "result": "pass", "patchedResources": "patched.yaml"}
    labels = {"team": "a", "generate.kyverno.io/x": "y"}
    patched = {**GOOD, "metadata": {"name": "good", "labels": labels, "annotations": {}}, "binaryData": None}
    files: Json = {"policies": [MUTATING], "resources": [GOOD]}
    assert said(write(tmp_path, rows(row), **files, patched=[BAD, patched])) == {
        "label on good: pass": "passed"
    }
    wrong = {**patched, "metadata": {"name": "good", "labels": {"team": "b"}}}
    (problem,) = said(write(tmp_path, rows(row), **files, patched=[wrong])).values()
    assert problem.startswith(
        "patchedResources: the object after all changes differs from that in patched.yaml\n"
    )
    assert "-    team: b" in problem
    assert "+    team: a" in problem
    # Kyverno compares nothing if the file lacks the object, not the result either, unless the row says so.
    for result in ("pass", "skip"):
        found = write(tmp_path, rows({**row, "result": result}), **files, patched=[BAD])
        assert said(found) == {f"label on good: {result}": "passed"}
    strict = {**row, "failOnMissingResources": True}
    assert said(write(tmp_path, rows(strict), **files, patched=[BAD])) == {
        "label on good: pass": "patchedResources: the object after all changes is not in patched.yaml"
    }
    assert "gone.yaml" in "".join(
        said(write(tmp_path, rows({**row, "patchedResources": "gone.yaml"}), **files)).values()
    )


def test_an_object_without_a_schema_cannot_be_merged(tmp_path: Path) -> None:
    found = {**MUTATING, "spec": {**MUTATING["spec"]}}
    rule = {"apiGroups": ["test"], "apiVersions": ["v1"], "operations": ["*"], "resources": ["widgets"]}
    found["spec"]["matchConstraints"] = {"resourceRules": [rule]}
    widget = {"apiVersion": "test/v1", "kind": "Widget", "metadata": {"name": "w"}}
    test = rows({"policy": "label", "resources": ["w"], "result": "pass"})
    (reason,) = said(write(tmp_path, test, policies=[found], resources=[widget])).values()
    assert reason.startswith("clusterResources: result: found error, expected pass: ")


def test_policies_that_cannot_run_are_counted_apart(tmp_path: Path) -> None:
    refused = policy("refused", "true", evaluation={"mode": "JSON"})
    test = rows(
        {"policy": "refused", "resources": ["good"], "result": "pass"},
        {"policy": "idle", "resources": ["good"], "result": "pass"},
        {"policy": "owner", "resources": ["good"], "result": "pass"},
        {"policy": "ghost", "resources": ["good"], "result": "pass"},
    )
    idle = policy("idle", "true", evaluation={"admission": {"enabled": False}})
    file = write(tmp_path, test, policies=[refused, idle, policy("owner", HAS_OWNER)], resources=[GOOD])
    found = run(file)
    assert found["refused on good: pass"].status == "not supported"
    assert found["refused on good: pass"].not_supported.startswith("spec.evaluation")
    assert found["idle on good: pass"].not_supported == (
        "spec.evaluation: admission is not enabled: the policy has no effect"
    )
    assert found["owner on good: pass"].status == "passed"
    assert found["ghost on good: pass"].problems == ('policy: there is no policy "ghost" in policies.yaml',)


def test_a_policy_of_the_cluster_has_no_namespace(tmp_path: Path) -> None:
    found = policy("owner", HAS_OWNER)
    found["metadata"]["namespace"] = "x"
    test = rows({"policy": "owner", "resources": ["good"], "result": "pass"})
    file = write(tmp_path, test, policies=[found], resources=[GOOD])
    assert said(file) == {"owner on good: pass": "passed"}


def test_what_is_no_request_is_not_supported(tmp_path: Path) -> None:
    (tmp_path / "targets.yaml").write_text(json.dumps(BAD))
    row = rows({"policy": "owner", "resources": ["bad"], "result": "pass"})
    files: Json = {"policies": [policy("owner", HAS_OWNER)], "resources": [GOOD]}
    targets = said(write(tmp_path, {**row, "targetResources": ["targets.yaml"]}, **files))
    assert targets["owner on bad: pass"].startswith(
        "targetResources: the gateway changes no existing objects"
    )
    payloads = said(write(tmp_path, {**row, "jsonPayloads": ["p.json"]}, **files))
    assert payloads["owner on bad: pass"] == "payloads are no objects of an API server"
    broken = {"apiVersion": "policies.kyverno.io/v1", "kind": "PolicyException", "metadata": {"name": "e"}}
    excepted = said(write(tmp_path, row, **files, exceptions=[broken]))
    assert "exceptions.yaml:1:1: PolicyException" in excepted["owner on bad: pass"]


def test_problems_have_file_and_field_and_unknown_keys_are_warnings(tmp_path: Path) -> None:
    test = rows(
        {"policy": "p", "result": "maybe", "isMUtatingPolicy": True, "operation": "PATCH"}, {"result": "pass"}
    )
    file = write(tmp_path, {**test, "variables": "gone.yaml", "resources": [1], "polices": []})
    with pytest.raises(ConfigError) as raised:
        read_tests([file], [])
    assert all(re.match(rf'{file}:\d+:\d+: Test "t": ', str(one)) for one in raised.value.problems)
    found = [one.field for one in raised.value.problems]
    assert found == [
        *("resources[0]", "variables", "results[0].result", "results[0].operation", "results[1].policy"),
    ]
    ok = write(tmp_path, {"polices": [], **rows({"policy": "p", "result": "pass", "isMUtatingPolicy": True})})
    warnings = [f"{one.field}: {one.message}" for one in read_tests([ok], []).warnings]
    assert warnings == [
        'results[0].isMUtatingPolicy: unknown field, which has no effect; did you mean "isMutatingPolicy"?',
        'polices: unknown field, which has no effect; did you mean "policies"?',
    ]


def test_a_test_without_a_kind_is_not_overlooked(tmp_path: Path) -> None:
    file = tmp_path / "kyverno-test.yaml"
    file.write_text("name: old\npolicies: [p.yaml]\n")
    with pytest.raises(ConfigError, match=r"kyverno-test.yaml:1:1: kind: is required, expected Test"):
        read_tests([tmp_path], [])


def test_files_that_cannot_be_read_fail_the_rows(tmp_path: Path) -> None:
    row = rows({"policy": "owner", "resources": ["good"], "result": "pass"})
    file = write(tmp_path, {**row, "resources": ["gone.yaml"]}, policies=[policy("owner", HAS_OWNER)])
    (problem,) = said(file).values()
    assert problem == f"resources: {tmp_path / 'gone.yaml'}: cannot be read: no such file or folder"
    (tmp_path / "good.yaml").write_text(yaml.safe_dump(GOOD))
    some = {**row, "resources": ["gone.yaml", "good.yaml"]}
    assert said(write(tmp_path, some, policies=[policy("owner", HAS_OWNER)])) == {
        "owner on good: pass": "passed"
    }


def test_the_command_finds_tests_in_folders_and_says_what_it_could_not_run(tmp_path: Path) -> None:
    row = {"policy": "owner", "resources": ["good"], "result": "pass"}
    files: Json = {
        "policies": [
            policy("owner", HAS_OWNER),
            {"apiVersion": "policies.kyverno.io/v1", "kind": "DeletingPolicy", "metadata": {"name": "d"}},
        ],
        "resources": [GOOD],
    }
    file = write(tmp_path / ".kyverno-test", rows(row, {**row, "policy": "d"}), **files)
    done = call_command("test", str(tmp_path), "--junit", str(tmp_path / "junit.xml"))
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines()
    assert lines[:3] == [f"{file}: t", "  ok    owner on good: pass", "  none  d on good: pass"]
    assert lines[3].startswith(
        "        not supported: kind: found DeletingPolicy, which the gateway cannot run"
    )
    assert lines[4:] == ["2 cases: 1 passed, 0 failed, 1 not supported"]
    assert 'skipped="1"' in (tmp_path / "junit.xml").read_text()
    found = json.loads(call_command("test", str(tmp_path), "--json").stdout)
    assert (found["passed"], found["failed"], found["notSupported"]) == (1, 0, 1)
    # Nothing was tested.
    assert call_command("test", str(tmp_path), "--filter", "d on*").returncode == 1
    assert call_command("test", str(tmp_path), "--filter", "t/owner*").returncode == 0
    before = file.read_text()
    write(tmp_path / ".kyverno-test", rows({**row, "result": "fail"}), **files)
    changed = file.read_text()
    assert changed != before
    assert call_command("test", str(tmp_path), "--update").returncode == 1
    assert file.read_text() == changed


def test_a_policy_that_changes_its_own_result_gets_a_note_and_passes(tmp_path: Path) -> None:
    value = "object.?data['runs'].orValue('') + 'x'"
    patch = f"[JSONPatch{{op: 'add', path: '/data/runs', value: {value}}}]"
    appending = {
        **MUTATING,
        "spec": {
            **MUTATING["spec"],
            "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": patch}}],
        },
    }
    row = {"policy": "label", "resources": ["good"], "result": "pass"}
    files: Json = {"policies": [appending], "resources": [GOOD]}
    (found,) = run(write(tmp_path, rows(row), **files)).values()
    assert found.status == "passed"
    assert found.notes == ('label changes again on its own result: data.runs: "x" becomes "xx"',)
