"""The index of a Selection gives the same answers with and without its cache."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from gateway.core.labels import Requirement, Selector
from gateway.core.matching import Selection, object_matches, selectable_labels, selectors_match
from gateway.core.namespace import Namespace
from gateway.core.rules import is_never_sent, rules_match
from gateway.core.verdict import Failed, FailureReason
from gateway.core.webhook import Rule, Webhook
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
        lambda rule, of_namespaces, of_objects: webhook(
            rules=(rule,), namespace_selector=of_namespaces, object_selector=of_objects
        ),
        RULES,
        SELECTORS,
        SELECTORS,
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


@given(WEBHOOKS, st.lists(REQUESTS, max_size=12))
def test_a_cached_selection_equals_the_rules_and_selectors(
    webhooks: list[Webhook], given: list[tuple[str, str, dict[str, str], Namespace | Failed | None]]
) -> None:
    selection = Selection("mutate", webhooks)
    for operation, path, labels, namespace in given:
        name = namespace.name if isinstance(namespace, Namespace) else "gone"
        review = request(
            operation=operation,
            resource=resource(path),
            namespace=None if path == "/v1/nodes" else name,
            object={"metadata": {"labels": labels}},
        )
        wanted = [
            (position, matched)
            for position, hook in enumerate(webhooks)
            if rules_match(hook, review) and not is_never_sent(review)
            if (matched := selectors_match(hook, review, review.object, namespace)) is not False
        ]
        found = [
            (one.position, matched)
            for one in selection.invocations(review, namespace)
            if (
                matched := one.has_matched_selectors
                or (
                    object_matches(one.webhook, selectable_labels(review.object, None))
                    if one.has_matched_namespace
                    else selectors_match(one.webhook, review, review.object, namespace)
                )
            )
            is not False
        ]
        assert found == wanted
