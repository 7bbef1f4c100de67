"""AlwaysDeny: denies every request. Deprecated in Kubernetes; useful to freeze a namespace.

Source: kubernetes plugin/pkg/admission/deny.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission_gateway_worker.policies.builtin import forbidden
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review

_TEXT = "admission control is denying all modifications"


def always_deny(review: Review) -> None:
    """Deny the request."""
    raise forbidden(review, _TEXT)


DEFINITIONS = (
    Definition(
        "always-deny",
        "Denies every request (AlwaysDeny). With a namespaceSelector it freezes a namespace.",
        always_deny,
        rules=(
            {
                "operations": ["CREATE", "UPDATE", "DELETE"],
                "apiGroups": ["*"],
                "apiVersions": ["*"],
                "resources": ["*"],
                "scope": "Namespaced",
            },
        ),
        notes="Without a `namespaceSelector` no object in any namespace can be changed. These rules leave "
        "out objects without a namespace, such as nodes: a `namespaceSelector` does not exclude those. They "
        "leave out subresources such as `status`, too, so that running pods go on. With `scope: '*'`, "
        "`resources: ['*/*']` and `operations: ['*']` everything but the configurations of webhooks is "
        "denied, as by AlwaysDeny.\n",
        users_see=f'pods "web" is forbidden: {_TEXT}',
        topic="certificates and the API",
        replaces=(Replaced("Kubernetes", "AlwaysDeny"),),
    ),
)
