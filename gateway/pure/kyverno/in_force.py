"""What Kyverno's validating and mutating policies share, beside what all admission policies do.

Source: github.com/kyverno/kyverno pkg/cel/matching/matcher.go, pkg/webhooks/resource/{vpol,mpol}/handler.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from gateway.pure.admission_policies.in_force import PolicyInForce
from gateway.pure.admission_policies.model import B, P
from gateway.pure.admission_policies.objects import ObjectReads
from gateway.pure.admission_policies.params import NO_PARAMS, FixedParams
from gateway.pure.cel.libraries.cluster_objects import GVRS, HTTP_GET, POSTS, READS, RESOURCE
from gateway.pure.cel.libraries.global_context import GLOBAL_CONTEXT
from gateway.pure.kyverno.matching import included

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gateway.pure.core.review import AdmissionRequest
    from gateway.pure.kyverno.exceptions import CelException

CODE: Final = 400
"""Kyverno answers without a code, which the API server takes for this one."""


class OtherDocuments(NamedTuple):
    """What a policy uses beside its own document."""

    exceptions: Sequence[CelException] = ()
    objects: FixedParams = NO_PARAMS
    """Those in files, and the kinds that it may read."""


NO_OTHERS: Final = OtherDocuments()


class KyvernoPolicy(PolicyInForce[P, B]):
    """A policy of Kyverno, or what autogen made of one."""

    has_long_warnings = True

    def __init__(
        self,
        kind: str,
        policy: P,
        binding: B,
        others: OtherDocuments,
        namespace: str,
    ) -> None:
        """*binding* matches everything. *namespace* is that of a namespaced policy, empty for others.

        The name of a namespaced policy begins with it and a slash.
        """
        self.exceptions = others.exceptions
        self.namespace = namespace
        PolicyInForce.__init__(self, policy, [binding], others.objects)
        self.kind = kind

    def _object_reads(self, params: FixedParams) -> ObjectReads:
        """See ``PolicyInForce``. Exceptions have expressions, too."""
        policy = self.policy
        more = [condition.compiled for each in self.exceptions for condition in each.conditions]
        reads = policy.object_reads(more)
        posts, gvrs = (policy.calls(RESOURCE, names, more) for names in (POSTS, GVRS))
        gets = policy.calls(RESOURCE, {HTTP_GET}, more, mention="http")
        entries = policy.calls(GLOBAL_CONTEXT, READS, more)
        return ObjectReads(
            reads, params, self.namespace, posts, has_gvrs=bool(gvrs), entries=entries, gets=gets
        )

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
        if self.namespace and request.namespace != self.namespace:
            return True
        return self.has_narrow_rules and not included(self.policy.match, request)
