"""The Status of a webhook's denial reaches the API server's client by way of the gateway as without it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

import pytest

from tests.e2e.cases import create, mutate, validate
from tests.e2e.compare import Case, assert_equal, run
from tests.e2e.objects import config_map
from tests.e2e.setups import OnlyHttps, rule

if TYPE_CHECKING:
    from tests.e2e.cluster import Cluster
    from tests.e2e.outcome import Outcome

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


@pytest.fixture(scope="module")
def outcomes(
    cluster: Cluster, tmp_path_factory: pytest.TempPathFactory
) -> dict[str, tuple[Outcome, Outcome]]:
    found = run(cluster, tmp_path_factory.mktemp("denials"), [CASE], OnlyHttps)
    return dict(zip(STATUSES, found[CASE.name], strict=True))


@pytest.mark.parametrize("name", STATUSES)
def test_a_denial_has_the_outcome_without_a_gateway(
    outcomes: dict[str, tuple[Outcome, Outcome]], name: str
) -> None:
    assert outcomes[name][0].refusal is not None
    assert_equal(CASE, outcomes[name])


def test_the_api_server_sends_retry_after_whatever_the_code(
    outcomes: dict[str, tuple[Outcome, Outcome]],
) -> None:
    sent = {
        name: behind.refusal.rest["Retry-After"]
        for name, (_, behind) in outcomes.items()
        if behind.refusal is not None and name.startswith("retry")
    }
    assert sent == {
        "retry-503": "1",
        "retry-422": "2",
        "retry-negative": None,
        "retry-longest": "2147483647",
    }
