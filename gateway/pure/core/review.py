"""AdmissionReview bytes to an AdmissionRequest, decoded and checked once.

The request's own JSON is kept as the API server wrote it, because workers get it. Unknown members are
ignored, as kube-apiserver's decoder ignores them. The types of members that the gateway uses are checked; the
rest is left to the workers.

Source: k8s.io/api admission/v1 types.go; kubernetes/apiserver plugin/webhook/request/admissionreview.go.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Any, Final, cast

import orjson

from admission_gateway_worker.json_patch.repair import repaired_in_steps
from admission_gateway_worker.json_patch.steps import finish
from gateway.base.errors import MalformedReview, UnsupportedReview
from gateway.pure.core.large import NotJsonError, open_review, outline_request
from gateway.pure.core.reading import pruned_in_steps

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable, Mapping

    from gateway.pure.core.large import Outline

V1: Final = "admission.k8s.io/v1"
V1BETA1: Final = "admission.k8s.io/v1beta1"

OPERATIONS: Final = ("CREATE", "UPDATE", "DELETE", "CONNECT")

Json = dict[str, Any]
Resource = tuple[str, str, str]
"""Group, version and resource name; group is empty for the core group."""

# The beginning of every review of kube-apiserver, and of tools that sort keys. The text from there to the
# last brace is the request. Parsing only that proves the cut right: with more members it would not be one
# JSON value.
_PREFIXES: Final = {
    pattern % version.encode(): version
    for pattern in (
        b'{"kind":"AdmissionReview","apiVersion":"%s","request":',
        b'{"apiVersion":"%s","kind":"AdmissionReview","request":',
    )
    for version in (V1, V1BETA1)
}
_REQUEST: Final = b'"request":'
_LONGEST_PREFIX: Final = max(map(len, _PREFIXES))
_SAFE_DEPTH: Final = 250
"""With at most this many opening brackets JSON cannot nest deeper than orjson writes. It reads deeper
JSON."""

_NO_LABELS: Final[Mapping[str, str]] = {}
_NOTHING: Final[Mapping[str, object]] = {}

_TOO_DEEP: Final = "request: nested too deeply, expected at most 254 levels"

_resource = cast("Callable[[object], Resource]", itemgetter("group", "version", "resource"))
_kind = cast("Callable[[object], Resource]", itemgetter("group", "version", "kind"))


@dataclass(slots=True)
class AdmissionRequest:
    """One request for admission. Nothing in it is changed after decoding, including ``object``.

    The parsed form is a cache of ``json`` that :meth:`drop_parsed` empties. The hundreds of small containers
    of a waiting review would be cold memory by the time they are freed, which costs more than to parse the
    few requests again that are needed once more.
    """

    api_version: str
    """``admission.k8s.io/v1`` or ``…/v1beta1``, of the review and of the answer."""
    uid: str
    operation: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    resource: Resource
    """As sent by the API server, perhaps converted to a version that a rule of the registration names."""
    sub_resource: str
    request_resource: Resource
    """As requested by the client; equal to ``resource`` if the review does not have it."""
    request_sub_resource: str
    kind: Resource
    """Group, version and kind, as requested by the client."""
    namespace: str
    """Empty for cluster-scoped objects; for a Namespace its own name."""
    name: str
    """Empty if the API server is to make it up, and for the objects of a deleted collection."""
    user: str
    """``userInfo.username``."""
    dry_run: bool
    has_object: bool
    """Whether there is an object that a patch can change; not on DELETE."""
    json: bytes
    """The AdmissionRequest's JSON."""
    _parsed: Json | None = field(repr=False)
    _pruned: bytes | None = field(default=None, repr=False)
    """The result of ``pruned_in_steps`` for ``json``, if that nests too deeply to be parsed."""
    outline: Outline | None = field(default=None, repr=False)
    """The outline of a large request, which is parsed only if all of it is needed."""
    _object: Json | None = field(default=None, repr=False)
    """The object of a large request of which only the object was needed."""
    _can_be_rewritten: bool | None = field(default=None, repr=False)
    facts: dict[str, tuple[object, object]] = field(default_factory=dict, repr=False)
    """What policies found out about the object, see ``gateway.pure.openapi.types.Facts``."""
    _shape: tuple[Hashable, ...] | None = field(default=None, repr=False, compare=False)
    has_go_types: bool = field(default=True, repr=False)
    """Whether values of expressions have Go types, by the configuration that the review is made with."""

    @property
    def document(self) -> Json:
        """The whole request, parsed."""
        if self._parsed is None:
            self._parsed = self._read()
        return self._parsed

    @property
    def object(self) -> Json | None:
        """The new object."""
        if self.outline is not None and self._parsed is None:
            if self._object is None:
                self._object = self.outline.fresh_object()
            return self._object
        found: Json | None = self.document.get("object")
        return found

    @property
    def old_object(self) -> Json | None:
        """The stored object, on UPDATE and DELETE."""
        found: Json | None = self.document.get("oldObject")
        return found

    @property
    def object_outline(self) -> Json | None:
        """The object with its labels and names at least."""
        return self.object if self.outline is None else self.outline.object

    @property
    def old_outline(self) -> Json | None:
        """The old object with its labels and names at least."""
        return self.old_object if self.outline is None else self.outline.old_object

    @property
    def groups(self) -> list[str]:
        """``userInfo.groups``, without members that are not texts."""
        info = self.document.get("userInfo") if self.outline is None else self.outline.user_info
        groups = info.get("groups") if isinstance(info, dict) else None
        return [one for one in groups if isinstance(one, str)] if isinstance(groups, list) else []

    def fresh_object(self) -> Json | None:
        """Return a copy of the object that the caller may change."""
        if self.outline is not None:
            return self.outline.fresh_object()
        found: Json | None = self._read().get("object")
        return found

    def can_be_rewritten(self) -> bool:
        """Whether the request can be written as JSON again with another object, one level down."""
        if self._can_be_rewritten is None:
            self._can_be_rewritten = self.json.count(b"{") + self.json.count(b"[") <= _SAFE_DEPTH
            if not self._can_be_rewritten and self._pruned is None:
                with suppress(TypeError):
                    orjson.dumps([self.document])
                    self._can_be_rewritten = True
        return self._can_be_rewritten

    def _read(self) -> Json:
        found: Json = orjson.loads(self.json if self._pruned is None else self._pruned)
        return found

    def drop_parsed(self) -> None:
        """Drop the parsed form; the next access parses again."""
        self._parsed = self._object = None

    @property
    def shape(self) -> tuple[Hashable, ...]:
        """Everything that rules compare; requests of equal shape match the same rules."""
        if self._shape is None:
            self._shape = (
                self.operation,
                self.resource,
                self.sub_resource,
                self.request_resource,
                self.request_sub_resource,
                self.kind,
                self.namespace == "",
            )
        return self._shape


def decode(body: bytes) -> AdmissionRequest:
    """Return the request in *body*, the JSON of an AdmissionReview v1 or v1beta1.

    The request of a review that does not begin like the API server's is written again, and refused if it
    nests too deeply for that.

    Raises:
        MalformedReview: not JSON, not an AdmissionReview, without a request, or with a member of the wrong
            type; the text names the member.
        UnsupportedReview: an AdmissionReview of another version.
    """
    request = decode_plain(body)
    return finish(decode_in_steps(body)) if request is None else request


def decode_plain(body: bytes) -> AdmissionRequest | None:
    """Return the request in *body* as ``decode`` does, or None if orjson cannot read it.

    Raises:
        MalformedReview, UnsupportedReview: as ``decode``.
    """
    cut = _cut(body)
    if cut is not None:
        try:
            document = orjson.loads(cut[1])
        except orjson.JSONDecodeError:
            document = None
        if isinstance(document, dict):
            return checked(cut[0], document, cut[1])
    try:
        review = orjson.loads(body)
    except orjson.JSONDecodeError:
        return None
    api_version = _check_envelope(review)
    document = review["request"]
    return checked(api_version, document, _written(document))


def decode_in_steps(body: bytes) -> Generator[None, None, AdmissionRequest]:
    """Return the request in *body* as ``decode`` does; yields between steps.

    For bodies that are large, or that orjson cannot read. Their objects are not parsed. The request of a
    review that does not begin like the API server's is not written again.

    Raises:
        MalformedReview, UnsupportedReview: as ``decode``.
    """
    for is_repaired, is_deep in ((False, False), (True, False), (True, True)):
        try:
            if is_repaired and not is_deep:
                body = yield from repaired_in_steps(body)
            api_version, json, outline, pruned = yield from _open_in_steps(body, is_deep=is_deep)
        except NotJsonError as error:
            problem = error
            if is_repaired and not error.is_deep:
                break
            yield
        else:
            return checked(api_version, outline.head, json, outline, pruned)
    raise MalformedReview(f"the body is not JSON: {problem}")


def checked(
    api_version: str,
    document: Json,
    json: bytes,
    outline: Outline | None = None,
    pruned: bytes | None = None,
) -> AdmissionRequest:
    """Return the request with the members of *document*, after checking their types.

    Raises:
        MalformedReview: a member is missing, or has the wrong type.
    """
    get = document.get
    requested_resource, requested_kind = get("requestResource"), get("requestKind")
    sub_resource, namespace = get("subResource"), get("namespace")
    requested_sub_resource = sub_resource if requested_resource is None else get("requestSubResource")
    sub_resource = "" if sub_resource is None else sub_resource
    namespace = "" if namespace is None else namespace
    requested_sub_resource = "" if requested_sub_resource is None else requested_sub_resource
    try:
        # Absent members are rare and cost an exception.
        resource = _resource(document["resource"])
        request_resource = resource if requested_resource is None else _resource(requested_resource)
        kind = _kind(document["kind"] if requested_kind is None else requested_kind)
        uid, operation = document["uid"], document["operation"]
        # The cheapest check that all of them are strings: anything else is a TypeError.
        names = (*resource, *request_resource, *kind)
        "".join((*names, uid, operation, namespace, sub_resource, requested_sub_resource))
    except (KeyError, TypeError):
        raise _malformed(document) from None
    held, old, dry_run = get("object"), get("oldObject"), get("dryRun")
    if (
        uid == ""
        or operation not in OPERATIONS
        or (held is not None and type(held) is not dict)
        or (old is not None and type(old) is not dict)
        or (dry_run is not None and type(dry_run) is not bool)
    ):
        raise _malformed(document)
    name, user = get("name"), get("userInfo")
    user = user.get("username") if type(user) is dict else None
    return AdmissionRequest(
        api_version=api_version,
        uid=uid,
        operation=operation,
        resource=resource,
        sub_resource=sub_resource,
        request_resource=request_resource,
        request_sub_resource=requested_sub_resource,
        kind=kind,
        namespace=namespace,
        name=name if type(name) is str else "",
        user=user if type(user) is str else "",
        dry_run=dry_run is True,
        has_object=held is not None,
        json=json,
        _parsed=document if outline is None else None,
        _pruned=pruned,
        outline=outline,
    )


def _cut(body: bytes) -> tuple[str, bytes] | None:
    """Return apiVersion and the JSON of the request, if *body* begins like a review of the API server."""
    begin = body.find(_REQUEST, 0, _LONGEST_PREFIX) + len(_REQUEST)
    api_version = _PREFIXES.get(body[:begin])
    end = body.rfind(b"}")
    if api_version is None or body[end + 1 :].strip(b" \t\r\n"):
        return None
    return api_version, body[begin:end]


def _check_envelope(review: object) -> str:
    """Return the apiVersion of *review*, which has to be an AdmissionReview with a request."""
    if not isinstance(review, dict) or review.get("kind") != "AdmissionReview":
        raise MalformedReview("the body is not an AdmissionReview")
    version = review.get("apiVersion")
    if version not in (V1, V1BETA1):
        raise UnsupportedReview(f"apiVersion: found {shown_briefly(version)}, expected {V1} or {V1BETA1}")
    document = review.get("request")
    if not isinstance(document, dict):
        raise MalformedReview(f"request: found {shown_briefly(document)}, expected an AdmissionRequest")
    return cast("str", version)


def _open_in_steps(
    body: bytes, *, is_deep: bool
) -> Generator[None, None, tuple[str, bytes, Outline, bytes | None]]:
    """Return apiVersion, the request's JSON, its outline, and the pruned JSON if *is_deep*."""
    cut = _cut(body)
    if cut is not None:
        with suppress(NotJsonError):
            pruned = (yield from pruned_in_steps(cut[1])) if is_deep else None
            return *cut, (yield from outline_request(pruned or cut[1])), pruned
    review, json = yield from open_review((yield from pruned_in_steps(body)) if is_deep else body)
    api_version = _check_envelope(review)
    outline = yield from outline_request(json)
    if is_deep:
        raise MalformedReview(_TOO_DEEP)
    return api_version, json, outline, None


def _written(document: Json) -> bytes:
    """Return the JSON of *document*."""
    try:
        return orjson.dumps(document)
    except TypeError:
        raise MalformedReview(_TOO_DEEP) from None


def _malformed(document: Json) -> MalformedReview:
    """Return the error for the first member of *document* that is missing or of the wrong type."""

    def is_text(value: object) -> bool:
        return isinstance(value, str)

    checks: list[tuple[str, Callable[[object], bool], str]] = [
        ("uid", lambda value: isinstance(value, str) and value != "", "a non-empty string"),
        ("operation", lambda value: value in OPERATIONS, "CREATE, UPDATE, DELETE or CONNECT"),
        ("resource", _is_named("group", "version", "resource"), "{group, version, resource} as strings"),
        ("kind", _is_named("group", "version", "kind"), "{group, version, kind} as strings"),
    ]
    optional: list[tuple[str, Callable[[object], bool], str]] = [
        (
            "requestResource",
            _is_named("group", "version", "resource"),
            "{group, version, resource} as strings",
        ),
        ("requestKind", _is_named("group", "version", "kind"), "{group, version, kind} as strings"),
        ("subResource", is_text, "a string"),
        ("requestSubResource", is_text, "a string"),
        ("namespace", is_text, "a string"),
        ("object", lambda value: isinstance(value, dict), "an object or null"),
        ("oldObject", lambda value: isinstance(value, dict), "an object or null"),
        ("dryRun", lambda value: isinstance(value, bool), "true or false"),
    ]
    checks += [check for check in optional if document.get(check[0]) is not None]
    member, expected = next(
        (member, expected) for member, is_right, expected in checks if not is_right(document.get(member))
    )
    return MalformedReview(
        f"request.{member}: found {shown_briefly(document.get(member))}, expected {expected}"
    )


def _is_named(*members: str) -> Callable[[object], bool]:
    return lambda value: isinstance(value, dict) and all(isinstance(value.get(name), str) for name in members)


def shown_briefly(value: object) -> str:
    """Return *value* for an error message: a short scalar as JSON, anything else by its type."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = orjson.dumps(value).decode()
    return text if len(text) <= 80 else "a value that is too long to show"


def is_namespace(request: AdmissionRequest) -> bool:
    """Whether *request* is about a Namespace itself, whose ``namespace`` is its own name."""
    return request.request_resource[2] == "namespaces"


def is_namespace_write(request: AdmissionRequest) -> bool:
    """Whether *request* writes a Namespace, so that namespaceSelectors match the labels of the object."""
    return (
        request.operation in ("CREATE", "UPDATE")
        and is_namespace(request)
        and request.request_sub_resource == ""
    )


def metadata_of(document: Json | None) -> Mapping[str, object]:
    """Return ``metadata`` of a Kubernetes object; empty if there is none or it is malformed."""
    metadata = document.get("metadata") if document is not None else None
    return metadata if isinstance(metadata, dict) else _NOTHING


def labels_of(document: Json | None) -> Mapping[str, str]:
    """Return ``metadata.labels`` of a Kubernetes object; empty if there are none or they are malformed."""
    labels = metadata_of(document).get("labels")
    return labels if isinstance(labels, dict) else _NO_LABELS
