"""Parts of a call that need no server: encoding of the review, choice of the proxy, media types."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.dispatch.https.connection import HttpResponse
from gateway.engine.dispatch.https.proxy import Proxy, proxy_for
from gateway.engine.dispatch.https.response import media_type_failure
from gateway.engine.dispatch.https.review import write_review
from gateway.pure.core.review import decode
from tests.kit import REVIEWS

UID = "0b8e6a5c-6d4d-4d0e-9f7e-3c2a1b0d9e8f"


@pytest.mark.parametrize("file", sorted(REVIEWS.glob("*.json")), ids=lambda file: file.stem)
def test_only_the_uid_of_a_recorded_review_changes(file: object) -> None:
    body = file.read_bytes()  # type: ignore[attr-defined]
    was = json.loads(body)["request"]["uid"]
    written = b"".join(write_review("v1", decode(body).json, UID))
    if not body.startswith(b'{"kind"'):
        # Its members are sorted: no API server wrote it.
        assert json.loads(written) == json.loads(body.replace(was.encode(), UID.encode()))
        return
    assert written.rstrip(b"\n") == body.rstrip(b"\n").replace(was.encode(), UID.encode(), 1)
    assert written.endswith(b"}\n")


@given(
    st.dictionaries(st.text(max_size=4), st.none() | st.text(max_size=4), max_size=4),
    st.text(max_size=6),
    st.booleans(),
    st.booleans(),
)
def test_only_the_uid_of_any_request_changes(
    rest: dict[str, str | None], uid: str, is_first: bool, is_ascii: bool
) -> None:
    rest.pop("uid", None)
    request = {"uid": uid, **rest} if is_first else {**rest, "uid": uid}
    text = json.dumps(request, ensure_ascii=is_ascii, separators=(",", ":"))
    written = json.loads(b"".join(write_review("v1beta1", text.encode(errors="surrogatepass"), UID)))
    assert written == {
        "kind": "AdmissionReview",
        "apiVersion": "admission.k8s.io/v1beta1",
        "request": request | {"uid": UID},
    }


def test_a_request_that_nests_too_deeply_is_a_type_error() -> None:
    deep = b"[" * 2000 + b"]" * 2000
    assert b"".join(write_review("v1", b'{"uid":"a","object":%b}' % deep, UID)).endswith(deep + b"}}\n")
    with pytest.raises(TypeError):
        write_review("v1", b'{"object":%b,"uid":"a"}' % deep, UID)


@pytest.mark.parametrize(
    ("host", "excluded", "is_direct"),
    [
        ("a.example.com", "", False),
        ("localhost", "", True),
        ("127.0.0.9", "", True),
        ("::1", "", True),
        ("a.example.com", "*", True),
        ("a.example.com", "other.com, example.com", True),
        ("example.com", "example.com", True),
        ("badexample.com", "example.com", False),
        ("a.example.com", ".example.com", True),
        ("example.com", ".example.com", False),
        ("a.example.com", "*.example.com", True),
        ("A.EXAMPLE.com.", "example.COM", True),
        ("a.example.com", "example.com:8443", True),
        ("a.example.com", "example.com:443", False),
        ("10.1.2.3", "10.0.0.0/8", True),
        ("11.1.2.3", "10.0.0.0/8", False),
        ("10.1.2.3", "10.1.2.3", True),
        ("10.1.2.3", "nonsense/x, 10.1.2.4", False),
        ("fd00::1", "fd00::/8", True),
        ("fd00::1", "[fd00::1]:8443", True),
        ("webhook.ns.svc", "svc,cluster.local", True),
    ],
)
def test_no_proxy(host: str, excluded: str, is_direct: bool) -> None:
    environment = {"https_proxy": "proxy.example:3128", "no_proxy": excluded}
    expected = None if is_direct else Proxy("proxy.example", 3128)
    assert proxy_for(host, 8443, environment) == expected


def test_upper_case_variables_take_precedence() -> None:
    environment = {"HTTPS_PROXY": "http://a:1", "https_proxy": "http://b:2"}
    assert proxy_for("c", 443, environment) == Proxy("a", 1)
    assert proxy_for("c", 443, {}) is None


@pytest.mark.parametrize("text", ["socks5://a", "https://a", "http://", "http://a:x"])
def test_an_unsupported_proxy_is_not_bypassed(text: str) -> None:
    found = proxy_for("c", 443, {"HTTPS_PROXY": text})
    assert found is not None
    assert found.unusable.startswith("proxyconnect: HTTPS_PROXY ")


@pytest.mark.parametrize(
    ("text", "is_one"),
    [
        ("application/json", True),
        (' text/plain ; charset = "a\\"b" ; x=y; ', True),
        ("json", True),
        ("a/b;", True),
        ("a/b;;", False),
        ("a/b; c", False),
        ("a/", False),
        ("a/b" + "; " * 30_000 + "(", False),
        ("a/b" + ";c=d" * 15_000 + "(", False),
        ('a/b; c="' + '\\"' * 30_000, False),
    ],
)
def test_media_types(text: str, is_one: bool) -> None:
    """As Go's mime.ParseMediaType decides; long ones take linear time."""
    failure = media_type_failure(HttpResponse(200, {"content-type": text}))
    assert (failure is None) == is_one
