"""Laws of an inspection, for any configuration and its ``manifests``."""

from __future__ import annotations

import copy
import datetime
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.engine.paths import Paths
from gateway.pure.core.labels import Requirement, Selector
from gateway.tools.inspection.coverage import implied, uncovered
from gateway.tools.inspection.model import ClusterState
from gateway.tools.inspection.registration import inspect
from gateway.tools.registration.plan import RegistrationOptions, plan
from tests.registration.apiserver import ClientRequest, rule_is_for, version_sent
from tests.registration.kit import SERVICE, as_json, configured, few_rules, requests, rules, webhooks

if TYPE_CHECKING:
    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Rule, Webhook
    from gateway.tools.inspection.model import Finding

some = settings(max_examples=50)

NOW = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)
phases = st.sampled_from(["mutate", "validate"])
requirements = st.builds(
    lambda key, operator, values: Requirement(
        key, operator, frozenset(values) if operator in ("In", "NotIn") else frozenset()
    ),
    st.sampled_from(["team", "kind"]),
    st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
    st.sets(st.sampled_from("abc"), min_size=1),
)
selectors = st.builds(Selector, st.lists(requirements, max_size=2).map(tuple))
wishes = st.builds(
    RegistrationOptions,
    st.just(SERVICE),
    name=st.sampled_from(["admission-gateway", "other"]),
    split_mutating=st.booleans(),
    excluded_namespaces=st.sampled_from([(), ("monitoring",)]),
    included=st.sampled_from([frozenset(), frozenset({"events", "leases.coordination.k8s.io"})]),
)


@st.composite
def several(draw: st.DrawFn) -> list[Webhook]:
    """Webhooks of one phase; all fields vary that an entry is made from."""
    phase = draw(phases)
    shared = draw(selectors), draw(selectors)
    return [
        replace(
            hook,
            namespace_selector=draw(st.just(shared[0]) | selectors),
            object_selector=draw(st.just(shared[1]) | selectors),
            side_effects=draw(st.sampled_from(["None", "None", "NoneOnDryRun"])),
            timeout_s=draw(st.integers(1, 30)),
            reinvocation_policy=draw(st.sampled_from(["Never", "IfNeeded"]))
            if phase == "mutate"
            else "Never",
        )
        for hook in draw(webhooks(phase))
    ]


def registered(config: Config, wishes: RegistrationOptions) -> list[dict[str, Any]]:
    documents: list[dict[str, Any]] = copy.deepcopy(plan(config, wishes).documents)
    return documents


def found(config: Config, documents: list[dict[str, Any]]) -> list[Finding]:
    """All findings but those about certificates, of which there are none, and about namespaces."""
    seen = ClusterState(configurations=documents)
    return [
        one
        for one in inspect(config, seen, NOW, 30)
        if "caBundle" not in one.message
        and "tls.certFile" not in one.message
        and not one.place.startswith("namespace")
    ]


@some
@given(several(), wishes)
def test_what_manifests_registers_has_no_findings(hooks: list[Webhook], wishes: RegistrationOptions) -> None:
    config = configured(*hooks)
    assert found(config, registered(config, wishes)) == []


@some
@given(several(), wishes, st.data())
def test_a_removed_rule_is_reported(
    hooks: list[Webhook], wishes: RegistrationOptions, data: st.DataObject
) -> None:
    config = configured(*hooks)
    documents = registered(config, wishes)
    entries = [entry for document in documents for entry in document["webhooks"]]
    entry = data.draw(st.sampled_from(entries))
    before = copy.deepcopy(entry)
    entry["rules"].remove(data.draw(st.sampled_from(entry["rules"])))
    findings, paths = found(config, documents), Paths(config)
    for client_request in data.draw(requests(20)):
        sent, now_sent = (
            version_sent(one["rules"], one["matchPolicy"], client_request) for one in (before, entry)
        )
        if sent is None or sent == now_sent:
            continue
        for hook in hooks:
            if any(rule_is_for(as_json(one), client_request, sent) for one in rules_by(before, hook, paths)):
                named = [one for one in findings if one.place.endswith(f" {hook.configuration}/{hook.name}")]
                assert named, (client_request, findings)


def rules_by(entry: dict[str, Any], hook: Webhook, paths: Paths) -> tuple[Rule, ...]:
    """Return the rules for which *entry* leads to *hook*: its path may select some of them only."""
    selected = paths[entry["clientConfig"]["service"]["path"]].webhooks
    return next((one.rules for one in selected if one.name == hook.name), ())


@given(rules, few_rules, requests(30))
def test_uncovered_is_exactly_what_no_rule_matches(
    rule: Rule, by: tuple[Rule, ...], all_asked: list[ClientRequest]
) -> None:
    missing, perhaps = uncovered(rule, by)
    kinds = [[as_json(one) for one in several] for several in (missing, [rule], by, perhaps)]
    for client_request in all_asked:
        is_missed, is_wanted, is_covered, is_half = (
            any(rule_is_for(one, client_request, client_request.version) for one in several)
            for several in kinds
        )
        assert is_missed or is_half or not is_wanted or is_covered
        assert is_wanted or not (is_missed or is_half)
        # A wildcard in what is missed means all names but those that others give.
        if not any("*" in text for one in (rule, *by) for text in str(one)):
            assert not (is_covered and (is_missed or is_half))
    assert uncovered(rule, [rule]) == ([], [])


@given(selectors, requirements, st.dictionaries(st.sampled_from(["team", "kind"]), st.sampled_from("abcd")))
def test_implied_requirements_hold(selector: Selector, wanted: Requirement, labels: dict[str, str]) -> None:
    if implied(selector, wanted) and selector.matches(labels):
        assert wanted.matches(labels)


@some
@given(several(), wishes)
def test_findings_have_a_fixed_order(hooks: list[Webhook], wishes: RegistrationOptions) -> None:
    config = configured(*hooks)
    documents = registered(config, wishes)
    for document in documents:
        for entry in document["webhooks"]:
            entry.update(failurePolicy="Ignore", timeoutSeconds=1, rules=entry["rules"][1:])
    first = found(config, documents)
    assert first == sorted(first) == found(config, list(reversed(documents)))
