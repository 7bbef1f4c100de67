"""Writes the messages of a ReviewStream as bytes: a payload is encoded once for all messages that have it.

A message of protobuf copies the request of a review three times for each worker. Here the bytes of the
request are a part of each message, and only the few bytes of its calls are new.

Source: the encoding of Protocol Buffers (protobuf.dev/programming-guides/encoding); ReviewBatch in
protos/admissiongateway/worker/v1/worker.proto.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from collections.abc import Iterable

    from gateway.pure.core.call import Payload

_PAYLOADS, _CALLS, _CANCELLED, _PARAMETERS = (b"\x0a", b"\x12", b"\x1a", b"\x22")
"""The tags of ReviewBatch."""
_ADMISSION_REQUEST, _NAMESPACE_OBJECT = (b"\x0a", b"\x12")
"""The tags of Payload."""
_ID, _PAYLOAD, _POLICY, _TIMEOUT, _AFTER, _TRACEPARENT, _CALL_PARAMETERS = (
    *(b"\x08", b"\x10", b"\x1a", b"\x20", b"\x28", b"\x32", b"\x38"),
)
"""The tags of Call."""
_PARAMETERS_ID, _PARAMETERS_JSON = (b"\x08", b"\x12")
"""The tags of Parameters."""
_VERDICTS: Final = b"\x0a"
"""The tag of VerdictBatch. In a Verdict, that of ``id`` is as in Call."""
_ALLOWED: Final = b"\x12\x02\x08\x01"
"""The field ``response`` of a Verdict, of which only ``allowed`` is set."""

_MAX_ID_BYTES: Final = 10
_INDEX_BITS: Final = 6
"""Bits of a call's id that have its index in its group."""
MAX_CALLS: Final = 1 << _INDEX_BITS
"""Calls in a group."""


_BYTES: Final = tuple(bytes((byte,)) for byte in range(256))


def varint(number: int) -> bytes:
    """Return *number* as a varint."""
    encoded = b""
    while number > 0x7F:
        encoded += _BYTES[number & 0x7F | 0x80]
        number >>= 7
    return encoded + _BYTES[number]


def encoded_payload(payload: Payload, namespace_json: bytes) -> tuple[bytes, ...]:
    """Return the parts of the field ``payloads`` with *payload* and the JSON of its namespace.

    They are kept at the payload, and are those of all later calls of this function for it.
    """
    if not payload.encoded:
        payload.encoded = _encoded(payload.json, namespace_json)
    return payload.encoded


def _encoded(json: bytes, namespace_json: bytes) -> tuple[bytes, ...]:
    head = _ADMISSION_REQUEST + varint(len(json))
    between = _NAMESPACE_OBJECT + varint(len(namespace_json)) if namespace_json else b""
    size = len(head) + len(json) + len(between) + len(namespace_json)
    head = _PAYLOADS + varint(size) + head
    return (head, json, between, namespace_json) if namespace_json else (head, json)


@lru_cache(maxsize=4096)
def _policy(name: str) -> bytes:
    """Return the field ``policy`` of a Call."""
    encoded = name.encode()
    return _POLICY + varint(len(encoded)) + encoded if encoded else b""


class GroupEncoder:
    """Encodes the calls of a group, which differ in the end of their id, and in their policies."""

    __slots__ = ("_between", "_id_end", "_low", "_tail")

    def __init__(self, number: int, payload_index: int, timeout_ms: int, after: int) -> None:
        """*number* is that of the group; *after* is the id of the call before it, or 0."""
        # The id is the number, then the index in the group. Its varint begins with the low seven bits.
        high = number >> 7 - _INDEX_BITS
        self._low = number << _INDEX_BITS & 0x7F | (0x80 if high else 0)
        self._between = varint(high) if high else b""
        if payload_index:
            self._between += _PAYLOAD + varint(payload_index)
        self._tail = _TIMEOUT + varint(timeout_ms)
        if after:
            self._tail += _AFTER + varint(after)

    def add(
        self, encoded: list[bytes], index: int, policy: str, traceparent: str = "", parameters: int = 0
    ) -> None:
        """Add the field ``calls`` with the call *index* of the group to *encoded*.

        *parameters* is the id of its parameters, or 0.
        """
        name, tail = _policy(policy), self._tail
        if traceparent:
            text = traceparent.encode()
            tail += _TRACEPARENT + varint(len(text)) + text
        if parameters:
            tail += _CALL_PARAMETERS + varint(parameters)
        size = len(self._between) + len(name) + len(tail) + 2
        encoded += (
            _CALLS,
            _BYTES[size] if size < 0x80 else varint(size),
            _ID,
            _BYTES[self._low | index],
            self._between,
            name,
            tail,
        )


def group_of_first_verdict(message: bytes | bytearray, position: int) -> int:
    """Return the number of the group whose call the verdict at *position* answers; 0 if it is unusual."""
    # Tag and length of the verdict, the tag of its id, and the id.
    found, shift = 0, 0
    for byte in message[position + 3 : position + 3 + _MAX_ID_BYTES]:
        found |= (byte & 0x7F) << shift
        if byte < 0x80:
            return found >> _INDEX_BITS
        shift += 7
    return 0


def encoded_allows(number: int, calls: int) -> bytes:
    """Return the verdicts that allow all *calls* of group *number*, in order, and say nothing else."""
    # As in GroupEncoder.
    high = number >> 7 - _INDEX_BITS
    low = number << _INDEX_BITS & 0x7F | (0x80 if high else 0)
    end = (varint(high) if high else b"") + _ALLOWED
    begin = _VERDICTS + _BYTES[2 + len(end)] + _ID
    return begin + (end + begin).join(_BYTES[low : low + calls]) + end


def encoded_cancelled(ids: Iterable[int]) -> bytes:
    """Return the field ``cancelled``."""
    packed = b"".join(map(varint, ids))
    return _CANCELLED + varint(len(packed)) + packed if packed else b""


def encoded_parameters(number: int, json: bytes) -> bytes:
    """Return the field ``parameters`` with *json* and its id *number*."""
    inner = _PARAMETERS_ID + varint(number)
    if json:
        inner += _PARAMETERS_JSON + varint(len(json)) + json
    return _PARAMETERS + varint(len(inner)) + inner
