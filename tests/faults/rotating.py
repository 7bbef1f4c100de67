"""Replacement of files as kubelets and operators do it, and workers that log their events."""

from __future__ import annotations

import itertools
import json
import ssl
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import trustme

if TYPE_CHECKING:
    from collections.abc import Mapping

    from tests.kit import GatewayProcess

_GENERATIONS = itertools.count()

SDK_WORKER = """
import asyncio
import os
import sys
import time

import admission_gateway_worker.main
from admission_gateway_worker import PolicyServer

log = os.open(sys.argv.pop(1), os.O_WRONLY | os.O_CREAT | os.O_APPEND)
server = PolicyServer()
signals = admission_gateway_worker.main.stop_on_signals
notes = []


def note(event):
    os.write(log, f"{event} {time.monotonic_ns()}\\n".encode())


def stop_on_signals(stopping):
    async def note_stop():
        await stopping.wait()
        note("stopping")

    signals(stopping)
    notes.append(asyncio.create_task(note_stop()))
    note("up")


async def answer(review, delay_s):
    await asyncio.sleep(delay_s)
    note("answered")


@server.policy("slow")
async def slow(review):
    await answer(review, 0.5)


@server.policy("quick")
async def quick(review):
    await answer(review, 0.0)


admission_gateway_worker.main.stop_on_signals = stop_on_signals
try:
    server.main()
finally:
    note("ended")
"""
"""A worker of the SDK, given the file of its log first. A line for each event: its name and a monotonic time
in nanoseconds. ``stopping`` is a signal to stop, ``answered`` the end of a policy (a slow one takes half a
second)."""


def sdk_worker(folder: Path, log: Path) -> tuple[str, ...]:
    """Return the command of ``SDK_WORKER``."""
    script = folder / "sdk_worker.py"
    script.write_text(SDK_WORKER)
    return sys.executable, str(script), str(log)


def events(log: Path) -> dict[str, list[int]]:
    """Return the times of events by name, from the log of a ``SDK_WORKER``."""
    found: dict[str, list[int]] = {}
    for line in log.read_text().splitlines() if log.exists() else ():
        name, _, moment = line.partition(" ")
        found.setdefault(name, []).append(int(moment))
    return found


def command_pool(name: str, *command: str, **spec: Any) -> str:
    """Return a WorkerPool that is started by a command, as JSON (a YAML document)."""
    document = {
        "apiVersion": "admission-gateway.io/v1alpha1",
        "kind": "WorkerPool",
        "metadata": {"name": name},
        "spec": {"command": list(command), **spec},
    }
    return json.dumps(document) + "\n---\n"


def settings_document(**settings: Any) -> str:
    """Return a GatewayConfiguration as JSON (a YAML document)."""
    head = {"apiVersion": "admission-gateway.io/v1alpha1", "kind": "GatewayConfiguration"}
    return json.dumps({**head, **settings}) + "\n---\n"


def named(document: str, policy: str) -> str:
    """Return the webhook *document* with *policy* as the policy of all webhooks."""
    found = json.loads(document.removesuffix("\n---\n"))
    for webhook in found["webhooks"]:
        webhook["clientConfig"]["worker"]["policy"] = policy
    return json.dumps(found) + "\n---\n"


def write_whole(file: Path, content: bytes | str) -> None:
    """Replace *file* atomically."""
    new = file.with_name(f".{file.name}.{next(_GENERATIONS)}")
    new.write_bytes(content.encode() if isinstance(content, str) else content)
    new.rename(file)


def mount(folder: Path, files: Mapping[str, bytes]) -> None:
    """Have *folder* hold *files* as a mounted Secret or ConfigMap does, and replace those before at once.

    Source: k8s.io/kubernetes pkg/volume/util/atomic_writer.go.
    """
    folder.mkdir(exist_ok=True)
    payload = folder / f"..{next(_GENERATIONS):06}"
    payload.mkdir()
    for name, content in files.items():
        (payload / name).write_bytes(content)
    link = folder / "..data"
    old = link.resolve() if link.exists() else None
    (folder / "..data_tmp").symlink_to(payload.name)
    (folder / "..data_tmp").rename(link)
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(Path("..data") / name)
    if old is not None:
        for file in old.iterdir():
            file.unlink()
        old.rmdir()


class Client:
    """A client of a gateway: the authorities that it trusts, and the certificate that it presents."""

    def __init__(
        self, gateway: GatewayProcess, *trusted: trustme.CA, shows: trustme.LeafCert | None = None
    ) -> None:
        self.port = gateway.port
        self.client_context = ssl.create_default_context()
        for authority in trusted:
            authority.configure_trust(self.client_context)
        if shows is not None:
            shows.configure_cert(self.client_context)


def pems(*parts: trustme.CA) -> bytes:
    """Return the certificates of authorities, one after the other."""
    return b"".join(part.cert_pem.bytes() for part in parts)


def pair(authority: trustme.CA, *names: str) -> tuple[bytes, bytes]:
    """Return certificate chain and key, PEM, for *names*."""
    issued = authority.issue_cert(*names, key_type=trustme.KeyType.ECDSA)
    return b"".join(blob.bytes() for blob in issued.cert_chain_pems), issued.private_key_pem.bytes()


def open_connections(pid: int, port: int) -> int:
    """Return how many TCP connections the process has that came to the local *port* (proc(5), net/tcp)."""
    inodes = set()
    for link in Path(f"/proc/{pid}/fd").iterdir():
        try:
            target = str(link.readlink())
        except FileNotFoundError:
            continue
        if target.startswith("socket:["):
            inodes.add(target[8:-1])
    count = 0
    for line in Path("/proc/net/tcp").read_text().splitlines()[1:]:
        fields = line.split()
        is_established, local = fields[3] == "01", int(fields[1].rpartition(":")[2], 16)
        count += is_established and local == port and fields[9] in inodes
    return count
