"""``admission-gateway rollout``: shows the states of rollout plans, and changes them as a person asks."""

from __future__ import annotations

import asyncio
import json
import os
import pwd
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from admission_gateway_worker.text import printable
from gateway.base import logs
from gateway.base.errors import GatewayError
from gateway.base.text import did_you_mean, printable_json, rfc3339, shown
from gateway.config.kinds.policy_settings import check_installation
from gateway.config.kinds.rollout_plan_settings import DEFAULT_INSTALLATION
from gateway.server.kubernetes import select_cluster as cluster
from gateway.tools.cli.parser import Help, Parser

if TYPE_CHECKING:
    import argparse
    from collections.abc import Callable

    from gateway.pure.rollout_plan.state import PlanState
    from gateway.server.rollout.cluster_store import ClusterStore
    from gateway.server.rollout.folder_store import FolderStore
    from gateway.server.rollout.store import Stored

READ_WITHIN_S: Final = 10.0
_POLL_S: Final = 0.02
_ACTIONS: Final = {
    "pause": "promote nothing until the plan is resumed",
    "resume": "let a paused or rolled back plan continue",
    "approve": "let the next stage begin where a stage requires approval, once its gates pass",
    "skip": "put the next stage in force, whatever the gates say",
    "rollback": "put the stage before in force",
    "forget": "enforce everywhere what had a plan that was removed, and whose stage holds",
}

HELP: Final = Help(
    "Show rollout plans, and change them.",
    (
        ("the stage of each plan, and its gates", "rollout status"),
        ("stop promoting", "rollout pause team-label.example.com"),
    ),
    "docs/run-rollout-plans.md",
)


_STATUS: Final = Help(
    "Print the stage of each rollout plan, what its gates say, and what you can do.",
    (
        ("all plans of a gateway in the cluster", "rollout status"),
        ("without a cluster: the gateway's rolloutPlans.folder", "rollout status --folder plans"),
    ),
    HELP.page,
)


def _help_of(action: str, summary: str) -> Help:
    name = "team-label.example.com"
    examples = (
        ("the only plan", f"rollout {action}"),
        ("the plan of a webhook, and why", f'rollout {action} {name} --reason "reviewed"'),
    )
    return Help(f"{summary[0].upper()}{summary[1:]}.", examples, HELP.page)


def add_arguments(parser: Parser) -> None:
    """Add the actions, and the options of each, to *parser*."""
    actions = parser.add_subparsers(metavar="COMMAND", title="commands")
    parser.set_defaults(run=lambda *_: parser.show_help())
    summary = "print the stage of each plan, and what its gates say"
    status = actions.add_parser("status", help=summary, about=_STATUS)
    _add_store(status)
    status.add_argument("--json", action="store_true", help="print it as JSON")
    status.add_argument("webhook", metavar="WEBHOOK", nargs="?", help="the plan (default: all)")
    status.set_defaults(run=lambda parsed, _: _run(parsed, status.error, None))
    for action, summary in _ACTIONS.items():
        one = actions.add_parser(action, help=summary, about=_help_of(action, summary))
        _add_store(one)
        one.add_argument("--reason", metavar="TEXT", default="", help="is recorded with who did it")
        one.add_argument("webhook", metavar="WEBHOOK", nargs="?", help="the plan (default: the only one)")
        one.set_defaults(
            run=lambda parsed, _, action=action, one=one: _run(parsed, one.error, action), json=False
        )


def _add_store(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("--folder", metavar="DIR", type=Path, help="rolloutPlans.folder of the gateway, without a cluster")
    add(
        "--installation",
        metavar="NAMESPACE/NAME",
        help=f"rolloutPlans.installation of the gateway (default: {DEFAULT_INSTALLATION})",
    )
    cluster.add_arguments(parser, "with the states")


def _run(parsed: argparse.Namespace, refuse: Callable[[str], object], action: str | None) -> int:
    """Do *action*, or print the states, and return the exit status.

    Raises:
        GatewayError: the store cannot be used, or the action is not possible.
    """
    in_cluster = parsed.installation or parsed.kubeconfig or parsed.context
    if parsed.folder is not None and in_cluster:
        refuse("--folder cannot be combined with options of a cluster")
    if parsed.installation and (problem := check_installation(parsed.installation)):
        refuse(f"--installation: {problem}")
    if parsed.folder is not None and not parsed.folder.is_dir():
        raise GatewayError(f"{parsed.folder} is not a folder")
    lines = asyncio.run(_with_store(parsed, action))
    logs.print_output(*lines)
    return 0


async def _with_store(parsed: argparse.Namespace, action: str | None) -> list[str]:
    store = _open(parsed)
    await store.start()
    try:
        await _read(store)
        if action is not None:
            return [await _act(store, parsed.webhook, action, parsed.reason)]
        found = [store.states[name] for name in sorted(store.states)]
        if parsed.webhook:
            found = [_choose(store, parsed.webhook)]
        return _as_json(found) if parsed.json else _as_text(found)
    finally:
        await store.close()


def _open(parsed: argparse.Namespace) -> FolderStore | ClusterStore:
    if parsed.folder is not None:
        from gateway.server.rollout.folder_store import FolderStore

        return FolderStore(parsed.folder)
    from gateway.server.rollout.cluster_store import ClusterStore

    settings = cluster.select(None, parsed.kubeconfig, parsed.context)
    return ClusterStore(settings, parsed.installation or DEFAULT_INSTALLATION, has_evidence=False)


async def _read(store: FolderStore | ClusterStore) -> None:
    give_up = time.monotonic() + READ_WITHIN_S
    while not store.is_synced:
        if time.monotonic() > give_up:
            raise GatewayError(f"the states cannot be read: {store.fault}")
        await asyncio.sleep(_POLL_S)


def _choose(store: FolderStore | ClusterStore, webhook: str | None) -> Stored:
    """Return the state of *webhook*; None: of the only plan. Raises GatewayError."""
    from gateway.server.rollout.documents import document_of, webhook_of

    by_name: dict[str, list[Stored]] = {}
    for one in store.states.values():
        by_name.setdefault(webhook_of(one), []).append(one)
        by_name.setdefault(one.name, []).append(one)
        if document := document_of(one):
            by_name.setdefault(document, []).append(one)
    names = sorted({webhook_of(one) for one in store.states.values()})
    if webhook is None:
        if len(store.states) == 1:
            return next(iter(store.states.values()))
        raise GatewayError(f"found {len(store.states)} plans, expected the name of one: {', '.join(names)}")
    found = by_name.get(webhook, [])
    if len(found) != 1:
        keys = [(webhook_of(one), document_of(one), one.name) for one in found]
        several = ", ".join(next(key for key in of if len(by_name.get(key, [])) == 1) for of in keys)
        why = f"is the name of several plans, use one of {several}" if found else "has no state of a plan"
        raise GatewayError(f"{shown(webhook)} {why}{'' if found else did_you_mean(webhook, names)}")
    return found[0]


async def _act(store: FolderStore | ClusterStore, webhook: str | None, action: str, reason: str) -> str:
    """Change the state, and return a line."""
    from gateway.server.rollout.actions import act
    from gateway.server.rollout.cluster_store import ClusterStore

    who = await store.who() if isinstance(store, ClusterStore) else _user()
    why = reason or "no reason given"
    return printable(await act(store, lambda: _choose(store, webhook), action, who=who, why=why), None)


def _user() -> str:
    try:
        return pwd.getpwuid(os.getuid()).pw_name
    except KeyError:
        return f"user {os.getuid()}"


def _as_text(found: list[Stored]) -> list[str]:
    from gateway.server.rollout.actions import possible, where_is
    from gateway.server.rollout.documents import (
        document_of,
        gates_of,
        next_of,
        read_state,
        stages_of,
        webhook_of,
    )
    from gateway.server.rollout.store import StoreError

    lines = []
    for one in found:
        try:
            state = read_state(one)
        except StoreError as error:
            lines.append(f"{webhook_of(one)}: its state cannot be read by this version: {error}")
            continue
        stages, last = stages_of(one, state), state.decisions[-1]
        by_document = f" by {document}" if (document := document_of(one)) else ""
        since = rfc3339(state.started_at_s)
        lines.append(f"{webhook_of(one)}{by_document}: {where_is(state, stages)}, since {since}")
        by = f" by {last.who}" if last.who else ""
        lines.append(f"  {last.action}{by}: {last.why}")
        lines += [f"  gate {gate}" for gate in gates_of(one)]
        if state.phase == "Progressing":
            lines.append(f"  next gate: {next_of(one, state) or 'not known until a gateway looks'}")
        if state.phase == "Held":
            lines.append(f"  {next_of(one, state)}")
        elif state.step + 1 < len(stages) and not state.is_of_removed_plan:
            lines.append(f"  next stage: {stages[state.step + 1]}")
        if can := possible(state):
            lines.append(f"  you can: {', '.join(can)}")
    return [printable(line, None) for line in lines] or ["there are no states of plans"]


def _as_json(found: list[Stored]) -> list[str]:
    from gateway.server.rollout.documents import document_of, gates_of, next_of, stages_of, webhook_of

    plans: list[dict[str, Any]] = []
    for one in found:
        state = _state(one)
        plans.append(
            {
                "name": one.name,
                "webhook": webhook_of(one),
                "document": document_of(one),
                "stages": [] if state is None else stages_of(one, state),
                "gates": gates_of(one),
                "waitsFor": "" if state is None else next_of(one, state),
                "state": None if state is None else state.as_json(),
            }
        )
    return printable_json(json.dumps({"plans": plans}, indent=2)).split("\n")


def _state(stored: Stored) -> PlanState | None:
    from gateway.server.rollout.documents import read_state
    from gateway.server.rollout.store import StoreError

    try:
        return read_state(stored)
    except StoreError:
        return None
