"""CertificateApproval and CertificateSigning, which have the same check of rights.

Source of the cases: kubernetes plugin/pkg/admission/certificates/{approval,signing} admission_test.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest

from admission_gateway_worker.policies.cluster import ClusterError
from tests.library.builtin import of, refusal

if TYPE_CHECKING:
    from tests.library.api_server import ApiServer

CASES = [
    ("abc.com/xyz", "abc.com/xyz", True),
    ("abc.com/*", "abc.com/xyz", True),
    ("notabc.com/xyz", "abc.com/xyz", False),
    ("allowed.com/xyz", "notallowed.com/xyz", False),
]


def csr(signer: str, **status: Any) -> dict[str, Any]:
    return {"metadata": {"name": "csr"}, "spec": {"signerName": signer}, "status": status}


def asked(sub_resource: str, new: dict[str, Any], old: dict[str, Any]) -> dict[str, Any]:
    plural = f"certificatesigningrequests/{sub_resource}".rstrip("/")
    return of(plural, "CertificateSigningRequest", new, old, group="certificates.k8s.io")


def grant(api_server: ApiServer, verb: str, name: str, **others: Any) -> None:
    api_server.rights = lambda spec: {
        "allowed": spec["resourceAttributes"]
        == {"verb": verb, "name": name, "group": "certificates.k8s.io", "version": "*", "resource": "signers"}
        and spec["user"] == "ann",
        **others,
    }


@pytest.mark.parametrize(("right", "signer", "is_allowed"), CASES)
@pytest.mark.parametrize("verb", ["approve", "sign"])
def test_the_right_on_the_signer(
    api_server: ApiServer, verb: str, right: str, signer: str, is_allowed: bool
) -> None:
    grant(api_server, verb, right)
    policy = {"approve": "certificate-approval", "sign": "certificate-signing"}[verb]
    sub_resource = {"approve": "approval", "sign": "status"}[verb]
    denied = (
        'certificatesigningrequests.certificates.k8s.io "csr" is forbidden: user not permitted to '
        f'{verb} requests with signerName "{signer}"'
    )
    given = asked(sub_resource, csr("allowed.com/xyz", certificate="abc"), csr(signer))
    assert refusal(policy, given) == ("" if is_allowed else denied)
    assert refusal(policy, asked("", csr(signer, certificate="abc"), csr(signer))) == ""
    grant(api_server, verb, right, evaluationError="a webhook failed")
    assert refusal(policy, given) == denied


def test_only_a_change_of_certificate_or_conditions_is_a_signature(api_server: ApiServer) -> None:
    old = csr("abc.com/xyz", certificate="abc", conditions=[])
    for new, is_denied in (
        (csr("abc.com/xyz", certificate="abc"), False),
        (csr("abc.com/xyz", certificate="def"), True),
        (csr("abc.com/xyz", certificate="abc", conditions=[{"type": "Failed"}]), True),
        (csr("abc.com/xyz", certificate="abc", other=1), False),
    ):
        assert bool(refusal("certificate-signing", asked("status", new, old))) is is_denied
    assert len(api_server.reviewed) == 4


def test_an_api_server_that_cannot_be_asked(api_server: ApiServer) -> None:
    api_server.token = "another"
    with pytest.raises(ClusterError, match="401: Unauthorized"):
        refusal("certificate-approval", asked("approval", csr("a/b"), csr("a/b")))
