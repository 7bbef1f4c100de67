"""Which exceptions apply to a review: tables, and an index that finds what a search through all finds."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import orjson
import pytest

from admission_gateway_worker.json_patch.steps import finish
from gateway.pure.core.decision import PLAIN_ALLOWED, decide
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.exemptions import Match, Patterns, PolicyException, by_webhook
from gateway.pure.core.explain import explain
from gateway.pure.core.labels import Requirement, Selector
from gateway.pure.core.matching import Selection
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import decode_in_steps
from gateway.pure.core.verdict import ALLOWED, Failed, FailureReason
from gateway.pure.core.workload import repository_of
from tests.core.build import ANYTHING, add, body, document, labelled, patch, request, resource, webhook

if TYPE_CHECKING:
    from gateway.pure.core.review import AdmissionRequest, Json

NOW = 1_000.0
NAMESPACES = {
    "resource": resource("/v1/namespaces"),
    "kind": {"group": "", "version": "v1", "kind": "Namespace"},
}


def patterns(*texts: str) -> Patterns:
    return Patterns(
        frozenset(text for text in texts if not text.endswith("*")),
        tuple(text[:-1] for text in texts if text.endswith("*")),
    )


def exception(
    name: str = "e", *, namespace: str = "", expires_at: float | None = None, **match: Any
) -> PolicyException:
    return PolicyException(
        name,
        namespace,
        webhooks=("a.policies.test",),
        match=Match(**match),
        reason="migration",
        owner="team-a",
        expires="" if expires_at is None else "2026-12-01T00:00:00Z",
        expires_at=expires_at,
    )


def evaluated(
    given: AdmissionRequest,
    *exceptions: PolicyException,
    namespace: Namespace | Failed | None = None,
    now: float = NOW,
    phase: str = "validate",
) -> Evaluation:
    hooks = [webhook(phase=phase), webhook("b.policies.test", phase=phase)]
    evaluation = Evaluation(
        Selection(hooks[0].phase, hooks, by_webhook(exceptions)), given, namespace, None, now
    )
    evaluation.start()
    return evaluation


def is_exempt(given: AdmissionRequest, one: PolicyException, **more: Any) -> bool:
    return bool(evaluated(given, one, **more).exemptions)


def pod(labels: dict[str, str] | None = None, **metadata: Any) -> Json:
    return {"metadata": {**metadata, **({} if labels is None else {"labels": labels})}}


NOT_A = Selector((Requirement("team", "NotIn", frozenset({"a"})),))

DEPLOYMENT = {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "name": "web"}


def owner(kind: str, *names: str) -> tuple[tuple[str, Patterns], ...]:
    return ((kind, patterns(*names)),)


def owned(version: str, kind: str, name: str, digest: str = "", *, controller: bool = True) -> Json:
    labels = {"pod-template-hash": digest}
    reference = {"apiVersion": version, "kind": kind, "name": name, "uid": "u", "controller": controller}
    return pod(labels, name="x", ownerReferences=[{"kind": "A"}, reference])


OWNED = owned("apps/v1", "ReplicaSet", "web-5f4d", "5f4d")


def running(image: str, **spec: Any) -> Json:
    return {"metadata": {"name": "x"}, "spec": {"containers": [{"image": image}], **spec}}


CASES: dict[str, tuple[dict[str, Any], PolicyException, bool]] = {
    "everything": ({}, exception(), True),
    "namespace": ({}, exception(namespaces=patterns("default")), True),
    "other namespace": ({}, exception(namespaces=patterns("defaul", "default-*")), False),
    "beginning of a namespace": ({}, exception(namespaces=patterns("def*")), True),
    "no namespace": ({"namespace": ""}, exception(namespaces=patterns("*")), False),
    "in the namespace": ({}, exception(namespace="default"), True),
    "in another namespace": ({}, exception(namespace="other"), False),
    "the namespace itself is not in it": (
        {**NAMESPACES, "namespace": "default"},
        exception(namespace="default"),
        False,
    ),
    "the namespace itself by name": (
        {**NAMESPACES, "namespace": "default"},
        exception(namespaces=patterns("default")),
        True,
    ),
    "kind": ({}, exception(kinds=frozenset({"Job", "Pod"})), True),
    "kind with a group": (
        {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}},
        exception(kinds=frozenset({"Deployment.apps"})),
        True,
    ),
    "kind of another group": ({}, exception(kinds=frozenset({"Pod.apps"})), False),
    "user": ({"userInfo": {"username": "bot"}}, exception(users=patterns("bot")), True),
    "users of a namespace": (
        {"userInfo": {"username": "system:serviceaccount:ci:bot"}},
        exception(users=patterns("system:serviceaccount:ci:*")),
        True,
    ),
    "other user": ({"userInfo": {"username": "bots"}}, exception(users=patterns("bot")), False),
    "no user": ({}, exception(users=patterns("bot")), False),
    "group": ({"userInfo": {"groups": ["x", "admins"]}}, exception(groups=patterns("admins")), True),
    "other group": ({"userInfo": {"groups": ["x", 1]}}, exception(groups=patterns("admins")), False),
    "groups of a wrong type": (
        {"userInfo": {"groups": "admins"}},
        exception(groups=patterns("admins")),
        False,
    ),
    "user and group": (
        {"userInfo": {"username": "bot", "groups": ["x"]}},
        exception(users=patterns("bot"), groups=patterns("admins")),
        False,
    ),
    "name": ({"name": "web"}, exception(names=patterns("web")), True),
    "other name": ({"name": "web-1"}, exception(names=patterns("web")), False),
    "beginning of a name": ({"name": "web-1"}, exception(names=patterns("web-*")), True),
    "name to be generated": (
        {"object": pod(generateName="web-1-")},
        exception(names=patterns("web-*")),
        True,
    ),
    "generated name that may differ": (
        {"object": pod(generateName="web")},
        exception(names=patterns("web-*")),
        False,
    ),
    "generated name is cut": (
        {"object": pod(generateName="a" * 58 + "b")},
        exception(names=patterns("a" * 58 + "b*")),
        False,
    ),
    "a name counts, not its beginning": (
        {"name": "mine", "object": pod(generateName="web-")},
        exception(names=patterns("web-*")),
        False,
    ),
    "no name at all": ({"object": pod()}, exception(names=patterns("web-*")), False),
    "no name, any allowed": ({"object": pod()}, exception(names=patterns("*")), True),
    "object of a deleted collection": (
        {"operation": "DELETE", "object": None, "oldObject": pod(name="web-1", generateName="other-")},
        exception(names=patterns("web-1")),
        True,
    ),
    "label": ({}, exception(object_selector=labelled("team", "a")), True),
    "other label": ({}, exception(object_selector=labelled("team", "b")), False),
    "label added by the update": (
        {"operation": "UPDATE", "object": pod({"team": "a"}), "oldObject": pod({})},
        exception(object_selector=labelled("team", "a")),
        False,
    ),
    "label removed by the update": (
        {"operation": "UPDATE", "object": pod({}), "oldObject": pod({"team": "a"})},
        exception(object_selector=labelled("team", "a")),
        False,
    ),
    "label before and after": (
        {"operation": "UPDATE", "object": pod({"team": "a"}), "oldObject": pod({"team": "a"})},
        exception(object_selector=labelled("team", "a")),
        True,
    ),
    "label of a deleted object": (
        {"operation": "DELETE", "object": None, "oldObject": pod({"team": "a"})},
        exception(object_selector=labelled("team", "a")),
        True,
    ),
    "object without metadata": (
        {"operation": "CONNECT", "object": {"command": ["sh"]}},
        exception(object_selector=NOT_A),
        False,
    ),
    "namespaceSelector of an object without a namespace": (
        {"namespace": ""},
        exception(namespace_selector=NOT_A),
        False,
    ),
    "label added to a namespace by the update": (
        {**NAMESPACES, "operation": "UPDATE", "object": pod({"team": "a"}), "oldObject": pod({})},
        exception(namespace_selector=labelled("team", "a")),
        False,
    ),
    "label of a created namespace": (
        {**NAMESPACES, "object": pod({"team": "a"})},
        exception(namespace_selector=labelled("team", "a")),
        True,
    ),
    "the object itself is its owner": (DEPLOYMENT, exception(owners=owner("Deployment.apps", "web")), True),
    "itself, of any group": (DEPLOYMENT, exception(owners=owner("Deployment", "we*")), True),
    "itself by another kind": (DEPLOYMENT, exception(owners=owner("ReplicaSet.apps", "web")), False),
    "owner": ({"object": OWNED}, exception(owners=owner("ReplicaSet.apps", "web-5f4d")), True),
    "owner of another name": ({"object": OWNED}, exception(owners=owner("ReplicaSet.apps", "web")), False),
    "owner of the owner": ({"object": OWNED}, exception(owners=owner("Deployment.apps", "web")), True),
    "owner of a ReplicaSet of Argo": (
        {
            "object": pod(
                {"rollouts-pod-template-hash": "5f4d"},
                ownerReferences=OWNED["metadata"]["ownerReferences"],
            )
        },
        exception(owners=owner("Rollout.argoproj.io", "web")),
        True,
    ),
    "owner whose owner is not known": (
        {"object": owned("apps/v1", "ReplicaSet", "web-5f4d")},
        exception(owners=owner("Deployment.apps", "web")),
        False,
    ),
    "owner of a scheduled Job": (
        {"object": owned("batch/v1", "Job", "night-29871360")},
        exception(owners=owner("CronJob.batch", "night")),
        True,
    ),
    "owner that does not control": (
        {"object": owned("apps/v1", "ReplicaSet", "web", controller=False)},
        exception(owners=owner("ReplicaSet.apps", "web")),
        False,
    ),
    "owner added by the update": (
        {"operation": "UPDATE", "object": OWNED, "oldObject": pod()},
        exception(owners=owner("Deployment.apps", "web")),
        False,
    ),
    "owner before and after": (
        {"operation": "UPDATE", "object": OWNED, "oldObject": OWNED},
        exception(owners=owner("Deployment.apps", "web")),
        True,
    ),
    "owner of a deleted object": (
        {"operation": "DELETE", "object": None, "oldObject": OWNED},
        exception(owners=owner("Deployment.apps", "web")),
        True,
    ),
    "generated name of an object that is its owner": (
        {"object": pod(generateName="web-1-")},
        exception(owners=owner("Pod", "web-*")),
        True,
    ),
    "image": ({"object": running("nginx:1")}, exception(images=patterns("docker.io/library/nginx")), True),
    "beginning of an image": (
        {"object": running("r.example:5000/shop/web@sha256:" + "a" * 64)},
        exception(images=patterns("r.example:5000/shop/*")),
        True,
    ),
    "image of another repository": (
        {"object": running("r.example/shop/web2:1")},
        exception(images=patterns("r.example/shop/web")),
        False,
    ),
    "one of two images": (
        {"object": running("nginx", initContainers=[{"image": "other"}])},
        exception(images=patterns("docker.io/library/nginx")),
        False,
    ),
    "ephemeral image": (
        {"object": running("nginx", ephemeralContainers=[{"image": "other"}])},
        exception(images=patterns("docker.io/library/nginx")),
        False,
    ),
    "image of a volume": (
        {"object": running("nginx", volumes=[{"image": {"reference": "other"}}, {"emptyDir": {}}])},
        exception(images=patterns("docker.io/library/nginx")),
        False,
    ),
    "image that cannot be read": (
        {"object": running("docker.io/nginx:a:b")},
        exception(images=patterns("docker.io/*")),
        False,
    ),
    "container without an image": (
        {"object": running("nginx", initContainers=[{}])},
        exception(images=patterns("docker.io/*")),
        False,
    ),
    "more images than are read": (
        {"object": running("nginx", initContainers=[{"image": "nginx"}] * 256)},
        exception(images=patterns("docker.io/*")),
        False,
    ),
    "no image": ({"object": pod()}, exception(images=patterns("docker.io/*")), False),
    "image of a template": (
        {**DEPLOYMENT, "object": {"metadata": {}, "spec": {"template": running("nginx")}}},
        exception(images=patterns("docker.io/library/nginx")),
        True,
    ),
    "image of another kind": (
        {"kind": {"group": "example.com", "version": "v1", "kind": "Pod"}, "object": running("nginx")},
        exception(images=patterns("docker.io/library/nginx")),
        False,
    ),
    "image changed by the update": (
        {"operation": "UPDATE", "object": running("nginx"), "oldObject": running("other")},
        exception(images=patterns("docker.io/library/nginx")),
        False,
    ),
    "before its end": ({}, exception(expires_at=NOW + 0.001), True),
    "at its end": ({}, exception(expires_at=NOW), False),
    "without a clock": ({}, exception(expires_at=math.inf), True),
}


@pytest.mark.parametrize("case", CASES)
def test_an_exception_applies_if_every_field_of_its_match_does(case: str) -> None:
    members, one, expected = CASES[case]
    assert is_exempt(request(**members), one) is expected
    large = finish(decode_in_steps(body(document(**members))))
    assert large.outline is not None
    assert is_exempt(large, one) is expected


def test_a_namespace_selector_reads_the_namespace_and_fails_closed_without_it() -> None:
    one = exception(namespace_selector=labelled("tier", "dev"))
    assert is_exempt(request(), one, namespace=Namespace("default", {"tier": "dev"}, b""))
    assert not is_exempt(request(), one, namespace=Namespace("default", {"tier": "prod"}, b""))
    assert not is_exempt(request(), one, namespace=Failed(FailureReason.NAMESPACE, "unreachable", 500))
    assert not is_exempt(request(), one, namespace=None)
    anything_else = exception(namespace_selector=NOT_A)
    assert not is_exempt(request(), anything_else, namespace=None)


def test_the_images_that_an_earlier_webhook_sets_count() -> None:
    hooks = [webhook("b.policies.test"), webhook()]
    one = exception(images=patterns("docker.io/library/nginx"))
    for image, exempted in (("nginx", 1), ("other", 0)):
        evaluation = Evaluation(
            Selection("mutate", hooks, by_webhook([one])), request(object=running("old")), None
        )
        first, _ = evaluation.start()
        change = {"op": "replace", "path": "/spec/containers/0/image", "value": image}
        evaluation.receive(first, patch(change))
        assert len(evaluation.exemptions) == exempted


@pytest.mark.parametrize(
    ("image", "expected"),
    [
        ("nginx", "docker.io/library/nginx"),
        ("nginx:1@sha256:" + "0" * 64, "docker.io/library/nginx"),
        ("shop/web:1", "docker.io/shop/web"),
        ("index.docker.io/nginx", "docker.io/library/nginx"),
        ("localhost/web", "localhost/web"),
        ("r.example:5000/a/b-c__d.e:v1", "r.example:5000/a/b-c__d.e"),
        ("[::1]:5000/a", "[::1]:5000/a"),
        ("", None),
        ("a//b", None),
        ("a/../b", None),
        ("A/b", "A/b"),
        ("nginx:", None),
        ("nginx@md5", None),
        ("nginx ", None),
        ("r.example/Web", None),
        ("a" * 5000, None),
        (None, None),
    ],
)
def test_repositories_are_those_that_a_runtime_pulls_from(image: object, expected: str | None) -> None:
    assert repository_of(image) == expected


def test_without_a_time_only_permanent_exceptions_apply() -> None:
    hooks = [webhook()]
    for one, expected in ((exception(expires_at=9e15), 0), (exception(), 1)):
        evaluation = Evaluation(Selection("mutate", hooks, by_webhook([one])), request(), None)
        evaluation.start()
        assert len(evaluation.exemptions) == expected


def test_the_label_that_an_earlier_webhook_removes_does_not_count() -> None:
    hooks = [webhook("b.policies.test"), webhook()]
    one = exception(object_selector=labelled("team", "a"))
    evaluation = Evaluation(Selection("mutate", hooks, by_webhook([one])), request(), None)
    (first,) = evaluation.start()
    (second,) = evaluation.receive(first, patch({"op": "remove", "path": "/metadata/labels/team"}))
    assert second.invocation.webhook.name == "a.policies.test"
    evaluation = Evaluation(Selection("mutate", hooks, by_webhook([one])), request(), None)
    (first,) = evaluation.start()
    assert not evaluation.receive(first, patch(add("/metadata/labels/other", "x")))
    assert evaluation.done


def test_an_exempted_webhook_is_not_called_and_is_named() -> None:
    one = exception("tmp", namespace="default")
    evaluation = evaluated(request(), one)
    (exemption,) = evaluation.exemptions
    assert exemption.exception is one
    assert [call.invocation.webhook.name for call in evaluation.start()] == []
    (call,) = [call for call in evaluation._calls.by_index if call is not None]
    evaluation.receive(call, ALLOWED)
    decision = decide(evaluation, "Metadata")
    note = {"configuration": "policies", "webhook": "a.policies.test", "exception": "default/tmp"}
    assert decision.allowed
    assert decision is not PLAIN_ALLOWED
    assert orjson.loads(decision.audit_annotations["exception.round_0_index_0"]) == note
    assert not decide(evaluation, "None").audit_annotations
    first, _ = explain(
        evaluation, Selection("validate", [exemption.invocation.webhook, call.invocation.webhook])
    )
    assert "exempted by PolicyException default/tmp (permanent): migration" in first


def test_an_exempted_webhook_does_not_refuse_a_dry_run_and_its_conditions_are_not_evaluated() -> None:
    class Broken:
        def evaluate(self, *_: object) -> None:
            raise AssertionError("conditions were evaluated")

    hook = webhook(side_effects="Some", match_conditions=Broken())
    evaluation = Evaluation(
        Selection("mutate", [hook], by_webhook([exception()])), request(dryRun=True), None
    )
    assert not evaluation.start()
    assert evaluation.done
    assert decide(evaluation, "Metadata").allowed


def test_the_first_of_several_exceptions_by_id_is_recorded() -> None:
    several = [
        exception("z"),
        exception("b", users=patterns("*")),
        exception("c", namespaces=patterns("default")),
    ]
    (exemption,) = evaluated(request(), *several).exemptions
    assert exemption.exception.id == "b"


def test_a_webhook_without_an_exception_has_no_index() -> None:
    selection = Selection(
        "validate", [webhook("b.policies.test", rules=(ANYTHING,))], by_webhook([exception()])
    )
    (invocation,) = selection.invocations(request(), None)
    assert invocation.exceptions is None
