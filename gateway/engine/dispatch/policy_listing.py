"""What a worker says about its policies: ListPolicies and CheckParameters, which are optional methods."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Final

from admission_gateway_worker.pb import worker_pb2
from gateway.engine.dispatch.single_call import NoAnswerError, call_once
from gateway.engine.dispatch.verdicts import one_line

if TYPE_CHECKING:
    from collections.abc import Collection, Mapping

    from gateway.engine.dispatch.dialer import Dialer

    ParameterKey = tuple[str, bytes]
    """Name of a policy, and the JSON of its parameters."""

MAX_CHECKS: Final = 1000
"""Parameters that one worker is asked about at a time."""
CHECKED_WITHIN_S: Final = 5.0
"""How long one worker is asked. A reload waits for it, unless another worker accepts everything."""
_CHECKS_AT_A_TIME: Final = 4


@dataclass(frozen=True, slots=True)
class PolicyListing:
    """The answers of one worker."""

    policies: Mapping[str, bool] | None
    """Whether each policy is mutating, by its name. None if there is no list, for the reason in ``why``."""
    why: str = ""
    schemas: Mapping[str, str] = field(default_factory=dict)
    """The JSON Schema of the parameters of each policy that takes some."""
    versions: Mapping[str, str] = field(default_factory=dict)
    """The version of each policy's code and settings. Empty if the worker does not say."""
    checked: Mapping[ParameterKey, str] = field(default_factory=dict)
    """Why no call can be evaluated with these parameters. Empty if they can be used."""
    unchecked: str = ""
    """Why the worker judged no further parameters. Empty if it judged all that it was asked about."""
    is_reached: bool = True


async def list_policies(dialer: Dialer) -> PolicyListing:
    """Return the policies of the worker at *dialer*. Raises nothing."""
    request = worker_pb2.ListPoliciesRequest().SerializeToString()
    try:
        answer = await call_once(dialer, "ListPolicies", request, worker_pb2.ListPoliciesResponse.FromString)
    except NoAnswerError as error:
        return PolicyListing(None, str(error), is_reached=bool(error.code))
    schemas = {one.name: one.parameters_schema for one in answer.policies if one.parameters_schema}
    versions = {one.name: one.version for one in answer.policies}
    mutating = {one.name: one.mutating for one in answer.policies}
    return PolicyListing(mutating, schemas=schemas, versions=versions)


async def check_parameters(
    dialer: Dialer, listing: PolicyListing, wanted: Collection[ParameterKey]
) -> PolicyListing:
    """Return *listing* with the judgement of the worker at *dialer* about the *wanted* parameters.

    What it judged before is kept, as far as it is wanted. After an error the worker is not asked again.
    """
    checked = {key: problem for key, problem in listing.checked.items() if key in wanted}
    missing = [key for key in wanted if key not in checked]
    pending = iter(missing[:MAX_CHECKS])
    failures: list[str] = []
    now = asyncio.get_running_loop().time
    end = now() + CHECKED_WITHIN_S

    async def ask() -> None:
        for key in pending:
            if now() >= end:
                failures.append(
                    f"CheckParameters: not all parameters were judged within {CHECKED_WITHIN_S:g}s"
                )
            if failures:
                return
            request = worker_pb2.CheckParametersRequest(policy=key[0], parameters=key[1])
            try:
                answer = await call_once(
                    dialer,
                    "CheckParameters",
                    request.SerializeToString(),
                    worker_pb2.CheckParametersResponse.FromString,
                )
            except NoAnswerError as error:
                if error.code != "NOT_FOUND":
                    failures.append(str(error))
                    return
                # The list has the policy: the worker was replaced, and its new list will be read.
                checked[key] = ""
            else:
                checked[key] = one_line(answer.problem)

    await asyncio.gather(*(ask() for _ in range(_CHECKS_AT_A_TIME)))
    if len(missing) > MAX_CHECKS:
        failures.append(f"CheckParameters: {len(missing)} parameters, of which {MAX_CHECKS} are judged")
    return replace(listing, checked=checked, unchecked="".join(failures[:1]))
