"""The sample policies on recorded reviews and on unusual ones."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import grpc
import jsonpatch
import orjson
import pytest

from admission_gateway_worker import Denied, Review
from admission_gateway_worker.invoke import run
from admission_gateway_worker.pb import worker_pb2 as pb
from admission_gateway_worker.samples import server

Recorded = Callable[[str], Review]
NAMES = sorted(path.stem for path in (Path(__file__).parents[1] / "reviews").glob("*.json"))
WELL_BEHAVED = [name for name in server.policies if name not in ("sleeps", "fails")]

POD = {"kind": {"group": "", "version": "v1", "kind": "Pod"}, "operation": "CREATE"}
DEPLOYMENT = {"kind": {"group": "apps", "version": "v1", "kind": "Deployment"}, "operation": "CREATE"}
CRON_JOB = {"kind": {"group": "batch", "version": "v1", "kind": "CronJob"}, "operation": "CREATE"}


def call(policy: str, review: Review) -> list[dict[str, Any]]:
    """Call a policy as its own author's test would, and return the changes."""
    result = server.policies[policy].function(review)
    if result is not None:

        async def wait() -> None:
            await result

        asyncio.run(wait())
    return [dict(operation) for operation in review.changes()]


def denial(policy: str, review: Review) -> dict[str, str]:
    """Return the messages of a denial by field; empty if it is allowed."""
    try:
        call(policy, review)
    except Denied as denied:
        found = denied
    else:
        return {}
    assert found.message == "; ".join(f"{cause.field}: {cause.message}" for cause in found.causes)
    return {cause.field: cause.message for cause in found.causes}


def of(envelope: dict[str, Any], spec: dict[str, Any], **more: Any) -> Review:
    """Return a review of a pod spec, in a Pod or in a workload."""
    kind = envelope["kind"]["kind"]
    wrapped: dict[str, Any] = spec
    if kind != "Pod":
        wrapped = {"template": {"spec": spec}}
    if kind == "CronJob":
        wrapped = {"jobTemplate": {"spec": wrapped}}
    return Review.from_json({**envelope, "object": {"metadata": {}, "spec": wrapped}, **more})


@pytest.mark.parametrize("policy", WELL_BEHAVED)
@pytest.mark.parametrize("name", NAMES)
def test_every_sample_answers_every_recorded_review(recorded: Recorded, policy: str, name: str) -> None:
    served = server.policies[policy]
    review = Review(orjson.dumps(recorded(name).request), mutating=served.mutating)
    review.parameters = served.prepare({})
    answer = run(served, review)
    assert isinstance(answer, pb.ReviewResponse), answer
    if review.operation in ("DELETE", "CONNECT"):
        assert answer.allowed
        assert not answer.patch


@pytest.mark.parametrize("name", NAMES)
def test_require_labels_denies_objects_without_a_team(recorded: Recorded, name: str) -> None:
    review = recorded(name)
    applies = review.operation in ("CREATE", "UPDATE") and not review.sub_resource
    expected = {"metadata.labels[team]": 'label "team" is missing: add it'} if applies else {}
    assert denial("require-labels", review) == expected
    if applies:
        review.object["metadata"]["labels"] = {"team": "a"}
        assert not denial("require-labels", review)


LATEST = {
    "cronjob-create": "spec.jobTemplate.spec.template.spec.containers[0].image",
    "job-create": "spec.template.spec.containers[0].image",
    "pod-create-dryrun-mutate": "spec.containers[0].image",
    "pod-create-dryrun-validate": "spec.containers[0].image",
    "pod-create-mutate-2": "spec.containers[0].image",
    "pod-create-mutate-alice": "spec.containers[0].image",
    "pod-create-mutate-bob": "spec.containers[0].image",
    "pod-create-validate-2": "spec.containers[0].image",
    "pod-create-validate-alice": "spec.containers[0].image",
    "pod-create-validate-bob": "spec.containers[0].image",
    "pod-ephemeralcontainers-update-validate": "spec.ephemeralContainers[0].image",
}


@pytest.mark.parametrize("name", NAMES)
def test_deny_latest_tag_names_the_field_of_each_image(recorded: Recorded, name: str) -> None:
    found = denial("deny-latest-tag", recorded(name))
    assert list(found) == ([LATEST[name]] if name in LATEST else [])
    assert all("has no tag, which means latest: name a version" in message for message in found.values())


@pytest.mark.parametrize(
    ("image", "denied"),
    [
        ("nginx", True),
        ("nginx:latest", True),
        ("nginx:1.27", False),
        ("registry:5000/nginx", True),
        ("registry:5000/nginx:latest", True),
        ("registry:5000/nginx:1.27", False),
        ("nginx@sha256:" + "a" * 64, False),
        ("nginx:latest@sha256:" + "a" * 64, False),
        ("nginx:latest-1", False),
        ("", False),
    ],
)
def test_deny_latest_tag_reads_image_names(image: str, *, denied: bool) -> None:
    review = of(
        POD, {"initContainers": [{"image": image}], "containers": [{"image": "a:1"}, {"image": image}]}
    )
    fields = ["spec.containers[1].image", "spec.initContainers[0].image"] if denied else []
    assert list(denial("deny-latest-tag", review)) == fields


@pytest.mark.parametrize(
    ("envelope", "path"),
    [(POD, "spec"), (DEPLOYMENT, "spec.template.spec"), (CRON_JOB, "spec.jobTemplate.spec.template.spec")],
)
def test_deny_privileged_gives_a_cause_for_each_field(envelope: dict[str, Any], path: str) -> None:
    spec = {
        "hostNetwork": True,
        "hostPID": False,
        "hostIPC": True,
        "containers": [
            {"name": "a", "securityContext": {"privileged": False}},
            {"name": "b", "securityContext": None},
        ],
        "ephemeralContainers": [{"name": "c", "securityContext": {"privileged": True}}],
    }
    assert denial("deny-privileged", of(envelope, spec)) == {
        f"{path}.hostNetwork": "hostNetwork shares a namespace of the node: set it to false",
        f"{path}.hostIPC": "hostIPC shares a namespace of the node: set it to false",
        f"{path}.ephemeralContainers[0].securityContext.privileged": (
            'container "c" is privileged: set it to false'
        ),
    }


@pytest.mark.parametrize("policy", ["require-labels", "deny-latest-tag", "deny-privileged"])
def test_objects_with_a_deletion_timestamp_are_allowed(policy: str) -> None:
    spec = {"hostNetwork": True, "containers": [{"image": "nginx"}]}
    review = of(POD, spec, operation="UPDATE")
    assert denial(policy, review)
    review.object["metadata"]["deletionTimestamp"] = "2026-01-01T00:00:00Z"
    assert not denial(policy, review)


@pytest.mark.parametrize(
    ("name", "paths"),
    [
        ("pod-create-mutate", ["/spec/containers/0/imagePullPolicy"]),
        ("pod-create-mutate-bob", []),
        ("deployment-update", ["/spec/template/spec/containers/0/imagePullPolicy"]),
        ("pod-update-mutate", []),
        ("pod-status-update-validate", []),
        ("scale-scale-update", []),
        ("widget-create", []),
    ],
)
def test_always_pull_images_sets_mutable_pull_policies(
    recorded: Recorded, name: str, paths: list[str]
) -> None:
    changes = call("always-pull-images", recorded(name))
    assert changes == [{"op": "replace", "path": path, "value": "Always"} for path in paths]


def test_always_pull_images_reaches_a_new_ephemeral_container_only() -> None:
    old = {"containers": [{"name": "a", "imagePullPolicy": "Never"}]}
    new = {**old, "ephemeralContainers": [{"name": "b", "imagePullPolicy": "Never"}]}
    review = of(POD, new, operation="UPDATE", subResource="ephemeralcontainers", oldObject={"spec": old})
    assert [change["path"] for change in call("always-pull-images", review)] == [
        "/spec/ephemeralContainers/0/imagePullPolicy"
    ]


@pytest.mark.parametrize("envelope", [POD, DEPLOYMENT, CRON_JOB])
def test_always_pull_images_covers_all_lists(envelope: dict[str, Any]) -> None:
    lists = ("containers", "initContainers", "ephemeralContainers")
    review = of(envelope, {name: [{"name": name}] for name in lists})
    assert {change["path"].rsplit("/", 3)[-3] for change in call("always-pull-images", review)} == set(lists)


def test_inject_sidecar_adds_one_to_pods_and_templates(recorded: Recorded) -> None:
    for name, path in [
        ("pod-create-6kb", "/spec/containers/3"),
        ("deployment-update", "/spec/template/spec/containers/1"),
    ]:
        [change] = call("inject-sidecar", recorded(name))
        assert (change["op"], change["path"], change["value"]["name"]) == ("add", path, "log-shipper")
    assert not call("inject-sidecar", recorded("pod-update-mutate"))
    assert not call("inject-sidecar", recorded("pod-ephemeralcontainers-update-validate"))


def test_default_resources_adds_only_missing_requests() -> None:
    spec = {
        "containers": [
            {"name": "none"},
            {"name": "half", "resources": {"requests": {"cpu": "1"}}},
            {"name": "limit", "resources": {"limits": {"memory": "1Gi", "cpu": "2"}}},
        ],
        "ephemeralContainers": [{"name": "may-not-have-any"}],
    }
    review = of(POD, spec)
    assert call("default-resources", review) == [
        {
            "op": "add",
            "path": "/spec/containers/0/resources",
            "value": {"requests": {"cpu": "100m", "memory": "128Mi"}},
        },
        {"op": "add", "path": "/spec/containers/1/resources/requests/memory", "value": "128Mi"},
    ]


@pytest.mark.parametrize("policy", [name for name in WELL_BEHAVED if server.policies[name].mutating])
@pytest.mark.parametrize("name", NAMES)
def test_a_second_call_finds_nothing_left_to_change(recorded: Recorded, policy: str, name: str) -> None:
    review = recorded(name)
    changes = call(policy, review)
    again = Review.from_json({**recorded(name).request, "object": review.object})
    assert not call(policy, again)
    if changes:
        assert jsonpatch.apply_patch(recorded(name).object, changes) == review.object


@pytest.mark.parametrize("policy", WELL_BEHAVED)
@pytest.mark.parametrize(
    "object_",
    [
        None,
        {},
        {"spec": None, "metadata": None},
        {"spec": {}},
        {"spec": {"containers": None}},
        {"spec": {"template": None}},
    ],
)
@pytest.mark.parametrize("envelope", [POD, DEPLOYMENT, CRON_JOB])
def test_objects_with_holes_break_no_sample(policy: str, object_: Any, envelope: dict[str, Any]) -> None:
    review = Review.from_json({**envelope, "object": object_})
    if policy == "require-labels":
        denial(policy, review)
    else:
        assert call(policy, review) == []


def test_warn_no_memory_limit_names_each_container_and_lets_it_in() -> None:
    limited = {"name": "fine", "resources": {"limits": {"memory": "1Gi"}}}
    review = of(POD, {"initContainers": [limited], "containers": [{"name": "a"}, limited, {"name": "b"}]})
    assert denial("warn-no-memory-limit", review) == {}
    assert review.warnings == ['container "a" has no memory limit', 'container "b" has no memory limit']
    assert review.annotations == {"no-memory-limit": "a,b"}


@pytest.mark.parametrize(
    ("metadata", "changes"),
    [
        ({}, [{"op": "add", "path": "/metadata/labels", "value": {"team": "checkout"}}]),
        ({"labels": {"a": "b"}}, [{"op": "add", "path": "/metadata/labels/team", "value": "checkout"}]),
        ({"labels": {"team": "billing"}}, []),
        (None, []),
    ],
)
def test_team_from_namespace_fills_in_a_label_that_is_missing(
    metadata: Any, changes: list[dict[str, Any]]
) -> None:
    namespace = {"metadata": {"labels": {"team": "checkout"}}}
    request = {**POD, "object": {"metadata": metadata}}
    assert call("team-from-namespace", Review.from_json(request, namespace_object=namespace)) == changes
    assert call("team-from-namespace", Review.from_json(request)) == []


async def test_the_two_that_misbehave_do(serve: Any, code_of: Callable[[Any], grpc.StatusCode]) -> None:
    async with serve(server) as worker:
        stream = worker.stream()
        await stream.send(calls=[(1, "fails")])
        await stream.send(calls=[(2, "sleeps")], timeout_ms=30)
        answers = await stream.verdicts(2)
        assert code_of(answers[1]) is grpc.StatusCode.INTERNAL
        assert answers[1].message.startswith("this policy always fails (review ")
        assert code_of(answers[2]) is grpc.StatusCode.DEADLINE_EXCEEDED
        await stream.close()


def test_every_sample_describes_itself() -> None:
    assert all(policy.description.endswith((".", "cancelled.")) for policy in server.policies.values())
