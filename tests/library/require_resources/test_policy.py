"""The policy ``require-resources``."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import orjson
import pytest
from hypothesis import given
from hypothesis import strategies as st

from admission_gateway_worker.policies.require_resources import DEFINITIONS
from gateway.engine.dispatch.parameter_schema import ParameterSchema
from tests.library.requests import denial, of_pod

(POLICY,) = DEFINITIONS
SUFFIXES = {
    "m": Fraction(1, 1000),
    "": Fraction(1),
    "k": Fraction(1000),
    "Ki": Fraction(1024),
    "G": Fraction(10**9),
}
CONTAINER = "spec.containers[1].resources.limits[memory]"
QUANTITY = st.tuples(st.integers(0, 10**6), st.sampled_from(sorted(SUFFIXES)))


def test_what_is_missing_is_named() -> None:
    spec = {
        "containers": [{"name": "a", "resources": {"limits": {"memory": "1Gi"}}}, {"name": "b"}],
        "ephemeralContainers": [{"name": "c"}],
    }
    assert denial(POLICY, of_pod(spec), {"limits": {"memory": {}}}) == {
        "spec.containers[1].resources.limits[memory]": 'container "b" has no memory in limits: set it'
    }


@pytest.mark.parametrize(
    ("of_pod_itself", "own", "expected"),
    [
        ("1Gi", [None, None], {}),
        ("4Gi", ["1Gi", "2Gi"], {}),
        (
            "4Gi",
            ["1Gi", None],
            {"spec.resources.limits[memory]": "the pod has 4Gi memory in limits, more than 2Gi"},
        ),
        (None, ["1Gi", None], {CONTAINER: 'container "c1" has no memory in limits: set it'}),
        ("1Gi", ["1Gi", "4Gi"], {CONTAINER: 'container "c1" has 4Gi memory in limits, more than 2Gi'}),
    ],
)
def test_resources_of_the_pod_stand_in_for_those_of_containers(
    of_pod_itself: str | None, own: list[str | None], expected: dict[str, str]
) -> None:
    def limited(amount: str | None) -> dict[str, Any]:
        return {"resources": {"limits": {"memory": amount}} if amount else {}}

    containers = [{"name": f"c{index}", **limited(each)} for index, each in enumerate(own)]
    spec = {**limited(of_pod_itself), "containers": containers}
    assert denial(POLICY, of_pod(spec), {"limits": {"memory": {"max": "2Gi"}}}) == expected


@given(st.tuples(QUANTITY, QUANTITY, QUANTITY))
def test_a_request_is_within_its_range(quantities: tuple[tuple[int, str], ...]) -> None:
    (least, found, most) = (number * SUFFIXES[suffix] for number, suffix in quantities)
    low, value, high = (f"{number}{suffix}" for number, suffix in quantities)
    parameters = {"requests": {"cpu": {"min": low, "max": high}}}
    if least > most:
        with pytest.raises(ValueError, match=r"^requests\.cpu: min .* is more than max "):
            POLICY.prepare(parameters)
        return
    spec = {"initContainers": [{"name": "a", "resources": {"requests": {"cpu": value}}}]}
    problem = f"less than {low}" if found < least else f"more than {high}" if found > most else ""
    message = f'container "a" has {value} cpu in requests, {problem}'
    expected = {"spec.initContainers[0].resources.requests[cpu]": message} if problem else {}
    assert denial(POLICY, of_pod(spec), parameters) == expected


@pytest.mark.parametrize("parameters", [{}, {"limits": {}}, {"requests": {"cpu": {}}, "limits": {}}])
def test_something_has_to_be_required(parameters: dict[str, Any]) -> None:
    schema = ParameterSchema(orjson.dumps(POLICY.parameters).decode())
    (problem,) = schema.problems(orjson.dumps(parameters))
    assert problem.endswith(": {} has less than 1 property")


def test_a_bound_that_is_no_quantity_is_named() -> None:
    with pytest.raises(ValueError, match=r"^limits\.memory\.max: '1GB' is not a quantity: "):
        POLICY.prepare({"limits": {"memory": {"max": "1GB"}}})
