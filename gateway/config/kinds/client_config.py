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
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Final
from urllib.parse import quote, unquote_to_bytes, urlsplit

import orjson

from gateway.base.certificates import parts_in, roots_among, roots_problem
from gateway.base.files import UnusableFileError
from gateway.base.text import shown, url_without_secrets
from gateway.config.kinds.declare import (
    Choice,
    Declared,
    Group,
    Integer,
    Read,
    Text,
    Type,
    declare,
    optional,
    required,
)
from gateway.config.kinds.image_review import ImageReview
from gateway.config.kinds.names import (
    ANNOTATION_KEY,
    KEY_LENGTH,
    LABEL,
    LABEL_LENGTH,
    SUBDOMAIN,
    SUBDOMAIN_LENGTH,
    WEBHOOK_NAME,
    annotation_key,
    config_map_key,
    dns_1123_label,
    dns_1123_subdomain,
    webhook_name,
)
from gateway.config.kinds.validation import exactly_one, excluded
from gateway.pure.core.webhook import MAX_PARAMETERS_BYTES, CaBundleSource, HttpsClient, WorkerRef

if TYPE_CHECKING:
    from collections.abc import Iterator

    from gateway.config.kinds.declare import Row, Schema
    from gateway.config.yaml.fields import Fields

CONFIGURATION_KINDS: Final = ("MutatingWebhookConfiguration", "ValidatingWebhookConfiguration")
NO_CLUSTER_TO_FOLLOW: Final = (
    "found caBundleFrom, which requires a cluster; expected GatewayConfiguration.kubernetes to name one"
)

_DEFAULT_KEY: Final = "ca.crt"
"""The key in a Secret or ConfigMap that cert-manager, trust-manager and kube-controller-manager write."""
_MAX_URL_CHARS: Final = 2048
_MAX_PATH_CHARS: Final = 1024
_MAX_POLICY_CHARS: Final = 4096
MAX_BUNDLE_CHARS: Final = 512 * 1024
"""Characters of ``caBundle``."""
_NO_ROOTS: Final = "must be left out with"
_OF_POOL: Final = f"{_NO_ROOTS} worker, whose roots are spec.tls.caFile of the WorkerPool"
_OF_KUBECONFIG: Final = f"{_NO_ROOTS} imageReview, whose roots are in its kubeconfig"
_URL_FORM = "; expected https://HOST[:PORT][/PATH]"
_PART_OF_HOST = re.compile("[-A-Za-z0-9._]+")
_NOT_IN_URL = re.compile(r"^ |[\x00-\x1f\x7f]|%(?![0-9A-Fa-f]{2})")
_NOT_IN_HOST = re.compile(r"[^A-Za-z0-9\-._~!$&'()*+,;=:%\[\]]")


class _Parameters(Type[bytes]):
    """The JSON of ``parameters``. Empty if there are none."""

    words = "JSON object"

    def read(self, source: Fields, name: str, default: object) -> bytes:
        given = source.mapping(name)
        if given is None:
            return b""
        try:
            parameters = orjson.dumps(given.content, option=orjson.OPT_SORT_KEYS)
        except TypeError as error:
            source.problem(name, f"cannot be written as JSON: {error}")
            return b""
        if len(parameters) > MAX_PARAMETERS_BYTES:
            found = f"found {len(parameters)} bytes as JSON"
            source.problem(name, f"{found}, expected at most {MAX_PARAMETERS_BYTES}")
        return parameters

    def schema(self) -> Schema:
        return {"type": "object", "x-kubernetes-preserve-unknown-fields": True}


@dataclass(frozen=True, slots=True)
class _ParametersFrom(Declared):
    namespace_annotation: str = required(
        Text(
            "key of an annotation",
            annotation_key,
            minLength=1,
            maxLength=KEY_LENGTH,
            pattern=f"^{ANNOTATION_KEY}$",
        ),
        "Its value is a JSON object",
    )


@dataclass(frozen=True, slots=True)
class _Worker(Declared):
    place: str
    pool: str = required(
        Text("name of a WorkerPool", minLength=1, maxLength=SUBDOMAIN_LENGTH),
        "A pool of the cluster or of the gateway's files",
    )
    policy: str = required(Text(minLength=1, maxLength=_MAX_POLICY_CHARS), "Name of the policy at the worker")
    parameters: bytes = declare(
        _Parameters(),
        "[Parameters](write-a-policy.md#parameters) of the policy, by the JSON Schema that it declares. "
        f"At most {MAX_PARAMETERS_BYTES // 1024} KiB as JSON",
        default=b"",
    )
    parameters_from: _ParametersFrom | None = optional(
        Group(_ParametersFrom), "Values of the namespace that replace members of `parameters`"
    )

    @classmethod
    def read_together(cls, source: Fields) -> dict[str, Any]:
        return {"place": f"{source.problems.where}: {source.path}"}

    @property
    def reference(self) -> WorkerRef:
        annotation = "" if self.parameters_from is None else self.parameters_from.namespace_annotation
        return WorkerRef(self.pool, self.policy, self.parameters, annotation, self.place)


def _part_of_host(text: str) -> str | None:
    # The API server accepts anything, and every call fails; here it could become another URL.
    return (
        None if _PART_OF_HOST.fullmatch(text) else f"found {shown(text)}, which is not a part of a DNS name"
    )


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


_HOST_PART: Final = Text(
    check=_part_of_host, maxLength=SUBDOMAIN_LENGTH, pattern=f"^{_PART_OF_HOST.pattern}$"
)


@dataclass(frozen=True, slots=True)
class _Service(Declared):
    namespace: str = required(_HOST_PART, "Its namespace")
    name: str = required(_HOST_PART, "Its name")
    port: int = declare(Integer(1, 65535), "Its port", default=443)
    path: str = declare(
        Text("path", _service_path, maxLength=_MAX_PATH_CHARS, pattern=rf"^(/?|(/{SUBDOMAIN})+/?)$"),
        "Absent: `/`",
        default="",
    )

    @property
    def url(self) -> str:
        """With the name in the cluster's DNS."""
        return f"https://{self.name}.{self.namespace}.svc:{self.port}{_cleaned(self.path)}"


def _read_ca_bundle(source: Fields, name: str) -> bytes:
    bundle = source.string(name, None)
    # A rule refuses it with a client that has other roots.
    if not bundle or source.has("worker") or source.has("imageReview"):
        return b""
    try:
        # Go's decoder ignores line breaks and nothing else.
        pem = base64.b64decode(bundle.replace("\r", "").replace("\n", ""), validate=True)
        # The API server checks it at each call, which then fails.
        pem, unreadable = roots_among(pem)
    except (binascii.Error, ValueError):
        source.problem(name, "is not base64; expected PEM certificates in base64")
    except UnusableFileError as error:
        source.problem(name, f"{error}; expected PEM certificates in base64")
    else:
        if message := roots_problem(parts_in(pem), time.time()):
            source.problems.warn(source.at(name), message)
        if unreadable:
            source.problems.warn(
                source.at(name), f"{unreadable} certificates cannot be read, and are ignored"
            )
        return pem
    return b""


_NAME: Final = Text(check=dns_1123_subdomain, maxLength=SUBDOMAIN_LENGTH, pattern=f"^{SUBDOMAIN}$")


@dataclass(frozen=True, slots=True)
class _Keyed(Declared):
    namespace: str = required(
        Text(check=dns_1123_label, maxLength=LABEL_LENGTH, pattern=f"^{LABEL}$"), "Its namespace"
    )
    name: str = required(_NAME, "Its name")
    key: str = declare(
        Text(check=config_map_key, minLength=1, maxLength=SUBDOMAIN_LENGTH, pattern="^[-._A-Za-z0-9]+$"),
        "The key in `data`",
        default=_DEFAULT_KEY,
    )


@dataclass(frozen=True, slots=True)
class _OfConfiguration(Declared):
    kind: str = required(Choice(CONFIGURATION_KINDS), "Its kind")
    name: str = required(_NAME, "Its name")
    webhook: str = required(
        Text(check=webhook_name, maxLength=SUBDOMAIN_LENGTH, pattern=f"^{WEBHOOK_NAME}$"),
        "Name of the webhook in it",
    )


@dataclass(frozen=True, slots=True)
class CaBundleFrom(Declared):
    """``caBundleFrom``."""

    RULES = (exactly_one("secret", "configMap", "webhookConfiguration"),)
    secret: _Keyed | None = optional(Group(_Keyed), "A key of a Secret")
    config_map: _Keyed | None = optional(Group(_Keyed), "A key of a ConfigMap")
    webhook_configuration: _OfConfiguration | None = optional(
        Group(_OfConfiguration),
        "The `clientConfig.caBundle` of a webhook in a configuration of `admissionregistration.k8s.io`",
    )

    @property
    def source(self) -> CaBundleSource | None:
        """None if there is none, after a problem."""
        if (one := self.webhook_configuration) is not None:
            return CaBundleSource(one.kind, "", one.name, one.webhook)
        for kind, keyed in (("ConfigMap", self.config_map), ("Secret", self.secret)):
            if keyed is not None:
                return CaBundleSource(kind, keyed.namespace, keyed.name, keyed.key)
        return None


def read_url(source: Fields, name: str) -> str:
    """Return ``url`` in the form in which it is called. Empty if there is none."""
    url = source.string(name, None)
    return "" if url is None else _called_url(source, name, url)


class _ImageReviewClient(Type["HttpsClient | None"]):
    words = "mapping"

    def read(self, source: Fields, name: str, default: object) -> HttpsClient | None:
        found = ImageReview.read(source.group(name)).client
        return None if found is None else replace(found, url=_called_url(source, name, found.url))

    def schema(self) -> Schema:
        return ImageReview.schema()

    def rows(self, path: str) -> Iterator[Row]:
        return ImageReview.rows(f"{path}.")


URL_SCHEMA: Final[dict[str, Any]] = {
    "maxLength": _MAX_URL_CHARS,
    "pattern": r"^(?i:https)://[^\s/?#@]+(/[^\s?#]*)?$",
    "x-kubernetes-validations": [{"rule": "isURL(self)", "message": "is not a URL"}],
}


@dataclass(frozen=True, slots=True)
class ClientConfig(Declared):
    """The backend of a webhook. In a custom resource it has no files of the gateway."""

    RULES = (
        exactly_one("worker", "url", "service", "imageReview"),
        excluded("caBundle", "worker", _OF_POOL),
        excluded("caBundle", "imageReview", _OF_KUBECONFIG),
        excluded("caBundleFrom", "worker", _OF_POOL),
        excluded("caBundleFrom", "imageReview", _OF_KUBECONFIG),
        excluded("caBundleFrom", "caBundle", "is not allowed together with caBundle"),
    )
    worker: _Worker | None = optional(Group(_Worker), "A policy of a worker pool")
    url: str = declare(
        Read("`https://HOST[:PORT][/PATH]`", read_url, **URL_SCHEMA), "An HTTPS webhook", default=""
    )
    service: _Service | None = optional(
        Group(_Service),
        "An HTTPS webhook at `https://NAME.NAMESPACE.svc:PORT/PATH`. The name has to resolve where the "
        "gateway runs",
    )
    ca_bundle: bytes = declare(
        Read("PEM in base64", _read_ca_bundle, maxLength=MAX_BUNDLE_CHARS, format="byte"),
        "Roots for `url` and `service`. Absent: the roots of the system. Not with `worker`",
        default=b"",
    )
    ca_bundle_from: CaBundleFrom | None = optional(
        Group(CaBundleFrom),
        "Where the roots are followed in the cluster: exactly one of `secret`, `configMap` and "
        "`webhookConfiguration`. See [caBundleFrom](#cabundlefrom)",
    )
    image_review: HttpsClient | None = optional(
        _ImageReviewClient(),
        "A backend of ImagePolicyWebhook, see [imageReview](#imagereview)",
        is_in_files_only=True,
    )

    @property
    def client(self) -> WorkerRef | HttpsClient:
        """What is called. After a problem it may be a worker with empty names."""
        if self.worker is not None:
            return self.worker.reference
        if self.image_review is not None:
            return self.image_review
        url = self.url or (self.service.url if self.service is not None else "")
        source = None if self.ca_bundle_from is None else self.ca_bundle_from.source
        return HttpsClient(url, self.ca_bundle, source) if url else WorkerRef("", "")

    @property
    def default_allow(self) -> bool | None:
        """``imageReview.defaultAllow``."""
        client = self.image_review
        return client.image_review.default_allow if client and client.image_review else None


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
