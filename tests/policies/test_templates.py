"""Policies on the Pods of workloads: what refuses a Pod refuses the workload that would create it."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, NamedTuple, cast

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.config.kinds.mutating_policy import read_mutating_binding, read_mutating_policy
from gateway.config.kinds.validating_policy import read_validating_binding, read_validating_policy
from gateway.config.merge.policy_documents import bind
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.admission_policies.params import FixedParams, UnreadParamsError
from gateway.pure.admission_policies.templates import TemplatePolicy
from gateway.pure.core.conditions import (
    AccessCheck,
    AccessDecision,
    ConditionInput,
    FoundParam,
    LongEvaluation,
    ParamLookup,
    PolicyResult,
    Unresolved,
)
from gateway.pure.core.decision import decide
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.exemptions import Match, PolicyException, by_webhook
from gateway.pure.core.explain import explain
from gateway.pure.core.matching import Selection
from gateway.pure.core.modes import modes_of
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.policy import PolicyInput
from gateway.pure.core.review import V1, decode
from gateway.pure.core.verdict import Allowed, Denied, Failed, FailureReason
from gateway.pure.core.webhook import PolicyRef
from tests.core.build import document, request

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.decision import Decision
    from gateway.pure.core.policy import ParamKind
    from gateway.pure.core.review import AdmissionRequest
    from gateway.pure.core.webhook import Webhook

    Json = dict[str, Any]


class Workload(NamedTuple):
    """A kind of workloads, its owner of Pods, and the fields above the pod template."""

    api_version: str
    kind: str
    resource: str
    owner: tuple[str, str]
    path: tuple[str, ...] = ("spec", "template")


WORKLOADS: Final = (
    Workload("apps/v1", "Deployment", "deployments", ("apps/v1", "ReplicaSet")),
    Workload("apps/v1", "ReplicaSet", "replicasets", ("apps/v1", "ReplicaSet")),
    Workload("apps/v1", "StatefulSet", "statefulsets", ("apps/v1", "StatefulSet")),
    Workload("apps/v1", "DaemonSet", "daemonsets", ("apps/v1", "DaemonSet")),
    Workload("batch/v1", "Job", "jobs", ("batch/v1", "Job")),
    Workload(
        *("batch/v1", "CronJob", "cronjobs", ("batch/v1", "Job")),
        path=("spec", "jobTemplate", "spec", "template"),
    ),
    Workload("v1", "ReplicationController", "replicationcontrollers", ("v1", "ReplicationController")),
)
DEPLOYMENT: Final = WORKLOADS[0]
SPACE: Final = Namespace(
    "shop", {"env": "test"}, b'{"metadata":{"name":"shop","labels":{"env":"test"}},"spec":{}}'
)
USER: Final = {"username": "alice", "groups": ["devs"]}
PODS: Final = {
    "operations": ["CREATE", "UPDATE"],
    "apiGroups": [""],
    "apiVersions": ["v1"],
    "resources": ["pods"],
}
ANNOTATION: Final = "admission-gateway.io/applies-to-templates"
NINE: Final = "[1, 2, 3, 4, 5, 6, 7, 8, 9]"
PARAMS: Final = FixedParams(
    [
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "p", "namespace": space}, "data": data}
        for space, data in (("shop", {"image": "a"}), ("other", {"image": "b"}))
    ]
)


def read(reader: Any, name: str, spec: Json, **annotations: str) -> Any:
    problems = Problems("test")
    metadata = {"name": name, **({"annotations": annotations} if annotations else {})}
    found = reader(Fields({"metadata": metadata, "spec": spec}, "", problems))
    assert not problems.found, problems.found
    return found


def validating(
    *validations: Json | str, mode: str = "Deny", bindings: Sequence[Json] = ({},), **spec: Any
) -> list[Webhook]:
    """The entries of a policy for Pods, of which the second is for templates."""
    content = {
        "matchConstraints": {"resourceRules": [PODS]},
        "validations": [{"expression": each} if isinstance(each, str) else each for each in validations],
        **spec,
    }
    policy = read(read_validating_policy, "p", content, **{ANNOTATION: mode} if mode else {})
    return bound(policy, [{"validationActions": ["Deny"], **each} for each in bindings])


def mutating(
    expression: str, mode: str = "Deny", modes: Sequence[str] = ("Enforce",), **spec: Any
) -> list[Webhook]:
    content = {
        "matchConstraints": {"resourceRules": [PODS]},
        "reinvocationPolicy": "Never",
        "mutations": [{"patchType": "JSONPatch", "jsonPatch": {"expression": expression}}],
        **spec,
    }
    policy = read(read_mutating_policy, "p", content, **{ANNOTATION: mode})
    bindings = [
        read(read_mutating_binding, f"b{number}", {"policyName": "p"}, **{"admission-gateway.io/mode": each})
        for number, each in enumerate(modes)
    ]
    return list(bind(policy, bindings))


def bound(policy: Any, bindings: Sequence[Json]) -> list[Webhook]:
    listed = [
        read(read_validating_binding, f"b{number}", {"policyName": "p", **each})
        for number, each in enumerate(bindings)
    ]
    return list(bind(policy, listed, PARAMS))


def object_of(workload: Workload, template: object, **metadata: Any) -> Json:
    """A workload with *template*."""
    found: Any = template
    for field in reversed(workload.path):
        found = {field: found}
    head = {"apiVersion": workload.api_version, "kind": workload.kind}
    return {**head, "metadata": {"name": "web", "namespace": "shop", **metadata}, **found}


def document_of(workload: Workload, template: object, old: object = None, **members: Any) -> Json:
    """The request that writes a workload with *template*, where *old* was before."""
    group, _, version = workload.api_version.rpartition("/")
    before = {} if old is None else {"operation": "UPDATE", "oldObject": object_of(workload, old)}
    found: Json = {
        "kind": {"group": group, "version": version, "kind": workload.kind},
        "resource": {"group": group, "version": version, "resource": workload.resource},
        "name": "web",
        "namespace": "shop",
        "userInfo": USER,
        "object": object_of(workload, template),
    }
    return document(**{**found, **before, **members})


def written(workload: Workload, template: object, old: object = None, **members: Any) -> AdmissionRequest:
    """The same, decoded."""
    return request(**document_of(workload, template, old, **members))


def created(workload: Workload, template: Json, is_dry_run: bool = False) -> AdmissionRequest:
    """The request by which the controller of a workload creates a Pod, as if its author did."""
    api_version, kind = workload.owner
    metadata = {
        **template.get("metadata", {}),
        "generateName": "web-",
        "namespace": "shop",
        "ownerReferences": [
            {
                "apiVersion": api_version,
                "kind": kind,
                "name": "web",
                "uid": "",
                "controller": True,
                "blockOwnerDeletion": True,
            }
        ],
    }
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": template.get("spec", {})}
    options = {"kind": "CreateOptions", "apiVersion": "meta.k8s.io/v1"}
    as_requested: Json = {
        "requestKind": {"group": "", "version": "v1", "kind": "Pod"},
        "requestResource": {"group": "", "version": "v1", "resource": "pods"},
    }
    members = {"namespace": "shop", "userInfo": USER, "object": pod, "options": options, "dryRun": is_dry_run}
    return request(**members, **as_requested)


def settled(
    entries: Sequence[Webhook],
    review: AdmissionRequest,
    namespace: Namespace | Failed | None = SPACE,
    exceptions: Sequence[PolicyException] = (),
) -> Evaluation:
    """The evaluation of *entries* of the validating phase, with the tasks of policies done one by one."""
    selection = Selection(
        "validate", [one for one in entries if one.phase == "validate"], by_webhook(exceptions)
    )
    modes = modes_of(selection, review, namespace, 0.0)
    evaluation = Evaluation(selection, review, namespace, modes=modes, now=0.0)
    assert not evaluation.start()
    while tasks := evaluation.take_condition_tasks():
        for task in tasks:
            assert not isinstance(task, ParamLookup)
            if isinstance(task, AccessCheck):
                attributes = json.loads(task.spec)["resourceAttributes"]
                is_allowed = attributes.get("resource") == "pods"
                evaluation.complete_condition_task(task, AccessDecision(is_allowed))
            else:
                assert isinstance(task, LongEvaluation)
                evaluation.complete_condition_task(task, task())
    assert evaluation.done
    return evaluation


def decided(entries: Sequence[Webhook], review: AdmissionRequest, *more: Any) -> Decision:
    return decide(settled(entries, review, *more), "Metadata")


def message(decision: Decision) -> str:
    return "" if decision.status is None else decision.status.message


TEMPLATE: Final[Json] = {
    "metadata": {"labels": {"app": "web"}},
    "spec": {"containers": [{"name": "c", "image": "a"}]},
}
OTHER: Final[Json] = {**TEMPLATE, "spec": {"containers": [{"name": "c", "image": "b"}]}}

EXPRESSIONS: Final = (
    "true",
    "false",
    "object.metadata.labels.app == 'web'",
    "object.metadata.?annotations.?x.orValue('') == ''",
    "object.metadata.ownerReferences.exists(o, o.kind in ['ReplicaSet', 'Job'] && o.controller)",
    "object.metadata.generateName == 'web-' && !has(object.metadata.name)",
    "object.metadata.namespace == 'shop' && request.namespace == 'shop'",
    "namespaceObject.metadata.labels.env == 'test'",
    "object.metadata.?finalizers.orValue([]) == []",
    "object.apiVersion == 'v1' && object.kind == 'Pod'",
    "object.spec.containers.all(c, c.image != 'b')",
    "object.spec.none == 1",
    "request.kind.kind == 'Pod' && request.resource.resource == 'pods' && request.requestKind.kind == 'Pod'",
    "request.operation == 'CREATE' && request.options.kind == 'CreateOptions' && oldObject == null",
    "!request.dryRun",
    "request.userInfo.username == 'alice' && 'devs' in request.userInfo.groups",
    "authorizer.requestResource.check('create').allowed()",
    "authorizer.group('apps').resource('deployments').check('create').allowed()",
    "params.data.image == object.spec.containers[0].image",
    f"{NINE}.all(a, {NINE}.all(b, {NINE}.all(c, a + b + c > 3)))",
    # Whether lists and maps have Go types.
    "!(object.metadata.labels == '')",
)
labels = st.dictionaries(st.sampled_from(["app", "team"]), st.sampled_from(["web", "x"]), max_size=2)
templates = st.builds(
    lambda metadata, image: {
        "metadata": {name: each for name, each in metadata.items() if each},
        "spec": {"containers": [{"name": "c", "image": image}]},
    },
    st.fixed_dictionaries(
        {},
        optional={
            "labels": labels,
            "annotations": labels,
            "finalizers": st.lists(st.just("x.test/f"), max_size=1),
        },
    ),
    st.sampled_from(["a", "b"]),
)
selectors = st.sampled_from([{}, {"matchLabels": {"app": "web"}}, {"matchLabels": {"env": "test"}}])
rules = st.sampled_from(
    [
        PODS,
        {**PODS, "operations": ["UPDATE"]},
        {**PODS, "apiGroups": ["*"], "resources": ["*"]},
        {**PODS, "apiGroups": ["apps"], "resources": ["deployments"]},
        {**PODS, "resourceNames": ["web"]},
        {**PODS, "scope": "Namespaced"},
        {**PODS, "scope": "Cluster"},
    ]
)
matches = st.fixed_dictionaries(
    {"resourceRules": st.lists(rules, min_size=1, max_size=2)},
    optional={
        "excludeResourceRules": st.lists(rules, max_size=1),
        "namespaceSelector": selectors,
        "objectSelector": selectors,
        "matchPolicy": st.sampled_from(["Exact", "Equivalent"]),
    },
)
bindings = st.fixed_dictionaries(
    {"validationActions": st.sampled_from([["Deny"], ["Warn"], ["Deny", "Audit"], ["Audit"]])},
    optional={
        "matchResources": matches,
        "paramRef": st.sampled_from(
            [
                {"name": "p", "parameterNotFoundAction": "Deny"},
                {"name": "p", "namespace": "other", "parameterNotFoundAction": "Allow"},
                {"selector": {"matchLabels": {"none": "x"}}, "parameterNotFoundAction": "Deny"},
            ]
        ),
    },
)
specs = st.fixed_dictionaries(
    {
        "matchConstraints": matches,
        "validations": st.lists(
            st.fixed_dictionaries(
                {"expression": st.sampled_from(EXPRESSIONS)},
                optional={"messageExpression": st.just("'of ' + object.metadata.generateName")},
            ),
            min_size=1,
            max_size=3,
        ),
        "paramKind": st.just({"apiVersion": "v1", "kind": "ConfigMap"}),
    },
    optional={
        "failurePolicy": st.sampled_from(["Fail", "Ignore"]),
        "matchConditions": st.lists(
            st.sampled_from(EXPRESSIONS).map(lambda text: {"name": "c", "expression": text}), max_size=1
        ),
        "auditAnnotations": st.just([{"key": "k", "valueExpression": "'x'"}]),
    },
)


def normal(decision: Decision, subject: str) -> tuple[Any, ...]:
    """What a decision says, with the subject of its messages as that of a request."""

    def plain(text: str) -> str:
        return text.replace(f" denied {subject}: ", " denied request: ").replace(f" on {subject}: ", ": ")

    status = decision.status
    found = None if status is None else (status.code, status.reason, plain(status.message))
    return found, [plain(each) for each in decision.warnings]


@given(
    workload=st.sampled_from(WORKLOADS),
    template=templates,
    spec=specs,
    of_policy=st.lists(bindings, min_size=1, max_size=2),
    namespace=st.sampled_from([SPACE, None, Failed(FailureReason.NAMESPACE, "unknown", 500)]),
    has_go_types=st.booleans(),
    is_dry_run=st.booleans(),
)
def test_a_workload_is_refused_as_its_pod_is(
    workload: Workload,
    template: Json,
    spec: Json,
    of_policy: list[Json],
    namespace: Namespace | Failed | None,
    has_go_types: bool,
    is_dry_run: bool,
) -> None:
    policy, *on_templates = validating(bindings=of_policy, **spec)
    alone = {name: each for name, each in spec.items() if name != "auditAnnotations"}
    (on_pods,) = validating(bindings=of_policy, mode="", **alone)
    subject = f'the Pods of {workload.kind} "web"'
    requests = created(workload, template, is_dry_run), written(workload, template, dryRun=is_dry_run)
    for each in requests:
        each.has_go_types = has_go_types
    of_pod = decided([on_pods], requests[0], namespace)
    of_workload = decided(on_templates, requests[1], namespace)
    assert normal(of_workload, subject) == normal(of_pod, subject)
    if of_workload.status is not None and of_workload.status.details.name:
        details = of_workload.status.details
        group = workload.api_version.rpartition("/")[0]
        assert (details.name, details.group, details.kind) == ("web", group, workload.resource)
    # The template that was there before is not refused again, and the mode Warn refuses nothing.
    assert not settled(on_templates, written(workload, template, template), namespace).outcomes
    softened = decided(validating(bindings=of_policy, mode="Warn", **spec)[1:], written(workload, template))
    assert softened.allowed
    # The annotation changes nothing for the Pod itself.
    assert decided([policy], created(workload, template)).status == (
        decided([on_pods], created(workload, template)).status
    )


@pytest.mark.parametrize("expression", EXPRESSIONS)
@pytest.mark.parametrize("is_so", [True, False])
def test_an_expression_has_the_same_value_at_the_workload(expression: str, is_so: bool) -> None:
    """By whether values have Go types, and whether it is a dry run, too."""
    marks = {"labels": {"app": "web"}, "annotations": {"x": "y"}, "finalizers": ["x.test/f"]}
    template = {**TEMPLATE, "metadata": marks}
    spec: Json = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "bindings": [{"paramRef": {"name": "p", "parameterNotFoundAction": "Deny"}}],
    }
    entries = validating(expression, **spec)
    found = []
    for review in (created(DEPLOYMENT, template, is_so), written(DEPLOYMENT, template, dryRun=is_so)):
        review.has_go_types = is_so
        found.append(normal(decided(entries, review), 'the Pods of Deployment "web"'))
    assert found[0] == found[1]


def test_a_refusal_names_workload_and_policy() -> None:
    entries = validating(
        {"expression": "false", "message": "no"}, bindings=[{}, {"validationActions": ["Warn"]}]
    )
    found = decided(entries, written(DEPLOYMENT, TEMPLATE))
    assert (
        message(found)
        == "ValidatingAdmissionPolicy 'p' with binding 'b0' denied the Pods of Deployment \"web\": no"
    )
    (warning,) = found.warnings
    assert warning == (
        "Validation failed for ValidatingAdmissionPolicy 'p' with binding 'b1' on the Pods of Deployment "
        '"web": no'
    )


@pytest.mark.parametrize(("failure_policy", "warnings"), [("Fail", 1), ("Ignore", 0)])
def test_the_mode_warn_makes_warnings_of_refusals(failure_policy: str, warnings: int) -> None:
    for expression in ("object.spec.none == 1", "false"):
        entry = validating(expression, mode="Warn", failurePolicy=failure_policy)[1]
        assert (entry.failure_policy, entry.may_reject) == ("Ignore", False)
        found = decided([entry], written(DEPLOYMENT, TEMPLATE))
        assert found.allowed
        # An error is a refusal under Fail.
        assert len(found.warnings) == (warnings if expression != "false" else 1)
        assert all(
            text.startswith(
                "would be refused: ValidatingAdmissionPolicy 'p' with binding 'b0' denied the Pods"
            )
            for text in found.warnings
        )


@pytest.mark.parametrize(
    ("old", "new", "is_reviewed"),
    [
        (TEMPLATE, TEMPLATE, False),
        (TEMPLATE, OTHER, True),
        (TEMPLATE, {**TEMPLATE, "metadata": {"labels": {"app": "x"}}}, True),
        ({**TEMPLATE, "spec": {"x": 1}}, {**TEMPLATE, "spec": {"x": 1.0}}, True),
        ([], TEMPLATE, True),
        (TEMPLATE, None, False),
    ],
)
def test_an_update_is_reviewed_if_it_changes_the_template(
    old: object, new: object, is_reviewed: bool
) -> None:
    entries = validating("false")
    review = written(DEPLOYMENT, new, old)
    assert bool(settled(entries, review).outcomes) is is_reviewed
    client = entries[1].client
    assert isinstance(client, PolicyRef)
    assert client.policy.excludes(review) is not is_reviewed


def test_scaling_needs_no_namespace() -> None:
    """The labels of the namespace are not known, but they do not count."""
    entries = validating(
        "false", matchConstraints={"resourceRules": [PODS], "namespaceSelector": {"matchLabels": {"a": "b"}}}
    )
    unknown = Failed(FailureReason.NAMESPACE, "unknown", 500)
    assert decided(entries, written(DEPLOYMENT, TEMPLATE, TEMPLATE), unknown).allowed
    assert message(decided(entries, written(DEPLOYMENT, OTHER, TEMPLATE), unknown)) == (
        "ValidatingAdmissionPolicy 'p' failed: unknown"
    )


@pytest.mark.parametrize("operation", ["DELETE", "CONNECT"])
def test_other_operations_are_not_reviewed(operation: str) -> None:
    assert not settled(validating("false"), written(DEPLOYMENT, TEMPLATE, operation=operation)).outcomes


@pytest.mark.parametrize(
    "changes",
    [
        {"subResource": "scale"},
        {"subResource": "status"},
        {"resource": {"group": "", "version": "v1", "resource": "podtemplates"}},
        {"resource": {"group": "apps", "version": "v1", "resource": "controllerrevisions"}},
        {"resource": {"group": "example.com", "version": "v1", "resource": "deployments"}},
    ],
)
def test_other_resources_are_not_reviewed(changes: Json) -> None:
    assert not settled(validating("false"), written(DEPLOYMENT, TEMPLATE, **changes)).outcomes


@pytest.mark.parametrize("template", [None, [], "x", 5, True])
def test_a_template_that_is_no_object_has_no_pod(template: object) -> None:
    """The API server refuses such a workload itself."""
    for workload in WORKLOADS:
        assert not settled(validating("false"), written(workload, template)).outcomes


@pytest.mark.parametrize("content", [None, [], {}, {"spec": 5}, {"spec": {"template": {"metadata": 3}}}])
def test_a_workload_without_parts_is_no_error(content: object) -> None:
    members: Json = {"object": {"metadata": content, "spec": content}}
    for workload in WORKLOADS:
        decided(validating("false"), written(workload, TEMPLATE, **members))


json_values = st.recursive(
    st.none() | st.booleans() | st.integers(-9, 9) | st.text(max_size=3),
    lambda parts: (
        st.lists(parts, max_size=2)
        | st.dictionaries(
            st.sampled_from(["metadata", "labels", "spec", "containers", "name"]), parts, max_size=3
        )
    ),
    max_leaves=6,
)


@given(template=json_values, old=json_values, metadata=json_values, workload=st.sampled_from(WORKLOADS))
def test_hostile_objects_are_refused_or_pass(
    template: object, old: object, metadata: object, workload: Workload
) -> None:
    entries = [
        *validating("object.metadata.labels.app == 'x'"),
        *mutating(NO_TEAM, modes=("Enforce", "Warn")),
    ]
    for before in (None, old):
        review = written(
            workload,
            template,
            before,
            name=None,
            object={**object_of(workload, template), "metadata": metadata},
        )
        found = decided(entries, review)
        assert found.status is None or found.status.code in (403, 422)


def test_a_deep_template_is_evaluated() -> None:
    """One that nests deeper than orjson writes."""

    def deep(levels: int) -> Json:
        found: Json = {"deep": "x"}
        for _ in range(levels):
            found = {"deep": found}
        return {**TEMPLATE, "spec": found}

    def review(old: Json | None) -> AdmissionRequest:
        found = document_of(DEPLOYMENT, deep(300), old)
        return decode(reviewed(found))

    def reviewed(found: Json) -> bytes:
        body = {"kind": "AdmissionReview", "apiVersion": V1, "request": found}
        return json.dumps(body, separators=(",", ":")).encode()

    entries = validating("has(object.spec.deep)", "false")
    for old in (None, deep(301)):
        assert message(decided(entries, review(old))).endswith(": failed expression: false")
    assert not settled(entries, review(deep(300))).outcomes
    # It cannot be compared, and has perhaps changed.
    deeper = document_of(DEPLOYMENT, deep(900), deep(900))
    assert settled(entries, decode(reviewed(deeper))).outcomes


def test_a_large_template_is_evaluated_elsewhere() -> None:
    names = [{"name": f"c{number}", "image": "a"} for number in range(3000)]
    template = {**TEMPLATE, "spec": {"containers": names}}
    entries = validating("object.spec.containers.all(c, object.spec.containers[0].image == c.image)", "false")
    assert message(decided(entries, written(DEPLOYMENT, template))).endswith("failed expression: false")


@pytest.mark.parametrize(
    ("metadata", "name", "shown"),
    [
        ({}, "web-", "web"),
        ({"name": "x" * 252}, "x" * 252 + "-", "x" * 80),
        ({"name": "x" * 253}, "x" * 253, "x" * 80),
        ({"name": None, "generateName": "load-"}, "load-", "load-"),
        ({"name": 'a"\nb'}, 'a"\nb-', 'a\\"\\nb'),
    ],
)
def test_the_name_of_a_pod_begins_with_that_of_the_workload(metadata: Json, name: str, shown: str) -> None:
    entries = validating(f"object.metadata.generateName != {json.dumps(name)}")
    review = written(DEPLOYMENT, TEMPLATE, name=None, object=object_of(DEPLOYMENT, TEMPLATE, **metadata))
    assert f'denied the Pods of Deployment "{shown}'[:90] in message(decided(entries, review))
    assert "\n" not in message(decided(entries, review))


def test_the_owner_of_a_pod_has_the_uid_of_the_workload() -> None:
    entries = validating("object.metadata.ownerReferences[0].uid == 'u-1'")
    review = written(DEPLOYMENT, TEMPLATE, object=object_of(DEPLOYMENT, TEMPLATE, uid="u-1"))
    assert decided(entries, review).allowed


def test_an_object_selector_selects_pods_and_not_workloads() -> None:
    constraints = {"resourceRules": [PODS], "objectSelector": {"matchLabels": {"app": "web"}}}
    entries = validating("false", matchConstraints=constraints)
    other = {**TEMPLATE, "metadata": {"labels": {"app": "x"}}}
    assert not decided(entries, written(DEPLOYMENT, TEMPLATE)).allowed
    labelled = object_of(DEPLOYMENT, other, labels={"app": "web"})
    assert decided(entries, written(DEPLOYMENT, other, object=labelled)).allowed


def test_exceptions_are_for_the_workload() -> None:
    entries = validating("false")

    def exception(kind: str) -> PolicyException:
        return PolicyException("e", "", ("p",), Match(kinds=frozenset({kind})), "r", "o", "", None)

    review = written(DEPLOYMENT, TEMPLATE)
    found = settled(entries, review, SPACE, [exception("Deployment")])
    assert [(one.exception.id, one.invocation.webhook) for one in found.exemptions] == [("e", entries[1])]
    assert not settled(entries, review, SPACE, [exception("Pod")]).exemptions


def test_audit_annotations_are_left_out_and_failures_have_a_key_of_their_own() -> None:
    matches = {"resourceRules": [{**PODS, "apiGroups": ["*"], "resources": ["*"]}]}
    entries = validating(
        "false",
        bindings=[{"validationActions": ["Audit"]}],
        auditAnnotations=[{"key": "k", "valueExpression": "request.kind.kind"}],
        matchConstraints=matches,
    )
    found = decided(entries, written(DEPLOYMENT, TEMPLATE)).audit_annotations
    assert found["p.k"] == "Deployment"
    (of_workload,) = json.loads(found["p.validation_failure"])
    assert [of_workload] == json.loads(found["p.template_validation_failure"])
    assert not decided(entries[1:], written(DEPLOYMENT, TEMPLATE)).audit_annotations.keys() - {
        "p.template_validation_failure"
    }


def test_policies_without_the_annotation_have_no_more_entries() -> None:
    assert len(validating("false", mode="")) == 1


@pytest.mark.parametrize("mode", ["Deny", "Warn"])
def test_a_policy_without_effect_on_templates_has_no_entry_for_them(mode: str) -> None:
    for rule in (
        {**PODS, "operations": ["UPDATE", "DELETE"]},
        {**PODS, "resources": ["pods/status"]},
        {**PODS, "resourceNames": ["web"]},
        {**PODS, "scope": "Cluster"},
        {**PODS, "apiGroups": ["apps"]},
    ):
        assert len(validating("false", mode=mode, matchConstraints={"resourceRules": [rule]})) == 1
    annotation = [{"key": "k", "valueExpression": "'x'"}]
    assert len(validating(mode=mode, auditAnnotations=annotation)) == 1


# -- mutating policies ------------------------------------------------------------------------------

NO_TEAM: Final = (
    "[JSONPatch{op: 'add', path: '/metadata/labels/team', value: object.metadata.labels.team + 'x'}]"
)


def test_an_error_of_a_mutation_refuses_the_workload() -> None:
    entries = mutating(NO_TEAM)
    assert [one.phase for one in entries] == ["mutate", "validate"]
    found = decided(entries, written(DEPLOYMENT, TEMPLATE))
    assert message(found).startswith("policy 'p' with binding 'b0' denied the Pods of Deployment \"web\": ")
    assert found.status is not None
    assert (found.status.details.name, found.status.details.kind) == ("web", "deployments")


def test_a_mutation_changes_no_template() -> None:
    labelled = {**TEMPLATE, "metadata": {"labels": {"team": "a"}}}
    review = written(DEPLOYMENT, labelled)
    before = orjson.dumps(review.object)
    for old in (None, TEMPLATE):
        found = settled(mutating(NO_TEAM), written(DEPLOYMENT, labelled, old))
        (outcome,) = found.outcomes
        assert (outcome.has_changed, outcome.would_change, outcome.is_patched) == (False, False, False)
        decision = decide(found, "Request")
        assert (decision.allowed, decision.patch, decision.audit_annotations) == (True, b"", {})
    assert orjson.dumps(review.object) == before


@pytest.mark.parametrize(
    ("mode", "found"),
    [("Deny", ["Enforce", "Warn", "Audit", "Shadow"]), ("Warn", ["Warn", "Warn", "Audit", "Shadow"])],
)
def test_the_weaker_of_the_modes_of_annotation_and_binding_holds(mode: str, found: list[str]) -> None:
    entries = mutating(NO_TEAM, mode, ("Enforce", "Warn", "Audit", "Shadow"))[4:]
    assert ["Enforce" if one.rollout is None else one.rollout.mode for one in entries] == found
    assert decided(entries, written(DEPLOYMENT, TEMPLATE)).allowed is (mode == "Warn")


def test_a_refused_policy_fails_by_its_failure_policy() -> None:
    policy = read(
        read_validating_policy,
        "p",
        {"matchConstraints": {"resourceRules": [PODS]}, "validations": [{"expression": "true"}]},
        **{ANNOTATION: "Deny"},
    )
    binding = read(read_validating_binding, "b", {"policyName": "p", "validationActions": ["Deny"]})
    found = decided(bind(policy, [binding], refusal="broken"), written(DEPLOYMENT, TEMPLATE))
    assert message(found).endswith('denied the Pods of Deployment "web": failed to configure policy: broken')


def test_explain_names_the_entry_for_templates() -> None:
    entries = validating({"expression": "object.spec.containers[0].image == 'a'", "message": "no"})
    lines = {}
    for name, review in {
        "allowed": written(DEPLOYMENT, TEMPLATE),
        "unchanged": written(DEPLOYMENT, TEMPLATE, TEMPLATE),
        "pod": created(DEPLOYMENT, TEMPLATE),
    }.items():
        evaluation = settled(entries, review)
        lines[name] = [line.partition(" in ")[0] for line in explain(evaluation, evaluation.selection)][1]
    title = "validate p/p on pod templates:"
    assert lines == {
        "allowed": f"{title} matched, allowed",
        "unchanged": (
            f"{title} not matched, the request leaves the pod template as it is, or the objectSelector "
            "excludes its Pods"
        ),
        "pod": f"{title} not matched, no rule is for CREATE core/v1 pods",
    }
    excluded = validating("false", matchConditions=[{"name": "c", "expression": "false"}])
    evaluation = settled(excluded, written(DEPLOYMENT, TEMPLATE))
    assert list(explain(evaluation, evaluation.selection))[1] == (
        f"{title} not matched, its bindings, parameters or matchConditions exclude the Pods of the template"
    )


# -- what the policies of a review share ------------------------------------------------------------


def given_for(review: AdmissionRequest) -> PolicyInput:
    conditions = ConditionInput(review.document, review.object, review.old_object)
    params, schemas = cast("Any", object()), cast("Any", object())
    return PolicyInput(conditions, review, SPACE, params, schemas, now=5.0)


def on_templates(*validations: str, **spec: Any) -> TemplatePolicy:
    client = validating(*validations, **spec)[1].client
    assert isinstance(client, PolicyRef)
    assert isinstance(client.policy, TemplatePolicy)
    return client.policy


def test_the_policies_of_a_review_share_the_pod_and_the_time_of_the_event_loop() -> None:
    policy_input = given_for(written(DEPLOYMENT, TEMPLATE))
    policies = [on_templates(f"{NINE}.all(a, {NINE}.all(b, a + b > 0))") for _ in range(3)]
    left = [policy_input.conditions.brief_steps]
    pods = []
    for policy in policies:
        assert isinstance(policy.evaluate(policy_input, {}), PolicyResult)
        left.append(policy_input.conditions.brief_steps)
        assert policy_input.of_template is not None
        pods.append(policy_input.of_template.conditions.object)
        for name in ("namespace", "params", "schemas", "now"):
            assert getattr(policy_input.of_template, name) is getattr(policy_input, name)
    assert left == sorted(set(left), reverse=True)
    assert pods[0] is pods[1] is pods[2]
    policy_input.conditions.brief_steps = 0
    waiting = policies[0].evaluate(policy_input, {})
    assert isinstance(waiting, Unresolved)
    assert waiting.evaluation is not None
    assert isinstance(waiting.evaluation(), PolicyResult)


def test_no_pod_is_made_for_policies_that_are_not_on_templates() -> None:
    policy_input = given_for(written(DEPLOYMENT, TEMPLATE))
    matches = {"resourceRules": [{**PODS, "apiGroups": ["*"], "resources": ["*"]}]}
    policy = validating("false", mode="", matchConstraints=matches)[0].policy
    assert policy is not None
    assert isinstance(policy.evaluate(policy_input, {}), PolicyResult)
    assert not hasattr(policy_input, "of_template")


class Unread:
    """The objects of a cluster, each of which has to be looked up first."""

    is_namespaced = True
    roles = None

    def of(self, kind: ParamKind, paths: object) -> Unread:
        return self

    def get(self, namespace: str, name: str) -> Json | None:
        raise UnreadParamsError(ParamLookup("example.com/v1", "Limit", namespace, name))

    def select(self, namespace: str, selector: object) -> Sequence[Json]:
        raise AssertionError("the binding has a name")

    def seen(self, namespace: str, name: str) -> Json | None:
        raise AssertionError("no expression reads objects")

    def count(self, namespace: str) -> int:
        raise AssertionError("no expression reads objects")

    def bytes_of(self, namespace: str, name: str = "") -> int:
        raise AssertionError("no expression reads objects")


def test_parameters_of_the_cluster_are_those_of_the_namespace_of_the_workload() -> None:
    policy = on_templates(
        "params.spec.image == object.spec.containers[0].image",
        paramKind={"apiVersion": "example.com/v1", "kind": "Limit"},
        bindings=[{"paramRef": {"name": "x", "parameterNotFoundAction": "Deny"}}],
    )
    policy_input = given_for(written(DEPLOYMENT, TEMPLATE))
    policy_input.params = Unread()
    waiting = policy.evaluate(policy_input, {})
    assert isinstance(waiting, Unresolved)
    (lookup,) = waiting.lookups
    assert (lookup.namespace, lookup.name) == ("shop", "x")
    for image, expected in (("a", Allowed), ("b", Denied)):
        policy_input.found_params = {lookup: FoundParam({"spec": {"image": image}})}
        result = policy.evaluate(policy_input, {})
        assert isinstance(result, PolicyResult)
        assert isinstance(result.verdict, expected)
