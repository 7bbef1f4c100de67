"""The overview: webhooks in call order with their numbers, endpoints, certificates, configuration."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict
from operator import add
from typing import TYPE_CHECKING, Any, Final

from gateway import __version__
from gateway.base.certificates import certificates as certificates_in
from gateway.base.files import UnusableFileError, read_file
from gateway.base.text import rfc3339
from gateway.engine.dispatch.pool import Pool
from gateway.observe.telemetry.series import COUNTED, Numbers
from gateway.observe.telemetry.timeline import BUCKET_S, BUCKETS
from gateway.observe.telemetry.window import percentile
from gateway.pure.core.disputes import Dispute
from gateway.pure.core.webhook import HttpsClient, WorkerRef
from gateway.server.pages import rollouts
from gateway.server.pages.page_thread import in_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
    from pathlib import Path

    from gateway.base.errors import Problem
    from gateway.config.merge.model import Config
    from gateway.observe.telemetry.exception_uses import Uses
    from gateway.observe.telemetry.series import NumbersKey
    from gateway.observe.telemetry.window import Recent, Window
    from gateway.pure.core.exemptions import PolicyException
    from gateway.pure.core.webhook import Rollout, Webhook
    from gateway.server.pages.state import Json, ProcessState

SHOWN_PROBLEMS: Final = 100
"""Problems of a refused configuration that are shown, and warnings."""
SHOWN_EXCEPTIONS: Final = 200
_TIMELINE: Final = ("calls", "denied", "failedClosed", "failedOpen")


async def part(state: ProcessState, window: Window, only: tuple[str, str, str] | None = None) -> Json:
    """Return the part of this process; with the phase, configuration and name of *only* one webhook."""
    # In a thread, because it reads and parses certificates.
    return await in_thread(_part, state, await window.take(), only)


def _part(state: ProcessState, recent: Recent, only: tuple[str, str, str] | None) -> Json:
    config = state.config
    nothing = Numbers()

    def counted(key: NumbersKey) -> Json:
        return {
            "recent": asdict(recent.window.get(key, nothing)),
            "total": asdict(recent.total.get(key, nothing)),
            "timeline": [(number, *point) for number, point in recent.timeline.get(key, {}).items()],
        }

    refusal = state.refusal
    return {
        "process": {
            "pid": os.getpid(),
            "startedAt": rfc3339(state.started_at),
            "ready": state.not_ready is None,
            "reason": state.not_ready or "",
            "digest": state.snapshot.digest,
            "reviewsInFlight": state.in_flight,
        },
        "windowSeconds": recent.seconds,
        "bucket": recent.bucket,
        "configuration": {
            "digest": state.snapshot.digest,
            "loadedAt": rfc3339(state.loaded_at),
            "loadedAtSeconds": state.loaded_at,
            "refused": None
            if refusal is None
            else {"time": rfc3339(refusal.time), **_problems("problems", refusal.problems)},
            "refusedResources": state.refused_resources,
            **_problems("warnings", config.warnings),
        },
        "faults": list(state.faults[:SHOWN_PROBLEMS]),
        "reviews": {phase: counted((phase, "")) for phase in ("mutate", "validate")},
        "webhooks": [
            _webhook(webhook, state) | counted((webhook.phase, webhook.name))
            for webhook in config.webhooks
            if only in (None, (webhook.phase, webhook.configuration, webhook.name))
        ],
        "pools": [_pool(name, backend) for name, backend in state.snapshot.backends.pools.items()],
        "servers": [
            {"url": client.url, "inFlight": server.calls.count}  # type: ignore[attr-defined]
            for client, server in state.snapshot.backends.servers.items()
        ],
        "certificates": _certificates(config),
        "placement": [
            {"kind": one.policy.kind, "name": one.policy.name, "state": one.state, "reason": one.reason}
            for one in state.placed
        ],
        "exceptions": _exceptions(config.exceptions, state.exception_uses),
        "exceptionsLeftOut": max(len(config.exceptions) - SHOWN_EXCEPTIONS, 0),
        "disputes": [one._asdict() | asdict(seen) for one, seen in tuple(state.disputes.items())],
    }


def _problems(name: str, problems: Sequence[Problem]) -> Json:
    return {
        name: [
            {"where": one.where, "field": one.field, "message": one.message}
            | ({"file": one.file, "line": one.line, "column": one.column} if one.file else {})
            for one in problems[:SHOWN_PROBLEMS]
        ],
        f"{name}LeftOut": max(len(problems) - SHOWN_PROBLEMS, 0),
    }


def _webhook(webhook: Webhook, state: ProcessState) -> Json:
    client = webhook.client
    rollout = state.snapshot.stages.in_force.get(webhook.plan_id, webhook.rollout)
    pool, policy, url = "", "", ""
    if isinstance(client, WorkerRef):
        pool, policy = client.pool, client.policy
    elif isinstance(client, HttpsClient):
        url = client.url
    return {
        "phase": webhook.phase,
        "configuration": webhook.configuration,
        "name": webhook.name,
        "pool": pool,
        "policy": policy,
        "url": url,
        "mode": "Enforce" if rollout is None else rollout.mode,
        "rollout": None if rollout is None else _rollout(rollout),
        "plan": None if (view := state.plans.get(webhook.plan_id)) is None else rollouts.summary(view),
        "failurePolicy": webhook.failure_policy,
        "timeoutSeconds": webhook.timeout_s,
        "sideEffects": webhook.side_effects,
    }


def _rollout(rollout: Rollout) -> Json:
    enforce, candidate = rollout.enforce, rollout.candidate
    return {
        "enforce": None
        if enforce is None
        else {
            "hasNamespaceSelector": not enforce.namespace_selector.is_empty,
            "percentOfNamespaces": enforce.percent_of_namespaces,
            "after": rfc3339(enforce.after_s) if enforce.after_s else "",
        },
        "percentOfReviewsForCandidate": 0.0 if candidate is None else candidate.percent_of_reviews,
    }


def _pool(name: str, backend: object) -> Json:
    assert isinstance(backend, Pool)
    return {
        "name": name,
        "endpoints": [
            {
                "address": one.address,
                "name": backend.name_of(one.address),
                "state": one.state,
                "inFlight": one.calls.count,
            }
            for one in backend.endpoints
        ],
    }


def _certificates(config: Config) -> list[Json]:
    """Return each certificate of *config* with its use, names, fingerprint and expiry.

    Those in files are as the files are now. A file that cannot be read has an entry with ``problem``.
    """
    return [entry for use, pem in _certificate_sources(config) for entry in _certificate_entries(use, pem)]


def _certificate_sources(config: Config) -> Iterator[tuple[str, Path | bytes]]:
    """Yield the use of each set of certificates, and the file or the PEM."""
    tls = config.gateway.tls
    for use, file in (("serving", tls.cert_file), ("clients: CA", tls.client_ca_file)):
        if file is not None:
            yield use, file
    for name, pool in sorted(config.pools.items()):
        if pool.tls is not None:
            roots = pool.tls.ca_bundle or pool.tls.ca_file
            if roots is not None:
                yield f"pool {name}: CA", roots
            if pool.tls.cert_file is not None:
                yield f"pool {name}: client", pool.tls.cert_file
    hooks = config.webhooks
    clients = {client: None for hook in hooks for client in hook.clients if isinstance(client, HttpsClient)}
    for client in clients:
        if client.ca_pem:
            yield f"{client.url}: CA", client.ca_pem


def _certificate_entries(use: str, source: Path | bytes) -> Iterator[Json]:
    # Imported late: see gateway.base.certificates.
    from cryptography.hazmat.primitives.hashes import SHA256

    file = "" if isinstance(source, bytes) else str(source)
    try:
        pem = source if isinstance(source, bytes) else read_file(source)
        found = certificates_in(pem)
    except UnusableFileError as error:
        yield {"use": use, "file": file, "problem": str(error), "notAfter": "", "notAfterSeconds": 0.0}
        return
    for one in found:
        end = one.not_valid_after_utc.timestamp()
        yield {
            "use": use,
            "file": file,
            "subject": one.subject.rfc4514_string(),
            "issuer": one.issuer.rfc4514_string(),
            "sha256": one.fingerprint(SHA256()).hex(),
            "notAfter": rfc3339(end),
            "notAfterSeconds": end,
            "problem": "",
        }


def _exceptions(exceptions: Sequence[PolicyException], uses: Mapping[str, Uses]) -> list[Json]:
    """Return the first *exceptions* by id, each with its *uses* by this process; null if not counted."""
    found = []
    for one in exceptions[:SHOWN_EXCEPTIONS]:
        used = uses.get(one.id)
        found.append(
            {
                "name": one.id,
                "webhooks": list(one.webhooks),
                "reason": one.reason,
                "owner": one.owner,
                "expires": one.expires,
                "expiresAtSeconds": one.expires_at,
                "uses": None if used is None else used.number,
                "lastUseSeconds": 0.0 if used is None else used.last_at,
            }
        )
    return found


# -- the merge ------------------------------------------------------------------------------------


def merge(parts: Sequence[Json], now: float) -> Json:
    """Return the overview of the gateway by the *parts* of its processes, at least one.

    The configuration is that of the first; each process is listed with its own digest. *now* is in seconds
    since 1970.
    """
    first = parts[0]
    seconds = sum(part["windowSeconds"] for part in parts) / len(parts)
    bucket = max(part["bucket"] for part in parts)
    in_flight = sum(part["process"]["reviewsInFlight"] for part in parts)
    return {
        "time": rfc3339(now),
        "version": __version__,
        "ready": any(part["process"]["ready"] for part in parts),
        "processes": [part["process"] for part in parts],
        "configuration": {
            **_without(first["configuration"], "loadedAtSeconds"),
            "refused": next((c["refused"] for c in _each(parts, "configuration") if c["refused"]), None),
            "ageSeconds": round(now - first["configuration"]["loadedAtSeconds"]),
            "isSameInAllProcesses": len({part["process"]["digest"] for part in parts}) == 1,
        },
        "faults": list(dict.fromkeys(fault for part in parts for fault in part["faults"])),
        "windowSeconds": round(seconds),
        "timelineBucketSeconds": BUCKET_S,
        "reviews": {
            "inFlight": in_flight,
            **{
                phase: _counts([part["reviews"][phase] for part in parts], seconds, bucket, _outcomes)
                for phase in ("mutate", "validate")
            },
        },
        "webhooks": _merged_webhooks(parts, seconds, bucket),
        "pools": _merged_pools(parts),
        "servers": [
            {"url": url, "inFlight": sum(in_flight)}
            for url, in_flight in _grouped(parts, "servers", "url", "inFlight").items()
        ],
        "certificates": [
            _without(one, "notAfterSeconds")
            | {"remainingSeconds": None if one["problem"] else round(one["notAfterSeconds"] - now)}
            for one in first["certificates"]
        ],
        "placement": _merged_placement(parts),
        "exceptions": _merged_exceptions(_each(parts, "exceptions"), now),
        "exceptionsLeftOut": first["exceptionsLeftOut"],
        "disputes": _merged_disputes(_each(parts, "disputes"), now),
    }


def _without(found: Json, *members: str) -> Json:
    return {name: value for name, value in found.items() if name not in members}


def _each(parts: Iterable[Json], member: str) -> list[Any]:
    return [part[member] for part in parts]


def _grouped(parts: Iterable[Json], member: str, key: str, value: str) -> dict[str, list[Any]]:
    found: dict[str, list[Any]] = {}
    for part in parts:
        for one in part[member]:
            found.setdefault(one[key], []).append(one[value])
    return found


def _merged_placement(parts: Sequence[Json]) -> list[Json]:
    """Return each policy once: in the state of the process that is behind, with the reason of any."""
    found: dict[tuple[str, str], list[Json]] = {}
    for part in parts:
        for one in part["placement"]:
            found.setdefault((one["kind"], one["name"]), []).append(one)
    behind = ("Gateway", "Moving", "Returning", "APIServer")
    return [
        min(seen, key=lambda one: behind.index(one["state"]))
        | {"reason": next((one["reason"] for one in seen if one["reason"]), "")}
        for _, seen in sorted(found.items())
    ]


def _merged_webhooks(parts: Sequence[Json], seconds: float, bucket: int) -> list[Json]:
    """Return the webhooks of the first part; the others may have another configuration for a moment."""
    found: dict[tuple[str, str, str], list[Json]] = {}
    for part in parts:
        for webhook in part["webhooks"]:
            found.setdefault(_identity(webhook), []).append(webhook)
    return [
        _without(webhook, "recent", "total", "timeline")
        | _counts(found[_identity(webhook)], seconds, bucket, _outcomes_of_webhook)
        for webhook in parts[0]["webhooks"]
    ]


def _identity(webhook: Json) -> tuple[str, str, str]:
    return webhook["phase"], webhook["configuration"], webhook["name"]


def _counts(
    counted: Sequence[Json], seconds: float, bucket: int, outcomes: Callable[[Numbers], Json]
) -> Json:
    """Return the sums of *counted*, with rates, *outcomes* and percentiles of ``recent`` and ``total``.

    The ``timeline`` ends with the half minute *bucket*.
    """
    recent, total = (_sum(_each(counted, member)) for member in ("recent", "total"))
    calls = sum(recent.buckets)
    return {
        "recent": {
            "count": calls,
            "perSecond": round(calls / seconds, 3) if seconds > 0 else 0.0,
            **outcomes(recent),
            "p50Ms": _milliseconds(recent, 0.5),
            "p99Ms": _milliseconds(recent, 0.99),
        },
        "total": {"count": sum(total.buckets), **outcomes(total)},
        "timeline": _timeline(counted, bucket),
    }


def _timeline(counted: Sequence[Json], last: int) -> dict[str, list[int]] | None:
    """Return the sums of half minutes, the *last* one at the end; None if nothing was counted in them."""
    rows = [[0] * BUCKETS for _ in _TIMELINE]
    for bucket, *point in (one for each in counted for one in each["timeline"]):
        if last - BUCKETS < bucket:
            for row, number in zip(rows, point, strict=True):
                row[bucket - last - 1] += number
    return dict(zip(_TIMELINE, rows, strict=True)) if any(map(any, rows)) else None


def _sum(counted: Sequence[Json]) -> Numbers:
    found = Numbers()
    for one in counted:
        if one["buckets"]:
            found.buckets = list(map(add, found.buckets, one["buckets"])) if found.buckets else one["buckets"]
        for name in COUNTED:
            setattr(found, name, getattr(found, name) + one[name])
    return found


def _outcomes(numbers: Numbers) -> Json:
    return {
        "denied": numbers.denied,
        "failedClosed": numbers.failed_closed,
        "failedOpen": numbers.failed_open,
    }


def _outcomes_of_webhook(numbers: Numbers) -> Json:
    return {
        **_outcomes(numbers),
        "wouldBeDenied": numbers.would_be_denied,
        "wouldFailClosed": numbers.would_fail_closed,
        "candidate": {
            "compared": numbers.compared,
            "different": numbers.different,
            "newlyDenied": numbers.newly_denied,
            "newlyAllowed": numbers.newly_allowed,
            "failed": numbers.candidate_failed,
        },
    }


def _milliseconds(numbers: Numbers, part: float) -> float | None:
    seconds = percentile(numbers.buckets, part)
    return None if seconds is None else round(seconds * 1000, 3)


def _merged_pools(parts: Sequence[Json]) -> list[Json]:
    """Return the pools with their endpoints by address, and in how many processes each has which state."""
    pools: dict[str, dict[str, Json]] = {}
    for part in parts:
        for pool in part["pools"]:
            addresses = pools.setdefault(pool["name"], {})
            for one in pool["endpoints"]:
                merged = {"address": one["address"], "name": one["name"], "states": Counter(), "inFlight": 0}
                found = addresses.setdefault(one["address"], merged)
                found["states"][one["state"]] += 1
                found["inFlight"] += one["inFlight"]
    return [
        {
            "name": name,
            "ready": sum(list(one["states"]) == ["ready"] for one in addresses.values()),
            "endpoints": [one | {"states": dict(one["states"])} for one in addresses.values()],
        }
        for name, addresses in pools.items()
    ]


def _merged_exceptions(parts: Iterable[Sequence[Json]], now: float) -> list[Json]:
    """Return the exceptions of the *parts* of all processes; *now* is in seconds since 1970."""
    found: dict[str, Json] = {}
    for one in (one for exceptions in parts for one in exceptions):
        known = found.setdefault(one["name"], one)
        if known is not one and one["uses"] is not None:
            known["uses"] = (known["uses"] or 0) + one["uses"]
            known["lastUseSeconds"] = max(known["lastUseSeconds"], one["lastUseSeconds"])
    return [_exception(one, now) for one in found.values()]


def _merged_disputes(parts: Iterable[Sequence[Json]], now: float) -> list[Json]:
    """Return what the processes found of webhooks that do not come to rest, the last one first."""
    found: dict[Dispute, list[Json]] = {}
    for one in (one for disputes in parts for one in disputes):
        found.setdefault(Dispute(*(one[name] for name in Dispute._fields)), []).append(one)
    merged = []
    for dispute, several in found.items():
        last = max(several, key=lambda one: float(one["last_at"]))
        merged.append(
            {
                **dispute._asdict(),
                "message": dispute.line(),
                "reviews": sum(one["number"] for one in several),
                "last": rfc3339(last["last_at"]),
                "ageSeconds": round(now - last["last_at"]),
                "lastObject": last["example"],
            }
        )
    return sorted(merged, key=lambda one: one["ageSeconds"])


def _exception(one: Json, now: float) -> Json:
    end, last_use = one["expiresAtSeconds"], one["lastUseSeconds"]
    members = ("name", "webhooks", "reason", "owner", "expires", "uses")
    return {
        **{name: one[name] for name in members},
        "remainingSeconds": None if end is None else round(end - now),
        "lastUse": rfc3339(last_use) if last_use else "",
    }
