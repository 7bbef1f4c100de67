"""Ten MutatingAdmissionPolicies that each change the Pod of the benchmark, half of them by a JSONPatch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from loadtest.policies import REQUESTS, TOLERATION

if TYPE_CHECKING:
    from collections.abc import Mapping

_CONTAINERS: Final = 3
"""Of the Pod of the benchmark."""


@dataclass(frozen=True, slots=True)
class Mutation:
    """The only mutation of a policy."""

    expression: str
    result: Mapping[str, Any]
    """What the Pod has after it and lacks before it."""

    @property
    def spec(self) -> dict[str, Any]:
        """The mutation as it stands in the policy."""
        if self.expression.startswith("Object{"):
            return {
                "patchType": "ApplyConfiguration",
                "applyConfiguration": {"expression": self.expression},
            }
        return {"patchType": "JSONPatch", "jsonPatch": {"expression": self.expression}}


def _in_spec(**fields: object) -> Mapping[str, Any]:
    return {"spec": fields}


def _added(path: str, value: str) -> str:
    """Return a JSON Patch that adds at *path*; both are expressions."""
    return f'[JSONPatch{{op: "add", path: {path}, value: {value}}}]'


MUTATIONS: Final[Mapping[str, Mutation]] = {
    "add-label": Mutation(
        'Object{metadata: Object.metadata{labels: {"managed": "true"}}}',
        {"metadata": {"labels": {"managed": "true"}}},
    ),
    "add-toleration": Mutation(
        _added('"/spec/tolerations"', f"object.spec.?tolerations.orValue([]) + [{TOLERATION}]"),
        _in_spec(tolerations=[TOLERATION]),
    ),
    "always-pull": Mutation(
        "Object{spec: Object.spec{containers: object.spec.containers.map(c,"
        ' Object.spec.containers{name: c.name, imagePullPolicy: "Always"})}}',
        _in_spec(containers=[{"imagePullPolicy": "Always"}] * _CONTAINERS),
    ),
    "default-requests": Mutation(
        "object.spec.containers.filter(c, has(c.resources) && !has(c.resources.requests)).map(c,"
        ' JSONPatch{op: "add", path: "/spec/containers/"'
        " + string(object.spec.containers.map(each, each.name).indexOf(c.name))"
        f' + "/resources/requests", value: {REQUESTS}}})',
        _in_spec(containers=[{"resources": {"requests": REQUESTS}}] * _CONTAINERS),
    ),
    "add-annotation": Mutation(
        "Object{metadata: Object.metadata{annotations:"
        ' {"example.com/created-by": request.userInfo.username}}}',
        {"metadata": {"annotations": {"example.com/created-by": "admin"}}},
    ),
    "add-cost-center": Mutation(
        _added('"/metadata/labels/" + jsonpatch.escapeKey("example.com/cost-center")', '"platform"'),
        {"metadata": {"labels": {"example.com/cost-center": "platform"}}},
    ),
    "run-as-non-root": Mutation(
        "Object{spec: Object.spec{securityContext: Object.spec.securityContext{runAsNonRoot: true}}}",
        _in_spec(securityContext={"runAsNonRoot": True}),
    ),
    "select-linux": Mutation(
        'has(object.spec.nodeSelector) ? [] : [JSONPatch{op: "add", path: "/spec/nodeSelector",'
        ' value: {"kubernetes.io/os": "linux"}}]',
        _in_spec(nodeSelector={"kubernetes.io/os": "linux"}),
    ),
    "no-token": Mutation(
        "Object{spec: Object.spec{automountServiceAccountToken: false}}",
        _in_spec(automountServiceAccountToken=False),
    ),
    "spread": Mutation(
        _added(
            '"/spec/topologySpreadConstraints"',
            '[Object.spec.topologySpreadConstraints{maxSkew: 1, topologyKey: "kubernetes.io/hostname",'
            ' whenUnsatisfiable: "ScheduleAnyway", labelSelector:'
            " Object.spec.topologySpreadConstraints.labelSelector{matchLabels:"
            ' {"app": object.metadata.labels.app}}}]',
        ),
        _in_spec(
            topologySpreadConstraints=[
                {
                    "maxSkew": 1,
                    "topologyKey": "kubernetes.io/hostname",
                    "whenUnsatisfiable": "ScheduleAnyway",
                    "labelSelector": {"matchLabels": {"app": "x"}},
                }
            ]
        ),
    ),
}
"""By name of the policy. Mappings of texts are written alike in Python and CEL."""
