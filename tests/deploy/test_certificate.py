"""certificate.sh makes a certificate that the gateway can serve and the API server accepts."""

from __future__ import annotations

from typing import TYPE_CHECKING

from cryptography import x509
from cryptography.hazmat.primitives.asymmetric.ec import ECDSA, EllipticCurvePublicKey

from gateway.config.kinds.serving_settings import ServerTls
from gateway.server.serving.tls import server_context
from tests.deploy.cluster import CERT_MANAGER, GATEWAY, make_certificates, only

if TYPE_CHECKING:
    from pathlib import Path

SERVICE = f"{GATEWAY}.{GATEWAY}.svc"


def certificate(file: Path) -> x509.Certificate:
    return x509.load_pem_x509_certificate(file.read_bytes())


def test_the_gateway_can_serve_certificate_and_key(made_certificates: Path) -> None:
    server_context(ServerTls(made_certificates / "tls.crt", made_certificates / "tls.key"))


def test_the_certificate_names_the_service_as_cert_managers_does(made_certificates: Path) -> None:
    leaf = certificate(made_certificates / "tls.crt")
    names = leaf.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
    assert names.get_values_for_type(x509.DNSName)[0] == SERVICE
    issued = only("Certificate", "admission-gateway-tls", CERT_MANAGER)["spec"]
    assert names.get_values_for_type(x509.DNSName) == issued["dnsNames"]


def test_only_the_ca_may_sign(made_certificates: Path) -> None:
    for name, is_ca in (("ca.crt", True), ("tls.crt", False)):
        extensions = certificate(made_certificates / name).extensions
        assert extensions.get_extension_for_class(x509.BasicConstraints).value.ca is is_ca


def test_only_the_owner_can_read_the_keys(made_certificates: Path) -> None:
    for name in ("ca.key", "tls.key"):
        assert (made_certificates / name).stat().st_mode & 0o077 == 0


def test_a_second_run_renews_the_certificate_and_keeps_the_ca(tmp_path: Path) -> None:
    """So that registration.yaml, which has the CA in it, stays as it is."""
    make_certificates(tmp_path)
    ca, first = (tmp_path / "ca.crt").read_bytes(), certificate(tmp_path / "tls.crt")
    make_certificates(tmp_path)
    second = certificate(tmp_path / "tls.crt")
    assert (tmp_path / "ca.crt").read_bytes() == ca
    assert second.serial_number != first.serial_number
    assert second.public_key() != first.public_key()
    key = certificate(tmp_path / "ca.crt").public_key()
    assert isinstance(key, EllipticCurvePublicKey)
    assert second.signature_hash_algorithm is not None
    key.verify(second.signature, second.tbs_certificate_bytes, ECDSA(second.signature_hash_algorithm))
    assert sorted(path.name for path in tmp_path.glob("new.*")) == []
