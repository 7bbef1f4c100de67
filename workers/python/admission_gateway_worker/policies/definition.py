"""``Definition``: a policy of the library, with everything that its page and its configuration need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, NamedTuple, get_args

from admission_gateway_worker.review import Review

if TYPE_CHECKING:
    from admission_gateway_worker.policy import PolicyFunction

Json = Mapping[str, Any]

Topic = Literal[
    "images",
    "workload security",
    "resources and availability",
    "scheduling",
    "networking",
    "storage",
    "metadata and ownership",
    "certificates and the API",
]
TOPICS: Final[tuple[Topic, ...]] = get_args(Topic)
"""In the order of lists."""


class Replaced(NamedTuple):
    """What a policy stands for: one of another engine's public library, or a controller of Kubernetes."""

    engine: Literal["Kubernetes", "Kyverno", "Gatekeeper"]
    name: str
    """Of the admission controller, ``metadata.name`` of the Kyverno policy, or the kind of the constraint."""
    difference: str = ""
    """What is different, as a phrase in Markdown; empty for nothing."""


@dataclass(frozen=True)
class Definition:
    """A policy of the library. A module of ``admission_gateway_worker.policies`` has ``DEFINITIONS``."""

    name: str
    """The value of ``clientConfig.worker.policy``."""
    summary: str
    """One sentence: the effect of the policy."""
    function: PolicyFunction
    rules: tuple[Json, ...]
    """``rules`` of a webhook with this policy."""
    users_see: str
    """The answer that a user gets for a typical violation or change."""
    topic: Topic
    notes: str = ""
    """Markdown for the end of the page, such as differences from Kubernetes."""
    mutating: bool = False
    parameters: Json = field(default_factory=lambda: {"type": "object", "additionalProperties": False})
    """JSON Schema of the parameters; its ``description`` texts become the table of the page."""
    prepare: Callable[[dict[str, Any]], object] = dict
    """Makes ``review.parameters`` from the parameters, which match the schema; once for each value."""
    example: Json = field(default_factory=dict)
    """Parameters to show."""
    needs_namespace: bool = False
    """Whether the policy reads labels or annotations of the request's Namespace."""
    needs_cluster: bool = False
    """Whether the worker reads from the API server."""
    rights: str = ""
    """What the worker's user has to be allowed to do there, such as ``list nodes``."""
    blocking: bool = False
    """Whether the function runs in a thread."""
    failure_policy: Literal["Fail", "Ignore"] = "Fail"
    replaces: tuple[Replaced, ...] = ()

    def review(self, request: Json, parameters: Json | None = None, **others: Any) -> Review:  # noqa: ANN401
        """Return a Review of *request* with prepared *parameters* for a test; see ``Review.from_json``."""
        return Review.from_json(request, parameters=self.prepare(dict(parameters or {})), **others)
