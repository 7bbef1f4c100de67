"""CertificateSubjectRestriction: nobody requests a client certificate of the group system:masters.

It needs the package cryptography, of the extra ``policies``.

Source: kubernetes plugin/pkg/admission/certificates/subjectrestriction; RFC 2986.
"""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.builtin import forbidden, is_for, rule
from admission_gateway_worker.policies.definition import Definition, Replaced

if TYPE_CHECKING:
    from admission_gateway_worker import Review

_RULES: Final = (rule("certificatesigningrequests", "CREATE", group="certificates.k8s.io"),)
_SIGNER: Final = "kubernetes.io/kube-apiserver-client"
_GROUP: Final = "system:masters"
_NAME: Final = b"CERTIFICATE REQUEST"
_PEM: Final = re.compile(
    rb"^-----BEGIN %s-----[ \t\r]*\n.*?^-----END %s-----" % (_NAME, _NAME), re.DOTALL | re.MULTILINE
)


def restrict_subject(review: Review) -> None:
    """Deny requests to the signer of API clients whose organization is system:masters."""
    if not is_for(review, _RULES):
        return
    spec: dict[str, Any] = review.object.get("spec") or {}
    if spec.get("signerName") != _SIGNER:
        return
    try:
        organizations = organizations_of(base64.b64decode(spec.get("request") or ""))
    except ValueError as error:
        raise forbidden(review, f"failed to parse CSR: {error}") from error
    if _GROUP in organizations:
        raise forbidden(review, f"use of {_SIGNER} signer with {_GROUP} group is not allowed")


def organizations_of(pem: bytes) -> list[object]:
    """Return the organizations in the subject of a PKCS#10 request.

    Raises:
        ValueError: it is none, or has several PEM blocks. Go leaves out a block that it cannot read, so that
            another one could be signed than the one that is looked at here.
    """
    from cryptography import x509
    from cryptography.x509.oid import NameOID

    if pem.count(b"-----BEGIN") > 1:
        raise ValueError("found several PEM blocks, expected one")
    found = _PEM.search(pem)
    if found is None:
        raise ValueError("PEM block type must be CERTIFICATE REQUEST")
    subject = x509.load_pem_x509_csr(found[0]).subject
    return [each.value for each in subject.get_attributes_for_oid(NameOID.ORGANIZATION_NAME)]


DEFINITIONS = (
    Definition(
        "certificate-subject-restriction",
        "Denies certificate requests for API clients of the group system:masters "
        "(CertificateSubjectRestriction).",
        restrict_subject,
        rules=_RULES,
        users_see=f'certificatesigningrequests.certificates.k8s.io "ann" is forbidden: use of {_SIGNER} '
        f"signer with {_GROUP} group is not allowed",
        topic="certificates and the API",
        replaces=(Replaced("Kubernetes", "CertificateSubjectRestriction"),),
        notes="- A request with several PEM blocks is refused; the API server looks at the first one that it "
        "can read. Clients write one.\n",
    ),
)
