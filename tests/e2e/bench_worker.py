"""The policies of ``sdk_worker``, with the Python SDK: ``python -m tests.e2e.bench_worker``."""

from __future__ import annotations

from admission_gateway_worker import Denied, PolicyServer, Review

POLICIES = 10
LABEL = "refused-by"
APPLIED = "applied"

server = PolicyServer()


def serve(name: str, *, sets_label: bool) -> None:
    """Serve the policy *name*: it denies what carries the label with its name.

    *sets_label*: it also sets the label of its name.
    """

    @server.policy(name, mutating=sets_label)
    def policy(review: Review) -> None:
        metadata = (review.object or {}).get("metadata") or {}
        if (metadata.get("labels") or {}).get(LABEL) == name:
            raise Denied(f"label {LABEL} names this policy")
        if sets_label:
            review.object["metadata"].setdefault("labels", {})[name] = APPLIED


for number in range(POLICIES):
    serve(f"policy-{number}", sets_label=False)
    serve(f"label{number}", sets_label=True)

if __name__ == "__main__":
    server.main()
