"""The state of a gateway process, as the pages read it."""

from __future__ import annotations

import json
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import orjson

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from gateway.base.errors import Problem
    from gateway.config.merge.model import Config
    from gateway.engine.dry_run import DryRuns
    from gateway.engine.snapshot import Snapshot
    from gateway.observe.telemetry.exception_uses import Uses
    from gateway.pure.admission_policies.placing import Placed
    from gateway.pure.core.disputes import Dispute, Seen
    from gateway.pure.core.webhook import WebhookId
    from gateway.server.rollout.live_plan import PlanView

Json = dict[str, Any]
"""A JSON object."""


class PageRequest(NamedTuple):
    """A request for a page, or for the part of a process."""

    path: str
    """Decoded."""
    query: Mapping[str, str]
    """The query without ``format``. A repeated name has its last value."""
    body: bytes = b""
    """The review to explain. Empty without one."""
    is_form: bool = False
    """Whether the form of a page sent the body, which that page shows again."""
    root: str = "./"
    """The relative link from the page to the overview."""


def number_in(query: Mapping[str, str], name: str) -> int | None:
    """Return the number below 100,000 that *query* has as *name*; None if it has no such number."""
    text = query.get(name, "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 6 else None


@dataclass(frozen=True, slots=True)
class Refusal:
    """A configuration that was refused. Times are in seconds since 1970."""

    time: float
    problems: Sequence[Problem]


@dataclass(frozen=True, slots=True)
class ProcessState:
    """The state at one moment."""

    config: Config
    snapshot: Snapshot
    dry_run: DryRuns
    """By the same configuration."""
    loaded_at: float
    """When the configuration came into force, in seconds since 1970."""
    started_at: float
    refusal: Refusal | None
    """The last configuration, if it was refused."""
    refused_resources: int
    """Custom resources that are not in force in their present form."""
    not_ready: str | None
    """Why the process is not ready. None if it is."""
    faults: Sequence[str]
    """Faults of workers and pools that do not affect readiness."""
    in_flight: int
    """Reviews in flight."""
    placed: Sequence[Placed]
    """The policies that are to be evaluated by the API server, and those that still are."""
    exception_uses: Mapping[str, Uses]
    """The uses of each exception by its id."""
    disputes: Mapping[Dispute, Seen]
    """The mutating webhooks that do not come to rest."""
    plans: Mapping[WebhookId, PlanView] = field(default_factory=dict)
    """The plan of each webhook that has one."""


def encoded(value: object, *, is_indented: bool = False) -> bytes:
    """Return *value* as JSON; halves of surrogate pairs become question marks."""
    try:
        return orjson.dumps(value, option=orjson.OPT_INDENT_2 if is_indented else None)
    except TypeError:
        text = json.dumps(value, ensure_ascii=False, indent=2 if is_indented else None)
        return text.encode(errors="replace")
