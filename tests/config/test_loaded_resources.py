"""Policies of Kyverno and Gatekeeper as custom resources: in force, refused, and put together."""

from __future__ import annotations

import json
from collections import Counter
from dataclasses import replace
from typing import TYPE_CHECKING, Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.kinds.engine_settings import EngineEntry, EnginesEntry
from gateway.config.kinds.gateway_configuration import GatewaySettings
from gateway.config.kinds.policy_settings import ListedKind, PolicySettings
from gateway.config.merge.custom_resource import (
    CustomResource,
    ReadResource,
    loaded_resource,
    read_resource,
)
from gateway.config.merge.load import load
from gateway.config.merge.merged import Merged, merge, merge_pinned, resources_in_force
from gateway.config.merge.model import Config, Pinned, kinds_read
from gateway.pure.cel import spec_reads
from gateway.pure.kyverno.validating import KyvernoValidatingPolicy
from gateway.server.history import History
from tests.config.test_custom_policies import verdict_of
from tests.gatekeeper.documents import constraint, excluding, mutator, rego_template, template
from tests.gatekeeper.test_hostile_documents import JUNK, places
from tests.kyverno.documents import condition, exception, mutating, validating

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

Json = dict[str, Any]

FILES: Final = Config(
    gateway=GatewaySettings(
        policies=PolicySettings(
            custom_resources_of=("Kyverno", "Gatekeeper"), exception_namespaces=("exceptions",)
        )
    )
)
CONFIG_MAP: Final = {
    "apiVersion": "v1",
    "kind": "ConfigMap",
    "metadata": {"name": "c", "namespace": "default"},
}
SCHEMA: Final = {"type": "object", "properties": {"n": {"type": "integer"}}}
NEEDS: Final = "ConstraintTemplate.templates.gatekeeper.sh"


def resource(document: Json, generation: int = 1, uid: str = "u") -> CustomResource:
    metadata = {
        **document["metadata"],
        "uid": uid,
        "generation": generation,
        "resourceVersion": "7",
        "new": {},
    }
    found = {**document, "metadata": metadata, "status": {"conditions": [{"type": "Ready"}]}}
    return loaded_resource(document["apiVersion"], document["kind"], found)


def merged(
    documents: Sequence[Json | CustomResource], before: Merged | None = None, files: Config = FILES
) -> Merged:
    listed = [each if isinstance(each, CustomResource) else resource(each) for each in documents]
    return merge(files, listed, before)


def outcome(found: Merged, name: str = "p") -> str:
    """Return what the policy decides on a ConfigMap; empty if it is not in force."""
    hooks = [one for one in found.config.validating if one.name == name]
    return verdict_of(hooks[0], CONFIG_MAP) if hooks else ""


def reasons(found: Merged) -> dict[str, str]:
    return {one.resource.name: one.reason for one in found.statuses}


def only_problem(found: Merged, name: str) -> tuple[str, str, str]:
    """Return field, message and effect of the only problem of a resource."""
    (status,) = [one for one in found.statuses if one.resource.name == name]
    (problem,) = status.problems
    return problem.field, problem.message, status.effect


def cluster_policy(name: str = "cp", **cel: Any) -> Json:
    rule = {
        "name": "r",
        "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
        "validate": {"failureAction": "Enforce", "cel": {"expressions": [{"expression": "false"}], **cel}},
    }
    return {
        "apiVersion": "kyverno.io/v1",
        "kind": "ClusterPolicy",
        "metadata": {"name": name},
        "spec": {"rules": [rule]},
    }


def cluster_exception(of: str = "cp", namespace: str = "exceptions") -> Json:
    return {
        "apiVersion": "kyverno.io/v2",
        "kind": "PolicyException",
        "metadata": {"name": "ce", "namespace": namespace},
        "spec": {
            "match": {"any": [{"resources": {"kinds": ["ConfigMap"]}}]},
            "exceptions": [{"policyName": of, "ruleNames": ["r"]}],
        },
    }


@pytest.mark.parametrize(
    ("kubernetes", "policies", "expected"),
    [
        ({}, {"customResourcesOf": ["Kyverno"]}, "customResourcesOf: requires kubernetes.customResources"),
        (
            {"customResources": True},
            {"customResourcesOf": ["OPA"]},
            'found "OPA", expected Kyverno, Gatekeeper or Kubewarden',
        ),
        ({"customResources": True}, {"exceptionNamespaces": ["a*"]}, 'exceptionNamespaces[0]: found "a*"'),
    ],
)
def test_settings_that_cannot_be_are_refused(
    kubernetes: Json, policies: Json, expected: str, tmp_path: Path
) -> None:
    document = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "kubernetes": kubernetes,
        "policies": policies,
    }
    (tmp_path / "c.yaml").write_text(json.dumps(document))
    with pytest.raises(ConfigError) as refused:
        load([tmp_path])
    assert expected in str(refused.value)


def test_a_policy_is_in_force_changes_and_goes() -> None:
    first = merged([validating("false")])
    assert outcome(first) == "Policy p failed: CEL expression validation failed at index 0"
    assert reasons(first) == {"p": "Accepted"}
    second = merged([resource(validating("true"), 2)], first)
    assert outcome(second) == "allowed"
    assert outcome(merged([], second)) == ""


def test_exceptions_leave_out_policies_of_the_cluster_in_the_listed_namespaces() -> None:
    without = merged([validating("false"), cluster_policy()])
    assert outcome(without).startswith("Policy p failed")
    assert outcome(without, "cp") != "allowed"
    found = merged([validating("false"), cluster_policy(), exception(), cluster_exception()], without)
    assert (outcome(found), outcome(found, "cp")) == ("allowed", "allowed")
    other = exception()
    other["metadata"]["namespace"] = "default"
    found = merged([validating("false"), cluster_policy(), other, cluster_exception(namespace="default")])
    assert reasons(found) == {"p": "Accepted", "cp": "Accepted", "e": "NotUsed", "ce": "NotUsed"}
    assert found.config.validating[0].name == "cp"
    assert (outcome(found), outcome(found, "cp")) == (outcome(without), outcome(without, "cp"))
    settings = "policies.exceptionNamespaces of the GatewayConfiguration"
    assert {one.note for one in found.statuses if one.reason == "NotUsed"} == {
        f'without effect: {settings} does not have the namespace "default"'
    }


def test_constraints_need_a_template_and_follow_config() -> None:
    never = template("Never", "false")
    needing = constraint("Never")
    assert reasons(merged([needing])) == {"c": "NoTemplate"}
    found = merged([needing, never])
    assert outcome(found, "c") == "[c] failed expression: false"
    # The Config of another namespace than Gatekeeper's is nobody's.
    foreign = excluding("default")
    foreign["metadata"]["namespace"] = "default"
    assert outcome(merged([needing, never, foreign], found), "c") == outcome(found, "c")
    assert outcome(merged([needing, never, excluding("default")], found), "c") == "allowed"
    assert outcome(merged([needing], found), "c") == ""


def test_a_constraint_stays_as_it_was_if_its_template_does_not_take_it_any_more() -> None:
    loose, strict = (
        template("Never", "false", schema={**SCHEMA, "properties": {"n": {"type": kind}}})
        for kind in ("integer", "string")
    )
    needing = constraint("Never", parameters={"n": 1})
    first = merged([loose, needing])
    assert outcome(first, "c").startswith("[c]")
    second = merged([resource(strict, 2), needing], first)
    assert second.config == first.config
    assert only_problem(second, "c") == (
        "spec.parameters.n",
        "found the number 1, expected a value of type string",
        "generation 1 stays in force",
    )
    third = merged([resource(strict, 2), resource(constraint("Never", parameters={"n": "x"}), 2)], second)
    assert reasons(third) == {"never": "Accepted", "c": "Accepted"}
    assert only_problem(merged([strict, needing]), "c")[2] == "it is not in force"


@pytest.mark.parametrize(
    ("valid", "invalid", "name"),
    [
        (validating("false"), validating("no such"), "p"),
        (cluster_policy(), cluster_policy(expressions=[{"expression": "no such"}]), "cp"),
        (constraint("Never"), constraint("Never", match={"scope": 1}), "c"),
    ],
)
def test_an_invalid_change_leaves_the_last_valid_version_in_force(
    valid: Json, invalid: Json, name: str
) -> None:
    others = [template("Never", "false"), validating("false", name="other")]
    first = merged([valid, *others])
    second = merged([resource(invalid, 2), *others], first)
    assert second.config == first.config
    assert only_problem(second, name)[2] == "generation 1 stays in force"
    never = merged([resource(invalid, 2, uid="another"), *others], second)
    assert outcome(never, name) == ""
    assert outcome(never, "other") == outcome(first, "other") != ""
    assert only_problem(never, name)[2] == "it is not in force"


def test_an_invalid_template_keeps_its_constraints_and_an_invalid_exception_does_not_apply() -> None:
    documents = [template("Never", "false"), constraint("Never"), validating("false"), exception()]
    first = merged(documents)
    assert outcome(first) == "allowed"
    broken: list[Json | CustomResource] = [
        resource(template("Never", "no such"), 2),
        constraint("Never"),
        validating("false"),
        resource(exception(matchConditions=[{"name": "c", "expression": "no such"}]), 2),
    ]
    second = merged(broken, first)
    assert outcome(second, "c") == outcome(first, "c")
    assert outcome(second).startswith("Policy p failed")
    assert only_problem(second, "e")[2] == "the exception does not apply"


def test_what_files_have_is_neither_replaced_nor_extended(tmp_path: Path) -> None:
    of_files = [validating("false"), template("Never", "false"), constraint("Never", "of-file")]
    (tmp_path / "c.yaml").write_text("\n---\n".join(map(json.dumps, of_files)))
    files = replace(load([tmp_path]), gateway=FILES.gateway)
    added = [
        *(validating("true"), exception(), template("Never", "true"), constraint("Never", "of-file")),
        *(constraint("Never", "of-cluster"), excluding("default")),
    ]
    found = merge(files, [resource(each) for each in added], None)
    assert found.config.validating == files.validating
    kinds = {one.resource.key: one.reason for one in found.statuses}
    assert Counter(kinds.values()) == {"NameInFiles": 3, "Accepted": 2, "NoTemplate": 1}
    assert kinds[NEEDS, "never"] == "NameInFiles"
    warned = [str(one) for one in found.config.warnings]
    assert any("there is no ValidatingPolicy" in one for one in warned), warned


def test_policies_with_parameters_are_refused() -> None:
    policy = cluster_policy(
        paramKind={"apiVersion": "v1", "kind": "ConfigMap"}, paramRef={"name": "x", "namespace": "default"}
    )
    field, message, effect = only_problem(merged([policy]), "cp")
    assert (field, effect) == ("spec.rules", "it is not in force")
    assert message.startswith('found parameters of the kind "ConfigMap", and nothing checks that the author')


READING: Final = 'resource.Get("v1", "configmaps", "default", "x").data.y == "z"'


def test_policies_read_only_listed_kinds() -> None:
    field, message, effect = only_problem(merged([validating(READING)]), "p")
    assert (field, effect) == ("spec", "it is not in force")
    assert message.startswith("reads configmaps of v1: to read it, add {apiVersion: v1, kind: ConfigMap")
    first = merged([validating("false")])
    second = merged([resource(validating(READING), 2)], first)
    assert second.config == first.config
    assert only_problem(second, "p")[2] == "generation 1 stays in force"
    maps = ListedKind("v1", "ConfigMap", "configmaps")
    policies = replace(FILES.gateway.policies, resources=(maps,))
    listed = replace(FILES, gateway=replace(FILES.gateway, policies=policies))
    third = merge(listed, [resource(validating(READING), 2)], second)
    assert reasons(third) == {"p": "Accepted"}
    assert kinds_read(third.config) == {("v1", "ConfigMap"): frozenset({("data", "y")})}
    again = merge(listed, [resource(validating(READING), 2)], third)
    assert again.config.validating == third.config.validating
    # A kind that is not listed any more is not read any more, whatever was valid before.
    fourth = merge(FILES, [resource(validating(READING), 2)], again)
    assert reasons(fourth) == {"p": "Invalid"}
    assert not kinds_read(fourth.config)
    own = validating(READING.replace('"default", ', ""), namespace="a")
    excused = exception(matchConditions=condition(READING))
    for document in (own, excused):
        (status,) = merge(listed, [resource(document)], None).statuses
        (problem,) = status.problems
        assert "and nothing checks that the author of a policy of another engine may read" in problem.message


@pytest.mark.parametrize(
    "text",
    [
        'globalContext.Get("x") == {}',
        "[globalContext].size() == 1",
        'http.Get("https://example.com") == {}',
        'resource.Post("v1", "pods", "a", {"a": "b"}) != {}',
        'resource.Post("authorization.k8s.io/v1", "subjectaccessreviews", {"a": "b"}) != {}',
        "[1].all(resource, .resource != resource)",
    ],
)
def test_an_exception_does_not_refuse_its_policy(text: str) -> None:
    found = merged([validating("false"), exception(matchConditions=condition(text))])
    assert reasons(found) == {"p": "Accepted", "e": "Invalid"}
    assert outcome(found) != ""
    used = "[1].all(resource, resource == 1) && request.resource.resource != 'resource'"
    fine = merged([validating("false"), exception(matchConditions=condition(used))])
    assert reasons(fine) == {"p": "Accepted", "e": "Accepted"}


def test_a_policy_whose_reads_the_check_of_authors_would_not_see_is_refused(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    maps = ListedKind("v1", "ConfigMap", "configmaps")
    policies = replace(FILES.gateway.policies, resources=(maps,))
    listed = replace(FILES, gateway=replace(FILES.gateway, policies=policies))
    monkeypatch.setattr(spec_reads, "reads_of", lambda _: frozenset())
    message = only_problem(merge(listed, [resource(validating(READING))], None), "p")[1]
    assert message == "reads objects in a way that the check of its author does not see"


def test_entries_stay_the_same_objects_and_nothing_is_read_again(monkeypatch: pytest.MonkeyPatch) -> None:
    documents = [
        *(validating("false"), validating("false", name="q"), exception(), cluster_policy()),
        *(cluster_exception(), template("Never", "false"), constraint("Never"), excluding("a")),
    ]
    first = merged(documents)
    read: list[str] = []

    def noted(one: CustomResource) -> ReadResource:
        read.append(one.name)
        return read_resource(one)

    monkeypatch.setattr("gateway.config.merge.merged.read_resource", noted)
    assert merged(documents, first).config == first.config
    assert read == []
    second = merged([resource(validating("true"), 2), *documents[1:]], first)
    assert read == ["p"]
    before = {id(one) for one in first.config.webhooks}
    assert [one.name for one in second.config.webhooks if id(one) not in before] == ["p"]
    without = merged([each for each in documents if each["metadata"]["name"] != "e"], first)
    assert [one.name for one in without.config.webhooks if id(one) not in before] == ["p"]


def test_documents_nested_too_deep_and_of_odd_types_are_refused_alone() -> None:
    deep: Any = "x"
    for _ in range(2000):
        deep = {"a": deep}
    odd: list[Json] = []
    for number, spec in enumerate([deep, [], None, 1, {"validations": deep}, {"matchConstraints": [1]}]):
        document = validating("false", name=f"odd{number}")
        odd.append({**document, "spec": spec})
    found = merged([*odd, validating("false")])
    assert outcome(found) == outcome(merged([validating("false")]))
    assert reasons(found) == {**{f"odd{number}": "Invalid" for number in range(6)}, "p": "Accepted"}
    assert only_problem(found, "odd0")[1] == "nested deeper than 100 levels"


VERSIONS: Final[dict[str, list[Json]]] = {
    "p": [validating("false"), validating("true"), validating("no such"), {**validating(), "spec": []}],
    "e": [exception(), exception(matchConditions=[{"name": "c", "expression": "no such"}])],
    "cp": [cluster_policy(), cluster_policy(expressions=[{"expression": "("}])],
    "ce": [cluster_exception(), cluster_exception("none")],
    "never": [
        template("Never", "false", schema=SCHEMA),
        template("Never", "("),
        template("Never", "true", schema={"type": "object", "properties": {"n": {"type": "string"}}}),
    ],
    "c": [constraint("Never", parameters={"n": 1}), constraint("Never", parameters={"n": "x"})],
    "config": [excluding("default"), excluding("UPPER")],
}
"""By name, of each resource the versions that it may have."""
OTHERS: Final = [validating("false", name="other"), template("Other", "false"), constraint("Other", "oc")]


@st.composite
def hostile(draw: st.DrawFn) -> Json:
    """A document with junk somewhere below its metadata, or in it."""
    documents = (*(found[0] for found in VERSIONS.values()), mutating("[]", name="p"))
    document: Json = json.loads(json.dumps(draw(st.sampled_from(documents))))
    for _ in range(draw(st.integers(1, 3))):
        found = [each for each in places(document) if each[1] not in ("name", "apiVersion", "kind")]
        container, key = draw(st.sampled_from(found))
        junk = draw(JUNK)
        if junk != "\ud800":
            container[key] = json.loads(json.dumps(junk))
    return document


@given(hostile())
def test_a_hostile_document_costs_its_author_only(document: Json) -> None:
    alone = merged(OTHERS)
    metadata = document.get("metadata")
    named = {**(metadata if isinstance(metadata, dict) else {}), "name": "hostile"}
    found = merged([{**document, "metadata": named}, *OTHERS], alone)
    for name in ("other", "oc"):
        assert outcome(found, name) == outcome(alone, name) != ""
    assert all("internal error" not in str(each) for one in found.statuses for each in one.problems)


WITH_WORKER: Final = Config(
    gateway=GatewaySettings(
        policies=PolicySettings(
            custom_resources_of=("Gatekeeper",),
            engines=EnginesEntry(gatekeeper=EngineEntry(place="", pool="gatekeeper")),
        )
    )
)


def test_what_is_for_gatekeepers_worker_is_in_force_with_it() -> None:
    documents = [rego_template(), constraint(name="p"), mutator("m"), mutator("n")]
    found = merged(documents, files=WITH_WORKER)
    assert set(reasons(found).values()) == {"Accepted"}
    assert [hook.worker.policy for hook in found.config.webhooks] == ["mutation", "NeedsLabels/p"]
    # Without a change they are the same entries.
    again = merge(WITH_WORKER, [one.resource for one in found.statuses], found)
    assert all(new is old for new, old in zip(again.config.webhooks, found.config.webhooks, strict=True))


def test_what_is_for_gatekeepers_worker_is_refused_without_it() -> None:
    found = merged([rego_template(), constraint(name="p"), mutator("m")])
    assert reasons(found) == {"needslabels": "Invalid", "p": "Invalid", "m": "Invalid"}
    assert found.config.webhooks == ()
    for name in reasons(found):
        assert "name its pool in policies.engines.gatekeeper" in only_problem(found, name)[1]


def test_mutators_of_files_are_not_joined_by_those_of_the_cluster() -> None:
    files = replace(WITH_WORKER, loaded=frozenset({("Assign.mutations.gatekeeper.sh", "a")}))
    found = merged([mutator("m"), mutator("a")], files=files)
    assert reasons(found) == {"m": "NotUsed", "a": "NameInFiles"}
    assert found.config.webhooks == ()


def test_an_exception_of_the_gateway_can_name_them() -> None:
    spec = {
        "webhooks": ["p"],
        "match": {"users": ["bot"]},
        "reason": "migration",
        "owner": "team-a",
        "expires": "2099-12-01T00:00:00Z",
    }
    own = CustomResource("PolicyException", "own", {"metadata": {"name": "own"}, "spec": spec}, "default")
    assert reasons(merged([validating("false"), own])) == {"p": "Accepted", "own": "Accepted"}
    assert reasons(merged([own])) == {"own": "UnknownWebhook"}


def test_a_kept_configuration_has_them(tmp_path: Path) -> None:
    first = merged([validating("false"), exception(), validating("no such", name="never")])
    history = History(tmp_path)
    history.record(replace(first.config, source=b"[]"), resources_in_force(first), "d", [], "")
    kept = history.load("d").resources
    assert [one.key for one in kept] == [
        ("PolicyException.policies.kyverno.io", "exceptions/e"),
        ("ValidatingPolicy.policies.kyverno.io", "p"),
    ]
    assert outcome(merge(FILES, kept, None)) == "allowed"


def test_a_pinned_configuration_has_its_versions_of_them() -> None:
    first = merged([validating("false"), exception()])
    kept = tuple(resources_in_force(first))
    pinned = Pinned("d" * 64, "2026-01-01T00:00:00Z", kept)
    now = [resource(validating("true"), 2)]
    found = merge_pinned(FILES, pinned, now, merged(now), 0.0)
    assert outcome(found) == "allowed"
    assert isinstance(found.config.validating[0].policy, KyvernoValidatingPolicy)
    assert [one.id for one in found.config.validating[0].policy.exceptions] == ["exceptions/e"]
    assert reasons(found) == {"p": "Pinned"}


STEPS: Final = st.lists(
    st.fixed_dictionaries(
        {}, optional={name: st.integers(0, len(found) - 1) for name, found in VERSIONS.items()}
    ),
    min_size=1,
    max_size=4,
)


@given(steps=STEPS)
def test_resources_do_not_affect_each_other(steps: list[dict[str, int]]) -> None:
    before: Merged | None = None
    for step in steps:
        resources = [resource(VERSIONS[name][number], number) for name, number in step.items()]
        found = merged(resources, before)
        # Order of arrival does not count.
        backwards = merged(resources[::-1], before)
        assert backwards.statuses == found.statuses
        assert [one.name for one in backwards.config.webhooks] == [one.name for one in found.config.webhooks]
        # What is in force is there, and what is accepted decides as it does in no other's company.
        names = {hook.name for hook in found.config.webhooks}
        assert names <= step.keys()
        for status in found.statuses:
            if status.is_in_force and status.resource.kind in ("ValidatingPolicy", "ClusterPolicy"):
                alone = [one for one in resources if one.group == status.resource.group]
                assert outcome(found, status.resource.name) == outcome(merged(alone), status.resource.name)
            elif status.resource.kind == "PolicyException" and status.problems:
                assert status.effect == "the exception does not apply"
        before = found
