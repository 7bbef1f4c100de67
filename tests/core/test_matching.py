"""Facts of kube-apiserver's namespace and object matchers, and the cache of rule matches."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from gateway.pure.core import matching
from gateway.pure.core.labels import Requirement, Selector
from gateway.pure.core.matching import Selection, selectors_match
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import labels_of
from gateway.pure.core.rules import rules_match
from gateway.pure.core.verdict import Failed, FailureReason
from gateway.pure.core.webhook import Rule, Webhook
from tests.core.build import known, labelled, request, resource, webhook

if TYPE_CHECKING:
    from gateway.pure.core.review import Json

NAMESPACES = {"red": {"team": "a"}, "blue": {"team": "b"}, "bare": {}}
TEAM_A = labelled("team", "a")
MINE: Json = {"metadata": {"name": "x", "labels": {"team": "a"}}}
THEIRS: Json = {"metadata": {"name": "x", "labels": {"team": "b"}}}
BARE: Json = {"metadata": {"name": "x"}}
UNNAMED: Json = {"kind": "PodExecOptions", "command": ["ls"]}


def outcome(hook: Webhook, **members: object) -> bool | Failed:
    """Return the result of the selectors, after a check that the cache by namespace gives the same."""
    given = request(**members)
    namespace = known(NAMESPACES, given)
    matched = selectors_match(hook, given, given.object, namespace)
    if rules_match(hook, given):
        selection = Selection("mutate", [hook])
        for _ in range(2):
            kept = selection.invocations(given, namespace)
            assert (True if kept and kept[0].has_matched_selectors else bool(kept) and matched) == matched
    return matched


@pytest.mark.parametrize(
    ("given", "sub_resource", "operation", "namespace", "new", "expected"),
    [
        ("/v1/pods", "", "CREATE", "red", BARE, True),
        ("/v1/pods", "", "CREATE", "blue", MINE, False),
        ("/v1/pods", "", "DELETE", "bare", None, False),
        ("/v1/pods", "exec", "CONNECT", "red", UNNAMED, True),
        # Cluster-scoped objects are never exempted.
        ("/v1/nodes", "", "CREATE", None, THEIRS, True),
        ("/v1/nodes", "", "DELETE", None, None, True),
        # A Namespace that is made or changed is matched by itself, known or not.
        ("/v1/namespaces", "", "CREATE", "blue", MINE, True),
        ("/v1/namespaces", "", "CREATE", None, MINE, True),
        ("/v1/namespaces", "", "CREATE", None, THEIRS, False),
        ("/v1/namespaces", "", "UPDATE", "red", THEIRS, False),
        ("/v1/namespaces", "", "UPDATE", "nowhere", MINE, True),
        # Its deletion and its subresources match by the known labels.
        ("/v1/namespaces", "", "DELETE", "red", None, True),
        ("/v1/namespaces", "", "DELETE", "blue", None, False),
        ("/v1/namespaces", "finalize", "UPDATE", "red", THEIRS, True),
        ("/v1/namespaces", "status", "UPDATE", "blue", MINE, False),
        # The special case goes by the resource's name, in any group.
        ("example.test/v1/namespaces", "", "CREATE", "blue", MINE, True),
    ],
)
def test_namespace_selector(
    given: str,
    sub_resource: str,
    operation: str,
    namespace: str | None,
    new: object,
    expected: bool,
) -> None:
    members = {
        "resource": resource(given),
        "subResource": sub_resource,
        "operation": operation,
        "namespace": namespace,
        "object": new,
    }
    assert outcome(webhook(namespace_selector=TEAM_A), **members) is expected


@pytest.mark.parametrize(
    "members",
    [
        {"namespace": "nowhere"},
        {"resource": resource("/v1/namespaces"), "operation": "DELETE", "namespace": "nowhere"},
        {"resource": resource("/v1/namespaces"), "subResource": "status", "namespace": "nowhere"},
    ],
)
def test_an_unknown_namespace_is_a_failure_that_names_it(members: dict[str, object]) -> None:
    failure = outcome(webhook(namespace_selector=TEAM_A), **members)
    assert isinstance(failure, Failed)
    assert failure.reason is FailureReason.NAMESPACE
    assert failure.code == 404
    assert '"nowhere" not found' in failure.cause


def test_an_empty_namespace_selector_needs_no_namespace() -> None:
    assert outcome(webhook(), namespace="nowhere") is True


def test_an_object_selector_that_does_not_match_takes_precedence_over_an_unknown_namespace() -> None:
    hook = webhook(namespace_selector=TEAM_A, object_selector=TEAM_A)
    assert outcome(hook, namespace="nowhere", object=THEIRS) is False
    assert isinstance(outcome(hook, namespace="nowhere", object=MINE), Failed)


def test_a_namespace_selector_that_does_not_match_is_final() -> None:
    assert outcome(webhook(namespace_selector=TEAM_A, object_selector=TEAM_A), namespace="blue") is False


@pytest.mark.parametrize(
    ("new", "old", "expected"),
    [
        (MINE, None, True),
        (THEIRS, None, False),
        (BARE, None, False),
        (None, MINE, True),
        (None, THEIRS, False),
        (None, None, False),
        # An update that takes the label away still matches by the old object, and one that adds it too.
        (THEIRS, MINE, True),
        (MINE, THEIRS, True),
        (THEIRS, THEIRS, False),
        (UNNAMED, None, False),
    ],
)
def test_object_selector(new: object, old: object, expected: bool) -> None:
    assert outcome(webhook(object_selector=TEAM_A), object=new, oldObject=old) is expected


@pytest.mark.parametrize("new", [None, UNNAMED, BARE])
def test_an_empty_object_selector_matches_a_request_without_objects(new: object) -> None:
    assert outcome(webhook(), object=new) is True


def test_a_negative_object_selector_does_not_match_an_object_without_metadata() -> None:
    hook = webhook(object_selector=Selector((Requirement("team", "DoesNotExist"),)))
    assert outcome(hook, object=UNNAMED) is False
    assert outcome(hook, object=BARE) is True


def test_selectors_match_the_present_object() -> None:
    given = request(object=THEIRS)
    hook = webhook(object_selector=TEAM_A)
    assert selectors_match(hook, given, THEIRS, None) is False
    assert selectors_match(hook, given, MINE, None) is True


@pytest.mark.parametrize(
    "document",
    [None, {}, {"metadata": None}, {"metadata": []}, {"metadata": {}}, {"metadata": {"labels": "a=b"}}],
)
def test_malformed_metadata_has_no_labels(document: dict[str, object] | None) -> None:
    assert labels_of(document) == {}


def test_invocations_keep_order_and_have_their_index_among_all() -> None:
    delete = Rule(("DELETE",), ("*",), ("*",), ("*",))
    hooks = (
        webhook("a.policies.test"),
        webhook("b.policies.test", rules=(delete,)),
        webhook("c.policies.test", object_selector=TEAM_A),
        webhook("d.policies.test", namespace_selector=TEAM_A),
    )
    found = Selection("mutate", hooks).invocations(request(), None)
    assert [(i.webhook.name, i.position, i.has_matched_selectors) for i in found] == [
        ("a.policies.test", 0, True),
        ("c.policies.test", 2, False),
        ("d.policies.test", 3, False),
    ]


def test_requests_that_are_never_sent_have_no_invocations() -> None:
    selection = Selection("validate", (webhook(phase="validate"),))
    kind = {
        "group": "admissionregistration.k8s.io",
        "version": "v1",
        "kind": "MutatingWebhookConfiguration",
    }
    assert selection.invocations(request(kind=kind), None) == ()
    assert len(selection.invocations(request(), None)) == 1


@pytest.mark.parametrize(
    "difference",
    [
        {"operation": "UPDATE"},
        {"resource": resource("/v1/nodes")},
        {"resource": resource("apps/v1/pods")},
        {"subResource": "exec"},
        {"namespace": None},
        {"requestResource": resource("/v1/nodes")},
        {"requestResource": resource("/v1/pods"), "requestSubResource": "exec"},
        {
            "kind": {
                "group": "admissionregistration.k8s.io",
                "version": "v1",
                "kind": "MutatingAdmissionPolicy",
            }
        },
    ],
)
def test_the_index_distinguishes_everything_that_rules_compare(difference: dict[str, object]) -> None:
    rule = Rule(("CREATE",), ("",), ("v1",), ("pods",), "Namespaced")
    selection = Selection("mutate", (webhook(rules=(rule,), match_policy="Exact"),))
    for _ in range(2):
        assert len(selection.invocations(request(), None)) == 1
        assert selection.invocations(request(**difference), None) == ()


def test_the_index_excludes_webhooks_by_namespace(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_KEPT_NAMESPACES", 3)
    hooks = (
        webhook(name="any"),
        webhook(name="ours", namespace_selector=TEAM_A),
        webhook(name="some", namespace_selector=TEAM_A, object_selector=TEAM_A),
    )
    selection = Selection("mutate", hooks)

    def found(namespace: Namespace | Failed | None) -> list[tuple[str, int, bool]]:
        kept = selection.invocations(request(), namespace)
        return [(one.webhook.name, one.position, one.has_matched_selectors) for one in kept]

    ours = Namespace("red", {"team": "a"}, b"")
    for _ in range(2):
        assert found(ours) == [("any", 0, True), ("ours", 1, True), ("some", 2, False)]
        # The namespace has changed since.
        assert found(Namespace("red", {"team": "b"}, b"")) == [("any", 0, True)]
        # Unknown values are left to each webhook.
        for unknown in (None, Failed(FailureReason.NAMESPACE, "no answer")):
            assert found(unknown) == [("any", 0, True), ("ours", 1, False), ("some", 2, False)]
    for number in range(10):
        found(Namespace(f"n-{number}", {}, b""))
        assert len(selection._masks) <= 3


def test_the_index_is_stable_and_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(matching, "_KEPT_SHAPES", 3)
    selection = Selection("mutate", (webhook(),))
    first = selection.invocations(request(), None)
    assert selection.invocations(request(), None) is first
    for number in range(10):
        selection.invocations(request(resource=resource(f"/v1/things{number}")), None)
        assert len(selection._by_shape) <= 3
    assert [one.webhook for one in selection.invocations(request(), None)] == [one.webhook for one in first]
