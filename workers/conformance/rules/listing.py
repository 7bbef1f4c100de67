"""The rules of ``ListPolicies``, which is for people and tools."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from gateway.pb import worker_pb2 as pb
from workers.conformance.answers import in_words, kind
from workers.conformance.requests import SAMPLES, pod
from workers.conformance.rule import Breach, Group, expect
from workers.conformance.worker import LIST

if TYPE_CHECKING:
    from workers.conformance.worker import Worker

_ASKED: Final = "ListPolicies"
_MUTATING: Final = frozenset(
    ("always-pull-images", "inject-sidecar", "default-resources", "team-from-namespace")
)
_MOST_ASKED: Final = 100

LISTING: Final = Group("ListPolicies", "ListPolicies", "Methods")


@LISTING.rule("lists each policy once, and by its name", asks_a_policy=False)
async def list_unique(worker: Worker) -> str:
    """At least one: a worker without any has nothing to say."""
    names = [policy.name for policy in await listed(worker)]
    twice = sorted({name for name in names if names.count(name) > 1})
    expect(bool(names), _ASKED, "no policy", "at least one")
    expect(all(names), _ASKED, "a policy without a name", "names")
    expect(not twice, _ASKED, f"{twice[:1]} twice", "each name once")
    return f"{len(names)} policies"


@LISTING.rule("serves what it lists", asks_a_policy=False)
async def list_served(worker: Worker) -> None:
    """By Review, with whatever answer but NOT_FOUND."""
    for policy in (await listed(worker))[:_MOST_ASKED]:
        answer = await worker.review(policy.name, pod(), within_s=0.2 if policy.name == "sleeps" else 5)
        expect(
            kind(answer) != "NOT_FOUND", f"Review of {policy.name}, which is listed", in_words(answer), "it"
        )


@LISTING.rule("lists as mutating the policies that send patches", asks_a_policy=False)
async def list_mutating(worker: Worker) -> None:
    """No policy that is listed as not mutating has answered any rule with a patch."""
    for policy in await listed(worker):
        if policy.name in worker.facts.mutating:
            expect(policy.mutating, f"{_ASKED}, after a patch of {policy.name}", "not mutating", "mutating")
        elif policy.name in SAMPLES:
            expected = policy.name in _MUTATING
            expect(
                policy.mutating == expected, f"{_ASKED}: {policy.name}", _word(not expected), _word(expected)
            )


async def listed(worker: Worker) -> list[pb.Policy]:
    """Return what ListPolicies says.

    Raises:
        Breach: it is no such list.
    """
    answer = await worker.call(LIST, b"")
    if isinstance(answer, pb.Error):
        raise Breach(_ASKED, in_words(answer), "a list")
    try:
        return list(pb.ListPoliciesResponse.FromString(answer).policies)
    except DecodeError as error:
        raise Breach(_ASKED, f"{len(answer)} bytes: {error}", "a ListPoliciesResponse") from None


def _word(is_mutating: bool) -> str:
    return "mutating" if is_mutating else "not mutating"
