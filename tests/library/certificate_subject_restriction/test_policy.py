"""Source of the cases: kubernetes plugin/pkg/admission/certificates/subjectrestriction admission_test.go."""

from __future__ import annotations

import base64
from typing import Any

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from tests.library.builtin import of, refusal

NAME = "certificate-subject-restriction"
SIGNER = "kubernetes.io/kube-apiserver-client"
START = 'certificatesigningrequests.certificates.k8s.io "ann" is forbidden: '
DENIED = f"{START}use of {SIGNER} signer with system:masters group is not allowed"


def request(*organizations: str) -> bytes:
    subject = [x509.NameAttribute(NameOID.ORGANIZATION_NAME, name) for name in organizations]
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "ann"), *subject])
    made = x509.CertificateSigningRequestBuilder().subject_name(name)
    key = ec.generate_private_key(ec.SECP256R1())
    return made.sign(key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)


def asked(pem: bytes, signer: str = SIGNER, **others: Any) -> dict[str, Any]:
    spec = {"signerName": signer, "request": base64.b64encode(pem).decode()}
    found = {"metadata": {"name": "ann"}, "spec": spec}
    plural = others.pop("plural", "certificatesigningrequests")
    return of(plural, "CertificateSigningRequest", found, group="certificates.k8s.io", **others)


MASTERS = request("developers", "system:masters")


@pytest.mark.parametrize(
    ("given", "expected"),
    [
        (asked(MASTERS), DENIED),
        (asked(request("system:masters")), DENIED),
        (asked(request("system:notmasters")), ""),
        (asked(request()), ""),
        (asked(MASTERS, "abc.com/xyz"), ""),
        (asked(MASTERS, plural="certificatesigningrequests/status"), ""),
        (asked(MASTERS, operation="UPDATE"), ""),
        (asked(b"text\n" + MASTERS), DENIED),
        (asked(MASTERS.replace(b"\n", b"\r\n")), DENIED),
        # Go leaves out the first block because of the text behind its end.
        (
            asked(request("developers").rstrip() + b" x\n" + MASTERS),
            f"{START}failed to parse CSR: found several PEM blocks, expected one",
        ),
        (
            asked(b"-----BEGIN A-----\n" * 50_000 + MASTERS),
            f"{START}failed to parse CSR: found several PEM blocks, expected one",
        ),
        (
            asked(b"-----BEGIN CERTIFICATE REQUEST-----" + b"\n" * 500_000),
            f"{START}failed to parse CSR: PEM block type must be CERTIFICATE REQUEST",
        ),
        (asked(b"x"), f"{START}failed to parse CSR: PEM block type must be CERTIFICATE REQUEST"),
        (
            asked(MASTERS.replace(b"CERTIFICATE REQUEST", b"NEW CERTIFICATE REQUEST")),
            f"{START}failed to parse CSR: PEM block type must be CERTIFICATE REQUEST",
        ),
    ],
)
def test_organizations(given: dict[str, Any], expected: str) -> None:
    assert refusal(NAME, given) == expected


def test_a_request_that_is_none() -> None:
    wrong = b"-----BEGIN CERTIFICATE REQUEST-----\nAAAA\n-----END CERTIFICATE REQUEST-----\n"
    assert refusal(NAME, asked(wrong)).startswith(f"{START}failed to parse CSR: ")
