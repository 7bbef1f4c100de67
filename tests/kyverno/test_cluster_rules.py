"""The parts of Kyverno's ClusterPolicies: texts, wildcards, kinds, filters and autogen.

``cluster_rules.jsonl`` has what Kyverno's own functions of version 1.19.0 return.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.cel import meter
from gateway.pure.cel.meter import BRIEF_LIMIT, EXPRESSION_LIMIT
from gateway.pure.core.conditions import ConditionInput
from gateway.pure.core.labels import EVERYTHING
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.policy import PolicyInput
from gateway.pure.kyverno.cluster_autogen import (
    ANNOTATION,
    PREFIX,
    RuleVariants,
    controllers_of,
    for_cron_jobs,
    for_workloads,
    is_fit,
    needs_variants,
    rules_for,
    unknown_controllers,
)
from gateway.pure.kyverno.failure_action import ActionOverride, FailureAction
from gateway.pure.kyverno.go_yaml import as_yaml
from gateway.pure.kyverno.kind_rules import rules_for_kinds
from gateway.pure.kyverno.resource_match import (
    Filter,
    Filters,
    KindParts,
    KindPattern,
    MatchInput,
    Subject,
    WildcardSelector,
    parse_kind,
)
from gateway.pure.kyverno.wildcards import Wildcard, name_pattern
from tests.core.build import labelled, request

if TYPE_CHECKING:
    from collections.abc import Mapping

Json = dict[str, Any]

RECORDED = [
    json.loads(line) for line in Path(__file__).with_name("cluster_rules.jsonl").read_text().splitlines()
]


@pytest.fixture(autouse=True)
def _evaluation() -> None:
    """Wildcards count steps of the evaluation of a policy."""
    meter.start(EXPRESSION_LIMIT)


def rows(function: str) -> pytest.MarkDecorator:
    found = [each for each in RECORDED if each["Fn"] == function]
    return pytest.mark.parametrize("row", found, ids=range(len(found)))


@rows("yaml")
def test_texts_are_written_as_by_go(row: Json) -> None:
    assert as_yaml(row["M"]) == row["answer"]


@rows("kind")
def test_kinds_are_parsed_as_by_kyverno(row: Json) -> None:
    parts = parse_kind(row["A"])
    assert list(parts or ("", "", "", "")) == row["answer"]


@rows("wildcard")
def test_wildcards_match_as_by_kyverno(row: Json) -> None:
    assert Wildcard(row["A"]).matches(row["B"]) == row["answer"]
    assert bool(name_pattern(row["A"]).fullmatch(row["B"])) == row["answer"]


def by_recursion(pattern: str, text: str) -> bool:
    if not pattern:
        return not text
    if pattern[0] == "*":
        return by_recursion(pattern[1:], text) or (text != "" and by_recursion(pattern, text[1:]))
    return text != "" and pattern[0] in ("?", text[0]) and by_recursion(pattern[1:], text[1:])


@given(st.text("ab*?\n\u00e9.", max_size=7), st.text("ab\n\u00e9.", max_size=7))
def test_wildcards_mean_what_kyverno_says(pattern: str, text: str) -> None:
    assert Wildcard(pattern).matches(text) == by_recursion(pattern, text)
    assert bool(name_pattern(pattern).fullmatch(text)) == by_recursion(pattern, text)


def test_many_stars_take_linear_time() -> None:
    """Kyverno's own function would not end."""
    assert not Wildcard("a*" * 500 + "b").matches("a" * 100_000)
    assert not name_pattern("a*" * 500 + "b").fullmatch("a" * 1000)


def test_kinds_are_read_without_an_evaluation() -> None:
    """Configurations are read in threads that evaluate expressions: before, the steps could run out."""
    meter.start(BRIEF_LIMIT)
    wanted = [(KindParts(f"*{number}?", "*", "P*d", ""), frozenset({"CREATE"})) for number in range(1000)]
    assert rules_for_kinds(wanted)
    assert meter.METER.steps == 0


def test_kinds_that_have_one_version_can_share_an_entry_with_what_autogen_names() -> None:
    create = frozenset({"CREATE"})
    named = [
        (KindParts("*", "*", "Deployment", ""), create),
        (KindParts("apps", "v1", "StatefulSet", ""), create),
    ]
    assert [rule.api_versions for rule in rules_for_kinds(named)] == [("v1",)]
    others = [(KindParts("*", "*", kind, ""), create) for kind in ("HorizontalPodAutoscaler", "Widget")]
    assert {rule.api_versions for rule in rules_for_kinds(others)} == {("*",), ("v1",)}


@rows("autogen")
def test_rules_are_made_as_by_kyverno(row: Json) -> None:
    policy = row["Policy"]
    controllers = controllers_of(policy["metadata"]["annotations"].get(ANNOTATION))
    kind = row["Kind"]
    variants = [
        RuleVariants(
            rule,
            # Kyverno makes rules for the kind of the request alone.
            for_workloads(rule, [kind] if kind in controllers else []),
            for_cron_jobs(rule, controllers),
            is_named_as_made=rule["name"].startswith(PREFIX),
            is_fit=is_fit(rule),
            needs_variants=needs_variants(rule),
        )
        for rule in policy["spec"]["rules"]
    ]
    assert [without_empty(each) for each in rules_for(variants, kind, controllers)] == row["answer"]


def without_empty(value: Any) -> Any:
    if isinstance(value, dict):
        return {
            name: each for name, of in value.items() if (each := without_empty(of)) not in (None, {}, [], "")
        }
    return [without_empty(each) for each in value] if isinstance(value, list) else value


def test_unknown_controllers_are_found() -> None:
    assert unknown_controllers("Deployment, CronJob,all,none") == [" CronJob", "all"]


LABELS = {"app": "web", "env": "prod"}


def found(
    *, labels: Mapping[str, str] = LABELS, space: Mapping[str, str] | None = None, **members: Any
) -> MatchInput:
    metadata = {"name": "web-1", "namespace": "default", "labels": dict(labels)}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata}
    asked = request(object=pod, userInfo={"username": "bob", "groups": ["devs"]}, **members)
    namespace = None if space is None else Namespace("default", space, b"{}")
    policy_input = PolicyInput(ConditionInput(asked.document, asked.object, None), asked, namespace)
    return MatchInput(policy_input, asked.object)


def kinds(*texts: str) -> tuple[KindPattern, ...]:
    parsed = [parse_kind(each) for each in texts]
    return tuple(KindPattern(*map(Wildcard, each)) for each in parsed if each is not None)


YES = Filter(kinds=kinds("Pod"))
NO = Filter(kinds=kinds("Service"))
BLOCKS = st.lists(st.sampled_from([YES, NO]), min_size=1, max_size=4)


@given(BLOCKS)
def test_any_is_one_of_them_and_all_is_every_one(blocks: list[Filter]) -> None:
    asked = found()
    results = [each is YES for each in blocks]
    for method in ("include", "exclude", "make_exception"):
        assert getattr(Filters("any", tuple(blocks)), method)(asked) == any(results)
        assert getattr(Filters("all", tuple(blocks)), method)(asked) == all(results)


FIELDS: Json = {
    "kinds": (kinds("*/Pod", "Nothing"), kinds("Service")),
    "names": ((Wildcard("web-?"),), (Wildcard("web"),)),
    "namespaces": ((Wildcard("def*"),), (Wildcard("kube-*"),)),
    "annotations": ((), ((Wildcard("*"), Wildcard("*")),)),
    "selector": (
        WildcardSelector(EVERYTHING, ((Wildcard("a*"), Wildcard("???")),)),
        WildcardSelector(EVERYTHING, ((Wildcard("a*"), Wildcard("pro?")),)),
    ),
    "operations": (frozenset({"CREATE"}), frozenset({"DELETE"})),
    "subjects": (
        (Subject(is_group=True, name=Wildcard("dev?")),),
        (Subject(is_group=False, name=Wildcard("al")),),
    ),
}
"""For each field what matches and what does not."""


@given(st.lists(st.sampled_from(sorted(FIELDS)), min_size=1, unique=True), st.sampled_from(sorted(FIELDS)))
def test_all_fields_of_a_block_have_to_match(names: list[str], other: str) -> None:
    asked = found()
    matching = Filter(**{name: FIELDS[name][0] for name in {"kinds", *names}})
    assert matching.includes(asked)
    assert matching.excludes(asked)
    with_wrong = Filter(**{**{name: FIELDS[name][0] for name in names}, other: FIELDS[other][1]})
    assert not with_wrong.includes(asked)
    assert not with_wrong.excludes(asked)


def test_an_empty_block_matches_nothing() -> None:
    assert not Filter().includes(found())
    assert not Filter().excludes(found())
    assert not Filter().excepts(found())


def test_exceptions_do_not_look_at_operations() -> None:
    block = Filter(kinds=kinds("Pod"), operations=frozenset({"DELETE"}))
    assert block.excepts(found())
    assert not block.includes(found())


ENV = WildcardSelector(labelled("env", "prod"), ())
OTHER = WildcardSelector(labelled("env", "x"), ())
WILD = WildcardSelector(EVERYTHING, ((Wildcard("e*"), Wildcard("*")),))
PROD = {"env": "prod"}


def enforced(namespaces: str = "", selector: WildcardSelector | None = None) -> ActionOverride:
    names = (Wildcard(namespaces),) if namespaces else ()
    return ActionOverride(enforces=True, namespaces=names, selector=selector)


@pytest.mark.parametrize(
    ("override", "is_chosen", "is_for"),
    [
        (enforced(), True, True),
        (enforced("sh*"), True, True),
        (enforced("other"), False, False),
        (enforced(selector=ENV), True, True),
        # One is enough for the cache; the engine wants both.
        (enforced("other", ENV), True, False),
        (enforced("sh*", OTHER), True, False),
        # The cache knows no wildcards in selectors.
        (
            enforced(selector=WILD),
            False,
            True,
        ),
    ],
)
def test_overrides_are_compared_twice(override: ActionOverride, *, is_chosen: bool, is_for: bool) -> None:
    assert override.is_chosen("shop", PROD) == is_chosen
    assert override.is_for("shop", PROD) == is_for


def test_the_action_of_a_rule_and_the_overrides_of_its_policy_have_two_orders() -> None:
    everywhere = (enforced(),)
    of_rule = FailureAction(of_rule=False, of_policy=False, rule_overrides=(), policy_overrides=everywhere)
    assert of_rule.is_chosen("shop", {}), "the cache takes the override"
    assert not of_rule.refuses("shop", {}), "the engine takes the action of the rule"
    assert of_rule.may_enforce
    assert not FailureAction(
        of_rule=None, of_policy=False, rule_overrides=(), policy_overrides=()
    ).may_enforce


def test_a_request_without_a_namespace_has_the_action_of_no_namespace() -> None:
    assert not enforced("*").is_chosen("", {})
    assert enforced().is_chosen("", {})
