"""``clientConfig`` of a webhook: as in Kubernetes, and the gateway's own ``worker`` and ``caBundleFrom``.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go and
k8s.io/apiserver pkg/util/webhook/validation.go. The latter is called with name and namespace of a service
exchanged, so that the API server reports a missing name as a missing namespace; the gateway reports the name.
"""

from __future__ import annotations

import base64
import binascii
import posixpath
import re
import time
from dataclasses import replace
from typing import TYPE_CHECKING, Final
from urllib.parse import quote, unquote_to_bytes, urlsplit

import orjson

from gateway.base.certificates import parts_in, roots_among, roots_problem
from gateway.base.files import UnusableFileError
from gateway.base.text import shown, url_without_secrets
from gateway.config.kinds.image_review import read_image_review
from gateway.config.kinds.names import (
    annotation_key,
    config_map_key,
    dns_1123_label,
    dns_1123_subdomain,
    webhook_name,
)
from gateway.pure.core.webhook import MAX_PARAMETERS_BYTES, CaBundleSource, HttpsClient, WorkerRef

if TYPE_CHECKING:
    from gateway.config.yaml.fields import Fields

DEFAULT_KEY: Final = "ca.crt"
"""The key in a Secret or ConfigMap that cert-manager, trust-manager and kube-controller-manager write."""
CONFIGURATION_KINDS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
NO_CLUSTER_TO_FOLLOW: Final = (
    "found caBundleFrom, which requires a cluster; expected GatewayConfiguration.kubernetes to name one"
)

_WAYS = ("worker", "url", "service")
_KEYED: Final = {"secret": "Secret", "configMap": "ConfigMap"}
_PLACES_OF_ROOTS: Final = {
    "worker": "spec.tls.caFile of the WorkerPool",
    "imageReview": "in its kubeconfig",
}
_URL_FORM = "; expected https://HOST[:PORT][/PATH]"
PART_OF_HOST = re.compile("[-A-Za-z0-9._]+")
_NOT_IN_URL = re.compile(r"^ |[\x00-\x1f\x7f]|%(?![0-9A-Fa-f]{2})")
_NOT_IN_HOST = re.compile(r"[^A-Za-z0-9\-._~!$&'()*+,;=:%\[\]]")


def read_client_config(webhook: Fields) -> WorkerRef | HttpsClient:
    """Return the client of *webhook*; a worker with empty names if ``clientConfig`` is invalid."""
    fields = webhook.required_mapping("clientConfig")
    if fields is None:
        return WorkerRef("", "")
    # In a custom resource imageReview is an unknown field: its author could use any file of the gateway.
    ways = _WAYS if fields.problems.folder is None else (*_WAYS, "imageReview")
    given = [way for way in ways if fields.has(way)]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        expected = f"expected exactly one of {', '.join(ways[:-1])} and {ways[-1]}"
        webhook.problem("clientConfig", f"found {found}, {expected}")
    problems_before = len(fields.problems.found)
    worker = _read_worker(fields.mapping("worker"))
    url = _read_url(fields) or _read_service(fields.mapping("service"))
    image_review = read_image_review(fields) if "imageReview" in given else None
    if image_review is not None:
        url = _called_url(fields, "imageReview", image_review.url)
        image_review = replace(image_review, url=url)
    ca_pem = _read_ca_bundle(fields)
    ca_from = _read_ca_bundle_from(fields)
    fields.finish()
    is_valid = len(given) == 1 and len(fields.problems.found) == problems_before
    if image_review is not None:
        return image_review if is_valid else worker
    return HttpsClient(url, ca_pem, ca_from) if url and is_valid else worker


def _read_worker(fields: Fields | None) -> WorkerRef:
    if fields is None:
        return WorkerRef("", "")
    pool, policy = fields.required_string("pool"), fields.required_string("policy")
    parameters = _read_parameters(fields)
    annotation = ""
    if (source := fields.mapping("parametersFrom")) is not None:
        annotation = source.required_string("namespaceAnnotation", annotation_key)
        source.finish()
    fields.finish()
    return WorkerRef(pool, policy, parameters, annotation, f"{fields.problems.where}: {fields.path}")


def _read_parameters(fields: Fields) -> bytes:
    """Return the JSON of ``parameters``; empty if there are none."""
    given = fields.mapping("parameters")
    if given is None:
        return b""
    try:
        parameters = orjson.dumps(given.content, option=orjson.OPT_SORT_KEYS)
    except TypeError as error:
        fields.problem("parameters", f"cannot be written as JSON: {error}")
        return b""
    if len(parameters) > MAX_PARAMETERS_BYTES:
        found = f"found {len(parameters)} bytes as JSON"
        fields.problem("parameters", f"{found}, expected at most {MAX_PARAMETERS_BYTES}")
    return parameters


def _read_ca_bundle(fields: Fields) -> bytes:
    bundle = fields.string("caBundle", None)
    if not bundle:
        return b""
    if _has_other_roots(fields, "caBundle"):
        return b""
    try:
        # Go's decoder ignores line breaks and nothing else.
        pem = base64.b64decode(bundle.replace("\r", "").replace("\n", ""), validate=True)
        # The API server checks it at each call, which then fails.
        pem, unreadable = roots_among(pem)
    except (binascii.Error, ValueError):
        fields.problem("caBundle", "is not base64; expected PEM certificates in base64")
    except UnusableFileError as error:
        fields.problem("caBundle", f"{error}; expected PEM certificates in base64")
    else:
        if message := roots_problem(parts_in(pem), time.time()):
            fields.problems.warn(fields.at("caBundle"), message)
        if unreadable:
            fields.problems.warn(
                fields.at("caBundle"), f"{unreadable} certificates cannot be read, and are ignored"
            )
        return pem
    return b""


def _has_other_roots(fields: Fields, name: str) -> bool:
    """Return whether the roots are elsewhere, after reporting the field *name*."""
    for way, place in _PLACES_OF_ROOTS.items():
        if way in fields.content:
            fields.problem(name, f"must be left out with {way}, whose roots are {place}")
            return True
    return False


def _read_ca_bundle_from(fields: Fields) -> CaBundleSource | None:
    """Return the source of the root certificates; None if there is none, or it is invalid."""
    source = fields.mapping("caBundleFrom")
    if source is None:
        return None
    _has_other_roots(fields, "caBundleFrom")
    if fields.has("caBundle"):
        fields.problem("caBundleFrom", "is not allowed together with caBundle")
    given = [name for name in (*_KEYED, "webhookConfiguration") if source.has(name)]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        expected = "expected exactly one of secret, configMap and webhookConfiguration"
        fields.problem("caBundleFrom", f"found {found}, {expected}")
    read: CaBundleSource | None = None
    for name, kind in _KEYED.items():
        if (one := source.mapping(name)) is not None:
            namespace = one.required_string("namespace", dns_1123_label)
            object_name = one.required_string("name", dns_1123_subdomain)
            key = one.string("key", DEFAULT_KEY, config_map_key)
            one.finish()
            read = CaBundleSource(kind, namespace, object_name, key)
    if (one := source.mapping("webhookConfiguration")) is not None:
        kind = one.choice("kind", CONFIGURATION_KINDS)
        object_name = one.required_string("name", dns_1123_subdomain)
        webhook = one.required_string("webhook", webhook_name)
        one.finish()
        read = CaBundleSource(kind, "", object_name, webhook)
    source.finish()
    return read


def _read_url(fields: Fields) -> str:
    """Return ``url`` in the form in which it is called; empty if there is none."""
    url = fields.string("url", None)
    return "" if url is None else _called_url(fields, "url", url)


def _called_url(fields: Fields, name: str, url: str) -> str:
    """Return *url* in the form in which it is called; empty after problems of the field *name*."""
    problems = url_problems(url)
    for message in problems:
        fields.problem(name, message)
    if problems:
        return ""
    parts = urlsplit(url)
    try:
        encoded = parts.netloc.removesuffix(":").encode("ascii" if parts.netloc.isascii() else "idna")
        host = encoded.decode("ascii")
    except UnicodeError:
        host = ""
    if not host or _NOT_IN_HOST.search(host):
        fields.problem(name, f"found {_quoted(url)}, whose host is not a name{_URL_FORM}")
        return ""
    return f"https://{host}{_cleaned(parts.path)}"


def _cleaned(path: str) -> str:
    """Return *path* as client-go sends it: without a trailing slash, double slashes and dot segments.

    Source: k8s.io/client-go rest/url_utils.go (path.Join); net/url EscapedPath.
    """
    clean = posixpath.normpath(b"/" + unquote_to_bytes(path).lstrip(b"/"))
    return quote(clean, safe="/$&+,:;=@")


def url_problems(url: str) -> list[str]:
    """Return the reasons why the API server cannot call *url*, without credentials in it."""
    try:
        parts = urlsplit(url)
        port = parts.port
    except ValueError:
        # Not the text of the error, which may quote a credential.
        return [f"found {_quoted(url)}, which is not a URL{_URL_FORM}"]
    if _NOT_IN_URL.search(url) or " " in parts.netloc:
        return [f"found {_quoted(url)}, which has characters that a URL must not have{_URL_FORM}"]
    found = []
    if parts.scheme != "https":
        scheme = f"the scheme {shown(parts.scheme)}" if "://" in url else "no scheme"
        found.append(f"found {scheme}, but only https is allowed{_URL_FORM}")
    if not parts.netloc.rpartition("@")[2]:
        found.append(f"found {_quoted(url)}, which has no host{_URL_FORM}")
    if "@" in parts.netloc:
        found.append(f"user and password are not allowed in it{_URL_FORM}")
    if port == 0:
        found.append(f"found the port 0, which no server has{_URL_FORM}")
    if parts.fragment:
        found.append(f"found a fragment (#…), which is not allowed{_URL_FORM}")
    if parts.query:
        found.append(f"found a query (?…), which is not allowed{_URL_FORM}")
    return found


def _quoted(url: str) -> str:
    return shown(url_without_secrets(url))


def _read_service(fields: Fields | None) -> str:
    """Return the URL of ``service``, with its name in the cluster's DNS."""
    if fields is None:
        return ""
    namespace = fields.required_string("namespace", _part_of_host)
    name = fields.required_string("name", _part_of_host)
    port = fields.integer("port", 443, 1, 65535)
    path = fields.string("path", "", _service_path)
    fields.finish()
    return f"https://{name}.{namespace}.svc:{port}{_cleaned(path)}"


def _part_of_host(text: str) -> str | None:
    # The API server accepts anything, and every call fails; here it could become another URL.
    return None if PART_OF_HOST.fullmatch(text) else f"found {shown(text)}, which is not a part of a DNS name"


def _service_path(path: str) -> str | None:
    if path in {"", "/"}:
        return None
    if not path.startswith("/"):
        return f'found {shown(path)}, expected it to start with "/"'
    for segment in path[1:].removesuffix("/").split("/"):
        if not segment:
            return f"found {shown(path)}, expected no empty part between slashes"
        if message := dns_1123_subdomain(segment):
            return f"found {shown(path)} with a part that is not a DNS name: {message}"
    return None
