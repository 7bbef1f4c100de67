"""A registration must not change which webhooks are called for a request, their versions, or their order."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from gateway.engine.paths import Paths
from gateway.pure.core.rules import rules_match
from gateway.pure.core.versions import by_versions
from gateway.tools.registration.exclusions import INCLUDABLE
from gateway.tools.registration.partition import Relations, assign_rounds, sort_key
from gateway.tools.registration.plan import RegistrationOptions, plan
from gateway.tools.registration.union import covers, union
from tests.core.build import webhook
from tests.registration.apiserver import ClientRequest, rule_is_for, version_sent
from tests.registration.kit import (
    SERVICE,
    VERSIONS,
    WISHES,
    as_json,
    as_sent,
    configured,
    entries_of,
    few_rules,
    is_valid,
    path,
    read_back,
    requests,
    rule,
    rule_lists,
    webhooks,
)
from tests.registration.operators import operators

if TYPE_CHECKING:
    from gateway.pure.core.webhook import Rule, Webhook

thorough = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])

wishes = st.builds(
    RegistrationOptions,
    st.just(SERVICE),
    split_mutating=st.booleans(),
    included=st.just(frozenset(INCLUDABLE)),
)


def called(paths: Paths, made: list[dict[str, Any]], client_request: ClientRequest) -> list[tuple[str, str]]:
    """The webhooks that the gateway calls for a request through all entries, each with the version."""
    found = []
    for entry in made:
        version = version_sent(entry["rules"], entry["matchPolicy"], client_request)
        if version is not None:
            request = as_sent(client_request, version)
            selected = paths.get(path(entry))
            hooks = () if selected is None else selected.webhooks
            found += [(hook.name, version) for hook in hooks if rules_match(hook, request)]
    return found


def called_alone(hooks: list[Webhook], client_request: ClientRequest) -> list[tuple[str, str]]:
    """The webhooks that the API server would call if each were registered by itself."""
    found = []
    for hook in hooks:
        version = version_sent([as_json(rule) for rule in hook.rules], hook.match_policy, client_request)
        if version is not None:
            found.append((hook.name, version))
    return found


@thorough
@given(st.sampled_from(["mutate", "validate"]).flatmap(webhooks), wishes, st.data())
def test_every_webhook_gets_the_requests_it_would_get_alone(
    hooks: list[Webhook], wishes: RegistrationOptions, data: st.DataObject
) -> None:
    config = configured(*hooks)
    made, paths = entries_of(plan(config, wishes)), Paths(config)
    for client_request in data.draw(requests(10)):
        by_gateway, alone = called(paths, made, client_request), called_alone(hooks, client_request)
        if hooks[0].phase == "validate" or wishes.split_mutating:
            by_gateway.sort()
        assert by_gateway == alone


@thorough
@given(webhooks("mutate"), st.permutations(["early", "late", "a", "z", "m"]), st.data())
def test_webhooks_that_after_has_moved_get_their_requests_in_that_order(
    hooks: list[Webhook], names: list[str], data: st.DataObject
) -> None:
    moved = [
        replace(hook, configuration=name, after=("x.policies.test",))
        for hook, name in zip(hooks, names, strict=False)
    ]
    config = configured(*moved)
    made, paths = entries_of(plan(config, RegistrationOptions(SERVICE))), Paths(config)
    for client_request in data.draw(requests(10)):
        assert called(paths, made, client_request) == called_alone(moved, client_request)


@thorough
@given(st.sampled_from(["mutate", "validate"]).flatmap(webhooks), wishes)
def test_registrations_are_valid_for_the_api_server(
    hooks: list[Webhook], wishes: RegistrationOptions
) -> None:
    made = plan(configured(*hooks), wishes)
    again = read_back(made.documents)
    registered = [*again.mutating, *again.validating]
    assert [hook.name for hook in registered] == [entry["name"] for entry in entries_of(made)]
    for hook, entry in zip(registered, entries_of(made), strict=True):
        assert [as_json(rule) for rule in hook.rules] == [
            {key: tuple(value) if isinstance(value, list) else value for key, value in rule.items()}
            for rule in entry["rules"]
        ]


@thorough
@given(st.sampled_from(["mutate", "validate"]).flatmap(webhooks), wishes)
def test_every_webhook_is_in_one_entry_with_its_failure_policy_or_a_stricter_one(
    hooks: list[Webhook], wishes: RegistrationOptions
) -> None:
    config = configured(*hooks)
    paths = Paths(config)
    made = entries_of(plan(config, wishes))
    chosen = [(hook, entry["failurePolicy"]) for entry in made for hook in paths[path(entry)].webhooks]
    rules = [(hook.name, rule) for hook, _ in chosen for rule in hook.rules]
    assert sorted(rules, key=str) == sorted(
        ((hook.name, one) for hook in hooks for one in hook.rules), key=str
    )
    for hook, policy in chosen:
        is_one_for_all = hook.phase == "mutate" and not wishes.split_mutating
        assert policy == hook.failure_policy or (is_one_for_all and policy == "Fail")


@thorough
@given(rule_lists, requests(10))
def test_a_union_is_for_the_same_requests_in_the_same_versions(
    several: list[Rule], client_requests: list[ClientRequest]
) -> None:
    kept = union(several, is_exact=False)
    before, after = [as_json(rule) for rule in several], [as_json(rule) for rule in kept]
    for client_request in client_requests:
        assert version_sent(after, "Equivalent", client_request) == version_sent(
            before, "Equivalent", client_request
        )
    assert all(is_valid(rule) for rule in kept)
    assert len(kept) <= len(several)


@thorough
@given(rule_lists, requests(10))
def test_a_union_of_exact_rules_names_the_same_versions(
    several: list[Rule], client_requests: list[ClientRequest]
) -> None:
    kept = union(several, is_exact=True)
    rules, fewer = ([as_json(rule) for rule in each] for each in (several, kept))
    for client_request, version in product(client_requests, (*VERSIONS, "v3")):
        before = any(rule_is_for(rule, client_request, version) for rule in rules)
        assert any(rule_is_for(rule, client_request, version) for rule in fewer) == before
    assert all(is_valid(rule) for rule in kept)
    assert not any(covers(one, other) for one in kept for other in kept if one is not other)


@thorough
@given(few_rules)
def test_the_union_with_itself_is_itself(several: tuple[Rule, ...]) -> None:
    once = union(several, is_exact=False)
    assert union([*several, *several], is_exact=False) == once
    assert union(once, is_exact=False) == once


@thorough
@given(webhooks("validate"), requests(10))
def test_requests_that_two_webhooks_are_for_are_all_foreseen(
    hooks: list[Webhook], several: list[ClientRequest]
) -> None:
    relations = Relations(hooks)
    for client_request in several:
        are_for = frozenset(
            place
            for place, hook in enumerate(hooks)
            if any(
                rule_is_for(as_json(rule), client_request, v)
                for rule in hook.rules
                for v in (*VERSIONS, "v3")
            )
        )
        # "v3" stands for any version that is not named, which only "*" has.
        assert not are_for or any(are_for <= cell for cell in relations.matched_together)
        assert all(relations.overlap(one, other) for one in are_for for other in are_for if one < other)


@thorough
@given(webhooks("mutate"))
def test_rounds_keep_the_order_of_webhooks_that_meet(hooks: list[Webhook]) -> None:
    parts = [(key, part) for hook in hooks for key, part in by_versions(hook).items()]
    keys, relations = [key for key, _ in parts], Relations([part for _, part in parts])
    rounds = assign_rounds(keys, relations)
    turns = [(number, sort_key(key)) for number, key in zip(rounds, keys, strict=True)]
    for later in range(len(parts)):
        for earlier in range(later):
            if keys[earlier] == keys[later]:
                assert rounds[earlier] <= rounds[later]
                assert not relations.conflict(earlier, later)
            elif relations.overlap(earlier, later):
                assert turns[earlier] < turns[later]


@thorough
@given(st.sampled_from(["mutate", "validate"]).flatmap(webhooks), wishes)
def test_the_same_configuration_is_registered_the_same_way(
    hooks: list[Webhook], wishes: RegistrationOptions
) -> None:
    assert plan(configured(*hooks), wishes) == plan(configured(*hooks), wishes)


@thorough
@given(st.sampled_from(["mutate", "validate"]).flatmap(webhooks), wishes)
def test_entries_are_called_in_the_order_of_their_names(
    hooks: list[Webhook], wishes: RegistrationOptions
) -> None:
    names = [entry["name"] for entry in entries_of(plan(configured(*hooks), wishes))]
    assert names == sorted(names)
    assert len(set(names)) == len(names)


@thorough
@given(st.sampled_from(["mutate", "validate"]).flatmap(webhooks), wishes, st.data())
def test_gateways_with_more_or_fewer_webhooks_than_registered_lose_none(
    hooks: list[Webhook], wishes: RegistrationOptions, data: st.DataObject
) -> None:
    """Webhooks in both configurations are called once, or perhaps twice if mutating webhooks were removed."""
    places = st.sets(st.sampled_from(range(len(hooks))))
    registered, served = ([hooks[n] for n in sorted(data.draw(places))] for _ in "12")
    paths = Paths(configured(*served, *(hook for hook in hooks[:1] if not served)))
    made = entries_of(plan(configured(*registered), wishes))
    in_both = {hook.name for hook in registered if hook in served}
    for client_request in data.draw(requests(10)):
        names = [name for name, _ in called(paths, made, client_request)]
        are_all_there = all(hook in served for hook in registered)
        assert len(set(names)) == len(names) or (hooks[0].phase == "mutate" and not are_all_there)
        alone = {name for name, _ in called_alone(served, client_request)}
        assert set(names) <= {hook.name for hook in served} | {hooks[0].name}
        assert alone & in_both <= set(names)


@thorough
@given(
    st.lists(
        st.builds(rule, st.sampled_from(["pods", "deployments"]), st.sampled_from(["v1", "v1beta1"])),
        min_size=3,
        max_size=8,
    ),
    st.data(),
)
def test_removed_mutating_webhooks_affect_no_other(rules: list[Rule], data: st.DataObject) -> None:
    """The webhooks of a section are also called if its first webhook was removed."""
    names = data.draw(st.sampled_from([("early", "early"), ("early", "late")]))
    hooks = [
        webhook(f"h{number}.policies.test", configuration=names[number // 4], rules=(one,))
        for number, one in enumerate(rules)
    ]
    served = [hook for hook in hooks if data.draw(st.booleans())] or hooks[:1]
    made, paths = entries_of(plan(configured(*hooks), WISHES)), Paths(configured(*served))
    for resource, version in product(("pods", "deployments"), ("v1", "v1beta1")):
        client_request = ClientRequest("CREATE", "", version, resource, "", "default", ("v1", "v1beta1"))
        wanted = called_alone(served, client_request)
        assert set(wanted) <= set(called(paths, made, client_request))


@thorough
@given(webhooks("validate"), wishes, st.data())
def test_another_webhook_changes_no_path_and_no_name(
    hooks: list[Webhook], wishes: RegistrationOptions, data: st.DataObject
) -> None:
    another = data.draw(st.sampled_from(hooks))
    fewer = [hook for hook in hooks if hook is not another]
    before, after = (
        {entry["name"]: path(entry) for entry in entries_of(plan(configured(*several), wishes))}
        for several in (fewer, hooks)
    )
    for name, one in before.items():
        if "versions" in one:
            assert after[name] == one


@pytest.mark.parametrize(
    "count", [105, *(pytest.param(count, marks=pytest.mark.slow) for count in (421, 1842))]
)
@pytest.mark.parametrize("phase", ["mutate", "validate"])
def test_many_operators_have_short_paths_that_stay(count: int, phase: str) -> None:
    hooks = operators(count, phase)
    entries = entries_of(plan(configured(*hooks), WISHES))
    paths = {entry["name"]: path(entry) for entry in entries}
    assert max(map(len, paths.values())) < 200
    assert list(paths) == sorted(paths)
    by_name = {hook.name: [*hook.rules] for hook in hooks}
    served = Paths(configured(*hooks))
    for one in paths.values():
        for part in served[one].webhooks:
            for own in part.rules:
                by_name[part.name].remove(own)
    assert not any(by_name.values()), "every rule is behind one entry"
    if count > 1000:
        return
    another = replace(hooks[-1], name="another.example.io")
    later = {entry["name"]: path(entry) for entry in entries_of(plan(configured(*hooks, another), WISHES))}
    assert {name: later.get(name) for name in paths} == paths
