"""The text of ``status`` for a terminal. Pure functions.

All texts of gateways pass through ``printable``.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.text import printable
from gateway.base.terminal import Cell, Style, Styled, table, table_rows
from gateway.base.text import endpoint_text
from gateway.server.pages.notices import duration, in_rollout, is_soon

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from gateway.tools.status.reading import Reading

    Json = dict[str, Any]

_PHASES: Final = {"mutate": "mutating", "validate": "validating"}
_MAX_LINE_CHARS: Final = 500
_SHOWN_LINES: Final = 10
_SHOWN_WEBHOOKS: Final = 200


def render(readings: Sequence[Reading], width: int | None = None) -> list[str]:
    """Return the lines about *readings*, tables at most as wide as *width*."""
    lines = list(_heads(readings, width))
    for reading in readings:
        for notice in reading.notices():
            where = f"{reading.name}: " if len(readings) > 1 else ""
            lines += ["", Styled((f"! {where}{notice.title}", notice.level), limit=_MAX_LINE_CHARS)]
            lines += [f"    {printable(line, _MAX_LINE_CHARS)}" for line in notice.lines[:_SHOWN_LINES]]
            if len(notice.lines) > _SHOWN_LINES:
                lines.append(f"    and {len(notice.lines) - _SHOWN_LINES} more")
            lines.append(Styled(("    What to do: ", "dim"), f"docs/{notice.page}", limit=_MAX_LINE_CHARS))
    overviews = [reading.overview for reading in readings if reading.overview is not None]
    if overviews:
        webhooks, *others = (
            list[str](table(rows, width)) if len(rows) > 1 else []
            for rows in (
                _webhook_rows(overviews),
                _pool_rows(overviews),
                _certificate_rows(overviews),
                _exception_rows(overviews),
                _placement_rows(overviews),
            )
        )
        for made in (webhooks, _rollouts(overviews, width), *others):
            lines += ["", *made] if made else []
    return lines


def _heads(readings: Sequence[Reading], width: int | None) -> list[str]:
    rows: list[list[Cell]] = [
        _head(
            "GATEWAY",
            "STATE",
            "VERSION",
            "PROCS",
            "CONFIG",
            "LOADED",
            "IN FLIGHT",
            "RATE/S",
            "OVER",
        )
    ]
    for reading in readings:
        overview = reading.overview
        if overview is None:
            rows.append([(reading.name, ""), ("unknown", "bad")])
            continue
        configuration, reviews = overview["configuration"], overview["reviews"]
        rate = sum(reviews[phase]["recent"]["perSecond"] for phase in _PHASES)
        rows.append(
            [
                (reading.name, "bold"),
                ("ready", "good") if overview["ready"] else ("not ready", "bad"),
                (overview["version"], ""),
                (str(overview["scope"]["processes"]), ""),
                (configuration["digest"][:12], "" if configuration["isSameInAllProcesses"] else "warn"),
                (f"{duration(configuration['ageSeconds'])} ago", ""),
                (f"{reviews['inFlight']:,}", ""),
                (_number(rate), ""),
                (duration(overview["windowSeconds"]), "dim"),
            ]
        )
    notes = {reading.note for reading in readings if reading.note}
    of_metrics = "numbers since the start, from /metrics: "
    return [
        *table(rows, width),
        *(Styled((of_metrics + note, "dim"), limit=_MAX_LINE_CHARS) for note in sorted(notes)),
    ]


def _webhook_rows(overviews: Sequence[Json]) -> list[list[Cell]]:
    """Return the webhooks in call order: the sums of all gateways, and the highest of their percentiles."""
    rows = [
        _head(
            "WEBHOOK", "PHASE", "ON FAILURE", "MODE", "RATE/S", "DENIED", "CLOSED", "OPEN", "P50 MS", "P99 MS"
        )
    ]
    found = _by_identity(webhook for overview in overviews for webhook in overview["webhooks"])
    for (phase, configuration, name), webhooks in list(found.items())[:_SHOWN_WEBHOOKS]:
        recent = [webhook["recent"] for webhook in webhooks]
        closed, opened = (sum(one[member] for one in recent) for member in ("failedClosed", "failedOpen"))
        rows.append(
            [
                (f"{configuration}/{name}" if configuration else name, ""),
                (_PHASES.get(phase, phase), "dim"),
                (webhooks[0]["failurePolicy"], "dim"),
                (webhooks[0]["mode"], "dim"),
                (_number(sum(one["perSecond"] for one in recent)), ""),
                _sum_of(recent, "denied", "denied"),
                (f"{closed:,}", "failed" if closed else ""),
                (f"{opened:,}", "failed" if opened else ""),
                (_highest(one["p50Ms"] for one in recent), ""),
                (_highest(one["p99Ms"] for one in recent), ""),
            ]
        )
    if len(found) > _SHOWN_WEBHOOKS:
        rows.append([(f"and {len(found) - _SHOWN_WEBHOOKS} more; --json has all", "dim")])
    return rows


def _by_identity(webhooks: Iterable[Json]) -> dict[tuple[str, str, str], list[Json]]:
    """Return *webhooks* of several gateways by phase, configuration and name."""
    found: dict[tuple[str, str, str], list[Json]] = {}
    for webhook in webhooks:
        key = webhook["phase"], webhook["configuration"], webhook["name"]
        found.setdefault(key, []).append(webhook)
    return found


def _rollouts(overviews: Sequence[Json], width: int | None) -> list[str]:
    """Return what roll-outs would change: the sums of all gateways, since their start."""
    rows = [_head("ROLL-OUT", "MODE", "STAGE", "WOULD DENY", "FAIL", "DIFFER")]
    notes: list[list[str]] = [[]]
    found = _by_identity(one for overview in overviews for one in in_rollout(overview["webhooks"]))
    for (_, configuration, name), webhooks in list(found.items())[:_SHOWN_WEBHOOKS]:
        totals = [webhook["total"] for webhook in webhooks]
        candidates = [total["candidate"] for total in totals]
        plan = webhooks[0].get("plan")
        # A replica that was away has another stage for a moment.
        stages = sorted({str(one["plan"]["stage"]) for one in webhooks if one.get("plan")})
        rows.append(
            [
                (f"{configuration}/{name}" if configuration else name, ""),
                (webhooks[0]["mode"], "dim"),
                (f"{'-'.join(stages)}/{plan['stages']}" if plan else "-", "dim"),
                _part_of(totals, "wouldBeDenied", "count"),
                _sum_of(totals, "wouldFailClosed", "failed"),
                _part_of(candidates, "different", "compared"),
            ]
        )
        notes.append([*_plan_lines(plan), *_candidate_lines(candidates)])
    if len(rows) == 1:
        return []
    lines: list[str] = []
    for row, texts in zip(table_rows(rows, width), notes, strict=True):
        lines += [*row, *(f"  {printable(text, _MAX_LINE_CHARS)}" for text in texts)]
    if len(found) > _SHOWN_WEBHOOKS:
        lines.append(f"and {len(found) - _SHOWN_WEBHOOKS} more; --json has all")
    return lines


def _plan_lines(plan: Json | None) -> list[str]:
    """Return the phase of *plan*, and what it waits for."""
    if not plan:
        return []
    first, *more = plan["waitsFor"] or [""]
    return [f"{plan['phase']}{'; next gate: ' if first else ''}{first}", *(f"  {text}" for text in more)]


def _candidate_lines(candidates: Sequence[Json]) -> list[str]:
    titles = {"newlyDenied": "newly denied", "newlyAllowed": "newly allowed", "failed": "failed"}
    numbers = {title: sum(one[member] for one in candidates) for member, title in titles.items()}
    found = [f"{number:,} {title}" for title, number in numbers.items() if number]
    return [f"candidate: {', '.join(found)}"] if found else []


def _part_of(counts: Iterable[Json], member: str, whole: str) -> Cell:
    """Return ``3 of 10``, or ``-`` if there is nothing to count."""
    counts = tuple(counts)
    number, of = (sum(one[name] for one in counts) for name in (member, whole))
    return f"{number:,} of {of:,}" if of or number else "-", "warn" if number else ""


def _sum_of(counts: Iterable[Json], member: str, style: Style = "") -> Cell:
    """Return the sum of *member* in *counts*, with *style* unless it is zero."""
    number = sum(one[member] for one in counts)
    return f"{number:,}", style if number else ""


def _pool_rows(overviews: Sequence[Json]) -> list[list[Cell]]:
    """Return the endpoints as the pages name them; those with the same name and pool are one row."""
    rows = [_head("POOL AND ENDPOINT", "STATE", "IN FLIGHT")]
    found: dict[tuple[str, str], dict[str, int]] = {}
    in_flight: dict[tuple[str, str], int] = {}
    for overview in overviews:
        for pool in overview["pools"]:
            for endpoint in pool["endpoints"] or [{"address": "no endpoint", "states": {}, "inFlight": 0}]:
                key = pool["name"], endpoint_text(endpoint["address"], endpoint.get("name", ""))
                states = found.setdefault(key, {})
                for state, count in endpoint["states"].items():
                    states[state] = states.get(state, 0) + count
                in_flight[key] = in_flight.get(key, 0) + endpoint["inFlight"]
    for (pool, place), states in found.items():
        text = next(iter(states)) if len(states) == 1 else ", ".join(f"{n} {s}" for s, n in states.items())
        style: Style = "good" if set(states) == {"ready"} else "warn" if "ready" in states else "bad"
        where = f"{pool}  {place}" if place else pool
        rows.append([(where, ""), (text or "none", style), (f"{in_flight[pool, place]:,}", "")])
    return rows


def _certificate_rows(overviews: Sequence[Json]) -> list[list[Cell]]:
    rows = [_head("CERTIFICATE", "EXPIRES IN")]
    lowest: dict[str, float | None] = {}
    for overview in overviews:
        for one in overview["certificates"]:
            known, now = lowest.get(one["use"], float("inf")), one["remainingSeconds"]
            lowest[one["use"]] = None if now is None or known is None else min(known, now)
    for use, seconds in lowest.items():
        if seconds is None:
            cell: Cell = ("cannot be read", "bad")
        elif seconds < 0:
            cell = ("expired", "bad")
        else:
            cell = (duration(seconds), "warn" if is_soon(seconds) else "")
        rows.append([(use, ""), cell])
    return rows


def _exception_rows(overviews: Sequence[Json]) -> list[list[Cell]]:
    """Return the exceptions with the uses by all gateways together, and the latest use."""
    rows = [_head("EXCEPTION", "USES", "LAST USE", "EXPIRES", "OWNER")]
    found: dict[str, list[Json]] = {}
    for overview in overviews:
        for one in overview.get("exceptions", ()):
            found.setdefault(one["name"], []).append(one)
    for name, seen in found.items():
        uses = sum(one["uses"] or 0 for one in seen)
        remaining = seen[0]["remainingSeconds"]
        is_over = remaining is not None and remaining < 0
        rows.append(
            [
                (name, ""),
                (f"{uses:,}", "" if uses else "dim"),
                (max(one["lastUse"] for one in seen) or "-", ""),
                ("expired" if is_over else seen[0]["expires"] or "never", "warn" if is_over else ""),
                (seen[0]["owner"], ""),
            ]
        )
    return rows


def _placement_rows(overviews: Sequence[Json]) -> list[list[Cell]]:
    """Return each policy that is to be evaluated by the API server once, with the states in all gateways."""
    rows = [_head("POLICY", "STATE", "WHY IT STAYS")]
    found: dict[tuple[str, str], list[Json]] = {}
    for overview in overviews:
        for one in overview.get("placement", ()):
            found.setdefault((one["kind"], one["name"]), []).append(one)
    for (kind, name), seen in found.items():
        states = ", ".join(sorted({one["state"] for one in seen}))
        reason = next((one["reason"] for one in seen if one["reason"]), "")
        rows.append([(f"{kind} {name}", ""), (states, ""), (reason, "warn")])
    return rows


def _head(*titles: str) -> list[Cell]:
    return [(title, "dim") for title in titles]


def _number(value: float) -> str:
    return f"{value:,.0f}" if value >= 10 else f"{value:.3g}"


def _highest(values: Iterable[float | None]) -> str:
    known = [value for value in values if value is not None]
    return f"{max(known):.1f}" if known else "-"
