"""Decides on requests by policies in files: from the reading of the files to the decision of the core."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final, Literal

from gateway.config.merge.load import load
from gateway.engine.paths import Paths
from gateway.pure.core.conditions import AccessCheck, AccessDecision, BackendGet, ParamLookup
from gateway.pure.core.decision import decide
from gateway.pure.core.evaluation import Evaluation
from gateway.pure.core.modes import modes_of
from gateway.pure.core.namespace import Namespace
from gateway.pure.core.review import AdmissionRequest
from gateway.pure.core.verdict import Failed
from tests.core.build import request

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from gateway.pure.core.conditions import BackendAnswer, FoundParam
    from gateway.pure.core.decision import Decision
    from gateway.pure.core.policy import Params

Json = dict[str, Any]
Kind = Literal["Validating", "Mutating"]

NOW: Final = 1_790_000_000.0
"""The time of the review, in seconds since 1970."""
ANYTHING: Final = {"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]}
SPACE: Final = Namespace("default", {}, b'{"metadata":{"name":"default"}}')


CLUSTER: Final[Json] = {
    "apiVersion": "admission-gateway.io/v1alpha1",
    "kind": "GatewayConfiguration",
    "kubernetes": {},
}
"""Without it, no expression may use the authorizer."""


def document(kind: str, name: str, spec: Json) -> Json:
    return {
        "apiVersion": "admissionregistration.k8s.io/v1",
        "kind": kind,
        "metadata": {"name": name},
        "spec": spec,
    }


def policy(name: str = "p", **spec: Any) -> Json:
    """A ValidatingAdmissionPolicy for everything; a text among its validations is an expression."""
    listed = [
        {"expression": each} if isinstance(each, str) else each for each in spec.pop("validations", ["false"])
    ]
    match = {"resourceRules": [ANYTHING]}
    return document(
        "ValidatingAdmissionPolicy", name, {"matchConstraints": match, "validations": listed, **spec}
    )


def binding(name: str = "b", of: str = "p", **spec: Any) -> Json:
    spec = {"policyName": of, "validationActions": ["Deny"], **spec}
    return document("ValidatingAdmissionPolicyBinding", name, spec)


def mutating(name: str = "p", *mutations: str, **spec: Any) -> Sequence[Json]:
    """A MutatingAdmissionPolicy with a binding ``binding``: a list is a JSONPatch."""
    made = [
        {"patchType": "JSONPatch", "jsonPatch": {"expression": each}}
        if each.startswith("[")
        else {"patchType": "ApplyConfiguration", "applyConfiguration": {"expression": each}}
        for each in mutations
    ]
    bound = {"policyName": name, **spec.pop("binding", {})}
    content = {
        "matchConstraints": {"resourceRules": [ANYTHING]},
        "reinvocationPolicy": "Never",
        "mutations": made,
        **spec,
    }
    return (
        document("MutatingAdmissionPolicy", name, content),
        document("MutatingAdmissionPolicyBinding", f"{name}-binding", bound),
    )


class Answer:
    """What the policies make of one request."""

    def __init__(self, evaluation: Evaluation) -> None:
        self.evaluation = evaluation
        self.decision: Decision = decide(evaluation, "Request")
        self.failures = [one.verdict.cause for one in evaluation.outcomes if isinstance(one.verdict, Failed)]
        """Errors, also those that ``failurePolicy: Ignore`` lets pass."""

    @property
    def status(self) -> tuple[int, str]:
        """Code and reason; 0 and an empty text: allowed."""
        found = self.decision.status
        return (found.code, found.reason) if found else (0, "")

    @property
    def denials(self) -> list[str]:
        """The text of each denial, in order, without the names of policy and binding."""
        found = self.decision.status
        lines = found.message.split("\n") if found else []
        return [line.partition(" denied request: ")[2] or line for line in lines]


def written(folder: Path, documents: Sequence[Json]) -> None:
    """Make *documents* the content of *folder*."""
    text = "".join(f"{json.dumps(each, ensure_ascii=False)}\n---\n" for each in documents)
    (folder / "policies.yaml").write_text(text)


def decided(
    folder: Path,
    documents: Sequence[Json],
    members: Json | AdmissionRequest | None = None,
    *,
    phase: Literal["validate", "mutate"] = "validate",
    authorize: Callable[[Json], AccessDecision] | None = None,
    params: Params | None = None,
    look_up: Callable[[ParamLookup], FoundParam] | None = None,
    get: Callable[[BackendGet], BackendAnswer] | None = None,
    space: Namespace | None = SPACE,
) -> Answer:
    """Return what *documents* in *folder* make of the creation of a Pod, changed by *members*.

    *members* can be a whole request, too. *space* is the namespace of the request. *authorize* decides on the
    spec of a SubjectAccessReview, and *params* are the objects of the cluster, which *look_up* reads. *get*
    answers for backends.
    """
    written(folder, documents if authorize is None else [*documents, CLUSTER])
    selection = Paths(load([folder]))[f"/{phase}"]
    asked = members if isinstance(members, AdmissionRequest) else request(**members or {})
    modes = modes_of(selection, asked, space, NOW)
    evaluation = Evaluation(selection, asked, space, now=NOW, modes=modes, params=params)
    assert not evaluation.start()
    while tasks := evaluation.take_condition_tasks():
        for task in tasks:
            if isinstance(task, AccessCheck):
                assert authorize is not None
                evaluation.complete_condition_task(task, authorize(json.loads(task.spec)))
            elif isinstance(task, ParamLookup):
                assert look_up is not None
                evaluation.complete_condition_task(task, look_up(task))
            elif isinstance(task, BackendGet):
                assert get is not None
                evaluation.complete_condition_task(task, get(task))
            else:
                evaluation.complete_condition_task(task, task())
    assert evaluation.done
    return Answer(evaluation)
