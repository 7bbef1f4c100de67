"""The targets beside the peers: the gateway with a Python worker or with documents, compared with others."""

from __future__ import annotations

from typing import Final

from loadtest.targets import times

CHAIN: Final = "reviews/s, of those of the Go chain"

TARGETS: Final = (
    *(
        times(
            "12",
            f"{which.upper()}, connections: {connections}; {CHAIN}",
            f"{which}-{connections}-python",
            f"{which}-{connections}-chain",
            "at least",
            limit,
            "reviews_per_s",
        )
        for which, connections, limit in (("v4", 1, 0.85), ("v4", 16, 1.3), ("v4", 64, 1.5), ("v10", 16, 1.0))
    ),
    times(
        "12",
        "V4, one connection: p99, of that of OPA",
        *("v4-1-python", "v4-1-opa", "below", 1.0, "p99_ms"),
    ),
    times(
        "12",
        "M4: CPU of gateway and worker, of that of the Go chain",
        *("m4-16-python", "m4-16-chain", "at most", 0.9, "total_us"),
    ),
    times(
        "12",
        "M4: median, of that of the Go chain",
        *("m4-16-python", "m4-16-chain", "at most", 1.5, "p50_ms"),
    ),
    times(
        "12",
        "V10 as policies of Kyverno in the gateway: reviews/s, of those of Kyverno",
        *("v10-16-kyverno-documents", "v10-16-kyverno-cel", "at least", 5.0, "reviews_per_s"),
    ),
    *(
        times(
            "35",
            f"{which.upper()} as {form}, in the worker of {engine}: reviews/s, of those of {engine}",
            *(f"{which}-16-{subject}", f"{which}-16-{peer}", "at least", 1.5, "reviews_per_s"),
        )
        for form, engine, subject, peer in (
            ("Rego", "Gatekeeper", "gatekeeper-worker", "gatekeeper-rego"),
            ("ClusterPolicies", "Kyverno", "kyverno-worker", "kyverno-patterns"),
        )
        for which in ("v4", "v10")
    ),
)
