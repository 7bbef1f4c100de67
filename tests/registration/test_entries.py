"""The content of the entries, and the notes about them."""

from __future__ import annotations

import re
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import pytest

from gateway.base.errors import GatewayError
from gateway.config.kinds.gateway_configuration import GatewaySettings
from gateway.config.kinds.names import webhook_name
from gateway.pure.core.labels import Requirement, Selector
from gateway.pure.core.webhook import Rule
from gateway.tools.registration.entry import within
from gateway.tools.registration.plan import plan
from tests.core.build import ANYTHING, labelled, webhook
from tests.registration.kit import SERVICE, WISHES, configured, entries, path, rule

if TYPE_CHECKING:
    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook


def hook(name: str = "a", **members: Any) -> Webhook:
    members.setdefault("rules", (rule(),))
    return webhook(f"{name}.x.test", **members)


def validating(name: str = "a", **members: Any) -> Webhook:
    return hook(name, phase="validate", **members)


def only_entry(config: Config, **wishes: Any) -> dict[str, Any]:
    (entry,) = entries(config, replace(WISHES, **wishes))
    return entry


def notes(config: Config, **wishes: Any) -> list[str]:
    return plan(config, replace(WISHES, **wishes)).notes


def outline(config: Config, **wishes: Any) -> list[tuple[str, str, str]]:
    made = entries(config, replace(WISHES, **wishes))
    return [
        (entry["name"].removesuffix(".admission-gateway.io"), path(entry), entry["failurePolicy"])
        for entry in made
    ]


def test_both_objects_exist_without_any_webhook() -> None:
    assert plan(configured(), WISHES).documents == [
        {
            "apiVersion": "admissionregistration.k8s.io/v1",
            "kind": kind,
            "metadata": {
                "name": "admission-gateway",
                "labels": {"app.kubernetes.io/name": "admission-gateway"},
            },
            "webhooks": [],
        }
        for kind in ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
    ]
    assert notes(configured()) == ["no webhook is configured: the API server will not call the gateway"]


def test_one_entry_to_the_letter() -> None:
    assert only_entry(configured(hook()), backend=replace(SERVICE, ca_bundle="Y2E=")) == {
        "name": "mutate.admission-gateway.io",
        "clientConfig": {
            "service": {"namespace": "policies", "name": "gateway", "port": 443, "path": "/mutate"},
            "caBundle": "Y2E=",
        },
        "rules": [
            {
                "operations": ["CREATE"],
                "apiGroups": [""],
                "apiVersions": ["v1"],
                "resources": ["pods"],
                "scope": "*",
            }
        ],
        "failurePolicy": "Fail",
        "matchPolicy": "Equivalent",
        "namespaceSelector": {
            "matchExpressions": [
                {
                    "key": "kubernetes.io/metadata.name",
                    "operator": "NotIn",
                    "values": ["policies", "kube-system"],
                }
            ]
        },
        "reinvocationPolicy": "Never",
        "sideEffects": "None",
        "timeoutSeconds": 12,
        "admissionReviewVersions": ["v1"],
    }


def test_mutating_webhooks_share_an_entry_and_validating_ones_one_for_each_failure_policy() -> None:
    hooks = [
        *(hook("a"), hook("b", failure_policy="Ignore")),
        *(validating("a", failure_policy="Ignore"), validating("b")),
    ]
    validate = [
        ("mandatory.validate", "/validate.fail", "Fail"),
        ("optional.validate", "/validate.ignore", "Ignore"),
    ]
    assert outline(configured(*hooks)) == [("mutate", "/mutate", "Fail"), *validate]
    assert outline(configured(*hooks), split_mutating=True) == [
        ("mandatory.mutate", "/mutate.fail", "Fail"),
        ("optional.mutate", "/mutate.ignore", "Ignore"),
        *validate,
    ]


def test_only_what_is_in_use_is_registered() -> None:
    assert outline(configured(hook(failure_policy="Ignore"))) == [("mutate", "/mutate", "Ignore")]
    assert outline(configured(validating())) == [("mandatory.validate", "/validate.fail", "Fail")]
    assert outline(configured(validating(rules=()))) == []


def test_conflicting_webhooks_get_separate_entries() -> None:
    v2 = (rule(versions="v2"),)
    hooks = [hook("a"), hook("b", rules=v2), hook("c"), hook("d"), hook("e", rules=v2)]
    assert outline(configured(*hooks)) == [
        ("mutate-0001-v1", "/mutate.versions.1/v1/policies/c.x.test", "Fail"),
        ("mutate-0001-v2", "/mutate.versions.1/v2/policies/e.x.test", "Fail"),
        ("mutate-0002-v1", "/mutate.versions.2/v1/policies/c.x.test", "Fail"),
        ("mutate-0002-v2", "/mutate.versions.2/v2/policies/e.x.test", "Fail"),
    ]
    ones = [replace(one, phase="validate") for one in hooks]
    assert outline(configured(*ones)) == [
        ("mandatory-v1.validate", "/validate.fail.versions/v1", "Fail"),
        ("mandatory-v2.validate", "/validate.fail.versions/v2", "Fail"),
    ]


def test_a_section_begins_at_the_shortest_name_that_divides_configurations() -> None:
    v2 = (rule(versions="v2"),)
    hooks = [
        hook("a", configuration="istio"),
        hook("a", configuration="istio-more", rules=v2),
        hook("a", configuration="kyverno"),
        hook("a", configuration="kyverno-policies", rules=v2),
        hook("a", configuration="kyverno-x"),
    ]
    assert [one for _, one, _ in outline(configured(*hooks))] == [
        "/mutate.versions.1/v1/k/0",
        "/mutate.versions.1/v2/k/0",
        "/mutate.versions.2/v1/k/0/kyverno-x/0",
        "/mutate.versions.2/v2/k/0",
        "/mutate.versions.2/v1/kyverno-x/0",
    ]


def test_rules_of_one_webhook_for_other_resources_may_be_in_other_entries() -> None:
    mixed = hook("a", rules=(rule("pods"), rule("nodes", "v2")))
    entries_made = entries(configured(mixed, hook("b", rules=(rule("nodes"),))))
    assert [(path(one), [each["resources"] for each in one["rules"]]) for one in entries_made] == [
        ("/mutate.versions.1/v1/policies/b.x.test", [["pods"]]),
        ("/mutate.versions/v2", [["nodes"]]),
        ("/mutate.versions.2/v1/policies/b.x.test", [["nodes"]]),
    ]


def test_rules_for_the_same_requests_with_other_versions_stay_together() -> None:
    both = (rule("pods"), rule("*", "v2"))
    one, other = entries(configured(validating("a", rules=both), validating("b", rules=(rule(),))))
    assert path(one).startswith("/validate.fail.versions/rules-")
    assert [each["resources"] for each in one["rules"]] == [["pods"], ["*"]]
    assert path(other) == "/validate.fail.versions/v1"


def test_a_path_with_too_many_sections_is_an_error_with_advice() -> None:
    hooks = [hook(f"{'n' * 200}{number}", rules=(rule(versions=f"v{number % 2}"),)) for number in range(190)]
    with pytest.raises(GatewayError) as caught:
        plan(configured(*hooks), WISHES)
    assert re.match(
        r"mutate-0001-v0\.admission-gateway\.io: its path would have \d+ characters", str(caught.value)
    )
    assert "Name the same apiVersions in these webhooks, or put those with" in str(caught.value)
    assert all(f"policies/{hook.name}" in str(caught.value) for hook in hooks[:3:2])


def test_the_name_option_is_part_of_entry_names() -> None:
    made = plan(configured(hook(), validating()), replace(WISHES, name="policies"))
    documents: list[Any] = made.documents
    assert [document["metadata"]["name"] for document in documents] == ["policies", "policies"]
    names = [entry["name"] for document in documents for entry in document["webhooks"]]
    assert names == [
        "mutate.policies.admission-gateway.io",
        "mandatory.validate.policies.admission-gateway.io",
    ]
    assert not any(map(webhook_name, names))


@pytest.mark.parametrize(
    ("side_effects", "expected"),
    [
        (["None", "None"], "None"),
        (["None", "NoneOnDryRun"], "NoneOnDryRun"),
        (["None", "Some"], "NoneOnDryRun"),
        (["Unknown"], "NoneOnDryRun"),
    ],
)
def test_side_effects(side_effects: list[str], expected: str) -> None:
    hooks = [hook(f"h{number}", side_effects=value) for number, value in enumerate(side_effects)]
    assert only_entry(configured(*hooks))["sideEffects"] == expected


@pytest.mark.parametrize(
    ("policies", "expected"),
    [
        (["Exact", "Exact"], "Exact"),
        (["Exact", "Equivalent"], "Equivalent"),
        (["Equivalent"], "Equivalent"),
    ],
)
def test_match_policy(policies: list[str], expected: str) -> None:
    hooks = [hook(f"h{number}", match_policy=value) for number, value in enumerate(policies)]
    assert only_entry(configured(*hooks))["matchPolicy"] == expected


@pytest.mark.parametrize(
    ("policies", "expected", "is_noted"),
    [
        (["IfNeeded", "IfNeeded"], "IfNeeded", False),
        (["IfNeeded", "Never"], "Never", True),
        (["Never"], "Never", False),
    ],
)
def test_reinvocation_policy(policies: list[str], expected: str, is_noted: bool) -> None:
    hooks = [hook(f"h{number}", reinvocation_policy=value) for number, value in enumerate(policies)]
    config = configured(*hooks)
    assert only_entry(config)["reinvocationPolicy"] == expected
    found = [note for note in notes(config) if "policies/h0.x.test will be reinvoked only" in note]
    assert bool(found) is is_noted


def test_validating_entries_have_no_reinvocation_policy() -> None:
    assert "reinvocationPolicy" not in only_entry(configured(validating()))


@pytest.mark.parametrize(
    ("timeouts", "reserve_s", "expected"),
    [
        ([10], 0.1, 12),
        ([10, 3], 0.1, 12),
        ([1], 0.1, 3),
        ([4], 10.0, 7),
        ([4], 1.0, 6),
        ([4], 0.0, 5),
        ([28], 0.1, 30),
        ([29], 0.1, 30),
        ([30], 0.1, 30),
        ([29], 2.0, 30),
    ],
)
def test_timeout_of_validating_webhooks(timeouts: list[int], reserve_s: float, expected: int) -> None:
    hooks = [validating(f"h{number}", timeout_s=value) for number, value in enumerate(timeouts)]
    config = configured(*hooks, gateway=GatewaySettings(deadline_reserve_s=reserve_s))
    assert only_entry(config)["timeoutSeconds"] == expected
    assert any("will not get its" in note for note in notes(config)) is (
        within(expected, reserve_s) < max(timeouts)
    )


@pytest.mark.parametrize(
    ("hooks", "expected"),
    [
        ([hook("a", timeout_s=3), hook("b", timeout_s=4)], 9),
        ([hook("a", timeout_s=3), hook("b", timeout_s=4, rules=(rule("nodes"),))], 6),
        ([hook("a", timeout_s=3), hook("b", timeout_s=4, reinvocation_policy="IfNeeded")], 13),
        ([hook("a", timeout_s=20), hook("b", timeout_s=20)], 30),
        # No request is for all three.
        (
            [
                hook("a", timeout_s=5, rules=(rule("pods"), rule("nodes"))),
                hook("b", timeout_s=5, rules=(rule("pods"),)),
                hook("c", timeout_s=5, rules=(rule("nodes"),)),
            ],
            12,
        ),
    ],
)
def test_timeout_of_mutating_webhooks_is_for_one_after_another(hooks: list[Webhook], expected: int) -> None:
    assert only_entry(configured(*hooks))["timeoutSeconds"] == expected
    assert not any("will not get its" in note for note in notes(configured(*hooks)))


@pytest.mark.parametrize(
    ("group", "resources", "scope", "failure_policy", "is_noted"),
    [
        ("*", "*", "*", "Fail", True),
        ("rbac.authorization.k8s.io", "*/*", "Cluster", "Fail", True),
        ("*", "*", "Namespaced", "Fail", False),
        ("*", "*", "*", "Ignore", False),
        ("apps", "*", "*", "Fail", False),
        ("*", "widgets", "*", "Fail", False),
    ],
)
def test_rules_that_may_block_a_cluster_start_are_noted(
    group: str, resources: str, scope: Any, failure_policy: Any, *, is_noted: bool
) -> None:
    wide = Rule(("CREATE",), (group,), ("v1",), (resources,), scope)
    config = configured(validating(rules=(wide,), failure_policy=failure_policy))
    assert any("scope: Namespaced excludes them" in note for note in notes(config)) is is_noted


def test_mixed_failure_policies_are_pointed_out() -> None:
    mixed = configured(hook("a"), hook("b", failure_policy="Ignore"))
    assert any("--split-mutating makes two entries" in note for note in notes(mixed))
    assert notes(mixed, split_mutating=True) == []
    assert notes(configured(hook("a"), hook("b"))) == []


def test_split_mutating_notes_a_changed_order() -> None:
    ignored = hook("a", failure_policy="Ignore")
    assert notes(configured(ignored, hook("b")), split_mutating=True) == [
        (
            "--split-mutating changes the order: policies/b.x.test (Fail) will be called before "
            "policies/a.x.test (Ignore), and other pairs may be affected"
        )
    ]
    assert notes(configured(ignored, hook("b", rules=(rule("nodes"),))), split_mutating=True) == []


def test_split_mutating_notes_an_order_that_it_breaks() -> None:
    ignored, closed = hook("a", failure_policy="Ignore"), hook("b", after=("a.x.test",))
    assert notes(configured(ignored, closed), split_mutating=True)[0] == (
        "--split-mutating breaks `after`: policies/b.x.test (Fail) has to be called after "
        "policies/a.x.test (Ignore), and will be called before it"
    )


TEAM = labelled("team", "a")


@pytest.mark.parametrize(
    ("selectors", "shared"),
    [
        ([TEAM, TEAM], [{"key": "team", "operator": "In", "values": ["a"]}]),
        ([TEAM, labelled("team", "b")], []),
        ([TEAM, Selector()], []),
        (
            [
                Selector((Requirement("x", "Exists"), *TEAM.requirements)),
                Selector((*TEAM.requirements, Requirement("x", "Exists"))),
            ],
            [{"key": "x", "operator": "Exists"}, {"key": "team", "operator": "In", "values": ["a"]}],
        ),
    ],
)
def test_shared_selectors_are_registered(selectors: list[Selector], shared: list[dict[str, object]]) -> None:
    by_namespace = [validating(f"h{n}", namespace_selector=s) for n, s in enumerate(selectors)]
    by_object = [validating(f"h{n}", object_selector=s) for n, s in enumerate(selectors)]
    assert only_entry(configured(*by_namespace))["namespaceSelector"]["matchExpressions"][1:] == shared
    entry = only_entry(configured(*by_object))
    assert entry.get("objectSelector", {"matchExpressions": []})["matchExpressions"] == shared
    # Labels change in the course of the mutating phase.
    mutating = [replace(one, phase="mutate") for one in by_object]
    assert "objectSelector" not in only_entry(configured(*mutating))


def conditions(*rules: Rule, **wishes: Any) -> list[str]:
    entry = only_entry(configured(hook(rules=rules)), **wishes)
    return [condition["name"] for condition in entry.get("matchConditions", [])]


ALL = ["exclude-leases", "exclude-events", "exclude-virtual-resources"]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([rule("pods")], []),
        ([ANYTHING], ALL),
        ([rule("*", groups="*", operations="UPDATE")], ["exclude-leases", "exclude-events"]),
        ([rule("*", groups="*", scope="Cluster")], ["exclude-virtual-resources"]),
        ([rule("*/status", groups="*")], []),
        ([rule("*", groups="apps")], []),
        ([rule("*", groups="")], ["exclude-events"]),
        ([rule("*", groups="coordination.k8s.io")], ["exclude-leases"]),
        ([rule("leases", groups="coordination.k8s.io")], []),
        ([rule("leases", groups="*")], []),
        ([ANYTHING, rule("leases", groups="coordination.k8s.io", operations="UPDATE")], ALL[1:]),
        ([rule("events", groups="events.k8s.io"), rule("*", groups="")], []),
        ([rule("leases", groups="apps"), ANYTHING], ALL),
        ([rule("tokenreviews", groups="*")], ["exclude-virtual-resources"]),
    ],
)
def test_wildcards_exclude_dangerous_resources(rules: list[Rule], expected: list[str]) -> None:
    assert conditions(*rules) == expected


def test_included_resources_are_not_excluded() -> None:
    leases, events = frozenset({"leases.coordination.k8s.io"}), frozenset({"events"})
    assert conditions(ANYTHING, included=leases) == ALL[1:]
    assert conditions(ANYTHING, included=leases | events) == ALL[2:]


def test_the_conditions_are_these() -> None:
    entry = only_entry(configured(hook(rules=(ANYTHING,))))
    assert [condition["expression"] for condition in entry["matchConditions"]] == [
        '!(request.resource.group == "coordination.k8s.io" && request.resource.resource == "leases")',
        '!(request.resource.group in ["", "events.k8s.io"] && request.resource.resource == "events")',
        (
            '!((request.resource.group == "authentication.k8s.io" && request.resource.resource in '
            '["selfsubjectreviews", "tokenreviews"]) || (request.resource.group == "authorization.k8s.io" && '
            'request.resource.resource in ["localsubjectaccessreviews", "selfsubjectaccessreviews", '
            '"selfsubjectrulesreviews", "subjectaccessreviews"]))'
        ),
    ]


@pytest.mark.parametrize(
    ("rules", "expected"),
    [
        ([rule("tokenreviews", groups="authentication.k8s.io")], []),
        (
            [rule("tokenreviews pods", groups="authentication.k8s.io apps")],
            ["authentication.k8s.io pods", "apps tokenreviews,pods"],
        ),
        ([rule("pods"), rule("tokenreviews/status", groups="authentication.k8s.io")], [" pods"]),
    ],
)
def test_rules_for_resources_that_are_never_sent_are_dropped(rules: list[Rule], expected: list[str]) -> None:
    made = entries(configured(hook(rules=tuple(rules))))
    found = [
        f"{','.join(of['apiGroups'])} {','.join(of['resources'])}" for entry in made for of in entry["rules"]
    ]
    assert found == expected


@pytest.mark.parametrize(
    ("wishes", "namespaces"),
    [
        ({}, ["policies", "kube-system"]),
        ({"excluded_namespaces": ("storage", "kube-system")}, ["policies", "kube-system", "storage"]),
        ({"included": frozenset({"kube-system"})}, ["policies"]),
        ({"included": frozenset({"own-namespace"})}, ["kube-system"]),
        ({"included": frozenset({"own-namespace", "kube-system"})}, []),
    ],
)
def test_namespaces_that_are_left_out(wishes: dict[str, Any], namespaces: list[str]) -> None:
    entry = only_entry(configured(hook()), **wishes)
    expressions = entry.get("namespaceSelector", {"matchExpressions": []})["matchExpressions"]
    assert [name for expression in expressions for name in expression["values"]] == namespaces
