"""The workers of the sample policies, and their reviews."""

from __future__ import annotations

import copy
import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import yaml

from loadtest.reviews import enlarged
from tests.faults.rotating import settings_document
from tests.kit import REVIEWS, ROOT, Process, pool_document, webhook_document

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.languages.toolchains import Language

SOME_PORT: Final = "127.0.0.1:0"
VECTORS: Final = ROOT / "workers" / "conformance" / "admission_gateway_conformance" / "samples.json"
MUTATING: Final = ("always-pull-images", "inject-sidecar", "default-resources", "team-from-namespace")
VALIDATING: Final = (
    "require-labels",
    "deny-latest-tag",
    "deny-privileged",
    "warn-no-memory-limit",
    "protect-busy",
)
LIMITED: Final = "limit-replicas"
"""The policy with parameters, in one configuration for each value of them."""
LONGEST_TIMEOUT_S: Final = 30
"""As long as Kubernetes allows: on a busy machine, too, only what is to expire does."""
LARGE_BYTES: Final = 100_000
"""Size of a review: calls above 64 KiB do not use the stream, see protos/README.md."""

_LABEL: Final = re.compile(r"[\w.-]*", re.ASCII)


class Sample(Process):
    """The sample policies of one language as a program, once it serves."""

    def __init__(self, language: Language, listen: str = SOME_PORT, *options: str) -> None:
        super().__init__(*language.run, "--listen", listen, *options)
        self.language = language
        self.target = self.expect(r"worker: serving 12 policies on (\S+)\n")[1]


@dataclass(frozen=True, eq=False)
class Question:
    """A review, and the path that it is sent to."""

    name: str
    path: str
    body: bytes
    vector: dict[str, Any] | None = None
    """The vector of the review, if any."""


def configuration(*targets: str, **pool: Any) -> str:
    """Return a configuration that calls a pool of *targets*; *pool* are further fields of the pool.

    The policies of each phase are in one configuration together, ``all``, and each is in one of its own, too.
    """
    documents = [
        settings_document(auditLevel="Request"),
        pool_document("pool", *targets, **pool),
        *map(yaml.safe_dump, namespaces().values()),
    ]
    for phase, policies in (("mutate", MUTATING), ("validate", VALIDATING)):
        documents.append(_webhooks(phase, f"all-{phase}", *policies))
        documents += [_webhooks(phase, policy, policy) for policy in policies]
    limits = {_name(one): one.get("parameters") for one in _sent() if one["policy"] == LIMITED}
    for name, parameters in limits.items():
        documents.append(_webhooks("validate", name, LIMITED, parameters=parameters))
    documents += [_webhooks("validate", name, policy, **fields) for name, (policy, fields) in FAILING.items()]
    return "\n---\n".join(document.removesuffix("\n---\n") for document in documents)


FAILING: Final[dict[str, tuple[str, dict[str, Any]]]] = {
    "fails": ("fails", {}),
    "fails-open": ("fails", {"failurePolicy": "Ignore"}),
    "sleeps": ("sleeps", {"timeoutSeconds": 1}),
    "sleeps-open": ("sleeps", {"timeoutSeconds": 1, "failurePolicy": "Ignore"}),
    "unknown": ("no-such-policy", {}),
    "unknown-open": ("no-such-policy", {"failurePolicy": "Ignore"}),
}
"""Configurations of one webhook that fails: its policy, and its fields."""


def _webhooks(
    phase: str, name: str, *policies: str, parameters: dict[str, Any] | None = None, **fields: Any
) -> str:
    fields = {"timeoutSeconds": LONGEST_TIMEOUT_S, **fields}
    document = json.loads(
        webhook_document(phase, name, "pool", *({} for _ in policies), **fields).removesuffix("\n---\n")
    )
    for webhook, policy in zip(document["webhooks"], policies, strict=True):
        webhook["clientConfig"]["worker"]["policy"] = policy
        if parameters is not None:
            webhook["clientConfig"]["worker"]["parameters"] = parameters
    return json.dumps(document)


def _name(vector: dict[str, Any]) -> str:
    """Return the name of the configuration for a vector: one for each policy and its parameters."""
    policy: str = vector["policy"]
    return f"{policy}-{vector['parameters'].get('max', 'default')}" if "parameters" in vector else policy


def _sent() -> Iterator[dict[str, Any]]:
    """Yield the vectors that the gateway sends: not those with parameters that the schema refuses."""
    for vector in vectors():
        if "parameters" not in vector or "response" in vector["outcome"]:
            yield vector


def vectors() -> list[dict[str, Any]]:
    """Return the vectors of the sample policies, see workers/conformance."""
    found: list[dict[str, Any]] = json.loads(VECTORS.read_bytes())
    return found


def namespaces() -> dict[str, dict[str, Any]]:
    """Return the Namespaces of the vectors as documents, by their text in the vector.

    Vectors have several Namespaces of one name, so each gets a unique name. A Namespace with invalid labels
    is left out.
    """
    found: dict[str, dict[str, Any]] = {}
    for vector in vectors():
        key = _key(vector)
        labels = vector.get("namespaceObject", {}).get("metadata", {}).get("labels", {})
        if key and key not in found and all(map(_LABEL.fullmatch, labels.values())):
            document = copy.deepcopy(vector["namespaceObject"])
            document.update(apiVersion="v1", kind="Namespace")
            document.setdefault("metadata", {})["name"] = f"n{len(found)}"
            found[key] = document
    return found


def _key(vector: dict[str, Any]) -> str:
    return json.dumps(vector["namespaceObject"], sort_keys=True) if "namespaceObject" in vector else ""


def questions() -> Iterator[Question]:
    """Yield every vector for its own policy; every recorded review, and a large one, for all of a phase."""
    known = {key: document["metadata"]["name"] for key, document in namespaces().items()}
    for vector in _sent():
        key = _key(vector)
        if key and key not in known:
            continue
        request = {**vector["request"], "namespace": known.get(key, "unknown")}
        phase = "mutate" if vector["policy"] in MUTATING else "validate"
        yield Question(vector["name"], f"/{phase}/{_name(vector)}", review(request), vector)
    for file in sorted(REVIEWS.glob("*.json")):
        for phase in ("mutate", "validate"):
            yield Question(file.stem, f"/{phase}/all-{phase}", file.read_bytes())
    large = enlarged((REVIEWS / "pod-create-6kb.json").read_bytes(), LARGE_BYTES)
    for phase in ("mutate", "validate"):
        yield Question("a large Pod", f"/{phase}/all-{phase}", large)
    pod = (REVIEWS / "pod-create-validate.json").read_bytes()
    for name in FAILING:
        yield Question(name, f"/validate/{name}", pod)


def review(request: dict[str, Any]) -> bytes:
    """Return the AdmissionReview of *request*."""
    document = {"apiVersion": "admission.k8s.io/v1", "kind": "AdmissionReview", "request": request}
    return json.dumps(document).encode()
