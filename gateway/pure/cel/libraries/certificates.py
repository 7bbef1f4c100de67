"""``x509.decode`` of Kyverno: a certificate or a certificate request with an RSA key, as a map.

The members are those of Go's structs, with Go's names and numbers.

Source: github.com/kyverno/sdk extensions/cel/libs/x509; Go crypto/x509 x509.go, parser.go, crypto/x509/pkix.
"""

from __future__ import annotations

import binascii
import re
from base64 import b64decode, b64encode
from typing import TYPE_CHECKING, Final
from urllib.parse import urlsplit

from gateway.pure.cel.errors import EvaluationError
from gateway.pure.cel.functions import Function, function
from gateway.pure.cel.meter import count_steps

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from cryptography import x509

_LONGEST: Final = 100_000
"""Characters of a text with a certificate."""
_PARSING: Final = 100
"""Steps for a character."""
_PEM: Final = re.compile(
    r"^-----BEGIN ([A-Z0-9 ]{1,40})-----[ \t]*\r?\n([A-Za-z0-9+/=\s]*)^-----END \1-----",
    re.MULTILINE | re.ASCII,
)
_RSA: Final = 1
_NAMES: Final = {
    "2.5.4.6": "Country",
    "2.5.4.10": "Organization",
    "2.5.4.11": "OrganizationalUnit",
    "2.5.4.7": "Locality",
    "2.5.4.8": "Province",
    "2.5.4.9": "StreetAddress",
    "2.5.4.17": "PostalCode",
}
_ONE_NAME: Final = {"2.5.4.3": "CommonName", "2.5.4.5": "SerialNumber"}
_USAGES: Final = (
    "digital_signature",
    "content_commitment",
    "key_encipherment",
    "data_encipherment",
    "key_agreement",
    "key_cert_sign",
    "crl_sign",
    "encipher_only",
    "decipher_only",
)
_EXTENDED: Final = {
    "2.5.29.37.0": 0,
    **{f"1.3.6.1.5.5.7.3.{number}": number for number in range(1, 10)},
    "1.3.6.1.4.1.311.10.3.3": 10,
    "2.16.840.1.113730.4.1": 11,
    "1.3.6.1.4.1.311.2.1.22": 12,
    "1.3.6.1.4.1.311.61.1.1": 13,
}
_ALGORITHMS: Final = {
    "1.2.840.113549.1.1.4": 2,
    "1.2.840.113549.1.1.5": 3,
    "1.2.840.113549.1.1.11": 4,
    "1.2.840.113549.1.1.12": 5,
    "1.2.840.113549.1.1.13": 6,
}
_REQUESTED: Final = [1, 2, 840, 113549, 1, 9, 14]
"""The attribute of a request with the wanted extensions."""


def _decode(text: str) -> dict[object, object]:
    if len(text) > _LONGEST:
        problem = f"found {len(text)} characters of PEM, expected at most {_LONGEST}"
        raise EvaluationError(problem)
    count_steps((len(text) + 1000) * _PARSING)
    block = _PEM.search(text)
    try:
        raw = b64decode("".join(block[2].split()), validate=True) if block else None
    except binascii.Error:
        raw = None
    if block is None or raw is None:
        raise EvaluationError("failed to decode PEM block")
    kind = block[1]
    if kind not in ("CERTIFICATE", "CERTIFICATE REQUEST"):
        raise EvaluationError("PEM block neither contains a CERTIFICATE or CERTIFICATE REQUEST")
    # Imported at the first use: it takes some hundredths of a second, and most policies do not need it.
    from cryptography import x509
    from cryptography.exceptions import UnsupportedAlgorithm

    try:
        if kind == "CERTIFICATE":
            return _certificate(x509.load_der_x509_certificate(raw))
        return _request(x509.load_der_x509_csr(raw))
    except (ValueError, UnsupportedAlgorithm):
        raise EvaluationError(f"x509: malformed {kind.lower()}") from None


def _key(of: x509.Certificate | x509.CertificateSigningRequest) -> dict[object, object]:
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey
    from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat

    key = of.public_key()
    if not isinstance(key, RSAPublicKey):
        raise EvaluationError("certificate should use rsa algorithm")
    numbers = key.public_numbers()
    info = key.public_bytes(Encoding.DER, PublicFormat.SubjectPublicKeyInfo)
    return {
        "PublicKeyAlgorithm": float(_RSA),
        "PublicKey": {"N": str(numbers.n), "E": float(numbers.e)},
        "RawSubjectPublicKeyInfo": _base64(info),
    }


def _certificate(found: x509.Certificate) -> dict[object, object]:
    from cryptography.hazmat.primitives.serialization import Encoding

    key = _key(found)
    low = found.serial_number & ((1 << 64) - 1)
    return {
        **key,
        "Raw": _base64(found.public_bytes(Encoding.DER)),
        "RawTBSCertificate": _base64(found.tbs_certificate_bytes),
        "RawSubject": _base64(found.subject.public_bytes()),
        "RawIssuer": _base64(found.issuer.public_bytes()),
        "Signature": _base64(found.signature),
        "SerialNumber": float(low - (1 << 64) if low >> 63 else low),
        "Issuer": _name(found.issuer),
        "NotBefore": f"{found.not_valid_before_utc:%Y-%m-%dT%H:%M:%SZ}",
        "NotAfter": f"{found.not_valid_after_utc:%Y-%m-%dT%H:%M:%SZ}",
        "Extensions": _extensions(found.extensions),
        "ExtraExtensions": None,
        **_constraints(found.extensions),
        **_uses(found.extensions),
        **_places(found.extensions),
        **_alternatives(found.extensions),
    }


def _request(found: x509.CertificateSigningRequest) -> dict[object, object]:
    from cryptography.hazmat.primitives.serialization import Encoding

    extensions = _extensions(found.extensions)
    asked = None
    if extensions is not None:
        # Go takes the first member after the identifier for the value: that of a critical one is a bool.
        pairs = [{"Type": each["Id"], "Value": each["Critical"] or each["Value"]} for each in extensions]
        asked = [{"Type": [float(part) for part in _REQUESTED], "Value": [pairs]}]
    return {
        **_key(found),
        "Raw": _base64(found.public_bytes(Encoding.DER)),
        "RawTBSCertificateRequest": _base64(found.tbs_certrequest_bytes),
        "RawSubject": _base64(found.subject.public_bytes()),
        "Version": 0.0,
        "Signature": _base64(found.signature),
        "SignatureAlgorithm": float(_ALGORITHMS.get(found.signature_algorithm_oid.dotted_string, 0)),
        "Subject": _name(found.subject),
        "Attributes": asked,
        "Extensions": extensions,
        "ExtraExtensions": None,
        **_alternatives(found.extensions),
        "URIs": _or_none(_uri(each) for each in _general_names(found.extensions)[3]),
    }


def _base64(raw: bytes) -> str:
    return b64encode(raw).decode()


def _or_none(items: Iterable[object]) -> list[object] | None:
    """Return *items*, or None if there are none, as Go has it."""
    return list(items) or None


def _oid(found: x509.ObjectIdentifier) -> list[float]:
    return [float(part) for part in found.dotted_string.split(".")]


def _name(found: x509.Name) -> dict[object, object]:
    names: dict[object, object] = {**dict.fromkeys(_NAMES.values()), **dict.fromkeys(_ONE_NAME.values(), "")}
    for each in found:
        oid = each.oid.dotted_string
        if oid in _ONE_NAME:
            names[_ONE_NAME[oid]] = each.value
        elif oid in _NAMES:
            before = names[_NAMES[oid]]
            names[_NAMES[oid]] = [*(before if isinstance(before, list) else []), each.value]
    names["Names"] = _or_none({"Type": _oid(each.oid), "Value": each.value} for each in found)
    names["ExtraNames"] = None
    return names


def _extensions(found: x509.Extensions) -> list[dict[str, object]] | None:
    return [
        {"Id": _oid(each.oid), "Critical": each.critical, "Value": _base64(each.value.public_bytes())}
        for each in found
    ] or None


def _constraints(found: x509.Extensions) -> dict[object, object]:
    from cryptography import x509

    basic = next((each.value for each in found if isinstance(each.value, x509.BasicConstraints)), None)
    length = None if basic is None else basic.path_length
    limits = next((each for each in found if isinstance(each.value, x509.NameConstraints)), None)
    members: dict[object, object] = {
        "BasicConstraintsValid": basic is not None,
        "IsCA": basic is not None and basic.ca,
        "MaxPathLen": 0.0 if basic is None else float(-1 if length is None else length),
        "MaxPathLenZero": length == 0,
        "PermittedDNSDomainsCritical": limits is not None and limits.critical,
    }
    value = limits.value if limits is not None else None
    assert value is None or isinstance(value, x509.NameConstraints)
    for prefix, trees in (
        ("Permitted", value.permitted_subtrees if value else None),
        ("Excluded", value.excluded_subtrees if value else None),
    ):
        texts, mails, networks, uris = _sorted(trees or ())
        members[f"{prefix}DNSDomains"] = _or_none(texts)
        members[f"{prefix}EmailAddresses"] = _or_none(mails)
        members[f"{prefix}URIDomains"] = _or_none(uris)
        members[f"{prefix}IPRanges"] = _or_none(
            {"IP": str(each.network_address), "Mask": _base64(each.netmask.packed)}  # type: ignore[attr-defined]
            for each in networks
        )
    return members


def _uses(found: x509.Extensions) -> dict[object, object]:
    from cryptography import x509

    usage, extended = 0, []
    for each in found:
        if isinstance(each.value, x509.KeyUsage):
            # Without key_agreement the last two have no value.
            names = _USAGES if each.value.key_agreement else _USAGES[:7]
            usage = sum(1 << bit for bit, name in enumerate(names) if getattr(each.value, name))
        elif isinstance(each.value, x509.ExtendedKeyUsage):
            extended = [_EXTENDED.get(oid.dotted_string) for oid in each.value]
    return {
        "KeyUsage": float(usage),
        "ExtKeyUsage": _or_none(float(each) for each in extended if each is not None),
    }


def _places(found: x509.Extensions) -> dict[object, object]:
    from cryptography import x509
    from cryptography.x509.oid import AuthorityInformationAccessOID

    authority: str | None = None
    servers: list[object] = []
    issuers: list[object] = []
    lists: list[object] = []
    policies: list[object] = []
    for each in found:
        value = each.value
        if isinstance(value, x509.AuthorityKeyIdentifier) and value.key_identifier is not None:
            authority = _base64(value.key_identifier)
        elif isinstance(value, x509.AuthorityInformationAccess):
            for access in value:
                is_ocsp = access.access_method == AuthorityInformationAccessOID.OCSP
                if isinstance(access.access_location, x509.UniformResourceIdentifier):
                    (servers if is_ocsp else issuers).append(access.access_location.value)
        elif isinstance(value, x509.CRLDistributionPoints):
            for point in value:
                lists += _sorted(point.full_name or ())[3]
        elif isinstance(value, x509.CertificatePolicies):
            policies += [_oid(policy.policy_identifier) for policy in value]
    return {
        "AuthorityKeyId": authority,
        "OCSPServer": _or_none(servers),
        "IssuingCertificateURL": _or_none(issuers),
        "CRLDistributionPoints": _or_none(lists),
        "PolicyIdentifiers": _or_none(policies),
    }


def _sorted(names: Iterable[x509.GeneralName]) -> Sequence[list[object]]:
    """Return those of *names* that are names in DNS, mail addresses, IP addresses or networks, and URIs."""
    from cryptography import x509

    kinds = (x509.DNSName, x509.RFC822Name, x509.IPAddress, x509.UniformResourceIdentifier)
    given = list(names)
    return [[each.value for each in given if type(each) is kind] for kind in kinds]


def _general_names(found: x509.Extensions) -> Sequence[list[object]]:
    from cryptography import x509

    return _sorted(
        name for each in found if isinstance(each.value, x509.SubjectAlternativeName) for name in each.value
    )


def _alternatives(found: x509.Extensions) -> dict[object, object]:
    texts, mails, addresses, _ = _general_names(found)
    return {
        "DNSNames": _or_none(texts),
        "EmailAddresses": _or_none(mails),
        "IPAddresses": _or_none(map(str, addresses)),
    }


def _uri(text: object) -> dict[object, object]:
    """Return a URI as Go's ``url.URL``; parts that are escaped are not unescaped."""
    parts = urlsplit(str(text))
    return {
        "Scheme": parts.scheme,
        "Opaque": "",
        "User": None,
        "Host": parts.netloc,
        "Path": parts.path,
        "RawPath": "",
        "OmitHost": False,
        "ForceQuery": False,
        "RawQuery": parts.query,
        "Fragment": parts.fragment,
        "RawFragment": "",
    }


FUNCTIONS: Final[tuple[Function, ...]] = (
    function("x509_decode_string", "x509.decode(string) -> dyn", _decode, 1),
)
