"""The watchdog at work: looks, decides, writes, and says so in log, Events and metrics.

Source: kubernetes.io/docs/reference/using-api/server-side-apply; k8s.io/api events/v1 types.go.
"""

from __future__ import annotations

import asyncio
import hashlib
import signal
import socket
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, get_args
from urllib.parse import quote

import orjson

from admission_gateway_worker.text import printable
from gateway.base import logs
from gateway.base.errors import ClusterError
from gateway.base.text import rfc3339
from gateway.server.kubernetes.access import ClusterAccess
from gateway.server.kubernetes.apply import count_ready
from gateway.server.kubernetes.webhook_configurations import KINDS, VERSION
from gateway.tools.watchdog.relaxation import (
    FIELD_MANAGER,
    applied,
    expression_of,
    fail_names,
    is_written,
    services_of,
    stored_in,
)
from gateway.tools.watchdog.state import Settings, Sight, Stored, Trend, decide

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.watchdog.probe import Probe
    from gateway.tools.watchdog.state import Step

    Json = dict[str, Any]

_APPLY: Final = "application/apply-patch+yaml"
_EVENTS: Final = "/apis/events.k8s.io/v1/namespaces/default/events"
_MAX_NOTE_CHARS: Final = 1000
_CONFLICT: Final = 409
_ALERT: Final = "alert"
_NOTHING: Final = (
    "no registration of this name has an entry with failurePolicy Fail of a gateway, so there is nothing to "
    "relax; a registration in static files is changed in these files, on each control-plane node"
)
_AUDIT: Final = "what was admitted meanwhile was not reviewed: run admission-gateway audit"


@dataclass(frozen=True, slots=True)
class Watched:
    """What is watched, and how."""

    name: str
    """Of the registration."""
    namespaces: tuple[str, ...]
    """Those that the step Exempt leaves out."""
    probe: Probe | None
    """None: without a dry run nothing is relaxed, and only endpoints are looked at."""
    settings: Settings
    interval_s: float = 5.0


@dataclass(slots=True)
class Counters:
    """What the metrics show."""

    step: dict[str, str] = field(default_factory=dict)
    """By kind."""
    acts: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("open", "escalate", "close"), 0))
    looks: dict[str, int] = field(default_factory=lambda: dict.fromkeys(get_args(Sight), 0))
    ready: int = 0
    is_alerting: bool = False
    looked_at: float = 0.0


class Watchdog:
    """Watches one registration. All state that matters is in the registration."""

    def __init__(self, watched: Watched, now: Callable[[], float] = time.time) -> None:
        self.watched = watched
        self.counters = Counters()
        self._now = now
        self._trend = Trend()
        self._said: dict[str, str] = {}
        """What was reported last, by subject: a state that lasts is reported once."""

    async def look(self, api: ApiClient) -> None:
        """Look once, and act on both objects of the registration.

        Raises:
            ClusterError: the API server cannot be reached or refuses. The row of failures ends with that.
        """
        try:
            documents = [one for kind in KINDS if (one := await self._read(api, kind)) is not None]
            names = {name for one in documents for name in fail_names(one)}
            ready = sum([await count_ready(api, place) for place in _services(documents)])
            sight, why = await self._sight(api, names)
        except ClusterError:
            self._trend = self._trend.seen("unknown", 0, self._now())
            raise
        now = self._now()
        self._trend = self._trend.seen(sight, ready, now)
        self.counters.looks[sight] += 1
        self.counters.ready, self.counters.looked_at = ready, now
        self._alert(sight, ready, why, now)
        self._report("registration", "" if names else f"{self.watched.name}: {_NOTHING}")
        for document in documents:
            await self._act(api, document, now)

    async def relax(self, api: ApiClient) -> None:
        """Relax both objects now, as a person asks for: Ignore if that is the mode, otherwise Exempt.

        Raises:
            ClusterError: the API server cannot be reached or refuses.
        """
        step: Step = "Ignore" if self.watched.settings.mode == "Ignore" else "Exempt"
        for kind in KINDS:
            document = await self._read(api, kind)
            if document is None or not fail_names(document):
                logs.print_output(f"{kind}/{self.watched.name} has no entry with Fail of a gateway")
            elif stored_in(document).step in (step, "Ignore"):
                logs.print_output(f"{kind}/{self.watched.name} is relaxed already")
            else:
                stored = Stored(step, self._now(), self._now())
                await self._write(api, document, stored, "a person has asked for it")

    async def close(self, api: ApiClient) -> None:
        """Restore both objects now, whatever is seen, as a person asks for.

        Raises:
            ClusterError: the API server cannot be reached or refuses.
        """
        for kind in KINDS:
            document = await self._read(api, kind)
            if document is None or stored_in(document).step == "Closed":
                logs.print_output(f"{kind}/{self.watched.name} is not relaxed")
                continue
            stored = Stored("Closed", self._now(), stored_in(document).opened)
            await self._write(api, document, stored, "a person has asked for it")

    async def _read(self, api: ApiClient, kind: str) -> Json | None:
        name = quote(self.watched.name, safe="")
        found = await api.find(f"/apis/{VERSION}/{kind.lower()}s/{name}")
        return None if found is None else {**found, "apiVersion": VERSION, "kind": kind}

    async def _sight(self, api: ApiClient, names: set[str]) -> tuple[Sight, str]:
        if self.watched.probe is None:
            return "unknown", "no --probe"
        return await self.watched.probe.look(api, names)

    def _alert(self, sight: Sight, ready: int, why: str, now: float) -> None:
        since, after_s = self._trend.unwell_since, self.watched.settings.after_s
        has_probe = self.watched.probe is not None
        is_unwell = ready == 0 if not has_probe else since is not None and now - since >= after_s
        self.counters.is_alerting = is_unwell
        message = f"alert: {ready} ready endpoints, dry run {sight}" if is_unwell else ""
        self._report(_ALERT, message, f"{message}: {printable(why, _MAX_NOTE_CHARS)}" if why else message)

    async def _act(self, api: ApiClient, document: Json, now: float) -> None:
        stored = stored_in(document)
        decision = decide(self.watched.settings, stored, self._trend, now)
        kind = document["kind"]
        self.counters.step[kind] = decision.stored.step
        title = f"{kind}/{self.watched.name}"
        if not fail_names(document):
            return
        if decision.stored != stored:
            await self._write(api, document, decision.stored, decision.reason)
        elif stored.step != "Closed" and not is_written(document, self._expression(stored)):
            await self._write(api, document, stored, "the registration was changed meanwhile")
        else:
            self._report(title, decision.reason, f"{title}: {decision.reason}")

    def _report(self, subject: str, what: str, line: str = "") -> None:
        key = what.partition(",")[0]
        if self._said.get(subject, "") != key:
            self._said[subject] = key
            if what:
                logs.print_error(line or what)
            elif subject == _ALERT:
                logs.print_output("the gateway answers again")

    def _expression(self, stored: Stored) -> str:
        probe = self.watched.probe
        return expression_of(stored.step, self.watched.namespaces, "" if probe is None else probe.namespace)

    async def _write(self, api: ApiClient, document: Json, stored: Stored, reason: str) -> None:
        before = stored_in(document)
        expression = "" if stored.step == "Closed" else self._expression(stored)
        path = f"/apis/{VERSION}/{document['kind'].lower()}s/{quote(self.watched.name, safe='')}"
        params = {"fieldManager": FIELD_MANAGER, "force": "true"}
        try:
            await api.patch(path, params, orjson.dumps(applied(document, stored, expression)), _APPLY)
        except ClusterError as error:
            # Another watchdog, or the owner, was first: the next look sees what it did.
            if error.status != _CONFLICT:
                raise
            return
        act, verb = _act_of(before, stored)
        if act:
            self.counters.acts[act] += 1
        what = f"{document['kind']}/{self.watched.name} {verb}: {reason}"
        if stored.step == "Closed":
            what += f"; {_AUDIT}, since {rfc3339(before.since)}"
        self.counters.step[document["kind"]] = stored.step
        logs.print_output(what)
        await self._tell(api, document, stored, what)

    async def _tell(self, api: ApiClient, document: Json, stored: Stored, note: str) -> None:
        uid = str(document["metadata"].get("uid", ""))
        digest = hashlib.sha256(f"{uid}{document['kind']}{stored.text()}".encode()).hexdigest()[:16]
        event = {
            "apiVersion": "events.k8s.io/v1",
            "kind": "Event",
            "metadata": {"name": f"{self.watched.name[:200].rstrip('.-')}.{digest}", "namespace": "default"},
            "eventTime": rfc3339(self._now(), 6),
            "reportingController": "admission-gateway.io/watchdog",
            "reportingInstance": socket.gethostname()[:128] or "watchdog",
            "action": "Restore" if stored.step == "Closed" else "Relax",
            "reason": f"Registration{'Restored' if stored.step == 'Closed' else 'Relaxed'}",
            "type": "Normal" if stored.step == "Closed" else "Warning",
            "note": note[:_MAX_NOTE_CHARS],
            "regarding": {
                "apiVersion": VERSION,
                "kind": document["kind"],
                "name": self.watched.name,
                **({"uid": uid} if uid else {}),
            },
        }
        try:
            await api.write("POST", _EVENTS, event)
        except ClusterError as error:
            if error.status != _CONFLICT:
                logs.print_error(f"error: no Event was created: {error}")


def _services(documents: Sequence[Json]) -> list[tuple[str, str]]:
    return sorted({place for one in documents for place in services_of(one)})


def _act_of(before: Stored, after: Stored) -> tuple[str, str]:
    """Return the name of the act for metrics, empty for none, and what was done."""
    if after == before:
        return "", f"relaxed again ({after.step})"
    if after.step == "Closed":
        return "close", "restored"
    left_out = "system components are not reviewed" if after.step == "Exempt" else "nothing is reviewed"
    return "open" if before.step == "Closed" else "escalate", f"relaxed ({after.step}): {left_out}"


async def watch(cluster: KubernetesSettings, watchdog: Watchdog) -> None:
    """Look every few seconds, until SIGTERM or SIGINT."""
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    access = ClusterAccess(cluster)
    reported = ""
    try:
        while True:
            try:
                async with access.api() as api:
                    await watchdog.look(api)
                if reported:
                    logs.print_output("the API server answers again")
                reported = ""
            except ClusterError as error:
                # Without its port and time, so that a failure that lasts is one line.
                if not reported:
                    logs.print_error(f"error: {error}; retrying")
                reported = str(error)
            await asyncio.sleep(watchdog.watched.interval_s)
    except asyncio.CancelledError:
        return
    finally:
        await access.close()


def exposition(counters: Counters) -> str:
    """Return *counters* in the text format of Prometheus."""
    prefix = "admission_gateway_watchdog"
    lines = [
        f"# HELP {prefix}_relaxed Whether the registration is relaxed now, by kind and step.",
        f"# TYPE {prefix}_relaxed gauge",
    ]
    for kind in KINDS:
        for step in ("Exempt", "Ignore"):
            value = int(counters.step.get(kind) == step)
            lines.append(f'{prefix}_relaxed{{kind="{kind}",step="{step}"}} {value}')
    for name, what, values in (
        ("acts", "What the watchdog did to registrations.", counters.acts),
        ("looks", "What a dry run showed of the gateway.", counters.looks),
    ):
        label = "act" if name == "acts" else "result"
        lines += [f"# HELP {prefix}_{name}_total {what}", f"# TYPE {prefix}_{name}_total counter"]
        lines += [f'{prefix}_{name}_total{{{label}="{key}"}} {value}' for key, value in values.items()]
    for name, what, number in (
        ("alerting", "Whether the gateway is away or slow for longer than --after.", counters.is_alerting),
        ("ready_endpoints", "Ready endpoints of the gateway.", counters.ready),
        ("last_look_timestamp_seconds", "When the watchdog last looked.", counters.looked_at),
    ):
        lines += [f"# HELP {prefix}_{name} {what}", f"# TYPE {prefix}_{name} gauge"]
        lines.append(f"{prefix}_{name} {float(number):.15g}")
    return "\n".join(lines) + "\n"
