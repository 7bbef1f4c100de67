"""Whether one custom resource of a cluster is in force, and why not."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gateway.base.errors import Problem
    from gateway.config.merge.custom_resource import CustomResource
    from gateway.pure.admission_policies.expression_warnings import ExpressionWarning

ACCEPTED = "Accepted"
"""The reason of a resource that is in force."""
IN_API_SERVER = "InAPIServer"
"""The reason of a policy that the API server evaluates."""
CANNOT_SUCCEED = "CannotSucceed"
"""The reason of a policy that is in force, with an expression that cannot succeed on a matched kind."""


@dataclass(frozen=True, slots=True)
class ResourceStatus:
    """Whether one custom resource is in force."""

    resource: CustomResource
    reason: str
    """The reason of the status condition: Accepted, CannotSucceed, Invalid, NameInFiles, NoWorkerPool,
    OrderCircle, RejectedByWorkers, Expired, UnknownWebhook, ParamKindNotListed, ResourceNotListed,
    PolicyInFiles, NoPolicy, LeftToAPIServer, InAPIServer or Pinned. Those of other engines, whose status is
    not written, can also be NotUsed and NoTemplate."""
    problems: tuple[Problem, ...] = ()
    """Why it is refused."""
    effect: str = ""
    """The effect of the problems, for messages: what is in force instead."""
    note: str = "in force"
    """The message of the status condition if there are no problems."""
    type_warnings: tuple[ExpressionWarning, ...] = ()
    """About the expressions of a ValidatingAdmissionPolicy."""

    @property
    def is_in_force(self) -> bool:
        """Whether the present version is in force."""
        return self.reason in (ACCEPTED, CANNOT_SUCCEED, IN_API_SERVER)

    def moved(self) -> ResourceStatus:
        """Return the status of a policy that the API server evaluates."""
        if self.reason != ACCEPTED:
            return self
        return replace(self, reason=IN_API_SERVER, note=f"{self.note}; the API server evaluates it")

    def with_type_warnings(self, warnings: tuple[ExpressionWarning, ...]) -> ResourceStatus:
        """Return the status of a policy with *warnings* about its expressions."""
        if not warnings or self.reason != ACCEPTED:
            return replace(self, type_warnings=warnings)
        note = "; ".join([f"{self.note}, but {warnings[0].summary}", *(one.summary for one in warnings[1:])])
        return replace(self, reason=CANNOT_SUCCEED, note=note, type_warnings=warnings)
