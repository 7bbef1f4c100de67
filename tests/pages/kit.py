"""The JSON of each page, with texts of choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from gateway.observe.telemetry.series import COUNTED
from gateway.server.pages.documents import merge
from gateway.server.pages.state import PageRequest

if TYPE_CHECKING:
    from collections.abc import Callable


def counts(**given: int) -> dict[str, Any]:
    none = {"buckets": [], **dict.fromkeys(COUNTED, 0)}
    timeline = [[90, 5, *(given.get(name, 0) for name in ("denied", "failed_closed", "failed_open"))]]
    return {"recent": {**none, **given}, "total": {**none, **given}, "timeline": timeline}


def overview_part(text: Callable[[str], str] = str, **given: int) -> dict[str, Any]:
    """Return the part of one process; each text of foreign origin is *text* of a usual one."""
    problem = {"where": text("a.yaml"), "field": text("spec"), "message": text("is wrong")}
    endpoint = {"name": text("policies.team.svc:50051")}
    webhook = {
        "name": text("a.b.c"),
        "configuration": text("conf"),
        "mode": "Warn",
        "rollout": {
            "enforce": {
                "hasNamespaceSelector": True,
                "percentOfNamespaces": 25,
                "after": "2026-12-01T00:00:00Z",
            },
            "percentOfReviewsForCandidate": 10.0,
        },
        "plan": {
            "name": text("0123456789abcdef"),
            "stage": 2,
            "stages": 5,
            "phase": "Paused",
            "reason": text("maxNewlyDenied: 1, such as team Pod/a, expected at most 0"),
            "gates": [text("fail: maxNewlyDenied: 1, expected at most 0")],
            "waitsFor": [text("paused by ann: holidays")],
        },
        "failurePolicy": "Fail",
        "timeoutSeconds": 10,
        "sideEffects": "None",
        **counts(**given),
    }
    return {
        "process": {
            "pid": 7,
            "startedAt": "2026-01-01T00:00:00Z",
            "ready": False,
            "reason": text("starting"),
            "digest": text("d" * 64),
            "reviewsInFlight": 3,
        },
        "windowSeconds": 60.0,
        "bucket": 100,
        "configuration": {
            "digest": text("d" * 64),
            "loadedAt": "2026-01-01T00:00:00Z",
            "loadedAtSeconds": 1e9,
            "refused": {"time": "2026-01-01T00:00:00Z", "problems": [problem], "problemsLeftOut": 2},
            "refusedResources": 1,
            "warnings": [problem],
            "warningsLeftOut": 0,
        },
        "placement": [
            {
                "kind": "ValidatingAdmissionPolicy",
                "name": text("p"),
                "state": "Gateway",
                "reason": text("spec.paramKind"),
            }
        ],
        "faults": [text("pool a: no worker is reachable")],
        "reviews": {"mutate": counts(**given), "validate": counts(**given)},
        "webhooks": [
            {**webhook, "phase": "mutate", "pool": text("pool"), "policy": text("policy"), "url": ""},
            {**webhook, "phase": "validate", "pool": "", "policy": "", "url": text("https://a.example/")},
        ],
        "pools": [
            {
                "name": text("pool"),
                "endpoints": [
                    {**endpoint, "address": text("ipv4:10.0.0.1:50051"), "state": "ready", "inFlight": 2},
                    {**endpoint, "address": text("ipv4:10.0.0.2:50051"), "state": "down", "inFlight": 0},
                ],
            },
            {"name": text("empty"), "endpoints": []},
        ],
        "servers": [{"url": text("https://a.example/"), "inFlight": 1}],
        "certificates": [
            {
                "use": text("serving"),
                "file": text("tls.crt"),
                "subject": text("CN=a"),
                "issuer": text("CN=ca"),
                "sha256": "ab",
                "notAfter": "2026-01-01T00:00:00Z",
                "notAfterSeconds": 2e9,
                "problem": "",
            },
            {
                "use": text("clients: CA"),
                "file": text("ca.crt"),
                "problem": text("cannot be read"),
                "notAfter": "",
                "notAfterSeconds": 0.0,
            },
        ],
        "exceptions": [
            {
                "name": text("shop/importer"),
                "webhooks": [text("h0.a.test")],
                "reason": text("the importer is replaced"),
                "owner": text("team-shop"),
                "expires": "2026-01-01T00:00:00Z",
                "expiresAtSeconds": 1767225600.0,
                "uses": 3,
                "lastUseSeconds": 1.7e9,
            },
            {
                "name": text("unused"),
                "webhooks": [],
                "reason": text("r"),
                "owner": text("o"),
                "expires": "",
                "expiresAtSeconds": None,
                "uses": None,
                "lastUseSeconds": 0.0,
            },
        ],
        "exceptionsLeftOut": 1,
        "disputes": [
            {
                "kind": "own_result",
                "webhook": text("m.hooks.test"),
                "other": "",
                "path": text("data.runs"),
                "number": 2,
                "last_at": 1.7e9,
                "example": text("pods default/web"),
            },
        ],
    }


def rollout_plan(text: Callable[[str], str] = str) -> dict[str, Any]:
    """Return everything about a plan."""
    owners = {"count": 3, "hasMore": False, "first": [text("team Pod/a")]}
    gates = {"gates": {"minReviews": 10}, "approval": True}
    stage = {"mode": "Warn", "for": "24h", **gates, "firstNamespaces": []}
    return {
        "name": text("0123456789abcdef"),
        "webhook": text("a.b.c"),
        "type": "validate",
        "configuration": text("conf"),
        "mode": "Warn",
        "stage": 1,
        "stages": 3,
        "stagesInForce": [1, 2],
        "phase": "Paused",
        "reason": text("holidays"),
        "waitsFor": [text("paused by ann: holidays")],
        "gates": [{"name": "minReviews", "value": "unknown", "found": text("4, expected at least 10")}],
        "allStages": [
            {**stage, "stage": 1, "text": text("Audit"), "enforced": "nowhere", "namespaces": None},
            {
                **stage,
                "stage": 2,
                "text": text("Warn"),
                "enforced": "somewhere",
                "namespaces": 3,
                "firstNamespaces": [text("shop")],
            },
            {**stage, "stage": 3, "text": text("Enforce"), "enforced": "everywhere", "namespaces": None},
        ],
        "namespacesKnown": 12,
        "maxWait": "168h",
        "critical": True,
        "rollback": {"minOwners": 20, "minNamespaces": 5},
        "evidence": {
            **dict.fromkeys(("processes", "reviews", "namespaces", "users", "newlyDenied", "denied"), 4),
            **dict.fromkeys(("compared", "differences", "failures", "exceptionUses"), 0),
            "newlyDeniedOwners": owners,
            "deniedOwners": owners,
        },
        "fault": text("processes have another plan"),
        "seen": text("0123-4"),
        "since": "2026-01-01T00:00:00Z",
        "decisions": [
            {
                "time": "2026-01-01T00:00:00Z",
                "action": "pause",
                "stage": 1,
                "who": text("ann"),
                "why": text("holidays"),
            }
        ],
        "actions": [
            {
                "action": "resume",
                "command": text("admission-gateway rollout resume a.b.c"),
                "stage": 1,
                "stageText": text("Audit"),
                "effect": text("The plan continues."),
            }
        ],
    }


def decision(text: Callable[[str], str] = str) -> dict[str, Any]:
    """Return the JSON of a decision with one webhook of each outcome."""
    outcomes = ("Allowed", "Allowed", "Denied", "FailedClosed", "FailedOpen", "DryRunRefused", "Excluded")
    webhooks = [
        {
            "configuration": text("conf"),
            "webhook": text(f"w{number}.b.c"),
            "pool": text("pool"),
            "policy": text("policy"),
            "endpoint": text("ipv4:10.0.0.1:50051") if number < 5 else "",
            "round": number % 2,
            "outcome": outcome,
            "code": 403,
            "message": text("label team is missing"),
            "startedMilliseconds": float(number),
            "milliseconds": 2.0,
            "changed": number < 2,
            "ahead": number == 1,
            "repeated": number == 0,
            "mode": "Warn" if number == 1 else "Enforce",
            "exception": "",
            "parameters": {text("parameter"): text("value")} if number == 0 else None,
            "help": text("add the label team") if number == 2 else "",
        }
        for number, outcome in enumerate(outcomes)
    ]
    return {
        **{name: text(name) for name in ("uid", "traceId", "user", "operation", "apiVersion", "kind")},
        **{name: text(name) for name in ("namespace", "name", "path", "configuration", "webhook", "pool")},
        **{name: text(name) for name in ("policy", "endpoint", "message", "configurationDigest")},
        "resource": text("pods/exec"),
        "time": "2026-01-01T00:00:00.123Z",
        "phase": "mutate",
        "outcome": "Denied",
        "allowed": False,
        "code": 403,
        "dryRun": True,
        "milliseconds": 9.5,
        "webhooks": webhooks,
        "groups": [text("system:masters")],
        "object": {"metadata": {"name": text("web")}, "spec": {text("key"): text("value")}},
        "objectNote": "",
        "changes": [
            {"webhook": 0, "patch": [{"op": "add", "path": "/spec/a", "value": text("one")}]},
            {"webhook": 1, "patch": [{"op": "add", "path": "/spec/a", "value": text("two")}]},
        ],
        "finalObject": None,
        "overwritten": {text("/spec/a"): [0, 1]},
        "notCalled": [{"configuration": text("conf"), "webhook": text("x.b.c"), "reason": text("no rule")}],
        "notCalledLeftOut": 1,
        "warnings": [text("deprecated")],
        "auditAnnotations": {text("key"): text("value")},
        "callsAheadKept": 1,
        "callsAheadDiscarded": 2,
    }


def warned(text: Callable[[str], str] = str) -> dict[str, Any]:
    """Return the JSON of a decision that allowed what webhooks in the mode Warn would have refused."""
    one = decision(text)
    hooks = [{**hook, "mode": "Warn"} for hook in one["webhooks"] if hook["outcome"] != "FailedOpen"]
    return {**one, "outcome": "Allowed", "allowed": True, "code": 200, "message": "", "webhooks": hooks}


def decisions_part(*decisions: dict[str, Any], at: float = 1e9) -> dict[str, Any]:
    """Return the part of a process with *decisions*, each a group of its own with two more."""
    groups = [
        (
            (one["configuration"], one["webhook"], one["namespace"], "mutate", one["outcome"]),
            one["message"],
            3,
            at - 9,
            at,
            one,
        )
        for one in decisions
    ]
    lost = [(one["configuration"], one["webhook"], one["namespace"], 5) for one in decisions]
    return {"decisions": list(decisions), "groups": groups, "lost": lost, "leftOut": 4, "sinceSeconds": at}


def documents(text: Callable[[str], str] = str) -> dict[str, dict[str, Any]]:
    """Return the JSON of each page by its name."""
    cell = {
        "namespace": text("shop"),
        "phase": "mutate",
        "configuration": text("conf"),
        "webhook": text("a.b.c"),
    }
    numbers = {"denied": 3, "failedClosed": 0, "failedOpen": 1, "wouldBeRefused": 2}
    webhook = {"name": text("a.b.c"), "clientConfig": {"url": text("https://a.example/")}}
    parts: dict[str, dict[str, Any]] = {
        "overview": overview_part(
            text, failed_closed=1, failed_open=2, compared=329, different=70, newly_denied=63
        ),
        "decisions": decisions_part(decision(text)),
        "decision": {
            "decision": decision(text),
            "endpointNames": {text("ipv4:10.0.0.1:50051"): text("policies.team.svc:50051")},
        },
        "webhook": {
            "overview": overview_part(text, denied=2),
            **decisions_part(decision(text), warned(text)),
            "cells": [{**cell, **numbers}],
        },
        "differences": {
            "differences": [{**decision(text), "differences": ["newly_denied"], "paths": [text("/spec/a")]}]
        },
        "namespaces": {"cells": [{**cell, **numbers}], "leftOut": 1},
        "rollouts": {"plans": [rollout_plan(text)]},
        "rollout": {"plan": rollout_plan(text)},
        "configz": {
            "digest": text("d" * 64),
            "loadedAt": "2026-01-01T00:00:00Z",
            "gateway": {"listen": text("0.0.0.0:8443")},
            "pools": [{"name": text("pool")}],
            "mutating": [webhook],
            "validating": [webhook],
            "exceptions": [{"name": text("importer"), "reason": text("r")}],
            "namespaces": [],
        },
        "explain": {
            "decisions": [decision(text), warned(text)],
            "notReached": ["validate"],
            "error": text("no"),
            "placements": [
                {
                    "kind": "ValidatingAdmissionPolicy",
                    "name": text("p"),
                    "placement": "Auto",
                    "evaluatedBy": "Gateway",
                    "reasons": [text("a reason")],
                }
            ],
        },
    }
    query = {name: text(name) for name in ("namespace", "user", "groups")}
    query |= {"phase": "mutate", "configuration": text("conf"), "name": text("a.b.c")}
    found = {}
    for page, part in parts.items():
        one = merge(page, PageRequest("/", query), [part], 2)
        assert one is not None
        found[page] = one
    asked = {"action": "resume", "seen": text("0123-4"), "who": text("ann"), "why": text("holidays")}
    (action,) = found["rollout"]["plan"]["actions"]
    form = {"acts": True, "error": text("the name or the password is wrong"), "asked": asked}
    return {
        **found,
        "act": {**found["rollout"], **form, "action": action},
        "acted": {"done": text("a.b.c: Progressing"), "name": text("0123456789abcdef"), "asked": asked},
        "missing": {
            "message": text("there is no such decision"),
            "hint": "To look in all replicas",
            "command": text("decisions a"),
            "back": {"path": "decisions", "title": "Recent decisions"},
        },
    }
