"""Registrations made by ``manifests`` and then changed; and certificates for them."""

from __future__ import annotations

import base64
import copy
import datetime
from typing import TYPE_CHECKING, Any

import trustme
from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, rsa
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.x509.oid import NameOID

from gateway.config.kinds.gateway_configuration import GatewaySettings
from gateway.config.kinds.serving_settings import ServerTls
from gateway.tools.inspection.model import ClusterState
from gateway.tools.inspection.registration import inspect
from gateway.tools.registration.backend import Backend
from gateway.tools.registration.plan import RegistrationOptions, plan
from tests.core.build import webhook
from tests.registration.kit import configured, rule

if TYPE_CHECKING:
    from pathlib import Path

    from cryptography.hazmat.primitives.asymmetric.types import CertificateIssuerPrivateKeyTypes

    from gateway.config.merge.model import Config
    from gateway.pure.core.webhook import Webhook
    from gateway.tools.inspection.model import Finding

    Json = dict[str, Any]

NOW = datetime.datetime.now(datetime.UTC)
SERVICE = ("policies", "gateway")
HOST = "gateway.policies.svc"
PODS = rule("pods")


def certificates(folder: Path, *names: str, ends: datetime.datetime | None = None) -> tuple[Path, str]:
    """A serving certificate for *names* in a file, and the caBundle of the CA that signed it."""
    authority = trustme.CA(key_type=trustme.KeyType.ECDSA)
    issued = authority.issue_cert(*names, key_type=trustme.KeyType.ECDSA, not_after=ends)
    file = folder / "tls.crt"
    file.write_bytes(b"".join(pem.bytes() for pem in issued.cert_chain_pems))
    return file, base64.b64encode(authority.cert_pem.bytes()).decode()


Issued = tuple[x509.Certificate, "CertificateIssuerPrivateKeyTypes"]


def issue(
    kind: str, issuer: Issued | None = None, *others: x509.ExtensionType, is_ca: bool = False, days: int = 9
) -> Issued:
    """A certificate for HOST and its key, signed by *issuer*, or by itself."""
    key: CertificateIssuerPrivateKeyTypes
    if kind == "rsa":
        key = rsa.generate_private_key(65537, 2048)
    else:
        key = ec.generate_private_key(ec.SECP256R1()) if kind == "ecdsa" else Ed25519PrivateKey.generate()
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, f"{x509.random_serial_number()}")])
    signer = (name, key) if issuer is None else (issuer[0].subject, issuer[1])
    extensions: list[x509.ExtensionType] = [*others]
    if is_ca:
        extensions.append(x509.BasicConstraints(ca=True, path_length=None))
    elif not any(isinstance(one, x509.SubjectAlternativeName) for one in others):
        extensions.append(x509.SubjectAlternativeName([x509.DNSName(HOST)]))
    builder = x509.CertificateBuilder(signer[0], name, key.public_key(), x509.random_serial_number())
    builder = builder.not_valid_before(NOW - datetime.timedelta(days=9))
    builder = builder.not_valid_after(NOW + datetime.timedelta(days=days))
    for one in extensions:
        builder = builder.add_extension(one, critical=is_ca)
    return builder.sign(signer[1], None if isinstance(signer[1], Ed25519PrivateKey) else hashes.SHA256()), key


class Registered:
    """A configuration, and a cluster in which it is registered, without a fault at first."""

    def __init__(self, folder: Path, *hooks: Webhook, url: str = "") -> None:
        self.hooks = hooks or (
            webhook("a.policies.test", rules=(PODS,)),
            webhook("b.policies.test", phase="validate", rules=(PODS,)),
        )
        cert_file, self.ca_bundle = certificates(folder, HOST)
        self.settings = GatewaySettings(tls=ServerTls(cert_file=cert_file))
        service = None if url else (*SERVICE, 443)
        self.backend = Backend(service=service, url=url, ca_bundle=self.ca_bundle)
        self.seen = ClusterState(
            configurations=copy.deepcopy(plan(self.config, RegistrationOptions(self.backend)).documents),
            services={SERVICE: {"spec": {"ports": [{"port": 443}]}}},
            ready={SERVICE: 1},
        )

    @property
    def config(self) -> Config:
        """The configuration."""
        return configured(*self.hooks, gateway=self.settings)

    def entry(self, phase: str = "validate") -> Json:
        """The first entry of *phase*, for a test to change."""
        found: Json = self.seen.configurations[phase == "validate"]["webhooks"][0]
        return found

    def found(self, now: datetime.datetime = NOW, days: int = 30) -> list[Finding]:
        """All that an inspection finds, but for what `lost` returns."""
        found = inspect(self.config, self.seen, now, days)
        return [one for one in found if not one.place.startswith("namespace")]

    def lost(self, *accepted: str) -> list[Finding]:
        """What an inspection finds of namespaces in which webhooks are not called."""
        found = inspect(self.config, self.seen, NOW, 30, accepted=accepted)
        return [one for one in found if one.place.startswith("namespace")]
