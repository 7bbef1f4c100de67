"""The AdmissionReview that an HTTPS webhook is sent, and how it is written.

Each call has a uid of its own, by which its answer is known. It stands first in the request as the API
server writes it, so that it can be exchanged without writing the rest anew.

Source: kubernetes/apiserver plugin/webhook/request/admissionreview.go; k8s.io/api admission/v1 types.go.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson

from gateway.core.review import V1, V1BETA1

if TYPE_CHECKING:
    from gateway.core.webhook import ReviewVersion

API_VERSIONS: Final = {"v1": V1, "v1beta1": V1BETA1}

_UID: Final = b'{"uid":"'
_HEADS: Final = {
    version: b'{"kind":"AdmissionReview","apiVersion":"%s","request":{"uid":"' % api_version.encode()
    for version, api_version in API_VERSIONS.items()
}


def write_review(version: ReviewVersion, request_json: bytes, uid: str) -> bytes:
    """Return the AdmissionReview of *version* with the AdmissionRequest *request_json* under another *uid*.

    Raises:
        TypeError: the request begins with another member than its uid, and nests too deeply to be written.
    """
    end = request_json.find(b'"', len(_UID))
    if not request_json.startswith(_UID) or request_json.find(b"\\", 0, end) >= 0:
        request_json = _with_uid_first(request_json)
        end = request_json.index(b'"', len(_UID))
    return b"%b%b%b}\n" % (_HEADS[version], uid.encode("ascii"), request_json[end:])


def _with_uid_first(request_json: bytes) -> bytes:
    return orjson.dumps({"uid": "", **orjson.loads(request_json)} | {"uid": ""})
