"""What needs attention in an overview, as the first lines of its page, and what is in a roll-out."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, Literal, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from gateway.server.pages.state import Json


_EXPIRES_SOON_S: Final = 30 * 86_400.0
_EXCEPTION_ENDS_SOON_S: Final = 7 * 86_400.0
_DISPUTE_ENDS_S: Final = 3600.0
_SHOWN_LINES: Final = 20
_REFUSED: Final = "runbooks/reload-refused.md"
_NO_WORKER: Final = "runbooks/no-worker.md"
_UNITS: Final = ((31_556_952.0, "y"), (86_400.0, "d"), (3600.0, "h"), (60.0, "min"))


class Notice(NamedTuple):
    """One fact that needs attention."""

    level: Literal["bad", "warn"]
    title: str
    lines: list[str]
    page: str
    """The page of the documentation that says what to do, below ``docs``."""


def notices(overview: Json) -> list[Notice]:
    """Return what needs attention in *overview*, the worst first."""
    lost = [_lost_pool(pool["name"], overview) for pool in overview["pools"] if not pool["ready"]]
    explained = {fault for one in lost for fault in one.faults}
    failing = {name for one in lost for name in one.failing}
    found = [
        *_of_configuration(overview["configuration"]),
        *_of_processes(overview),
        *(one.notice for one in lost),
        Notice(
            "bad",
            "faults of workers and CA bundles",
            [fault for fault in overview["faults"] if fault not in explained],
            "runbooks/index.md",
        ),
        *_of_pools(overview["pools"]),
        *_of_webhooks(overview, failing),
        *_of_certificates(overview["certificates"]),
        *_of_exceptions(overview.get("exceptions", [])),
        *_of_disputes(overview.get("disputes", [])),
    ]
    return sorted((notice for notice in found if notice.lines), key=lambda notice: notice.level)


def duration(seconds: float) -> str:
    """Return *seconds* in the largest unit of which there are two or more."""
    for size, unit in _UNITS:
        if seconds >= 2 * size:
            return f"{seconds / size:.0f} {unit}"
    return f"{seconds:.0f} s"


def is_soon(seconds: float) -> bool:
    """Whether a certificate that expires in *seconds* needs attention."""
    return seconds < _EXPIRES_SOON_S


def _of_configuration(configuration: Json) -> Iterator[Notice]:
    refused = configuration["refused"]
    if refused is not None:
        title = f"the configuration of {refused['time']} was refused, the one in force stays"
        yield Notice("bad", title, _lines(refused, "problems"), _REFUSED)
    if configuration["refusedResources"]:
        yield Notice(
            "bad", "custom resources were refused", [str(configuration["refusedResources"])], _REFUSED
        )
    yield Notice(
        "warn", "the configuration has warnings", _lines(configuration, "warnings"), "configuration.md"
    )


def _lines(found: Json, member: str) -> list[str]:
    lines = [": ".join(filter(None, (one["where"], one["field"], one["message"]))) for one in found[member]]
    left_out = found[f"{member}LeftOut"]
    return [*lines, f"and {left_out} more"] if left_out else lines


def _of_processes(overview: Json) -> Iterator[Notice]:
    reasons = [f"process {one['pid']}: {one['reason']}" for one in overview["processes"] if not one["ready"]]
    scope = overview["scope"]
    missing = scope["processes"] - scope["answered"]
    if missing:
        reasons.append(f"no answer from {missing} of {scope['processes']} processes")
    yield Notice("bad", "not ready", reasons, "runbooks/replica-down.md")
    digests = {one["digest"][:12] for one in overview["processes"]}
    if len(digests) > 1:
        yield Notice(
            "warn",
            "the processes have different configurations",
            sorted(digests),
            "runbooks/configurations-differ.md",
        )


class _LostPool(NamedTuple):
    """A pool without a ready endpoint: one notice says everything that follows from it."""

    notice: Notice
    faults: list[str]
    """The faults of the overview that say the same."""
    failing: list[str]
    """Names of the webhooks whose failures the notice has."""


def _lost_pool(name: str, overview: Json) -> _LostPool:
    start = f"worker pool {name}: "
    faults = [fault for fault in overview["faults"] if fault.startswith(f"{start}no worker is reachable")]
    effects = [fault.removeprefix(start) for fault in faults]
    # An overview of metrics has no pools of webhooks, but the effect names the webhooks.
    named = {word.strip(",;:") for effect in effects for word in effect.split()}
    hooks = [
        hook for hook in overview["webhooks"] if name == hook.get("pool") or hook["name"] in named - {""}
    ]
    effects = effects or [f"its webhooks: {', '.join(hook['name'] for hook in hooks) or 'none'}"]
    failing = [hook for hook in hooks if hook["recent"]["failedClosed"] or hook["recent"]["failedOpen"]]
    failures = [
        f"{hook['name']}: in the last {duration(overview['windowSeconds'])} "
        f"{hook['recent']['failedClosed']:,} failed closed, {hook['recent']['failedOpen']:,} failed open"
        for hook in failing
    ]
    title = f"worker pool {name} has no ready endpoint; failurePolicy decides for its webhooks"
    return _LostPool(
        Notice("bad", title, [*effects, *_some(failures)], _NO_WORKER),
        faults,
        [hook["name"] for hook in failing],
    )


def _some(lines: list[str]) -> list[str]:
    left_out = len(lines) - _SHOWN_LINES
    return [*lines[:_SHOWN_LINES], f"and {left_out} more"] if left_out > 0 else lines


def _of_pools(pools: list[Json]) -> Iterator[Notice]:
    partly = [pool["name"] for pool in pools if 0 < pool["ready"] < len(pool["endpoints"])]
    yield Notice("warn", "pools with an endpoint that is not ready", partly, _NO_WORKER)


def _of_webhooks(overview: Json, explained: set[str]) -> Iterator[Notice]:
    """Yield what failed, apart from the webhooks *explained* by another notice."""
    last = duration(overview["windowSeconds"])
    for member, how in (("failedClosed", "closed"), ("failedOpen", "open")):
        lines = [
            f"{one['name']}: {one['recent'][member]:,}"
            for one in overview["webhooks"]
            if one["recent"][member] and one["name"] not in explained
        ]
        yield Notice(
            "bad", f"webhooks failed {how} in the last {last}", _some(lines), f"runbooks/fail-{how}.md"
        )


def _of_exceptions(exceptions: list[Json]) -> Iterator[Notice]:
    ending = [one for one in exceptions if one["remainingSeconds"] is not None]
    soon = [one for one in ending if 0 <= one["remainingSeconds"] < _EXCEPTION_ENDS_SOON_S]
    gone = [one for one in ending if one["remainingSeconds"] < 0]
    for title, found in (
        ("exceptions that have expired", gone),
        ("exceptions that expire within a week", soon),
    ):
        lines = [f"{one['name']}: {one['expires']}, owner {one['owner']}" for one in found]
        yield Notice("warn", title, _some(lines), "exceptions.md")


def _of_disputes(disputes: list[Json]) -> Iterator[Notice]:
    lines = [
        f"{one['message']}; reviews: {one['reviews']:,}"
        + (f", the last of {one['lastObject']}" if one["lastObject"] else "")
        for one in disputes
        if one["ageSeconds"] is None or one["ageSeconds"] < _DISPUTE_ENDS_S
    ]
    yield Notice("warn", "mutating webhooks do not come to rest", _some(lines), "mutators.md")


def _of_certificates(certificates: list[Json]) -> Iterator[Notice]:
    gone = [one["use"] for one in certificates if one["problem"] or one["remainingSeconds"] < 0]
    yield Notice(
        "bad", "certificates that have expired, or cannot be read", gone, "runbooks/certificate-expired.md"
    )
    soon = [
        f"{one['use']}: {duration(one['remainingSeconds'])}"
        for one in certificates
        if not one["problem"] and one["remainingSeconds"] >= 0 and is_soon(one["remainingSeconds"])
    ]
    yield Notice(
        "warn", "certificates that expire within 30 days", soon, "runbooks/certificate-expires-soon.md"
    )


def in_rollout(webhooks: Iterable[Json]) -> list[Json]:
    """Return those of *webhooks*, of an overview, with a plan or a candidate, or not enforced everywhere.

    A webhook of which a mode let something pass since the start is one of them, whatever its mode is now.
    """
    return [webhook for webhook in webhooks if _is_in_rollout(webhook)]


def _is_in_rollout(webhook: Json) -> bool:
    total, rollout = webhook["total"], webhook.get("rollout") or {}
    return (
        webhook["mode"] not in ("", "Enforce")
        or bool(webhook.get("plan"))
        or bool(rollout.get("percentOfReviewsForCandidate"))
        or any((total["wouldBeDenied"], total["wouldFailClosed"], total["candidate"]["compared"]))
    )
