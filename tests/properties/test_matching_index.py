"""A Selection, with its caches and its index of labels, finds the webhooks that rules and selectors match."""

from __future__ import annotations

from functools import partial

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.pure.core import matching
from gateway.pure.core.labels import Requirement, Selector, SelectorIndex
from gateway.pure.core.matching import Selection, object_matches, selectable_labels, selectors_match
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import is_namespace_write
from gateway.pure.core.rules import is_never_sent, rules_match
from gateway.pure.core.verdict import Failed, FailureReason
from gateway.pure.core.webhook import Rule, Webhook
from tests.core.build import request, resource, webhook

SELECTORS = st.lists(
    st.builds(
        Requirement,
        st.sampled_from(["team", "tier"]),
        st.sampled_from(["In", "NotIn", "Exists", "DoesNotExist"]),
        st.just(frozenset({"a"})),
    ),
    max_size=2,
).map(lambda requirements: Selector(tuple(requirements)))
RULES = st.sampled_from(
    [Rule(("*",), ("*",), ("*",), ("*/*",)), Rule(("CREATE",), ("",), ("v1",), ("pods", "namespaces"))]
)
WEBHOOKS = st.lists(
    st.builds(
        lambda rule, of_namespaces, of_objects, namespace: webhook(
            rules=(rule,),
            namespace_selector=of_namespaces,
            object_selector=of_objects,
            namespace=namespace,
        ),
        RULES,
        SELECTORS,
        SELECTORS,
        st.sampled_from(["", "", "red", "green"]),
    ),
    max_size=5,
)
LABELS = st.dictionaries(st.sampled_from(["team", "tier"]), st.sampled_from(["a", "b"]))
NAMESPACES = (
    st.builds(Namespace, st.sampled_from(["red", "blue"]), LABELS, st.just(b"{}"))
    | st.none()
    | st.just(Failed(FailureReason.NAMESPACE, "no answer"))
)
REQUESTS = st.tuples(
    st.sampled_from(["CREATE", "UPDATE", "DELETE"]),
    st.sampled_from(["/v1/pods", "/v1/nodes", "/v1/namespaces"]),
    LABELS,
    NAMESPACES,
)


@given(WEBHOOKS, st.lists(REQUESTS, max_size=12), st.booleans(), st.sampled_from([0, 3, 100]))
def test_a_cached_selection_equals_the_rules_and_selectors(
    webhooks: list[Webhook],
    given: list[tuple[str, str, dict[str, str], Namespace | Failed | None]],
    has_labels: bool,
    indexed_from: int,
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(matching, "INDEXED", indexed_from)
        selection = Selection("mutate", webhooks)
        for operation, path, labels, namespace in given:
            name = namespace.name if isinstance(namespace, Namespace) else "gone"
            review = request(
                operation=operation,
                resource=resource(path),
                namespace=None if path == "/v1/nodes" else name,
                object={"metadata": {"labels": labels}},
            )
            labels_of = partial(selectable_labels, review.object, None)
            wanted = [
                (position, matched)
                for position, hook in enumerate(webhooks)
                if rules_match(hook, review) and not is_never_sent(review)
                if hook.namespace in ("", review.namespace)
                if (matched := selectors_match(hook, review, review.object, namespace)) is not False
            ]
            selected = selection.invocations(review, namespace, labels_of if has_labels else None)
            if isinstance(namespace, Namespace) and not is_namespace_write(review):
                assert all(one.webhook.namespace in ("", review.namespace) for one in selected)
            found = [
                (one.position, matched)
                for one in selected
                # A policy leaves out requests in another namespace than its own.
                if one.webhook.namespace in ("", review.namespace)
                if (
                    matched := one.has_matched_selectors
                    or (
                        object_matches(one.webhook, labels_of())
                        if one.has_matched_namespace
                        else selectors_match(one.webhook, review, review.object, namespace)
                    )
                )
                is not False
            ]
            assert found == wanted


@given(st.lists(SELECTORS, max_size=12), st.lists(LABELS, max_size=2))
def test_an_index_finds_every_selector_that_matches(
    selectors: list[Selector], labels: list[dict[str, str]]
) -> None:
    found = SelectorIndex(selectors).candidates(labels)
    assert found == sorted(set(found))
    for index, selector in enumerate(selectors):
        if any(map(selector.matches, labels)):
            assert index in found


@given(LABELS)
def test_an_index_leaves_out_selectors_that_require_another_label(labels: dict[str, str]) -> None:
    selectors = [Selector((Requirement("team", "In", frozenset({f"team-{number}"})),)) for number in range(9)]
    index = SelectorIndex(selectors)
    assert index.candidates([labels]) == []
    assert index.candidates([labels, {"team": "team-3"}]) == [3]
