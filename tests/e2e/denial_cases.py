"""Statuses with which HTTPS webhooks deny requests."""

from __future__ import annotations

from typing import Any, Final

from tests.e2e.cases import create, mutate, validate
from tests.e2e.compare import Case
from tests.e2e.objects import config_map
from tests.e2e.setups import rule

DETAILS: Final = {"name": "web", "group": "apps", "kind": "Deployment", "uid": "u-1", "retryAfterSeconds": 7}
CAUSES: Final = [{"reason": "FieldValueInvalid", "message": "bad", "field": "spec"}, {"message": "worse"}]

STATUSES: Final[dict[str, Any]] = {
    "nothing": {},
    "null": None,
    "all": {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {
            "selfLink": "/somewhere",
            "resourceVersion": "7",
            "continue": "token",
            "remainingItemCount": 3,
        },
        "status": "Failure",
        "message": "all",
        "reason": "TooManyRequests",
        "details": {**DETAILS, "causes": CAUSES},
        "code": 429,
    },
    "retry-503": {"code": 503, "message": "later", "details": {"retryAfterSeconds": 1}},
    "retry-422": {"code": 422, "message": "later", "details": {"retryAfterSeconds": 2}},
    "retry-negative": {"code": 429, "message": "later", "details": {"retryAfterSeconds": -1}},
    "retry-longest": {"code": 429, "message": "later", "details": {"retryAfterSeconds": 2**31 - 1}},
    "invalid": {"code": 422, "reason": "Invalid", "message": "no", "details": DETAILS},
    "invalid-causes": {
        "code": 422,
        "reason": "Invalid",
        "message": "no",
        "details": {**DETAILS, "causes": CAUSES},
    },
    "name": {"code": 400, "message": "no", "details": {"name": "web"}},
    "odd-status": {"status": "Odd", "message": "no"},
    "success": {"status": "Success", "code": 200, "message": "no"},
    "unknown-reason": {"reason": "Whatever", "code": 409},
    "reason-alone": {"reason": "Whatever"},
    "code-below-400": {"code": 399, "message": "no"},
    "code-negative": {"code": -1, "message": "no"},
    "code-600": {"code": 600, "message": "no"},
    "half-surrogates": {"code": 403, "message": "a\ud800b\udc00\ud83d\ude00", "details": {"name": "n\ud800"}},
    "code-999": {"code": 999, "message": "no"},
    "empty-details": {"message": "no", "details": {}},
    "empty-metadata": {"message": "no", "metadata": {"remainingItemCount": 0, "continue": ""}},
    "null-details": {"message": "no", "details": None, "metadata": None, "code": None, "reason": None},
}
CONFIG_MAPS: Final = rule("configmaps", "CREATE")
CASE: Final = Case(
    "denials",
    tuple(
        (mutate if number % 2 else validate)(
            name, {"raw_status": status}, CONFIG_MAPS, objectSelector={"matchLabels": {"denied": name}}
        )
        for number, (name, status) in enumerate(STATUSES.items())
    ),
    tuple(create(config_map(name, {"denied": name})) for name in STATUSES),
)
