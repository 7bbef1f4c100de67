"""The rule by which the workers of a pool reject a policy with its parameters."""

from __future__ import annotations

import json
from typing import Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gateway.engine.dispatch.policy_listing import PolicyListing
from gateway.engine.policy_mismatch import Rejection, rejection
from gateway.pure.core.webhook import WorkerRef

PARAMETERS: Final = b'{"max":"3"}'
REF: Final = WorkerRef("p", "limit", PARAMETERS)
OPEN: Final = json.dumps({"type": "object"})
CLOSED: Final = json.dumps({"properties": {"max": {"type": "integer"}}})
KEY: Final = ("limit", PARAMETERS)
LIMIT: Final = {"limit": False}

ACCEPTING: Final = (
    PolicyListing(LIMIT, schemas={"limit": OPEN}),
    PolicyListing(LIMIT, schemas={"limit": OPEN}, checked={KEY: ""}),
    PolicyListing(LIMIT, schemas={"limit": OPEN}, unchecked="CheckParameters: UNIMPLEMENTED: "),
    # A schema that cannot be used decides nothing.
    PolicyListing(LIMIT, schemas={"limit": "{"}),
)
UNKNOWN: Final = (
    PolicyListing(None, "ListPolicies: UNIMPLEMENTED: "),
    PolicyListing(None, "a:1: ListPolicies: no answer within 5s"),
)
UNREACHABLE: Final = (PolicyListing(None, "a:1: Connection refused", is_reached=False),)
REJECTING: Final = (
    PolicyListing({}),
    PolicyListing({"limits": False}),
    PolicyListing(LIMIT),
    PolicyListing(LIMIT, schemas={"limit": CLOSED}),
    PolicyListing(LIMIT, schemas={"limit": OPEN}, checked={KEY: "no number"}),
    PolicyListing(LIMIT, schemas={"limit": "{"}, checked={KEY: "no number"}),
)
ANY: Final = (*ACCEPTING, *UNKNOWN, *UNREACHABLE, *REJECTING)


@given(st.lists(st.sampled_from(ANY), max_size=6))
def test_a_policy_is_rejected_if_all_reachable_workers_reject_it_and_there_is_one(
    listings: list[PolicyListing],
) -> None:
    found = rejection(REF, listings)
    reached = [one for one in listings if one not in UNREACHABLE]
    assert (found is not None) == (bool(reached) and all(one in REJECTING for one in reached))
    # Neither the order of the workers nor another one that says the same changes it, nor its text.
    assert rejection(REF, [*reversed(listings), *listings]) == found


@pytest.mark.parametrize(
    ("listings", "expected"),
    [
        (
            [PolicyListing({"limits": False})],
            Rejection("policy", 'found "limit", which no worker of pool "p" serves; did you mean "limits"?'),
        ),
        (
            [PolicyListing(LIMIT, schemas={"limit": CLOSED}), PolicyListing({})],
            Rejection(
                "parameters.max",
                'found the string "3", expected a value of type integer (no worker of pool "p" accepts it)',
            ),
        ),
        (
            [PolicyListing(LIMIT, schemas={"limit": OPEN}, checked={KEY: "no number: 3"})],
            Rejection("parameters", 'no number: 3 (no worker of pool "p" accepts it)'),
        ),
    ],
)
def test_a_rejection_names_the_field(listings: list[PolicyListing], expected: Rejection) -> None:
    assert rejection(REF, listings) == expected


def test_parameters_that_a_namespace_completes_are_not_judged_as_a_whole() -> None:
    schema = json.dumps({"required": ["min"], "properties": {"max": {"type": "integer"}}})
    whole, partial = (WorkerRef("p", "limit", b'{"max":3}', key) for key in ("", "example.com/limit"))
    listing = PolicyListing(LIMIT, schemas={"limit": schema}, checked={("limit", b'{"max":3}'): "no min"})
    assert rejection(whole, [listing]) is not None
    assert rejection(partial, [listing]) is None
