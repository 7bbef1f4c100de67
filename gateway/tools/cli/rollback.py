"""``admission-gateway rollback``: puts an earlier configuration back in force, and keeps it there."""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.text import printable
from gateway.base import logs
from gateway.base.errors import GatewayError
from gateway.base.terminal import Cell, table_rows, width_of
from gateway.base.text import did_you_mean, printable_json, shown
from gateway.server.history import History, HistoryError
from gateway.tools.cli.arguments import DEFAULT_STATE
from gateway.tools.cli.parser import Help

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable, Sequence

    from gateway.server.history import Entry

TIMEOUT_S: Final = 15.0
"""How long the processes have to report; workers of the configuration may have to be started."""
_POLL_S: Final = 0.02
_SHORT: Final = 12
"""Digits of a digest that are shown."""

HELP: Final = Help(
    "Put an earlier configuration back in force within a second, and keep it there until --release.",
    (
        ("the configurations that are kept", "rollback --list --state state"),
        ("back to the one before", "rollback --state state"),
    ),
    "docs/operate.md",
)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the options of the command to *parser*."""
    add = parser.add_argument
    add(
        "--state",
        metavar="DIR",
        type=Path,
        default=DEFAULT_STATE,
        help="folder of serve --state (default: %(default)s)",
    )
    action = parser.add_mutually_exclusive_group()
    action.add_argument(
        "--list", action="store_true", help="print the kept configurations, and change nothing"
    )
    action.add_argument(
        "--to", metavar="DIGEST", help="the configuration, by the first digits (default: the one before)"
    )
    action.add_argument(
        "--release", action="store_true", help="end the rollback: files and custom resources count again"
    )
    add("--json", action="store_true", help="print the result as JSON")
    parser.set_defaults(run=run)


def run(parsed: argparse.Namespace, _: list[str]) -> int:
    """Roll back, release or list, and return the exit status.

    Raises:
        GatewayError: the configuration is unknown or cannot be used, or the gateway refuses it.
    """
    history = History(parsed.state)
    if parsed.list:
        _print(_listing(history), parsed.json, _as_table)
        return 0
    if parsed.release:
        result = _change(history, history.release, "")
    else:
        entry = _choose(history, parsed.to)
        _check(history, entry)
        result = _change(history, lambda: history.set_pin(entry.digest), entry.digest)
    _print(result, parsed.json, _as_sentence)
    return 0


def _choose(history: History, prefix: str | None) -> Entry:
    """Return the kept configuration whose digest begins with *prefix*, or the one before that in force."""
    entries = history.entries()
    if not entries:
        message = f"{history.folder} has no configurations; serve keeps them with --state"
        raise GatewayError(message)
    if prefix is None:
        current = {report["digest"] for report in history.reports()} or {entries[0].digest}
        newest = max((entry.sequence for entry in entries if entry.digest in current), default=1 << 62)
        before = [entry for entry in entries if entry.sequence < newest and not entry.problem]
        if not before:
            raise GatewayError("there is no earlier configuration; rollback --list has all")
        return before[0]
    found = [entry for entry in entries if prefix and entry.digest.startswith(prefix.lower())]
    if len(found) != 1:
        digests = [entry.digest[: max(_SHORT, len(prefix))] for entry in entries]
        what = "several configurations begin" if found else "no kept configuration begins"
        message = f"{what} with {shown(prefix)}{did_you_mean(prefix, digests)}; rollback --list has all"
        raise GatewayError(message)
    return found[0]


def _check(history: History, entry: Entry) -> None:
    """Check that the kept configuration of *entry* can be read. Raises GatewayError."""
    from gateway.config.merge.read import read

    if entry.problem:
        raise HistoryError(f"{entry.digest[:_SHORT]}: {entry.problem}")
    read(history.load(entry.digest).documents)


def _change(history: History, change: Callable[[], None], digest: str) -> dict[str, Any]:
    """Make the *change* of the pin, and wait until the gateway has *digest* pinned, nothing if empty.

    A change that the gateway refuses is taken back.
    """
    before = history.pin()
    began_at = time.monotonic()
    change()
    pid = history.gateway_pid()
    result: dict[str, Any] = {"pinned": digest or None, "processes": 0, "seconds": None}
    if pid is None:
        return result
    problem = _signal_and_wait(history, pid, began_at, digest)
    if problem:
        (history.release if before is None else lambda: history.set_pin(before.digest))()
        os.kill(pid, signal.SIGHUP)
        raise GatewayError(f"the gateway keeps the configuration that it has: {problem}")
    reports = history.reports()
    result["processes"] = len(reports)
    result["seconds"] = round(time.monotonic() - began_at, 3)
    return result


def _signal_and_wait(history: History, pid: int, began_at: float, digest: str) -> str:
    """Return why the gateway has not changed to *digest*. Empty if it has, in all processes."""
    try:
        os.kill(pid, signal.SIGHUP)
    except OSError as error:
        return f"process {pid} cannot be signalled: {error.strerror}"
    reports: Sequence[dict[str, Any]] = ()
    while time.monotonic() < began_at + TIMEOUT_S:
        reports = [one for one in history.reports() if one["at"] > began_at]
        for report in reports:
            if report["problem"]:
                return printable(report["problem"])
        if reports and len(reports) == len(history.reports()) and all(r["pinned"] == digest for r in reports):
            return ""
        time.sleep(_POLL_S)
    return f"no confirmation within {TIMEOUT_S:g} s; its log says why"


def _listing(history: History) -> dict[str, Any]:
    pin = history.pin()
    in_force = {report["digest"] for report in history.reports()}
    return {
        "pinned": None if pin is None else {"digest": pin.digest, "since": pin.since},
        "folder": str(history.folder),
        "running": history.gateway_pid() is not None,
        "configurations": [
            {
                "digest": entry.digest,
                "time": entry.time,
                "summary": entry.summary,
                "sources": list(entry.sources),
                "inForce": entry.digest in in_force,
                "pinned": pin is not None and pin.digest == entry.digest,
                "problem": entry.problem,
            }
            for entry in history.entries()
        ],
    }


def _as_table(listing: dict[str, Any]) -> list[str]:
    rows: list[list[Cell]] = [[("", "")] * 4]
    for one in listing["configurations"]:
        marks = [word for member, word in (("inForce", "in force"), ("pinned", "pinned")) if one[member]]
        about = one["problem"] or f"{one['summary']} ({', '.join(one['sources'])})"
        since: Cell = (one["time"], "") if one["time"] else ("unusable", "bad")
        rows.append([(one["digest"][:_SHORT], ""), since, (", ".join(marks), "good"), (about, "")])
    _, *found = table_rows(rows, width_of(sys.stdout))
    lines: list[str] = [*chain.from_iterable(found)]
    pin = listing["pinned"]
    if pin is not None:
        lines.append(printable(f"pinned to {pin['digest'][:_SHORT]} since {pin['since']}"))
    return lines or [f"no configurations are kept in {listing['folder']}; serve keeps them with --state"]


def _as_sentence(result: dict[str, Any]) -> list[str]:
    digest = (result["pinned"] or "")[:_SHORT]
    change = f"pinned to {digest}" if digest else "released: files and custom resources count again"
    if result["seconds"] is None:
        return [f"{change}; no gateway runs with this folder, so this takes effect at the next start"]
    number = result["processes"]
    processes = f"{number} process{'es' if number != 1 else ''}"
    after = f"{change}; in force in {processes} after {result['seconds']:.2f} s"
    return (
        [after, "changes of files and custom resources wait until rollback --release"] if digest else [after]
    )


def _print(result: dict[str, Any], is_json: bool, as_text: Callable[[dict[str, Any]], list[str]]) -> None:
    lines = printable_json(json.dumps(result, indent=2)).split("\n") if is_json else as_text(result)
    logs.print_output(*lines)
