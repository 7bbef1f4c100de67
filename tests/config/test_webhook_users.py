"""Users of a kubeconfig for HTTPS webhooks: the user for a server, and problems of users."""

from __future__ import annotations

import base64
import re
from typing import TYPE_CHECKING, Any

import orjson
import pytest
import trustme

from gateway.base.errors import ConfigError
from gateway.config.kinds.kubeconfig import KubeconfigUser
from gateway.config.kinds.webhook_users import WebhookUsers
from gateway.config.merge.load import load
from gateway.pure.core.webhook import HttpsClient

if TYPE_CHECKING:
    from pathlib import Path

ORDER = (
    "a.b.svc:443",
    "*.b.svc:443",
    "*.svc:443",
    "a.b.svc",
    "*.b.svc",
    "*.svc",
    "*",
    "me",
)
"""The order in which users are tried for https://a.b.svc:443/."""


def users(*names: str) -> WebhookUsers:
    return WebhookUsers((), {name: KubeconfigUser(token=name) for name in names}, "me")


@pytest.mark.parametrize("place", range(len(ORDER)))
def test_users_are_tried_in_order(place: int) -> None:
    found = users(*reversed(ORDER[place:])).find(HttpsClient("https://a.b.svc:443/path"))
    assert found is not None
    assert found.token == ORDER[place]


@pytest.mark.parametrize(
    ("url", "name"),
    [
        ("https://a.b.svc:8443/", "a.b.svc"),
        ("https://a.b.svc:8443/", "*.svc"),
        ("https://a.b.svc:8443/", "*.b.svc:443"),
        ("https://b.svc/", "a.b.svc"),
        ("https://a.b.svc/", "*.a.b.svc"),
        ("https://[::1]:8443/", "::1"),
    ],
)
def test_users_of_other_hosts_do_not_match(url: str, name: str) -> None:
    assert users(name).find(HttpsClient(url)) is None


def test_an_ipv6_address_has_its_brackets() -> None:
    found = users("[::1]:8443").find(HttpsClient("https://[::1]:8443/"))
    assert found == KubeconfigUser(token="[::1]:8443")


@pytest.mark.parametrize("place", range(len(ORDER)))
def test_a_custom_resource_gets_only_users_for_its_own_server(place: int) -> None:
    found = users(*ORDER[place:]).find(HttpsClient("https://a.b.svc:443/path", is_custom=True))
    if ORDER[place] in ("*", "me"):
        assert found is None, "any author of one would have these sent to a server of his own"
    else:
        assert found is not None
        assert found.token == ORDER[place]


def loaded(folder: Path, *entries: dict[str, Any], **document: Any) -> WebhookUsers:
    listed = [{"name": f"u{number}", "user": user} for number, user in enumerate(entries)]
    config = {"apiVersion": "v1", "kind": "Config", "users": listed, **document}
    (folder / "users.kubeconfig").write_bytes(orjson.dumps(config))
    gateway = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "GatewayConfiguration",
        "webhookKubeConfigFile": "users.kubeconfig",
    }
    (folder / "gateway.json").write_bytes(orjson.dumps(gateway))
    found = load([folder / "gateway.json"]).gateway.webhook_users
    assert found is not None
    return found


def test_all_credentials_are_read(tmp_path: Path) -> None:
    pair = trustme.CA().issue_cert("gateway")
    certificate, key = pair.cert_chain_pems[0].bytes(), pair.private_key_pem.bytes()
    (tmp_path / "key.pem").write_bytes(key)
    (tmp_path / "token").write_text("secret\n")
    found = loaded(
        tmp_path,
        {"tokenFile": "token", "token": "t"},
        {"username": "u", "password": "p"},
        {"client-certificate-data": base64.b64encode(certificate).decode(), "client-key": "key.pem"},
        {"exec": {"apiVersion": "client.authentication.k8s.io/v1", "command": "./make", "args": ["a"]}},
        {"token": "t", "as": "a", "as-uid": "1", "as-groups": ["g", "h"], "as-user-extra": {"K/x": ["v"]}},
        **{"current-context": "c", "contexts": [{"name": "c", "context": {"user": "u1", "cluster": "x"}}]},
    )
    assert found.current == "u1"
    assert found.files == (tmp_path / "users.kubeconfig", tmp_path / "key.pem")
    by_number = [found.by_name[f"u{number}"] for number in range(5)]
    assert by_number[0] == KubeconfigUser("t", tmp_path / "token")
    assert by_number[1].basic == ("u", "p")
    assert (by_number[2].certificate_pem, by_number[2].key_pem) == (certificate, key)
    assert by_number[3].plugin is not None
    assert (by_number[3].plugin.command, by_number[3].plugin.arguments) == (f"{tmp_path}/make", ("a",))
    assert by_number[4].impersonation == (
        ("Impersonate-User", "a"),
        ("Impersonate-Uid", "1"),
        ("Impersonate-Group", "g"),
        ("Impersonate-Group", "h"),
        ("Impersonate-Extra-k%2Fx", "v"),
    )
    assert "secret" not in repr(found)
    assert "'p'" not in repr(found)


PAIR = trustme.CA().issue_cert("gateway")
OTHER = trustme.CA().issue_cert("gateway")


def encoded(blob: trustme.Blob) -> str:
    return base64.b64encode(blob.bytes()).decode()


@pytest.mark.parametrize(
    ("user", "field", "fragment"),
    [
        ({"auth-provider": {"name": "gcp"}}, "user.auth-provider", 'found "gcp", but auth providers'),
        ({"token": "t", "username": "u"}, "user.username", "must be left out with a token"),
        ({"token": "a\nb"}, "user.token", "characters that a header must not have"),
        ({"token": 5}, "user.token", "found the number 5, expected a string"),
        ({"tokenFile": "absent"}, "user.tokenFile", "cannot be read: No such file"),
        ({"username": "a:b"}, "user.username", "has a colon"),
        ({"client-certificate-data": "!"}, "user.client-certificate-data", "is not base64"),
        ({"client-certificate-data": "aGk="}, "user.client-certificate-data", "holds no PEM certificate"),
        ({"client-certificate-data": encoded(PAIR.cert_chain_pems[0])}, "user.client-key", "is required"),
        ({"client-key-data": encoded(PAIR.private_key_pem)}, "user.client-certificate", "is required"),
        (
            {
                "client-certificate-data": encoded(PAIR.cert_chain_pems[0]),
                "client-key-data": encoded(OTHER.private_key_pem),
            },
            "user.client-key",
            "is not the key of client-certificate",
        ),
        ({"exec": {"command": "x"}}, "user.exec.apiVersion", "is required"),
        (
            {"exec": {"command": "x", "apiVersion": "client.authentication.k8s.io/v1alpha1"}},
            "user.exec.apiVersion",
            "expected client.authentication.k8s.io/v1 or",
        ),
        (
            {"exec": {"apiVersion": "client.authentication.k8s.io/v1"}},
            "user.exec.command",
            "is required",
        ),
        (
            {
                "exec": {
                    "apiVersion": "client.authentication.k8s.io/v1",
                    "command": "x",
                    "interactiveMode": "Always",
                }
            },
            "user.exec.interactiveMode",
            "no terminal",
        ),
        ({"as-groups": ["g"]}, "user.as", "is required with as-uid"),
        ([], "user", "expected a mapping"),
    ],
)
def test_problems_name_the_field(tmp_path: Path, user: Any, field: str, fragment: str) -> None:
    with pytest.raises(ConfigError) as caught:
        loaded(tmp_path, user)
    (problem,) = caught.value.problems
    assert problem.field == "webhookKubeConfigFile"
    place = rf"{tmp_path}/users\.kubeconfig:1:\d+: users\[0\]\.{re.escape(field)}: "
    assert re.match(place, problem.message)
    assert fragment in problem.message


def test_a_file_that_is_not_a_kubeconfig_is_refused(tmp_path: Path) -> None:
    for document, fragment in (({"kind": "Pod"}, "holds the kind"), ({"users": {}}, "expected a list")):
        with pytest.raises(ConfigError, match=fragment):
            loaded(tmp_path, **document)
