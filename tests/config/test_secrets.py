"""No message about an invalid URL or address contains a credential in it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
import yaml
from hypothesis import example, given
from hypothesis import strategies as st

from gateway.base.errors import ClusterError
from gateway.base.files import UnusableFileError
from gateway.config.kinds.addresses import target
from gateway.config.kinds.client_config import url_problems
from gateway.config.kinds.kubeconfig import read_kubeconfig
from gateway.config.kinds.kubernetes_settings import KubernetesSettings
from gateway.server.kubernetes.access import connect
from gateway.tools.registration.backend import parse_url
from tests.config.documents import change, problems_of
from tests.config.test_kubeconfig import kubeconfig
from tests.config.test_webhooks import MUTATING, POOL

if TYPE_CHECKING:
    from pathlib import Path

SECRET = "S3CRET"
AROUND = st.text(st.sampled_from("abc:/?#@[]%.&= 1\n\uff0f"), max_size=5)


@st.composite
def secretive(draw: st.DrawFn) -> str:
    """A URL with a credential in user information, query or fragment, and mistakes around it."""
    secret = draw(AROUND) + SECRET + draw(AROUND)
    scheme = draw(st.sampled_from(["https://", "http://", "dns://", "", " https://", "ftp://"]))
    host = draw(st.sampled_from(["host", "host:port", "host:0", "[::1", "h\u2100st", ""]))
    forms = "{scheme}{secret}@{host}/p", "{scheme}{host}/p?{secret}", "{scheme}{host}#{secret}"
    place = draw(st.sampled_from(forms))
    return place.format(scheme=scheme, host=host, secret=secret)


@given(secretive())
@example(f"https://user:{SECRET}/x@host/")
@example(f"https://user:x@host:{SECRET}@host")
@example(f"https://user\uff0f:{SECRET}@host/")
def test_url_of_a_webhook(url: str) -> None:
    problems = url_problems(url)
    assert SECRET not in "".join(problems)
    if problems:
        with pytest.raises(ValueError, match="expected https://HOST") as raised:
            parse_url(url)
        assert SECRET not in str(raised.value)


@given(secretive())
def test_target_of_a_pool(text: str) -> None:
    assert SECRET not in (target(text) or "")


@pytest.mark.parametrize(
    ("path", "document"),
    [
        ("webhooks.0.clientConfig", MUTATING),
        ("spec.target", POOL),
        ("listen", {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}),
    ],
)
@pytest.mark.parametrize(
    "url", [f"https://u:{SECRET}@a:b/", f"https://a/?{SECRET}", f"https://a:b/#{SECRET}"]
)
def test_documents(path: str, document: dict[str, Any], url: str) -> None:
    value = {"url": url} if path.endswith("clientConfig") else url
    problems = problems_of(change(document, path, value))
    assert problems
    assert SECRET not in str(problems)


@pytest.mark.parametrize("server", [f"ftp://u:{SECRET}@a", f"a?{SECRET}", f"//u:{SECRET}@a#x"])
def test_server_of_a_kubeconfig(server: str, tmp_path: Path) -> None:
    clusters = [{"name": "one", "cluster": {"server": server}}]
    (tmp_path / "kube").write_text(yaml.safe_dump(kubeconfig(clusters=clusters)))
    with pytest.raises(UnusableFileError) as raised:
        read_kubeconfig(tmp_path / "kube", None)
    assert "expected an https URL" in str(raised.value)
    assert SECRET not in str(raised.value)


@pytest.mark.parametrize(
    "cluster",
    [
        {"server": f"https://u:{SECRET}@a:b/"},
        {"server": "https://a", "proxy-url": f"ftp://u:{SECRET}@a?{SECRET}"},
        {"server": "https://a", "proxy-url": f"http://u:{SECRET}@a:b"},
    ],
)
def test_invalid_urls_of_a_kubeconfig(cluster: dict[str, str], tmp_path: Path) -> None:
    (tmp_path / "kube").write_text(yaml.safe_dump(kubeconfig(clusters=[{"name": "one", "cluster": cluster}])))
    with pytest.raises(ClusterError) as raised:
        connect(KubernetesSettings(tmp_path / "kube"))
    assert SECRET not in str(raised.value)


def test_name_of_an_api_server(tmp_path: Path) -> None:
    cluster = {"server": f"https://u:{SECRET}@a:8443/path?{SECRET}#{SECRET}"}
    (tmp_path / "kube").write_text(yaml.safe_dump(kubeconfig(clusters=[{"name": "one", "cluster": cluster}])))
    found = connect(KubernetesSettings(tmp_path / "kube"))
    assert SECRET not in found.url
    assert found.url.startswith("https://a:8443/path")
