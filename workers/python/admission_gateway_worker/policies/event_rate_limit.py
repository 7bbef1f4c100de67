"""EventRateLimit: limits how many Events are written, by server, namespace, user, or source and object.

The limits are those of one worker process: with N processes or replicas the cluster can write N times as
much. A worker that restarts begins with full buckets. The API server's cost of the request remains; what is
saved is etcd. As in the API server, requests to events.k8s.io are not limited, and every limit is charged
even if another one refuses.

Source: kubernetes plugin/pkg/admission/eventratelimit; golang.org/x/time/rate.
"""

from __future__ import annotations

import time
from collections import OrderedDict
from hashlib import sha256
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.policies.builtin import aggregated, is_for, rule
from admission_gateway_worker.policies.definition import Definition, Replaced
from admission_gateway_worker.review import Denied

if TYPE_CHECKING:
    from collections.abc import Callable

    from admission_gateway_worker import Review

_RULES: Final = (rule("events", "CREATE", "UPDATE"),)
_CACHE_SIZE: Final = 4096
_NANOSECOND: Final = 1e-9
_LONG: Final = 256
"""Characters of a subject: of a longer one the hash is kept, and the start is shown."""


class TokenBucket:
    """Allows *burst* events at once, and *qps* events a second in the long run."""

    __slots__ = ("_at", "_burst", "_qps", "_tokens")

    def __init__(self, qps: float, burst: int, now: float) -> None:
        self._qps, self._burst = qps, burst
        self._tokens = float(burst)
        self._at = now

    def allow(self, now: float) -> bool:
        """Take a token at the time *now*, in seconds, and return whether there was one."""
        tokens = min(self._burst, self._tokens + max(0.0, now - self._at) * self._qps) - 1
        # A wait of less than a nanosecond is none.
        if tokens < 0 and -tokens / self._qps >= _NANOSECOND:
            return False
        self._tokens, self._at = tokens, now
        return True


class Limit:
    """One entry of ``limits`` with its buckets, of which the least recently used is removed."""

    def __init__(self, settings: dict[str, Any], clock: Callable[[], float]) -> None:
        self.type: str = settings["type"]
        self._settings = settings
        self._size = 1 if self.type == "Server" else settings.get("cacheSize") or _CACHE_SIZE
        self._clock = clock
        self._buckets: OrderedDict[str | bytes, TokenBucket] = OrderedDict()

    def problem(self, review: Review) -> str:
        """Charge the Event; return why it is too much, empty if it is not."""
        subject = _KEYS[self.type](review)
        # A client can send a subject of a MiB, and thousands are kept.
        key = subject if len(subject) <= _LONG else sha256(subject.encode()).digest()
        now = self._clock()
        bucket = self._buckets.get(key)
        if bucket is None:
            bucket = self._buckets[key] = TokenBucket(self._settings["qps"], self._settings["burst"], now)
            if len(self._buckets) > self._size:
                self._buckets.popitem(last=False)
        else:
            self._buckets.move_to_end(key)
        return "" if bucket.allow(now) else f"limit reached on type {self.type} for key {_cut(subject)}"


def _cut(subject: str) -> str:
    return subject if len(subject) <= _LONG else f"{subject[:_LONG]}..."


def _source_and_object(review: Review) -> str:
    source, involved = review.object.get("source") or {}, review.object.get("involvedObject") or {}
    return "".join(
        (
            *(source.get(name) or "" for name in ("component", "host")),
            *(involved.get(name) or "" for name in ("kind", "namespace", "name", "uid", "apiVersion")),
        )
    )


_KEYS: Final[dict[str, Callable[[Review], str]]] = {
    "Server": lambda _: "",
    "Namespace": lambda review: review.namespace,
    "User": lambda review: review.user_info.get("username") or "",
    "SourceAndObject": _source_and_object,
}


def event_rate_limit(review: Review) -> None:
    """Charge the Event to all limits, and deny it if one of them is reached."""
    if not is_for(review, _RULES) or review.dry_run:
        return
    requested = review.request.get("requestKind") or review.kind
    if requested.get("group", ""):
        return
    problems = [problem for limit in review.parameters if (problem := limit.problem(review))]
    if problems:
        raise Denied(f"Too many requests: {aggregated(problems)}", code=429, reason="TooManyRequests")


def prepare(parameters: dict[str, Any], clock: Callable[[], float] = time.monotonic) -> tuple[Limit, ...]:
    """Return the limits with full buckets."""
    return tuple(Limit(each, clock) for each in parameters["limits"])


DEFINITIONS = (
    Definition(
        "event-rate-limit",
        "Limits the rate of Events by server, namespace, user, or source and object (EventRateLimit). "
        "Each worker process counts for itself.",
        event_rate_limit,
        rules=_RULES,
        users_see="Too many requests: limit reached on type Namespace for key builds",
        topic="certificates and the API",
        replaces=(Replaced("Kubernetes", "EventRateLimit"),),
        parameters={
            "type": "object",
            "additionalProperties": False,
            "required": ["limits"],
            "properties": {
                "limits": {
                    "type": "array",
                    "minItems": 1,
                    "description": "The limits; an Event is denied if one of them is reached.",
                    "items": {
                        "type": "object",
                        "additionalProperties": False,
                        "required": ["type", "qps", "burst"],
                        "properties": {
                            "type": {
                                "type": "string",
                                "enum": list(_KEYS),
                                "description": "What has a bucket of its own.",
                            },
                            "qps": {
                                "type": "integer",
                                "minimum": 1,
                                "description": "Events a second in the long run.",
                            },
                            "burst": {"type": "integer", "minimum": 1, "description": "Events at once."},
                            "cacheSize": {
                                "type": "integer",
                                "minimum": 0,
                                "default": _CACHE_SIZE,
                                "description": "Buckets that are kept; a further one removes the least "
                                "recently used. Not for Server.",
                            },
                        },
                    },
                }
            },
        },
        prepare=prepare,
        notes="- The limits are of one worker process: with N processes or replicas N times as many pass. "
        "A worker that starts has full buckets.\n"
        "- What is saved is the write to etcd; the request still costs the API server and the gateway.\n"
        "- As in the API server, Events that are written by `events.k8s.io` are not limited, and each is "
        "charged to all limits, even if one of them refuses it.\n"
        "- Other parameters mean full buckets. With `parametersFrom` the users who annotate a namespace "
        "set its limits.\n",
        example={"limits": [{"type": "Namespace", "qps": 50, "burst": 100}]},
        failure_policy="Ignore",
    ),
)
