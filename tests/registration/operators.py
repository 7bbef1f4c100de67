"""Webhooks as a cluster with many operators has them, by names, resources and apiVersions."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

from gateway.pure.core.webhook import Rule
from tests.core.build import webhook

if TYPE_CHECKING:
    from gateway.pure.core.webhook import Webhook

_WORDS = (
    "argo",
    "cert",
    "cilium",
    "flux",
    "istio",
    "kube",
    "kyverno",
    "linkerd",
    "otel",
    "rook",
    "vault",
    "velero",
)
_OWN = [
    ("v1",),
    ("v1", "v1beta1"),
    ("v1alpha1",),
    ("v1alpha1", "v1beta1"),
    ("v1beta1",),
    ("*",),
    ("v2", "v1"),
]
_SHARED = [
    ("", "pods"),
    ("", "pods services"),
    ("", "namespaces"),
    ("apps", "deployments statefulsets daemonsets"),
    ("batch", "jobs cronjobs"),
    ("*", "*"),
]
"""Groups and resources for which several operators have webhooks."""


def operators(count: int, phase: str, seed: int = 1) -> list[Webhook]:
    """Return *count* webhooks in their order, about five to a configuration."""
    source = random.Random(seed)
    made: list[Webhook] = []
    configurations = sorted(
        f"{source.choice(_WORDS)}-{source.choice(_WORDS)}-{number}-webhook-configuration"
        for number in range(count // 5 + 1)
    )
    for place in range(count):
        configuration = configurations[place * len(configurations) // count]
        group = f"{configuration.partition('-webhook')[0]}.example.io"
        rules = []
        if source.random() < 0.8:
            # An operator's own resources, sometimes with a webhook for each version.
            resource = f"kind{source.randrange(12)}s"
            rules.append(_rule(group, source.choice(_OWN), resource, source))
        if not rules or source.random() < 0.1:
            shared, resources = source.choice(_SHARED)
            versions = source.choice([("v1",)] * 12 + [("*",), ("v1", "v1beta1")])
            rules.append(_rule(shared, versions, resources, source))
        made.append(
            webhook(
                f"{phase}-{place:04}.{group}",
                phase=phase,
                configuration=configuration,
                rules=tuple(rules),
                failure_policy=source.choice(["Fail", "Fail", "Ignore"]),
            )
        )
    return made


def _rule(group: str, versions: tuple[str, ...], resources: str, source: random.Random) -> Rule:
    operations = source.choice([("CREATE",), ("CREATE", "UPDATE"), ("CREATE", "UPDATE", "DELETE")])
    return Rule(
        operations, (group,), versions, tuple(resources.split()), source.choice(["*", "*", "Namespaced"])
    )
