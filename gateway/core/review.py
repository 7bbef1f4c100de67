"""AdmissionReview bytes to an AdmissionRequest: decoded once, checked once, trusted from there on.

The request's own JSON is kept as the API server wrote it, because that is what workers are handed. Unknown
members are ignored, as kube-apiserver's decoder ignores them. Members that decide something here are checked
for their type; the rest is the workers' business.

Source: k8s.io/api admission/v1 types.go; kubernetes/apiserver plugin/webhook/request/admissionreview.go.
"""

from __future__ import annotations

from contextlib import suppress
from dataclasses import dataclass, field
from operator import itemgetter
from typing import TYPE_CHECKING, Final, cast

import orjson

from gateway.core.large import NotJsonError, open_review, outline_request
from gateway.core.reading import read_deep, repaired
from gateway.core.webhook import OPERATIONS
from gateway.errors import MalformedReview, UnsupportedReview

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Hashable

    from gateway.core.large import Outline

V1: Final = "admission.k8s.io/v1"
V1BETA1: Final = "admission.k8s.io/v1beta1"

Json = dict[str, object]
Resource = tuple[str, str, str]
"""Group, version and resource name; group is empty for the core group."""

# How kube-apiserver begins every review it writes, and how tools that sort keys do. What follows up to the
# last brace is the request alone, and parsing only that proves the cut right: were there more members, it
# would not be one JSON value.
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
"""No more opening brackets than this cannot nest deeper than orjson writes. It reads deeper than that."""

_REPAIRED_AT_ONCE_BYTES: Final = 256 * 1024
"""Of a large body with texts that are not Unicode, in some ten milliseconds."""

_resource = cast("Callable[[object], Resource]", itemgetter("group", "version", "resource"))
_kind = cast("Callable[[object], Resource]", itemgetter("group", "version", "kind"))


@dataclass(slots=True)
class AdmissionRequest:
    """One request for admission. Nothing in it is changed after decoding, ``object`` included.

    The parsed form is a cache of ``json`` that :meth:`rest` lets go of: a few hundred small containers for
    each review that waits for its workers would be cold memory by the time they are freed, which costs more
    than parsing again the few that are asked for once more.
    """

    api_version: str
    """``admission.k8s.io/v1`` or ``…/v1beta1``: what the review came in, and the answer goes out in."""
    uid: str
    operation: str
    """CREATE, UPDATE, DELETE or CONNECT."""
    resource: Resource
    """As sent here, perhaps converted to a version that a rule of the registration names."""
    sub_resource: str
    request_resource: Resource
    """As the client asked for it; same as ``resource`` where the review does not say."""
    request_sub_resource: str
    kind: Resource
    """Group, version and kind of what the client sent."""
    namespace: str
    """Empty for cluster-scoped objects; a Namespace object's own name."""
    dry_run: bool
    has_object: bool
    """Whether there is an object that a patch could change: not on DELETE."""
    json: bytes
    """The AdmissionRequest's JSON."""
    _parsed: Json | None = field(repr=False)
    _loads: Callable[[bytes], object] = field(repr=False)
    """Reads ``json``."""
    outline: Outline | None = field(default=None, repr=False)
    """Of a large request, which is not parsed before somebody needs all of it."""
    _object: Json | None = field(default=None, repr=False)
    """Of a large request whose object alone was asked for."""
    _can_be_rewritten: bool | None = field(default=None, repr=False)

    @property
    def document(self) -> Json:
        """The whole request, parsed."""
        if self._parsed is None:
            self._parsed = cast("Json", self._loads(self.json))
        return self._parsed

    @property
    def object(self) -> Json | None:
        """The object as the client wants it."""
        if self.outline is not None and self._parsed is None:
            if self._object is None:
                self._object = self.outline.fresh_object()
            return self._object
        return cast("Json | None", self.document.get("object"))

    @property
    def old_object(self) -> Json | None:
        """The object as it is stored, on UPDATE and DELETE."""
        return cast("Json | None", self.document.get("oldObject"))

    @property
    def object_outline(self) -> Json | None:
        """The object with its labels at least."""
        return self.object if self.outline is None else self.outline.object

    @property
    def old_outline(self) -> Json | None:
        """The old object with its labels at least."""
        return self.old_object if self.outline is None else self.outline.old_object

    def fresh_object(self) -> Json | None:
        """Return a copy of the object that the caller may change."""
        if self.outline is not None:
            return self.outline.fresh_object()
        return cast("Json | None", orjson.loads(self.json).get("object"))

    def can_be_rewritten(self) -> bool:
        """Whether the request can be written again with another object, and be a member of something."""
        if self._can_be_rewritten is None:
            self._can_be_rewritten = self.json.count(b"{") + self.json.count(b"[") <= _SAFE_DEPTH
            if not self._can_be_rewritten:
                with suppress(TypeError):
                    orjson.dumps([self.document])
                    self._can_be_rewritten = True
        return self._can_be_rewritten

    def rest(self) -> None:
        """Let go of the parsed form until it is asked for again."""
        self._parsed = self._object = None

    @property
    def shape(self) -> tuple[Hashable, ...]:
        """All that rules can look at; requests of equal shape match the same rules."""
        return (
            self.operation,
            self.resource,
            self.sub_resource,
            self.request_resource,
            self.request_sub_resource,
            self.kind,
            self.namespace == "",
        )


def decode(body: bytes) -> AdmissionRequest:
    """Return the request in *body*, the JSON of an AdmissionReview v1 or v1beta1.

    A review that does not begin as the API server's do has its request written anew, and is refused where it
    nests too deeply for that.

    Raises:
        MalformedReview: not JSON, not an AdmissionReview, without a request, or with a member of the wrong
            type; the text names the member.
        UnsupportedReview: an AdmissionReview of another version.
    """
    return _checked(*_open(body))


def decode_in_steps(body: bytes) -> Generator[None, None, AdmissionRequest]:
    """Return the request in *body*, which is large, as ``decode`` does; yields between steps.

    Its objects are not parsed, unless they nest too deeply to be read without. A review that does not begin
    as the API server's do is not written anew.

    Raises:
        MalformedReview, UnsupportedReview: as ``decode``.
    """
    for is_repaired in (False, True):
        try:
            whole = (yield from _repaired_in_steps(body)) if is_repaired else body
            api_version, json, outline = yield from _open_in_steps(whole)
        except NotJsonError as error:
            problem = error
            yield
        else:
            return _checked(api_version, outline.head, json, orjson.loads, outline)
    if problem.is_deep:
        return decode(body)
    raise MalformedReview(f"the body is not JSON: {problem}")


def _checked(
    api_version: str,
    document: Json,
    json: bytes,
    loads: Callable[[bytes], object],
    outline: Outline | None = None,
) -> AdmissionRequest:
    """Return the request of which *document* has the members that decide something."""
    get = document.get
    asked_resource, asked_kind = get("requestResource"), get("requestKind")
    try:
        # Absent members are rare and cost an exception; present ones of a wrong type are checked below.
        resource = _resource(document["resource"])
        request_resource = resource if asked_resource is None else _resource(asked_resource)
        kind = _kind(document["kind"] if asked_kind is None else asked_kind)
        uid, operation = document["uid"], document["operation"]
        # The cheapest way to see that all of them are strings; joining anything else is a TypeError.
        "".join((*resource, *request_resource, *kind))
    except (KeyError, TypeError):
        raise _malformed(document) from None
    sub_resource, namespace = get("subResource"), get("namespace")
    asked_sub_resource = sub_resource if asked_resource is None else get("requestSubResource")
    request = AdmissionRequest(
        api_version=api_version,
        uid=cast("str", uid),
        operation=cast("str", operation),
        resource=resource,
        sub_resource=cast("str", "" if sub_resource is None else sub_resource),
        request_resource=request_resource,
        request_sub_resource=cast("str", "" if asked_sub_resource is None else asked_sub_resource),
        kind=kind,
        namespace=cast("str", "" if namespace is None else namespace),
        dry_run=get("dryRun") is True,
        has_object=get("object") is not None,
        json=json,
        _parsed=document if outline is None else None,
        _loads=loads,
        outline=outline,
    )
    if not _is_sound(request, document):
        raise _malformed(document)
    return request


def _open(body: bytes) -> tuple[str, Json, bytes, Callable[[bytes], object]]:
    """Return apiVersion, the parsed request, its JSON and what reads that."""
    try:
        return *_opened(body, orjson.loads), orjson.loads
    except orjson.JSONDecodeError as error:
        problem = str(error)
    body = repaired(body)
    for loads in (orjson.loads, read_deep):
        with suppress(orjson.JSONDecodeError):
            return *_opened(body, loads), loads
    raise MalformedReview(f"the body is not JSON: {problem}")


def _opened(body: bytes, loads: Callable[[bytes], object]) -> tuple[str, Json, bytes]:
    cut = _cut(body)
    if cut is not None:
        with suppress(orjson.JSONDecodeError):
            document = loads(cut[1])
            if isinstance(document, dict):
                return cut[0], document, cut[1]
    review = loads(body)
    api_version = _check_envelope(review)
    document = cast("Json", cast("Json", review)["request"])
    return api_version, document, _written(document)


def _cut(body: bytes) -> tuple[str, bytes] | None:
    """Return apiVersion and what has to be the request's JSON, if *body* looks as the API server's do."""
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
        raise UnsupportedReview(f"apiVersion: found {shown(version)}, expected {V1} or {V1BETA1}")
    document = review.get("request")
    if not isinstance(document, dict):
        raise MalformedReview(f"request: found {shown(document)}, expected an AdmissionRequest")
    return cast("str", version)


def _repaired_in_steps(body: bytes) -> Generator[None, None, bytes]:
    """Return *body* with what is not Unicode replaced, by pieces that end where a text begins or ends."""
    pieces: list[bytes] = []
    place = 0
    while place < len(body):
        end = body.find(b'"', place + _REPAIRED_AT_ONCE_BYTES)
        pieces.append(repaired(body[place : end if end > 0 else len(body)]))
        place = end if end > 0 else len(body)
        yield
    return b"".join(pieces)


def _open_in_steps(body: bytes) -> Generator[None, None, tuple[str, bytes, Outline]]:
    """Return apiVersion, the request's JSON and its outline."""
    cut = _cut(body)
    if cut is not None:
        with suppress(NotJsonError):
            return *cut, (yield from outline_request(cut[1]))
    review, json = yield from open_review(body)
    api_version = _check_envelope(review)
    return api_version, json, (yield from outline_request(json))


def _written(document: Json) -> bytes:
    """Return the JSON of *document*."""
    try:
        return orjson.dumps(document)
    except TypeError:
        raise MalformedReview("request: nested too deeply, expected at most 254 levels") from None


def _is_sound(request: AdmissionRequest, document: Json) -> bool:
    """Whether every member that decides something has its type."""
    held, old = document.get("object"), document.get("oldObject")
    return (
        type(request.uid) is str
        and request.uid != ""
        and request.operation in OPERATIONS
        and type(request.namespace) is str
        and type(request.sub_resource) is str
        and type(request.request_sub_resource) is str
        and (held is None or type(held) is dict)
        and (old is None or type(old) is dict)
        and (request.dry_run or _is_false(document.get("dryRun")))
    )


def _is_false(value: object) -> bool:
    return value is None or value is False


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
    return MalformedReview(f"request.{member}: found {shown(document.get(member))}, expected {expected}")


def _is_named(*members: str) -> Callable[[object], bool]:
    return lambda value: isinstance(value, dict) and all(isinstance(value.get(name), str) for name in members)


def shown(value: object) -> str:
    """Return *value* as an error message can show it: short scalars as they are, the rest by type."""
    if value is None:
        return "nothing"
    if isinstance(value, dict):
        return "an object"
    if isinstance(value, list):
        return "an array"
    text = orjson.dumps(value).decode()
    return text if len(text) <= 80 else "a value that is too long to show"
