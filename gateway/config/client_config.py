"""Where a webhook's policy is: ``worker`` is the gateway's own, ``url`` and ``service`` the API server's.

Source: k8s.io/kubernetes pkg/apis/admissionregistration/validation/validation.go and
k8s.io/apiserver pkg/util/webhook/validation.go. The latter is called with name and namespace of a
service exchanged, so that the API server reports a missing name as a missing namespace; here the field
that is missing is the one that is named.
"""

from __future__ import annotations

import base64
import binascii
import re
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from gateway.config.fields import shown
from gateway.config.names import dns_1123_subdomain
from gateway.core.webhook import WorkerRef

if TYPE_CHECKING:
    from gateway.config.fields import Fields

_WAYS = ("worker", "url", "service")
_URL_FORM = "; expected https://HOST[:PORT][/PATH]"
_NOT_IN_URL = re.compile(r"[\x00-\x1f\x7f]|%(?![0-9A-Fa-f]{2})")


def read_client_config(webhook: Fields) -> WorkerRef:
    """Return the worker that ``clientConfig`` of *webhook* names, with empty names where it names none."""
    fields = webhook.required_mapping("clientConfig")
    if fields is None:
        return WorkerRef("", "")
    given = [way for way in _WAYS if fields.has(way)]
    if len(given) != 1:
        found = " and ".join(given) or "none of them"
        webhook.problem("clientConfig", f"found {found}, expected exactly one of worker, url and service")
    worker = _read_worker(fields.mapping("worker"))
    problems_before = len(fields.report.found)
    _check_url(fields)
    _check_service(fields.mapping("service"))
    _check_ca_bundle(fields)
    is_valid = len(fields.report.found) == problems_before
    fields.finish()
    if is_valid and len(given) == 1 and given[0] != "worker":
        fields.problem(
            given[0],
            "is not supported by this version, which calls webhooks over gRPC only; "
            "expected clientConfig.worker with the pool and the policy to ask",
        )
    return worker


def _read_worker(fields: Fields | None) -> WorkerRef:
    if fields is None:
        return WorkerRef("", "")
    worker = WorkerRef(fields.required_string("pool"), fields.required_string("policy"))
    fields.finish()
    return worker


def _check_ca_bundle(fields: Fields) -> None:
    bundle = fields.string("caBundle", None)
    if bundle is None:
        return
    if fields.has("worker"):
        message = "has to be left out with a worker, whose roots are spec.tls.caFile of the WorkerPool"
        fields.problem("caBundle", message)
        return
    try:
        # Line breaks are all that Go's decoder passes over, too.
        base64.b64decode(bundle.replace("\r", "").replace("\n", ""), validate=True)
    except (binascii.Error, ValueError):
        fields.problem("caBundle", "is not base64; expected PEM certificates in base64")


def _check_url(fields: Fields) -> None:
    url = fields.string("url", None)
    if url is not None:
        for message in url_problems(url):
            fields.problem("url", message)


def url_problems(url: str) -> list[str]:
    """Say what keeps the API server from calling *url*."""
    try:
        parts = urlsplit(url)
        _ = parts.port
    except ValueError as error:
        return [f"found {shown(url)}, which is no URL ({error}){_URL_FORM}"]
    if _NOT_IN_URL.search(url) or " " in parts.netloc:
        return [f"found {shown(url)}, which has characters that no URL may have{_URL_FORM}"]
    found = []
    if parts.scheme != "https":
        found.append(f"found the scheme {shown(parts.scheme)}, and only https is allowed{_URL_FORM}")
    if not parts.netloc.rpartition("@")[2]:
        found.append(f"found {shown(url)}, which has no host{_URL_FORM}")
    if "@" in parts.netloc:
        found.append(f"user and password are not allowed in it{_URL_FORM}")
    if parts.fragment:
        found.append(f"found the fragment {shown(parts.fragment)}, which is not allowed{_URL_FORM}")
    if parts.query:
        found.append(f"found the query {shown(parts.query)}, which is not allowed{_URL_FORM}")
    return found


def _check_service(fields: Fields | None) -> None:
    if fields is None:
        return
    fields.required_string("namespace")
    fields.required_string("name")
    fields.integer("port", 443, 1, 65535)
    fields.string("path", "", _service_path)
    fields.finish()


def _service_path(path: str) -> str | None:
    if path in {"", "/"}:
        return None
    if not path.startswith("/"):
        return f'found {shown(path)}, expected it to start with "/"'
    for segment in path[1:].removesuffix("/").split("/"):
        if not segment:
            return f"found {shown(path)}, expected no empty part between slashes"
        if message := dns_1123_subdomain(segment):
            return f"found {shown(path)} with a part that is no DNS name: {message}"
    return None
