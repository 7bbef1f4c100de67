"""The verdict in an HTTP response. Failures have client-go's wording.

Source: k8s.io/client-go rest/request.go (transformResponse, isTextResponse); k8s.io/apimachinery
pkg/api/errors/errors.go (NewGenericServerResponse); k8s.io/apiserver pkg/util/webhook/webhook.go
(DefaultShouldRetry).
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Final

import msgspec

from gateway.engine.dispatch.https.review import failed_call

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from gateway.engine.dispatch.https.connection import HttpResponse
    from gateway.pure.core.verdict import Failed, Verdict

_MAX_TEXT_BYTES: Final = 2048

# Possessive quantifiers: without backtracking a hostile header takes linear time.
_TOKEN: Final = r"[!#$%&'*+\-.^_`|~0-9A-Za-z]++"
_PARAMETER: Final = rf';\s*+{_TOKEN}\s*+=\s*+(?:{_TOKEN}|"(?:[^"\\]|\\.)*+")\s*+'
_MEDIA_TYPE: Final = re.compile(rf"\s*+{_TOKEN}(?:/{_TOKEN})?\s*+(?>{_PARAMETER})*+(?:;\s*+)?")

_MESSAGES: Final = {
    400: "the server rejected our request for an unknown reason",
    401: "the server has asked for the client to provide credentials",
    404: "the server could not find the requested resource",
    405: "the server does not allow this method on the requested resource",
    409: "the server reported a conflict",
    422: "the server rejected our request due to an error in our request",
    429: "the server has received too many requests and has asked us to try again later",
    503: "the server is currently unable to handle the request",
    504: "the server was unable to return a response in the time allotted, "
    "but may still be processing the request",
}

_RETRIED_REASONS: Final = ("InternalError", "Timeout", "TooManyRequests")
_OTHER_REASONS: Final = (
    *("Unauthorized", "Forbidden", "NotFound", "AlreadyExists", "Conflict", "Gone", "Invalid"),
    *("ServerTimeout", "StoreReadError", "BadRequest", "MethodNotAllowed", "NotAcceptable"),
    *("RequestEntityTooLarge", "UnsupportedMediaType", "Expired", "ServiceUnavailable"),
)
"""All other known reasons: with an unknown one the code decides. Source: k8s.io/apimachinery api/errors."""
_SECONDS: Final = re.compile(r"[+-]?[0-9]{1,9}")


class _Details(msgspec.Struct):
    retry_after_seconds: int | None = msgspec.field(name="retryAfterSeconds", default=None)


class _Status(msgspec.Struct):
    kind: str = ""
    api_version: str = msgspec.field(name="apiVersion", default="")
    status: str = ""
    message: str = ""
    code: int = 0
    reason: str | None = None
    details: _Details | None = None


def judge(
    response: HttpResponse, read: Callable[[bytes], Generator[None, None, Verdict]]
) -> Generator[None, None, tuple[str, Verdict]]:
    """Return the status code for the metrics, and the verdict: that which *read* finds in a body."""
    code = str(min(response.status, 600))
    if failure := media_type_failure(response):
        return code, failure
    if not is_success(response):
        return code, failed_http(response)
    if not response.body:
        content_type = response.headers.get("content-type", "")
        reason = f"0-length response with status code: {response.status} and content type: {content_type}"
        return "OK", failed_call(reason)
    verdict = yield from read(response.body)
    return "OK", verdict


def is_success(response: HttpResponse) -> bool:
    """Whether the body is a review."""
    return 200 <= response.status <= 206


def media_type_failure(response: HttpResponse) -> Failed | None:
    """Return the failure of a response with an invalid Content-Type, whatever its status."""
    content_type = response.headers.get("content-type", "")
    if not content_type or _MEDIA_TYPE.fullmatch(content_type):
        return None
    return failed_call("Internal error occurred: mime: the Content-Type of the answer cannot be parsed", 500)


def failed_http(response: HttpResponse) -> Failed:
    """Return the failure of a response with an error status."""
    error, status = _error_in(response), response.status
    if error is not None:
        return failed_call(error.message or "unknown", error.code if error.code >= 400 else status)
    return failed_call(_message(status, _text(response)), status)


def is_transient(response: HttpResponse) -> bool:
    """Whether the API server sends the request of its own webhook plug-ins again after this *response*."""
    if media_type_failure(response):
        return True
    if is_success(response):
        return False
    status, error = response.status, _error_in(response)
    if error is None:
        is_internal = status >= 500 and status != 503
        return is_internal or status == 429 or (retry_after_s(response) or 0) > 0
    if (
        error.reason in _RETRIED_REASONS
        or error.code == 429
        or (error.reason not in _OTHER_REASONS and error.code in (500, 504))
    ):
        return True
    details = error.details
    return details is not None and (error.reason == "ServerTimeout" or (details.retry_after_seconds or 0) > 0)


def retry_after_s(response: HttpResponse) -> int | None:
    """Return the seconds in the header field Retry-After; None without a whole number."""
    text = response.headers.get("retry-after", "")
    return int(text) if _SECONDS.fullmatch(text) else None


def _error_in(response: HttpResponse) -> _Status | None:
    """Return the Status in the body of a response with an error status; None if there is none."""
    if not response.body.startswith(b"{"):
        return None
    try:
        error = msgspec.json.decode(response.body, type=_Status)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    return error if (error.kind, error.api_version, error.status) == ("Status", "v1", "Failure") else None


def _text(response: HttpResponse) -> str:
    content_type = response.headers.get("content-type", "")
    if content_type and not content_type.strip().lower().startswith("text/"):
        return "unknown"
    return response.body[:_MAX_TEXT_BYTES].decode(errors="replace").strip()


def _message(status: int, text: str) -> str:
    match status:
        case 403 | 415:
            return text
        case 406:
            unable = "the server was unable to respond with a content type that the client supports"
            return unable if text in ("", "unknown") else text
        case _ if status in _MESSAGES:
            return _MESSAGES[status]
        case _ if status >= 500:
            shown = msgspec.json.encode(text).decode()
            return f"an error on the server ({shown}) has prevented the request from succeeding"
        case _:
            return f"the server responded with the status code {status} but did not return more information"
