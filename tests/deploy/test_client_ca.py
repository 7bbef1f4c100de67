"""deploy/apiserver fits the manifest, and the gateway accepts the API server's certificate alone."""

from __future__ import annotations

import re
import ssl
import subprocess
from typing import TYPE_CHECKING

import pytest
import trustme
import yaml

from gateway.config.kinds.webhook_users import read_webhook_users
from gateway.config.yaml.fields import Fields, Problems
from gateway.pure.core.webhook import HttpsClient
from tests.deploy.cluster import (
    DEPLOY,
    GATEWAY,
    REGISTRATION,
    container,
    objects,
    only,
    pod,
    write_config_map,
)
from tests.deploy.test_running import call_as_the_api_server
from tests.kit import REVIEWS, ROOT

if TYPE_CHECKING:
    from pathlib import Path

    from tests.kit import StartGateway

API_SERVER = DEPLOY / "apiserver"
FOLDER = "/etc/kubernetes/admission"
CA_FOLDER = "/etc/admission-gateway-client-ca"


@pytest.fixture(scope="module")
def client_certificates(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder that ``apiserver/certificate.sh`` fills."""
    folder = tmp_path_factory.mktemp("client-certs")
    command = ["sh", str(API_SERVER / "certificate.sh"), str(folder)]
    for _ in range(2):  # the second time with the CA that is there
        subprocess.run(command, check=True, capture_output=True)
    assert {path.name for path in folder.iterdir()} >= {"ca.crt", "ca.key", "client.crt", "client.key"}
    return folder


def test_admission_configuration_is_for_both_phases_and_names_the_kubeconfig() -> None:
    document = yaml.safe_load((API_SERVER / "admission-configuration.yaml").read_text())
    assert (document["apiVersion"], document["kind"]) == (
        "apiserver.config.k8s.io/v1",
        "AdmissionConfiguration",
    )
    plugins = {plugin["name"]: plugin["configuration"] for plugin in document["plugins"]}
    assert plugins.keys() == {"MutatingAdmissionWebhook", "ValidatingAdmissionWebhook"}
    for configuration in plugins.values():
        assert configuration == {
            "apiVersion": "apiserver.config.k8s.io/v1",
            "kind": "WebhookAdmissionConfiguration",
            "kubeConfigFile": f"{FOLDER}/webhooks.kubeconfig",
        }
    assert (API_SERVER / "webhooks.kubeconfig").exists()


def test_kubeconfig_has_the_certificate_for_the_registered_service(client_certificates: Path) -> None:
    """The gateway reads it here: it selects a user for a webhook as the API server does."""
    text = (API_SERVER / "webhooks.kubeconfig").read_text()
    assert FOLDER in text
    (client_certificates / "kubeconfig").write_text(text.replace(FOLDER, str(client_certificates)))
    problems = Problems("", folder=client_certificates)
    users = read_webhook_users(Fields({"file": "kubeconfig"}, "", problems), "file")
    assert problems.found == []
    assert users is not None
    for o in objects(REGISTRATION):
        for webhook in o["webhooks"]:
            service = webhook["clientConfig"]["service"]
            host = f"{service['name']}.{service['namespace']}.svc"
            user = users.find(HttpsClient(f"https://{host}:{service.get('port', 443)}/validate"))
            assert user is not None
            assert user.certificate_pem == (client_certificates / "client.crt").read_bytes()


def settings_with_client_ca() -> str:
    """Return the manifest's GatewayConfiguration with the line of install.md for client certificates."""
    text: str = only("ConfigMap", GATEWAY)["data"]["gateway.yaml"]
    (line,) = re.findall(r"`(tls: \{clientCAFile: [^`]+)`", (ROOT / "docs" / "install.md").read_text())
    return f"{text}{line}\n"


def test_client_ca_is_mounted_at_the_configured_path() -> None:
    settings = yaml.safe_load(settings_with_client_ca())
    (mount,) = (m for m in container(GATEWAY)["volumeMounts"] if m["name"] == "client-ca")
    (volume,) = (v for v in pod(GATEWAY)["volumes"] if v["name"] == "client-ca")
    assert settings["tls"]["clientCAFile"] == f"{mount['mountPath']}/ca.crt"
    assert mount["mountPath"] == CA_FOLDER
    # A gateway without it starts.
    assert volume["configMap"] == {"name": "admission-gateway-client-ca", "optional": True}


def test_gateway_with_the_client_ca_answers_the_api_server_alone(
    tmp_path: Path,
    made_certificates: Path,
    client_certificates: Path,
    start_gateway: StartGateway,
) -> None:
    folder = write_config_map(tmp_path)
    settings = settings_with_client_ca().replace(CA_FOLDER, str(client_certificates))
    (folder / "gateway.yaml").write_text(settings.replace("kubernetes: {}", ""))
    flags = (f"--tls-cert={made_certificates / 'tls.crt'}", f"--tls-key={made_certificates / 'tls.key'}")
    gateway = start_gateway(folder, *flags)
    review = (REVIEWS / "pod-create-mutate.json").read_bytes()

    def status(shown: ssl.SSLContext) -> int:
        connection = call_as_the_api_server(gateway, made_certificates, shown)
        try:
            return gateway.exchange("/mutate?timeout=5s", review, connection)[0]
        finally:
            connection.close()

    def trusting() -> ssl.SSLContext:
        return ssl.create_default_context(cafile=made_certificates / "ca.crt")

    api_server = trusting()
    api_server.load_cert_chain(client_certificates / "client.crt", client_certificates / "client.key")
    assert status(api_server) == 200
    assert status(trusting()) == 401
    of_another_name = trusting()
    another = trustme.CA.from_pem(
        (client_certificates / "ca.crt").read_bytes(), (client_certificates / "ca.key").read_bytes()
    ).issue_cert(common_name="somebody")
    another.configure_cert(of_another_name)
    assert status(of_another_name) == 401
    of_another_ca = trusting()
    trustme.CA().issue_cert(common_name="kube-apiserver").configure_cert(of_another_ca)
    with pytest.raises(OSError):  # noqa: PT011 - an alert or a reset
        status(of_another_ca)


def test_only_the_owner_can_read_the_keys(client_certificates: Path) -> None:
    for name in ("ca.key", "client.key"):
        assert (client_certificates / name).stat().st_mode & 0o077 == 0
    assert not list(client_certificates.glob("new.*"))
