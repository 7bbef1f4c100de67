"""What Kyverno's validating and mutating policies share, beside what all admission policies do.

Source: github.com/kyverno/kyverno pkg/cel/matching/matcher.go, pkg/webhooks/resource/{vpol,mpol}/handler.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from gateway.pure.admission_policies.in_force import PolicyInForce
from gateway.pure.admission_policies.model import B, P
from gateway.pure.kyverno.matching import included

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.review import AdmissionRequest
    from gateway.pure.kyverno.exceptions import CelException

CODE: Final = 400
"""Kyverno answers without a code, which the API server takes for this one."""


class KyvernoPolicy(PolicyInForce[P, B]):
    """A policy of Kyverno, or what autogen made of one."""

    def __init__(
        self, kind: str, policy: P, binding: B, exceptions: Sequence[CelException], namespace: str
    ) -> None:
        """*binding* matches everything. *namespace* is that of a namespaced policy, empty for others.

        The name of a namespaced policy begins with it and a slash.
        """
        PolicyInForce.__init__(self, policy, [binding])
        self.kind = kind
        self.exceptions = exceptions
        self.namespace = namespace
        self.has_narrow_rules |= namespace != ""

    @property
    def shown_name(self) -> str:
        """The name in messages, without a namespace."""
        return self.policy.name.rpartition("/")[2]

    @property
    def expressions(self) -> Sequence[tuple[str, str]]:
        """See ``AdmissionPolicy``."""
        return (*super().expressions, *((each.id, each.document.decode()) for each in self.exceptions))

    def excludes(self, request: AdmissionRequest) -> bool:
        """See ``AdmissionPolicy``."""
        if not self.has_narrow_rules:
            return False
        if self.namespace and request.namespace != self.namespace:
            return True
        return not included(self.policy.match, request)
