"""Workloads in an engine, reviewed by policies on the Pods that their controllers would create."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from tests.core.build import body
from tests.policies.documents import binding, mutating, policy
from tests.policies.test_templates import ANNOTATION, DEPLOYMENT, OTHER, PODS, TEMPLATE, document_of
from tests.world import simulated

if TYPE_CHECKING:
    from tests.world import SimulatedWorld

    Json = dict[str, Any]

NAMESPACE: Final = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
MATCH: Final = {"matchConstraints": {"resourceRules": [PODS]}}


def annotated(document: Json, mode: str) -> str:
    return text({**document, "metadata": {**document["metadata"], "annotations": {ANNOTATION: mode}}})


def text(document: Json) -> str:
    return f"---\n{json.dumps(document)}\n"


@simulated
async def test_a_deployment_is_refused_for_its_pods(world: SimulatedWorld) -> None:
    image = {"expression": "object.spec.containers.all(c, c.image != 'a')", "message": "not this image"}
    team = {"expression": "'team' in object.metadata.labels", "message": "no team"}
    removing, bound = mutating("m", "[JSONPatch{op: 'remove', path: '/spec/none'}]", **MATCH)
    await world.serve(
        text(NAMESPACE),
        annotated(policy("image", validations=[image], **MATCH), "Deny"),
        text(binding("b", "image")),
        annotated(policy("team", validations=[team], **MATCH), "Warn"),
        text(binding("c", "team")),
        annotated(removing, "Warn"),
        text(bound),
    )
    response = await world.review("/validate", body(document_of(DEPLOYMENT, TEMPLATE)))
    assert response["allowed"] is False
    assert response["status"]["message"] == (
        "ValidatingAdmissionPolicy 'image' with binding 'b' denied the Pods of Deployment "
        '"web": not this image'
    )
    not_there, no_team = response["warnings"]
    assert not_there.startswith(
        "would be refused: policy 'm' with binding 'm-binding' denied the Pods of Deployment \"web\": "
    )
    assert no_team == (
        "would be refused: ValidatingAdmissionPolicy 'team' with binding 'c' denied the Pods of Deployment "
        '"web": no team'
    )
    # What was stored before the policy can be scaled, and not rolled out with another template.
    response = await world.review("/validate", body(document_of(DEPLOYMENT, TEMPLATE, TEMPLATE)))
    assert (response["allowed"], response.get("warnings")) == (True, None)
    response = await world.review("/validate", body(document_of(DEPLOYMENT, TEMPLATE, OTHER)))
    assert response["allowed"] is False
    response = await world.review("/validate", body(document_of(DEPLOYMENT, OTHER)))
    assert response["allowed"] is True
    response = await world.review("/mutate", body(document_of(DEPLOYMENT, TEMPLATE)))
    assert (response["allowed"], response.get("patch")) == (True, None)
