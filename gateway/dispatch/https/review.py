"""The AdmissionReview that an HTTPS webhook is sent, and how it is written.

Each call has a uid of its own, by which its answer is known. It stands first in the request as the API
server writes it, so that it can be exchanged without writing the rest anew.

Source: kubernetes/apiserver plugin/webhook/request/admissionreview.go; k8s.io/api admission/v1 types.go.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import orjson

from gateway.core.review import V1, V1BETA1

if TYPE_CHECKING:
    from gateway.core.webhook import ReviewVersion

API_VERSIONS: Final = {"v1": V1, "v1beta1": V1BETA1}

_HEADS: Final = {
    version: b'{"kind":"AdmissionReview","apiVersion":"%s","request":{"uid":"' % api_version.encode()
    for version, api_version in API_VERSIONS.items()
}
_UID: Final = re.compile(rb'[ \t\r\n]*\{[ \t\r\n]*"uid"[ \t\r\n]*:[ \t\r\n]*"[^"\\]*')


def write_review(version: ReviewVersion, request_json: bytes, uid: str) -> tuple[bytes, memoryview, bytes]:
    """Return the AdmissionReview of *version* with the AdmissionRequest *request_json* under another *uid*.

    It is in pieces, of which the large one is *request_json* itself: many calls share it.

    Raises:
        TypeError: the request begins with another member than its uid, and nests too deeply to be written.
    """
    found = _UID.match(request_json)
    if found is None or request_json[found.end() : found.end() + 1] != b'"':
        try:
            document = orjson.loads(request_json)
        except orjson.JSONDecodeError as error:
            raise TypeError("nested more deeply than can be read") from error
        request_json = orjson.dumps({"uid": "", **document} | {"uid": ""})
        found = _UID.match(request_json)
        assert found is not None
    return _HEADS[version] + uid.encode("ascii"), memoryview(request_json)[found.end() :], b"}\n"
