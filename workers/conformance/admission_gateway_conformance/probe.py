"""Finds out which methods and policies a worker serves, before any rule is checked."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import grpc
from google.protobuf.message import DecodeError

from admission_gateway_conformance.answers import code_name, kind
from admission_gateway_conformance.requests import SAMPLES, pod
from admission_gateway_conformance.rule import ANSWER_S, Violation
from admission_gateway_conformance.rules.health import CHECK, WATCH, request
from admission_gateway_conformance.rules.unary import UNKNOWN
from admission_gateway_conformance.stream import CallSpec
from admission_gateway_conformance.worker import CHAINS, CHECK_PARAMETERS, LIST, SERVICE, Facts, Worker
from admission_gateway_worker.pb import worker_pb2 as pb
from gateway.base.errors import GatewayError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from admission_gateway_conformance.target import Target
    from admission_gateway_conformance.vectors import Vector

_UNSERVED: Final = "UNIMPLEMENTED"
_BY_CHOICE: Final = "deny-latest-tag"
"""Its answer depends on the Pod, and it needs no waiting."""


async def probe(
    target: Target, policy: str | None, vectors: Sequence[Vector], patience: float = 1.0
) -> Facts:
    """Return the facts about the worker; *policy* is the policy for rules that accept any, None: choose one.

    *patience* is that of the facts.

    Raises:
        GatewayError: the target is not a policy worker, or does not serve *policy*.
    """
    facts = Facts(methods={"Review"}, patience=patience)
    async with Worker(target, facts) as worker:
        names = await _listed(worker, facts)
        await _look_at_methods(worker, facts)
        facts.samples = await _samples(worker, names)
        facts.vectors = tuple(vector for vector in vectors if vector.policy in facts.samples)
        chosen = [_BY_CHOICE] if _BY_CHOICE in facts.samples else [*(names or sorted(facts.samples)), ""]
        facts.policy = policy or chosen[0]
        if facts.policy:
            try:
                answer = await worker.review(facts.policy, pod())
            except Violation as violation:
                raise GatewayError(f"the worker violates the protocol: {violation}") from None
            facts.baseline = kind(answer)
            if isinstance(answer, pb.Error) and facts.baseline in (_UNSERVED, "NOT_FOUND", "UNAVAILABLE"):
                raise GatewayError(
                    f'a review by policy "{facts.policy}" failed with {facts.baseline} {answer.message}'
                )
        if "ReviewStream" in facts.methods and await _has_chains(worker):
            facts.methods.add(CHAINS)
    return facts


async def _listed(worker: Worker, facts: Facts) -> list[str]:
    """Return the names in ListPolicies, none if the method is not served."""
    answer = await worker.call(LIST, b"")
    if isinstance(answer, pb.Error):
        if code_name(answer) != _UNSERVED:
            facts.methods.add("ListPolicies")
        return []
    facts.methods.add("ListPolicies")
    try:
        return [policy.name for policy in pb.ListPoliciesResponse.FromString(answer).policies]
    except DecodeError:
        return []


async def _look_at_methods(worker: Worker, facts: Facts) -> None:
    for name, method, message in (("Check", CHECK, request("")), ("CheckParameters", CHECK_PARAMETERS, b"")):
        answer = await worker.call(method, message)
        if not isinstance(answer, pb.Error) or code_name(answer) != _UNSERVED:
            facts.methods.add(name)
    call = worker.watch(WATCH, request(""))
    try:
        is_served = isinstance(await call.read(), bytes) or await call.code() != grpc.StatusCode.UNIMPLEMENTED
    except grpc.aio.AioRpcError as error:
        is_served = error.code() != grpc.StatusCode.UNIMPLEMENTED
    finally:
        call.cancel()
    if is_served:
        facts.methods.add("Watch")
    try:
        async with worker.stream() as stream:
            await stream.half_close()
            if code_name(await stream.end()) == _UNSERVED:
                return
    except Violation:
        pass  # a rule reports it
    facts.methods.add("ReviewStream")


async def _has_chains(worker: Worker) -> bool:
    """Return whether the verdict of a call with `after` is marked as chained."""
    policy = worker.policy or UNKNOWN
    try:
        async with worker.stream() as stream:
            await stream.send([CallSpec(1, policy), CallSpec(2, policy, after=1)], [pod()])
            await stream.verdict(2)
            return 2 in stream.chained
    except Violation:
        return True  # a rule reports it


async def _samples(worker: Worker, names: Sequence[str]) -> set[str]:
    """Return the sample policies that are served; without ListPolicies, those that answer."""
    if names:
        return set(SAMPLES).intersection(names)
    served = set()
    for policy in SAMPLES:
        is_asleep = policy == "sleeps"
        try:
            answer = await worker.review(policy, pod(), timeout_s=0.1 if is_asleep else ANSWER_S)
        except Violation:
            continue
        if policy == SAMPLES[0] and kind(answer) == _UNSERVED:
            raise GatewayError(f"the target is not a policy worker: it does not serve Review of {SERVICE}")
        expected = (
            ("DEADLINE_EXCEEDED",)
            if is_asleep
            else ("INTERNAL",)
            if policy == "fails"
            else ("allowed", "denied")
        )
        if kind(answer) in expected:
            served.add(policy)
    return served
