"""Admission policies as the evaluation of a review uses them.

This module has the types only; ``gateway.pure.admission_policies`` evaluates the policies. A policy is a step
of its own in the evaluation, without a call: it takes a :class:`PolicyInput`, and returns a ``PolicyResult``
of ``gateway.pure.core.conditions``, or the tasks that it needs first.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from types import MappingProxyType
from typing import TYPE_CHECKING, Final, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping, Sequence

    from gateway.pure.core.conditions import (
        AccessCheck,
        AccessDecision,
        BackendAnswer,
        BackendGet,
        ConditionInput,
        FoundParam,
        ParamLookup,
        PolicyAnswer,
    )
    from gateway.pure.core.labels import Selector
    from gateway.pure.core.namespace import Namespace
    from gateway.pure.core.review import AdmissionRequest, Json
    from gateway.pure.core.role_bindings import RoleIndex
    from gateway.pure.core.verdict import Details, Failed
    from gateway.pure.openapi.schemas import Schemas

ParamPaths = frozenset[tuple[str, ...]]
"""Parts of parameters, each by the keys on the way to it, see ``gateway.pure.cel.paths``."""
KindKey = tuple[str, str]
"""apiVersion and kind."""

_NONE_FOUND: Final[Mapping[ParamLookup, FoundParam]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class ParamKind:
    """The kind of a policy's parameters."""

    api_version: str
    kind: str


class ParamObjects(Protocol):
    """The objects of one kind."""

    @property
    def is_namespaced(self) -> bool:
        """Whether objects of this kind are in namespaces."""

    def get(self, namespace: str, name: str) -> Json | None:
        """Return the object, or None. *namespace* is empty if the kind is not namespaced.

        Raises:
            UnreadParamsError: it has to be looked up first.
        """

    def select(self, namespace: str, selector: Selector) -> Sequence[Json]:
        """Return the objects in *namespace* that *selector* matches, by namespace and name.

        If *namespace* is empty, those of all namespaces.
        """

    def seen(self, namespace: str, name: str) -> Json | None:
        """Return the object that is known, without a look-up, or None."""

    def count(self, namespace: str) -> int:
        """Return the number of the objects in *namespace*, or of all if it is empty."""

    def bytes_of(self, namespace: str, name: str = "") -> int:
        """Return the bytes of JSON that are parsed for what :meth:`seen` returns, or for all in *namespace*.

        Those that have been parsed before count, too.
        """

    @property
    def roles(self) -> RoleIndex | None:
        """Which roles users have by these objects. None if they are no bindings, or not read for this."""


class Params(Protocol):
    """The objects of all kinds."""

    def of(self, kind: ParamKind, paths: ParamPaths) -> ParamObjects | None:
        """Return the objects of *kind* with *paths* at least, or None if the kind is not known.

        Raises:
            UnreadParamsError: they have not been read yet.
        """


class FollowedSchemas(Protocol):
    """Schemas of kinds, which change."""

    @property
    def current(self) -> Schemas:
        """Those that are known now."""


@dataclass(frozen=True, slots=True)
class Workload:
    """A workload whose pod template is reviewed, as messages name it."""

    shown: str
    """Kind and name."""
    details: Details


class Selectable(Protocol):
    """An object at one point of the evaluation: a ``Payload``."""

    @property
    def outline(self) -> Json | None:
        """The object, with its labels at least."""


class PolicyInput:
    """The input of policies: that of conditions, the request, and what is known of the cluster."""

    __slots__ = (
        "answers",
        "conditions",
        "found_params",
        "invoked",
        "matched",
        "namespace",
        "now",
        "of_cluster_policies",
        "of_kyverno",
        "of_template",
        "params",
        "prepared",
        "request",
        "schemas",
        "shared",
        "size_bytes",
    )

    workload: Workload | None = None
    """That of which the object is a Pod, or None if the object is that of the review."""
    of_template: PolicyInput | None
    """The input for the Pod of a workload's template. Set by the first policy that asks for it."""

    def __init__(
        self,
        conditions: ConditionInput,
        request: AdmissionRequest,
        namespace: Namespace | Failed | None,
        params: Params | None = None,
        schemas: FollowedSchemas | None = None,
        size_bytes: int = 0,
        now: float = math.inf,
    ) -> None:
        self.conditions = conditions
        self.request = request
        self.namespace = namespace
        """The request's namespace; None if there is none, Failed if the look-up failed."""
        self.params = params
        """The objects of the cluster from which policies take parameters. None without a cluster."""
        self.schemas = schemas
        """The schemas of the kinds of the cluster. None without a cluster."""
        self.size_bytes = size_bytes or len(request.json)
        """At least the bytes of the object's JSON, if numbers are written as they were read."""
        self.now = now
        """The time of the review, in seconds since 1970. By default, all exceptions have expired."""
        self.found_params = _NONE_FOUND
        """The parameters that were looked up for this review."""
        self.answers: dict[BackendGet, BackendAnswer | None] = {}
        """The answers of backends for this review. None for one that is asked for, and not there yet."""
        self.matched: Selectable | None = None
        """The object with which selectors of mutating policies are matched. None for the present one."""
        self.invoked: Collection[object] | None = None
        """In the round of reinvocation, ``PolicyResult.invoked`` of the first round. None if all may be
        invoked."""
        self.prepared: object | None = None
        """The values of expressions that all policies of the review share."""
        self.shared: tuple[object, ...] | None = None
        """Likewise, of policies that need neither parameters nor the authorizer."""
        self.of_kyverno: tuple[object, ...] | None = None
        """Likewise, of policies of Kyverno."""
        self.of_cluster_policies: object | None = None
        """Likewise, of ClusterPolicies of Kyverno, with what their rules compare."""

    def after(self, conditions: ConditionInput, size_bytes: int) -> PolicyInput:
        """Return the input for the object that a patch leaves, which *conditions* have."""
        found = PolicyInput(
            conditions, self.request, self.namespace, self.params, self.schemas, size_bytes, self.now
        )
        found.prepared = self.prepared
        return found


class AdmissionPolicy(Protocol):
    """An admission policy with its bindings."""

    @property
    def expressions(self) -> Sequence[tuple[str, str]]:
        """Name and text of each document that makes the decision, for digests."""

    @property
    def can_allow_fast(self) -> bool:
        """Whether :meth:`allow_fast` may decide."""

    @property
    def has_namespace_selectors(self) -> bool:
        """Whether the labels of a namespace may leave no binding that matches."""

    def may_match_rules(self, request: AdmissionRequest) -> bool:
        """Whether any binding matches requests of the shape of *request*."""

    def excludes(self, request: AdmissionRequest) -> bool:
        """Whether ``resourceNames`` or ``excludeResourceRules`` leave out *request*."""

    def may_match_namespace(self, labels: Mapping[str, str]) -> bool:
        """Whether the namespaceSelector of any binding matches *labels*."""

    def allow_fast(self, policy_input: PolicyInput) -> float | None:
        """Try to allow the request quickly.

        Returns the seconds spent, or None if :meth:`evaluate` has to decide: the policy does not allow the
        request, or it would take longer to find out. Call it only if :meth:`may_match_rules` and, if the
        request is in a namespace, :meth:`may_match_namespace` are true.
        """

    def evaluate(
        self, policy_input: PolicyInput, decisions: Mapping[AccessCheck, AccessDecision]
    ) -> PolicyAnswer:
        """Return the decision, or the tasks that it needs first. *decisions* are the authorizer's so far."""
