"""Mutate rules in Kyverno's own language, and operations under them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from tests.e2e.cluster import ALICE
from tests.e2e.engine_scenarios import DRY, PODS, labelled, patch, post, workload
from tests.e2e.kyverno_rules import (
    ALWAYS,
    MAPS,
    condition,
    container,
    json6902,
    labels_of,
    made_of,
    merge,
    mutate,
    policy,
    scenario,
    validate,
)
from tests.e2e.objects import config_map, deployment, deployments, pod

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.e2e.kyverno_rules import WorkerScenario

    Json = dict[str, Any]


IMAGE: Final = 'registry.test/{{ images.containers."{{element.name}}".path }}:1'


def _merges() -> Iterator[WorkerScenario]:
    yield scenario(
        "merging",
        [
            policy(
                "labels",
                merge(
                    "added",
                    {"metadata": {"labels": {"+(owner)": "nobody", "set": "{{ request.operation }}"}}},
                ),
            ),
            policy(
                "removal",
                json6902(
                    "removed",
                    {"op": "remove", "path": "/metadata/labels/temporary"},
                    preconditions={
                        "all": [
                            condition("{{ request.object.metadata.labels.temporary || '' }}", "NotEquals", "")
                        ]
                    },
                ),
            ),
            policy(
                "containers",
                merge(
                    "pull",
                    {"spec": {"containers": [{"(image)": "*:latest", "imagePullPolicy": "Always"}]}},
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
                "conditional",
                merge(
                    "volume",
                    {
                        "metadata": {"annotations": {"+(volumes)": "yes"}},
                        "spec": {"<(volumes)": [{"<(emptyDir)": {}}]},
                    },
                ),
                merge(
                    "host", {"spec": {"(hostNetwork)": True, "+(dnsPolicy)": "Default", "+(hostname)": "h"}}
                ),
            ),
            policy(
                "precondition",
                merge(
                    "team",
                    labels_of(team="{{ given }}"),
                    context=[
                        {
                            "name": "given",
                            "variable": {
                                "jmesPath": "request.object.metadata.annotations.team",
                                "default": "none",
                            },
                        }
                    ],
                    preconditions={"all": [condition("{{ request.object.metadata.name }}", "Equals", "t-*")]},
                ),
            ),
        ],
        post(pod("a")),
        post(labelled("b", owner="b", temporary="yes")),
        post(
            made_of(
                "c",
                container(image="c:latest"),
                container("d", "d:1", resources={"limits": {"memory": "1Gi"}}),
            )
        ),
        post(made_of("d", container(), volumes=[{"name": "v", "emptyDir": {}}]), dry=True),
        post(made_of("e", container(), volumes=[{"name": "v", "hostPath": {"path": "/"}}]), dry=True),
        post(pod("f", hostNetwork=True), dry=True),
        post(pod("t-a"), dry=True),
        post({**pod("t-b"), "metadata": {"name": "t-b", "annotations": {"team": "x"}}}),
        patch(f"{PODS}/b", {"metadata": {"labels": {"temporary": "again", "owner": None}}}),
        patch(f"{PODS}/c{DRY}", {"metadata": {"labels": {"other": "1"}}}),
        post(deployment()),
        post(workload("CronJob", "j", containers=[container(image="j:latest")])),
        patch(deployments("shop"), {"spec": {"replicas": 2}}),
        patch(deployments("shop/scale"), {"spec": {"replicas": 3}}),
        patch(
            f"{PODS}/a/ephemeralcontainers",
            {"spec": {"ephemeralContainers": [{"name": "d", "image": "debug:latest"}]}},
        ),
    )
    name = "/metadata/labels/name"
    yield scenario(
        "json-patches",
        [
            policy(
                "maps",
                json6902(
                    "all",
                    {"op": "add", "path": "/data/added", "value": "{{ request.userInfo.username }}"},
                    {"op": "replace", "path": "/data/replaced", "value": "new"},
                    {"op": "remove", "path": "/data/removed"},
                    kinds=["ConfigMap"],
                    preconditions={
                        "all": [condition("{{ request.object.data.removed || '' }}", "NotEquals", "")]
                    },
                ),
                json6902(
                    "label",
                    {"op": "add", "path": name, "value": "{{ request.object.metadata.name }}"},
                    kinds=["ConfigMap"],
                ),
            ),
            policy(
                "pods",
                mutate(
                    "yaml",
                    patchesJson6902="- op: add\n  path: /spec/containers/-\n"
                    "  value: {name: side, image: side:1}\n",
                    preconditions={
                        "all": [
                            condition("{{ request.object.spec.containers[].name }}", "AllNotIn", ["side"])
                        ]
                    },
                ),
            ),
        ],
        post(config_map("a", replaced="old", removed="x")),
        post(config_map("b", {"x": "y"}, other="1"), user=ALICE),
        patch(f"{MAPS}/b", {"data": {"replaced": "1", "removed": "2"}}),
        patch(f"{MAPS}/b{DRY}", {"data": {"removed": "2"}}),
        post(pod()),
        post(deployment(), dry=True),
        post(pod("d"), dry=True),
    )
    containers = "request.object.spec.containers"
    yield scenario(
        "loops",
        [
            policy(
                "containers",
                mutate(
                    "registry",
                    foreach=[
                        {
                            "list": containers,
                            "preconditions": {
                                "all": [condition("{{ element.image }}", "NotEquals", "registry.test/*")]
                            },
                            "patchStrategicMerge": {
                                "spec": {
                                    "containers": [
                                        {
                                            "name": "{{ element.name }}",
                                            "image": IMAGE,
                                        }
                                    ]
                                }
                            },
                        }
                    ],
                ),
                mutate(
                    "added",
                    foreach=[
                        {
                            "list": f"{containers}[]",
                            "order": "Descending",
                            "patchesJson6902": "- op: add\n  path: /spec/containers/{{ elementIndex }}/env\n"
                            "  value: [{name: INDEX, value: 'i{{ elementIndex }}'}]\n",
                        }
                    ],
                ),
            ),
        ],
        post(
            made_of("a", container(image="a/b:1"), container("b", "registry.test/b:1"), container("c", "c"))
        ),
        post(pod("b")),
        post(deployment(), dry=True),
    )


def _appended(name: str, label: str = "trace", kind: str = "ConfigMap") -> Json:
    """A rule that sees what rules before it have done."""
    trace = f"{{{{ request.object.metadata.labels.{label} || 'x' }}}}-{name}"
    return merge(name, labels_of(**{label: trace}), kind)


def _orders() -> Iterator[WorkerScenario]:
    yield scenario(
        "order",
        [policy("chain", *(_appended(name) for name in ("b", "a", "c")))],
        post(config_map("a")),
        post(config_map("b", {"trace": "given"}), dry=True),
    )
    yield scenario(
        "one",
        [
            policy(
                "first",
                merge(
                    "skipped",
                    labels_of(skipped="yes"),
                    "ConfigMap",
                    preconditions={"all": [condition("a", "Equals", "b")]},
                ),
                merge("second", labels_of(second="yes"), "ConfigMap"),
                merge("third", labels_of(third="yes"), "ConfigMap"),
                applyRules="One",
            ),
            policy(
                "both",
                merge("change", labels_of(changed="yes"), "ConfigMap"),
                merge("again", labels_of(again="yes"), "ConfigMap"),
                validate("one", "ConfigMap", message="one", pattern=labels_of(changed="no")),
                validate("two", "ConfigMap", message="two", deny=ALWAYS),
                applyRules="One",
            ),
        ],
        post(config_map("a"), dry=True),
    )
    yield scenario(
        "changes-first",
        [
            policy("add", merge("owner", labels_of(**{"+(owner)": "nobody"}), "ConfigMap")),
            policy(
                "check",
                validate("owner", "ConfigMap", message="owner", pattern=labels_of(owner="team-*|nobody")),
            ),
            policy("warn", merge("note", labels_of(noted="yes"), "ConfigMap"), emitWarning=True),
        ],
        post(config_map("a")),
        post(config_map("b", {"owner": "team-a"})),
        post(config_map("c", {"owner": "c"})),
    )
    yield scenario(
        "appending",
        [
            policy(
                "append",
                json6902(
                    "toleration",
                    {"op": "add", "path": "/spec/tolerations/-", "value": {"key": "a", "operator": "Exists"}},
                ),
                merge("label", labels_of(later="yes")),
            )
        ],
        post(pod(tolerations=[{"key": "given", "operator": "Exists"}])),
    )


MUTATING: Final = (*_merges(), *_orders())

BY_NAME: Final = scenario(
    "by-name",
    [policy(name, _appended(name)) for name in ("c", "a", "b")],
    post(config_map("a"), dry=True),
)
"""Policies that see what those before have done: the gateway has them by name, Kyverno in a random order."""
