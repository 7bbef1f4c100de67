"""``admission-gateway sync``: keeps the gateway's configuration equal to the cluster's objects behind it.

For webhooks whose rules and caBundle a controller writes while it runs. Their objects are not deleted but
unregistered: they stay, the controller goes on writing them, and the API server never calls them
(``gateway.registration.unregistered``).
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from gateway import logs
from gateway.errors import ClusterError, GatewayError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gateway.config.model import Kubernetes
    from gateway.importing.destinations import Destination
    from gateway.importing.sync_plan import Choice, SyncPlan
    from gateway.kubernetes.api_client import ApiClient

    Json = dict[str, Any]

_ATTEMPTS: Final = 5
"""Of one run, where objects change between being read and written."""
_SOON_S: Final = 5.0
"""Until the next look after something was written; the gateway looks for changed files every second."""
_LATER_S: Final = 60.0
_PUT_BACK_EVERY_S: Final = 60.0
"""For each object, so that a controller that insists is not met with a write for each of its own."""
_CONFLICT: Final = 409


class Sync:
    """Looks at the cluster and does what follows from it, as often as it is asked to."""

    def __init__(self, destination: Destination, choice: Choice, parsed: argparse.Namespace) -> None:
        self._destination = destination
        self._choice = choice
        self._parsed = parsed
        self._told: set[str] = set()
        self._found: dict[str, None] = {}
        """What this look has to tell, in order."""
        self._must_run = True
        """Whether the command of ``--then`` has to run; also at first, since it may have missed something."""
        self._unregistered: set[str] = set()
        """``KIND/NAME`` of what an earlier look has found unregistered, or made so."""
        self._put_back_at: dict[str, float] = {}
        self._written_at: dict[str, float] = {}
        """When what was written last, by file, on the monotonic clock in seconds."""

    async def look(self, api: ApiClient, read: Sequence[Json]) -> tuple[int, bool]:
        """Act on the objects *read*; return the exit status, and whether to look again soon.

        Raises:
            GatewayError: the configuration or the cluster cannot be read or written to.
        """
        from gateway.importing.sync_plan import plan_sync

        self._found = {}
        if self._parsed.restore:
            for document in plan_sync(read, {}, self._choice).to_restore:
                await self._write(api, document)
                logs.out(f"{_title(document)} registered again: the API server calls it")
            return 0, False
        found = plan_sync(read, await self._destination.read(api), self._choice)
        await self._bring_up_to_date(api, found)
        is_well = self._tell(found)
        is_well &= await self._run_command(found)
        if self._parsed.unregister:
            is_well &= await self._unregister(api, found)
        for line in self._found:
            # One that goes on is told once.
            if line not in self._told:
                logs.say(line)
        self._told = set(self._found)
        return (0 if is_well else 1), bool(found.changed) or not is_well

    async def _bring_up_to_date(self, api: ApiClient, found: SyncPlan) -> None:
        texts = {one.file: one.text for one in found.followed if one.file in found.changed}
        if texts:
            await self._destination.write(api, texts)
        for file, fields in found.changed.items():
            self._written_at[file] = time.monotonic()
            logs.out(f"{self._destination.place(file)} written: {', '.join(fields)}")
        if self._parsed.prune and found.gone:
            await self._destination.remove(api, found.gone)
            for file in found.gone:
                logs.out(f"{self._destination.place(file)} removed: its object is gone from the cluster")
            self._must_run = True

    def _tell(self, found: SyncPlan) -> bool:
        """Note what is not as it should be, and return whether nothing is."""
        lines = [f"error: {problem}; what was written last stays" for problem in _problems(found)]
        if not self._parsed.prune:
            lines += [
                f"error: {self._destination.place(file)} is kept although its object is gone from the "
                "cluster; --prune removes it, --exclude ignores it"
                for file in found.gone
            ]
        if found.to_restore and not found.has_gateway:
            lines.append(
                "error: no gateway is registered, and nobody checks what these are for, which are "
                f"unregistered: {', '.join(map(_title, found.to_restore))}; use manifests, or sync --restore"
            )
        self._found.update(dict.fromkeys(lines))
        if found.needs_registration and not self._parsed.then:
            self._found["warning: rules or selectors have changed: apply what manifests makes again"] = None
        if found.called and not self._parsed.unregister:
            names = ", ".join(found.called)
            self._found[f"warning: called by the API server, too: {names}; --unregister ends that"] = None
        return not lines

    async def _run_command(self, found: SyncPlan) -> bool:
        command = self._parsed.then
        self._must_run |= found.needs_registration
        if not (command and self._must_run):
            return True
        try:
            process = await asyncio.create_subprocess_exec(*command)
            status: object = await process.wait()
        except OSError as error:
            status = error.strerror
        self._must_run = status != 0
        if self._must_run:
            line = f"error: --then {shlex.join(command)} ended with {status}: it runs again at the next look"
            self._found[line] = None
        return not self._must_run

    async def _unregister(self, api: ApiClient, found: SyncPlan) -> bool:
        """Unregister what the gateway has had for a while, and return whether that was all."""
        from gateway.importing.objects import file_name

        if found.called and not found.has_gateway:
            self._found["error: nothing is unregistered, since no gateway is registered: use manifests"] = (
                None
            )
            return False
        if found.called and self._parsed.then and self._must_run:
            return False
        now = time.monotonic()
        ready = [
            document
            for document in found.to_unregister
            if now - self._written_at.get(file_name(document), -_SOON_S) >= _SOON_S
        ]
        for document in ready:
            title = _title(document)
            if title in self._unregistered:
                # What a controller has added is the same to the API server as what it has put back.
                self._found[f"warning: {title} was registered again, last written by {_writer(document)}"] = (
                    None
                )
            if now - self._put_back_at.get(title, -_PUT_BACK_EVERY_S) < _PUT_BACK_EVERY_S:
                continue
            await self._write(api, document)
            self._unregistered.add(title)
            self._put_back_at[title] = now
            logs.out(f"{title} unregistered: the API server no longer calls it")
        followed = {_title(one.document) for one in found.followed}
        self._unregistered |= followed.difference(found.called)
        refused = [_title(one.document) for one in found.refused]
        if late := [one for one in found.called if one not in (*map(_title, ready), *refused)]:
            line = (
                f"warning: to be unregistered once the gateway has read what was written: {', '.join(late)}"
            )
            self._found[line if self._parsed.watch else f"{line}; run sync again"] = None
        return not late

    async def _write(self, api: ApiClient, document: Json) -> None:
        from gateway.importing.field_managers import FIELD_MANAGER
        from gateway.kubernetes.webhook_configurations import write

        await write(api, document, FIELD_MANAGER)


async def run_once(settings: Kubernetes, sync: Sync) -> int:
    """Synchronize once, with retries after conflicts, and return the exit status."""
    from gateway.kubernetes.access import connect
    from gateway.kubernetes.webhook_configurations import list_webhook_configurations

    api = await asyncio.to_thread(connect, settings)
    try:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return (await sync.look(api, await list_webhook_configurations(api)))[0]
            except ClusterError as error:
                if error.status != _CONFLICT or attempt == _ATTEMPTS:
                    raise
        raise AssertionError
    finally:
        await api.close()


async def watch(settings: Kubernetes, sync: Sync) -> int:
    """Synchronize after every change in the cluster until SIGTERM or SIGINT; return the exit status."""
    from gateway.kubernetes.access import ClusterAccess
    from gateway.kubernetes.webhook_configurations import WebhookConfigurations

    logging.getLogger("gateway.kubernetes").setLevel(logging.INFO)
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    access = ClusterAccess(settings)
    registrations = WebhookConfigurations(access)
    following = asyncio.create_task(registrations.run())
    told = ""
    try:
        await registrations.wait_until_synced()
        while True:
            registrations.changed.clear()
            soon = True
            try:
                async with access.api() as api:
                    _, soon = await sync.look(api, registrations.documents)
                told = ""
            except GatewayError as error:
                if str(error) != told and getattr(error, "status", 0) != _CONFLICT:
                    told = str(error)
                    logs.say(f"error: {error}; trying again")
            with suppress(TimeoutError):
                async with asyncio.timeout(_SOON_S if soon else _LATER_S):
                    await registrations.changed.wait()
    except asyncio.CancelledError:
        return 0
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await access.close()


def _problems(found: SyncPlan) -> list[str]:
    return [str(problem) for one in found.refused for problem in one.problems]


def _title(document: Json) -> str:
    from gateway.importing.objects import title

    return title(document)


def _writer(document: Json) -> str:
    from gateway.importing.field_managers import last_field_manager

    return last_field_manager(document)
