"""The data of the computation: requests that a start needs, who needs them, entries that refuse them."""

from __future__ import annotations

from dataclasses import dataclass, field
from enum import IntEnum
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.pure.core.webhook import Webhook

    Json = Mapping[str, Any]

Purpose = Literal["start", "update", "removal"]
"""What fails without the request: the start, an update of the workload, or the removal of a Pod."""
State = Literal["starts", "perhaps", "refused"]
Group = Literal["DEADLOCK", "POSSIBLE DEADLOCK", "OUTAGE", "none"]
"""Refused and needed by the gateway itself; perhaps so; refused and not needed; not refused for certain."""


class Tier(IntEnum):
    """How much of the cluster stops with it: the lower, the more."""

    API_SERVER = 0
    LEASES = 1
    NODES = 2
    NODE_COMPONENTS = 3
    """Network, DNS, storage and cloud controllers, by how their Pods are written."""
    GATEWAY = 4
    """Also its workers, and the issuer of its certificate."""
    RECOVERY = 5
    """What people and tools need to repair the cluster."""
    OTHER = 6


@dataclass(frozen=True, slots=True)
class Request:
    """One request to the API server, as admission sees it."""

    operation: str
    resource: str
    """``RESOURCE`` or ``RESOURCE/SUBRESOURCE``."""
    group: str
    kind: tuple[str, str, str]
    """Group, version and kind of the object."""
    namespace: str
    """Empty for objects of the cluster; for a Namespace its own name."""
    name: str
    user: str
    """Empty if it is not known."""
    groups: tuple[str, ...]
    object: Json | None = field(compare=False)
    """None if only its name and namespace are known."""
    labels: Mapping[str, str] | None = field(compare=False)
    """Those of the object. None if they are not known."""
    purpose: Purpose = "start"

    @property
    def step(self) -> str:
        """The request for people: ``CREATE pods``."""
        group = f".{self.group}" if self.group else ""
        resource, slash, sub_resource = self.resource.partition("/")
        return f"{self.operation} {resource}{group}{slash}{sub_resource}"


@dataclass(frozen=True, slots=True, eq=False)
class Subject:
    """Something that starts: Pods of one workload, or a part of the control plane."""

    tier: Tier
    title: str
    """``DaemonSet NAMESPACE/NAME``, or a sentence."""
    namespace: str
    requests: tuple[Request, ...]
    pods: int = 0
    labels: Mapping[str, str] = field(default_factory=dict)
    """Of the Pods."""
    is_on_host_network: bool = False
    is_static: bool = False
    """Whether kubelets start the Pods from files: no request has to succeed for that."""


@dataclass(frozen=True, slots=True, eq=False)
class FailEntry:
    """An entry of a webhook configuration with ``failurePolicy: Fail``."""

    place: str
    """``KIND/NAME: webhooks[I] NAME``."""
    hook: Webhook
    backend: tuple[str, ...] | None
    """Namespace and name of its Service, or the host of its URL."""
    is_gateway: bool
    has_unread_conditions: bool
    """Whether it has matchConditions that could not be compiled."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A request of a subject that an entry refuses while its backend is away."""

    entry: FailEntry
    request: Request
    is_certain: bool
    """False: it depends on what is not known of the request."""
    change: str
    """The smallest change of the registration after which the request is no longer sent."""


@dataclass(frozen=True, slots=True)
class Result:
    """What the computation says about a subject."""

    subject: Subject
    group: Group
    refusals: Sequence[Refusal]

    @property
    def state(self) -> State:
        """Whether it starts."""
        of_start = [one for one in self.refusals if one.request.purpose == "start"]
        if any(one.is_certain for one in of_start):
            return "refused"
        return "perhaps" if of_start else "starts"

    @property
    def first(self) -> Refusal:
        """The refusal that is shown: a certain one of a start, if there is one."""
        return min(self.refusals, key=lambda one: (one.request.purpose != "start", not one.is_certain))


@dataclass(frozen=True, slots=True)
class LockOuts:
    """The whole result."""

    results: Sequence[Result]
    """By tier and title."""
    foreign: Sequence[tuple[Result, Refusal]]
    """What other webhooks with Fail refuse of the gateway's own start."""
    has_gateway: bool
    """Whether any entry with Fail leads to a gateway."""
