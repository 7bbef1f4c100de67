"""The parts of certificates are those that cryptography finds."""

from __future__ import annotations

import datetime

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from cryptography.x509.oid import NameOID
from hypothesis import given, settings
from hypothesis import strategies as st

from gateway.base.certificates import CertificateParts, chain_problem, parts_in, parts_of, roots_problem

Key = ec.EllipticCurvePrivateKey | ed25519.Ed25519PrivateKey | rsa.RSAPrivateKey
KEYS: list[Key] = [
    ec.generate_private_key(ec.SECP256R1()),
    ed25519.Ed25519PrivateKey.generate(),
    rsa.generate_private_key(65537, 2048),
]
NAMES = [
    x509.NameAttribute(NameOID.COMMON_NAME, "a"),
    x509.NameAttribute(NameOID.ORGANIZATION_NAME, "b" * 60),
]
ENDS = st.datetimes(datetime.datetime(1951, 1, 1), datetime.datetime(9999, 12, 31))  # noqa: DTZ001


@settings(deadline=None)
@given(end=ENDS, key=st.sampled_from(KEYS), name=st.lists(st.sampled_from(NAMES), max_size=2, unique=True))
def test_the_parts_are_those_that_cryptography_finds(
    end: datetime.datetime, key: Key, name: list[x509.NameAttribute[str]]
) -> None:
    certificate = (
        x509.CertificateBuilder()
        .subject_name(x509.Name(name))
        .issuer_name(x509.Name(NAMES))
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.datetime(1950, 1, 1))  # noqa: DTZ001
        .not_valid_after(end)
        .sign(key, None if isinstance(key, ed25519.Ed25519PrivateKey) else hashes.SHA256())
    )
    der = certificate.public_bytes(Encoding.DER)
    found = parts_of(der)
    assert parts_in(b"text\n" + certificate.public_bytes(Encoding.PEM) * 2) == [found, found]
    assert found.subject == certificate.subject.public_bytes()
    assert found.not_before == certificate.not_valid_before_utc.timestamp()
    assert found.not_after == certificate.not_valid_after_utc.timestamp()
    assert found.public_key == key.public_key().public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    for cut in range(1, len(der), 7):
        with pytest.raises(ValueError, match="no certificate"):
            parts_of(der[:cut])


TIMES = st.integers(0, 20)


@given(st.lists(st.tuples(TIMES, TIMES), min_size=1, max_size=4), TIMES)
def test_a_chain_needs_all_certificates_and_of_roots_one_is_enough(
    spans: list[tuple[int, int]], now: int
) -> None:
    found = [CertificateParts(b"", begin, begin + length, b"") for begin, length in spans]
    valid = [begin <= now <= begin + length for begin, length in spans]
    assert (chain_problem(found, now) == "") == all(valid)
    assert (roots_problem(found, now) == "") == any(valid)


@given(st.binary(min_size=1, max_size=100))
def test_other_bytes_are_no_certificate(content: bytes) -> None:
    with pytest.raises(ValueError, match="no certificate"):
        parts_of(content)
    with pytest.raises(ValueError, match="no certificate"):
        parts_in(content)
