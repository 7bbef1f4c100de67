"""The request that calls of one batch share: parsed once for policies that leave it as it was.

A policy may change what it gets without effect on any other policy. Therefore the parsed request goes to
another policy only if it is the same after the first one. For a Pod of 6 KB, which takes 14 us to parse:

- Its JSON (4 us) shows all changes but those to values of other types with the same JSON, such as a member of
  an Enum in the place of an equal string. It does not show that a policy kept a part.
- Its fingerprint (7 to 13 us) shows these too: the values with their types, the order of keys, and which
  values are referenced from elsewhere.

``sharing`` decides which is compared, if any. A copy by ``msgspec.to_builtins`` takes 0.7 of parsing; to
compare with such a copy takes as long as the JSON, but does not see the order of keys, and takes 1 for true.
A comparison after several policies would come too late: none can be called again, since a webhook with side
effects is never called twice. A mutating policy gets a request of its own, which no policy before it can have
kept: even if it changes nothing, it often assigns an equal value, which is another one for a fingerprint.

``left_by`` gives the payload of the calls after a call, for chains: the same bytes as the gateway would send.

Source: marshal.c of CPython (``w_ref``): a value is marked unless there is only one reference to it.
"""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, Any, Final

import orjson

from admission_gateway_worker.json_patch.diff import same

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission_gateway_worker.answer import Outcome
    from admission_gateway_worker.sharing import Way

MAX_CHAINED_BYTES: Final = 512 * 1024
"""Length of a changed request above which the calls after the change are refused, so that the requests of a
chain cannot grow without end. Their verdicts would not count: the object of a chain has at most 64 KiB, and
the gateway sends requests of at most 64 KiB on a stream."""

JsonObject = dict[str, Any]


class MalformedPayload(ValueError):
    """The gateway has sent something other than a JSON object."""


def decode(what: str, text: bytes | str) -> JsonObject:
    """Return the JSON object *text*; errors name it *what*.

    Raises:
        MalformedPayload: *text* is not a JSON object.
    """
    try:
        value = orjson.loads(text)
    except orjson.JSONDecodeError as error:
        raise MalformedPayload(f"{what} is not JSON: {error}") from None
    if not isinstance(value, dict):
        raise MalformedPayload(f"{what} is to be a JSON object, found {type(value).__name__}")
    return value


class Held:
    """Counts bytes as held, as long as it exists."""

    __slots__ = ("_hold", "_size")

    def __init__(self, hold: Callable[[int], None], size: int) -> None:
        """*hold* is called with *size*, and at the end with its negative."""
        self._hold = hold
        self._size = size
        hold(size)

    def __del__(self) -> None:
        self._hold(-self._size)


class Payload:
    """One AdmissionRequest with its Namespace, as JSON and, while no policy has it, parsed."""

    __slots__ = (
        "_fingerprint",
        "_may_be_kept",
        "_object_json",
        "_parsed",
        "_way",
        "_written",
        "calls",
        "held",
        "json",
        "namespace_json",
    )

    def __init__(
        self,
        json: bytes,
        namespace_json: bytes = b"",
        parsed: JsonObject | None = None,
        object_json: bytes = b"",
    ) -> None:
        self.json = json
        self.namespace_json = namespace_json
        self.calls = 0
        """Calls of the batch that are still to begin with this payload."""
        self.held: Held | None = None
        """The count of its bytes as held. None if they are not counted."""
        self._parsed: list[JsonObject] = [] if parsed is None else [parsed]
        """The parsed request, or nothing. In a list, so that a fingerprint contains its references too."""
        self._fingerprint = b""
        """Of ``_parsed``. Empty if not known."""
        self._way: Way = "full"
        """How the present call is checked."""
        self._written = b""
        """The JSON as orjson writes it, or ``json`` until that is known to be another. Empty before that."""
        self._may_be_kept = False
        """Whether a call had ``_parsed`` that was not checked in full."""
        self._object_json = object_json

    def parse(self) -> JsonObject:
        """Return the request, parsed anew.

        Raises:
            MalformedPayload: it is not a JSON object.
        """
        return decode("admission_request", self.json)

    def original(self) -> JsonObject:
        """Return the request; the caller may not change it, nor keep it.

        Raises:
            MalformedPayload: it is not a JSON object.
        """
        if not self._parsed:
            self._parsed.append(self.parse())
            self._fingerprint = b""
            self._may_be_kept = False
        return self._parsed[0]

    def take(self, *, to_change: bool = False) -> JsonObject:
        """Return the request, which is the caller's. *to_change*: no other policy may have kept a part of it.

        Raises:
            MalformedPayload: it is not a JSON object.
        """
        if to_change and self._may_be_kept:
            self.drop_parsed()
        return self._parsed.pop() if self._parsed else self.parse()

    def drop_parsed(self) -> None:
        """Forget what was parsed; it is parsed again when it is needed."""
        self._parsed.clear()
        self._fingerprint = self._written = b""
        self._may_be_kept = False

    def object_json(self, request: JsonObject) -> bytes:
        """Return the object's JSON as orjson writes it, from the *request* that ``take`` returned."""
        if not self._object_json:
            self._object_json = orjson.dumps(request.get("object"))
        return self._object_json

    def lend(self, way: Way) -> JsonObject:
        """Return the request until ``give_back`` or ``take``. *way* is how ``give_back`` checks it.

        Raises:
            MalformedPayload: it is not a JSON object.
        """
        parsed = self._parsed
        if not parsed:
            self.original()
        self._way = way
        if way == "json":
            self._fingerprint = b""
            if not self._written:
                # Usually equal to what orjson writes, but Go escapes more characters.
                self._written = self.json if b"\\" not in self.json else _written(parsed[0])
        elif way == "full" and not self._fingerprint:
            self._fingerprint = marshal.dumps(parsed)
        return parsed[0]

    def give_back(self) -> bool:
        """Whether the request that ``lend`` returned is as it was; in full: and nobody refers to a part."""
        if self._way == "unchecked":
            return True
        if self._way == "full":
            try:
                return marshal.dumps(self._parsed) == self._fingerprint
            except ValueError:  # a value of another type than JSON's
                return False
        self._may_be_kept = True
        try:
            written = orjson.dumps(self._parsed[0])
        except (IndexError, TypeError):  # a review that a policy kept has taken it, or see ``_written``
            written = b""
        if written == self._written:
            return bool(written)
        if self._written is not self.json:
            return False
        self._written = _written(self.parse())
        return written == self._written

    def left_by(self, outcome: Outcome, *, is_derived: bool) -> Payload:
        """Return the payload of the calls after a call with *outcome*.

        It is the payload itself unless *outcome* allows with a patch that applies, and ``TOO_LARGE`` above
        ``MAX_CHAINED_BYTES``. *is_derived*: the patch is one that ``Review.changes`` derived, and therefore
        changes something.
        """
        patch = getattr(outcome, "patch", b"") if getattr(outcome, "allowed", False) else b""
        if not patch:
            return self
        if len(self.json) > 2 * MAX_CHAINED_BYTES:
            return TOO_LARGE  # without reading it
        # Here, because it needs the libraries with which the gateway reads large reviews.
        from admission_gateway_worker.json_patch.patch import (
            PatchConflict,
            PatchSyntaxError,
            apply_patch,
            parse_patch,
        )

        request = self.take(to_change=True)
        try:
            operations = orjson.loads(patch) if is_derived else parse_patch(patch)
            request["object"] = patched = apply_patch(request["object"], operations)
            if not isinstance(patched, dict):
                return self
            # One level down, so that an object that nests too deeply fails here.
            object_json = orjson.dumps([patched])[1:-1]
            json = orjson.dumps({**request, "object": orjson.Fragment(object_json)})
        except (PatchConflict, PatchSyntaxError, KeyError, RecursionError, TypeError):
            return self  # the gateway fails the call
        if not is_derived and same(patched, self.original().get("object")):
            return self
        if len(json) > MAX_CHAINED_BYTES:
            return TOO_LARGE
        return Payload(json, self.namespace_json, request, object_json)


def _written(request: JsonObject) -> bytes:
    """Return the JSON of *request*; empty if it has other types than JSON's, or nests too deeply."""
    try:
        return orjson.dumps(request)
    except TypeError:
        return b""


TOO_LARGE: Final = Payload(b"")
"""The payload of calls that are refused."""
