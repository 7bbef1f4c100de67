"""Drawn objects under rules in Kyverno's own language."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING, Any, Final

from tests.e2e.cluster import ALICE
from tests.e2e.engine_scenarios import post, workload
from tests.e2e.kyverno_rules import (
    condition,
    container,
    deny,
    json6902,
    labels_of,
    merge,
    mutate,
    policy,
    scenario,
    validate,
)
from tests.e2e.objects import pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.compare import Operation
    from tests.e2e.kyverno_rules import WorkerScenario

    Json = dict[str, Any]


DRAWN: Final = 100


def _drawn_container(chosen: random.Random, index: int) -> Json:
    images = (
        "a",
        "a:1",
        "a:latest",
        "registry.test:5000/a:1",
        "registry.test/b:2",
        "b:3",
        "c@sha256:" + "0" * 64,
    )
    made = container(f"c{index}", chosen.choice(images))
    if chosen.random() < 0.5:
        made["securityContext"] = chosen.choice(
            (
                {"privileged": True},
                {"privileged": False},
                {"runAsNonRoot": True},
                {},
                {"runAsUser": 0},
                {"capabilities": {"add": ["NET_ADMIN"]}},
                {"capabilities": {"drop": ["ALL"], "add": ["CHOWN"]}},
            )
        )
    if chosen.random() < 0.8:
        limits = {"memory": chosen.choice(("32Mi", "64Mi", "1Gi", "3G"))}
        made["resources"] = chosen.choice(
            (
                {"limits": limits},
                {"limits": {"cpu": "1"}},
                {"requests": {"cpu": "500m"}},
                {"limits": limits | {"cpu": "2"}},
            )
        )
    if chosen.random() < 0.3:
        made["imagePullPolicy"] = chosen.choice(("Always", "Never", "IfNotPresent"))
    if chosen.random() < 0.3:
        made["ports"] = [{"containerPort": chosen.choice((80, 443, 8080))}]
    return made


def _drawn_object(chosen: random.Random, number: int) -> Json:
    spec: Json = {
        "containers": [_drawn_container(chosen, index) for index in range(chosen.choice((1, 1, 2, 3)))]
    }
    if chosen.random() < 0.3:
        spec[chosen.choice(("hostNetwork", "hostPID", "hostIPC"))] = chosen.random() < 0.7
    if chosen.random() < 0.2:
        spec["initContainers"] = [_drawn_container(chosen, 9)]
    if chosen.random() < 0.3:
        volume: Json = chosen.choice(
            ({"emptyDir": {}}, {"hostPath": {"path": "/var"}}, {"configMap": {"name": "a"}})
        )
        spec["volumes"] = [{"name": "v", **volume}]
    kind = chosen.choice(("Pod", "Pod", "Pod", "Deployment", "StatefulSet", "Job", "CronJob"))
    made = pod(f"o{number}", **spec) if kind == "Pod" else workload(kind, f"o{number}", **spec)
    if kind in ("Deployment", "StatefulSet"):
        made["spec"]["replicas"] = chosen.randrange(5)
    if chosen.random() < 0.9:
        owner = chosen.choice(("team-a", "team-b", "nobody"))
        made["metadata"]["labels"] = chosen.choice(
            ({"owner": owner}, {"owner": owner, "tier": "web"}, {"tier": "db"})
        )
    return made


def drawn(namespace: str, seed: int = 35) -> tuple[Operation, ...]:
    """Return creations of drawn Pods and workloads, most of them dry runs."""
    chosen = random.Random(f"{namespace} {seed}")
    return tuple(
        post(_drawn_object(chosen, number), dry=chosen.random() < 0.7, user=chosen.choice(("admin", ALICE)))
        for number in range(DRAWN)
    )


def _drawn() -> Iterator[WorkerScenario]:
    owner = "{{ request.object.metadata.labels.owner || 'none' }}"
    yield scenario(
        "drawn-validate",
        [
            policy(
                "tag",
                validate(
                    "tag", message="tag", pattern={"spec": {"containers": [{"image": "*:* & !*:latest"}]}}
                ),
            ),
            policy(
                "privileged",
                validate(
                    "privileged",
                    pattern={
                        "spec": {
                            "=(initContainers)": [{"=(securityContext)": {"=(privileged)": False}}],
                            "containers": [
                                {"=(securityContext)": {"=(privileged)": False, "=(runAsUser)": ">0"}}
                            ],
                        }
                    },
                ),
            ),
            policy(
                "memory",
                validate(
                    "memory",
                    message="memory",
                    pattern={
                        "spec": {"containers": [{"=(resources)": {"=(limits)": {"=(memory)": "<=1Gi"}}}]}
                    },
                ),
            ),
            policy(
                "host",
                validate("baseline", failureAction="Audit", podSecurity={"level": "baseline"}),
                emitWarning=True,
            ),
            policy(
                "owner",
                validate(
                    "owner",
                    "Deployment",
                    "StatefulSet",
                    message=f"{{{{ request.object.metadata.name }}}} is of {owner}",
                    preconditions={"any": [condition(owner, "NotEquals", "nobody")]},
                    deny=deny(
                        condition(owner, "Equals", "team-?"),
                        condition("{{ request.object.spec.replicas }}", "GreaterThan", 2),
                        join="all",
                    ),
                ),
            ),
            policy(
                "ports",
                validate(
                    "ports",
                    foreach=[
                        {
                            "list": "request.object.spec.containers[].ports[]",
                            "deny": deny(condition("{{ element.containerPort }}", "AnyIn", "1-1023")),
                        }
                    ],
                ),
            ),
            policy(
                "any",
                validate(
                    "any",
                    failureAction="Audit",
                    message="neither",
                    anyPattern=[
                        {"metadata": {"labels": {"tier": "web"}}},
                        {"spec": {"(hostNetwork)": True, "containers": [{"imagePullPolicy": "!Never"}]}},
                    ],
                ),
                emitWarning=True,
            ),
        ],
        *drawn("drawn-validate"),
    )
    yield scenario(
        "drawn-mutate",
        [
            policy(
                "containers",
                merge(
                    "pull", {"spec": {"containers": [{"(image)": "*:latest", "imagePullPolicy": "Always"}]}}
                ),
                merge(
                    "limits",
                    {
                        "spec": {
                            "containers": [{"(name)": "*", "resources": {"limits": {"+(memory)": "64Mi"}}}]
                        }
                    },
                ),
            ),
            policy(
                "labels",
                merge(
                    "owner",
                    labels_of(**{"+(owner)": "{{ request.userInfo.username }}"}),
                    "Pod",
                    "Deployment",
                    "Job",
                ),
            ),
            policy(
                "security",
                mutate(
                    "drop",
                    foreach=[
                        {
                            "list": "request.object.spec.containers",
                            "patchStrategicMerge": {
                                "spec": {
                                    "containers": [
                                        {
                                            "(name)": "{{ element.name }}",
                                            "securityContext": {"+(allowPrivilegeEscalation)": False},
                                        }
                                    ]
                                }
                            },
                        }
                    ],
                    preconditions={
                        "all": [
                            condition("{{ request.object.spec.hostPID || `false` }}", "Equals", value=False)
                        ]
                    },
                ),
            ),
            policy(
                "replicas",
                json6902(
                    "replicas",
                    {"op": "replace", "path": "/spec/replicas", "value": 1},
                    kinds=["Deployment", "StatefulSet"],
                    preconditions={
                        "all": [condition("{{ request.object.spec.replicas }}", "GreaterThan", 2)]
                    },
                ),
            ),
        ],
        *drawn("drawn-mutate"),
    )


RANDOM: Final = tuple(_drawn())
