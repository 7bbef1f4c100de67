"""Where the gateway's CEL decides otherwise than kube-apiserver, and is to."""

from __future__ import annotations

from typing import Final

_MESSAGE = "messages of protobuf cannot be made: nobody needs one in a matchCondition"
_KEYS = "a map cannot have both 1 and true as keys, which no JSON has"
KNOWN: Final[dict[str, tuple[str, str]]] = {
    "google.protobuf.Duration{seconds: 1} == duration('1s')": ("compile error", _MESSAGE),
    """'%s'.format([{1: 'x', true: b'y'}]) == '{1:"x", true:b"y"}'""": ("false", _KEYS),
}
"""Expression to what it decides here, and why."""
