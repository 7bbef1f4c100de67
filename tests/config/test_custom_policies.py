"""Policies and bindings as custom resources: in force, refused, listed parameters, and their authors."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.kinds.gateway_configuration import GatewaySettings
from gateway.config.kinds.policy_settings import ListedKind, PolicySettings
from gateway.config.merge.custom_resource import CustomResource
from gateway.config.merge.load import load
from gateway.config.merge.merged import Merged, merge
from gateway.config.merge.model import Config, kinds_read
from gateway.config.merge.policy_authors import AUTHORS
from gateway.config.yaml.fields import Fields, Problems
from gateway.engine.object_review import RequestOptions, request_for, review_of
from gateway.engine.paths import Paths
from gateway.pure.core.conditions import (
    AccessDecision,
    ConditionInput,
    Excluded,
    NotMatched,
    PolicyResult,
    Unresolved,
)
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.policy import PolicyInput
from gateway.pure.core.review import decode
from gateway.pure.core.verdict import Allowed, Denied, Failed
from gateway.pure.openapi.built_in_resources import RESOURCES

if TYPE_CHECKING:
    from pathlib import Path

    from gateway.pure.core.webhook import Webhook

POLICY, BINDING = "ValidatingAdmissionPolicy", "ValidatingAdmissionPolicyBinding"
RULES = [{"operations": ["*"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["configmaps"]}]
LISTED = Config(
    gateway=GatewaySettings(policies=PolicySettings((ListedKind("v1", "ConfigMap", "configmaps"),)))
)
REFUSAL = "failed to configure policy: the custom resource is refused, and its status says why"
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}


def resource(kind: str, name: str, uid: str, generation: int, spec: dict[str, Any]) -> CustomResource:
    metadata = {"name": name, "uid": uid, "generation": generation}
    return CustomResource(kind, name, {"kind": kind, "metadata": metadata, "spec": spec})


def policy(
    name: str = "p", expression: str = "false", uid: str = "u", generation: int = 1, **spec: Any
) -> CustomResource:
    given = {
        "matchConstraints": {"resourceRules": RULES},
        "validations": [{"expression": expression}],
        **spec,
    }
    return resource(POLICY, name, uid, generation, given)


def binding(name: str = "b", uid: str = "u", generation: int = 1, **spec: Any) -> CustomResource:
    given = {"policyName": "p", "validationActions": ["Deny"], **spec}
    return resource(BINDING, name, uid, generation, given)


def outcome(merged: Merged, name: str = "p") -> str:
    """Return what the policy decides on a ConfigMap; empty if it is not in force."""
    found = [one for one in merged.config.validating if one.name == name]
    return verdict_of(found[0], {**CONFIG_MAP, "metadata": {"name": "c"}}) if found else ""


def verdict_of(webhook: Webhook, document: dict[str, Any], rights: Any = None, **options: Any) -> str:
    """Return what the policy decides on *document*; *rights* decides on SubjectAccessReviews."""
    request = decode(review_of(request_for(document, RequestOptions(**options))))
    conditions = ConditionInput(request.document, request.object, request.old_object)
    space = Namespace("default", {}, b'{"metadata":{"name":"default"}}')
    given = PolicyInput(conditions, request, space)
    assert webhook.policy is not None
    result = webhook.policy.evaluate(given, {})
    while isinstance(result, Unresolved) and result.checks:
        decisions = {one: AccessDecision(rights(json.loads(one.spec))) for one in result.checks}
        result = webhook.policy.evaluate(given, decisions)
    if isinstance(result, NotMatched | Excluded):
        return "allowed"
    assert isinstance(result, PolicyResult), result
    if isinstance(result.verdict, Denied):
        return result.verdict.message.rpartition("denied request: ")[2]
    assert isinstance(result.verdict, Allowed | Failed)
    return "ignored" if isinstance(result.verdict, Failed) else "allowed"


def reasons(merged: Merged) -> dict[str, str]:
    return {one.resource.name: one.reason for one in merged.statuses}


def test_a_policy_is_in_force_with_its_bindings_and_gone_with_either() -> None:
    merged = merge(Config(), [policy(), binding()], None)
    assert reasons(merged) == {"p": "Accepted", "b": "Accepted"}
    assert outcome(merged) == "failed expression: false"
    again = merge(Config(), [policy(), binding()], merged)
    assert again.config == merged.config
    changed = merge(Config(), [policy(expression="true", generation=2), binding()], again)
    assert outcome(changed) == "allowed"
    without_binding = merge(Config(), [policy()], changed)
    assert outcome(without_binding) == ""
    (status,) = without_binding.statuses
    assert (status.reason, status.note) == ("Accepted", f"in force; no {BINDING} names it")
    without_policy = merge(Config(), [binding()], changed)
    assert outcome(without_policy) == ""
    (status,) = without_policy.statuses
    assert (status.reason, status.note) == ("NoPolicy", f'without effect: there is no {POLICY} "p"')


def test_an_invalid_change_leaves_the_last_valid_version_in_force() -> None:
    first = merge(Config(), [policy(), binding()], None)
    broken = [policy(expression="no such", generation=2), binding(validationActions=["No"], generation=2)]
    second = merge(Config(), broken, first)
    assert reasons(second) == {"p": "Invalid", "b": "Invalid"}
    assert {one.effect for one in second.statuses} == {"generation 1 stays in force"}
    assert outcome(second) == "failed expression: false"
    assert second.config == first.config
    new_object = [policy(expression="no such", uid="other"), binding()]
    assert "its status says why" in outcome(merge(Config(), new_object, second))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({"expression": "no such"}, REFUSAL),
        ({"expression": "no such", "failurePolicy": "Ignore"}, "ignored"),
        ({"failurePolicy": "Never"}, ""),
        ({"matchConstraints": {"resourceRules": [{**RULES[0], "operations": []}]}}, ""),
        ({"validations": [], "unknown": 1}, REFUSAL),
    ],
)
def test_a_policy_that_was_never_valid_fails_if_it_is_identified(
    changes: dict[str, Any], expected: str
) -> None:
    merged = merge(Config(), [policy(**changes), binding()], None)
    assert reasons(merged) == {"p": "Invalid", "b": "Accepted" if expected else "NoPolicy"}
    assert outcome(merged) == expected


def test_bindings_and_policies_of_the_cluster_do_not_touch_files(tmp_path: Path) -> None:
    file = tmp_path / "a.json"
    texts = []
    for one in (policy(expression="1 == 1"), binding()):
        texts.append({**one.document, "apiVersion": "admissionregistration.k8s.io/v1", "kind": one.kind})
    file.write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": texts}))
    files = load([file])
    merged = merge(files, [policy(), binding(), binding("c")], None)
    assert reasons(merged) == {"p": "NameInFiles", "b": "NameInFiles", "c": "PolicyInFiles"}
    assert merged.config.validating == files.validating
    assert outcome(merged) == "allowed"


def test_parameters_are_of_listed_kinds_and_from_the_cluster() -> None:
    kind = {"apiVersion": "v1", "kind": "ConfigMap"}
    reference = {"name": "x", "parameterNotFoundAction": "Allow"}
    objects = [policy(paramKind=kind), binding(paramRef=reference)]
    refused = merge(Config(), objects, None)
    assert reasons(refused) == {"p": "ParamKindNotListed", "b": "Accepted"}
    assert outcome(refused) == REFUSAL
    assert not kinds_read(refused.config)
    listed = merge(LISTED, objects, refused)
    assert reasons(listed) == {"p": "Accepted", "b": "Accepted"}
    assert kinds_read(listed.config) == {("v1", "ConfigMap"): frozenset()}
    # A kind that is not listed any more is not read any more, whatever was valid before.
    again = merge(Config(), objects, listed)
    assert reasons(again) == {"p": "ParamKindNotListed", "b": "Accepted"}
    assert not kinds_read(again.config)


def test_policies_that_are_left_to_the_api_server_are_not_evaluated(tmp_path: Path) -> None:
    settings = GatewaySettings(policies=PolicySettings(left_to_api_server=(POLICY,)))
    merged = merge(Config(gateway=settings), [policy(), binding()], None)
    assert reasons(merged) == {"p": "LeftToAPIServer", "b": "LeftToAPIServer"}
    assert not merged.config.webhooks
    texts = [
        {**one.document, "apiVersion": "admissionregistration.k8s.io/v1"} for one in (policy(), binding())
    ]
    gateway = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
    file = tmp_path / "a.json"
    file.write_text(json.dumps({**gateway, "policies": {"leftToAPIServer": [POLICY]}}))
    (tmp_path / "b.json").write_text(json.dumps({"apiVersion": "v1", "kind": "List", "items": texts}))
    assert not load([tmp_path]).webhooks


def configured(folder: Path, *kinds: dict[str, str], **kubernetes: Any) -> Config:
    head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
    content = {
        **head,
        "kubernetes": {"customResources": True, **kubernetes},
        "policies": {"paramKinds": kinds},
    }
    (folder / "a.json").write_text(json.dumps(content))
    return load([folder])


MAPS = {"apiVersion": "v1", "kind": "ConfigMap", "resource": "configmaps"}
SECRETS = {"apiVersion": "v1", "kind": "Secret", "resource": "secrets"}
LIMITS = {"apiVersion": "example.com/v1", "kind": "Limit", "resource": "limits"}


@pytest.mark.parametrize(
    ("kinds", "field", "message"),
    [
        ([{**MAPS, "kind": "Secret"}], "paramKinds[0].kind", "found Secret, which is not allowed"),
        ([SECRETS], "paramKinds[0].kind", "found Secret, which is not allowed"),
        ([{**SECRETS, "apiVersion": "v2"}], "paramKinds[0].kind", "found Secret, which is not allowed"),
        ([{**SECRETS, "kind": "secret"}], "paramKinds[0].kind", "found secret, which is not allowed"),
        ([{**SECRETS, "kind": "Foo"}], "paramKinds[0].resource", "found secrets, which is not allowed"),
        ([{**SECRETS, "kind": "ConfigMap"}], "paramKinds[0].resource", "found secrets, which is not allowed"),
        ([{**MAPS, "kind": "Foo"}], "paramKinds[0].kind", 'found "Foo", expected ConfigMap, the kind of'),
        ([{**MAPS, "kind": "configmap"}], "paramKinds[0].kind", 'found "configmap", expected ConfigMap'),
        ([{**MAPS, "kind": "Pod"}], "paramKinds[0].kind", 'found "Pod", expected ConfigMap, the kind of'),
        ([{**MAPS, "resource": "maps"}], "paramKinds[0].resource", 'found "maps", expected configmaps, the'),
        ([MAPS, MAPS], "paramKinds[1].kind", 'found "ConfigMap" of "v1" twice'),
        ([{**MAPS, "resource": "Config/Maps"}], "paramKinds[0].resource", "expected the plural name"),
        ([{**MAPS, "apiVersion": "a/b/c"}], "paramKinds[0].apiVersion", "expected VERSION or GROUP/VERSION"),
    ],
)
def test_listed_kinds_are_checked(
    tmp_path: Path, kinds: list[dict[str, str]], field: str, message: str
) -> None:
    with pytest.raises(ConfigError) as caught:
        configured(tmp_path, *kinds)
    (problem,) = caught.value.problems
    assert problem.field == f"policies.{field}"
    assert message in problem.message
    with pytest.raises(ConfigError, match=r"requires kubernetes\.customResources"):
        configured(tmp_path, MAPS, customResources=False)


@given(st.sampled_from(sorted(RESOURCES)), st.data())
def test_a_built_in_kind_fits_its_own_resource_alone(group: str, data: st.DataObject) -> None:
    known = st.sampled_from(sorted(RESOURCES[group]))
    one, other = RESOURCES[group][data.draw(known)], RESOURCES[group][data.draw(known)]
    listed = {"apiVersion": f"{group}/v1".lstrip("/"), "kind": one.kind, "resource": other.name}
    problems = Problems("a.yaml")
    PolicySettings.read(Fields({"paramKinds": [listed]}, "", problems))
    assert bool(problems.found) == (one != other or (group, one.name) == ("", "secrets"))


def authored(kind: str, **spec: Any) -> dict[str, Any]:
    return {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": kind,
        "metadata": {"name": "x"},
        "spec": spec,
    }


def test_only_those_who_may_read_parameters_write_policies_with_them(tmp_path: Path) -> None:
    (authors,) = configured(tmp_path, MAPS, LIMITS).validating
    assert authors.name == AUTHORS
    asked: list[dict[str, Any]] = []

    def rights(spec: dict[str, Any]) -> bool:
        assert spec["resourceAttributes"].pop("version") == "*"
        asked.append(spec["resourceAttributes"])
        return bool(spec["resourceAttributes"]["resource"] == "limits")

    def refused(document: dict[str, Any], **options: Any) -> bool:
        asked.clear()
        return verdict_of(authors, document, rights, user="eve", **options) != "allowed"

    of_maps = authored(POLICY, paramKind={"apiVersion": "v1", "kind": "ConfigMap"})
    assert refused(of_maps)
    assert asked == [{"resource": "configmaps", "verb": "get"}]
    assert not refused(authored(POLICY, paramKind={"apiVersion": "example.com/v1", "kind": "Limit"}))
    assert asked == [{"group": "example.com", "resource": "limits", "verb": "get"}]
    assert not refused(authored(POLICY))
    assert not refused(authored(BINDING, policyName="p"))
    assert not asked
    other = authored(POLICY, paramKind={"apiVersion": "v1", "kind": "ServiceAccount"})
    assert verdict_of(authors, other, rights) == (
        "expected a paramKind of policies.paramKinds: ConfigMap of v1 or Limit of example.com/v1"
    )
    assert {one for rule in authors.rules for one in rule.resources} == {
        "mutatingadmissionpolicies",
        "mutatingadmissionpolicybindings",
        "validatingadmissionpolicies",
        "validatingadmissionpolicybindings",
    }
    # A binding does not say of which kind its parameters are.
    assert refused(authored(BINDING, paramRef={"name": "n", "namespace": "other"}))
    assert {"resource": "configmaps", "verb": "get", "name": "n", "namespace": "other"} in asked
    assert refused(authored(BINDING, paramRef={"selector": {}}))
    assert {"resource": "configmaps", "verb": "list"} in asked
    # A change beside the spec discloses nothing new; any other might.
    options = {"operation": "UPDATE"}
    assert not refused(of_maps, old=of_maps, **options)
    changed = {**of_maps, "spec": {**of_maps["spec"], "validations": []}}
    assert refused(changed, old=of_maps, **options)


def test_no_exception_applies_to_the_authors_of_policies(tmp_path: Path) -> None:
    spec = {"webhooks": [AUTHORS], "match": {"users": ["*"]}, "reason": "r", "owner": "o", "permanent": True}
    files = configured(tmp_path, MAPS)
    exception = resource("ClusterPolicyException", "e", "u", 1, spec)
    merged = merge(files, [exception], None)
    assert reasons(merged) == {"e": "UnknownWebhook"}
    assert not Paths(merged.config)["/validate"].exceptions
    taken = merge(files, [policy(AUTHORS), binding(AUTHORS)], None)
    assert set(reasons(taken).values()) == {"NameInFiles"}
    assert taken.config.validating == files.validating
