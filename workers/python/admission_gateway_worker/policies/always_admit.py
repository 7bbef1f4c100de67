"""AlwaysAdmit: allows every request. Deprecated in Kubernetes.

Source: kubernetes plugin/pkg/admission/admit.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review


def always_admit(review: Review) -> None:
    """Allow the request."""


DEFINITIONS = (
    Definition(
        "always-admit",
        "Allows every request (AlwaysAdmit, deprecated in Kubernetes).",
        always_admit,
        rules=({"operations": ["*"], "apiGroups": ["*"], "apiVersions": ["*"], "resources": ["*/*"]},),
        users_see="nothing",
        topic="certificates and the API",
        replaces=(Replaced("Kubernetes", "AlwaysAdmit"),),
    ),
)
