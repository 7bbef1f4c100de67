"""CertificateSigning: who signs a certificate request needs the right to sign for its signer.

Source: kubernetes plugin/pkg/admission/certificates/signing.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from admission_gateway_worker.policies.builtin import forbidden, is_for, quoted, rule
from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.policies.signers import may

if TYPE_CHECKING:
    from admission_gateway_worker import Review

_RULES: Final = (rule("certificatesigningrequests/status", "UPDATE", group="certificates.k8s.io"),)


async def check_signing(review: Review) -> None:
    """Deny changes of certificate or conditions by users without the right ``sign`` on the signer."""
    if not is_for(review, _RULES):
        return
    old = review.old_object or {}
    before, after = old.get("status") or {}, review.object.get("status") or {}
    if all(
        (before.get(field) or None) == (after.get(field) or None) for field in ("certificate", "conditions")
    ):
        return
    signer = (old.get("spec") or {}).get("signerName", "")
    if not await may(review, "sign", signer):
        raise forbidden(review, f"user not permitted to sign requests with signerName {quoted(signer)}")


DEFINITIONS = (
    Definition(
        "certificate-signing",
        "Denies signatures of certificate requests by users without the right to sign for the signer "
        "(CertificateSigning).",
        check_signing,
        rules=_RULES,
        users_see='certificatesigningrequests.certificates.k8s.io "ann" is forbidden: user not permitted to '
        'sign requests with signerName "example.com/signer"',
        topic="certificates and the API",
        replaces=(Replaced("Kubernetes", "CertificateSigning"),),
        needs_cluster=True,
        rights="create subjectaccessreviews.authorization.k8s.io",
    ),
)
