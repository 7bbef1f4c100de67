"""Certificates that are not valid now: ``check`` and ``serve`` say so in the same words."""

from __future__ import annotations

import base64
import datetime
import json
import logging
from typing import TYPE_CHECKING

import pytest
from cryptography import x509
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from gateway.config.merge.load import load
from gateway.server.serving.tls import ServerCertificate
from gateway.tools.cli import main
from tests.faults.rotating import settings_document
from tests.kit import pool_document, webhook_document

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

DAY = datetime.timedelta(days=1)
EXPIRED, VALID, EARLY = (-2, -1), (-1, 30), (1, 30)
MESSAGES = {
    EXPIRED: "holds a certificate that expired on 2",
    EARLY: "holds a certificate that is not valid before 2",
}


def written(folder: Path, name: str, *spans: tuple[int, int]) -> bytes:
    """Write NAME.crt with a certificate for each of *spans*, in days from now, and NAME.key."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, name)])
    now = datetime.datetime.now(datetime.UTC)
    pem = b""
    for begin, end in spans:
        builder = x509.CertificateBuilder(subject, subject, key.public_key(), x509.random_serial_number())
        builder = builder.not_valid_before(now + begin * DAY).not_valid_after(now + end * DAY)
        pem += builder.sign(key, SHA256()).public_bytes(Encoding.PEM)
    (folder / f"{name}.crt").write_bytes(pem)
    encoded = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / f"{name}.key").write_bytes(encoded)
    return pem


def pool(**tls: str) -> str:
    document = json.loads(pool_document("pool", "dns:///a.example:1").strip().removesuffix("---"))
    document["spec"]["tls"] = tls
    return json.dumps(document) + "\n---\n"


def warned(folder: Path, document: str) -> list[str]:
    (folder / "c.yaml").write_text(document)
    return [f"{one.field}: {one.message}" for one in load([folder / "c.yaml"]).warnings]


def webhook(pem: bytes) -> str:
    client = {"url": "https://a.example", "caBundle": base64.b64encode(pem).decode()}
    return webhook_document("validate", "v", "", {"webhook": {"clientConfig": client}})


PLACES: dict[str, Callable[[bytes], str]] = {
    "spec.tls.caFile": lambda pem: pool(caFile="a.crt"),
    "spec.tls.caBundle": lambda pem: pool(caBundle=base64.b64encode(pem).decode()),
    "spec.tls.certFile": lambda pem: pool(certFile="a.crt", keyFile="a.key"),
    "tls.clientCAFile": lambda pem: settings_document(tls={"clientCAFile": "a.crt"}),
    "tracing.tls.caFile": lambda pem: settings_document(
        tracing={"endpoint": "https://a.example", "tls": {"caFile": "a.crt"}}
    ),
    "webhooks[0].clientConfig.caBundle": webhook,
}


@pytest.mark.parametrize("field", PLACES)
def test_a_certificate_that_is_not_valid_now_is_a_warning(tmp_path: Path, field: str) -> None:
    document = PLACES[field]
    for span, message in MESSAGES.items():
        (found,) = warned(tmp_path, document(written(tmp_path, "a", span)))
        assert found.startswith(f"{field}: ")
        assert message in found
    assert warned(tmp_path, document(written(tmp_path, "a", VALID))) == []
    # Of roots one is enough; a chain needs all.
    of_two = warned(tmp_path, document(written(tmp_path, "a", VALID, EXPIRED)))
    assert len(of_two) == (field == "spec.tls.certFile")


KUBECONFIGS: dict[str, str] = {
    "kubernetes.kubeconfig": settings_document(kubernetes={"kubeconfig": "k"}),
    "webhookKubeConfigFile": settings_document(webhookKubeConfigFile="k"),
    "webhooks[0].clientConfig.imageReview.kubeConfigFile": webhook_document(
        "validate", "v", "", {"webhook": {"clientConfig": {"imageReview": {"kubeConfigFile": "k"}}}}
    ),
}


@pytest.mark.parametrize("field", KUBECONFIGS)
@pytest.mark.parametrize("is_inline", [False, True])
def test_so_is_one_in_a_kubeconfig(tmp_path: Path, field: str, is_inline: bool) -> None:
    written(tmp_path, "ca", VALID)

    def found(*spans: tuple[int, int], name: str = "a") -> list[str]:
        written(tmp_path, name, *spans)
        files = {"client-certificate": "a.crt", "client-key": "a.key", "certificate-authority": "ca.crt"}
        if is_inline:
            content = {key: base64.b64encode((tmp_path / file).read_bytes()) for key, file in files.items()}
            members = {f"{key}-data": text.decode() for key, text in content.items()}
        else:
            members = files
        cluster = {"server": "https://a.example", **members}
        kubeconfig = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": cluster}],
            "users": [{"name": "u", "user": members}],
        }
        (tmp_path / "k").write_text(json.dumps(kubeconfig))
        return [one for one in warned(tmp_path, KUBECONFIGS[field]) if one.startswith(f"{field}: ")]

    suffix = "-data" if is_inline else ""
    for span, message in MESSAGES.items():
        (line,) = found(span)
        assert f"client-certificate{suffix}: {message}" in line
    assert found(VALID) == []
    assert len(found(VALID, EXPIRED)) == 1
    written(tmp_path, "a", VALID)
    # The users of webhooks have no cluster.
    of_cluster = found(EXPIRED, name="ca")
    assert len(of_cluster) == (field != "webhookKubeConfigFile")
    assert all(f"cluster.certificate-authority{suffix}: {MESSAGES[EXPIRED]}" in one for one in of_cluster)


def test_check_refuses_a_serving_certificate_that_api_servers_refuse(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str]
) -> None:
    file = tmp_path / "c.yaml"
    file.write_text(
        pool_document("pool", "ipv4:127.0.0.1:1")
        + webhook_document("validate", "v", "pool", {})
        + settings_document(tls={"certFile": "a.crt", "keyFile": "a.key"})
    )
    for spans in ((EXPIRED,), (EARLY,), (VALID, EXPIRED), (VALID,)):
        written(tmp_path, "a", *spans)
        message = MESSAGES.get(spans[-1], "")
        with pytest.raises(SystemExit) as ended:
            main(["check", "--config", str(file)])
        assert ended.value.code == (1 if message else 0)
        assert f"tls.certFile: {tmp_path}/a.crt {message}" in capsys.readouterr().err or not message
        # serve starts with it, since it takes a renewed one without a restart, and says the same.
        caplog.clear()
        with caplog.at_level(logging.ERROR):
            ServerCertificate(load([file]).gateway.tls)
        assert len(caplog.messages) == bool(message)
        assert f"{tmp_path}/a.crt {message}" in caplog.text or not message
