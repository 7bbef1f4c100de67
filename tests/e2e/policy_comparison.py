"""The same policies in an API server and behind the gateway, and the outcomes of the same operations.

All policies are in force at the same time, so each has to match only the objects of its own scenario.
"""

from __future__ import annotations

import json
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final

from gateway.pure.core.decision import MAX_WARNING_CHARS
from tests.e2e.compare import Operation
from tests.e2e.objects import config_map, within
from tests.e2e.setups import REGISTRATIONS, BehindGateway, rule
from tests.recorded.engine import parsed, refusal
from tests.waiting import eventually

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

    from tests.e2e.client import Answer
    from tests.e2e.cluster import Cluster

    Json = dict[str, Any]

HEAD: Final = {"apiVersion": "admissionregistration.k8s.io/v1"}
PATHS: Final = {
    "ValidatingAdmissionPolicy": "validatingadmissionpolicies",
    "ValidatingAdmissionPolicyBinding": "validatingadmissionpolicybindings",
    "MutatingAdmissionPolicy": "mutatingadmissionpolicies",
    "MutatingAdmissionPolicyBinding": "mutatingadmissionpolicybindings",
}
FAILURES: Final = "validation.policy.admission.k8s.io/validation_failure"
OF_KUBERNETES: Final = ("k8s.io", "kubernetes.io")
"""Ends of the domains of annotations that the API server makes itself."""
LABEL: Final = "policy"
"""The label of objects that a policy selects; its value is the name of the scenario."""
MARK: Final = "in-force"
"""The annotation that a canary gives to all objects but its first, which it refuses."""


@dataclass(frozen=True)
class Scenario:
    """Policies with bindings, and operations under them."""

    name: str
    documents: tuple[Json, ...]
    """``{namespace}`` in them is that of the operations."""
    operations: tuple[Operation, ...]
    needs_new_functions: bool = False
    """Whether an old API server may refuse the policy."""


@dataclass(frozen=True)
class Seen:
    """Everything about an operation that a user or an auditor sees."""

    status: int
    refusal: Json | None
    """Reason and message, and the details of a denial."""
    warnings: tuple[str, ...]
    annotations: dict[str, object]
    object: Json | None = None
    """The object in the answer, without what differs from one request to the next; None if not compared."""


Outcomes = dict[tuple[str, int], Seen]
"""By name of the scenario and number of the operation."""


def policy(name: str, spec: Json) -> Json:
    """Return a policy."""
    return {**HEAD, "kind": "ValidatingAdmissionPolicy", "metadata": {"name": name}, "spec": spec}


def binding(name: str, policy_name: str, spec: Json) -> Json:
    """Return a binding."""
    return {
        **HEAD,
        "kind": "ValidatingAdmissionPolicyBinding",
        "metadata": {"name": name},
        "spec": {"policyName": policy_name, **spec},
    }


def bound(*actions: str, **fields: Any) -> Json:
    """Return the spec of a binding."""
    return {"validationActions": list(actions or ("Deny",)), **fields}


def _canary() -> Scenario:
    name = "zz-canary"
    match = {
        "resourceRules": [rule("configmaps", "CREATE")],
        "objectSelector": {"matchLabels": {LABEL: name}},
    }
    spec = {"matchConstraints": match, "validations": [{"expression": "false", "message": "in force"}]}
    made = Operation("POST", within("configmaps?dryRun=All"), config_map(name, {LABEL: name}))
    return Scenario(name, (policy(name, spec), binding(name, name, bound())), (made,))


FOLLOWER: Final = "follows-config-maps"
"""Name of the policy and of the binding of :func:`follow_config_maps`."""


def _follower() -> tuple[Json, Json]:
    name = FOLLOWER
    nothing = {
        "apiGroups": ["nothing.test"],
        "apiVersions": ["v1"],
        "resources": ["nothings"],
        "operations": ["*"],
    }
    spec = {
        "paramKind": {"apiVersion": "v1", "kind": "ConfigMap"},
        "matchConstraints": {"resourceRules": [nothing]},
        "validations": [{"expression": "true"}],
    }
    param = {"name": name, "namespace": "default", "parameterNotFoundAction": "Allow"}
    return policy(name, spec), binding(name, name, bound(paramRef=param))


def follow_config_maps(cluster: Cluster) -> None:
    """Keep ConfigMaps followed as parameters for the whole run, before policies of the API server use them.

    Once no policy uses a built-in kind any more, the API server never follows it again, and its policies go
    on with the objects of that time. Source: k8s.io/apiserver pkg/admission/plugin/policy/generic/
    policy_source.go, ensureParamsForPolicyLocked: the factory starts an informer once.
    """
    for document in _follower():
        answer = cluster.api.create(f"{REGISTRATIONS}/{PATHS[document['kind']]}", document)
        assert answer.status in (201, 409), answer.message


CANARY: Final = _canary()
"""Its name is the last one, so that all others are in force if it is."""


class Policies(BehindGateway):
    """A gateway with policies and parameters in files."""

    def __init__(
        self,
        cluster: Cluster,
        folder: Path,
        documents: list[Json],
        version: str = "",
        reads: Sequence[Json] = (),
    ) -> None:
        """*version* is the ``kubernetesVersion``, by default that of the API server.

        *reads* are the kinds that expressions may read.
        """
        settings = {
            "kubernetes": {"kubeconfig": str(cluster.kubeconfig())},
            "kubernetesVersion": version or cluster.binaries.version,
            **({"policies": {"resources": list(reads)}} if reads else {}),
        }
        super().__init__(cluster, folder, [], "policies", gateway=settings)
        self.documents = documents

    def write_configuration(self) -> None:
        super().write_configuration()
        text = "".join(json.dumps(each) + "\n---\n" for each in self.documents)
        (self.config / "policies.yaml").write_text(text)


class Comparison:
    """Scenarios in one namespace, with parameters that exist there already."""

    def __init__(
        self,
        cluster: Cluster,
        namespace: str,
        scenarios: Sequence[Scenario],
        canary: Scenario,
        *,
        with_objects: bool = False,
    ) -> None:
        """*canary* is a scenario that shows whether all are in force.

        *with_objects*: the objects in answers are compared, and not the annotations.
        """
        self._canary = canary
        self._with_objects = with_objects
        self._cluster = cluster
        self._namespace = namespace
        self._scenarios = scenarios

    def natively(self) -> Outcomes:
        """Return the outcomes under policies of the API server, without scenarios that it refuses."""
        made: list[str] = []
        refused: set[str] = set()
        follow_config_maps(self._cluster)
        try:
            for scenario in (*self._scenarios, self._canary):
                for document in self._placed(scenario.documents):
                    kind = f"{REGISTRATIONS}/{PATHS[document['kind']]}"
                    answer = self._cluster.api.create(kind, document)
                    if answer.status == 422 and scenario.needs_new_functions:
                        refused.add(scenario.name)
                        break
                    assert answer.status == 201, (answer.message, document)
                    made.append(f"{kind}/{document['metadata']['name']}")
            eventually(self._in_force)
            return self._outcomes([each for each in self._scenarios if each.name not in refused])
        finally:
            for path in made:
                self._cluster.api.delete(path)
            # Its refusing policy was deleted last.
            eventually(lambda: self.perform(self._canary.operations[0]).status == 201)

    def behind(self, folder: Path, documents: list[Json], version: str = "") -> Outcomes:
        """Return the outcomes behind a gateway that has *documents* in files in *folder*; see `Policies`."""
        with Policies(self._cluster, folder, documents, version):
            eventually(self._in_force)
            return self._outcomes(self._scenarios)

    def _placed(self, documents: Sequence[Json]) -> list[Json]:
        placed: list[Json] = json.loads(json.dumps(documents).replace("{namespace}", self._namespace))
        return placed

    def _in_force(self) -> bool:
        refused, *marked = (self.perform(each) for each in self._canary.operations)
        return refused.status != 201 and all(
            MARK in answer.document.get("metadata", {}).get("annotations", {}) for answer in marked
        )

    def _outcomes(self, scenarios: Sequence[Scenario]) -> Outcomes:
        answers: dict[tuple[str, int], Answer] = {}
        for scenario in scenarios:
            for number, operation in enumerate(scenario.operations):
                answers[scenario.name, number] = self.perform(operation)
        published: dict[str, dict[str, object]] = {}
        wanted = {answer.headers["Audit-Id"] for answer in answers.values()}

        def complete() -> bool:
            published.update(_published(self._cluster, wanted))
            return published.keys() >= wanted

        eventually(complete)
        seen = {
            key: seen_in(answer, published[answer.headers["Audit-Id"]]) for key, answer in answers.items()
        }
        if not self._with_objects:
            return seen
        # The API server publishes no annotations of mutating policies.
        return {
            key: replace(each, annotations={}, object=stable(answers[key].document))
            for key, each in seen.items()
        }

    def perform(self, operation: Operation) -> Answer:
        """Return the answer to *operation*."""
        path = operation.path.replace("{namespace}", self._namespace)
        api = self._cluster.user(operation.user)
        return api.request(operation.method, path, operation.document, operation.content_type)


def seen_in(answer: Answer, annotations: dict[str, object]) -> Seen:
    """Return what a user sees in *answer*, and an auditor in *annotations*."""
    document = answer.document
    is_failure = document.get("kind") == "Status" and document.get("status") == "Failure"
    refused = refusal(document) if is_failure else None
    # The API server cuts the warnings of webhooks.
    warnings = tuple(sorted(text[:MAX_WARNING_CHARS] for text in answer.warnings))
    return Seen(answer.status, refused, warnings, annotations)


def stable(document: Json) -> Json | None:
    """Return the object in an answer, without what differs from one request to the next."""
    if document.get("kind") == "Status":
        return None
    varying = ("uid", "resourceVersion", "creationTimestamp", "managedFields")
    metadata = {name: value for name, value in document["metadata"].items() if name not in varying}
    stable = {**document, "metadata": metadata}
    # Older versions write a template's time of creation.
    without: Json = json.loads(json.dumps(stable).replace('"creationTimestamp": null, ', ""))
    return without


def _published(cluster: Cluster, wanted: set[str]) -> Iterator[tuple[str, dict[str, object]]]:
    """Yield the annotations of policies by audit ID, each with the last part of its key."""
    for event in cluster.audit_events(lambda event: event.get("stage") == "ResponseComplete"):
        if event["auditID"] not in wanted:
            continue
        kept: dict[str, object] = {}
        for key, value in event.get("annotations", {}).items():
            last = key.rpartition("/")[2]
            if key == FAILURES:
                kept["validation_failure"] = parsed(value)
            elif ".validate." in key:
                name, _, annotation = last.rpartition(".")
                if name.partition(".")[0] not in ("failed-open", "mutation"):
                    kept[annotation] = parsed(value)
            elif "/" in key and not key.split("/")[0].endswith(OF_KUBERNETES):
                kept[last] = parsed(value)
        yield event["auditID"], kept


@contextmanager
def existing(cluster: Cluster, objects: Sequence[tuple[str, Json]]) -> Iterator[None]:
    """Have *objects*, each with the path of its collection, exist inside the block."""
    made: list[str] = []
    try:
        for path, document in objects:
            answer = cluster.api.create(path, document)
            assert answer.status == 201, answer
            made.append(f"{path}/{document['metadata']['name']}")
        yield
    finally:
        for path in reversed(made):
            cluster.api.delete(path)
