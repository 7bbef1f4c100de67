"""Source of the cases: kubernetes plugin/pkg/admission/network/denyserviceexternalips admission_test.go."""

from __future__ import annotations

from typing import Any

import pytest

from tests.library.builtin import of, refusal

NAME = "deny-service-external-ips"
ONE, TWO, THREE = "1.1.1.1", "2.2.2.2", "3.3.3.3"


def service(ips: tuple[str, ...]) -> dict[str, Any]:
    return {"metadata": {"name": "test-svc"}, "spec": {"externalIPs": list(ips)} if ips else {}}


@pytest.mark.parametrize(
    ("new", "old", "is_denied"),
    [
        ((), None, False),
        ((ONE,), None, True),
        ((ONE, TWO), (ONE, TWO), False),
        ((ONE, TWO), (TWO, ONE), False),
        ((ONE, TWO), (ONE, THREE), True),
        ((ONE, TWO), (ONE,), True),
        ((), (ONE, TWO), False),
        ((ONE,), (ONE, TWO), False),
        ((TWO,), (ONE, TWO), False),
    ],
)
def test_new_external_ips(new: tuple[str, ...], old: tuple[str, ...] | None, is_denied: bool) -> None:
    before = None if old is None else service(old)
    denied = 'services "test-svc" is forbidden: Use of external IPs is denied by admission control'
    assert refusal(NAME, of("services", "Service", service(new), before)) == (denied if is_denied else "")
    assert refusal(NAME, of("services/status", "Service", service(new), before)) == ""
