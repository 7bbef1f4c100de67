"""The policies that a worker serves, by its method ListPolicies, which is optional."""

from __future__ import annotations

import asyncio
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from google.protobuf.message import DecodeError

from admission_gateway_worker.pb import worker_pb2
from gateway.dispatch.dialer import Unreachable
from gateway.dispatch.unary import SERVICE

if TYPE_CHECKING:
    from collections.abc import Mapping

    from gateway.dispatch.dialer import Dialer
    from gateway.dispatch.rpc import CallStatus

LIST_POLICIES: Final = f"{SERVICE}/ListPolicies"
LISTED_WITHIN_S: Final = 5.0
MAX_LISTING_BYTES: Final = 1024 * 1024
"""Ten thousand policies with a description of 100 characters."""


@dataclass(frozen=True, slots=True)
class PolicyListing:
    """The answer of one worker."""

    policies: Mapping[str, bool] | None
    """For each policy by name, whether it is mutating; None: there is no list, for the reason in ``why``."""
    why: str = ""
    schemas: Mapping[str, str] = field(default_factory=dict)
    """For each policy that takes parameters, their JSON Schema."""


async def list_policies(dialer: Dialer) -> PolicyListing:
    """Return the policies of the worker at *dialer*, over a connection of its own. Raises nothing."""
    listing = _Listing()
    try:
        async with asyncio.timeout(LISTED_WITHIN_S):
            connection = await dialer.dial(LIST_POLICIES, listing)
            try:
                connection.send(worker_pb2.ListPoliciesRequest().SerializeToString())
                connection.finish_writing()
                return await listing.result
            finally:
                connection.abort()
    except Unreachable as error:
        return PolicyListing(None, str(error))
    except TimeoutError:
        return PolicyListing(None, f"{dialer.address}: ListPolicies: no answer within {LISTED_WITHIN_S:g}s")


class _Listing:
    """The messages of one call of ListPolicies."""

    def __init__(self) -> None:
        self.result: asyncio.Future[PolicyListing] = asyncio.get_running_loop().create_future()

    # -- called by the connection -----------------------------------------------------------------

    def received(self, message: bytes | bytearray) -> None:
        """Take the answer."""
        if len(message) > MAX_LISTING_BYTES:
            self._end(PolicyListing(None, f"ListPolicies: an answer of {len(message)} bytes"))
            return
        try:
            answer = worker_pb2.ListPoliciesResponse.FromString(bytes(message))
        except DecodeError:
            self._end(PolicyListing(None, "ListPolicies: no valid ListPoliciesResponse"))
            return
        schemas = {one.name: one.parameters_schema for one in answer.policies if one.parameters_schema}
        policies = {policy.name: policy.mutating for policy in answer.policies}
        self._end(PolicyListing(policies, schemas=schemas))

    def writable(self) -> None:
        """Ignored: the only message is sent."""

    def leaving(self) -> None:
        """Ignored: the answer to the call may follow."""

    def ended(self, status: CallStatus) -> None:
        """The call has ended, perhaps without an answer."""
        self._end(PolicyListing(None, f"ListPolicies: {status.code}: {status.details}"))

    def _end(self, listing: PolicyListing) -> None:
        if not self.result.done():
            self.result.set_result(listing)
