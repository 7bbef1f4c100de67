"""Drawn cases of Kyverno's ValidatingPolicies: what other cases try one by one, in any combination."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from tests.recorded.other_engines.cases import (
    FOLDER,
    NAMESPACES,
    Case,
    check,
    create,
    delete,
    exception,
    matching,
    named,
    pod,
    pod_spec,
    rule,
    update,
    validating,
    workload,
)

if TYPE_CHECKING:
    Json = dict[str, Any]

FILE: Final = FOLDER / "drawn.json"
COUNT: Final = 200
EXPRESSIONS: Final = (
    "true",
    "false",
    "object.spec.containers.all(c, c.image.contains(':'))",
    "has(object.spec.hostNetwork)",
    "object.?spec.?hostNetwork.orValue(false) == false",
    "object.metadata.name == 'x'",
    "object.metadata.namespace == 'default'",
    "object.metadata.?labels[?'app'].orValue('') == 'x'",
    "object.metadata.labels.app == 'x'",
    "oldObject.spec.containers.size() == 1",
    "request.operation == 'CREATE'",
    "object.kind == 'Pod'",
    "namespaceObject.metadata.labels.team == 'red'",
    "object.spec.absent == 1",
    "size(object) == 0",
    "has(request.object.spec.containers)",
)
NAMES: Final = (
    *("deployments", "jobs", "cronjobs", "Deployment", "replicationcontrollers"),
    *("deployments.v1.apps", "cronjobs.v1.batch", "*.v1.apps"),
)
MESSAGES: Final = ("", "no", "object.spec is wrong")
TEXTS: Final = ("", "", "'at ' + request.namespace", "string(object.spec.absent)", "''")
ACTIONS: Final = (["Deny"], ["Deny"], ["Deny", "Warn"], ["Warn"], ["Audit"], ["Audit", "Warn"])


def drawn_policy(draw: random.Random, name: str) -> Json:
    """Return a policy about Pods, most of which has variants for workloads."""
    validations = [
        check(draw.choice(EXPRESSIONS), draw.choice(MESSAGES), draw.choice(TEXTS))
        for _ in range(draw.randint(1, 3))
    ]
    spec: Json = {"validationActions": draw.choice(ACTIONS), "failurePolicy": draw.choice(("Fail", "Ignore"))}
    if draw.random() < 0.4:
        spec["matchConditions"] = named(a=draw.choice(EXPRESSIONS), b=draw.choice(EXPRESSIONS))
    if draw.random() < 0.4:
        spec["variables"] = named(v=draw.choice(EXPRESSIONS))
        validations.append(check("variables.v", "variable"))
    if draw.random() < 0.2:
        spec["matchConstraints"] = matching(
            rule("pods", operations=draw.sample(["CREATE", "UPDATE", "DELETE"], 2)),
            namespaceSelector={"matchLabels": {"team": draw.choice(("red", "blue"))}},
        )
    if draw.random() < 0.4:
        names = draw.sample(NAMES, 2)
        spec["autogen"] = {"podControllers": {"controllers": names}}
    return validating(*validations, name=name, **spec)


def drawn_request(draw: random.Random) -> Json:
    """Return a request about a Pod or a workload."""
    spec = pod_spec(*draw.sample(["nginx", "nginx:1", "a/b:2"], draw.randint(1, 2)))
    if draw.random() < 0.3:
        spec["hostNetwork"] = draw.choice((True, False))
    kind = draw.choice(("Pod", "Pod", "Deployment", "Job", "CronJob", "ReplicaSet", "ReplicationController"))
    labels = draw.choice(({"app": "x"}, {"app": "y"}))
    metadata: Json = {"namespace": draw.choice(("default", "prod")), "labels": labels}
    made = pod(spec=spec, **metadata) if kind == "Pod" else workload(kind, spec, **metadata)
    return draw.choice((create, create, delete, lambda of: update(of, of)))(made)


def drawn(seed: int, count: int) -> list[Case]:
    """Return cases."""
    draw = random.Random(seed)
    made = []
    for number in range(count):
        policies = [drawn_policy(draw, name) for name in ("a", "b", "c")[: draw.randint(1, 3)]]
        question = {"policies": policies, "namespaces": NAMESPACES, "request": drawn_request(draw)}
        if draw.random() < 0.3:
            full: Json = {} if draw.random() < 0.7 else {"images": ["x"]}
            question["exceptions"] = [exception(draw.choice(EXPRESSIONS), of="a", **full)]
        made.append(Case(f"{number:03}", "Whatever is combined is decided as by Kyverno.", question))
    return made


CASES: Final = drawn(0, COUNT)
