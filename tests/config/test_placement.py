"""Where a policy can be evaluated: each reason for which the API server cannot, and none without one."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.base.errors import ConfigError
from gateway.config.kinds.gateway_configuration import GatewaySettings
from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.config.kinds.policy_settings import ListedKind, PolicySettings
from gateway.config.merge.custom_resource import CustomResource
from gateway.config.merge.load import load
from gateway.config.merge.merged import merge
from gateway.config.merge.model import Config
from gateway.config.merge.mutating_order import MAX_NAMED
from gateway.config.merge.placement import Placement, placements
from gateway.pure.admission_policies.effects import PolicyEffects
from gateway.pure.admission_policies.mutating import MutatingPolicyInForce

if TYPE_CHECKING:
    from pathlib import Path
    from random import Random


Json = dict[str, Any]

VALIDATING, MUTATING = "ValidatingAdmissionPolicy", "MutatingAdmissionPolicy"
GATEWAY = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "GatewayConfiguration",
    "kubernetes": {},
    "policies": {"placement": "APIServer", "installation": "kube-system/gateway"},
}
PODS = {"operations": ["CREATE"], "apiGroups": [""], "apiVersions": ["v1"], "resources": ["pods"]}
EVERYTHING = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*"]}
LABEL = "kubernetes.io/metadata.name"
NOT_KUBE_SYSTEM = {"matchExpressions": [{"key": LABEL, "operator": "NotIn", "values": ["kube-system"]}]}
CONFIG_MAP = {"apiVersion": "v1", "kind": "ConfigMap"}
LIMIT = {"apiVersion": "example.com/v1", "kind": "Limit"}
BY_NAME = {"name": "limits", "namespace": "policies", "parameterNotFoundAction": "Deny"}
NEWEST = 1, 37


def constraints(*rules: Json, **more: Any) -> Json:
    return {"resourceRules": list(rules or (PODS,)), "namespaceSelector": NOT_KUBE_SYSTEM, **more}


def of_admission(kind: str, name: str, spec: Json, annotations: dict[str, str] | None = None) -> Json:
    metadata = {"name": name, **({} if annotations is None else {"annotations": annotations})}
    return {"apiVersion": "admissionregistration.k8s.io/v1", "kind": kind, "metadata": metadata, "spec": spec}


def validating(expression: str = "object.spec.hostNetwork != true", name: str = "p", **more: Any) -> Json:
    spec = {"matchConstraints": constraints(), "validations": [{"expression": expression}], **more}
    return of_admission(VALIDATING, name, spec)


def merged(expression: str) -> Json:
    return {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": expression}}


def patched(expression: str) -> Json:
    return {"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}


def label(name: str) -> Json:
    return merged(f'Object{{metadata: Object.metadata{{labels: {{"{name}": "yes"}}}}}}')


def mutating(*mutations: Json, name: str = "m", **more: Any) -> Json:
    spec = {
        "matchConstraints": constraints(),
        "reinvocationPolicy": "IfNeeded",
        "mutations": list(mutations or (label(name),)),
        **more,
    }
    return of_admission(MUTATING, name, spec)


def rolled_out(policy: Json, rollout: Json) -> Json:
    document = binding(policy)
    document["metadata"]["annotations"] = {"admission-gateway.io/rollout": json.dumps(rollout)}
    return document


def binding(policy: Json, name: str = "", mode: str = "", **more: Any) -> Json:
    policy_name = policy["metadata"]["name"]
    spec = {"policyName": policy_name, **more}
    if policy["kind"] == VALIDATING:
        spec.setdefault("validationActions", ["Deny"])
    annotations = {"admission-gateway.io/mode": mode} if mode else None
    return of_admission(f"{policy['kind']}Binding", name or policy_name, spec, annotations)


def loaded(folder: Path, *documents: Json, gateway: Json | None = None) -> Config:
    (folder / "all.json").write_text(
        json.dumps(
            {
                "kind": "List",
                "apiVersion": "v1",
                "items": [GATEWAY if gateway is None else gateway, *documents],
            }
        )
    )
    return load([folder])


def judged(folder: Path, *documents: Json, gateway: Json | None = None, **more: Any) -> Placement:
    """Return the placement of the first document, which gets a binding unless there is another document."""
    every = documents if len(documents) > 1 else (*documents, binding(documents[0]))
    config = loaded(folder, *every, gateway=gateway)
    name, version = documents[0]["metadata"]["name"], more.pop("version", NEWEST)
    (found,) = (one for one in placements(config, version, **more) if one.name == name)
    return found


@pytest.mark.parametrize("policy", [validating(), mutating()], ids=["validating", "mutating"])
def test_policy_can_move(tmp_path: Path, policy: Json) -> None:
    assert judged(tmp_path, policy) == (policy["kind"], policy["metadata"]["name"], "APIServer", ())


@pytest.mark.parametrize(
    ("default", "annotation", "expected"),
    [
        (None, None, "Gateway"),
        ("Auto", None, "Auto"),
        ("Auto", "Gateway", "Gateway"),
        (None, "APIServer", "APIServer"),
    ],
)
@pytest.mark.parametrize("policy", [validating(), mutating()], ids=["validating", "mutating"])
def test_annotation_overrides_setting(
    tmp_path: Path, policy: Json, default: str | None, annotation: str | None, expected: str
) -> None:
    asked = {} if default is None else {"placement": default}
    gateway = {**GATEWAY, "policies": {"installation": "kube-system/gateway", **asked}}
    metadata = dict(policy["metadata"])
    if annotation is not None:
        metadata["annotations"] = {"admission-gateway.io/placement": annotation}
    found = judged(tmp_path, {**policy, "metadata": metadata}, gateway=gateway)
    assert (found.wanted, found.can_move) == (expected, expected != "Gateway")


def test_unknown_value_names_file_and_field(tmp_path: Path) -> None:
    policy = of_admission(VALIDATING, "p", validating()["spec"], {"admission-gateway.io/placement": "Node"})
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, policy, gateway={**GATEWAY, "policies": {"placement": "Node"}})
    expected = 'found "Node", expected Gateway, APIServer or Auto'
    annotation = 'items[1].metadata.annotations["admission-gateway.io/placement"]'
    file = tmp_path / "all.json"
    found = [(one.where, one.field, one.message) for one in caught.value.problems]
    assert found == [
        (f"{file}:1:159: GatewayConfiguration", "items[0].policies.placement", expected),
        (f'{file}:1:311: {VALIDATING} "p"', annotation, expected),
    ]


# -- reasons --------------------------------------------------------------------------------------

CREATES = {"matchConditions": [{"name": "creates", "expression": "request.operation == 'CREATE'"}]}
ZONES = 'Object{spec: Object.spec{tolerations: [{"key": "a"}]}}'
PARAMS = {**CONFIG_MAP, "metadata": {"name": "limits", "namespace": "policies"}, "data": {"max": "3"}}
EXCEPTION: Json = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "ClusterPolicyException",
    "metadata": {"name": "e"},
    "spec": {
        "webhooks": ["p"],
        "match": {"users": ["ann"]},
        "reason": "r",
        "owner": "o",
        "expires": "2026-01-01T00:00:00Z",
    },
}


def with_rules(policy: Json, **more: Any) -> Json:
    return {**policy, "spec": {**policy["spec"], "matchConstraints": constraints(**more)}}


def wildcard(*excluded: str, policy: Json | None = None) -> Json:
    rules = [{**EVERYTHING, "apiGroups": [g], "resources": [r]} for r, _, g in map(parted, excluded)]
    found = validating() if policy is None else policy
    match = constraints(EVERYTHING, excludeResourceRules=rules)
    return {**found, "spec": {**found["spec"], "matchConstraints": match}}


def parted(text: str) -> tuple[str, str, str]:
    return text.partition(".")


OF_REGISTRATIONS = [
    f"{kind}webhookconfigurations.admissionregistration.k8s.io" for kind in ("mutating", "validating")
]
OF_GATEWAY = [
    f"{kind}.admission-gateway.io"
    for phase in ("mutating", "validating")
    for kind in (
        f"{phase}webhookconfigurations",
        f"{phase}admissionpolicies",
        f"{phase}admissionpolicybindings",
    )
] + ["workerpools.admission-gateway.io"]
FREQUENT = ["leases.coordination.k8s.io", "events.", "events.events.k8s.io"]


@pytest.mark.parametrize(
    ("documents", "expected"),
    [
        ([mutating(reinvocationPolicy="Never"), binding(mutating())], "spec.reinvocationPolicy is Never"),
        (
            [mutating(), binding(mutating(), mode="Warn")],
            'Binding "m" is Warn, and the API server has no modes',
        ),
        ([mutating(), binding(mutating()), binding(mutating(), "n", "Shadow")], 'Binding "n" is Shadow'),
        (
            [validating(), rolled_out(validating(), {"plan": {"stages": [{"mode": "Audit"}]}})],
            'admission-gateway.io/rollout of ValidatingAdmissionPolicyBinding "p" says where it is enforced',
        ),
        (
            [mutating(), rolled_out(mutating(), {"mode": "Warn", "enforce": {"percentOfNamespaces": 50}})],
            'admission-gateway.io/rollout of MutatingAdmissionPolicyBinding "m" says where it is enforced',
        ),
        ([validating(), rolled_out(validating(), {"mode": "Enforce"})], None),
        ([mutating(), rolled_out(mutating(), {})], None),
        ([validating(), binding(validating()), EXCEPTION], 'PolicyException "e" names the policy'),
        (
            [validating(paramKind=CONFIG_MAP), binding(validating(), paramRef=BY_NAME), PARAMS],
            "its objects are in files",
        ),
        (
            [validating(paramKind=CONFIG_MAP), binding(validating(), paramRef=BY_NAME)],
            "a built-in kind: the API server does not follow its objects again",
        ),
        ([validating(paramKind=CONFIG_MAP), binding(validating())], None),
        ([validating(paramKind=LIMIT), binding(validating())], "and no binding has a paramRef"),
        ([validating(paramKind=LIMIT), binding(validating(), paramRef=BY_NAME)], None),
        ([mutating(paramKind=LIMIT), binding(mutating(), paramRef=BY_NAME)], None),
        (
            [
                validating("!has(params.metadata.managedFields)", paramKind=LIMIT),
                binding(validating(), paramRef=BY_NAME),
            ],
            "spec names managedFields, which the gateway leaves out of parameters",
        ),
        (
            [mutating(paramKind=LIMIT), *(binding(mutating(), n, paramRef=BY_NAME) for n in "ab")],
            "the policy may be applied several times",
        ),
        (
            [
                mutating(paramKind=LIMIT),
                binding(mutating(), paramRef={"selector": {}, "parameterNotFoundAction": "Allow"}),
            ],
            "the policy may be applied several times",
        ),
        ([mutating(), binding(mutating()), binding(mutating(), "n")], None),
        ([wildcard(*OF_REGISTRATIONS, *OF_GATEWAY, *FREQUENT)], None),
        (
            [wildcard(*OF_REGISTRATIONS[1:], *OF_GATEWAY, *FREQUENT)],
            f"matches {OF_REGISTRATIONS[0]}, which the API server sends to no",
        ),
        ([wildcard(*OF_REGISTRATIONS, *OF_GATEWAY[1:], *FREQUENT)], f"matches {OF_GATEWAY[0]}"),
        ([wildcard(*OF_REGISTRATIONS, *OF_GATEWAY, *FREQUENT[1:])], f"matches {FREQUENT[0]} by a wildcard"),
        ([wildcard(*OF_REGISTRATIONS, *OF_GATEWAY, *FREQUENT[::2])], "matches events by a wildcard"),
        (
            [wildcard(), binding(validating(), matchResources={"resourceRules": [PODS]})],
            None,
        ),
        ([with_rules(validating(), namespaceSelector={})], "matches the namespace kube-system"),
        ([with_rules(validating(), namespaceSelector={"matchLabels": {"tier": "dev"}})], None),
        (
            [
                with_rules(validating(), namespaceSelector={}),
                binding(validating(), matchResources={"namespaceSelector": NOT_KUBE_SYSTEM}),
            ],
            None,
        ),
        ([mutating(patched('[JSONPatch{op: "add", path: "/metadata/labels/a", value: "b"}]'))], None),
        ([mutating(patched('[JSONPatch{op: "remove", path: "/metadata/annotations/a~1b"}]'))], None),
        (
            [mutating(patched('[JSONPatch{op: "add", path: "/metadata/labels/a", value: object.kind}]'))],
            "spec.mutations[0].jsonPatch does more than to set labels or annotations to texts",
        ),
        (
            [mutating(patched('[JSONPatch{op: "add", path: "/spec/nodeName", value: "b"}]'))],
            "spec.mutations[0].jsonPatch does more",
        ),
        (
            [mutating(patched('object.x.map(k, JSONPatch{op: "add", path: "/metadata/labels/" + k})'))],
            "spec.mutations[0].jsonPatch does more",
        ),
        ([mutating(label("a"), label("b"))], None),
        (
            [mutating(label("a"), label("a"))],
            'spec.mutations[1] depends on spec.mutations[0] by "metadata.labels.a"',
        ),
        (
            [
                mutating(
                    label("a"), merged("Object{spec: Object.spec{hostname: object.metadata.labels['a']}}")
                )
            ],
            "spec.mutations[1] depends on spec.mutations[0]",
        ),
        (
            [mutating(merged('Object{metadata: Object.metadata{name: "x"}}'))],
            'may change "metadata.name", which can identify the object',
        ),
        ([mutating(merged("object.spec.x == 1 ? Object{} : Object{}"))], "may change the whole object"),
        ([mutating(merged(ZONES))], "has a map literal in a list"),
        ([mutating(failurePolicy="Ignore")], None),
        ([validating("resource.get(object.kind, 'a', '', 'b') == null")], "spec reads other objects by"),
        ([mutating(merged("Object{spec: [resource].map(r, r.get('v', 'a', '', 'b').a)[0]}"))], "reads other"),
    ],
)
def test_reason(tmp_path: Path, documents: list[Json], expected: str | None) -> None:
    found = judged(tmp_path, *documents)
    if expected is None:
        assert found.reasons == ()
    else:
        assert [one for one in found.reasons if expected in one] == list(found.reasons) != []


def test_reasons_of_custom_kind_under_ignore(tmp_path: Path) -> None:
    rule = {**PODS, "apiGroups": ["example.com"]}
    spec = {**mutating(failurePolicy="Ignore")["spec"], "matchConstraints": constraints(rule)}
    (reason,) = judged(tmp_path, of_admission(MUTATING, "m", spec)).reasons
    assert reason.startswith("spec.failurePolicy is Ignore, and the API server refuses an applyConfiguration")


def test_reasons_of_the_gateway(tmp_path: Path) -> None:
    gateway = {**GATEWAY, "imageReview": {"webhooks": ["p"]}}
    (reason,) = judged(tmp_path, validating(), gateway=gateway).reasons
    assert reason.startswith("imageReview.webhooks of the GatewayConfiguration names the policy")
    of_gateway = {**GATEWAY, "policies": {"placement": "Auto", "installation": "policies/gateway"}}
    (reason,) = judged(tmp_path, validating(), gateway=of_gateway).reasons
    assert "matches the namespace policies" in reason
    del gateway["kubernetes"], gateway["imageReview"]
    (reason,) = judged(tmp_path, validating(), gateway=gateway).reasons
    assert reason.startswith("kubernetes of the GatewayConfiguration is absent")


@pytest.mark.parametrize(
    ("policy", "version", "expected"),
    [
        (validating(), None, "the version of the API server is not known"),
        (validating(), (1, 29), "1.29, which does not serve ValidatingAdmissionPolicy"),
        (validating(), (1, 30), None),
        (mutating(), (1, 35), "upgrade the cluster to 1.36 or newer"),
        (mutating(), (1, 36), None),
        (validating("ip(object.x).family() == 4"), (1, 30), "uses ip(), which API servers accept"),
        (validating("ip(object.x).family() == 4"), (1, 31), None),
        (validating("!format.uri().validate(object.x).hasValue()"), (1, 31), "uses format.uri()"),
        (validating("!format.uri().validate(object.x).hasValue()"), (1, 32), None),
        (validating("object.x.all(k, v, k == v)"), (1, 32), "uses all with two variables"),
        (validating("object.x.all(k, v, k == v)"), (1, 33), None),
        (validating("isSemver(object.x)"), (1, 33), "spec.validations[0].expression uses isSemver()"),
        (validating("[1].sortBy(x, x) == [1]"), (1, 34), "uses sortBy()"),
        (validating("[1].sortBy(x, x) == [1]"), (1, 35), None),
        (validating("[1].all(x, x == 1 && .object.y == x)"), (1, 30), None),
        (validating("[1].all(object, .object.y == object)"), (1, 36), "uses .object where a macro has a"),
        (validating("[1].all(i, object, .object.y == object)"), (1, 37), None),
        (validating("quantity('1').add(1) == quantity('2')"), (1, 36), "adds or subtracts quantities"),
    ],
)
def test_reason_of_version(
    tmp_path: Path, policy: Json, version: tuple[int, int] | None, expected: str | None
) -> None:
    minor = "1.37" if version is None else f"1.{max(30, version[1])}"
    found = judged(tmp_path, policy, gateway={**GATEWAY, "kubernetesVersion": minor}, version=version)
    assert found.can_move == (expected is None)
    assert expected is None or [expected in one for one in found.reasons] == [True]


def test_reason_of_other_version_than_configured(tmp_path: Path) -> None:
    (reason,) = judged(tmp_path, validating(), version=(1, 36)).reasons
    assert reason.startswith(
        "kubernetesVersion of the GatewayConfiguration is 1.37, and the API server has 1.36"
    )


def test_reason_of_unserved_kind_and_other_excluded_namespace(tmp_path: Path) -> None:
    (reason,) = judged(tmp_path, validating(), unserved=(VALIDATING,)).reasons
    assert "does not serve ValidatingAdmissionPolicy" in reason
    (reason,) = judged(tmp_path, validating(), excluded_namespaces=("kube-system", "gateways")).reasons
    assert "matches the namespace gateways" in reason
    nodes = {**PODS, "resources": ["nodes"]}
    policy = of_admission(VALIDATING, "p", {**validating()["spec"], "matchConstraints": constraints(nodes)})
    assert judged(tmp_path, policy, excluded_namespaces=("gateways",)).can_move


def test_custom_resource_with_an_unknown_value_is_refused() -> None:
    policy = of_admission(VALIDATING, "p", validating()["spec"], {"admission-gateway.io/placement": "Node"})
    (status,) = merge(Config(), [CustomResource(VALIDATING, "p", policy)], None).statuses
    (problem,) = status.problems
    assert (status.reason, problem.field) == (
        "Invalid",
        'metadata.annotations["admission-gateway.io/placement"]',
    )


@pytest.mark.parametrize("placement", ["Auto", "APIServer"])
def test_missing_owner_is_named_with_its_file_and_field(tmp_path: Path, placement: str) -> None:
    stays = "the owner of policies in the API server; without it policies stay in the gateway"
    policy, plain = validating(), {**GATEWAY, "policies": {"placement": placement}}
    config = loaded(tmp_path, policy, binding(policy), gateway=plain)
    (warning,) = config.warnings
    assert str(warning) == (
        f"{tmp_path / 'all.json'}:1:146: GatewayConfiguration: items[0].policies.installation: found "
        f"none, expected NAMESPACE/NAME, because placement is {placement}: {stays}"
    )
    (found,) = placements(config, NEWEST)
    assert found.reasons[0].startswith("policies.installation of the GatewayConfiguration is absent; set it")
    assert not found.can_move
    # The same, asked for by an annotation, in a file and in a custom resource.
    metadata = {"name": "p", "annotations": {"admission-gateway.io/placement": placement}}
    policy, plain = {**policy, "metadata": metadata}, {**plain, "policies": {}}
    message = (
        f"found {placement}, without policies.installation in the GatewayConfiguration, expected "
        f"NAMESPACE/NAME there: {stays}"
    )
    (warning,) = loaded(tmp_path, policy, binding(policy), gateway=plain).warnings
    assert (warning.field, warning.message) == (
        'items[1].metadata.annotations["admission-gateway.io/placement"]',
        message,
    )
    resources = [CustomResource(one["kind"], "p", one) for one in (policy, binding(policy))]
    files = Config(gateway=GatewaySettings(kubernetes=KubernetesSettings()))
    (warning,) = merge(files, resources, None).config.warnings
    assert (warning.where, warning.message) == (resources[0].where, message)
    for settings in (PolicySettings(installation="policies/gateway"), PolicySettings(placement="Auto")):
        files = Config(gateway=GatewaySettings(policies=settings))
        assert merge(files, resources, None).config.warnings == ()


def test_kind_that_is_left_to_the_api_server_has_no_placement(tmp_path: Path) -> None:
    gateway = {**GATEWAY, "policies": {"placement": "APIServer", "leftToAPIServer": [VALIDATING]}}
    documents = [validating(), binding(validating()), mutating(), binding(mutating())]
    found = placements(loaded(tmp_path, *documents, gateway=gateway), NEWEST)
    assert [one.kind for one in found] == [MUTATING]


def test_refused_custom_resource_stays() -> None:
    settings = GatewaySettings(kubernetes=KubernetesSettings(), policies=PolicySettings(placement="Auto"))
    policy = validating(paramKind=LIMIT)
    resources = [CustomResource(one["kind"], "p", one) for one in (policy, binding(policy))]
    (found,) = placements(merge(Config(gateway=settings), resources, None).config, NEWEST)
    assert (found.wanted, found.can_move) == ("Auto", False)
    assert found.reasons[0].startswith("the policy cannot be evaluated: the custom resource is refused")


@pytest.mark.parametrize(
    ("first", "second", "reasons"),
    [
        (mutating(name="a"), mutating(name="b"), (None, None)),
        (mutating(label("x"), name="a"), mutating(label("x"), name="b"), (None, "depends by")),
        (mutating(label("x"), name="b"), mutating(label("x"), name="a"), ("depends by", None)),
        (
            mutating(label("x"), name="a"),
            mutating(
                name="b", matchConditions=[{"name": "x", "expression": "has(object.metadata.labels.x)"}]
            ),
            (None, 'depends by "metadata.labels.x" on MutatingAdmissionPolicy "a"'),
        ),
        (
            with_rules(mutating(name="a"), objectSelector={"matchLabels": {"a": "b"}}),
            mutating(name="b"),
            (None, 'sets labels, and MutatingAdmissionPolicy "a" selects objects by labels'),
        ),
        (
            mutating(name="a"),
            with_rules(mutating(name="b"), objectSelector={"matchLabels": {"a": "b"}}),
            ('sets labels, and MutatingAdmissionPolicy "b" selects objects by labels', None),
        ),
        (
            mutating(
                merged("Object{spec: Object.spec{hostname: object.metadata.name == 'a' ? 'a' : 'b'}}"),
                name="a",
            ),
            mutating(name="b", **CREATES),
            ("has matchConditions: if the API server evaluates it first", None),
        ),
        (
            mutating(label("x"), name="a"),
            of_admission(
                MUTATING,
                "b",
                {
                    **mutating(label("x"))["spec"],
                    "matchConstraints": constraints({**PODS, "resources": ["configmaps"]}),
                },
            ),
            (None, None),
        ),
    ],
)
def test_reason_of_order(tmp_path: Path, first: Json, second: Json, reasons: tuple[str | None, ...]) -> None:
    documents = (first, second, binding(first), binding(second))
    by_name = {each.name: each for each in placements(loaded(tmp_path, *documents), NEWEST)}
    for one, expected in zip((first, second), reasons, strict=True):
        found = by_name[one["metadata"]["name"]].reasons
        wanted = [] if expected is None else [True]
        assert [expected is not None and expected in each for each in found] == wanted


# -- laws -----------------------------------------------------------------------------------------

EXCLUDED_FEATURES: dict[str, Json] = {
    "never": {"reinvocationPolicy": "Never"},
    "name": {"mutations": [merged('Object{metadata: Object.metadata{name: "x"}}')]},
    "patch": {"mutations": [patched('[JSONPatch{op: "remove", path: "/spec/nodeName"}]')]},
    "twice": {"mutations": [label("a"), label("a")]},
    "params": {"paramKind": LIMIT},
    "kube-system": {"matchConstraints": constraints(namespaceSelector={})},
    "everything": {"matchConstraints": constraints(EVERYTHING)},
    "two parameters": {"paramKind": LIMIT, "paramRef": {**BY_NAME, "name": None, "selector": {}}},
    "mode": {"mode": "Audit"},
    "exception": {"exception": True},
}
"""What a policy of the drawn configurations may have that keeps it in the gateway."""
OF_BINDINGS = ("paramRef", "mode", "exception")
VERSIONS = st.sampled_from([None, (1, 29), (1, 30), (1, 35), (1, 36), (1, 37), (1, 38)])


@st.composite
def drawn(draw: st.DrawFn) -> tuple[list[Json], dict[str, set[str]]]:
    """Draw the documents of a configuration, and the features of each policy that keep it in the gateway."""
    documents: list[Json] = []
    features: dict[str, set[str]] = {}
    for name in draw(st.lists(st.sampled_from("abcdef"), min_size=1, unique=True)):
        kind, own = (
            draw(st.sampled_from([VALIDATING, MUTATING])),
            draw(st.sets(st.sampled_from(sorted(EXCLUDED_FEATURES)), max_size=2)),
        )
        if kind == VALIDATING:
            own -= {"never", "name", "patch", "twice", "mode", "two parameters"}
        merged_features: Json = {}
        for one in sorted(own):
            merged_features |= EXCLUDED_FEATURES[one]
        spec = {key: value for key, value in merged_features.items() if key not in OF_BINDINGS}
        sets = draw(st.sampled_from("xyz"))
        policy = (
            validating(name=name, **spec)
            if kind == VALIDATING
            else mutating(label(sets), name=name, **{"mutations": [label(sets)], **spec})
        )
        placement = draw(st.sampled_from(["Gateway", "APIServer", "Auto", None]))
        if placement is not None:
            policy["metadata"]["annotations"] = {"admission-gateway.io/placement": placement}
        more = {"paramRef": merged_features["paramRef"]} if "paramRef" in merged_features else {}
        documents += [policy, binding(policy, mode=merged_features.get("mode", ""), **more)]
        if "exception" in own:
            documents.append(
                {**EXCEPTION, "metadata": {"name": name}, "spec": {**EXCEPTION["spec"], "webhooks": [name]}}
            )
        # A later feature replaces an earlier one of the same field, and both keep the policy in the gateway.
        features[name] = own
    return documents, features


def merged_resources(documents: list[Json]) -> Config:
    settings = GatewaySettings(
        kubernetes=KubernetesSettings(),
        policies=PolicySettings(
            placement="Auto",
            installation="kube-system/gateway",
            param_kinds=(ListedKind("example.com/v1", "Limit", "limits"),),
        ),
    )
    resources = [CustomResource(one["kind"], one["metadata"]["name"], one) for one in documents]
    return merge(Config(gateway=settings), resources, None).config


def judged_resources(documents: list[Json], version: tuple[int, int] | None) -> tuple[Placement, ...]:
    return placements(merged_resources(documents), version)


def labels_of(policy: Json) -> list[str]:
    """Return the expressions that set labels: policies with the same one have an order."""
    mutations = policy["spec"].get("mutations", ())
    return [one["applyConfiguration"]["expression"] for one in mutations if "applyConfiguration" in one]


@given(drawn(), VERSIONS)
def test_policy_moves_if_it_has_no_excluded_feature_and_no_order(
    configuration: tuple[list[Json], dict[str, set[str]]], version: tuple[int, int] | None
) -> None:
    documents, features = configuration
    policies = {one["metadata"]["name"]: one for one in documents if one["kind"] in (VALIDATING, MUTATING)}
    before = set[str]()
    for found in judged_resources(documents, version):
        labels = labels_of(policies[found.name])
        is_certain = not features[found.name] and before.isdisjoint(labels)
        before.update(labels)
        is_known = version is not None and version >= NEWEST
        assert found.can_move == (found.wanted != "Gateway" and is_known and is_certain)


@given(drawn(), VERSIONS, st.randoms(use_true_random=False))
def test_order_of_documents_makes_no_difference(
    configuration: tuple[list[Json], dict[str, set[str]]], version: tuple[int, int] | None, random: Random
) -> None:
    documents, _ = configuration
    shuffled = list(documents)
    random.shuffle(shuffled)
    assert judged_resources(shuffled, version) == judged_resources(documents, version)


@given(drawn())
def test_every_reason_says_what_to_do(configuration: tuple[list[Json], dict[str, set[str]]]) -> None:
    for found in judged_resources(configuration[0], (1, 29)):
        for reason in found.reasons:
            assert all(reason.rpartition("; ")[::2]), reason


MUTATIONS = [
    label("x"),
    label("y"),
    merged("Object{metadata: Object.metadata{annotations: object.metadata.labels}}"),
    merged("Object{spec: Object.spec{hostname: object.metadata.labels['x']}}"),
    merged("Object{spec: Object.spec{hostname: 'a'}}"),
    merged("Object{spec: Object.spec{subdomain: object.spec.hostname}}"),
    merged("object.kind == '' ? Object{} : Object{}"),
    patched('[JSONPatch{op: "add", path: "/metadata/labels/z", value: "z"}]'),
]


@given(
    st.dictionaries(st.sampled_from("abcdefgh"), st.lists(st.sampled_from(MUTATIONS), min_size=1, max_size=2))
)
def test_order_counts_as_each_pair_says(mutations: dict[str, list[Json]]) -> None:
    policies = [mutating(*each, name=name) for name, each in mutations.items()]
    documents = [one for policy in policies for one in (policy, binding(policy))]
    resources = [CustomResource(one["kind"], one["metadata"]["name"], one) for one in documents]
    settings = GatewaySettings(policies=PolicySettings(placement="Auto"))
    config = merge(Config(gateway=settings), resources, None).config
    effects = {
        one.policy.policy.name: PolicyEffects(one.policy.policy).all
        for one in config.mutating
        if isinstance(one.policy, MutatingPolicyInForce)
    }
    for found in placements(config, NEWEST):
        depends = [one for one in found.reasons if one.startswith("the policy depends by")]
        before = [name for name in sorted(effects) if name < found.name]
        wanted = [name for name in before if effects[found.name].depend(effects[name]) is not None]
        named = [one.partition(f"on {MUTATING} ")[2].split('"')[1] for one in depends]
        assert named == wanted[:MAX_NAMED]
