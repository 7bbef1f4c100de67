"""The interface of policies: ``Review``, ``Denied`` and ``Cause``.

This module is independent of gRPC, so that a unit test can call a policy with ``Review.from_json(...)``.

A Review is parsed on first use and belongs to one call: other policies do not see changes, see
``payload``. After a mutating policy, ``object`` is compared with the original as JSON, so that
references, aliases and equal values of other Python types are not changes.

Source: k8s.io/api admission/v1 types.go (AdmissionRequest); RFC 6902 (JSON Patch).
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import orjson

from admission_gateway_worker.json_patch.diff import diff
from admission_gateway_worker.payload import JsonObject, MalformedPayload, Payload, decode
from admission_gateway_worker.traceparent import valid_traceparent

if TYPE_CHECKING:
    from admission_gateway_worker.sharing import Sharing

__all__ = ["Cause", "Denied", "MalformedPayload", "Review"]

Operations = Sequence[Mapping[str, Any]]
"""A JSON Patch: a sequence of ``{"op", "path", "value"}``."""

_FEW = 100
"""Operations whose values are checked one by one."""

FORBIDDEN = "FieldValueForbidden"
"""CauseType of Kubernetes for a well-formed value that a policy does not permit."""


def clean_text(text: object) -> str:
    """Return *text* as a str that protobuf accepts: unpaired surrogates become question marks."""
    return str(text).encode("utf-8", "replace").decode()


@dataclass(frozen=True, slots=True)
class Cause:
    """One entry of ``status.details.causes``: the problem of one field.

    ``field`` is a path such as ``spec.containers[0].image``, empty for the whole object; ``reason`` is a
    CauseType of Kubernetes (FieldValueRequired, FieldValueInvalid, FieldValueForbidden, ...).

    Source: k8s.io/apimachinery pkg/apis/meta/v1 types.go, CauseType.
    """

    message: str
    field: str = ""
    reason: str = FORBIDDEN


class Denied(Exception):  # an answer, not an error, hence the name
    """Raised by a policy to deny the request. The user sees *message*.

    Args:
        message: the field, what is wrong with it, and what to do.
        code: HTTP status, 400 to 599; any other value is sent as 400.
        reason: machine-readable reason such as ``Forbidden``. If it is empty, the gateway chooses it.
        field: path of the offending field; shorthand for a first ``Cause(message, field)``.
        causes: further causes, in order.
        retry_after_seconds: seconds after which the client may retry, sent as ``Retry-After``; ignored unless
            an integer from 1 to 2**31 - 1.
        name, group, kind, uid: the object of the denial. With the reason ``Invalid`` kubectl
            prints ``The KIND "NAME" is invalid`` instead of the message.
    """

    def __init__(
        self,
        message: str,
        *,
        code: int = 403,
        reason: str = "",
        field: str | None = None,
        causes: Iterable[Cause] = (),
        retry_after_seconds: int = 0,
        name: str = "",
        group: str = "",
        kind: str = "",
        uid: str = "",
    ) -> None:
        super().__init__(message)
        self.message = message
        self.code = code
        self.reason = reason
        own = () if field is None else (Cause(message, field),)
        self.causes = (*own, *causes)
        self.retry_after_seconds = retry_after_seconds
        self.name = name
        self.group = group
        self.kind = kind
        self.uid = uid


class Review:
    """One admission request for one policy.

    ``deadline`` is a time of ``time.monotonic()`` in seconds, infinite if unknown. ``patch`` is None until a
    mutating policy sets it to a list of RFC 6902 operations, which are then sent instead of the changes of
    ``object``. ``traceparent`` is the W3C Trace Context of the gateway's span for this call, with which a
    policy that traces continues the trace; empty if there is none. ``parameters`` are those of the webhook,
    as the policy's ``prepare`` made them; calls share them. ``warnings`` and ``annotations`` have the values
    so far.
    """

    __slots__ = (
        "_before",
        "_mutating",
        "_payload",
        "_request",
        "_sharing",
        "annotations",
        "deadline",
        "parameters",
        "patch",
        "size_bytes",
        "traceparent",
        "warnings",
    )

    def __init__(
        self,
        admission_request: bytes | Payload,
        namespace_object: bytes = b"",
        *,
        deadline: float = math.inf,
        mutating: bool = False,
        sharing: Sharing | None = None,
        traceparent: str = "",
    ) -> None:
        """*traceparent* is that of the call, not validated. *sharing* is that of the policy if other calls
        need the same Payload, so that the parsed request is given back to it.
        """
        self._payload = (
            admission_request
            if isinstance(admission_request, Payload)
            else Payload(admission_request, namespace_object)
        )
        self.size_bytes = len(self._payload.json)
        """Length of the request's JSON."""
        self._request: JsonObject | None = None
        self._before = b""
        self._mutating = mutating
        self._sharing = sharing
        self.deadline = deadline
        self.traceparent = traceparent and valid_traceparent(traceparent)
        self.parameters: Any = None
        self.patch: Operations | None = None
        self.warnings: list[str] = []
        self.annotations: dict[str, str] = {}

    @classmethod
    def from_json(
        cls,
        review: bytes | str | Mapping[str, Any],
        *,
        namespace_object: Mapping[str, Any] | None = None,
        timeout_s: float = math.inf,
        traceparent: str = "",
        parameters: Any = None,  # noqa: ANN401
    ) -> Review:
        """Return a Review for a unit test, from an AdmissionReview or an AdmissionRequest.

        It records changes, so that ``changes()`` works for mutating policies. *parameters* are as the
        policy's ``prepare`` makes them.

        Raises:
            ValueError: *review* is not a JSON object.
        """
        document = dict(review) if not isinstance(review, bytes | str) else decode("review", review)
        request = document["request"] if isinstance(document.get("request"), dict) else document
        namespace_json = b"" if namespace_object is None else orjson.dumps(namespace_object)
        deadline = time.monotonic() + timeout_s
        made = cls(
            orjson.dumps(request), namespace_json, deadline=deadline, mutating=True, traceparent=traceparent
        )
        made.parameters = parameters
        return made

    @property
    def request(self) -> JsonObject:
        """The AdmissionRequest, unchanged.

        Raises:
            ValueError: the gateway has sent something other than a JSON object.
        """
        request = self._request
        if request is None:
            if self._sharing is None:
                request = self._request = self._payload.take(to_change=self._mutating)
                if self._mutating:
                    self._before = self._payload.object_json(request)
            elif (way := self._sharing.next_way()) == "own":
                self._sharing = None
                request = self._request = self._payload.parse()
            else:
                request = self._request = self._payload.lend(way)
        return request

    # Any instead of dict | None: the operation determines which, and every policy would need an assertion.
    @property
    def object(self) -> Any:  # noqa: ANN401
        """The object of the request as a dict; None if there is none (DELETE)."""
        return self.request.get("object")

    @object.setter  # noqa: A003
    def object(self, value: Any) -> None:  # noqa: ANN401
        self.request["object"] = value

    @property
    def old_object(self) -> Any:  # noqa: ANN401
        """The stored object as a dict, for UPDATE and DELETE; otherwise None."""
        return self.request.get("oldObject")

    @property
    def namespace_object(self) -> JsonObject | None:
        """The Namespace of the request, parsed at each use; None if cluster-scoped or unknown.

        Raises:
            ValueError: the gateway has sent something other than a JSON object.
        """
        json = self._payload.namespace_json
        return decode("namespace_object", json) if json else None

    @property
    def operation(self) -> str:
        """CREATE, UPDATE, DELETE or CONNECT."""
        return self.request.get("operation") or ""

    @property
    def name(self) -> str:
        """Name of the object; empty for a CREATE with a generated name."""
        return self.request.get("name") or ""

    @property
    def namespace(self) -> str:
        """Namespace of the request; empty for cluster-scoped resources."""
        return self.request.get("namespace") or ""

    @property
    def kind(self) -> dict[str, str]:
        """``{"group", "version", "kind"}`` of the object."""
        return self.request.get("kind") or {}

    @property
    def resource(self) -> dict[str, str]:
        """``{"group", "version", "resource"}`` of the request."""
        return self.request.get("resource") or {}

    @property
    def sub_resource(self) -> str:
        """``status``, ``scale`` and the like; empty for the resource itself."""
        return self.request.get("subResource") or ""

    @property
    def user_info(self) -> JsonObject:
        """The user of the request: ``{"username", "uid", "groups", "extra"}``."""
        return self.request.get("userInfo") or {}

    @property
    def dry_run(self) -> bool:
        """Whether the request will not be stored; a policy must have no side effects then."""
        return self.request.get("dryRun") is True

    @property
    def uid(self) -> str:
        """Unique id of this review; a repetition or reinvocation has another one."""
        return self.request.get("uid") or ""

    @property
    def remaining_s(self) -> float:
        """Seconds until the deadline; negative after it."""
        return self.deadline - time.monotonic()

    def give_back(self) -> None:
        """Give the parsed request back to the Payload, unless the policy changed or kept a part of it."""
        sharing, self._sharing = self._sharing, None
        if sharing is not None and self._request is not None:
            self._request = None
            if not self._payload.give_back():
                self._request = self._payload.take()
                sharing.failed()

    def isolate(self) -> None:
        """Share nothing from now on, for a policy that goes on while others run."""
        if self._sharing is not None and self._request is not None:
            self._payload.take()
        self._sharing = None
        self._payload = Payload(self._payload.json, self._payload.namespace_json)

    def warn(self, text: str) -> None:
        """Add a warning for the user; the gateway cuts it to 256 characters."""
        self.warnings.append(clean_text(text))

    def annotate(self, key: str, value: str) -> None:
        """Add an audit annotation; it becomes ``WEBHOOK.key``. A later value replaces an earlier one."""
        self.annotations[clean_text(key)] = clean_text(value)

    def changes(self) -> Operations:
        """Return the JSON Patch of this call: ``patch`` if set, otherwise the changes of ``object``.

        Always empty for a policy that is not mutating.

        Raises:
            ValueError: the object is no longer a dict or not valid JSON, or the request has no object.
        """
        if not self._mutating or (self.patch is None and self._request is None):
            return []
        if self._sharing is not None:
            self.isolate()
        request = self._payload.original() if self._request is None else self._request
        after = request.get("object")
        if self.patch is not None:
            if self.patch and after is None:
                raise ValueError("review.patch is set, but the request has no object to patch")
            return list(self.patch)
        try:
            after_json = orjson.dumps(after)
        except TypeError as error:
            raise ValueError(f"review.object cannot be written as JSON: {error}") from error
        if after_json == self._before:
            return []
        before = self._payload.original().get("object")
        if before is None and after is not None:
            raise ValueError("review.object was set, but the request has no object to change")
        if before is not None and not isinstance(after, dict):
            raise ValueError(f"review.object is to stay a dict, found {type(after).__name__}")
        # Usually the diff with the object itself is right, which saves a parse of what the policy left.
        operations = diff(before, after)
        if len(operations) <= _FEW and all(_is_plain(operation.get("value")) for operation in operations):
            return operations
        return diff(before, orjson.loads(after_json))


def _is_plain(value: object) -> bool:
    """Whether *value* consists of what ``orjson.loads`` returns.

    Anything else, such as a tuple or an IntEnum, is passed over by ``diff`` only where its JSON is equal, and
    is otherwise part of a value of the patch. Therefore only these values have to be checked.
    """
    if type(value) is dict:
        return all(map(_is_plain, value.values()))
    if type(value) is list:
        return all(map(_is_plain, value))
    if type(value) is float:
        return math.isfinite(value)
    return value is None or type(value) in (str, int, bool)
