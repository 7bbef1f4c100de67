"""The right of a user to approve or sign certificate requests of a signer.

Source: kubernetes pkg/certauthorization.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from admission_gateway_worker.policies.cluster import connect

if TYPE_CHECKING:
    from admission_gateway_worker import Review


async def may(review: Review, verb: str, signer: str) -> bool:
    """Whether the user has the right *verb* on *signer* or on all signers of its domain.

    Raises:
        ClusterError: the API server cannot be asked.
    """
    for name in (signer, f"{signer.partition('/')[0]}/*"):
        found = await connect().access_review(
            review.user_info,
            verb=verb,
            name=name,
            group="certificates.k8s.io",
            version="*",
            resource="signers",
        )
        if found.is_allowed and not found.error:
            return True
    return False
