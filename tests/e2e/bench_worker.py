"""The ten policies of ``tools/policy``, with the Python SDK: ``python -m tests.e2e.bench_worker``."""

from __future__ import annotations

from admission_gateway_worker import Denied, PolicyServer, Review

POLICIES = 10
LABEL = "refused-by"

server = PolicyServer()


def serve(name: str) -> None:
    """Serve the policy *name*: it denies what carries the label with its name."""

    @server.policy(name)
    def policy(review: Review) -> None:
        metadata = (review.object or {}).get("metadata") or {}
        if (metadata.get("labels") or {}).get(LABEL) == name:
            raise Denied(f"label {LABEL} names this policy")


for number in range(POLICIES):
    serve(f"policy-{number}")

if __name__ == "__main__":
    server.main()
