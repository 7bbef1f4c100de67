"""``admission-gateway sync``: keeps the gateway's configuration equal to the cluster's webhook objects.

It is for webhooks whose rules and caBundle a controller writes at run time. Their objects are not deleted but
unregistered: the controller keeps writing them, and the API server never calls them
(``gateway.tools.registration.unregistered``).
"""

from __future__ import annotations

import asyncio
import logging
import shlex
import signal
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from gateway.base import logs
from gateway.base.errors import ClusterError, GatewayError

if TYPE_CHECKING:
    import argparse
    from collections.abc import Sequence

    from gateway.config.kinds.kubernetes_settings import KubernetesSettings
    from gateway.server.kubernetes.api_client import ApiClient
    from gateway.tools.importing.destinations import Destination
    from gateway.tools.importing.sync_plan import Choice, SyncPlan

    Json = dict[str, Any]

_ATTEMPTS: Final = 5
"""Attempts of one run after write conflicts."""
_SOON_S: Final = 5.0
"""Delay of the next run after a write; the gateway checks its files for changes every second."""
_LATER_S: Final = 60.0
_UNREGISTER_INTERVAL_S: Final = 60.0
"""Interval for each object, so that a controller that keeps restoring the object causes few writes."""
_CONFLICT: Final = 409


class Sync:
    """State of repeated synchronization runs."""

    def __init__(self, destination: Destination, choice: Choice, parsed: argparse.Namespace) -> None:
        self._destination = destination
        self._choice = choice
        self._parsed = parsed
        self._reported: set[str] = set()
        self._found: dict[str, None] = {}
        """Messages of this run, in order."""
        self._must_run = True
        """Whether the command of ``--then`` has to run; true at the start, in case changes were missed."""
        self._unregistered: set[str] = set()
        """``KIND/NAME`` of objects that an earlier run found unregistered or unregistered itself."""
        self._unregistered_at: dict[str, float] = {}
        self._written_at: dict[str, float] = {}
        """Time of the last write by file, monotonic seconds."""

    async def synchronize(self, api: ApiClient, read: Sequence[Json]) -> tuple[int, bool]:
        """Synchronize with the objects *read*; return the exit status, and whether to run again soon.

        Raises:
            GatewayError: the configuration or the cluster cannot be read or written.
        """
        from gateway.tools.importing.sync_plan import plan_sync

        self._found = {}
        if self._parsed.restore:
            for document in plan_sync(read, {}, self._choice).to_restore:
                await self._write(api, document)
                logs.print_output(f"{_title(document)} registered again: the API server calls it directly")
            return 0, False
        found = plan_sync(read, await self._destination.read(api), self._choice)
        await self._bring_up_to_date(api, found)
        is_well = self._check(found)
        is_well &= await self._run_command(found)
        if self._parsed.unregister:
            is_well &= await self._unregister(api, found)
        for line in self._found:
            # A persistent problem is reported once.
            if line not in self._reported:
                logs.print_error(line)
        self._reported = set(self._found)
        return (0 if is_well else 1), bool(found.changed) or not is_well

    async def _bring_up_to_date(self, api: ApiClient, found: SyncPlan) -> None:
        texts = {one.file: one.text for one in found.followed if one.file in found.changed}
        if texts:
            await self._destination.write(api, texts)
        for file, fields in found.changed.items():
            self._written_at[file] = time.monotonic()
            logs.print_output(f"{self._destination.describe(file)} written: {', '.join(fields)}")
        if self._parsed.prune and found.gone:
            await self._destination.remove(api, found.gone)
            for file in found.gone:
                logs.print_output(
                    f"{self._destination.describe(file)} removed: its object no longer exists in the cluster"
                )
            self._must_run = True

    def _check(self, found: SyncPlan) -> bool:
        """Record the problems, and return whether there are none."""
        lines = [f"error: {problem}; the last valid version is kept" for problem in _problems(found)]
        if not self._parsed.prune:
            lines += [
                f"error: {self._destination.describe(file)} is kept although its object no longer exists "
                "in the cluster; --prune removes it, --exclude ignores it"
                for file in found.gone
            ]
        if found.to_restore and not found.has_gateway:
            lines.append(
                "error: no gateway is registered, so that these unregistered webhooks are not called at all: "
                f"{', '.join(map(_title, found.to_restore))}; use manifests, or sync --restore"
            )
        self._found.update(dict.fromkeys(lines))
        if found.needs_registration and not self._parsed.then:
            self._found["warning: rules or selectors have changed: apply the output of manifests again"] = (
                None
            )
        if found.called and not self._parsed.unregister:
            names = ", ".join(found.called)
            self._found[
                f"warning: called directly by the API server, too: {names}; --unregister disables that"
            ] = None
        return not lines

    async def _run_command(self, found: SyncPlan) -> bool:
        command = self._parsed.then
        self._must_run |= found.needs_registration
        if not (command and self._must_run):
            return True
        try:
            status: object = await _run(command)
        except OSError as error:
            status = error.strerror
        self._must_run = status != 0
        if self._must_run:
            line = f"error: --then {shlex.join(command)} failed with {status}; it runs again in the next run"
            self._found[line] = None
        return not self._must_run

    async def _unregister(self, api: ApiClient, found: SyncPlan) -> bool:
        """Unregister objects that the gateway has loaded, and return whether none is left."""
        from gateway.tools.importing.objects import file_name

        if found.called and not found.has_gateway:
            self._found[
                "error: no object was unregistered, because no gateway is registered: use manifests"
            ] = None
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
                # A webhook that a controller has added also shows as registered again.
                self._found[f"warning: {title} was registered again, last writer: {_writer(document)}"] = None
            if now - self._unregistered_at.get(title, -_UNREGISTER_INTERVAL_S) < _UNREGISTER_INTERVAL_S:
                continue
            await self._write(api, document)
            self._unregistered.add(title)
            self._unregistered_at[title] = now
            logs.print_output(f"{title} unregistered: the API server no longer calls it directly")
        followed = {_title(one.document) for one in found.followed}
        self._unregistered |= followed.difference(found.called)
        refused = [_title(one.document) for one in found.refused]
        if late := [one for one in found.called if one not in (*map(_title, ready), *refused)]:
            names = ", ".join(late)
            line = f"warning: not unregistered until the gateway has loaded the new configuration: {names}"
            self._found[line if self._parsed.watch else f"{line}; run sync again"] = None
        return not late

    async def _write(self, api: ApiClient, document: Json) -> None:
        from gateway.server.kubernetes.webhook_configurations import write
        from gateway.tools.importing.field_managers import FIELD_MANAGER

        await write(api, document, FIELD_MANAGER)


async def run_once(settings: KubernetesSettings, sync: Sync) -> int:
    """Synchronize once, with retries after conflicts, and return the exit status."""
    from gateway.server.kubernetes.access import connect
    from gateway.server.kubernetes.webhook_configurations import list_webhook_configurations

    api = await asyncio.to_thread(connect, settings)
    try:
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                return (await sync.synchronize(api, await list_webhook_configurations(api)))[0]
            except ClusterError as error:
                if error.status != _CONFLICT or attempt == _ATTEMPTS:
                    raise
        raise AssertionError
    finally:
        await api.close()


async def watch(settings: KubernetesSettings, sync: Sync) -> int:
    """Synchronize after every change in the cluster until SIGTERM or SIGINT; return the exit status."""
    from gateway.server.kubernetes.access import ClusterAccess
    from gateway.server.kubernetes.webhook_configurations import WebhookConfigurations

    logging.getLogger("gateway.server.kubernetes").setLevel(logging.INFO)
    task = asyncio.current_task()
    assert task is not None
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, task.cancel)
    access = ClusterAccess(settings)
    registrations = WebhookConfigurations(access)
    following = asyncio.create_task(registrations.run())
    reported = ""
    try:
        await registrations.wait_until_synced()
        while True:
            registrations.changed.clear()
            soon = True
            try:
                async with access.api() as api:
                    _, soon = await sync.synchronize(api, registrations.documents)
                reported = ""
            except GatewayError as error:
                if str(error) != reported and getattr(error, "status", 0) != _CONFLICT:
                    reported = str(error)
                    logs.print_error(f"error: {error}; retrying")
            with suppress(TimeoutError):
                async with asyncio.timeout(_SOON_S if soon else _LATER_S):
                    await registrations.changed.wait()
    except asyncio.CancelledError:
        return 0
    finally:
        following.cancel()
        await asyncio.gather(following, return_exceptions=True)
        await access.close()


async def _run(command: Sequence[str]) -> int:
    """Return the exit status of *command*, which is ended if this is cancelled.

    Raises:
        OSError: it cannot be started.
    """
    process = await asyncio.create_subprocess_exec(*command)
    try:
        return await process.wait()
    finally:
        if process.returncode is None:
            # Else it could write to the cluster after the end of this process.
            process.terminate()
            await process.wait()


def _problems(found: SyncPlan) -> list[str]:
    return [str(problem) for one in found.refused for problem in one.problems]


def _title(document: Json) -> str:
    from gateway.tools.importing.objects import title

    return title(document)


def _writer(document: Json) -> str:
    from gateway.tools.importing.field_managers import last_field_manager

    return last_field_manager(document)
