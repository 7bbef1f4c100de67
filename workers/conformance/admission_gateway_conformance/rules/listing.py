"""Rules of ``ListPolicies``, which is for people and tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import orjson
from google.protobuf.message import DecodeError

from admission_gateway_conformance.answers import describe, kind
from admission_gateway_conformance.requests import SAMPLES, pod
from admission_gateway_conformance.rule import Group, Violation, expect
from admission_gateway_conformance.worker import LIST
from admission_gateway_worker.pb import worker_pb2 as pb

if TYPE_CHECKING:
    from admission_gateway_conformance.worker import Worker

_METHOD: Final = "ListPolicies"
_MUTATING: Final = frozenset(
    ("always-pull-images", "inject-sidecar", "default-resources", "team-from-namespace")
)
_MOST_CALLS: Final = 100

LISTING: Final = Group("ListPolicies", "ListPolicies", "Methods")


@LISTING.rule("lists each policy once, with its name", needs_policy=False)
async def list_unique(worker: Worker) -> str:
    """At least one policy."""
    names = [policy.name for policy in await listed(worker)]
    twice = sorted({name for name in names if names.count(name) > 1})
    expect(bool(names), _METHOD, "no policy", "at least one")
    expect(all(names), _METHOD, "a policy without a name", "names")
    expect(not twice, _METHOD, f"{twice[:1]} twice", "each name once")
    return f"{len(names)} policies"


@LISTING.rule("serves all listed policies", needs_policy=False)
async def list_served(worker: Worker) -> None:
    """A Review of each policy has any answer except NOT_FOUND."""
    for policy in (await listed(worker))[:_MOST_CALLS]:
        answer = await worker.review(policy.name, pod(), timeout_s=0.2 if policy.name == "sleeps" else 5)
        expect(
            kind(answer) != "NOT_FOUND",
            f"Review of {policy.name}",
            describe(answer),
            "any other answer",
        )


@LISTING.rule("lists policies that send patches as mutating", needs_policy=False)
async def list_mutating(worker: Worker) -> None:
    """Patches of all earlier rules are considered."""
    for policy in await listed(worker):
        if policy.name in worker.facts.mutating:
            expect(policy.mutating, f"{_METHOD}, after a patch of {policy.name}", "not mutating", "mutating")
        elif policy.name in SAMPLES:
            expected = policy.name in _MUTATING
            expect(
                policy.mutating == expected, f"{_METHOD}: {policy.name}", _name(not expected), _name(expected)
            )


@LISTING.rule(
    "lists the JSON Schema of the parameters of each policy that takes any",
    section="Parameters",
    samples=("limit-replicas",),
    needs_policy=False,
)
async def list_parameters(worker: Worker) -> None:
    """The gateway checks parameters by it."""
    for policy in await listed(worker):
        action, schema = f"ListPolicies: {policy.name}", policy.parameters_schema
        if schema:
            try:
                found = orjson.loads(schema)
            except ValueError:
                found = None
            expect(isinstance(found, dict), action, schema[:80], "a JSON Schema, an object")
        if policy.name == "limit-replicas":
            expect(bool(schema), action, "no parameters_schema", "its JSON Schema")


async def listed(worker: Worker) -> list[pb.Policy]:
    """Return the answer of ListPolicies.

    Raises:
        Violation: an error, or a malformed answer.
    """
    answer = await worker.call(LIST, b"")
    if isinstance(answer, pb.Error):
        raise Violation(_METHOD, describe(answer), "a list")
    try:
        return list(pb.ListPoliciesResponse.FromString(answer).policies)
    except DecodeError as error:
        raise Violation(_METHOD, f"{len(answer)} bytes: {error}", "a ListPoliciesResponse") from None


def _name(is_mutating: bool) -> str:
    return "mutating" if is_mutating else "not mutating"
