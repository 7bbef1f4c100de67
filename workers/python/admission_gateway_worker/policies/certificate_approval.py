"""CertificateApproval: who approves a certificate request needs the right to approve for its signer.

Source: kubernetes plugin/pkg/admission/certificates/approval.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission_gateway_worker.policies.builtin import forbidden, is_for, quoted, rule
from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.signers import may

if TYPE_CHECKING:
    from admission_gateway_worker import Review

_RULES: Final = (rule("certificatesigningrequests/approval", "UPDATE", group="certificates.k8s.io"),)


async def check_approval(review: Review) -> None:
    """Deny approvals by users without the right ``approve`` on the signer of the stored request."""
    if not is_for(review, _RULES):
        return
    signer = ((review.old_object or {}).get("spec") or {}).get("signerName", "")
    if not await may(review, "approve", signer):
        raise forbidden(review, f"user not permitted to approve requests with signerName {quoted(signer)}")


DEFINITIONS = (
    Definition(
        "certificate-approval",
        "Denies approvals of certificate requests by users without the right to approve for the signer "
        "(CertificateApproval).",
        check_approval,
        rules=_RULES,
        users_see='certificatesigningrequests.certificates.k8s.io "ann" is forbidden: user not permitted to '
        'approve requests with signerName "example.com/signer"',
        topic="certificates and the API",
        replaces=(Replaced("Kubernetes", "CertificateApproval"),),
        needs_cluster=True,
        rights="create subjectaccessreviews.authorization.k8s.io",
    ),
)
